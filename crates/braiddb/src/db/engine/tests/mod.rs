//! Tests of the room, each file of one behaviour.

pub mod panics;
pub mod shared_runtime;
pub mod thread_pool;
