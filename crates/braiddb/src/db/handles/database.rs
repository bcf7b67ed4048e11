//! The handle of a database.

use super::{batch::Batch, multi::tree::MultiTree, snapshot::Snapshot, transaction::handle::Transaction, tree::Tree};
use crate::{
    base::{EntryKind, Error, Result, SequenceNumber, TreeId},
    codec::Compression,
    commit::RawBatch,
    db::{
        engine::{
            catalog::{TreeState, catalog_key, check_name},
            root::Engine,
            settings::{Durability, Settings, TreeOptions},
            stats::Stats,
            tree_options::{LiveOptions, check_options, check_same},
        },
        export::follower::Follower,
        files::cut_tails,
        maintenance::verify::{VerifyOptions, VerifyReport},
        open::opening::application_cursor_key,
        record::version::Version,
        write::update_scope::meant,
    },
    read::LookupKey,
};
use parking_lot::{Mutex, RwLock};
use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// What all handles hold: the database stays open until the last of them goes.
#[derive(Debug)]
pub struct Shared {
    pub engine: Arc<Engine>,
    closed: Mutex<bool>,
}

/// An open database. Cheap to clone; threads share it freely.
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
    /// Without what is inside: see [`Db`](crate::Db).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").field("path", &self.shared.engine.dir).finish_non_exhaustive()
    }
}

/// A tree, as [`Db::trees`] lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeInfo {
    /// Its name.
    pub name: String,
    /// Its number; never reused.
    pub id: u32,
    /// Whether it keeps many values to a key.
    pub multi: bool,
    /// Its own compression, if it has one.
    pub compression: Option<Compression>,
    /// Its own blob threshold, if it has one.
    pub blob_threshold: Option<usize>,
    /// After how long values expire that are put into it, if they do.
    pub ttl: Option<Duration>,
}

impl Db {
    /// Opens or creates a database with these settings.
    pub fn open_with(settings: Settings, path: &Path) -> Result<Db> {
        if settings.read_only {
            let db = Follower::open_with(settings, path, None)?.db();
            db.engine().start_workers()?;
            return Ok(db);
        }
        let (engine, new_retention) = Engine::open(settings, path)?;
        engine.start_workers()?;
        let db = Db { shared: Arc::new(Shared { engine, closed: Mutex::new(false) }) };
        db.engine().shorten_log_on_full_disk()?;
        if let Some(limit) = new_retention {
            db.engine().remember_retention(limit)?;
        }
        Ok(db)
    }

    /// The database that this is the core of. It has no threads.
    pub(in crate::db) fn of_core(engine: Engine) -> Db {
        let engine = Arc::new(engine);
        engine.enter_common();
        Db { shared: Arc::new(Shared { engine, closed: Mutex::new(false) }) }
    }

    pub(in crate::db) fn engine(&self) -> &Arc<Engine> {
        &self.shared.engine
    }

    /// The tree of this name, whatever its options; created with the default ones if there is none.
    pub fn tree(&self, name: &str) -> Result<Tree> {
        Tree::new(self, self.open_or_create(name, false, Some(TreeOptions::default()))?)
    }

    /// The tree of this name with these options, created if there is none. `InvalidArgument` names the options of an existing tree that
    /// differ; [`Tree::set_options`] changes them.
    pub fn tree_with(&self, name: &str, options: TreeOptions) -> Result<Tree> {
        let tree = self.open_or_create(name, false, Some(options))?;
        check_same(&tree, options)?;
        Tree::new(self, tree)
    }

    /// The tree of this name; `NotFound` if there is none.
    pub fn open_tree(&self, name: &str) -> Result<Tree> {
        Tree::new(self, self.open_or_create(name, false, None)?)
    }

    /// The multi-tree of this name, which keeps many values to a key; created if there is none.
    pub fn multi_tree(&self, name: &str) -> Result<MultiTree> {
        MultiTree::new(self, self.open_or_create(name, true, Some(TreeOptions::default()))?)
    }

    /// The multi-tree of this name; `NotFound` if there is none.
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
        // Before the catalog is locked: those that need it wait one by one otherwise.
        drop(engine.await_no_exclusive()?);
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
            dropped: AtomicBool::new(false),
        };
        let mut batch = RawBatch::default();
        batch.push(EntryKind::Value, &[&catalog_key(b'n', name.as_bytes())], &tree.encode());
        batch.push(EntryKind::Value, &[&catalog_key(b'i', b"")], &next_id.to_le_bytes());
        // A later durable commit to the tree makes this one durable too: the log has no holes.
        meant(|| engine.commit(batch.prepare()?, engine.settings.durability.of_catalog()))?;
        *last_id = next_id;
        if let Some(compression) = options.compression {
            engine.catalog.compressions.write().insert(tree.id, compression);
        }
        let tree = Arc::new(tree);
        engine.catalog.by_name.write().insert(name.to_owned(), Arc::clone(&tree));
        Ok(tree)
    }

    /// All trees, by name.
    pub fn trees(&self) -> Result<Vec<TreeInfo>> {
        self.engine().health.check_open()?;
        let trees = self.engine().catalog.by_name.read();
        let info = |(name, tree): (&String, &Arc<TreeState>)| {
            let TreeOptions { compression, blob_threshold, ttl } = tree.options.get();
            TreeInfo { name: name.clone(), id: tree.id.0, multi: tree.multi, compression, blob_threshold, ttl }
        };
        Ok(trees.iter().map(info).collect())
    }

    /// An empty batch, to be filled and given to [`Db::write`].
    pub fn batch(&self) -> Batch {
        Batch::default()
    }

    /// Commits a batch: all of it takes effect, at one sequence number, or none of it.
    pub fn write(&self, batch: Batch, durability: Durability) -> Result<SequenceNumber> {
        batch.commit(self, durability)
    }

    /// Begins a transaction: see [`Transaction`].
    pub fn begin(&self) -> Result<Transaction> {
        Transaction::optimistic(self)
    }

    /// Begins a transaction that cannot conflict: until it ends, all other commits wait, and it waits for another such
    /// transaction to end. The right to commit belongs to the transaction, which may move to another thread.
    ///
    /// A commit waits for [`crate::Builder::exclusive_wait_max`] at most (half a minute by default) and then fails with
    /// [`Error::ExclusiveOpen`], and so does this call. A thread that commits otherwise while it has the transaction waits for
    /// itself, and gets that error; a warning says so at once (`tracing`). [`Db::revoke_exclusive`] ends a transaction that was
    /// lost, as by `std::mem::forget`.
    pub fn begin_exclusive(&self) -> Result<Transaction> {
        Transaction::exclusive(self)
    }

    /// The version of the records that a commit wrote.
    pub fn version_of(&self, commit: SequenceNumber) -> Version {
        self.engine().commits.versions.of(commit)
    }

    /// A snapshot of now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self)
    }

    /// The application cursor that was committed last: see [`Batch::set_application_cursor`]. After an open, that of the last commit
    /// that has survived and had one.
    pub fn application_cursor(&self) -> Result<Option<Vec<u8>>> {
        self.engine().get(LookupKey::of(&application_cursor_key()), None, |value| value.into_owned())
    }

    /// Makes all earlier commits survive a power failure. Those that did not go to the log ([`Durability::None`]) are flushed.
    pub fn sync(&self) -> Result<()> {
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        engine.health.check_writable()?;
        if engine.has_unlogged() {
            engine.flush_all()?;
        }
        match &engine.log.wal {
            Some(wal) => engine.sync_to(wal.end_lsn()),
            None => Ok(()),
        }
    }

    /// Writes everything that is in memory only into runs.
    pub fn flush(&self) -> Result<()> {
        let _inside = self.engine().health.enter()?;
        self.engine().flush_all()
    }

    /// Writes everything into as few runs as can be, without dead entries but those that snapshots hold.
    pub fn compact(&self) -> Result<()> {
        let _inside = self.engine().health.enter()?;
        self.engine().flush_all()?;
        self.engine().compact_all()
    }

    /// What the database has done and holds.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// Reads every file and checks every checksum, and goes on behind damage: each damaged unit is listed once, none is returned as an
    /// error. A database that does not open is verified by [`Db::verify_path`].
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(&VerifyOptions::default())
    }

    /// As [`Db::verify`], with a number of threads, and with progress reported.
    pub fn verify_with(&self, options: &VerifyOptions) -> Result<VerifyReport> {
        self.engine().verify(options)
    }

    /// Closes the database: buffered commits are made durable, background work ends, the lock is given up. Handles that
    /// are left fail with `Closed` from then on. A failure of background work during the close is returned as
    /// [`Error::ReadOnly`] with its reason.
    pub fn close(self) -> Result<()> {
        self.shared.close()
    }
}

impl Shared {
    fn close(&self) -> Result<()> {
        let mut closed = self.closed.lock();
        if std::mem::replace(&mut *closed, true) {
            return Ok(());
        }
        let engine = &self.engine;
        engine.release_limited_work();
        let is_writable = !engine.health.has_failed() && !engine.settings.read_only;
        // Of an earlier failure the calls since have reported the reason.
        let had_failed = engine.health.failure().is_some();
        // Flush commits without WAL, or report that they are lost. Later calls are still accepted, without that promise.
        let flushed = if engine.has_unlogged() { engine.flush_all() } else { Ok(()) };
        if is_writable && let Err(e) = engine.trim_log() {
            tracing::warn!(error = %e, "the log could not be made shorter");
        }
        if is_writable && let Err(e) = engine.note_time() {
            tracing::debug!(error = %e, "that a clock was set could not be noted");
        }
        if is_writable && let Err(e) = engine.archive_at_close() {
            tracing::warn!(error = %e, "the end of the log could not be archived; the next open sees to it");
        }
        // From here on nothing is added that the sync would miss.
        engine.refuse_calls();
        let synced = match &engine.log.wal {
            // The mark at the end lets the next open know that no commit is missing.
            Some(wal) if is_writable => match engine.note_end(wal) {
                Ok(()) => {
                    // A copy that this open made and logged stays until a later clean close.
                    if engine.counters.log_tail_note.lock().is_none() {
                        cut_tails::remove(&*engine.storage.table.vfs, &engine.dir);
                    }
                    Ok(())
                }
                // The log itself was synced before; only the note found no space.
                Err(e) if e.is_disk_full() => Ok(()),
                done => done.inspect_err(|_| engine.leave_marker()),
            },
            _ => Ok(()),
        };
        engine.stop();
        if let Some(wal) = engine.log.wal.as_ref().filter(|_| is_writable) {
            // What was made ahead of need is of no use to the next.
            wal.trim_spares();
        }
        let failed = engine.health.failure().filter(|_| !had_failed);
        synced.and(flushed).and(failed.map_or(Ok(()), |reason| Err(Error::ReadOnly { reason })))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(e) = self.close() {
            tracing::error!(error = %e, "the database could not be closed cleanly");
        }
    }
}
