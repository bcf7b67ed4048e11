//! The settings of an open database, and what a caller chooses for a commit or a tree.

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

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// When it survives a crash of the process, of the operating system, and a power failure (if the device honours
    /// flushes). Costs one device flush, shared by all who wait.
    #[default]
    Sync,
    /// When it survives a crash of the process. A crash of the system may lose the last such commits, never one
    /// without all later ones.
    Buffered,
    /// When it is in memory: it does not go to the log. It is durable once it was flushed ([`crate::Db::flush_to`],
    /// [`crate::Db::flush`], or by itself when a memtable is full, and when the database is closed). A crash, also of the process alone,
    /// loses the last such commits, never one without all later ones, and all trees together: after it, each holds what was
    /// committed up to the commit whose cursor [`crate::Db::application_cursor`] tells. For whoever can begin again from there.
    ///
    /// To commit otherwise after such commits has them flushed first: better not mix the two often.
    None,
}

impl Durability {
    /// What a change of the catalog is committed with that others may follow which are committed with this.
    pub(in crate::db) fn of_catalog(self) -> Durability {
        if self == Durability::None { Durability::None } else { Durability::Buffered }
    }
}

/// How a tree is kept, where it is to differ from the database's default. [`crate::Tree::set_options`] changes it later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeOptions {
    /// Compression of its blocks and blobs.
    pub compression: Option<Compression>,
    /// Values of this many bytes or more go to blob files; 0 counts as 1, an empty value stays with its key.
    pub blob_threshold: Option<usize>,
    /// Values that are put into it expire after so long, unless their put says otherwise ([`crate::Tree::put_with_ttl`]). Such a
    /// tree has no merge functions, and is no multi-tree.
    pub ttl: Option<Duration>,
}

/// No partition is split that is smaller: with less, each key would have a file of its own.
const PARTITION_BYTES_MIN: u64 = 4 << 10;

/// Nor is one, where nothing else was asked for, in a database of little memory.
const PARTITION_BYTES_SMALL: u64 = 128 << 20;

/// Where nothing else was asked for, a larger one is split in any case.
const PARTITION_BYTES_LARGE: u64 = 256 << 20;

/// How large it may grow where what is dead has a limit.
const PARTITION_BYTES_LIMITED: u64 = 64 << 20;

/// All settings of an open database, with their defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    pub memory: usize,
    pub durability: Durability,
    pub compression: Compression,
    pub create: bool,
    /// Whether missing parents of a new database and of its log archive are created as well.
    pub create_parents: bool,
    pub read_only: bool,
    pub background_threads: usize,
    pub memtable_bytes: Option<usize>,
    pub partition_bytes: Option<u64>,
    pub loose_runs: usize,
    pub fold_bytes_per_entry: u64,
    /// How much of all entries may be dead while there are commits, in per cent, if there is a limit.
    pub dead_percent: Option<u64>,
    pub log_segment_bytes: u64,
    pub block_bytes: usize,
    pub blob_threshold: usize,
    pub blob_file_bytes: u64,
    /// The longest value that a stream writes. Others than the limit of the format are for tests.
    pub stream_len_max: u64,
    pub key_blocks: KeyBlocks,
    pub hash_index_after: u64,
    pub read_in_place: bool,
    /// Whether tables are read and written past the system's cache.
    pub direct_io: bool,
    /// Merge functions of the application's own, by name.
    pub merge_functions: Vec<(String, Arc<dyn MergeFunction>)>,
    /// How much of the log is retained, and for how long; `None`: as it was last.
    pub log_retention_bytes: Option<u64>,
    pub log_retention_age_us: Option<u64>,
    /// `u64::MAX` for never, as for the next.
    pub reader_age_warn_ns: u64,
    pub reader_age_max_ns: u64,
    /// How long a commit waits for an exclusive transaction at most; `u64::MAX` for no limit.
    pub exclusive_wait_ns: u64,
    /// Where the log is kept for good.
    pub log_archive: Option<PathBuf>,
    /// Bytes of the reserve of disk space; `None`: as the volume and the data ask for.
    pub disk_reserve: Option<u64>,
    /// The bytes of the volume, if it has an end and says so; found at the opening.
    pub volume_bytes: Option<u64>,
    /// Whether a restore is going on: the directory is not finished, and no blob file goes.
    pub is_restoring: bool,
    /// How many tables may be open at once; `None`: as many as all databases of the process may that say nothing of it.
    pub open_files_max: Option<usize>,
    /// What flushes and merges wait for before they write.
    pub rate_limiter: Option<Arc<RateLimiter>>,
    /// How fast files are read again to find damage; 0 for not at all.
    pub scrub_bytes_per_second: u64,
    /// The budget that its files are opened in; none before it is open, or if there is no limit.
    pub open_files: Option<Arc<OpenFiles>>,
    pub vfs: Arc<dyn Vfs>,
    pub runtime: Arc<dyn Runtime>,
    /// What it shares with other databases. Of an open database there is always one, if only for itself.
    pub shared: Option<SharedRuntime>,
}

/// No less of a run is written at once, if there is more of it.
const RUN_WRITE_BYTES_MIN: usize = 64 << 10;

/// No log segment is shorter for the sake of the memtable.
const LOG_SEGMENT_BYTES_MIN: u64 = 1 << 20;

/// Of the window of recent commits.
const WINDOW_BYTES_MIN: usize = 256 << 10;
const WINDOW_BYTES_MAX: usize = 16 << 20;

/// How long the first pieces of a stream are.
const PIECE_BYTES_MIN: u64 = 256;
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// No less of them fit into a blob file, but where that is very small.
const PIECES_PER_FILE_MIN: u64 = 64;

/// About what a thread that merges or flushes works with, and what the allocator keeps in its heap for it: pieces of the runs that it reads, what it
/// has not written yet, and room between what it made for the runs that lives on. With three of them, a process whose memtables, cache and indexes
/// took 83 to 93 MB had 40 to 60 MB more.
const JOB_BYTES: usize = 16 << 20;

/// But no more than this part of the budget, in per cent, for all of them.
const JOBS_PERCENT_MAX: usize = 37;

/// Bytes of memory for the work of this number of threads, out of a budget of `memory` bytes.
pub fn job_bytes_of(memory: usize, threads: usize) -> usize {
    (threads * JOB_BYTES).min(memory / 100 * JOBS_PERCENT_MAX)
}

/// The size in bytes at which a memtable is frozen, for a budget of `memory` bytes.
pub fn memtable_bytes_of(memory: usize) -> usize {
    (memory / 8).clamp(1 << 20, 256 << 20)
}

/// Whether a file that is opened for reading may be closed meanwhile: tables, and segments of the log that are retained.
fn may_be_closed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["run", "view", "blob", "wal"].iter().any(|known| extension == *known))
}

impl Settings {
    /// The same, with tables that are opened within the budget of open files: of the databases that it shares with, its own, or that of the
    /// process.
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
        // What is read beside its owner may be removed at any time.
        let vfs = BudgetedVfs::new(Arc::clone(&self.vfs), Arc::clone(&budget), may_be_closed, self.read_only);
        Settings { vfs: Arc::new(vfs), open_files: Some(budget), ..self }
    }

    /// What an open database of these settings shares with others, or has to itself.
    pub(in crate::db) fn common(&self) -> &Arc<Common> {
        &self.shared.as_ref().expect("an open database has one").0
    }

    /// How long the first pieces of a stream are; later ones are longer.
    pub fn piece_bytes(&self) -> usize {
        (self.blob_file_bytes / PIECES_PER_FILE_MIN).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) as usize
    }

    /// The length of a log segment: half a memtable, and at most the option's value. A segment is freed once all its commits are
    /// flushed, so long segments hold space longer than short ones.
    pub fn log_segment_bytes(&self) -> u64 {
        let by_memtable = (self.memtable_bytes() as u64 / 2).max(LOG_SEGMENT_BYTES_MIN);
        self.log_segment_bytes.min(by_memtable)
    }

    /// How much of a run is gathered before it is written: as much as a huge page if there is memory for it, since the system
    /// then keeps the file in such pages, and maps them as such.
    pub fn run_write_bytes(&self) -> usize {
        let by_memory = (self.memory / 32).max(1).ilog2();
        (1 << by_memory).clamp(RUN_WRITE_BYTES_MIN, HUGE_PAGE_BYTES)
    }

    /// A memtable is frozen when it has this many bytes.
    pub fn memtable_bytes(&self) -> usize {
        self.memtable_bytes.unwrap_or(memtable_bytes_of(self.memory))
    }

    /// How much is kept of which keys were written lately, while there are transactions.
    pub fn window_bytes(&self) -> usize {
        (self.memory / 64).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
    }

    /// The most memory for what one transaction reads and writes.
    pub fn transaction_bytes_max(&self) -> usize {
        self.memory / 2
    }

    /// A partition is split when it has this many bytes. Splitting rewrites it, so the larger the better, but while that
    /// lasts, memtables are flushed as runs that readers have to merge: not many more than 16 fit into the largest. Where what is dead has
    /// a limit, partitions are merged whole all the time, and stand twice meanwhile.
    pub fn partition_bytes(&self) -> u64 {
        let by_memory = match self.dead_percent {
            Some(_) => PARTITION_BYTES_LIMITED.max(self.memtable_bytes() as u64),
            None => (16 * self.memtable_bytes() as u64).clamp(PARTITION_BYTES_SMALL, PARTITION_BYTES_LARGE),
        };
        self.partition_bytes.map_or(by_memory, |bytes| bytes.max(PARTITION_BYTES_MIN))
    }
}

/// More memory than any machine has, and little enough to be reckoned with.
pub(in crate::db) const MEMORY_MAX: usize = usize::MAX >> 8;
