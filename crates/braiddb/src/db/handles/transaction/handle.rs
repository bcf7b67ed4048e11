//! The transaction handle.

use super::iter::TransactionIter;
use crate::{
    base::{EntryKind, Error, ReaderKind, Result, SequenceNumber, TreeId, internal_key, limits},
    codec::Operands,
    commit::MERGED_INTO_EXPIRING,
    db::{
        engine::{
            catalog::{TreeState, catalog_key},
            key::{KeyBuf, TREE_ID_LEN},
            read_hold::Hold,
            settings::Durability,
            slow_commits::{report::SlowCause, timer::CommitTimer},
        },
        handles::{
            batch::{check_cursor, timed},
            conditional,
            counting::count,
            database::Db,
            expiry::{self, check_can_merge},
            iter::{prefix_end, user_bounds},
            key_range::{KeyRange, check_bounds},
            merge::MergeFunctionHandle,
            multi::tree::MultiTree,
            snapshot::Snapshot,
            streams::writer::commit_streams,
            tree::Tree,
        },
        read::point_read,
        record::{bytes::Value, version::Version},
        write::{
            conflict_window::{ConflictWindowGuard, Exclusive},
            pending_blobs::PendingBlobs,
            pipeline::{self, CommitCondition},
            update_scope::meant,
        },
    },
    read::LookupKey,
    txn::{Check, Overlay, ReadSet, Savepoint, Side, Written},
};
use std::{
    cell::{Cell, RefCell},
    ops::Bound::Included,
    sync::Arc,
};

#[derive(Debug)]
enum Isolation {
    Optimistic {
        _window_guard: ConflictWindowGuard,
    },
    Exclusive {
        right: Exclusive,
    },
    /// Another process has the right, and commits: see `forwarded.rs`.
    RightElsewhere,
}

/// Reads and writes that commit atomically and in isolation.
///
/// Reads see the snapshot of the begin plus the transaction's own writes. Others see these only
/// after the commit. Dropping the transaction discards them.
///
/// - [`Db::begin`] is optimistic and **serializable**. It never waits. The commit checks all keys
///   and ranges read, absent keys included. If another commit changed any, it fails with an error
///   for which [`Error::is_conflict`] holds; [`Db::update`] retries. Blind writes and read-only
///   transactions never conflict.
/// - [`Db::begin_exclusive`] never conflicts: other commits wait, for a bounded time.
///
/// A transaction may move to another thread. A write outside it is a separate commit, with which it
/// may conflict; the closure of [`Db::update`] refuses such writes.
///
/// A transaction pins old versions, as a snapshot does. After [`crate::Builder::reader_age_max`],
/// if set, reads and the commit of writes fail with [`Error::ReaderExpired`]. Recorded reads and
/// writes may use half of the database's memory, then calls fail with
/// [`Error::TransactionTooLarge`].
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// let db = braiddb::Db::in_memory()?;
/// let accounts = db.tree("accounts")?;
/// accounts.put(b"ann", b"70")?;
/// let tx = db.begin()?;
/// let balance = tx.get(&accounts, b"ann")?;
/// assert_eq!(balance.as_deref(), Some(&b"70"[..]));
/// tx.put(&accounts, b"ann", b"60")?;
/// tx.put(&accounts, b"bob", b"10")?;
/// tx.commit()?;
/// assert_eq!(accounts.get(b"bob")?.as_deref(), Some(&b"10"[..]));
/// # Ok(())
/// # }
/// ```
pub struct Transaction {
    db: Db,
    pub(super) hold: Hold,
    isolation: Isolation,
    pub(super) reads: RefCell<ReadSet>,
    pub(super) writes: RefCell<Overlay>,
    /// Sorted by id.
    trees: RefCell<Vec<Arc<TreeState>>>,
    /// First and last pairs read before any write: trees, sides and internal keys.
    pub(super) ends: RefCell<Vec<(TreeId, Side, Vec<u8>)>>,
    pub(in crate::db) streams: RefCell<PendingBlobs>,
    bytes_max: usize,
    /// Set if a read or write was not recorded: then no commit is possible.
    failed: Cell<bool>,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("sequence", &self.sequence())
            .field("path", &self.db.engine().dir)
            .finish_non_exhaustive()
    }
}

impl Transaction {
    pub(in crate::db) fn optimistic(db: &Db) -> Result<Transaction> {
        db.engine().health.check_open()?;
        let window_guard = ConflictWindowGuard::new(db.engine());
        Ok(Transaction::new(db, Isolation::Optimistic { _window_guard: window_guard }))
    }

    pub(in crate::db) fn exclusive(db: &Db) -> Result<Transaction> {
        let right = Exclusive::new(db.engine())?;
        Ok(Transaction::new(db, Isolation::Exclusive { right }))
    }

    pub(super) fn with_right_elsewhere(db: &Db) -> Result<Transaction> {
        db.engine().health.check_open()?;
        Ok(Transaction::new(db, Isolation::RightElsewhere))
    }

    fn new(db: &Db, isolation: Isolation) -> Transaction {
        Transaction {
            db: db.clone(),
            hold: Hold::now(db.engine(), ReaderKind::Transaction),
            isolation,
            reads: RefCell::default(),
            writes: RefCell::default(),
            trees: RefCell::default(),
            ends: RefCell::default(),
            streams: RefCell::new(PendingBlobs::new(db.engine())),
            bytes_max: db.engine().settings.transaction_bytes_max(),
            failed: Cell::new(false),
        }
    }

    /// Returns the sequence number of its snapshot.
    pub fn sequence(&self) -> SequenceNumber {
        self.hold.sequence()
    }

    /// Returns its snapshot, without its own writes. The commit does not check reads through it.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::held(&self.db, self.hold.clone())
    }

    pub(in crate::db) fn db(&self) -> &Db {
        &self.db
    }

    pub(in crate::db) fn hold(&self) -> &Hold {
        &self.hold
    }

    pub(in crate::db) fn reads(&self) -> Option<&RefCell<ReadSet>> {
        matches!(self.isolation, Isolation::Optimistic { .. }).then_some(&self.reads)
    }

    pub(in crate::db) fn writes(&self) -> &RefCell<Overlay> {
        &self.writes
    }

    #[inline]
    pub(in crate::db) fn check_tree(&self, db: &Db, tree: &TreeState) -> Result<()> {
        if !Arc::ptr_eq(db.engine(), self.db.engine()) {
            return Err(tree.another_database());
        }
        tree.check()
    }

    /// Fails above the memory limit, and forbids a commit: unrecorded reads cannot be checked.
    #[inline]
    pub(in crate::db) fn check_size(&self) -> Result<()> {
        let bytes = self.reads.borrow().size_bytes() + self.writes.borrow().size_bytes();
        if bytes > self.bytes_max { self.refuse_size(bytes) } else { Ok(()) }
    }

    #[cold]
    fn refuse_size(&self, bytes: usize) -> Result<()> {
        self.failed.set(true);
        Err(Error::TransactionTooLarge { bytes, bytes_max: self.bytes_max })
    }

    /// Returns the own write of `key`, or records a read of `key`.
    #[inline]
    fn own(&self, key: &[u8]) -> Result<Option<Option<Vec<u8>>>> {
        let written = {
            let writes = self.writes.borrow();
            if writes.is_empty() { None } else { writes.get(key).cloned() }
        };
        if let Some(written) = written {
            self.hold.check()?;
            return self.resolve(key, written).map(Some);
        }
        self.note_key(key)?;
        Ok(None)
    }

    pub(in crate::db) fn resolve(&self, key: &[u8], written: Written) -> Result<Option<Vec<u8>>> {
        match written {
            Written::Value(value) => Ok(Some(value)),
            Written::Gone => Ok(None),
            Written::Placed(kind, value, _) => self.read_placed(kind, &value),
            Written::Operands(operands) => {
                let engine = self.db.engine();
                let Some(operands) = Operands::decode(&operands) else { return Ok(None) };
                let user_key = &key[TREE_ID_LEN..];
                if let Some(value) = engine.functions.finish(user_key, &operands) {
                    return value.map(Some).map_err(|e| engine.catalog.with_tree(e, key));
                }
                self.note_key(key)?;
                let base = point_read::get(engine, LookupKey::of(key), Some(&self.hold), |value| value.into_owned())?;
                let applied = engine.functions.apply(user_key, base.as_deref(), &operands);
                applied.map(Some).map_err(|e| engine.catalog.with_tree(e, key))
            }
        }
    }

    #[inline]
    pub(in crate::db) fn note_key(&self, key: &[u8]) -> Result<()> {
        if let Some(reads) = self.reads() {
            reads.borrow_mut().add_key(key);
            self.check_size()?;
        }
        Ok(())
    }

    /// Returns the value of `key`.
    pub fn get(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.check_tree(tree.db(), tree.state())?;
        let key = KeyBuf::of(tree.state(), key.as_ref())?;
        match self.own(&key)? {
            Some(value) => Ok(value.map(Value::new)),
            None => point_read::get(self.db.engine(), LookupKey::of(&key), Some(&self.hold), Value::of_cow),
        }
    }

    /// Returns the value of `key` and its version. Own writes have none until the commit: see
    /// [`Db::version_of`].
    pub fn get_versioned(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<Option<(Value, Option<Version>)>> {
        self.check_tree(tree.db(), tree.state())?;
        let key = KeyBuf::of(tree.state(), key.as_ref())?;
        match self.own(&key)? {
            Some(value) => Ok(value.map(|value| (Value::new(value), None))),
            None => {
                let stored = conditional::get_versioned(self.db.engine(), &key, Some(&self.hold))?;
                Ok(stored.map(|(value, version)| (value, Some(version))))
            }
        }
    }

    /// Calls `read` with the value of `key`: see [`Tree::get_with`].
    pub fn get_with<R>(&self, tree: &Tree, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.check_tree(tree.db(), tree.state())?;
        let key = KeyBuf::of(tree.state(), key.as_ref())?;
        match self.own(&key)? {
            Some(value) => Ok(value.map(|value| read(&value))),
            None => point_read::get(self.db.engine(), LookupKey::of(&key), Some(&self.hold), |value| read(&value)),
        }
    }

    /// Returns true if `key` has a value.
    pub fn contains(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<bool> {
        self.check_tree(tree.db(), tree.state())?;
        self.contains_key(&KeyBuf::of(tree.state(), key.as_ref())?)
    }

    pub(in crate::db) fn contains_key(&self, key: &[u8]) -> Result<bool> {
        match self.own(key)? {
            Some(value) => Ok(value.is_some()),
            None => point_read::contains(self.db.engine(), key, Some(&self.hold)),
        }
    }

    /// Iterates over pairs with keys in `range`. Includes later own writes ahead of its position.
    ///
    /// Counts as a read of all keys from the start of the range to the last row returned, absent keys
    /// included; after the end of the loop, of the whole range. Backward likewise, from the end.
    pub fn range(&self, tree: &Tree, range: impl KeyRange) -> TransactionIter<'_> {
        let (start, end) = user_bounds(tree.state().id, &range);
        TransactionIter::new(self, tree.db(), tree.state(), start, end)
    }

    /// Iterates over pairs with keys that begin with `prefix`.
    pub fn prefix(&self, tree: &Tree, prefix: impl AsRef<[u8]>) -> TransactionIter<'_> {
        let mut start = Vec::new();
        internal_key(tree.state().id, prefix.as_ref(), &mut start);
        let end = prefix_end(start.clone());
        TransactionIter::new(self, tree.db(), tree.state(), start, end)
    }

    /// Iterates over all pairs.
    pub fn iter(&self, tree: &Tree) -> TransactionIter<'_> {
        self.prefix(tree, b"")
    }

    pub(in crate::db) fn count_between(&self, tree: &Arc<TreeState>, start: &[u8], end: &[u8]) -> Result<u64> {
        self.hold.check()?;
        if start >= end {
            return Ok(0);
        }
        if let Some(reads) = self.reads() {
            let mut reads = reads.borrow_mut();
            let slot = reads.begin_range(start);
            reads.grow_end(slot, end, false);
            reads.end_range(slot);
        }
        self.check_size()?;
        let writes = self.writes.borrow();
        let (mut keys, mut from) = (0, start);
        for (deleted, to) in writes.deleted().meeting(start, end) {
            if from < deleted {
                keys += count(&self.db, tree, from, deleted, Some(&self.hold))?;
            }
            from = to;
        }
        if from < end {
            keys += count(&self.db, tree, from, end, Some(&self.hold))?;
        }
        for (key, written) in writes.range(Included(start), end) {
            let was_there = writes.deleted().covering(key).is_none()
                && point_read::contains(self.db.engine(), key, Some(&self.hold))?;
            let is_there = *written != Written::Gone && !self.is_expired(written);
            keys = keys + u64::from(is_there) - u64::from(was_there);
        }
        Ok(keys)
    }

    fn pair(&self, tree: &MultiTree, key: &[u8], value: &[u8]) -> Result<KeyBuf> {
        self.check_tree(tree.db(), tree.state())?;
        tree.checked_pair(key, value)
    }

    pub(in crate::db) fn touch(&self, tree: &Arc<TreeState>) {
        let mut trees = self.trees.borrow_mut();
        if let Err(at) = trees.binary_search_by_key(&tree.id.0, |tree| tree.id.0) {
            trees.insert(at, Arc::clone(tree));
        }
    }

    pub(in crate::db) fn write(&self, tree: &Arc<TreeState>, key: &[u8], written: Written) -> Result<()> {
        let len = written.len();
        if len as u64 > limits::MAX_VALUE_LEN {
            let reason = format!("a value has {len} bytes; the most is {}", limits::MAX_VALUE_LEN);
            return Err(Error::InvalidArgument(reason));
        }
        self.make_room(key.len() + len)?;
        self.touch(tree);
        self.writes.borrow_mut().set(key, written);
        Ok(())
    }

    pub(in crate::db) fn make_room(&self, added: usize) -> Result<()> {
        let bytes = self.reads.borrow().size_bytes() + self.writes.borrow().size_bytes() + added;
        if bytes > self.bytes_max { self.refuse_size(bytes) } else { Ok(()) }
    }

    /// Records a merge: see [`Tree::merge`]. This is not a read, so other writes do not conflict.
    pub fn merge(
        &self,
        tree: &Tree,
        key: impl AsRef<[u8]>,
        function: &MergeFunctionHandle,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.check_tree(tree.db(), tree.state())?;
        let key = KeyBuf::of(tree.state(), key.as_ref())?;
        check_can_merge(tree.state())?;
        let operand = function.operand(&self.db, operand.as_ref())?;
        if matches!(self.writes.borrow().get(&key), Some(Written::Placed(EntryKind::Expiring, ..))) {
            return Err(Error::InvalidArgument(MERGED_INTO_EXPIRING.to_owned()));
        }
        self.make_room(key.len() + operand.len())?;
        self.touch(tree.state());
        self.take_into_memory(&key)?;
        if let Some(operands) = Operands::decode(&operand) {
            self.writes.borrow_mut().merge(&key, &operands);
        }
        Ok(())
    }

    /// Sets the value of `key`: see [`Tree::put`].
    pub fn put(&self, tree: &Tree, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.check_tree(tree.db(), tree.state())?;
        let key = KeyBuf::of(tree.state(), key.as_ref())?;
        self.make_room(key.len() + value.as_ref().len())?;
        let expiring = expiry::with_default_expiry(self.db.engine(), tree.state(), value.as_ref());
        let written = match expiring {
            None => Written::Value(value.as_ref().to_vec()),
            Some(entry) => Written::Placed(EntryKind::Expiring, entry, value.as_ref().len() as u64),
        };
        self.write(tree.state(), &key, written)
    }

    /// Sets the value of `key`, and returns the one before. Counts as a read of the key.
    pub fn insert(&self, tree: &Tree, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let before = self.get(tree, key.as_ref())?;
        self.put(tree, key, value)?;
        Ok(before)
    }

    /// Deletes `key`, and returns its value. Counts as a read of the key.
    pub fn remove(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let before = self.get(tree, key.as_ref())?;
        if before.is_some() {
            self.delete(tree, key)?;
        }
        Ok(before)
    }

    /// Deletes `key`, which may be absent.
    pub fn delete(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<()> {
        self.check_tree(tree.db(), tree.state())?;
        self.write(tree.state(), &KeyBuf::of(tree.state(), key.as_ref())?, Written::Gone)
    }

    /// Deletes all keys in `range`.
    pub fn delete_range(&self, tree: &Tree, range: impl KeyRange) -> Result<()> {
        check_bounds(&range)?;
        let (start, end) = user_bounds(tree.state().id, &range);
        // Only the largest tree id, never assigned, has no end.
        self.delete_between(tree.db(), tree.state(), start, end.unwrap_or_default())
    }

    pub(in crate::db) fn delete_between(
        &self,
        db: &Db,
        tree: &Arc<TreeState>,
        start: Vec<u8>,
        end: Vec<u8>,
    ) -> Result<()> {
        self.check_tree(db, tree)?;
        self.check_size()?;
        self.touch(tree);
        self.writes.borrow_mut().delete_range(start, end);
        Ok(())
    }

    pub(in crate::db) fn add_pair(&self, tree: &MultiTree, key: &[u8], value: &[u8]) -> Result<()> {
        let pair = self.pair(tree, key, value)?;
        self.write(tree.state(), &pair, Written::Value(Vec::new()))
    }

    pub(in crate::db) fn delete_pair(&self, tree: &MultiTree, key: &[u8], value: &[u8]) -> Result<()> {
        let pair = self.pair(tree, key, value)?;
        self.write(tree.state(), &pair, Written::Gone)
    }

    /// Sets the application cursor: see [`crate::Batch::set_application_cursor`].
    pub fn set_application_cursor(&self, cursor: impl AsRef<[u8]>) -> Result<()> {
        check_cursor(cursor.as_ref())?;
        self.writes.borrow_mut().set(&catalog_key(b'c', b""), Written::Value(cursor.as_ref().to_vec()));
        Ok(())
    }

    /// Returns a savepoint for [`Transaction::rollback_to`].
    pub fn savepoint(&self) -> Savepoint {
        self.writes.borrow_mut().savepoint()
    }

    /// Undoes all writes since `savepoint` and invalidates later savepoints. Reads since then are
    /// still checked.
    pub fn rollback_to(&self, savepoint: Savepoint) -> Result<()> {
        if self.writes.borrow_mut().rollback_to(savepoint) {
            return Ok(());
        }
        Err(Error::InvalidArgument(
            "the savepoint is another transaction's, or was made after one that was gone back to".to_owned(),
        ))
    }

    /// Returns the number of keys and ranges written.
    pub fn len(&self) -> usize {
        self.writes.borrow().len()
    }

    /// Returns true if it writes nothing.
    pub fn is_empty(&self) -> bool {
        self.writes.borrow().is_empty()
    }

    pub(super) fn check_complete(&self) -> Result<()> {
        if !self.failed.get() {
            return Ok(());
        }
        let bytes = self.reads.borrow().size_bytes() + self.writes.borrow().size_bytes();
        Err(Error::TransactionTooLarge { bytes, bytes_max: self.bytes_max })
    }

    /// Commits atomically with the database's durability. A read-only transaction returns its
    /// snapshot's sequence number.
    ///
    /// After an error nothing is or will be applied, unless [`Error::is_commit_unknown`] holds.
    pub fn commit(self) -> Result<SequenceNumber> {
        let durability = self.db.engine().settings.durability;
        self.commit_with(durability)
    }

    /// Commits with the given durability.
    pub fn commit_with(self, durability: Durability) -> Result<SequenceNumber> {
        let db = self.db.clone();
        timed(db.engine(), |timer| self.commit_timed(durability, timer))
    }

    pub(in crate::db) fn commit_timed(self, durability: Durability, timer: &mut CommitTimer) -> Result<SequenceNumber> {
        if self.ends.borrow().is_empty() {
            return self.commit_writes(durability, timer);
        }
        let (db, tickets) = (self.db.clone(), self.propose_ends());
        let committed = self.commit_writes(durability, timer);
        let since = committed.as_ref().ok().copied();
        tickets.into_iter().for_each(|ticket| db.engine().commits.tree_ends.conclude(ticket, since));
        committed
    }

    fn commit_writes(self, durability: Durability, timer: &mut CommitTimer) -> Result<SequenceNumber> {
        self.check_complete()?;
        let Transaction { db, hold, isolation, reads, writes, trees, streams, .. } = self;
        let writes = writes.into_inner();
        if writes.is_empty() {
            return Ok(hold.sequence());
        }
        hold.check()?;
        let (batch, trees) = (writes.into_batch(), trees.into_inner());
        let streams = [Arc::new(streams.into_inner())];
        match &isolation {
            Isolation::Optimistic { .. } => {
                let reads = reads.into_inner();
                let condition = match reads.is_empty() {
                    true => CommitCondition::None,
                    false => {
                        CommitCondition::Unchanged(Box::new(Check::new(reads, hold.sequence(), Some(*hold.held()))))
                    }
                };
                let committed = meant(|| commit_streams(&db, timer, batch, &trees, durability, condition, &streams));
                if committed.as_ref().is_err_and(Error::is_conflict) {
                    db.engine().counters.note_conflict();
                }
                committed
            }
            Isolation::Exclusive { right } => {
                let engine = db.engine();
                // Once applied, the only possible error is an unknown outcome, so keep the database
                // open.
                let _inside = engine.health.enter_past_closing()?;
                let condition = CommitCondition::Exclusive(right.ticket());
                streams.iter().try_for_each(|stream| stream.make_ready(timer, durability))?;
                let sequence = commit_streams(&db, timer, batch, &trees, durability.of_catalog(), condition, &streams)?;
                // Let other commits proceed during the sync.
                drop(isolation);
                if let Some(wal) = engine.log.wal.as_ref().filter(|_| durability == Durability::Sync) {
                    timer.time(engine, SlowCause::Sync, || pipeline::sync_to(engine, wal.end_lsn()))?;
                }
                Ok(sequence)
            }
            Isolation::RightElsewhere => Err(Error::Closed),
        }
    }

    /// Discards the transaction, as dropping it does.
    pub fn rollback(self) {}
}
