//! Import: a reader, several parsers and a writer, in parallel.
//!
//! INVARIANT: one atomic batch writes records, their index entries and the import's progress. After
//! a crash the three agree.

mod created;
mod format;
mod header;
mod index;
mod index_build;
mod index_store;
mod job;
mod json_output;
mod keys;
mod load;
mod number;
mod pipeline;
mod progress;
mod rejects;
mod report;
mod stages;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub use created::KnownTrees;
pub use format::Format;
pub use index::{INDEX_KEY_BYTES_MAX, IndexSpec, Indexes, index_key};
pub use index_build::{drop_index, rebuild_index};
pub use index_store::{all_indexes, store_specs, tree_id};
pub use job::{ImportJob, OnError, Target};
pub use json_output::JsonOutput;
pub use keys::{NewNotation, stored_by_id, stored_key_notation};
pub use progress::IMPORT_TREE;
pub use stages::{StageReport, StagesReport};
pub use table::{Delimiter, TableOptions, TypedField};
pub use writer::{Acknowledgement, batch_bytes, written_bytes};
