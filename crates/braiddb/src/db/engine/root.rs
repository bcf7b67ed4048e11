//! The core that all handles of a database share.
//!
//! # Concurrency
//!
//! - *Readers* load `state` (one atomic load) and then the visible sequence number. They take no lock.
//! - *Writers* go through `queue`; the leader of a group holds `write` and is the only one to number, log, insert and
//!   publish, and to freeze the active memtable.
//! - *Jobs* (flush, fold, merge) hold no lock while they work. To put their result into force they hold `disk`: one edit
//!   at a time.
//! - `change` is held while a new state is made of the present one, by leader and jobs alike.
//!
//! - *Callers* that change files hold `gate` shared meanwhile. Closing takes it alone: nothing is written for a caller
//!   once the lock on the directory is given up.
//!
//! - *Transactions* are checked by the leader against `window`. While an exclusive one is open, all other commits wait
//!   outside of the queue, for a bounded time; it commits without the queue.
//!
//! - *Panics* are broken invariants: they end writing, and nothing else. Commits, edits and jobs run in
//!   [`Engine::catch_panic`], the first two while `write` or `disk` is held: whoever takes the lock next finds the database
//!   latched, and changes nothing that was left half done. What readers load was published whole, so they go on.
//!
//! Order of locks: `gate`, then the catalog's, then `write`, then `disk`, then `change`. `work` is a leaf.

use super::{
    catalog::Catalog,
    clock::Clock,
    memory::TenantQuota,
    parts::{
        garbage_limit::GarbageLimit, index_look::Look, limited_work::LimitedWork, pressure::Pressure,
        scrubber::Scrubber,
    },
    read_hold::Hold,
    settings::Settings,
    stats::Counters,
    wal_notify::Watches,
};
use crate::{
    base::{Error, FileNumber, Result, SequenceNumber},
    codec::MergeFunctions,
    commit::{CommitQueue, PreparedBatch, SnapshotList},
    db::{
        files::{blob_store::BlobStore, reserve::Reserve},
        open::archive::Archiver,
        record::version_tags::VersionTags,
    },
    memtable::{Memtable, MemtableOptions},
    platform::{FileLock, Published},
    read::ReadState,
    table::TableContext,
    txn::{Check, Validation, Window},
    version::{FileSet, Manifest, Version},
    wal::Wal,
};
use arc_swap::{ArcSwap, Guard};
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::Thread,
};

/// A batch on its way through the queue.
#[derive(Debug, Default)]
pub struct Request {
    /// What it writes.
    pub batch: PreparedBatch,
    /// How many trees had been dropped when those it writes to were last seen to be there.
    pub drops: u64,
    /// Whether it need not go to the log.
    pub is_unlogged: bool,
    /// What must not have been written by others.
    pub check: Option<Box<Check>>,
    /// What came of the check, by the leader.
    pub validation: Validation,
}

/// Where a committed batch stands.
#[derive(Clone, Copy, Debug)]
pub struct Committed {
    pub sequence: SequenceNumber,
    pub lsn: u64,
}

/// What became of a request.
#[derive(Debug)]
pub enum Answer {
    Committed(Committed),
    /// A tree was dropped since the request's trees were seen to be there: they must be looked at again.
    Retry(Request),
    /// What the check is about was written by others.
    Changed,
    /// The window of recent commits does not reach back to what the check has seen.
    TooOld(Request),
}

/// What the commit leader alone changes.
#[derive(Debug)]
pub struct WriteState {
    pub last_sequence: SequenceNumber,
    /// From the first to the last, numbers that nobody has, since the log had no space for their commits, and that it does not tell of yet.
    pub refused: Option<(SequenceNumber, SequenceNumber)>,
    pub payload: Vec<u8>,
    /// The exclusive transaction that is open: nobody else commits.
    pub exclusive: Option<ExclusiveOwner>,
    /// The ticket of the last exclusive transaction.
    pub exclusive_tickets: u64,
    /// The last commit that did not go to the log, if none has gone there since; else 0.
    pub unlogged: SequenceNumber,
    /// Numbers up to this may have been used, as the manifest says.
    pub reserved: SequenceNumber,
    /// Whether a tag for versions was drawn at the open and no commit has stored it yet.
    pub has_unstored_tag: bool,
    /// Whether commits stay invisible for now, because the data that they announce is not installed yet.
    pub holds_back: bool,
}

/// An exclusive transaction that is open.
#[derive(Clone, Debug)]
pub struct ExclusiveOwner {
    /// Its number; no other transaction has it.
    pub ticket: u64,
    /// When it began, by the runtime's clock.
    pub began_ns: u64,
    /// The thread that began it, for messages alone: the transaction may have moved since.
    pub began_by: Thread,
}

impl ExclusiveOwner {
    /// The thread that began it, in words.
    pub fn describe_thread(&self) -> String {
        match (self.began_by.id() == std::thread::current().id(), self.began_by.name()) {
            (true, _) => "this thread".to_owned(),
            (false, Some(name)) => format!("the thread {name:?}"),
            (false, None) => format!("the thread {:?}", self.began_by.id()),
        }
    }
}

/// Set in [`Exclusivity::notices`] while an exclusive transaction is open.
pub const NOTICE_EXCLUSIVE: usize = 1;

/// Added to [`Exclusivity::notices`] for each closure of `Db::update` that runs.
pub const NOTICE_UPDATE: usize = 2;

/// What commits look at before they go ahead, beside what `write` guards.
#[derive(Debug, Default)]
pub struct Exclusivity {
    /// Zero if there is nothing to look at: the fast path of a commit reads this alone.
    pub notices: AtomicUsize,
    /// Notified when an exclusive transaction ends, and when the database is closed.
    pub ended: Condvar,
}

/// What whoever puts an edit into force alone changes.
#[derive(Debug)]
pub struct DiskState {
    pub manifest: Manifest,
    pub files: FileSet,
}

/// What becomes of the memtables with a new version.
#[derive(Clone, Copy, Debug)]
pub enum Memtables<'a> {
    /// They stay.
    Same,
    /// This one is in the version's runs.
    Flushed(&'a Arc<Memtable>),
    /// What is committed from now on goes into another. By who has the right to write.
    Fresh,
}

/// What the workers share.
#[derive(Debug, Default)]
pub struct WorkState {
    pub flushing: bool,
    pub busy: HashSet<u64>,
    /// By partition: dead entries that were left after its last merge, and the snapshots of then.
    pub held: BTreeMap<u64, (u64, Vec<SequenceNumber>)>,
    /// Blob files that are mostly dead: merges move what is left out of them.
    pub sparse_blobs: BTreeSet<FileNumber>,
    /// Blob files of earlier format versions, once that was looked for: what they hold is moved as well.
    pub older_blobs: Option<BTreeSet<FileNumber>>,
    /// Blob files with a value that could not be read to be moved; they stay.
    pub unmovable_blobs: BTreeSet<FileNumber>,
    /// By partition: its bytes when a split could not cut it. It is not tried again before it has grown by half.
    pub unsplit: BTreeMap<u64, u64>,
    /// Partitions whose merge failed for good (damaged input); left alone until the next open.
    pub failed: BTreeMap<u64, String>,
    /// After a flush found the disk full: no flush before this time.
    pub flush_not_before_ns: u64,
    /// After a flush or a merge did: no merge before this time.
    pub merge_not_before_ns: u64,
    /// After a full disk: until then, what can stay as it is does.
    pub cramped_until_ns: u64,
    /// Whether the last flush found no space, and when that was.
    pub flush_refused_at_ns: Option<u64>,
    pub idle: bool,
    /// Commits and flushes at the last look.
    pub seen: u64,
    pub quiet_since_ns: u64,
}

/// Everything of an open database.
pub struct Engine {
    pub dir: PathBuf,
    /// The random number of the database's present life.
    pub incarnation: u64,
    /// Makes the versions of commits.
    pub versions: VersionTags,
    pub settings: Settings,
    pub clock: Clock,
    /// How far the manifest says that time was ahead of the wall clock.
    pub noted_ahead_us: AtomicU64,
    pub table: TableContext,
    /// The same for flushes and for merges, if what they write is limited.
    pub limited: Option<LimitedWork>,
    pub state: ArcSwap<ReadState>,
    /// The same state, for who reads it for one get.
    pub fast_state: Published<ReadState>,
    /// What it shares with other databases, and its part in that.
    pub tenant: TenantQuota,
    /// Whether the active memtable is to be frozen for the sake of another database.
    pub is_to_freeze: AtomicBool,
    pub change: Mutex<()>,
    /// Who makes hash indexes holds it, so that nobody else takes the same memory for one. Which partitions were looked at while the database rested: see
    /// [`Engine::index_at_rest`].
    pub indexing: Mutex<HashMap<u64, Look>>,
    pub snapshots: SnapshotList,
    /// Readers are looked at again from then on.
    pub next_reader_look_ns: AtomicU64,
    pub queue: CommitQueue<Request, Result<Answer>>,
    pub write: Mutex<WriteState>,
    /// What the latest commits have written, for transactions.
    pub window: Window,
    pub exclusivity: Exclusivity,
    pub disk: Mutex<DiskState>,
    /// `None` when the database is open for reading only.
    pub wal: Option<Wal>,
    pub scrubber: Scrubber,
    pub watches: Watches,
    /// All commits up to this are in runs, by an edit that is durable.
    pub flushed: AtomicU64,
    /// The last commit that did not go to the log.
    pub unlogged: AtomicU64,
    pub blobs: BlobStore,
    /// The blob files that stay while the database is restored.
    pub held_blobs: Mutex<BTreeSet<FileNumber>>,
    /// Where the log is kept for good, if it is.
    pub archiver: Option<Archiver>,
    pub catalog: Catalog,
    pub functions: Arc<MergeFunctions>,
    pub work: Mutex<WorkState>,
    pub work_changed: Condvar,
    pub next_file: Arc<AtomicU64>,
    pub pressure: Pressure,
    /// Blocks of the disk for when it is full.
    pub reserve: Reserve,
    pub garbage_limit: GarbageLimit,
    pub counters: Counters,
    pub closing: AtomicBool,
    /// Whether this was closed since it is a follower's state of before.
    pub is_superseded: AtomicBool,
    pub gate: RwLock<()>,
    pub failure: Mutex<Option<String>>,
    pub failed: AtomicBool,
    pub lock: Mutex<Option<Box<dyn FileLock>>>,
    /// Files of before that nothing refers to, and that are to be removed.
    pub leftovers: Mutex<Vec<PathBuf>>,
}

impl std::fmt::Debug for Engine {
    /// Without what is inside: see [`Db`](crate::Db).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("path", &self.dir).finish_non_exhaustive()
    }
}

impl Engine {
    /// A fresh file number.
    pub fn new_file_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// Fails once the database is closed, read-only, or has latched a failure.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        let closing = self.closing.load(Ordering::Acquire);
        if closing || self.settings.read_only || self.failed.load(Ordering::Acquire) {
            return self.refuse_to_write();
        }
        Ok(())
    }

    #[cold]
    fn refuse_to_write(&self) -> Result<()> {
        if self.closing.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        if self.settings.read_only {
            return Err(Error::ReadOnly { reason: "it was opened for reading only".to_owned() });
        }
        if self.failed.load(Ordering::Acquire) {
            return Err(Error::ReadOnly { reason: self.failure.lock().clone().unwrap_or_default() });
        }
        Ok(())
    }

    /// Keeps the database from being closed while the caller changes files. Fails once it is closed. Not to be entered
    /// twice by one thread: a thread that closes may stand in between.
    pub fn enter(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let inside = self.gate.read();
        self.check_open()?;
        Ok(inside)
    }

    /// The same for who must not wait behind a thread that closes, since that one may be waiting for who waits for the caller.
    pub fn enter_past_closing(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let inside = self.gate.read_recursive();
        self.check_open()?;
        Ok(inside)
    }

    /// Fails once the database is closed.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.closing.load(Ordering::Acquire) { self.refuse_to_read() } else { Ok(()) }
    }

    #[cold]
    fn refuse_to_read(&self) -> Result<()> {
        Err(if self.is_superseded.load(Ordering::Acquire) { Error::Superseded } else { Error::Closed })
    }

    /// Takes no more writes from now on: what is on disk is not known for sure. The first reason is kept.
    pub fn poison(&self, reason: &Error) {
        self.poison_for(&reason.to_string(), matches!(reason, Error::Closed));
    }

    /// Calls `work`. If it panics, no more writes are taken, and the reason is returned.
    pub fn catch_panic<R>(&self, what: &str, work: impl FnOnce() -> R) -> std::result::Result<R, String> {
        // Safe to go on after: writers look at the latch first, and readers use only what was published whole.
        catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
            let message = panic.downcast_ref::<&str>().copied();
            let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let reason = format!("{what} panicked: {}", message.unwrap_or("without a message"));
            self.poison_for(&reason, false);
            reason
        })
    }

    /// Work that the close of the database ended is no failure: no reason is kept for it, so that a real failure during the
    /// close is kept and logged. Calls fail with `Closed` by then.
    fn poison_for(&self, reason: &str, is_closed: bool) {
        let mut failure = self.failure.lock();
        if failure.is_none() && !is_closed {
            tracing::error!(reason, "the database takes no more writes");
            *failure = Some(reason.to_owned());
        }
        self.failed.store(true, Ordering::Release);
        drop(failure);
        self.signal_work();
    }

    /// Wakes whoever waits for work, or for work to be done. The caller may hold any lock.
    pub fn signal_work(&self) {
        self.tenant.common.pool.call(self.tenant.id);
        self.work_changed.notify_all();
    }

    /// A memtable as this database wants it, after one that had so many bytes when it was frozen.
    pub fn new_memtable(settings: &Settings, before_bytes: usize) -> Arc<Memtable> {
        let common = settings.common();
        let options = MemtableOptions::for_capacity(settings.memtable_bytes());
        let likely = MemtableOptions::for_capacity(common.likely_memtable_bytes(settings, before_bytes));
        let (chunk_pool, filter_bytes) = (Some(Arc::clone(&common.chunk_pool)), likely.filter_bytes);
        Arc::new(Memtable::new(MemtableOptions { chunk_pool, filter_bytes, ..options }))
    }

    /// Puts a state in the present one's place. The caller holds `change`.
    pub fn publish(&self, state: ReadState) {
        let state = Arc::new(state);
        self.measure_pressure(&state);
        self.state.store(Arc::clone(&state));
        self.fast_state.replace(state);
        self.signal_work();
    }

    /// Puts a version in the present one's place, and says what becomes of the memtables with it.
    pub fn publish_version(&self, version: Version, memtables: Memtables<'_>, files: &FileSet) {
        let _change = self.change.lock();
        let old = self.state.load_full();
        let mut frozen = old.frozen.clone();
        let mut active = Arc::clone(&old.active);
        match memtables {
            Memtables::Same => {}
            Memtables::Flushed(flushed) => frozen.retain(|memtable| !Arc::ptr_eq(memtable, flushed)),
            Memtables::Fresh => {
                let fresh = Engine::new_memtable(&self.settings, active.bytes_used());
                let before = std::mem::replace(&mut active, fresh);
                if !before.is_empty() {
                    frozen.insert(0, before);
                }
            }
        }
        self.publish(ReadState { active, frozen, version: Arc::new(version), garbage: Arc::clone(&old.garbage) });
        drop(old);
        self.share_memory(files);
    }

    /// Freezes the active memtable. The caller holds `write`.
    pub fn freeze(&self) {
        let _change = self.change.lock();
        let old = self.state.load_full();
        if old.active.is_empty() {
            return;
        }
        let mut frozen = Vec::with_capacity(old.frozen.len() + 1);
        frozen.push(Arc::clone(&old.active));
        frozen.extend(old.frozen.iter().cloned());
        self.publish(ReadState {
            active: Engine::new_memtable(&self.settings, old.active.bytes_used()),
            frozen,
            version: Arc::clone(&old.version),
            garbage: Arc::clone(&old.garbage),
        });
        drop(old);
        self.share_memory_again();
    }

    /// The present state.
    #[inline(always)]
    pub fn present_state(&self) -> Result<Guard<Arc<ReadState>>> {
        let state = self.state.load();
        if state.version.partitions.is_empty() {
            // It is that of nothing, which comes after readers are refused.
            self.check_open()?;
        }
        Ok(state)
    }

    /// The state to read from, and the sequence number to read at: a hold's, or now's. Fails if the hold has expired. Whoever goes
    /// over to another state gets it here again.
    #[inline(always)]
    pub fn state_for(&self, hold: Option<&Hold>) -> Result<(Guard<Arc<ReadState>>, SequenceNumber)> {
        // The state comes first, either way: see `ReadState` and `SnapshotList`.
        let state = self.present_state()?;
        match hold {
            None => Ok((state, self.snapshots.visible())),
            Some(hold) => hold.check().map(|()| (state, hold.sequence())),
        }
    }

    /// Nanoseconds of the runtime's clock.
    pub fn now_ns(&self) -> u64 {
        self.settings.runtime.monotonic_ns()
    }
}
