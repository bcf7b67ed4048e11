//! The database: open, recovery, state, background work, and the handles that users hold.

mod engine;
mod export;
mod files;
mod handles;
mod load;
mod maintenance;
mod open;
mod read;
mod record;
mod watch;
mod write;

#[cfg(test)]
pub mod tests_common;

pub use engine::events::event::{Event, MergeKind};
pub use engine::events::queue::Listener;
pub use engine::parts::scrubber::ScrubStats;
pub use engine::settings::{Durability, Settings, TreeOptions};
pub use engine::settings_check::check_range;
pub use engine::shared_runtime::{SharedRuntime, SharedRuntimeBuilder, SharedRuntimeStats};
pub use engine::slow_commits::report::{
    BackgroundWork, CommitParts, RunningWork, SlowCause, SlowCommit, SlowCommitTotal,
};
pub use engine::stats::{PartitionStats, ReaderStats, RunStats, Stats};
pub use engine::tree_codec::TreeCodec;
pub use export::checkpoint::{Image, ImageFile, ImageFileKind};
pub use export::dump_gaps::DumpGap;
pub use export::dump_source::{DumpParts, DumpRange, DumpSource};
pub use export::follower::{Follower, Refreshed, verify_path};
pub use files::archive_gaps::ArchiveGap;
pub use files::inspect;
pub use files::names::{LOCK_NAME, RESTORING_NAME};
pub use handles::async_commit::Commit;
pub use handles::batch::Batch;
pub use handles::conditional::Update;
pub use handles::cursor::Cursor;
pub use handles::database::{Db, TreeInfo};
pub use handles::iter::Iter;
pub use handles::key_range::KeyRange;
pub use handles::merge::MergeFunctionHandle;
pub use handles::multi::cursor::MultiCursor;
pub use handles::multi::iter::{MultiIter, MultiValues};
pub use handles::multi::tree::{MultiTree, split as split_multi_key, unescape};
pub use handles::multi::view::{ReadMulti, SnapshotMultiTree, TransactionMultiTree};
pub use handles::ranges::RangeEstimate;
pub use handles::snapshot::Snapshot;
pub use handles::streams::reader::StreamReader;
pub use handles::streams::writer::{PendingStream, StreamWriter};
pub use handles::transaction::cursor::TransactionCursor;
pub use handles::transaction::forwarded::{ExclusiveRight, ForwardedCommit, Kept, OpenWindow};
pub use handles::transaction::forwarded_streams::ForwardedStream;
pub use handles::transaction::handle::Transaction;
pub use handles::transaction::iter::TransactionIter;
pub use handles::tree::Tree;
pub use handles::tree::any::AnyTree;
pub use handles::tree::view::{Read, ReadCursor, SnapshotTree, TransactionTree};
pub use load::bulk::{BulkLoader, MultiBulkLoader, UnsortedLoader};
pub use load::dumped::{DumpedCatalog, DumpedContent, DumpedEntry, EntrySink};
pub use load::entries::EntryLoader;
pub use load::external_table::{TableBuilder, TableInfo, TableSpec};
pub use load::sorter::{BulkOptions, BulkProgress};
pub use load::writer::Loaded;
pub use maintenance::upgrade::{OlderFile, UpgradeReport};
pub use maintenance::verify::{
    AffectedKeys, ProblemKind, TreeKey, VerifyOptions, VerifyProblem, VerifyProgress, VerifyReport,
};
pub use open::archive::{LogArchive, RestorePoint};
pub use open::archive_files;
pub use open::birthplace::check_target;
pub use open::new_directory::{NewDirectory, Operation, make_durably, remove_unfinished};
pub use read::explain::{Explain, ExplainedStep, FoundPlace, Outcome};
pub use record::bytes::{Key, Value};
pub use record::version::{ETag, Version};
pub use watch::{
    Change, ChangeSet, ChangeStream, ChangedTree, Gap, LoggedStream, MergeBase, MergeOperand, ResumeToken,
    WatchOptions, WatchStopper, Watcher,
};
pub use write::piece_writer::Placed;
