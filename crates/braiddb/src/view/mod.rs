//! The sorted view: the merge order of several runs, stored once.
//!
//! The index is REMIX (Zhong, Chen, Wu and Jiang, FAST '21), with blind search within segments.
//! [`format`] specifies the bytes, [`anchors`] and [`search`] the two steps of a search,
//! [`builder`] and [`fold`] how views are built, [`cursor`] how they are read.

mod anchors;
mod bits;
mod build;
mod builder;
mod cache_miss;
mod count;
mod count_memo;
mod counters;
mod cursor;
mod damage;
mod directory;
mod edit;
mod find;
mod first_blocks;
mod fold;
mod format;
mod hash_get;
mod hash_index;
mod hold;
mod indexing;
mod reader;
mod rows;
mod run_writer;
mod scan;
mod search;
mod simd;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub use build::{Bounds, build_view};
pub use cache_miss::{CacheMiss, read_misses};
#[cfg(test)]
pub use counters::{key_comparisons, segments_read};
pub use cursor::ViewCursor;
pub use damage::{damaged_view, damaged_view_file};
#[cfg(test)]
pub use fold::FoldStats;
pub use fold::fold_view;
#[cfg(test)]
pub(crate) use format::PAGE_BYTES;
pub use format::ViewMeta;
pub use hash_get::{FastGet, Likely, Probe, prefetched_value};
pub use hold::Held;
pub use reader::{Leaf, Query, View};
pub use rows::{RowBatch, RowPlace};
pub use run_writer::SortedRunWriter;
#[cfg(test)]
pub use scan::ViewScan;
