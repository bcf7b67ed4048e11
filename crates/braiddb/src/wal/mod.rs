//! The write-ahead log.
//!
//! The log is a chain of records, one for each commit group, in segment files that are written once from front to
//! back. `format` has the bytes, `log` appends and syncs, `recovery` reads the chain after a restart.

mod context;
mod format;
mod inspect;
mod log;
mod recovery;
mod scan;
mod segment;
mod sync;
#[cfg(test)]
mod tests;

pub use context::{WalContext, WalOptions, WalStats};
pub use format::{Epoch, Lsn, RecordHeader, SegmentHeader, segment_path};
pub use inspect::{SegmentDump, inspect_segment, record_payload};
pub use log::{GroupHeader, Wal};
pub use recovery::{RecordInfo, RecoveryInput, RecoveryOutcome, Visit, recover};
pub use segment::{SegmentInfo, WalStart};
