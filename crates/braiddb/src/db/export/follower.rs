//! Followers: read a database that another process writes, without locks or writes.
//!
//! INVARIANT F1: each **state** of a follower is the database at one commit. The manifest names the
//! commit up to which the runs have everything; records of the log after it are taken whole and in
//! order, as far as they continue the chain. A refresh makes a new read-only [`Db`] that shares
//! unchanged files, memtables and the cache.
//!
//! The writer may remove files and reuse segments after the manifest was read. Then CURRENT has
//! changed, and everything is read again. An error is returned only if it persists while CURRENT is
//! unchanged. A complete state has all its files open.
//!
//! Open files stay on disk. A refresh releases the previous state; superseded states that the user
//! retains are closed after [`crate::Builder::reader_age_max`], or ten minutes without a limit.

use crate::{
    base::{Error, FileNumber, Result, SequenceNumber},
    db::{
        engine::{memory::Common, parts::storage::DiskState, root::Engine, settings::Settings, stats::Counters},
        files::{blob_store::BlobStore, names::numbered, reserve::Reserve},
        handles::database::{Db, Shared},
        maintenance::{background, io_throttle::table_context},
        open::{
            opening::{self, Parts, highest, known_functions, load_catalog, refuse_unfinished, time_floor},
            replay::{Replayed, Walk, replay},
        },
    },
    memtable::Memtable,
    platform::OpenMode,
    read::{Garbage, ReadState},
    table::TableContext,
    version::{CURRENT_NAME, Current, FileSet, Layout, Manifest, Version},
    wal::{Followed, RecordInfo, Tail},
};
use parking_lot::{Condvar, Mutex, RwLock};
use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Maximum retries while CURRENT is unchanged.
const FRUITLESS_MAX: u32 = 6;
/// Maximum retries while CURRENT is unchanged, after [`TRY_FOR_NS`].
const FRUITLESS_MAX_LATE: u32 = 2;
/// First pause, doubled by each retry, and time until the database counts as busy.
const PAUSE_US: u64 = 500;
const TRY_FOR_NS: u64 = 20_000_000_000;
/// Retries and pauses before an incomplete last record counts as torn.
const TAIL_TRIES: u32 = 4;
const TAIL_PAUSE_US: u64 = 5_000;
/// Lifetime of a superseded state without a configured limit.
const KEPT_FOR_NS: u64 = 600_000_000_000;

/// The result of a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refreshed {
    /// The last commit in the follower's state.
    pub sequence: SequenceNumber,
    /// Whether the state is new.
    pub has_changed: bool,
    /// Time of the last commit in the log, in microseconds since 1970; 0 without one.
    pub committed_us: u64,
    /// Number of log records read.
    pub records: u64,
    /// Whether the manifest was read.
    pub manifest_read: bool,
    /// Number of restarts because files had disappeared.
    pub retries: u32,
    /// Duration of the refresh.
    pub took: Duration,
}

/// A reader of a database that another process or handle writes. See
/// [`Builder::open_follower`](crate::Builder::open_follower).
///
/// [`Follower::db`] returns an immutable, read-only database at one commit. [`Follower::refresh`]
/// advances the follower to a later state. Opening costs as much as opening the database; a refresh
/// is proportional to the data written since.
/// [`Builder::refresh_every`](crate::Builder::refresh_every) starts a thread that refreshes.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("braiddb-doc-follower-{}", std::process::id()));
/// let owner = braiddb::Db::open(&dir)?;
/// owner.tree("albums")?.put("1", "Ten")?;
///
/// let follower = braiddb::Db::open_follower(&dir)?; // usually in another process
/// let db = follower.db();
/// assert_eq!(db.open_tree("albums")?.get("1")?.as_deref(), Some(&b"Ten"[..]));
/// owner.tree("albums")?.put("2", "Vs.")?;
/// assert_eq!(db.open_tree("albums")?.get("2")?, None);
/// follower.refresh()?;
/// assert!(follower.db().open_tree("albums")?.get("2")?.is_some());
/// # drop((owner, follower, db));
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok(())
/// # }
/// ```
pub struct Follower {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("dir", &self.inner.dir).finish_non_exhaustive()
    }
}

struct Inner {
    settings: Settings,
    dir: PathBuf,
    table: TableContext,
    state: Mutex<Following>,
    current: RwLock<Db>,
    refreshes: AtomicU64,
    is_ending: Mutex<bool>,
    ending: Condvar,
}

struct Following {
    manifest: Manifest,
    files: FileSet,
    version: Arc<Version>,
    log: Log,
    has_news: bool,
    superseded: Vec<(u64, Weak<Shared>)>,
    /// The newest manifest without a state of its own; the next try reads on after it.
    unused: Option<Manifest>,
}

struct Log {
    /// `None` without a log that matches the manifest.
    tail: Option<Tail>,
    memtables: Vec<Arc<Memtable>>,
    /// Records that no state has yet, including those of a failed refresh.
    unshown: u64,
    last_sequence: SequenceNumber,
    last_commit_us: u64,
    blob_files: BTreeSet<FileNumber>,
    /// Whether the last record announces a load.
    load_is_next: bool,
    /// Whether records follow an announced load: then the manifest must be checked.
    is_past_load: bool,
    /// The torn or damaged tail at the first read.
    tail_note: Option<String>,
}

impl Follower {
    pub(crate) fn open_with(settings: Settings, dir: &Path, every: Option<Duration>) -> Result<Follower> {
        settings.check()?;
        let settings = Common::of(Settings { read_only: true, create: false, ..settings });
        refuse_unfinished(&settings, dir, &settings.vfs.list(dir).unwrap_or_default())?;
        let table = table_context(&settings);
        let started_ns = settings.runtime.monotonic_ns();
        let mut effort = Effort::default();
        let (mut seen, mut known) = (None, None);
        let (following, db) = loop {
            // CURRENT may be read while a slot is being written.
            let now = Current::open(&*settings.vfs, dir, true).ok().flatten().map(|current| current.seen());
            let stands_still = seen.replace(now) == Some(now);
            match Following::begin(&settings, dir, &table, &mut known) {
                Err(e) if e.is_not_found() => return Err(e),
                Err(e) => effort.again(e, (&settings, dir), started_ns, stands_still)?,
                Ok(made) => break made,
            }
        };
        let inner = Arc::new(Inner {
            settings,
            dir: dir.to_owned(),
            table,
            state: Mutex::new(following),
            current: RwLock::new(db),
            refreshes: AtomicU64::new(0),
            is_ending: Mutex::new(false),
            ending: Condvar::new(),
        });
        let thread = every.map(|pause| inner.spawn(pause)).transpose()?;
        Ok(Follower { inner, thread })
    }

    /// Returns the read-only database as of the last refresh.
    pub fn db(&self) -> Db {
        self.inner.current.read().clone()
    }

    /// Advances to the latest commits in the files, synced or not. Includes all commits that the
    /// writer completed before this call. Takes time proportional to the data written since the
    /// last refresh.
    ///
    /// Fails if a file is damaged or unreadable, or with [`Error::TooBusy`] if the writer was ahead
    /// for 20 seconds; the previous state then remains.
    pub fn refresh(&self) -> Result<Refreshed> {
        self.inner.refresh()
    }

    /// Returns the number of refreshes.
    pub fn refreshes(&self) -> u64 {
        self.inner.refreshes.load(Ordering::Relaxed)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        *self.inner.is_ending.lock() = true;
        self.inner.ending.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that looked for news panicked");
        }
    }
}

#[derive(Default)]
struct Effort {
    retries: u32,
    fruitless: u32,
}

impl Effort {
    /// Pauses if the writer may be the cause of the error, or else returns it.
    ///
    /// While CURRENT changes between tries, an error only shows that the data were outdated. So
    /// after [`TRY_FOR_NS`] the database is reported as too busy, not as damaged.
    fn again(
        &mut self,
        error: Error,
        (settings, dir): (&Settings, &Path),
        started_ns: u64,
        stands_still: bool,
    ) -> Result<()> {
        self.retries += 1;
        self.fruitless = if stands_still { self.fruitless + 1 } else { 0 };
        let took_ns = settings.runtime.monotonic_ns().saturating_sub(started_ns);
        let has_time = took_ns < TRY_FOR_NS;
        if self.fruitless >= if has_time { FRUITLESS_MAX } else { FRUITLESS_MAX_LATE } {
            return Err(error);
        }
        if !has_time && self.fruitless == 0 && self.retries > FRUITLESS_MAX_LATE {
            return Err(Error::too_busy(dir, self.retries, Duration::from_nanos(took_ns), error));
        }
        tracing::debug!(%error, "the writer was in the way of a follower, which tries again");
        settings.runtime.sleep_us(PAUSE_US << self.fruitless);
        Ok(())
    }
}

impl Inner {
    fn spawn(self: &Arc<Inner>, pause: Duration) -> Result<JoinHandle<()>> {
        let inner = Arc::clone(self);
        let body = Box::new(move || {
            let mut is_ending = inner.is_ending.lock();
            while !*is_ending {
                if inner.ending.wait_for(&mut is_ending, pause).timed_out() && !*is_ending {
                    parking_lot::MutexGuard::unlocked(&mut is_ending, || {
                        if let Err(error) = inner.refresh() {
                            tracing::warn!(%error, "a follower could not look for news");
                        }
                    });
                }
            }
        });
        let spawned = self.settings.runtime.spawn("braiddb-follower", body);
        spawned.map_err(|e| Error::io("start a thread for", &self.dir, e))
    }

    fn refresh(&self) -> Result<Refreshed> {
        let Inner { settings, dir, table, .. } = self;
        let started_ns = settings.runtime.monotonic_ns();
        let mut following = self.state.lock();
        let mut effort = Effort::default();
        let before = self.current.read().clone();
        let mut seen = None;
        let made = loop {
            match following.advance(settings, dir, table, &before) {
                Err(e) => {
                    let now = match following.manifest.poll() {
                        Err(e) if e.is_not_found() => return Err(e),
                        // CURRENT may be read while a slot is being written.
                        looked => looked.ok(),
                    };
                    let stands_still = seen.replace(now) == Some(now);
                    effort.again(e, (settings, dir), started_ns, stands_still)?;
                }
                Ok(made) => break made,
            }
        };
        self.refreshes.fetch_add(1, Ordering::Relaxed);
        let now_ns = settings.runtime.monotonic_ns();
        let refreshed = Refreshed {
            sequence: following.log.last_sequence,
            has_changed: made.db.is_some(),
            committed_us: following.log.last_commit_us,
            records: made.records,
            manifest_read: made.manifest_read,
            retries: effort.retries,
            took: Duration::from_nanos(now_ns.saturating_sub(started_ns)),
        };
        if let Some(db) = made.db {
            before.engine().leave_memory_to_others();
            *self.current.write() = db;
            following.superseded.push((now_ns, Arc::downgrade(&before.shared)));
        }
        drop(before);
        let kept_for_ns = match settings.reader_age_max_ns {
            u64::MAX => KEPT_FOR_NS,
            limit => limit,
        };
        following.superseded.retain(|(since_ns, state)| {
            let Some(state) = state.upgrade() else { return false };
            let is_kept = now_ns.saturating_sub(*since_ns) < kept_for_ns;
            if !is_kept {
                supersede(&state.engine);
            }
            is_kept
        });
        Ok(refreshed)
    }
}

struct Made {
    db: Option<Db>,
    records: u64,
    manifest_read: bool,
}

impl Following {
    /// `known` keeps the manifest and open files of a failed try, so that the next one reads only
    /// the additions.
    fn begin(
        settings: &Settings,
        dir: &Path,
        table: &TableContext,
        known: &mut Option<(Manifest, FileSet)>,
    ) -> Result<(Following, Db)> {
        let before = known.take();
        let manifest = open_manifest(settings, dir, before.as_ref().map(|(manifest, _)| manifest))?;
        let is_same = |old: &Manifest| old.layout().incarnation == manifest.layout().incarnation;
        let mut files = match before {
            Some((old, files)) if is_same(&old) => files,
            _ => FileSet::new(dir, table),
        };
        files.forget_unused(manifest.layout());
        let version = files.version(manifest.layout(), None);
        *known = Some((manifest.clone(), files.clone()));
        let version = Arc::new(version?);
        let blobs = BlobStore::beside_writer(dir, table, None, manifest.layout(), &BTreeSet::new(), &BTreeSet::new())?;
        let log = Log::read(settings, dir, &manifest, &blobs)?;
        blobs.open_all(&log.blob_files)?;
        let mut following =
            Following { manifest, files, version, log, has_news: true, superseded: Vec::new(), unused: None };
        following.check_views()?;
        let db = following.state(settings, dir, table, blobs)?;
        Ok((following, db))
    }

    /// Makes the next state, if there is news. Unchanged after an error, apart from opened files.
    fn advance(&mut self, settings: &Settings, dir: &Path, table: &TableContext, before: &Db) -> Result<Made> {
        // The user may have closed it.
        self.has_news |= before.engine().health.check_open().is_err();
        let before = &before.engine().storage.blobs;
        if !self.manifest.has_gone_on()? {
            // The log may continue elsewhere before CURRENT is updated.
            if self.log.follow(settings, dir, &self.manifest, before)? {
                let records = self.log.unshown;
                let db = if self.has_news || records > 0 {
                    let blobs = self.blobs(dir, table, before, self.manifest.layout())?;
                    blobs.open_all(&self.log.blob_files)?;
                    Some(self.state(settings, dir, table, blobs)?)
                } else {
                    None
                };
                return Ok(Made { db, records, manifest_read: false });
            }
        }
        self.has_news = true;
        let manifest = open_manifest(settings, dir, Some(self.unused.as_ref().unwrap_or(&self.manifest)))?;
        self.unused = Some(manifest.clone());
        let (old, new) = (self.manifest.layout(), manifest.layout());
        let is_same_log = (old.flushed, old.epoch, old.incarnation) == (new.flushed, new.epoch, new.incarnation);
        let is_same = old.incarnation == new.incarnation;
        if !is_same {
            // Restored or recreated: equal file numbers mean other files.
            (self.files, self.version) = (FileSet::new(dir, table), Arc::default());
        }
        self.files.forget_unused(new);
        let version = Arc::new(self.files.version(new, Some(&self.version))?);
        let kept = self.log.blob_files.iter().copied().filter(|_| is_same).collect();
        let before = Some(before).filter(|_| is_same);
        let blobs = BlobStore::beside_writer(dir, table, before, new, &kept, &blobs_of_new_runs(old, new))?;
        if !is_same_log || !self.log.follow(settings, dir, &manifest, &blobs)? {
            self.log = Log::read(settings, dir, &manifest, &blobs)?;
        }
        // Opened last: files of a log that is no longer followed may be gone.
        blobs.open_all(&self.log.blob_files)?;
        (self.manifest, self.version, self.unused) = (manifest, version, None);
        self.check_views()?;
        let records = self.log.unshown;
        let db = self.state(settings, dir, table, blobs)?;
        Ok(Made { db: Some(db), records, manifest_read: true })
    }

    fn blobs(&self, dir: &Path, table: &TableContext, before: &BlobStore, layout: &Layout) -> Result<BlobStore> {
        BlobStore::beside_writer(dir, table, Some(before), layout, &self.log.blob_files, &BTreeSet::new())
    }

    /// A damaged view only makes reads slow. Fails if a newer manifest may have replaced it.
    fn check_views(&self) -> Result<()> {
        match self.files.damaged_views().iter().next() {
            Some((number, reason)) if self.manifest.has_gone_on()? => {
                Err(Error::corruption(FileSet::view_path(Path::new(""), *number), 0, reason.clone()))
            }
            _ => Ok(()),
        }
    }

    fn state(&mut self, settings: &Settings, dir: &Path, table: &TableContext, blobs: BlobStore) -> Result<Db> {
        let mut memtables = self.log.memtables.clone();
        let active = memtables.pop().unwrap_or_else(|| Engine::new_memtable(settings, 0));
        memtables.reverse();
        let version = Arc::clone(&self.version);
        let state = ReadState { active, frozen: memtables, version, garbage: Arc::new(Garbage::default()) };
        let functions = Arc::new(known_functions(settings)?);
        // A load has a number too, and everything before it was read.
        let loaded = self.manifest.layout().runs.values().map(|run| run.max_sequence).max();
        self.log.last_sequence = self.log.last_sequence.max(loaded.unwrap_or_default());
        let last_sequence = self.log.last_sequence;
        let layout = self.manifest.layout();
        let (catalog, _, versions) =
            load_catalog(settings, &state, last_sequence, (dir, layout.incarnation), &functions)?;
        let engine = opening::assemble(Parts {
            reserve: Reserve::open(&settings.vfs, &settings.runtime, dir, OpenMode::Read),
            settings: settings.clone(),
            dir: dir.to_owned(),
            lock: None,
            table: table.clone(),
            state,
            last_sequence,
            floor_us: time_floor(layout, self.log.last_commit_us),
            disk: DiskState { manifest: self.manifest.clone(), files: self.files.clone() },
            wal: None,
            blobs,
            archiver: None,
            catalog,
            versions,
            has_unstored_tag: false,
            functions,
            next_file: Arc::new(AtomicU64::new(layout.next_file)),
            counters: Counters::after_recovery(self.log.unshown, self.log.tail_note.clone()),
            leftovers: Vec::new(),
        });
        engine.share_memory(&self.files);
        (self.has_news, self.log.unshown) = (false, 0);
        Ok(Db::of_core(engine))
    }
}

impl Log {
    fn read(settings: &Settings, dir: &Path, manifest: &Manifest, blobs: &BlobStore) -> Result<Log> {
        let layout = manifest.layout();
        let functions = Arc::new(known_functions(settings)?);
        let replayed = replay(settings, dir, layout, blobs, &functions, false)?;
        let Replayed { memtables, records, last_commit_us, blob_files, load_is_next, is_past_load, outcome, .. } =
            replayed;
        if let Some(tail) = &outcome.tail
            && !tail.is_same_segment()?
        {
            return Err(tail.lost());
        }
        // Reused segments keep their names.
        if outcome.begins_after > layout.flushed {
            let detail = format!(
                "the log begins after commit {}, and what is in runs ends with {}",
                outcome.begins_after, layout.flushed
            );
            return Err(Error::corruption(dir, 0, detail));
        }
        // Values that a record refers to may have moved once it was flushed.
        if outcome.is_stopped && manifest.has_gone_on()? {
            return Err(Error::corruption(dir, 0, outcome.tail_note.unwrap_or_default()));
        }
        let tail_note = match &outcome.tail {
            // An intact record with a missing value says nothing about a writer.
            _ if outcome.is_stopped => outcome.tail_note,
            Some(tail) if outcome.tail_note.is_some() && !is_being_written(settings, tail)? => outcome.tail_note,
            _ => None,
        };
        // Unlike a writer's, this number must not pass the last valid commit.
        let last_sequence = layout.flushed.max(outcome.last_sequence);
        let tail = outcome.tail;
        let mut log = Log {
            tail,
            memtables,
            unshown: records,
            last_sequence,
            last_commit_us,
            blob_files,
            load_is_next,
            is_past_load,
            tail_note,
        };
        if log.lacks_load(manifest)? {
            return Err(Error::corruption(dir, 0, "the log goes on after a load, and CURRENT has gone on"));
        }
        Ok(log)
    }

    /// Reads appended records; false if the log cannot be followed any more.
    fn follow(&mut self, settings: &Settings, dir: &Path, manifest: &Manifest, blobs: &BlobStore) -> Result<bool> {
        let layout = manifest.layout();
        let Some(tail) = &mut self.tail else {
            return Ok(layout.oldest_segment == 0);
        };
        let functions = known_functions(settings)?;
        let active = self.memtables.pop().unwrap_or_else(|| Engine::new_memtable(settings, 0));
        let walk = Walk::new(settings, layout, blobs, &functions);
        let mut walk = walk.going_on(active, self.last_sequence, self.load_is_next);
        let visitor = &mut |info: &RecordInfo, payload: &[u8]| walk.visit(info, payload);
        let followed = tail.follow(&*settings.vfs, dir, visitor);
        if walk.records > 0 {
            self.tail_note = None;
        }
        // Taken even after an error, because the tail is behind these records.
        self.take(walk);
        Ok(followed? == Followed::All && !self.lacks_load(manifest)?)
    }

    /// Whether the log was read past a load that the manifest may lack: the manifest was read
    /// earlier.
    fn lacks_load(&mut self, manifest: &Manifest) -> Result<bool> {
        self.is_past_load = self.is_past_load && manifest.has_gone_on()?;
        Ok(self.is_past_load)
    }

    fn take(&mut self, walk: Walk<'_>) {
        self.unshown += walk.records;
        self.last_sequence = self.last_sequence.max(walk.last_sequence);
        self.last_commit_us = self.last_commit_us.max(walk.last_commit_us);
        self.blob_files.extend(walk.files.keys());
        self.load_is_next = walk.load_is_next;
        self.is_past_load |= walk.is_past_load;
        self.memtables.extend(walk.memtables);
        self.memtables.push(walk.memtable);
    }
}

/// Returns whether the writer completed the last record meanwhile.
fn is_being_written(settings: &Settings, tail: &Tail) -> Result<bool> {
    for _ in 0..TAIL_TRIES {
        if tail.has_gone_on()? || !tail.is_same_segment()? {
            return Ok(true);
        }
        settings.runtime.sleep_us(TAIL_PAUSE_US);
    }
    Ok(false)
}

/// Returns the blob files of new runs; only these may have grown.
fn blobs_of_new_runs(old: &Layout, new: &Layout) -> BTreeSet<FileNumber> {
    let runs = new.runs.iter().filter(|(number, _)| !old.runs.contains_key(number));
    runs.flat_map(|(_, meta)| &meta.blob_uses).map(|blob_use| blob_use.file).collect()
}

fn open_manifest(settings: &Settings, dir: &Path, known: Option<&Manifest>) -> Result<Manifest> {
    let found = match known {
        Some(known) => known.reopen()?,
        None => Manifest::open(&settings.vfs, &settings.runtime, dir, true)?,
    };
    if let Some(manifest) = found {
        return Ok(manifest);
    }
    let names = settings.vfs.list(dir).unwrap_or_default();
    if highest(&names) > 0 && names.iter().any(|e| numbered(&e.name).is_some_and(|(_, kind)| kind != "manifest")) {
        let detail = "it is missing, but there are files of a database: this is a damaged database, or half a copy";
        return Err(Error::corruption(dir.join(CURRENT_NAME), 0, detail));
    }
    Err(Error::NotFound(format!("there is no database in {}", dir.display())))
}

/// Releases everything of a state that was superseded for too long.
fn supersede(engine: &Engine) {
    engine.health.is_superseded.store(true, Ordering::Release);
    background::refuse_calls(engine);
    engine.readers.snapshots.check_ages(engine.coarse_now_ns(), u64::MAX, 0);
    let nothing = Arc::new(ReadState::empty());
    engine.cell.state.store(Arc::clone(&nothing));
    engine.cell.fast_state.replace(nothing);
    engine.storage.disk.lock().files = FileSet::new(&engine.dir, &engine.storage.table);
    engine.storage.blobs.release_all();
}
