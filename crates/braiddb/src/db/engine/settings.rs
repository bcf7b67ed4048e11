//! The settings of an open database, and the options of a commit or a tree.

use super::{memory::Common, shared_runtime::SharedRuntime};
use crate::{
    codec::{Compression, MergeFunction},
    platform::{BudgetedVfs, OpenFiles, RateLimiter, Runtime, Vfs, pages::HUGE_PAGE_BYTES},
    table::KeyBlocks,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// When a commit returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// When the commit survives a crash of the process or the operating system, and a power failure
    /// (if the device honours flushes). Costs one device flush, shared by all waiting commits.
    #[default]
    Sync,
    /// When it survives a crash of the process. A crash of the system may lose the last commits
    /// with this durability, never one without all later ones.
    Buffered,
    /// When it is in memory, without WAL. It becomes durable when it is flushed: by
    /// [`crate::Db::flush_to`], [`crate::Db::flush`], a full memtable, or the close of the
    /// database.
    ///
    /// A crash, even of the process alone, loses the last commits with this durability, never one
    /// without all later ones. After it, all trees have the contents of the commit whose cursor
    /// [`crate::Db::application_cursor`] returns. For applications that can resume from there.
    ///
    /// A commit with another durability flushes these first: avoid frequent changes between the
    /// two.
    None,
}

impl Durability {
    /// Returns the durability of a catalog change that commits with `self` may follow.
    pub(in crate::db) fn of_catalog(self) -> Durability {
        if self == Durability::None { Durability::None } else { Durability::Buffered }
    }
}

/// Options of a tree; `None` is the database's default. [`crate::Tree::set_options`] changes them
/// later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeOptions {
    /// Compression of its blocks and blobs.
    pub compression: Option<Compression>,
    /// Values of at least this many bytes go to blob files. 0 counts as 1: an empty value stays
    /// with its key.
    pub blob_threshold: Option<usize>,
    /// Time to live of its values, unless a put sets its own ([`crate::Tree::put_with_ttl`]). A
    /// tree with a `ttl` has no merge functions, and is no multi-tree.
    pub ttl: Option<Duration>,
}

/// Minimum size of a split partition, in bytes. Less could give each key its own file.
const PARTITION_BYTES_MIN: u64 = 4 << 10;

/// The same by default, even in a database of little memory.
const PARTITION_BYTES_SMALL: u64 = 128 << 20;

/// By default, each larger partition is split.
const PARTITION_BYTES_LARGE: u64 = 256 << 20;

/// Size of a split partition while garbage has a limit.
const PARTITION_BYTES_LIMITED: u64 = 64 << 20;

/// All settings of an open database, with their defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    pub memory: usize,
    pub durability: Durability,
    pub compression: Compression,
    pub create: bool,
    /// Creates missing parents of a new database and of its log archive.
    pub create_parents: bool,
    pub read_only: bool,
    pub background_threads: usize,
    pub memtable_bytes: Option<usize>,
    pub partition_bytes: Option<u64>,
    pub loose_runs: usize,
    pub fold_bytes_per_entry: u64,
    /// Maximum garbage under write load, in per cent of all entries; `None` for no limit.
    pub dead_percent: Option<u64>,
    pub log_segment_bytes: u64,
    pub block_bytes: usize,
    pub blob_threshold: usize,
    pub blob_file_bytes: u64,
    /// Maximum bytes of a streamed value. Only tests change the format's limit.
    pub stream_len_max: u64,
    pub key_blocks: KeyBlocks,
    pub hash_index_after: u64,
    pub read_in_place: bool,
    /// Bypasses the page cache for tables.
    pub direct_io: bool,
    /// The application's merge functions, by name.
    pub merge_functions: Vec<(String, Arc<dyn MergeFunction>)>,
    /// Retention of the log; `None` keeps the last setting.
    pub log_retention_bytes: Option<u64>,
    pub log_retention_age_us: Option<u64>,
    /// `u64::MAX` for never, here and in the next.
    pub reader_age_warn_ns: u64,
    pub reader_age_max_ns: u64,
    /// Maximum wait of a commit for an exclusive transaction; `u64::MAX` for no limit.
    pub exclusive_wait_ns: u64,
    /// Directory of the log archive.
    pub log_archive: Option<PathBuf>,
    /// Bytes of the disk space reserve; `None`: by the sizes of the volume and the data.
    pub disk_reserve: Option<u64>,
    /// Bytes of the volume, if known. Set at the open.
    pub volume_bytes: Option<u64>,
    /// Set during a restore: the directory is incomplete, and no blob file is removed.
    pub is_restoring: bool,
    /// Maximum open tables; `None`: the share of the process's budget.
    pub open_files_max: Option<usize>,
    /// Limits the writes of flushes and merges.
    pub rate_limiter: Option<Arc<RateLimiter>>,
    /// Read rate of the scrubber; 0 disables it.
    pub scrub_bytes_per_second: u64,
    /// The budget of open files; `None` before the open, or without a limit.
    pub open_files: Option<Arc<OpenFiles>>,
    pub vfs: Arc<dyn Vfs>,
    pub runtime: Arc<dyn Runtime>,
    /// Resources shared with other databases. An open database always has them, if only for itself.
    pub shared: Option<SharedRuntime>,
}

/// Minimum bytes of a write to a run, except the last.
const RUN_WRITE_BYTES_MIN: usize = 64 << 10;

/// The memtable size never makes a log segment shorter.
const LOG_SEGMENT_BYTES_MIN: u64 = 1 << 20;

/// Memory of the conflict window.
const WINDOW_BYTES_MIN: usize = 256 << 10;
const WINDOW_BYTES_MAX: usize = 16 << 20;

/// Length of a stream's first pieces.
const PIECE_BYTES_MIN: u64 = 256;
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// A blob file has room for this many pieces, unless it is very small.
const PIECES_PER_FILE_MIN: u64 = 64;

/// Approximate memory of a flush or merge thread: pieces of its input runs, unwritten output, and
/// fragmentation of the allocator's heap. Measured with three threads: 40 to 60 MB beyond the 83 to
/// 93 MB of memtables, cache and indexes.
const JOB_BYTES: usize = 16 << 20;

/// Maximum share of the budget for all threads together, in per cent.
const JOBS_PERCENT_MAX: usize = 37;

/// Returns the working memory of `threads` threads in bytes, out of a budget of `memory` bytes.
pub fn job_bytes_of(memory: usize, threads: usize) -> usize {
    (threads * JOB_BYTES).min(memory / 100 * JOBS_PERCENT_MAX)
}

/// Returns the size in bytes at which a memtable is frozen, for a budget of `memory` bytes.
pub fn memtable_bytes_of(memory: usize) -> usize {
    (memory / 8).clamp(1 << 20, 256 << 20)
}

/// Whether the budget of open files may close this file between reads: tables, and retained log
/// segments.
fn may_be_closed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["run", "view", "blob", "wal"].iter().any(|known| extension == *known))
}

impl Settings {
    /// Wraps the file system so that tables count towards a budget of open files: the shared one,
    /// its own, or that of the process.
    pub(in crate::db) fn with_open_files(self, shared: Option<&Arc<OpenFiles>>) -> Settings {
        if self.open_files.is_some() {
            return self;
        }
        let budget = match (shared, self.open_files_max) {
            (Some(shared), _) => Arc::clone(shared),
            (None, Some(max)) => OpenFiles::new(max),
            (None, None) => match self.vfs.open_files_limit() {
                Some(limit) => OpenFiles::of_process(limit),
                None => return self,
            },
        };
        // A reader beside the owner must expect that any file is removed.
        let vfs = BudgetedVfs::new(Arc::clone(&self.vfs), Arc::clone(&budget), may_be_closed, self.read_only);
        Settings { vfs: Arc::new(vfs), open_files: Some(budget), ..self }
    }

    /// Returns the resources that an open database shares with others, or has to itself.
    pub(in crate::db) fn common(&self) -> &Arc<Common> {
        &self.shared.as_ref().expect("an open database has one").0
    }

    /// Returns the length of a stream's first pieces; later ones are longer.
    pub fn piece_bytes(&self) -> usize {
        (self.blob_file_bytes / PIECES_PER_FILE_MIN).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) as usize
    }

    /// Returns the length of a log segment: half a memtable, and at most the option's value. A
    /// segment is freed once all its commits are flushed, so long segments hold space longer than
    /// short ones.
    pub fn log_segment_bytes(&self) -> u64 {
        let by_memtable = (self.memtable_bytes() as u64 / 2).max(LOG_SEGMENT_BYTES_MIN);
        self.log_segment_bytes.min(by_memtable)
    }

    /// Returns the bytes to gather before a write to a run. With enough memory it is a huge page:
    /// then the system keeps the file in huge pages, and maps them so.
    pub fn run_write_bytes(&self) -> usize {
        let by_memory = (self.memory / 32).max(1).ilog2();
        (1 << by_memory).clamp(RUN_WRITE_BYTES_MIN, HUGE_PAGE_BYTES)
    }

    /// Returns the size in bytes at which a memtable is frozen.
    pub fn memtable_bytes(&self) -> usize {
        self.memtable_bytes.unwrap_or(memtable_bytes_of(self.memory))
    }

    /// Returns the memory of the conflict window.
    pub fn window_bytes(&self) -> usize {
        (self.memory / 64).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
    }

    /// Returns the maximum memory of one transaction's reads and writes.
    pub fn transaction_bytes_max(&self) -> usize {
        self.memory / 2
    }

    /// Returns the size at which a partition is split. A split rewrites the partition, so large is
    /// better. But meanwhile memtables are flushed as runs that readers merge; the maximum allows
    /// about 16. With a limit on garbage, whole merges are frequent, and each needs the partition's
    /// space twice.
    pub fn partition_bytes(&self) -> u64 {
        let by_memory = match self.dead_percent {
            Some(_) => PARTITION_BYTES_LIMITED.max(self.memtable_bytes() as u64),
            None => (16 * self.memtable_bytes() as u64).clamp(PARTITION_BYTES_SMALL, PARTITION_BYTES_LARGE),
        };
        self.partition_bytes.map_or(by_memory, |bytes| bytes.max(PARTITION_BYTES_MIN))
    }
}

/// Exceeds the memory of any machine, and leaves headroom for arithmetic.
pub(in crate::db) const MEMORY_MAX: usize = usize::MAX >> 8;
