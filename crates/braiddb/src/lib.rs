//! BraidDB: an embedded, ordered, transactional key-value store.
//!
//! It keeps data in immutable sorted runs, and merges the runs of each key range into one sorted
//! view. A point read costs about one key comparison and a scan almost none per key, at low write
//! amplification.
//!
//! ```
//! # fn main() -> braiddb::Result<()> {
//! use braiddb::{Db, Durability};
//!
//! let db = Db::in_memory()?; // or Db::open("music.db")?
//! let albums = db.tree("albums")?;
//! albums.put(b"1", b"Ten")?;
//!
//! let mut batch = db.batch();
//! batch.put(&albums, b"2", b"Vs.").put(&albums, b"3", b"Vitalogy");
//! db.write(batch, Durability::Buffered)?;
//!
//! let before = db.snapshot();
//! albums.delete(b"1")?;
//! assert_eq!(before.get(&albums, b"1")?.as_deref(), Some(&b"Ten"[..]));
//! for pair in albums.range("2"..).rev() {
//!     let (key, value) = pair?;
//!     println!("{key:?} {value:?}");
//! }
//! # Ok(())
//! # }
//! ```

mod backup;
pub mod base;
mod cache;
mod codec;
mod commit;
mod compaction;
mod db;
mod dump;
#[cfg(doctest)]
mod guide;
mod memtable;
mod options;
pub mod platform;
mod read;
mod salvage;
mod table;
mod txn;
mod version;
mod view;
mod wal;

pub use backup::{
    BackupInfo, BackupOptions, BackupReport, BackupTarget, Backups, DirectoryTarget, Object, ObjectReader,
    ObjectWriter, Restored, Retention, TargetLock,
};
pub use base::{Error, NoSpace, ReaderKind, Result, SequenceNumber};
pub use codec::{Compression, MergeFunction, decode_set, encode_set};
pub use db::inspect;
pub use db::{
    AffectedKeys, ArchiveGap, Batch, BulkLoader, BulkOptions, BulkProgress, Change, ChangeSet, ChangeStream,
    ChangedTree, Commit, Cursor, Db, DumpGap, Durability, ETag, Follower, Gap, Iter, Key, KeyRange, Loaded,
    LoggedStream, MergeBase, MergeFunctionHandle, MergeOperand, MultiBulkLoader, MultiCursor, MultiIter,
    MultiTransactionIter, MultiTree, OlderFile, PartitionStats, PendingStream, ProblemKind, RangeEstimate, Read,
    ReaderStats, Refreshed, RestorePoint, ResumeToken, RunStats, ScrubStats, SharedRuntime, SharedRuntimeBuilder,
    SharedRuntimeStats, Snapshot, SnapshotTree, Stats, StreamReader, StreamWriter, TableBuilder, TableInfo, TableSpec,
    Transaction, TransactionIter, TransactionTree, Tree, TreeCodec, TreeInfo, TreeKey, TreeOptions, UnsortedLoader,
    Update, UpgradeReport, Value, VerifiedFile, VerifyOptions, VerifyProblem, VerifyProgress, VerifyReport, Version,
    WatchOptions, WatchStopper, Watcher,
};
pub use dump::{
    DumpInfo, DumpOptions, DumpProgress, DumpReport, DumpedTreeInfo, LoadOptions, LoadProgress, LoadReport, check_dump,
};
pub use options::Builder;
pub use platform::{RateLimiter, RateLimiterStats};
pub use salvage::{
    Loss, LossKind, LostKey, ManifestCondition, SalvageOptions, SalvageProgress, SalvageReport, SalvagedTree,
};
pub use txn::Savepoint;
