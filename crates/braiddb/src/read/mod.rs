//! Reads: one read state is loaded, then memtables, unindexed runs and views are searched, newest
//! first.

mod ahead;
mod batch_merger;
mod count;
mod fast_path;
mod get;
mod lookup_key;
mod merge;
mod partition_concat;
mod scan;
mod scan_batch;
mod since;
mod state;
mod state_scan;

#[cfg(test)]
mod tests;

pub use batch_merger::{BATCHES_MAX, BatchMerger};
pub use count::{Counted, Survey, count, count_kept, survey};
pub use fast_path::{fast_get, fast_get_many};
pub use get::{GROUP_KEYS, Lookup, get, get_prepared, get_with, prepare};
pub use lookup_key::LookupKey;
pub use merge::Merge;
pub use partition_concat::{PartitionConcatIter, Source as PartitionSource};
pub use scan::{ScanCursor, Source};
pub use scan_batch::{Batch, Heads, Item, ScanBatch};
pub use since::{is_written_after, newest_sequence};
pub use state::{Garbage, ReadState};
pub use state_scan::{ChunkRow, PooledScan, RestingScans, RowsAhead, StateScan, UNKNOWN_AGE};
