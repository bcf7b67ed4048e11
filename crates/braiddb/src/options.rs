//! Options of a database ([`Builder`]).

use crate::{
    base::limits,
    codec::{Compression, MergeFunction},
    db::{Durability, Event, Listener, Settings, SharedRuntime},
    platform::{RateLimiter, Runtime, SystemRuntime, Vfs},
    shared::SharedOptions,
    table::KeyBlocks,
};
use std::{path::Path, sync::Arc, time::Duration};

#[cfg(doc)]
use crate::{Db, Error, Follower};

mod open;
mod tuning;

pub use crate::base::limits::{MAX_APPLICATION_CURSOR_LEN, MAX_KEY_LEN, MAX_VALUE_LEN};
pub use tuning::Tuning;

/// Default age, in nanoseconds, above which a reader is reported as overstaying.
const READER_AGE_WARN_NS: u64 = 60_000_000_000;

/// Default time, in nanoseconds, that a commit waits for an exclusive transaction.
const EXCLUSIVE_WAIT_NS: u64 = 30_000_000_000;

const SLOW_COMMIT_NS: u64 = 100_000_000;

/// Options of a database.
///
/// An option out of range makes the open fail with `InvalidArgument`, which names the option, its
/// value and the range; nothing is created then.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// let db = braiddb::Db::builder().memory(64 << 20).open_in_memory()?;
/// db.tree("albums")?.put(b"1", b"Ten")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    settings: Settings,
    refresh_every: Option<Duration>,
    sharing: SharedOptions,
}

impl Default for Builder {
    fn default() -> Self {
        Builder::new()
    }
}

impl Builder {
    /// Returns a builder with the default options.
    pub fn new() -> Builder {
        Builder {
            settings: Settings {
                memory: 256 << 20,
                durability: Durability::Sync,
                compression: Compression::Lz4,
                create: true,
                create_parents: false,
                read_only: false,
                background_threads: 2,
                memtable_bytes: None,
                partition_bytes: None,
                loose_runs: 8,
                fold_bytes_per_entry: 10,
                dead_percent: None,
                log_segment_bytes: 16 << 20,
                block_bytes: 4096,
                blob_threshold: 4096,
                blob_file_bytes: 256 << 20,
                stream_len_max: limits::MAX_VALUE_LEN,
                key_blocks: KeyBlocks::default(),
                hash_index_after: 2048,
                read_in_place: true,
                direct_io: false,
                merge_functions: Vec::new(),
                log_retention_bytes: None,
                log_retention_age_us: None,
                reader_age_warn_ns: READER_AGE_WARN_NS,
                reader_age_max_ns: u64::MAX,
                exclusive_wait_ns: EXCLUSIVE_WAIT_NS,
                slow_commit_ns: SLOW_COMMIT_NS,
                log_archive: None,
                open_files_max: None,
                rate_limiter: None,
                scrub_bytes_per_second: 0,
                open_files: None,
                is_restoring: false,
                disk_reserve: None,
                volume_bytes: None,
                listener: None,
                vfs: default_vfs(),
                runtime: Arc::new(SystemRuntime::new()),
                shared: None,
            },
            refresh_every: Some(Duration::from_secs(1)),
            sharing: SharedOptions::default(),
        }
    }

    /// Memory for memtables, caches and indexes together, in bytes.
    ///
    /// Default: 256 MiB. Range: 64 KiB to `usize::MAX / 256` (2^56 - 1 bytes on 64-bit machines).
    /// The memory of a single operation, such as a large value, comes on top.
    pub fn memory(mut self, bytes: usize) -> Builder {
        self.settings.memory = bytes;
        self
    }

    /// Durability of writes and commits. Default: `Sync`. `put_with` and `commit_with` take it per call.
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.settings.durability = durability;
        self
    }

    /// Compression of blocks and blobs, unless a tree sets its own.
    ///
    /// Default: LZ4. With `None`, large commits are not compressed in the log either.
    pub fn compression(mut self, compression: Compression) -> Builder {
        self.settings.compression = compression;
        self
    }

    /// Creates the database if absent.
    ///
    /// Default: yes. The directory must be absent or empty except for hidden files and
    /// `lost+found`, and not inside a backup, a log archive or another database; else the open
    /// fails with `AlreadyExists`.
    pub fn create(mut self, create: bool) -> Builder {
        self.settings.create = create;
        self
    }

    /// Creates missing parents of a new database and of its log archive.
    ///
    /// Default: no; a missing parent is `NotFound`, so that a mistyped path creates no directories.
    /// Backup targets, and the directory of a restore, load, salvage or checkpoint, are created with
    /// their parents, whatever this option is.
    pub fn create_parents(mut self, create: bool) -> Builder {
        self.settings.create_parents = create;
        self
    }

    /// Opens for reading only, as [`Builder::open_read_only`] does.
    pub fn read_only(mut self, read_only: bool) -> Builder {
        self.settings.read_only = read_only;
        self
    }

    /// Interval at which a [`Follower`] refreshes itself, on its own thread; `None` for never.
    ///
    /// Default: one second. A follower pins the files of its state: long intervals cost disk space.
    pub fn refresh_every(mut self, pause: Option<Duration>) -> Builder {
        self.refresh_every = pause;
        self
    }

    /// Maximum duration of a call to a database that processes share
    /// ([`SharedDb`](crate::shared::SharedDb)), election of a new owner included.
    ///
    /// Default: 30 seconds. Range: above zero, up to ten minutes.
    pub fn shared_timeout(mut self, timeout: Duration) -> Builder {
        self.sharing = self.sharing.with_timeout(timeout);
        self
    }

    /// Registers a merge function, for [`Tree::merge`](crate::Tree::merge) and its variants.
    ///
    /// The database records the name: register the same function at each open, or keys with its
    /// operands cannot be read.
    pub fn merge_function(mut self, name: impl Into<String>, function: Arc<dyn MergeFunction>) -> Builder {
        self.settings.merge_functions.push((name.into(), function));
        self
    }

    /// File system. Default: the operating system's.
    pub fn vfs(mut self, vfs: Arc<dyn Vfs>) -> Builder {
        self.settings.vfs = vfs;
        self
    }

    /// Maximum number of table files (`.run`, `.view`, `.blob`) and retained log segments open at
    /// once; at least 4.
    ///
    /// The least recently read file is closed, and reopened for its next read
    /// ([`crate::stats::Stats::file_reopenings`]). Files being read, and unmapped files of a follower, may
    /// exceed the maximum.
    ///
    /// Default: all databases of the process without a setting share half of its descriptor limit
    /// (`ulimit -n`), at most 65,536; none with a [`Builder::vfs`] of your own. A database needs
    /// about ten descriptors besides, and two for each thread that merges.
    pub fn open_files_max(mut self, files: usize) -> Builder {
        self.settings.open_files_max = Some(files);
        self
    }

    /// Limits the bytes per second written by flushes, merges and other background work.
    ///
    /// Default: none. Several databases may share a limiter. A limit below the write load throttles
    /// writers. Without background threads, user calls flush and merge, and wait.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use braiddb::platform::RateLimiter;
    /// use std::{sync::Arc, time::Duration};
    ///
    /// // 40 MB a second; or as much as keeps cache misses and syncs below two milliseconds.
    /// let limiter = Arc::new(RateLimiter::new(40_000_000));
    /// let by_latency = RateLimiter::by_latency(10_000_000, 400_000_000, Duration::from_millis(2));
    /// let db = braiddb::Db::builder().rate_limiter(Arc::clone(&limiter)).open_in_memory()?;
    /// limiter.set_bytes_per_second(80_000_000); // at any time
    /// # assert_eq!(by_latency.stats().bytes_per_second, 400_000_000);
    /// # db.close()
    /// # }
    /// ```
    pub fn rate_limiter(mut self, limiter: Arc<RateLimiter>) -> Builder {
        self.settings.rate_limiter = Some(limiter);
        self
    }

    /// Reads and checks all runs and views in a loop, at this rate, to find damage in files that
    /// are seldom read.
    ///
    /// Default: 0, which disables it. Runs in a background thread while there is nothing to merge.
    /// Damage is logged as an error and counted in [`Stats::scrub`](crate::stats::Stats::scrub). Only
    /// [`Db::verify`] also reads blob files and the log.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::builder().scrub(1 << 20).open_in_memory()?;
    /// assert_eq!(db.stats().scrub.damaged_units, 0);
    /// # db.close()
    /// # }
    /// ```
    pub fn scrub(mut self, bytes_per_second: u64) -> Builder {
        self.settings.scrub_bytes_per_second = bytes_per_second;
        self
    }

    /// Calls `listener` for each [`Event`]: flushes, merges, throttled and waiting writers, errors, a
    /// full disk, backups. For alarms and traces; [`Db::stats`] has the counters.
    ///
    /// A thread of its own (`braiddb-events`) makes the calls in order, soon after the event, and
    /// without any lock: the listener may call the database. No commit waits for it: a slow listener
    /// gets [`Event::Lost`] in place of events. A panic ends that call only. A close returns before
    /// the last calls. A later listener replaces an earlier one.
    ///
    /// A listener that holds a handle of the database keeps it open until [`Db::close`].
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use braiddb::{Db, events::Event};
    /// use std::{sync::mpsc, time::Duration};
    ///
    /// let (sender, events) = mpsc::channel();
    /// let db = Db::builder().on_event(move |event| _ = sender.send(event.clone())).open_in_memory()?;
    /// db.tree("albums")?.put(b"1", b"Ten")?;
    /// db.flush()?;
    /// assert_eq!(events.recv_timeout(Duration::from_secs(60)), Ok(Event::FlushBegin));
    /// # db.close()
    /// # }
    /// ```
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Builder {
        self.settings.listener = Some(Listener(Arc::new(listener)));
        self
    }

    /// Clock, randomness and threads. Default: the operating system's.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Builder {
        self.settings.runtime = runtime;
        self
    }

    /// Shares memory, cache and threads with other databases.
    ///
    /// Overrides [`Builder::memory`] and [`Builder::background_threads`].
    pub fn shared_runtime(mut self, shared: &SharedRuntime) -> Builder {
        self.settings.shared = Some(shared.clone());
        self
    }

    /// Number of threads for merges.
    ///
    /// Default: 2, at most 1024. Three more threads flush memtables, prepare log segments, and
    /// close files; the first asynchronous commit ([`Commit`](crate::Commit)) starts one that syncs
    /// the log. With fewer processors than these threads plus two, merges are throttled while there
    /// is little to merge.
    ///
    /// With 0, the committing thread does all of this, at moments that depend on the operations
    /// alone, so that tests can repeat a run exactly.
    pub fn background_threads(mut self, threads: usize) -> Builder {
        self.settings.background_threads = threads;
        self
    }

    /// Caps space amplification under write load: the percentage of entries that may be garbage
    /// (superseded or deleted).
    ///
    /// Range: 5 to 40. Garbage in unindexed runs is estimated. Writers are throttled if merges
    /// cannot keep up.
    ///
    /// Default: no cap. A partition is then merged once 40 % of its view is garbage, for the lowest
    /// write amplification: under random overwrites of a small database, tables took twice the
    /// writes with 20, and nearly four times with 10. With a cap, partitions are split at 64 MiB.
    /// An idle database is merged down to 10 % either way.
    pub fn garbage_percent(mut self, percent: u8) -> Builder {
        self.settings.dead_percent = Some(u64::from(percent));
        self
    }

    /// Sizes and thresholds inside the engine, for measurements and tests. Not stable: see
    /// [`Tuning`]. A later call changes only what it sets.
    pub fn tuning(mut self, tuning: Tuning) -> Builder {
        tuning.apply(&mut self.settings);
        self
    }

    /// Bytes of log to retain for watchers ([`Db::watch`]), beyond recovery's needs.
    ///
    /// Whole segments count, and so does garbage in blob files of retained commits. The oldest
    /// segment is removed beyond the limit, even if a watcher needs it. Each open for writing
    /// begins a segment of 1 MiB. With retention, each flush syncs the log.
    ///
    /// The database remembers the setting. Default of a new database: 0.
    pub fn log_retention(mut self, bytes: u64) -> Builder {
        self.settings.log_retention_bytes = Some(bytes);
        self
    }

    /// Maximum age of retained log: a segment is removed at the first flush after its last commit
    /// reaches this age.
    ///
    /// Default: no limit, as with [`Duration::MAX`]. Remembered; without [`Builder::log_retention`]
    /// nothing is retained.
    pub fn log_retention_age(mut self, age: Duration) -> Builder {
        self.settings.log_retention_age_us = Some(u64::try_from(age.as_micros()).unwrap_or(u64::MAX));
        self
    }

    /// Bytes of disk to reserve in the file `RESERVE`, for use when the disk is full; 0 for none.
    ///
    /// On a full disk, only deletes ([`Tree::delete`](crate::Tree::delete), `delete_range`,
    /// [`Db::drop_tree`], and batches and transactions of deletes alone), flushes and
    /// [`Db::compact`] may use the reserve. All other writes fail with [`Error::DiskFull`] until
    /// the reserve is whole again.
    ///
    /// - Runs under a range delete are removed at once. Other partitions are merged one by one;
    ///   each merge needs a reserve as large as its output.
    /// - Deletes scattered over a partition larger than the reserve free nothing until there is
    ///   other space.
    /// - Flushes use at most half of the reserve, except during a compaction.
    /// - Readers, log that is [retained](Builder::log_retention) or not archived, and backups still
    ///   pin their files.
    ///
    /// Default on a volume below 2 GiB: an eighth of the volume, or less if a flush needs less;
    /// memtables, log segments and partitions without a setting are made small enough. On a larger
    /// volume, if four times as much is free: 512 KiB plus the log's bytes plus 1/64 of the data,
    /// at most a memtable, a log segment and 1 MiB. In memory: none.
    ///
    /// The blocks are allocated with `fallocate`, or as zeros where the system lacks it. On a
    /// copy-on-write file system (btrfs, ZFS), freeing them needs some space itself, and snapshots
    /// pin them. Other programs may take the freed blocks.
    ///
    /// A process with a file size limit (`ulimit -f`) is killed by `SIGXFSZ`, unless it ignores the
    /// signal, as `braid` does; the engine then returns `DiskFull` with
    /// [`NoSpace::FileSize`](crate::NoSpace::FileSize).
    pub fn disk_reserve(mut self, bytes: u64) -> Builder {
        self.settings.disk_reserve = Some(bytes);
        self
    }

    /// Values of at least this many bytes are stored in blob files, which merges do not rewrite.
    ///
    /// Default: 4096. With 0, all values are.
    pub fn blob_threshold(mut self, bytes: usize) -> Builder {
        self.settings.blob_threshold = bytes;
        self
    }

    /// Reads uncompressed data where the system has mapped their file, outside of the block cache.
    ///
    /// Default: yes. Applies to 64-bit Linux with ext4, XFS, Btrfs, F2FS or tmpfs, and to databases
    /// in memory.
    ///
    /// Each block was checked at most 32 seconds before, or written by this process in that time
    /// (one such block in sixteen is still checked). If the system drops a page after the check and
    /// the disk then fails to read it, or if another program truncates the file, the process gets
    /// `SIGBUS` instead of an error; changed bytes go unnoticed. For a cursor's current row this
    /// holds as long as the cursor stays there. Databases in memory have neither risk.
    ///
    /// This setting does not affect the log, which is appended through a mapping on Linux with ext4
    /// and XFS. There, too, an unreadable page or a truncation raises `SIGBUS`; a full disk does not.
    pub fn read_in_place(mut self, in_place: bool) -> Builder {
        self.settings.read_in_place = in_place;
        self
    }

    /// Reads and writes tables (runs, views and blob files) with `O_DIRECT` on Linux, so that the
    /// database takes its [memory](Builder::memory) and no more; not the log and the manifest.
    ///
    /// Default: no, since the system's cache makes up for a small memory setting.
    ///
    /// Each cache miss then reads the device, nothing is read in place
    /// ([`Builder::read_in_place`]), and cursors and merges read ahead themselves. If the file
    /// system refuses, tables use its cache, and [`crate::stats::Stats::direct_io_refused`] is set.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("music.db");
    /// let db = braiddb::Db::builder().direct_io(true).memory(64 << 20).open(&path)?;
    /// db.tree("albums")?.put(b"1", b"Ten")?;
    /// let stats = db.stats();
    /// assert!(stats.direct_io || stats.direct_io_refused.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn direct_io(mut self, direct: bool) -> Builder {
        self.settings.direct_io = direct;
        self
    }

    /// Age at which a snapshot, cursor, iterator or transaction is reported: once in the log
    /// (`tracing`), and in [`crate::stats::Stats::overstaying`] while it is open.
    ///
    /// Default: one minute; [`Duration::MAX`] for never. A reader pins all versions overwritten or
    /// deleted since it began.
    pub fn reader_age_warn(mut self, age: Duration) -> Builder {
        self.settings.reader_age_warn_ns = nanos(age);
        self
    }

    /// Maximum age of a snapshot, cursor, iterator or transaction.
    ///
    /// Default: no limit, as with [`Duration::MAX`]. An older one expires: it pins no versions, and
    /// its next read fails with [`crate::Error::ReaderExpired`], as does the commit of a
    /// transaction with writes. Its earlier results stay right.
    ///
    /// A cursor may still return the rows that it has decoded ahead, about 32. It pins its files
    /// until it is called again or dropped; [`Cursor::refresh`](crate::Cursor::refresh) renews it.
    /// Ages are checked about once a second, more often for a shorter limit; without background
    /// threads, at commits.
    pub fn reader_age_max(mut self, age: Duration) -> Builder {
        self.settings.reader_age_max_ns = nanos(age);
        self
    }

    /// Maximum time that a commit, or another exclusive transaction, waits for an exclusive
    /// transaction ([`Db::begin_exclusive`]) to end.
    ///
    /// It then fails with [`crate::Error::ExclusiveOpen`], and nothing is written. Default: 30
    /// seconds; zero to fail at once; [`Duration::MAX`] for no limit.
    pub fn exclusive_wait_max(mut self, wait: Duration) -> Builder {
        self.settings.exclusive_wait_ns = nanos(wait);
        self
    }

    /// Time from which on a commit is slow: it is recorded with its causes in
    /// [`Stats::slow_commits`](crate::stats::Stats::slow_commits), reported as
    /// [`Event::SlowCommit`], and logged (`tracing`, level info,
    /// at most once a second).
    ///
    /// Default: 100 ms; [`Duration::MAX`] for never. From 50 ms on, times come from a cheaper clock,
    /// which may be 10 ms late.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use braiddb::{Db, stats::SlowCause};
    /// use std::time::Duration;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("music.db");
    /// let db = Db::builder().slow_commit(Duration::ZERO).open(&path)?; // every commit
    /// db.tree("albums")?.put(b"1", b"Ten")?;
    /// let stats = db.stats();
    /// let last = stats.slow_commits.last().unwrap();
    /// println!("{last}"); // commit 2 took 1.3ms: sync 1.2ms, write 84.1µs
    /// assert!(last.parts.get(SlowCause::Sync) <= last.took);
    /// # Ok(())
    /// # }
    /// ```
    pub fn slow_commit(mut self, time: Duration) -> Builder {
        self.settings.slow_commit_ns = nanos(time);
        self
    }

    /// Archives the log in the directory `dir`, for point-in-time recovery: with a backup, any
    /// later commit or moment can be restored ([`Builder::restore_to`]).
    ///
    /// Default: no archive.
    ///
    /// Each full segment is copied, and its blob files are hard-linked, or copied to another file
    /// system, before they can be removed. A close and [`Db::archive_now`] archive the whole log.
    /// If the archive cannot be written, an open fails, and later the log grows until the archive
    /// works again.
    ///
    /// Set it at each open: an open without it leaves a gap, and so do bulk loads and commits
    /// without WAL. [`Db::archive_gaps`] lists the gaps; [`Db::archive_now`] and a restore across
    /// one fail with `ArchiveGap`. Files older than the oldest backup may be removed, oldest first.
    ///
    /// The directory is created if absent, but not its parents ([`Builder::create_parents`]). It
    /// may not be inside a database (`InvalidArgument`).
    pub fn log_archive(mut self, dir: impl AsRef<Path>) -> Builder {
        self.settings.log_archive = Some(dir.as_ref().to_owned());
        self
    }
}

fn nanos(age: Duration) -> u64 {
    u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)
}

fn default_vfs() -> Arc<dyn Vfs> {
    Arc::new(crate::platform::SystemVfs::new())
}
