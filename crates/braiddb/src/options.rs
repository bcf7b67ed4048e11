//! The options of a database.

use crate::{
    backup::{self, BackupTarget, Restored},
    base::limits,
    base::{Error, Result},
    codec::{Compression, MergeFunction},
    db::{self, Db, Durability, Follower, RestorePoint, Settings, SharedRuntime, VerifyOptions, VerifyReport},
    dump::{self, LoadOptions, LoadReport},
    platform::{MemVfs, RateLimiter, Runtime, SystemRuntime, Vfs},
    salvage::{self, SalvageOptions, SalvageReport},
    table::KeyBlocks,
};
use std::{path::Path, sync::Arc, time::Duration};

/// Readers older than this are told of, where nothing else was asked for.
const READER_AGE_WARN_NS: u64 = 60_000_000_000;

/// A commit waits so long for an exclusive transaction, where nothing else was asked for.
const EXCLUSIVE_WAIT_NS: u64 = 30_000_000_000;

impl Db {
    /// Opens the database in the directory `path`, and creates it if there is none: see [`Builder::create`].
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Builder::new().open(path)
    }

    /// A new database in memory, gone when its last handle goes.
    pub fn in_memory() -> Result<Db> {
        Builder::new().open_in_memory()
    }

    /// Reads the database in the directory `path` as of now: see [`Builder::open_read_only`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Db> {
        Builder::new().open_read_only(path)
    }

    /// Reads the database in the directory `path` beside the process that has it open: see [`Builder::open_follower`].
    pub fn open_follower(path: impl AsRef<Path>) -> Result<Follower> {
        Builder::new().open_follower(path)
    }

    /// Makes a new database of all that can be read of a damaged one: see [`Builder::salvage`].
    pub fn salvage(from: impl AsRef<Path>, to: impl AsRef<Path>, options: SalvageOptions<'_>) -> Result<SalvageReport> {
        Builder::new().salvage(from, to, options)
    }

    /// Verifies the database in the directory `path`: reads every file that is in use, checks every checksum, and lists each damaged unit
    /// once. The database need not open: a damaged or missing CURRENT, manifest or run is listed as well, and what can be checked without
    /// it is. Nothing is written and no lock is taken; another process may have the database open.
    ///
    /// `NotFound` if there is no file of a database. Takes time linear in the files; memory as an open database does, apart from its caches.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("braiddb-doc-verify-{}", std::process::id()));
    /// # braiddb::Db::open(&dir)?.close()?;
    /// let report = braiddb::Db::verify_path(&dir)?;
    /// assert!(report.is_sound(), "{:?}", report.problems);
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub fn verify_path(path: impl AsRef<Path>) -> Result<VerifyReport> {
        Builder::new().verify_path(path, &VerifyOptions::default())
    }

    /// For other than the default options.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

/// Opens databases with other than the default options. An option out of its range makes the open fail with
/// `InvalidArgument`, which names the option, its value and the range; nothing is made then.
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
}

impl Default for Builder {
    fn default() -> Self {
        Builder::new()
    }
}

impl Builder {
    /// The defaults.
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
                log_archive: None,
                open_files_max: None,
                rate_limiter: None,
                scrub_bytes_per_second: 0,
                open_files: None,
                is_restoring: false,
                disk_reserve: None,
                volume_bytes: None,
                vfs: default_vfs(),
                runtime: Arc::new(SystemRuntime::new()),
                shared: None,
            },
            refresh_every: Some(Duration::from_secs(1)),
        }
    }

    /// Memory for memtables, cache and index together, in bytes; 256 MiB by default. What a single operation needs for
    /// itself (a large value, a batch) comes on top.
    /// At least 64 KiB, at most `usize::MAX / 256` (2^56 - 1 bytes on 64-bit machines); `open` refuses other values.
    pub fn memory(mut self, bytes: usize) -> Builder {
        self.settings.memory = bytes;
        self
    }

    /// What `put`, `delete` and their like promise; `Sync` by default. `Db::write` says it for each batch.
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.settings.durability = durability;
        self
    }

    /// Compression of blocks and blobs of trees that do not say otherwise; LZ4 by default. Without, large commits are not
    /// compressed in the log either.
    pub fn compression(mut self, compression: Compression) -> Builder {
        self.settings.compression = compression;
        self
    }

    /// Whether a missing database is created; yes by default. It is created in a directory that is empty or absent: beside
    /// other files, and inside backups, a log archive or another database, the open fails with `AlreadyExists` and makes
    /// nothing. Hidden files and `lost+found` may be there.
    pub fn create(mut self, create: bool) -> Builder {
        self.settings.create = create;
        self
    }

    /// Whether missing parents of the directory of a new database, and of its log archive, are created too; no by default, and
    /// a missing parent is `NotFound`. So a mistyped path makes no directories.
    pub fn create_parents(mut self, create: bool) -> Builder {
        self.settings.create_parents = create;
        self
    }

    /// Opens for reading only, as [`Builder::open_read_only`] does.
    pub fn read_only(mut self, read_only: bool) -> Builder {
        self.settings.read_only = read_only;
        self
    }

    /// Has a [`Follower`] look for news by itself, on a thread of its own, about so often; `None` for never. By default once a second,
    /// so that it holds no space for long that the writer has let go of.
    pub fn refresh_every(mut self, pause: Option<Duration>) -> Builder {
        self.refresh_every = pause;
        self
    }

    /// Adds a merge function of the application's own, for [`Tree::merge`](crate::Tree::merge) and its like. It is known to the
    /// database by its name for ever: open it with the same function each time, or keys that it was used on cannot be read.
    pub fn merge_function(mut self, name: impl Into<String>, function: Arc<dyn MergeFunction>) -> Builder {
        self.settings.merge_functions.push((name.into(), function));
        self
    }

    /// The file system; the system's own by default.
    pub fn vfs(mut self, vfs: Arc<dyn Vfs>) -> Builder {
        self.settings.vfs = vfs;
        self
    }

    /// How many tables (`.run`, `.view` and `.blob` files) and retained segments of the log may have a descriptor at once, 4 at least. Others are closed, the one first that was not
    /// read for longest, and opened again when they are read: [`crate::Stats::file_reopenings`] says how often. Those being read at one moment may
    /// exceed it. A follower has files mapped that it closes, since their owner may remove them; where they cannot be mapped, they stay open.
    ///
    /// By default all databases of the process that say nothing else have half of what the process may open (`ulimit -n`) together, 65,536 at
    /// most; file systems of other programs ([`Builder::vfs`]) are without a limit then. Beside its tables a database needs about
    /// ten descriptors, and two for each thread that merges.
    pub fn open_files_max(mut self, files: usize) -> Builder {
        self.settings.open_files_max = Some(files);
        self
    }

    /// A limit for what flushes, merges and the like write per second; none by default. Several databases may share one.
    ///
    /// Limits even out what the device has to do beside users' reads and syncs. One that is too low for what is written slows writers
    /// down, as a slow device would. Without background threads it is the calls of users that flush and merge, and wait.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use braiddb::RateLimiter;
    /// use std::{sync::Arc, time::Duration};
    ///
    /// // 40 MB a second; or as much as leaves reads that miss the cache, and syncs, below two milliseconds.
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

    /// Reads all runs and views again and again while the database is open, at so many bytes a second, and checks them, so that damage to
    /// files that are seldom read is known before a read needs the bytes. 0, the default, for not at all. A background thread does so while there
    /// is nothing to merge. Damage is logged as an error, and counted in [`Stats::scrub`](crate::Stats::scrub). Values in blob files and the
    /// log are not read; [`Db::verify`] reads those too.
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

    /// Clock, randomness and threads; the system's own by default.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Builder {
        self.settings.runtime = runtime;
        self
    }

    /// Opens the database with memory, cache and threads that it shares with others: see [`SharedRuntime`]. [`Builder::memory`] and
    /// [`Builder::background_threads`] do not count then.
    pub fn shared_runtime(mut self, shared: &SharedRuntime) -> Builder {
        self.settings.shared = Some(shared.clone());
        self
    }

    /// Threads for merges; 2 by default. One more flushes, so that no flush waits for a merge, one has log segments ready, and one removes and closes files.
    /// Where the machine has fewer processors than these threads and two more, merges take but a part of the time while little is to be merged.
    /// With 0 the committing
    /// thread does all that itself, at moments that depend on the operations alone: so tests can repeat a run exactly.
    /// At most 1024.
    pub fn background_threads(mut self, threads: usize) -> Builder {
        self.settings.background_threads = threads;
        self
    }

    /// The size at which a memtable is frozen, in bytes; an eighth of the memory by default.
    /// From 1 KiB to 1 TiB.
    pub fn memtable_bytes(mut self, bytes: usize) -> Builder {
        self.settings.memtable_bytes = Some(bytes);
        self
    }

    /// The size at which a partition is split, in bytes. By default that of 16 memtables, from 128 to 256 MiB.
    /// At least 4 KiB.
    pub fn partition_bytes(mut self, bytes: u64) -> Builder {
        self.settings.partition_bytes = Some(bytes);
        self
    }

    /// A partition with so many runs outside its view has them merged or folded in; 8 by default, 2 at least. With fewer,
    /// reads are faster while much is written, and more is written. Where none of them lies over another, nor over the view, as where
    /// keys only grow, it may have three times as many: a read then seldom looks into more than one.
    /// At most 1024.
    pub fn loose_runs(mut self, runs: usize) -> Builder {
        self.settings.loose_runs = runs;
        self
    }

    /// Runs outside a view are folded in once they have so many bytes for each entry that the view will have; until then they
    /// are merged among themselves. 10 by default: twice what an entry of a view takes, so that writing the view anew costs
    /// half of what flushing them did. With more, less is written, and reads are slower while much is written.
    pub fn fold_bytes_per_entry(mut self, bytes: u64) -> Builder {
        self.settings.fold_bytes_per_entry = bytes;
        self
    }

    /// Has merges see to it, while there are commits, that about so much of all entries is dead at the most, in per cent: superseded or deleted, and still there.
    /// From 5 to 40. What stands in runs outside of views is estimated by what merges lately found. Writers are slowed down where merges do not come after.
    ///
    /// Without it, only a partition of whose view 40 % are dead is merged, which writes least: of random overwrites a small database wrote twice as much to tables with 20, and
    /// nearly four times as much with 10. Partitions, which are merged whole for it, are split at 64 MiB then. While nothing is committed, it is no more than 10 % either way.
    pub fn dead_percent(mut self, percent: u8) -> Builder {
        self.settings.dead_percent = Some(u64::from(percent));
        self
    }

    /// The most bytes of a log segment; 16 MiB by default. It has no more than half a memtable, and the first ones less.
    /// From 1 KiB to 1 TiB.
    pub fn log_segment_bytes(mut self, bytes: u64) -> Builder {
        self.settings.log_segment_bytes = bytes;
        self
    }

    /// How much of the log is kept beyond what recovery needs, in bytes, for those who watch it: see [`Db::watch`]. Counted are
    /// whole segments, and what is dead in blob files and stays for the sake of what they tell. Beyond that the oldest goes,
    /// whoever may be watching. Each opening for writing begins a segment of a mebibyte. The database remembers it for all later
    /// openings; a new one keeps nothing (0). With it, each flush syncs the log.
    pub fn log_retention(mut self, bytes: u64) -> Builder {
        self.settings.log_retention_bytes = Some(bytes);
        self
    }

    /// How long it is kept at most: a segment of the log goes so long after the last commit in it, at the next flush. No limit by default, or
    /// with [`Duration::MAX`]. Remembered as [`Builder::log_retention`] is, without which nothing is kept.
    pub fn log_retention_age(mut self, age: Duration) -> Builder {
        self.settings.log_retention_age_us = Some(u64::try_from(age.as_micros()).unwrap_or(u64::MAX));
        self
    }

    /// Bytes of the disk that are kept for a full disk, in the file `RESERVE`; 0 for none.
    ///
    /// When the disk is full, deletes ([`Tree::delete`](crate::Tree::delete), `delete_range`, [`Db::drop_tree`], batches and transactions of
    /// nothing else), flushes and [`Db::compact`] use it. From then on all other writes are refused with [`Error::DiskFull`](crate::Error::DiskFull)
    /// until the reserve is whole again, which needs no reopening. So what was deleted gives its space back: runs that a range delete covers
    /// go at once, other partitions are merged one after the other, and each merge needs a reserve of what it keeps. Deletes
    /// that are scattered over a partition larger than the reserve cannot give back its space before other space is free. Flushes use at most half of
    /// the reserve, except those of a compaction. Snapshots and other readers, a log that is [retained](Builder::log_retention) or not archived
    /// yet, and backups keep their files, reserve or not.
    ///
    /// By default: on a volume of less than 2 GiB an eighth of it, or what a flush needs if that is less, and memtables, log segments and partitions that were not
    /// set are so small that the reserve is enough for them. On a larger volume 512 KiB, the log's bytes and a 64th of the
    /// data, at most a memtable, a log segment and 1 MiB; and only where four times as much is free. None in memory.
    ///
    /// The blocks are allocated (`fallocate`, or zeros where the system has no such call). On a file system that copies what it overwrites (btrfs, ZFS)
    /// cutting the file frees its blocks too, but needs some for itself, and snapshots of the file system keep them. Other programs may take the
    /// freed blocks.
    ///
    /// A process with a limit for the size of files (`ulimit -f`) gets the signal `SIGXFSZ`, which ends it, unless it ignores the
    /// signal: then the engine returns `DiskFull` with [`NoSpace::FileSize`](crate::NoSpace::FileSize). `braid` ignores it.
    pub fn disk_reserve(mut self, bytes: u64) -> Builder {
        self.settings.disk_reserve = Some(bytes);
        self
    }

    /// The size of a block before compression, in bytes; 4096 by default. Entries larger than that have a block each.
    /// From 64 to 65,536.
    pub fn block_bytes(mut self, bytes: usize) -> Builder {
        self.settings.block_bytes = bytes;
        self
    }

    /// Values of this many bytes or more are written once, to blob files; 4096 by default.
    /// 0 puts every value there.
    pub fn blob_threshold(mut self, bytes: usize) -> Builder {
        self.settings.blob_threshold = bytes;
        self
    }

    /// The size at which a blob file is closed and the next begun, in bytes; 256 MiB by default.
    /// At least 1.
    pub fn blob_file_bytes(mut self, bytes: u64) -> Builder {
        self.settings.blob_file_bytes = bytes;
        self
    }

    /// Whether all runs get a key block, or none: all keys once more, which spares reading values when a view is braided. By
    /// default runs get one whose values are large beside their keys. With small values it takes an eighth of the space, which
    /// may be worth it where the database is much larger than the machine's memory.
    pub fn key_blocks(mut self, key_blocks: bool) -> Builder {
        self.settings.key_blocks = if key_blocks { KeyBlocks::Always } else { KeyBlocks::Never };
        self
    }

    /// After how many searches of a sorted view by gets a hash index of it is made, in memory: 2048 by default, and never
    /// fewer than one for each 32 entries of the view; `u64::MAX` for none. Views that come in place of one whose index was used, or beside it, have one
    /// at once; and while nothing is committed, background threads make one that nobody asked for of views of 2048 entries or more whose data are read in place, if all
    /// indexes take an eighth of the memory at most: once for each part of the database, and again when that has twice as many entries, but not in databases that share
    /// their threads. It takes six bytes a key, at most a quarter of the memory in all, and is made only where at least nine tenths of the data are in memory: in the cache or, if they are read in place, in the system's. Else
    /// twice as many searches must be made before it is looked at again, up to 32 times as many. Where memory is what is waited for, a get takes a third to a half less time by it, as do one of an
    /// absent key and `multi_get`; nothing else is faster.
    pub fn hash_index_after(mut self, searches: u64) -> Builder {
        self.settings.hash_index_after = searches;
        self
    }

    /// Whether data that are not compressed may be read where the system has their file mapped, and so take no room in the
    /// cache: yes by default. What is looked up there was read and checked in the usual way at most 32 seconds before, or (but for one
    /// part in sixteen, which is checked all the same) written by this process in that time; should the
    /// system drop it from its memory after that, and the disk then fail to read it again, the process is killed (`SIGBUS`) where
    /// it would have been given an error, and what the disk gives back changed is not noticed. For a row on which a cursor stands
    /// that goes on for as long as it stands there. On Linux, for files of local file systems; and of databases in memory
    /// anywhere, where nothing can be lost so.
    pub fn read_in_place(mut self, in_place: bool) -> Builder {
        self.settings.read_in_place = in_place;
        self
    }

    /// Whether tables (runs, views and blob files) are read and written past the system's cache, so that the database takes the
    /// [memory](Builder::memory) that it was given and no more; log and manifest are not. No by default: what the system has to spare is the better
    /// cache for whoever has given little of it. With this, a block that is not in the cache is read from the device each time; nothing is read in place
    /// ([`Builder::read_in_place`]), and cursors and merges read ahead by themselves.
    ///
    /// Where the file system refuses, tables go through its cache all the same; [`crate::Stats::direct_io_refused`] says so. On Linux by `O_DIRECT`.
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

    /// A snapshot, cursor, iterator or transaction that has been in use for so long is told of: once in the log (`tracing`), and in
    /// [`crate::Stats::overstaying`] as long as it is there. A minute by default; [`Duration::MAX`] for never. What it keeps from being
    /// removed is what was overwritten or deleted since it began.
    pub fn reader_age_warn(mut self, age: Duration) -> Builder {
        self.settings.reader_age_warn_ns = nanos(age);
        self
    }

    /// A snapshot, cursor, iterator or transaction that has been in use for longer expires: it keeps nothing from being removed any more, and
    /// its next read fails with [`crate::Error::ReaderExpired`], as the commit of such a transaction does if it writes anything. What it has
    /// shown stays right, and so do the rows that a cursor has decoded ahead, which it may still show: 32, or somewhat more where it
    /// merges. A cursor besides keeps the files that it reads open, and their space, until it is called again or dropped.
    /// [`Cursor::refresh`](crate::Cursor::refresh) makes a cursor new. Readers are looked at about once a second, more often where the limit is
    /// shorter than that; without background threads, when something is committed. No limit by default, or with [`Duration::MAX`].
    pub fn reader_age_max(mut self, age: Duration) -> Builder {
        self.settings.reader_age_max_ns = nanos(age);
        self
    }

    /// How long a commit, or the begin of an exclusive transaction, waits for an exclusive transaction
    /// ([`Db::begin_exclusive`]) to end. Then it fails with [`crate::Error::ExclusiveOpen`], and nothing was written. Half a
    /// minute by default; zero for an error at once; [`Duration::MAX`] for no limit.
    pub fn exclusive_wait_max(mut self, wait: Duration) -> Builder {
        self.settings.exclusive_wait_ns = nanos(wait);
        self
    }

    /// Keeps the log for good, in the directory `dir`, so that with a backup any later commit or moment can be gone back to: see
    /// [`Builder::restore_to`]. Not by default. Each segment of the log is copied when it is full, and the blob files that it refers to are
    /// linked, or copied on another file system, before they can go; when the database is closed, and by [`Db::archive_now`], all of
    /// it is. If the archive cannot be written, the log grows until it can; at an open that is an error.
    ///
    /// Give it at each open: commits of an open without it leave a gap, and so do bulk loads and commits without WAL. A gap is noted in
    /// the archive, [`Db::archive_now`] and a restore across it fail with `ArchiveGap`, and [`Db::archive_gaps`] lists all. What is older than
    /// the oldest backup is of no use and may be removed, oldest first.
    ///
    /// Its directory is created if need be, but not its parents ([`Builder::create_parents`]). It may not lie in the directory of a
    /// database (`InvalidArgument`).
    pub fn log_archive(mut self, dir: impl AsRef<Path>) -> Builder {
        self.settings.log_archive = Some(dir.as_ref().to_owned());
        self
    }

    /// Opens the database in the directory `path`.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        Db::open_with(self.settings, path.as_ref())
    }

    /// Makes a database of a backup, or of the newest one in the target, in the directory `dir`. Every checksum is compared on the way; it is
    /// opened once, for reading only, to see that it does open, and is on the disk when this returns. It is a life of its own: its
    /// records have [versions](crate::Version) that none had before.
    ///
    /// `AlreadyExists` if there is something in `dir`; `BackupDamaged` if anything in the backup is not as it was put there; `NotFound` if
    /// there is no such backup. After an error nothing is left in `dir`, unless the process is killed: then it does not open,
    /// and [`Builder::remove_unfinished`] removes it. Takes time linear in the backup. There is an example at [`Db::backup`].
    pub fn restore(self, target: &dyn BackupTarget, id: Option<u64>, dir: impl AsRef<Path>) -> Result<Restored> {
        backup::restore(self.settings, target, id, dir.as_ref()).map_err(Error::of_output)
    }

    /// As [`Builder::restore`], to a commit or a moment: of the newest backup that was taken at that point or before, and of the
    /// [log archive](Builder::log_archive) `archive` as far as that point, which is reached exactly. A version is a sequence number of the life
    /// that the newest backup is of. `ArchiveGap` if the archive lacks commits before that point, and `BackupDamaged` if it is damaged;
    /// `InvalidArgument` if it ends before it, and then the error names its last commit. For a moment there must be a later commit in the
    /// archive: else it is not known what was there then.
    ///
    /// Takes time linear in the backup and in what is in the archive after it; memory as an open database does.
    pub fn restore_to(
        self,
        target: &dyn BackupTarget,
        archive: impl AsRef<Path>,
        point: RestorePoint,
        dir: impl AsRef<Path>,
    ) -> Result<Restored> {
        backup::restore_to(self.settings, target, archive.as_ref(), point, dir.as_ref()).map_err(Error::of_output)
    }

    /// Makes a database of a [dump](crate::Snapshot::dump) in the directory `dir`. Records keep the numbers of their commits, and expire when
    /// they would have; what merge functions are to do is kept, and the functions need not be there. It is a life of its own:
    /// its records have [versions](crate::Version) that none had before. The options of the builder count as those of an open
    /// do. What was in the dump is checked on the way, and the database is opened once, for reading only, before it counts.
    ///
    /// The dump is read from front to back, once, in bounded memory, so it may come through a pipe. Takes time linear in it.
    ///
    /// **All or nothing**: the directory becomes a database that opens when all of the dump is in it and on the disk. After an error
    /// nothing is left in it; if the process is killed or the machine stops, it does not open, and
    /// [`Builder::remove_unfinished`] removes it.
    ///
    /// Errors: `AlreadyExists` if there is something in `dir`; `DumpDamaged`, with the place, if the dump is not as it was written or ends too
    /// soon; `InvalidArgument` for what is no dump; `Unsupported` for one that a newer version has made. There is an example at [`Db::dump`].
    pub fn load(
        self,
        dir: impl AsRef<Path>,
        input: &mut dyn std::io::Read,
        options: LoadOptions<'_>,
    ) -> Result<LoadReport> {
        dump::load(self.settings, dir.as_ref(), input, options).map_err(Error::of_output)
    }

    /// Makes a new database in the directory `to` of all that can be read of the damaged one in `from`: each record whose newest version stands in a
    /// part of a file that is whole, and nothing else. What is gone is listed, with its file, its tree and keys, and its commits,
    /// as far as they are known. `docs/salvage.md` says what counts where the manifest is damaged, too.
    ///
    /// Nothing is written to `from`, not even a lock file, so it may be on a medium that takes no writes. `to` must be empty or absent,
    /// and becomes a database when all is in it and on the disk; it is a life of its own. Memory is bounded by [`Builder::memory`], and by
    /// some blocks of each run that lies over others. Takes time linear in the files.
    ///
    /// Errors: `NotFound` if there is nothing of a database in `from`; `Locked` if another process has it open for writing, as far as that
    /// can be seen without writing; `AlreadyExists` if `to` is not empty; `InvalidArgument` if one lies in the other; `Unsupported` if
    /// a newer version has written it; `Io` and `DiskFull` of `to`. After an error nothing is left in `to`.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use braiddb::{Builder, SalvageOptions};
    ///
    /// # let vfs = std::sync::Arc::new(braiddb::platform::MemVfs::new());
    /// let options = || Builder::new().vfs(vfs.clone());
    /// let db = options().open("/damaged.db")?;
    /// db.tree("albums")?.put(b"1", b"Ten")?;
    /// db.close()?;
    /// # use braiddb::platform::{OpenMode, Vfs};
    /// # vfs.remove(std::path::Path::new("/damaged.db/CURRENT")).unwrap();
    ///
    /// let report = options().salvage("/damaged.db", "/new.db", SalvageOptions::default())?;
    /// for loss in &report.losses {
    ///     println!("{}: {}", loss.path.display(), loss.detail);
    /// }
    /// let albums = options().open("/new.db")?.open_tree("albums")?;
    /// assert_eq!(albums.get(b"1")?.as_deref(), Some(&b"Ten"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn salvage(
        self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        options: SalvageOptions<'_>,
    ) -> Result<SalvageReport> {
        salvage::salvage(self.settings, from.as_ref(), to.as_ref(), options)
    }

    /// Removes what a load, restore, salvage or checkpoint that was killed left in `dir`, so that it can be repeated there. Returns whether
    /// there was anything to remove: a database, and a directory without the mark of such an operation, are left as they are.
    ///
    /// `Locked` if the operation is still running; `AlreadyExists` if the directory holds a file that is not the engine's.
    pub fn remove_unfinished(&self, dir: impl AsRef<Path>) -> Result<bool> {
        db::remove_unfinished(&*self.settings.vfs, &*self.settings.runtime, dir.as_ref())
    }

    /// Reads the database in the directory `path` as of now. Nothing is written, not even a lock file, and no lock is taken: another
    /// process may have it open, and may go on writing. What is not in runs yet is read from the log into memory.
    ///
    /// Fails with `NotFound` where there is no database, and never because of what a writer does meanwhile.
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Db> {
        self.read_only(true).open(path)
    }

    /// Verifies the database in the directory `path`, whether it opens or not: see [`Db::verify_path`].
    pub fn verify_path(self, path: impl AsRef<Path>, options: &VerifyOptions) -> Result<VerifyReport> {
        db::verify_path(self.settings, path.as_ref(), options)
    }

    /// Reads the database in the directory `path` beside the process that has it open and writes: see [`Follower`]. Nothing is written and
    /// no lock is taken.
    pub fn open_follower(self, path: impl AsRef<Path>) -> Result<Follower> {
        let every = self.refresh_every;
        if every == Some(Duration::ZERO) {
            let detail = "refresh_every is 0: name the time between two looks, or None for never";
            return Err(Error::InvalidArgument(detail.to_owned()));
        }
        Follower::open_with(self.settings, path.as_ref(), every)
    }

    /// A new database in memory, gone when its last handle goes.
    pub fn open_in_memory(mut self) -> Result<Db> {
        self.settings.vfs = Arc::new(MemVfs::mapped(".run"));
        Db::open_with(self.settings, Path::new("/memory"))
    }
}

fn nanos(age: Duration) -> u64 {
    u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)
}

fn default_vfs() -> Arc<dyn Vfs> {
    Arc::new(crate::platform::SystemVfs::new())
}
