//! The handle of a shared database.

use super::{
    batch::SharedBatch,
    core::Core,
    election,
    forward::{self, WriteQueues},
    message::{Request, TreeRequest},
    multi::SharedMultiTree,
    owner::TIMEOUT_MAX_NS,
    reading::Freshness,
    session::Deadline,
    tree::SharedTree,
};
use crate::{
    base::{Error, Result, SequenceNumber},
    db::{Db, Durability, Settings, Snapshot, TreeInfo, TreeOptions},
    platform::HAS_LOCAL_SOCKETS,
};
use parking_lot::Mutex;
use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Default timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Options of a shared database that an ordinary one lacks.
#[derive(Clone, Copy, Debug)]
pub struct SharedOptions {
    timeout: Duration,
}

impl Default for SharedOptions {
    fn default() -> SharedOptions {
        SharedOptions { timeout: TIMEOUT }
    }
}

impl SharedOptions {
    pub(crate) fn with_timeout(self, timeout: Duration) -> SharedOptions {
        SharedOptions { timeout }
    }

    fn timeout_ns(self) -> Result<u64> {
        let ns = u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX);
        if (1..=TIMEOUT_MAX_NS).contains(&ns) {
            return Ok(ns);
        }
        let most = Duration::from_nanos(TIMEOUT_MAX_NS);
        Err(Error::InvalidArgument(format!("shared_timeout is {:?}: use more than zero, up to {most:?}", self.timeout)))
    }
}

/// A database that several processes have open at once. Clones are cheap and shared across threads.
///
/// Every process opens it with [`crate::Builder::open_shared`] and the same options. The first one
/// becomes the owner and commits for all; when it ends, even by `kill -9`, another takes over.
///
/// - **Writes** have the durability that they ask for. A write returns when the owner has committed
///   it. An acknowledged write survives the end of any process.
/// - **Exactly once**: a write whose owner ended is resolved with the next owner, by a record in
///   the same commit. Only if no owner replies until the timeout, the error is
///   [`Error::OutcomeUnknown`] ([`Error::is_outcome_unknown`]): the write may have been applied or
///   may be applied soon.
/// - **Reads** see all acknowledged writes of their process, and those of others at most about
///   5 ms later. Each read sees one commit's state; states never go back.
/// - **Transactions** ([`SharedDb::update`]) are serializable across processes. Exclusive ones
///   ([`SharedDb::begin_exclusive`]) never conflict, and commits of all processes wait for them.
/// - **Timeout**: a call returns within [`crate::Builder::shared_timeout`] (30 seconds by default),
///   unless its own work takes longer: a closure, the disk of the owner's own commits, the recovery
///   at the open, or a refresh that reads very much.
/// - **Large values** ([`SharedTree::put_stream`]) take constant memory in all processes, and
///   **multi-trees** ([`SharedDb::multi_tree`]) many values per key.
///
/// Not available: watching, appends to streams, bulk loads, changes of tree options, and dropping
/// trees. [`Durability::None`] acts as [`Durability::Buffered`]. All processes must
/// run as the same user, on one machine, with the same version of BraidDB; open the database after
/// a fork, not before. Works on Unix and Windows; on WebAssembly the open fails with
/// [`Error::Unsupported`].
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// # if !cfg!(any(unix, windows)) { return Ok(()) }
/// # let dir = std::env::temp_dir().join(format!("braiddb-doc-shared-{}", std::process::id()));
/// let db = braiddb::Db::builder().open_shared(&dir)?; // the same in each process
/// let albums = db.tree("albums")?;
/// albums.put("1", "Ten")?;
/// assert_eq!(albums.get("1")?.unwrap(), "Ten");
/// let copies = db.update(|tx| {
///     let albums = albums.in_transaction(tx)?;
///     let copies = tx.get(&albums, "copies")?.map_or(0, |value| value[0]) + 1;
///     tx.put(&albums, "copies", [copies])?;
///     Ok(copies)
/// })?;
/// assert_eq!(copies, 1);
/// # db.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedDb {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) core: Arc<Core>,
    pub(super) freshness: Freshness,
    pub(super) writes: WriteQueues,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Whether a caller got the error of the close.
    is_reported: AtomicBool,
}

impl fmt::Debug for SharedDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedDb").field("path", &self.shared.core.dir).finish_non_exhaustive()
    }
}

impl SharedDb {
    /// Opens or creates the database, and waits for the role of this process.
    pub(crate) fn open(settings: Settings, options: SharedOptions, dir: &Path) -> Result<SharedDb> {
        if !HAS_LOCAL_SOCKETS {
            let detail = "sharing a database among processes is not supported on WebAssembly";
            return Err(Error::Unsupported { path: dir.to_owned(), detail: detail.to_owned() });
        }
        let durability = logged(settings.durability);
        let timeout_ns = options.timeout_ns()?;
        // New trees wait for exclusive transactions, too.
        let exclusive_wait_ns = settings.exclusive_wait_ns.min(timeout_ns);
        let settings = Settings { durability, read_only: false, exclusive_wait_ns, ..settings };
        settings.check()?;
        let core = Arc::new(Core::new(settings, dir.to_owned(), timeout_ns));
        let of_thread = Arc::clone(&core);
        let body = Box::new(move || election::run(&of_thread));
        let thread =
            core.runtime().spawn("braiddb-share", body).map_err(|e| Error::io("start a thread for", dir, e))?;
        let shared = Shared {
            core: Arc::clone(&core),
            freshness: Freshness::default(),
            writes: WriteQueues::default(),
            thread: Mutex::new(Some(thread)),
            is_reported: AtomicBool::new(false),
        };
        let db = SharedDb { shared: Arc::new(shared) };
        core.await_first_role(core.deadline())?;
        Ok(db)
    }

    /// Returns whether this process is the owner now. A process forked after the open is not.
    pub fn is_owner(&self) -> bool {
        self.core().check_process().is_ok() && self.core().is_owner()
    }

    /// Returns a tree, whatever its options. Creates it with default options if absent.
    pub fn tree(&self, name: &str) -> Result<SharedTree> {
        self.open_or_create(name, false, TreeOptions::default())
    }

    /// Returns a tree, created with `options` if absent: see [`Db::tree_with`].
    pub fn tree_with(&self, name: &str, options: TreeOptions) -> Result<SharedTree> {
        self.open_or_create(name, true, options)
    }

    /// Returns a tree, or `NotFound`.
    pub fn open_tree(&self, name: &str) -> Result<SharedTree> {
        SharedTree::new(self, self.latest()?.open_tree(name)?)
    }

    fn open_or_create(&self, name: &str, exact: bool, options: TreeOptions) -> Result<SharedTree> {
        if !exact && let Ok(tree) = self.state()?.open_tree(name) {
            return SharedTree::new(self, tree);
        }
        let request = TreeRequest { name: name.to_owned(), multi: false, exact, options };
        self.call(Request::Tree(request))?;
        SharedTree::new(self, self.state()?.open_tree(name)?)
    }

    /// Returns a multi-tree, which keeps many sorted values per key. Creates it if absent.
    pub fn multi_tree(&self, name: &str) -> Result<SharedMultiTree> {
        if let Ok(tree) = self.state()?.open_multi_tree(name) {
            return Ok(SharedMultiTree::new(self, &tree));
        }
        let (multi, exact, options) = (true, false, TreeOptions::default());
        self.call(Request::Tree(TreeRequest { name: name.to_owned(), multi, exact, options }))?;
        Ok(SharedMultiTree::new(self, &self.state()?.open_multi_tree(name)?))
    }

    /// Returns a multi-tree, or `NotFound`.
    pub fn open_multi_tree(&self, name: &str) -> Result<SharedMultiTree> {
        Ok(SharedMultiTree::new(self, &self.latest()?.open_multi_tree(name)?))
    }

    /// Lists all trees by name.
    pub fn trees(&self) -> Result<Vec<TreeInfo>> {
        self.latest()?.trees()
    }

    /// Returns an empty batch: writes that commit together.
    pub fn batch(&self) -> SharedBatch {
        SharedBatch::new(self)
    }

    /// Makes all earlier commits of all processes durable.
    pub fn sync(&self) -> Result<()> {
        self.call(Request::Sync).map(drop)
    }

    /// Returns a snapshot of the latest commit: with all writes of all processes that were
    /// acknowledged before. [`SharedTree::in_snapshot`] reads a tree of it. In a member it fails
    /// with [`Error::Superseded`] after ten minutes.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(self.latest()?.snapshot())
    }

    /// Returns the database to read from at this moment: the open database in the owner, a
    /// read-only state in a member. For reads that this handle lacks; write through this handle
    /// only. Its [`Db::close`] fails.
    pub fn state(&self) -> Result<Db> {
        self.shared.freshness.state(self.core())
    }

    /// Makes the following reads see all commits that any process has acknowledged before.
    pub fn refresh(&self) -> Result<()> {
        self.latest().map(drop)
    }

    /// Returns the path of the database.
    pub fn path(&self) -> &Path {
        &self.core().dir
    }

    /// Ends this process's part, as dropping the last handle does. If it was the owner, its
    /// buffered commits become durable, and another process takes over.
    ///
    /// Other handles then fail with `Closed`. A second close waits for the first, and returns the
    /// same error.
    pub fn close(self) -> Result<()> {
        self.shared.close();
        let error = self.core().close_error.lock();
        self.shared.is_reported.store(true, Ordering::Relaxed);
        error.as_ref().map_or(Ok(()), |error| Err(error.duplicate()))
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.shared.core
    }

    pub(super) fn latest(&self) -> Result<Db> {
        self.latest_by(self.core().deadline())
    }

    pub(super) fn latest_by(&self, deadline: Deadline) -> Result<Db> {
        self.shared.freshness.latest(self.core(), deadline)
    }

    pub(super) fn call(&self, request: Request) -> Result<SequenceNumber> {
        self.core().check_process()?;
        forward::call(self.core(), request, self.core().deadline())
    }
}

/// A follower sees only commits in the log.
pub(super) fn logged(durability: Durability) -> Durability {
    if durability == Durability::None { Durability::Buffered } else { durability }
}

impl Shared {
    fn close(&self) {
        if self.core.check_process().is_err() {
            // The thread is the parent's, and so is a lock that was held during the fork.
            let thread = self.thread.try_lock().and_then(|mut thread| thread.take());
            std::mem::forget(thread);
            return;
        }
        // Held until the thread has ended, so that a second close waits for it.
        let mut running = self.thread.lock();
        let Some(thread) = running.take() else { return };
        forward::say_goodbye(&self.core);
        self.core.is_closing.store(true, Ordering::Release);
        election::wake(&self.core);
        if thread.join().is_err() {
            tracing::error!("the thread of a shared database panicked");
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
        if !self.is_reported.load(Ordering::Relaxed)
            && let Some(error) = &*self.core.close_error.lock()
        {
            tracing::error!(%error, "the shared database could not be closed cleanly");
        }
    }
}
