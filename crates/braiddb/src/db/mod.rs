//! The database: open, recovery, state, background work, and the handles that users hold.

mod archive_gaps;
mod batch;
mod bulk;
mod checkpoint;
mod conditional;
mod counting;
mod cursor;
mod database;
mod dump_gaps;
mod dump_source;
mod engine;
mod expiry;
mod failing;
mod files;
mod follower;
pub mod inspect;
mod iter;
mod load_entries;
mod load_install;
mod load_place;
mod load_writer;
mod maintenance;
mod multi;
mod multi_cursor;
mod open;
mod ranges;
mod read;
mod record;
mod snapshot;
mod sorter;
mod spill;
mod stream_reader;
mod streams;
mod tables;
mod transaction;
mod transaction_iter;
mod transaction_streams;
mod tree;
mod update;
mod watch;
mod write;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_bulk;
#[cfg(test)]
mod tests_checkpoint;
#[cfg(test)]
pub mod tests_common;
#[cfg(test)]
mod tests_conditional;
#[cfg(test)]
mod tests_counting;
#[cfg(test)]
mod tests_cursor;
#[cfg(test)]
mod tests_exclusive;
#[cfg(test)]
mod tests_expiry;
#[cfg(test)]
mod tests_follower;
#[cfg(test)]
mod tests_follower_watch;
#[cfg(test)]
mod tests_keep_ttl;
#[cfg(test)]
mod tests_multi;
#[cfg(test)]
mod tests_review;
#[cfg(test)]
mod tests_seek_rows;
#[cfg(test)]
mod tests_stream_appends;
#[cfg(test)]
mod tests_streams;
#[cfg(test)]
mod tests_tables;
#[cfg(test)]
mod tests_transactions;
#[cfg(test)]
mod tests_tree_options;
#[cfg(test)]
mod tests_watch;

pub use archive_gaps::ArchiveGap;
pub use batch::Batch;
pub use bulk::{BulkLoader, MultiBulkLoader, UnsortedLoader};
pub use checkpoint::{Image, ImageFile, ImageFileKind};
pub use conditional::Update;
pub use cursor::Cursor;
pub use database::{Db, TreeInfo};
pub use dump_gaps::DumpGap;
pub use dump_source::{DumpParts, DumpRange, DumpSource, DumpedCatalog, DumpedContent, DumpedEntry, EntrySink};
pub use engine::settings::{Durability, Settings, TreeOptions};
pub use engine::settings_check::check_range;
pub use engine::shared_runtime::{SharedRuntime, SharedRuntimeBuilder, SharedRuntimeStats};
pub use engine::stats::{PartitionStats, ReaderStats, RunStats, Stats};
pub use follower::{Follower, Refreshed};
pub use iter::Iter;
pub use load_entries::EntryLoader;
pub use load_writer::Loaded;
pub use maintenance::scrub::ScrubStats;
pub use maintenance::upgrade::{OlderFile, UpgradeReport};
pub use maintenance::verify::{
    AffectedKeys, ProblemKind, TreeKey, VerifiedFile, VerifyOptions, VerifyProblem, VerifyProgress, VerifyReport,
    verify_path,
};
pub use multi::{MultiIter, MultiTree, split as split_multi_key, unescape};
pub use multi_cursor::MultiCursor;
pub use open::archive::{LogArchive, RestorePoint};
pub use open::new_directory::{LOCK_NAME, NewDirectory, Operation, RESTORING_NAME, make_durably, remove_unfinished};
pub use ranges::RangeEstimate;
pub use read::merge_operands::MergeFunctionHandle;
pub use record::bytes::{Key, Value};
pub use record::version::{ETag, Version};
pub use snapshot::Snapshot;
pub use sorter::{BulkOptions, BulkProgress};
pub use stream_reader::StreamReader;
pub use streams::{PendingStream, StreamWriter};
pub use tables::{TableBuilder, TableInfo, TableSpec};
pub use transaction::Transaction;
pub use transaction_iter::{MultiTransactionIter, TransactionIter};
pub use tree::Tree;
pub use watch::{
    Change, ChangeSet, ChangedTree, Gap, LoggedStream, MergeBase, MergeOperand, ResumeToken, WatchOptions,
    WatchStopper, Watcher,
};
