//! Types of every layer: keys, sequence numbers, entries, limits and errors.

mod bloom;
mod corruption;
mod cursor;
mod entry;
mod error;
mod error_text;
mod ids;
pub mod limits;
mod merge_order;
mod no_space;
mod prefix;
mod range_tombstone;
mod read_trace;
mod reader_kind;
mod rows;
mod shared_bytes;

pub use bloom::bloom_place;
pub(crate) use corruption::numbered;
pub use corruption::{CURRENT_NAME, Corruption, DatabaseFile};
pub use cursor::Cursor;
pub use entry::{Content, EntryKind, EntryRef};
pub use error::{Error, Result};
pub use ids::{FileId, FileNumber, MAX_SEQUENCE, SequenceNumber, TreeId, internal_key, split_internal_key};
pub use merge_order::{MergeOrder, key_head};
pub use no_space::NoSpace;
pub use prefix::shared_prefix_len;
pub use range_tombstone::{RangeTombstone, RangeTombstoneSet};
pub use read_trace::{FoundEntry, FoundKind, NoTrace, ReadSource, ReadStep, ReadTrace, SkipReason, ViewName};
pub use reader_kind::ReaderKind;
pub use rows::{Beyond, ROW_LANES, RowSlots, near_lane};
pub(crate) use shared_bytes::{Chunk, INLINE_MAX, SharedBytes};
