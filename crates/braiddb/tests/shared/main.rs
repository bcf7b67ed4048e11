//! Tests of databases that processes share, in one program that starts itself as other processes.

#![cfg(any(unix, windows))]
#![expect(clippy::disallowed_methods, reason = "processes, and journals outside of the database")]

mod exclusive;
mod handles;
mod history;
mod multi;
mod processes;
mod streams;
