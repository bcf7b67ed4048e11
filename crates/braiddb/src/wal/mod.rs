//! The write-ahead log: a chain of records, one per commit group, in segment files, which are
//! written once from front to back. `format` and `record` define the bytes, `log` appends and
//! syncs, `recovery` reads the chain after a restart. An **epoch** is one use of the log, from open
//! to close.

mod context;
mod damage;
mod damaged;
mod format;
mod inspect;
mod log;
mod reader;
mod record;
mod recovery;
mod recovery_prefetch;
mod remains;
mod retention;
mod scan;
mod segment;
mod sync;
mod tail;
#[cfg(test)]
mod tests;

pub use context::{WalContext, WalOptions};
pub use damage::{LogBounds, LogDamage, LogDamageKind, WalkedLog, walk_damaged_log};
pub use damaged::{DamagedLog, DamagedLogInput, read_damaged_log};
#[cfg(test)]
pub use format::SegmentHeader;
pub use format::{Lsn, SEGMENT_HEADER_LEN, segment_number, segment_path};
pub use inspect::{first_group, inspect_segment, read_groups, record_payload, stated_len};
pub use log::{GroupHeader, Wal};
pub use reader::{ClosedLog, Gone, LogItem, LogReader, ReadError, SegmentSource, end_of_epoch, visit_groups};
#[cfg(test)]
pub use record::RecordHeader;
pub use recovery::{CutTail, RecordInfo, RecoveryInput, RecoveryOutcome, Visit, recover, recover_with};
pub use retention::RetentionLimit;
#[cfg(test)]
pub use segment::WalStart;
pub use segment::{FinishedSegment, Segment};
pub use tail::{Followed, Tail};
