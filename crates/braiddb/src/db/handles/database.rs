//! The database handle.

use super::{
    admin, batch::Batch, multi::tree::MultiTree, snapshot::Snapshot, transaction::handle::Transaction, tree::Tree,
};
use crate::{
    base::{EntryKind, Error, Result, SequenceNumber, TreeId},
    codec::Compression,
    commit::RawBatch,
    db::{
        engine::{
            catalog::{LaterFields, TreeState, catalog_key, check_name},
            edits,
            root::Engine,
            settings::{Settings, TreeOptions},
            stats::Stats,
            tree_codec::TreeCodec,
            tree_options::{LiveOptions, check_options, check_same, kept_codec},
        },
        files::cut_tails,
        maintenance::{
            background, compact, flush, io_throttle, log_archive, log_trim,
            verify::{VerifyOptions, VerifyReport, verify_open},
        },
        open::{
            opening::{self, application_cursor_key},
            wal_retention,
        },
        read::point_read,
        record::version::Version,
        write::{async_commit, conflict_window, pipeline, update_scope::meant, wal_bypass},
    },
    read::LookupKey,
};
use parking_lot::{Mutex, RwLock};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The database closes when the last handle is dropped.
#[derive(Debug)]
pub struct Shared {
    pub engine: Arc<Engine>,
    closed: Mutex<bool>,
    /// Whether another handle owns the database: `crate::shared::SharedDb`.
    is_close_refused: AtomicBool,
}

/// An open database. Clones are cheap and shared across threads.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// let db = braiddb::Db::in_memory()?;
/// let albums = db.tree("albums")?;
/// albums.put(b"1", b"Ten")?;
/// assert_eq!(albums.get(b"1")?.as_deref(), Some(&b"Ten"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Db {
    pub(in crate::db) shared: Arc<Shared>,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").field("path", &self.shared.engine.dir).finish_non_exhaustive()
    }
}

/// A tree, as listed by [`Db::trees`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeInfo {
    /// Name.
    pub name: String,
    /// Id; never reused.
    pub id: u32,
    /// True if the tree keeps many values per key.
    pub multi: bool,
    /// Compression set for this tree.
    pub compression: Option<Compression>,
    /// Blob threshold set for this tree, in bytes.
    pub blob_threshold: Option<usize>,
    /// Default time to live of its values.
    pub ttl: Option<Duration>,
    /// Names of its key and value encodings.
    pub codec: Option<TreeCodec>,
}

impl Db {
    /// Opens or creates a database for writing.
    pub(in crate::db) fn open_writable(settings: Settings, path: &Path) -> Result<Db> {
        let (engine, new_retention) = opening::open(settings, path)?;
        engine.start_workers()?;
        let db = Db { shared: Arc::new(Shared::new(engine)) };
        flush::shorten_log_on_full_disk(db.engine())?;
        if let Some(limit) = new_retention {
            wal_retention::remember_retention(db.engine(), limit)?;
        }
        Ok(db)
    }

    /// Starts no worker threads.
    pub(in crate::db) fn of_core(engine: Engine) -> Db {
        let engine = Arc::new(engine);
        engine.enter_common();
        Db { shared: Arc::new(Shared::new(engine)) }
    }

    pub(in crate::db) fn engine(&self) -> &Arc<Engine> {
        &self.shared.engine
    }

    /// Returns a tree, whatever its options. Creates it with default options if absent.
    pub fn tree(&self, name: &str) -> Result<Tree> {
        Tree::new(self, self.open_or_create(name, false, Some(TreeOptions::default()))?)
    }

    /// Returns a tree, created with `options` if absent. Fails with `InvalidArgument` if an
    /// existing tree has other options; [`Tree::set_options`] changes them.
    pub fn tree_with(&self, name: &str, options: TreeOptions) -> Result<Tree> {
        let tree = self.open_or_create(name, false, Some(options))?;
        check_same(&tree, options)?;
        Tree::new(self, tree)
    }

    /// Returns a tree, or `NotFound`.
    pub fn open_tree(&self, name: &str) -> Result<Tree> {
        Tree::new(self, self.open_or_create(name, false, None)?)
    }

    /// Returns a multi-tree, which keeps many values per key. Creates it if absent.
    pub fn multi_tree(&self, name: &str) -> Result<MultiTree> {
        MultiTree::new(self, self.open_or_create(name, true, Some(TreeOptions::default()))?)
    }

    /// Returns a multi-tree, or `NotFound`.
    pub fn open_multi_tree(&self, name: &str) -> Result<MultiTree> {
        MultiTree::new(self, self.open_or_create(name, true, None)?)
    }

    fn open_or_create(&self, name: &str, multi: bool, create: Option<TreeOptions>) -> Result<Arc<TreeState>> {
        check_name(name)?;
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        let as_asked = |tree: Arc<TreeState>| {
            if tree.multi == multi {
                return Ok(tree);
            }
            let (is, asked) = if multi { ("one value", "many values were") } else { ("many values", "one value was") };
            Err(Error::InvalidArgument(format!("the tree {name:?} keeps {is} to a key, but {asked} asked for")))
        };
        if let Some(tree) = engine.catalog.find(name) {
            return as_asked(tree);
        }
        let Some(options) = create else { return Err(Error::NotFound(format!("there is no tree {name:?}"))) };
        check_options(name, &options)?;
        kept_codec(name, None, options.codec)?;
        // Wait before locking the catalog, or waiters on that lock would time out one after
        // another.
        drop(conflict_window::await_no_exclusive(engine)?);
        let mut last_id = engine.catalog.next_id.lock();
        if let Some(tree) = engine.catalog.find(name) {
            return as_asked(tree);
        }
        let next_id = last_id.checked_add(1);
        let next_id = next_id.ok_or_else(|| Error::InvalidArgument("all tree numbers are used up".to_owned()))?;
        let tree = TreeState {
            id: TreeId(*last_id),
            home: engine.log.incarnation,
            name: RwLock::new(name.to_owned()),
            multi,
            options: LiveOptions::new(options),
            later: LaterFields::default(),
            dropped: AtomicBool::new(false),
        };
        let mut batch = RawBatch::default();
        batch.push(EntryKind::Value, &[&catalog_key(b'n', name.as_bytes())], &tree.encode());
        batch.push(EntryKind::Value, &[&catalog_key(b'i', b"")], &next_id.to_le_bytes());
        // A later durable commit makes this one durable: the log has no holes.
        meant(|| pipeline::commit(engine, batch.prepare()?, engine.settings.durability.of_catalog()))?;
        *last_id = next_id;
        if let Some(compression) = options.compression {
            engine.catalog.compressions.write().insert(tree.id, compression);
        }
        let tree = Arc::new(tree);
        engine.catalog.by_name.write().insert(name.to_owned(), Arc::clone(&tree));
        Ok(tree)
    }

    /// Lists all trees by name.
    pub fn trees(&self) -> Result<Vec<TreeInfo>> {
        self.engine().health.check_open()?;
        let trees = self.engine().catalog.by_name.read();
        Ok(trees.iter().map(|(name, tree)| info_of(name, tree)).collect())
    }

    /// Describes a tree of either kind. Returns `None` if no tree has the name.
    pub fn tree_info(&self, name: &str) -> Result<Option<TreeInfo>> {
        self.engine().health.check_open()?;
        Ok(self.engine().catalog.find(name).map(|tree| info_of(name, &tree)))
    }

    /// Returns an empty batch. [`Batch::commit`] commits it.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let (albums, by_title) = (db.tree("albums")?, db.multi_tree("by title")?);
    /// let mut batch = db.batch();
    /// batch.put(&albums, "1", "Ten").add(&by_title, "Ten", "1");
    /// batch.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn batch(&self) -> Batch {
        Batch::new(self)
    }

    /// Begins an optimistic, serializable [`Transaction`].
    pub fn begin(&self) -> Result<Transaction> {
        Transaction::optimistic(self)
    }

    /// Begins a transaction that never conflicts: all other commits wait for its end.
    ///
    /// Waiting commits, and this call, fail with [`Error::ExclusiveOpen`] after
    /// [`crate::Builder::exclusive_wait_max`] (default: 30 seconds). So do commits of its own
    /// thread outside it, with a warning. [`Db::revoke_exclusive`] ends a leaked one.
    pub fn begin_exclusive(&self) -> Result<Transaction> {
        Transaction::exclusive(self)
    }

    /// Returns the version of the records written by `commit`.
    pub fn version_of(&self, commit: SequenceNumber) -> Version {
        self.engine().commits.versions.of(commit)
    }

    /// Returns a snapshot of the latest commit.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self)
    }

    /// Returns the latest application cursor that survived: see [`Batch::set_application_cursor`].
    pub fn application_cursor(&self) -> Result<Option<Vec<u8>>> {
        point_read::get(self.engine(), LookupKey::of(&application_cursor_key()), None, |value| value.into_owned())
    }

    /// Makes all earlier commits durable. Flushes those with
    /// [`Durability::None`](crate::Durability::None).
    pub fn sync(&self) -> Result<()> {
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        engine.health.check_writable()?;
        if wal_bypass::has_unlogged(engine) {
            flush::all(engine)?;
        }
        match &engine.log.wal {
            Some(wal) => pipeline::sync_to(engine, wal.end_lsn()),
            None => Ok(()),
        }
    }

    /// Flushes memtables into runs.
    pub fn flush(&self) -> Result<()> {
        let _inside = self.engine().health.enter()?;
        flush::all(self.engine())
    }

    /// Compacts everything into as few runs as possible, keeping only live data and pinned
    /// versions.
    pub fn compact(&self) -> Result<()> {
        let _inside = self.engine().health.enter()?;
        compact::all(self.engine())
    }

    /// Returns counters and sizes.
    pub fn stats(&self) -> Stats {
        admin::stats::collect(self.engine())
    }

    /// Returns the reason if the database takes no requests any more: `Closed`, `Superseded`, or
    /// `ReadOnly` after a failure that ended its writes. Reads memory only.
    pub fn health(&self) -> Result<()> {
        let health = &self.engine().health;
        health.check_open()?;
        if health.has_failed() { health.check_writable() } else { Ok(()) }
    }

    /// Checks every checksum of every file. Reports each damaged unit once and continues, without
    /// an error. [`Db::verify_path`] checks a database that does not open.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(&VerifyOptions::default())
    }

    /// Runs [`Db::verify`] with options for threads and progress.
    pub fn verify_with(&self, options: &VerifyOptions) -> Result<VerifyReport> {
        verify_open(self.engine(), options)
    }

    /// Makes buffered commits durable, stops background work and releases the lock. Other handles
    /// then fail with `Closed`. A background failure during the close returns [`Error::ReadOnly`].
    ///
    /// Fails with `InvalidArgument` for the database of [`crate::shared::SharedDb::state`].
    pub fn close(self) -> Result<()> {
        if self.shared.refuses_close() {
            let detail = "the database is open for several processes: close its SharedDb instead";
            return Err(Error::InvalidArgument(detail.to_owned()));
        }
        self.shared.close()
    }
}

fn info_of(name: &str, tree: &TreeState) -> TreeInfo {
    let TreeOptions { compression, blob_threshold, ttl, codec } = tree.options.get();
    TreeInfo { name: name.to_owned(), id: tree.id.0, multi: tree.multi, compression, blob_threshold, ttl, codec }
}

impl Shared {
    fn new(engine: Arc<Engine>) -> Shared {
        Shared { engine, closed: Mutex::new(false), is_close_refused: AtomicBool::new(false) }
    }

    pub fn refuse_close(&self) {
        self.is_close_refused.store(true, Ordering::Relaxed);
    }

    pub fn refuses_close(&self) -> bool {
        self.is_close_refused.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) -> Result<()> {
        let mut closed = match self.closed.try_lock() {
            Some(closed) => closed,
            // Another thread's close waits for the turn in which a waker calls this.
            None if self.engine.log.sync_waits.is_in_turn() => return Ok(()),
            None => self.closed.lock(),
        };
        if std::mem::replace(&mut *closed, true) {
            return Ok(());
        }
        let (done, waiters) = self.close_engine();
        drop(closed);
        async_commit::complete_ended(&self.engine, waiters);
        done
    }

    /// Also returns the asynchronous commits to complete.
    fn close_engine(&self) -> (Result<()>, async_commit::Ended) {
        let engine = &self.engine;
        io_throttle::release(engine);
        let is_writable = !engine.health.has_failed() && !engine.settings.read_only;
        // Earlier calls reported an earlier failure.
        let had_failed = engine.health.failure().is_some();
        // Flush commits without WAL, or report their loss. Calls are still accepted until below.
        let flushed = if wal_bypass::has_unlogged(engine) { flush::all(engine) } else { Ok(()) };
        if is_writable && let Err(e) = log_trim::trim_log(engine) {
            tracing::warn!(error = %e, "the log could not be made shorter");
        }
        if is_writable && let Err(e) = edits::note_time(engine) {
            tracing::debug!(error = %e, "that a clock was set could not be noted");
        }
        if is_writable && let Err(e) = log_archive::at_close(engine) {
            tracing::warn!(error = %e, "the end of the log could not be archived; the next open sees to it");
        }
        // The log cannot grow from here on, so the sync misses nothing.
        background::refuse_calls(engine);
        let synced = match &engine.log.wal {
            // The end mark lets the next open detect missing commits.
            Some(wal) if is_writable => match wal_bypass::note_end(engine, wal) {
                Ok(()) => {
                    // A log tail that this open copied and logged stays until a later clean close.
                    if engine.counters.log_tail_note.lock().is_none() {
                        cut_tails::remove(&*engine.storage.table.vfs, &engine.dir);
                    }
                    Ok(())
                }
                // The log was synced before; only the mark found no space.
                Err(e) if e.is_disk_full() => Ok(()),
                done => done.inspect_err(|_| pipeline::leave_marker(engine)),
            },
            _ => Ok(()),
        };
        let waiters = async_commit::end(engine);
        engine.stop();
        if let Some(wal) = engine.log.wal.as_ref().filter(|_| is_writable) {
            // The next open cannot use preallocated space.
            wal.trim_spares();
        }
        let failed = engine.health.failure().filter(|_| !had_failed);
        (synced.and(flushed).and(failed.map_or(Ok(()), |reason| Err(Error::ReadOnly { reason }))), waiters)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(e) = self.close() {
            tracing::error!(error = %e, "the database could not be closed cleanly");
        }
    }
}
