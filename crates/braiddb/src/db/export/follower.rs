//! Followers: reading a database beside the process that writes it.
//!
//! A follower has a **state**, a [`Db`] for reading only that stays as it is: partitions with their files open, and of the log what
//! comes after them, in memtables. When it looks for news it makes another state, which shares with the one before what has not
//! changed: open files, memtables, the cache. It takes no lock and writes nothing; the writer does not know of it.
//!
//! **Each state is a commit boundary.** A manifest says up to which commit everything is in runs; the log's records that follow
//! are taken in order, each as a whole. Whatever the writer does meanwhile, a record that does not continue the chain is not taken.
//! So a state is what the manifest says, and the commits up to some later one.
//!
//! **What may vanish.** Between the moment that a manifest was read and that in which a file it names is opened, the writer may have
//! removed the file; log segments are written anew. Then CURRENT has gone on, and everything is read once more: what was not there is
//! not named any more. An error is returned only if it comes again where CURRENT stands still. Once made, a state has every
//! file open that it may ever need, so it never meets one that is gone. Blob files grow: of one that was closed meanwhile, for want of descriptors, it is
//! seen to that what was added can be read as well.
//!
//! **Space.** What a state has open stays on disk. The follower lets go of its state when it makes another. Who keeps one that was
//! superseded finds it closed after [`crate::Builder::reader_age_max`], or ten minutes where no limit is set.

use crate::{
    base::{Error, FileNumber, Result, SequenceNumber},
    db::{
        engine::{
            memory::Common,
            root::{DiskState, Engine},
            settings::Settings,
            stats::Counters,
        },
        files::{blob_store::BlobStore, names::numbered, reserve::Reserve},
        handles::database::{Db, Shared},
        maintenance::io_throttle::table_context,
        open::{
            opening::{Parts, highest, known_functions, load_catalog, refuse_unfinished, time_floor},
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

/// So often everything is read again while CURRENT stands still, before an error counts.
const TRIES_IN_VAIN: u32 = 6;
/// The pause before the first of those, and how long all tries may take.
const PAUSE_US: u64 = 500;
const TRY_FOR_NS: u64 = 20_000_000_000;
/// A record at the log's end that is not whole is read so often again, with such a pause, before it counts as torn or damaged.
const TAIL_TRIES: u32 = 4;
const TAIL_PAUSE_US: u64 = 5_000;
/// How long a superseded state may be kept where nothing else was asked for.
const KEPT_FOR_NS: u64 = 600_000_000_000;

/// What a look for news has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refreshed {
    /// The last commit that the follower's state shows.
    pub sequence: SequenceNumber,
    /// Whether there is another state now than before.
    pub has_changed: bool,
    /// When the last of its commits that stands in the log was made, in microseconds since 1970; 0 if none does.
    pub committed_us: u64,
    /// How many records of the log were read.
    pub records: u64,
    /// Whether the manifest was read.
    pub manifest_read: bool,
    /// How often something had vanished while it was read, so that all was read again.
    pub retries: u32,
    /// How long that took.
    pub took: Duration,
}

/// A reader of a database that another process, or another handle, has open and writes. See [`Builder::open_follower`](crate::Builder::open_follower).
///
/// [`Follower::db`] gives the database as it was after some commit, for reading only; it stays so, with all that is made of it. A look
/// for news ([`Follower::refresh`]) makes the follower give a later state from then on. The first costs as much as to open the
/// database; later ones, as much as was written since. With a pause set ([`Builder::refresh_every`](crate::Builder::refresh_every)),
/// a thread does that by itself.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("braiddb-doc-follower-{}", std::process::id()));
/// let owner = braiddb::Db::open(&dir)?;
/// owner.tree("albums")?.put("1", "Ten")?;
///
/// let follower = braiddb::Db::open_follower(&dir)?; // in another process, most likely
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
    /// Whether the thread is to end.
    is_ending: Mutex<bool>,
    ending: Condvar,
}

/// What the next state is made of.
struct Following {
    manifest: Manifest,
    files: FileSet,
    version: Arc<Version>,
    log: Log,
    /// Whether anything here is newer than the state that was made last.
    has_news: bool,
    /// States that are not the present one any more, and since when.
    superseded: Vec<(u64, Weak<Shared>)>,
}

/// What is known of the log past what is in runs.
struct Log {
    /// None if the manifest knows of no log, or what was read of it is not of one piece with the manifest.
    tail: Option<Tail>,
    /// Oldest first; the last one takes more.
    memtables: Vec<Arc<Memtable>>,
    /// How many records of it no state shows yet: also those that a look took before it failed.
    unshown: u64,
    last_sequence: SequenceNumber,
    last_commit_us: u64,
    blob_files: BTreeSet<FileNumber>,
    /// Whether something was to come past the log right after what was read.
    load_is_next: bool,
    /// Whether some of what was read follows what may have come past the log, so that the manifest must be looked at.
    is_past_load: bool,
    /// The torn or damaged tail that it ended with when it was read from its beginning.
    tail_note: Option<String>,
}

impl Follower {
    /// Opens a follower with these settings.
    pub(crate) fn open_with(settings: Settings, dir: &Path, every: Option<Duration>) -> Result<Follower> {
        settings.check()?;
        let settings = Common::of(Settings { read_only: true, create: false, ..settings });
        refuse_unfinished(&settings, dir, &settings.vfs.list(dir).unwrap_or_default())?;
        let table = table_context(&settings);
        let started_ns = settings.runtime.monotonic_ns();
        let mut effort = Effort::default();
        let mut seen = None;
        let (following, db) = loop {
            let before = std::mem::replace(&mut seen, Current::open(&*settings.vfs, dir, true)?.map(|c| c.seen()));
            match Following::begin(&settings, dir, &table) {
                Err(e) if e.is_not_found() => return Err(e),
                Err(e) => effort.again(e, &settings, started_ns, seen == before)?,
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

    /// The database as of the last look for news. For reading only; it stays as it is.
    pub fn db(&self) -> Db {
        self.inner.current.read().clone()
    }

    /// Looks for what was committed since. Commits that are in the files count, synced or not: all that the writer has been told is
    /// done, if this is called after. Takes time in proportion to what was written since the last look.
    ///
    /// Fails if a file is damaged or cannot be read; the state of before is kept then.
    pub fn refresh(&self) -> Result<Refreshed> {
        self.inner.refresh()
    }

    /// How often news were looked for.
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

/// How hard it was tried to read all of a state before something vanished.
#[derive(Default)]
struct Effort {
    retries: u32,
    in_vain: u32,
}

impl Effort {
    /// After an error: waits a little if it may be that the writer was in the way, and returns the error if not.
    fn again(&mut self, error: Error, settings: &Settings, started_ns: u64, stands_still: bool) -> Result<()> {
        self.retries += 1;
        let has_time = settings.runtime.monotonic_ns().saturating_sub(started_ns) < TRY_FOR_NS;
        self.in_vain = if stands_still { self.in_vain + 1 } else { 0 };
        if self.in_vain >= TRIES_IN_VAIN || !has_time {
            return Err(error);
        }
        tracing::debug!(%error, "the writer was in the way of a follower, which tries again");
        settings.runtime.sleep_us(PAUSE_US << self.in_vain);
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
            match following.go_on(settings, dir, table, &before) {
                Err(e) => {
                    let now = following.manifest.look()?;
                    let stands_still = seen.replace(now) == Some(now);
                    effort.again(e, settings, started_ns, stands_still)?;
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
                state.engine.supersede();
            }
            is_kept
        });
        Ok(refreshed)
    }
}

/// What came of making the next state.
struct Made {
    /// None if there is no news.
    db: Option<Db>,
    records: u64,
    manifest_read: bool,
}

impl Following {
    /// The first state.
    fn begin(settings: &Settings, dir: &Path, table: &TableContext) -> Result<(Following, Db)> {
        let manifest = open_manifest(settings, dir)?;
        let mut files = FileSet::new(dir, table);
        let version = Arc::new(files.version(manifest.layout(), None)?);
        let blobs = BlobStore::beside_writer(dir, table, None, manifest.layout(), &BTreeSet::new(), &BTreeSet::new())?;
        let log = Log::read(settings, dir, &manifest, &blobs)?;
        blobs.open_all(&log.blob_files)?;
        let mut following = Following { manifest, files, version, log, has_news: true, superseded: Vec::new() };
        following.check_views()?;
        let db = following.state(settings, dir, table, blobs)?;
        Ok((following, db))
    }

    /// The next state, if there is news. After an error it is as before, but for files that it has opened beforehand.
    fn go_on(&mut self, settings: &Settings, dir: &Path, table: &TableContext, before: &Db) -> Result<Made> {
        // Someone may have closed it.
        self.has_news |= before.engine().check_open().is_err();
        let before = &before.engine().blobs;
        if !self.manifest.has_gone_on()? {
            // Where the log goes on elsewhere, CURRENT may only be late.
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
        let manifest = open_manifest(settings, dir)?;
        let (old, new) = (self.manifest.layout(), manifest.layout());
        let is_same_log = (old.flushed, old.epoch, old.incarnation) == (new.flushed, new.epoch, new.incarnation);
        let is_same = old.incarnation == new.incarnation;
        if !is_same {
            // It was restored, or made anew: its numbers are others.
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
        // Not before: those of a log that is not followed any more may be gone.
        blobs.open_all(&self.log.blob_files)?;
        (self.manifest, self.version) = (manifest, version);
        self.check_views()?;
        let records = self.log.unshown;
        let db = self.state(settings, dir, table, blobs)?;
        Ok(Made { db: Some(db), records, manifest_read: true })
    }

    /// The blob files of the next state.
    fn blobs(&self, dir: &Path, table: &TableContext, before: &BlobStore, layout: &Layout) -> Result<BlobStore> {
        BlobStore::beside_writer(dir, table, Some(before), layout, &self.log.blob_files, &BTreeSet::new())
    }

    /// A view that cannot be opened is done without, and slowly. Fails if there may be another by now.
    fn check_views(&self) -> Result<()> {
        match self.files.damaged_views().iter().next() {
            Some((number, reason)) if self.manifest.has_gone_on()? => {
                Err(Error::corruption(FileSet::view_path(Path::new(""), *number), 0, reason.clone()))
            }
            _ => Ok(()),
        }
    }

    /// A database of all that was read.
    fn state(&mut self, settings: &Settings, dir: &Path, table: &TableContext, blobs: BlobStore) -> Result<Db> {
        let mut memtables = self.log.memtables.clone();
        let active = memtables.pop().unwrap_or_else(|| Engine::new_memtable(settings, 0));
        memtables.reverse();
        let version = Arc::clone(&self.version);
        let state = ReadState { active, frozen: memtables, version, garbage: Arc::new(Garbage::default()) };
        let functions = Arc::new(known_functions(settings)?);
        // What was loaded past the log has a number too, and all before it was read.
        let loaded = self.manifest.layout().runs.values().map(|run| run.max_sequence).max();
        self.log.last_sequence = self.log.last_sequence.max(loaded.unwrap_or_default());
        let last_sequence = self.log.last_sequence;
        let layout = self.manifest.layout();
        let (catalog, _, versions) =
            load_catalog(settings, &state, last_sequence, (dir, layout.incarnation), &functions)?;
        let engine = Engine::assemble(Parts {
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
    /// Reads the log from where the manifest says that it begins.
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
        // Segments are named by their numbers, which they keep when they are written anew.
        if outcome.begins_after > layout.flushed {
            let detail = format!(
                "the log begins after commit {}, and what is in runs ends with {}",
                outcome.begins_after, layout.flushed
            );
            return Err(Error::corruption(dir, 0, detail));
        }
        // What a record refers to may have been moved, once that was in runs.
        if outcome.is_stopped && manifest.has_gone_on()? {
            return Err(Error::corruption(dir, 0, outcome.tail_note.unwrap_or_default()));
        }
        let tail_note = match &outcome.tail {
            // A record with a missing value is whole itself: it says nothing about a writer.
            _ if outcome.is_stopped => outcome.tail_note,
            Some(tail) if outcome.tail_note.is_some() && !is_being_written(settings, tail)? => outcome.tail_note,
            _ => None,
        };
        // Not past the last one that counts, as a writer's numbers must be.
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

    /// Reads what was appended since. Whether the log can still be followed.
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
        // Whatever was taken before an error has been taken: the tail stands behind it.
        self.take(walk);
        Ok(followed? == Followed::All && !self.lacks_load(manifest)?)
    }

    /// Whether it may be that the log was read past a load that the manifest, which was read before, does not have yet. A load is in
    /// force before anything is committed after it.
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

/// Whether a record is whole by now where the log ended with a part of one: its writer lives.
fn is_being_written(settings: &Settings, tail: &Tail) -> Result<bool> {
    for _ in 0..TAIL_TRIES {
        if tail.has_gone_on()? || !tail.is_same_segment()? {
            return Ok(true);
        }
        settings.runtime.sleep_us(TAIL_PAUSE_US);
    }
    Ok(false)
}

/// The blob files that runs of a layout refer to which another has not: no others can have anything that matters since.
fn blobs_of_new_runs(old: &Layout, new: &Layout) -> BTreeSet<FileNumber> {
    let runs = new.runs.iter().filter(|(number, _)| !old.runs.contains_key(number));
    runs.flat_map(|(_, meta)| &meta.blob_uses).map(|blob_use| blob_use.file).collect()
}

/// The manifest that is in force.
fn open_manifest(settings: &Settings, dir: &Path) -> Result<Manifest> {
    if let Some(manifest) = Manifest::open(&settings.vfs, &settings.runtime, dir, true)? {
        return Ok(manifest);
    }
    let names = settings.vfs.list(dir).unwrap_or_default();
    if highest(&names) > 0 && names.iter().any(|e| numbered(&e.name).is_some_and(|(_, kind)| kind != "manifest")) {
        let detail = "it is missing, but there are files of a database: this is a damaged database, or half a copy";
        return Err(Error::corruption(dir.join(CURRENT_NAME), 0, detail));
    }
    Err(Error::NotFound(format!("there is no database in {}", dir.display())))
}

impl Engine {
    /// Lets go of everything: of a follower's state that has been superseded for too long.
    fn supersede(&self) {
        self.is_superseded.store(true, Ordering::Release);
        self.refuse_calls();
        // Cursors, too, let go of theirs when they are asked next.
        self.snapshots.look(self.coarse_now_ns(), u64::MAX, 0);
        let nothing = Arc::new(ReadState::empty());
        self.state.store(Arc::clone(&nothing));
        self.fast_state.replace(nothing);
        self.disk.lock().files = FileSet::new(&self.dir, &self.table);
        self.blobs.let_go_of_all();
    }
}
