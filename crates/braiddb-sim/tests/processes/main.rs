//! Batteries that start and kill processes.

#![cfg(any(unix, windows))]

#[path = "../common/mod.rs"]
mod common;

mod follower;
mod kill9;
mod kill9_log_off;
