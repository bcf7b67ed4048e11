//! Tests of the room, each file of one behaviour.

pub mod failing_merges;
pub mod fast_path;
pub mod fast_path_batches;
pub mod merge_operands;
pub mod reader_registry;
