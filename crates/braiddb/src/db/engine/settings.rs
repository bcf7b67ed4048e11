//! The settings of an open database, and the options of a commit or a tree.

use super::{events::queue::Listener, memory::Common, shared_runtime::SharedRuntime, tree_codec::TreeCodec};
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
    /// When it survives a crash of the process or the system, and a power failure (if the device
    /// honours flushes). Costs one device flush, shared by all waiting commits.
    #[default]
    Sync,
    /// When it survives a crash of the process. A crash of the system may lose the last of these
    /// commits, never one without all later ones.
    Buffered,
    /// When it is in memory, without WAL. A flush makes it durable: [`crate::Db::flush_to`],
    /// [`crate::Db::flush`], a full memtable, or the close.
    ///
    /// A crash, even of the process alone, loses the last of these commits, never one without all
    /// later ones. After it, all trees match the commit whose cursor
    /// [`crate::Db::application_cursor`] returns.
    ///
    /// A commit with another durability flushes these first: avoid frequent changes between the
    /// two.
    None,
}

impl Durability {
    pub(in crate::db) fn of_catalog(self) -> Durability {
        if self == Durability::None { Durability::None } else { Durability::Buffered }
    }
}

/// Options of a tree; `None` is the database's. [`crate::Tree::set_options`] changes them.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// use braiddb::{Compression, Db, TreeOptions};
///
/// let db = Db::in_memory()?;
/// let options = TreeOptions::new().compression(Compression::Zstd).blob_threshold(64 << 10);
/// let photos = db.tree_with("photos", options)?;
/// assert_eq!(photos.options().blob_threshold, Some(64 << 10));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeOptions {
    /// Compression of its blocks and blobs.
    pub compression: Option<Compression>,
    /// Values of at least this many bytes go to blob files. Empty values never do.
    pub blob_threshold: Option<usize>,
    /// Time to live of its values, unless [`crate::Tree::put_with_ttl`] sets another. Excludes
    /// merge functions and multi-trees.
    pub ttl: Option<Duration>,
    /// Names of its key and value encodings, for readers of the tree. The engine does not apply or
    /// check them; `None`: not stored.
    pub codec: Option<TreeCodec>,
}

impl TreeOptions {
    /// Returns the database's options.
    pub fn new() -> TreeOptions {
        TreeOptions::default()
    }

    /// Sets the compression of the tree's blocks and blobs.
    pub fn compression(mut self, compression: Compression) -> TreeOptions {
        self.compression = Some(compression);
        self
    }

    /// Sets the size from which on values go to blob files, in bytes.
    pub fn blob_threshold(mut self, bytes: usize) -> TreeOptions {
        self.blob_threshold = Some(bytes);
        self
    }

    /// Sets the time to live of the tree's values.
    pub fn ttl(mut self, ttl: Duration) -> TreeOptions {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the names of the tree's key and value encodings.
    pub fn codec(mut self, codec: TreeCodec) -> TreeOptions {
        self.codec = Some(codec);
        self
    }
}

/// Minimum size of a split partition. Less could give each key its own file.
const PARTITION_BYTES_MIN: u64 = 4 << 10;

const PARTITION_BYTES_SMALL: u64 = 128 << 20;

/// Maximum default size of a partition.
const PARTITION_BYTES_LARGE: u64 = 256 << 20;

/// Size of a partition while garbage has a limit; at least a memtable.
const PARTITION_BYTES_LIMITED: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub struct Settings {
    pub memory: usize,
    pub durability: Durability,
    pub compression: Compression,
    pub create: bool,
    pub create_parents: bool,
    pub read_only: bool,
    pub background_threads: usize,
    pub memtable_bytes: Option<usize>,
    pub partition_bytes: Option<u64>,
    pub loose_runs: usize,
    pub fold_bytes_per_entry: u64,
    pub dead_percent: Option<u64>,
    pub log_segment_bytes: u64,
    pub block_bytes: usize,
    pub blob_threshold: usize,
    pub blob_file_bytes: u64,
    pub stream_len_max: u64,
    pub key_blocks: KeyBlocks,
    pub hash_index_after: u64,
    pub read_in_place: bool,
    pub direct_io: bool,
    pub merge_functions: Vec<(String, Arc<dyn MergeFunction>)>,
    /// `None` keeps the last setting.
    pub log_retention_bytes: Option<u64>,
    pub log_retention_age_us: Option<u64>,
    /// `u64::MAX` for never, here and in the next.
    pub reader_age_warn_ns: u64,
    pub reader_age_max_ns: u64,
    pub exclusive_wait_ns: u64,
    pub slow_commit_ns: u64,
    pub log_archive: Option<PathBuf>,
    /// `None`: by the sizes of volume and data.
    pub disk_reserve: Option<u64>,
    pub volume_bytes: Option<u64>,
    /// The directory is incomplete, and no blob file is removed.
    pub is_restoring: bool,
    pub open_files_max: Option<usize>,
    pub rate_limiter: Option<Arc<RateLimiter>>,
    pub scrub_bytes_per_second: u64,
    pub open_files: Option<Arc<OpenFiles>>,
    pub listener: Option<Listener>,
    pub vfs: Arc<dyn Vfs>,
    pub runtime: Arc<dyn Runtime>,
    /// Always set in an open database.
    pub shared: Option<SharedRuntime>,
}

const RUN_WRITE_BYTES_MIN: usize = 64 << 10;

const LOG_SEGMENT_BYTES_MIN: u64 = 1 << 20;

const WINDOW_BYTES_MIN: usize = 256 << 10;
const WINDOW_BYTES_MAX: usize = 16 << 20;

const PIECE_BYTES_MIN: u64 = 256;
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// Minimum pieces of a blob file, unless it is very small.
const PIECES_PER_FILE_MIN: u64 = 64;

/// Memory of a flush or merge thread: input, unwritten output, fragmentation of the heap. Three
/// threads took 40 to 60 MB.
const JOB_BYTES: usize = 16 << 20;

/// Maximum share of the budget for all threads, in per cent.
const JOBS_PERCENT_MAX: usize = 37;

pub fn job_bytes_of(memory: usize, threads: usize) -> usize {
    (threads * JOB_BYTES).min(memory / 100 * JOBS_PERCENT_MAX)
}

pub fn memtable_bytes_of(memory: usize) -> usize {
    (memory / 8).clamp(1 << 20, 256 << 20)
}

fn may_be_closed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["run", "view", "blob", "wal"].iter().any(|known| extension == *known))
}

impl Settings {
    /// Makes tables count towards a budget of open files.
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
        // Beside its owner, any file may be removed.
        let vfs = BudgetedVfs::new(Arc::clone(&self.vfs), Arc::clone(&budget), may_be_closed, self.read_only);
        Settings { vfs: Arc::new(vfs), open_files: Some(budget), ..self }
    }

    pub(in crate::db) fn common(&self) -> &Arc<Common> {
        &self.shared.as_ref().expect("an open database has one").0
    }

    pub fn piece_bytes(&self) -> usize {
        (self.blob_file_bytes / PIECES_PER_FILE_MIN).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) as usize
    }

    /// Returns the smaller of the option and half a memtable. A flush frees a log segment only if it
    /// covers the segment's last commit, so longer segments are freed later.
    pub fn log_segment_bytes(&self) -> u64 {
        let by_memtable = (self.memtable_bytes() as u64 / 2).max(LOG_SEGMENT_BYTES_MIN);
        self.log_segment_bytes.min(by_memtable)
    }

    /// A huge page if there is memory for it: then the system keeps and maps the file in huge
    /// pages.
    pub fn run_write_bytes(&self) -> usize {
        let by_memory = (self.memory / 32).max(1).ilog2();
        (1 << by_memory).clamp(RUN_WRITE_BYTES_MIN, HUGE_PAGE_BYTES)
    }

    pub fn memtable_bytes(&self) -> usize {
        self.memtable_bytes.unwrap_or(memtable_bytes_of(self.memory))
    }

    pub fn window_bytes(&self) -> usize {
        (self.memory / 64).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
    }

    pub fn transaction_bytes_max(&self) -> usize {
        self.memory / 2
    }

    /// Splits are expensive, so large is better. But meanwhile flushes add runs that readers merge;
    /// the maximum allows about 16. With a limit on garbage, whole merges need the partition's
    /// space twice.
    pub fn partition_bytes(&self) -> u64 {
        let by_memory = match self.dead_percent {
            Some(_) => PARTITION_BYTES_LIMITED.max(self.memtable_bytes() as u64),
            None => (16 * self.memtable_bytes() as u64).clamp(PARTITION_BYTES_SMALL, PARTITION_BYTES_LARGE),
        };
        self.partition_bytes.map_or(by_memory, |bytes| bytes.max(PARTITION_BYTES_MIN))
    }
}

/// Leaves headroom for arithmetic.
pub(in crate::db) const MEMORY_MAX: usize = usize::MAX >> 8;
