//! Reads: one state loaded at once, then memtables, loose runs and views, newest first.

mod ahead;
mod chain;
mod count;
mod get;
mod merge;
mod quick;
mod scan;
mod since;
mod sought;
mod state;
mod strand;
mod strands;

#[cfg(test)]
mod tests;

pub use chain::{PartitionChain, Source as PartitionSource};
pub use count::{Counted, Survey, count, count_kept, survey};
pub use get::{GROUP_KEYS, Lookup, get, get_prepared, get_with, prepare};
pub use merge::Merge;
pub use quick::{get_many_quickly, get_quickly};
pub use scan::{ScanCursor, Source};
pub use since::{is_written_after, newest_sequence};
pub use sought::Sought;
pub use state::{Garbage, ReadState};
pub use strand::{Batch, Heads, Item, Strand};
pub use strands::{STRANDS_MAX, Strands};
