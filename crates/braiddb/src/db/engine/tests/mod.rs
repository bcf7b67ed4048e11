//! Tests of the engine, one behaviour for each file.

pub mod catalog;
pub mod close;
pub mod panics;
pub mod shared_runtime;
pub mod thread_pool;
