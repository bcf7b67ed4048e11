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
    base::{Error, Result, SequenceNumber},
    db::{
        engine::{memory::Common, root::Engine, settings::Settings},
        handles::database::Db,
        maintenance::{
            background,
            io_throttle::table_context,
            verify::{self, VerifyOptions, VerifyReport},
        },
        open::opening::refuse_unfinished,
    },
    read::ReadState,
    table::TableContext,
    version::{Current, FileSet},
};
use following::Following;
use parking_lot::{Condvar, Mutex, RwLock};
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

mod following;
mod log;

/// Maximum retries while CURRENT is unchanged.
const FRUITLESS_MAX: u32 = 6;
/// Maximum retries while CURRENT is unchanged, after [`TRY_FOR_NS`].
const FRUITLESS_MAX_LATE: u32 = 2;
/// First pause, doubled by each retry, and time until the database counts as busy.
const PAUSE_US: u64 = 500;
const TRY_FOR_NS: u64 = 20_000_000_000;
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

impl Db {
    /// Opens or creates a database with `settings`. A read-only one is the state of a follower.
    pub(crate) fn open_with(settings: Settings, path: &Path) -> Result<Db> {
        if !settings.read_only {
            return Db::open_writable(settings, path);
        }
        let db = Follower::open_with(settings, path, None)?.db();
        db.engine().start_workers()?;
        Ok(db)
    }
}

/// Verifies the database in a directory. It need not open, and another process may have it open.
pub fn verify_path(settings: Settings, dir: &Path, options: &VerifyOptions) -> Result<VerifyReport> {
    let opens = |settings| Follower::open_with(settings, dir, None).is_ok();
    verify::verify_path(settings, dir, options, &opens)
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
        self.inner.refresh(TRY_FOR_NS)
    }

    /// Runs [`Follower::refresh`], which fails with [`Error::TooBusy`] after `limit_ns` at the
    /// latest, except for the time to read the data written since.
    pub(crate) fn refresh_within(&self, limit_ns: u64) -> Result<Refreshed> {
        self.inner.refresh(limit_ns.min(TRY_FOR_NS))
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
    /// Fails if the caller's own limit is over.
    fn check_limit(
        &self,
        last: &Error,
        (settings, dir): (&Settings, &Path),
        started_ns: u64,
        limit_ns: u64,
    ) -> Result<()> {
        let took_ns = settings.runtime.monotonic_ns().saturating_sub(started_ns);
        if took_ns < limit_ns {
            return Ok(());
        }
        Err(Error::too_busy(dir, self.retries + 1, Duration::from_nanos(took_ns), last.duplicate()))
    }

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
                        if let Err(error) = inner.refresh(TRY_FOR_NS) {
                            tracing::warn!(%error, "a follower could not look for news");
                        }
                    });
                }
            }
        });
        let spawned = self.settings.runtime.spawn("braiddb-follower", body);
        spawned.map_err(|e| Error::io("start a thread for", &self.dir, e))
    }

    fn refresh(&self, limit_ns: u64) -> Result<Refreshed> {
        let Inner { settings, dir, table, .. } = self;
        let started_ns = settings.runtime.monotonic_ns();
        let Some(mut following) = self.state.try_lock_for(Duration::from_nanos(limit_ns)) else {
            let other = Error::InvalidArgument("another thread refreshes".to_owned());
            return Err(Error::too_busy(dir, 0, Duration::from_nanos(limit_ns), other));
        };
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
                    if limit_ns < TRY_FOR_NS {
                        effort.check_limit(&e, (settings, dir), started_ns, limit_ns)?;
                    }
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
            if before.shared.refuses_close() {
                db.shared.refuse_close();
            }
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

/// Releases everything of a state that was superseded for too long.
fn supersede(engine: &Engine) {
    engine.health.is_superseded.store(true, Ordering::Release);
    background::refuse_calls(engine);
    engine.readers.snapshots.check_ages(engine.coarse_now_ns(), u64::MAX, 0);
    // A read that sets a damaged view aside changes both under these locks.
    let mut disk = engine.storage.disk.lock();
    let change = engine.cell.change.lock();
    engine.cell.replace(&change, Arc::new(ReadState::empty()));
    drop(change);
    let files = std::mem::replace(&mut disk.files, FileSet::new(&engine.dir, &engine.storage.table));
    drop(disk);
    drop(files);
    engine.storage.blobs.release_all();
}
