//! Tests of reads, one behavior per file.

pub mod cold_blobs;
pub mod explain;
pub mod failing_merges;
pub mod fast_path;
pub mod fast_path_batches;
pub mod merge_operands;
pub mod range_deletes;
pub mod reader_registry;
