//! Tests of the room, each file of one behaviour.

pub mod panics;
pub mod scheduler;
pub mod shared_runtime;
