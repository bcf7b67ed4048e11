//! Reads: one state loaded at once, then memtables, loose runs and views, newest first.

mod chain;
mod get;
mod merge;
mod scan;
mod state;

#[cfg(test)]
mod tests;

pub use chain::PartitionChain;
pub use get::{GROUP_KEYS, Lookup, get, get_prepared, prepare};
pub use merge::{Ahead, Merge};
pub use scan::ScanCursor;
pub use state::{Garbage, ReadState};
