//! Commits that a process prepares and another one applies: see `crate::shared`.
//!
//! The preparing process reads a follower's state. The applying process has no snapshot of that
//! state, and its merges may have dropped later tombstones. So only the conflict window can
//! validate the reads, and a transaction that is older than the window gets a conflict. An
//! [`OpenWindow`] keeps the window open.

use super::{forwarded_streams::ForwardedStream, handle::Transaction};
use crate::{
    base::{Content, EntryKind, Error, Result, SequenceNumber, TreeId, split_internal_key},
    codec::Operands,
    commit::{Operation, RawBatch, decode_group},
    db::{
        engine::{
            catalog::{SESSION_TAG, TreeState},
            key::check_key,
            root::Engine,
            settings::Durability,
        },
        handles::{
            batch::{Batch, timed},
            database::Db,
            multi::tree::split,
            snapshot::Snapshot,
            streams::writer::commit_streams,
            tree::Tree,
        },
        write::{
            backpressure,
            conflict_window::{ConflictWindowGuard, Exclusive, waiting_until},
            pending_blobs::PendingBlobs,
            pipeline::{self, CommitCondition},
        },
    },
    txn::{Check, ReadSet},
};
use std::sync::Arc;

/// Writes, and the reads that they depend on.
#[derive(Debug, Default)]
pub struct ForwardedCommit {
    /// The last commit that the reads saw. Meaningless without reads.
    pub snapshot: SequenceNumber,
    pub reads: ReadSet,
    /// Prepared batches, one after the other, as in the log.
    pub batches: Vec<u8>,
    /// Needs the exclusive right instead of a check of its reads, which it has none of.
    pub is_exclusive: bool,
}

/// The right to commit while all other commits wait, for a transaction of another process.
#[derive(Debug)]
pub struct ExclusiveRight(Exclusive);

/// The right and the streams that the owner holds until a member's transaction commits.
#[derive(Debug, Default)]
pub struct Kept {
    pub right: Option<ExclusiveRight>,
    pub streams: Vec<ForwardedStream>,
}

/// Keeps the conflict window of a database open.
#[derive(Debug)]
pub struct OpenWindow(#[expect(dead_code, reason = "dropped with the window")] ConflictWindowGuard);

impl Transaction {
    /// Takes the transaction apart. `None` if it writes nothing.
    pub(crate) fn into_forwarded(self) -> Result<Option<ForwardedCommit>> {
        self.check_complete()?;
        let is_exclusive = self.reads().is_none();
        let Transaction { hold, reads, writes, .. } = self;
        let writes = writes.into_inner();
        if writes.is_empty() {
            return Ok(None);
        }
        hold.check()?;
        let mut reads = reads.into_inner();
        reads.seal();
        let batches = writes.into_batch().prepare()?.bytes().to_vec();
        Ok(Some(ForwardedCommit { snapshot: hold.sequence(), reads, batches, is_exclusive }))
    }
}

impl Batch {
    /// Takes the batch apart.
    pub(crate) fn into_forwarded(self) -> Result<ForwardedCommit> {
        Ok(ForwardedCommit { batches: self.into_operations()?, ..ForwardedCommit::default() })
    }

    pub(crate) fn database(&self) -> &Db {
        self.db()
    }
}

impl Tree {
    pub(crate) fn id(&self) -> TreeId {
        self.state().id
    }
}

impl Snapshot {
    pub(crate) fn database(&self) -> &Db {
        self.db()
    }
}

impl Db {
    pub(crate) fn open_window(&self) -> OpenWindow {
        OpenWindow(ConflictWindowGuard::new(self.engine()))
    }

    /// Returns whether a commit need not wait for room in memory.
    pub(crate) fn has_room(&self) -> bool {
        backpressure::has_room(self.engine())
    }

    /// Waits until a commit has room in memory, at most until `ends_ns` or the end of the caller.
    /// Returns false if it has none by then.
    pub(crate) fn await_room(&self, ends_ns: u64, is_ending: impl Fn() -> bool) -> Result<bool> {
        backpressure::await_room(self.engine(), ends_ns, is_ending)
    }

    /// Begins a transaction whose exclusive right another process has.
    pub(crate) fn begin_with_right_elsewhere(&self) -> Result<Transaction> {
        Transaction::with_right_elsewhere(self)
    }

    /// Waits for the exclusive right, as [`Db::begin_exclusive`] does.
    pub(crate) fn exclusive_right(&self) -> Result<ExclusiveRight> {
        Exclusive::new(self.engine()).map(ExclusiveRight)
    }

    /// Runs `work`, whose waits for exclusive transactions end at `ends_ns`.
    pub(crate) fn waiting_until<R>(&self, ends_ns: u64, work: impl FnOnce(&Db) -> R) -> R {
        waiting_until(ends_ns, || work(self))
    }

    /// Refuses [`Db::close`] from now on.
    pub(crate) fn refuse_close(&self) {
        self.shared.refuse_close();
    }

    /// Closes the database despite [`Db::refuse_close`].
    pub(crate) fn close_refused(&self) -> Result<()> {
        self.shared.close()
    }

    /// The database of a transaction.
    pub(crate) fn of_transaction(transaction: &Transaction) -> &Db {
        transaction.db()
    }

    pub(crate) fn is_same(&self, other: &Db) -> bool {
        Arc::ptr_eq(self.engine(), other.engine())
    }

    /// Returns the last visible commit that the log has. A full disk also makes the numbers visible
    /// that the log rejected, and no follower ever reads these.
    pub(crate) fn logged(&self) -> SequenceNumber {
        let engine = self.engine();
        pipeline::before_refused(engine, engine.readers.snapshots.visible())
    }

    /// Commits the writes if no later commit has changed the reads, or with an exclusive right. Also
    /// puts `record`, a session and its record, in the same commit.
    ///
    /// Fails with `InvalidArgument` if the bytes are not batches of user writes.
    pub(crate) fn commit_forwarded(
        &self,
        forwarded: ForwardedCommit,
        record: Option<(&[u8], &[u8])>,
        durability: Durability,
        kept: Kept,
    ) -> Result<SequenceNumber> {
        let Kept { right, streams } = kept;
        let mut checked = Checked::new(self.engine(), &streams);
        if let Some((session, record)) = record {
            // Before the keys of all trees, so the batch is in order unless it deletes ranges.
            checked.raw.push(EntryKind::Value, &[&TreeId::CATALOG.first_key(), &[SESSION_TAG], session], record);
        }
        let decoded = decode_group(&forwarded.batches, |_, operation| checked.add(operation));
        let Checked { raw, mut trees, pending, error, .. } = checked;
        if let Some(e) = error.or_else(|| decoded.is_none().then(|| malformed("the batches end early"))) {
            return Err(e);
        }
        trees.sort_unstable_by_key(|tree| tree.id.0);
        if forwarded.is_exclusive {
            return self.commit_with_right(right, raw, &trees, durability, &pending);
        }
        let condition = match forwarded.reads.is_empty() {
            true => CommitCondition::None,
            false => CommitCondition::Unchanged(Box::new(Check::new(forwarded.reads, forwarded.snapshot, None))),
        };
        let committed =
            timed(self.engine(), |timer| commit_streams(self, timer, raw, &trees, durability, condition, &pending));
        if committed.as_ref().is_err_and(Error::is_conflict) {
            self.engine().counters.note_conflict();
        }
        committed
    }

    fn commit_with_right(
        &self,
        right: Option<ExclusiveRight>,
        raw: RawBatch,
        trees: &[Arc<TreeState>],
        durability: Durability,
        pending: &[Arc<PendingBlobs>],
    ) -> Result<SequenceNumber> {
        let right = right.ok_or_else(|| Error::conflict("the owner in which it was the only writer has ended"))?;
        // Once applied, the only possible error is an unknown outcome, so keep the database open.
        let _inside = self.engine().health.enter_past_closing()?;
        let condition = CommitCondition::Exclusive(right.0.ticket());
        let sequence = timed(self.engine(), |timer| {
            pending.iter().try_for_each(|stream| stream.make_ready(timer, durability))?;
            commit_streams(self, timer, raw, trees, durability.of_catalog(), condition, pending)
        })?;
        // Let other commits proceed during the sync.
        drop(right);
        if let Some(wal) = self.engine().log.wal.as_ref().filter(|_| durability == Durability::Sync) {
            pipeline::sync_to(self.engine(), wal.end_lsn())?;
        }
        Ok(sequence)
    }
}

/// Operations of another process, checked as those of a caller are.
struct Checked<'a> {
    engine: &'a Engine,
    raw: RawBatch,
    trees: Vec<Arc<TreeState>>,
    streams: &'a [ForwardedStream],
    /// Of the streams that the commit refers to.
    pending: Vec<Arc<PendingBlobs>>,
    error: Option<Error>,
}

impl<'a> Checked<'a> {
    fn new(engine: &'a Engine, streams: &'a [ForwardedStream]) -> Checked<'a> {
        Checked { engine, raw: RawBatch::default(), trees: Vec::new(), streams, pending: Vec::new(), error: None }
    }

    fn add(&mut self, operation: Operation<'_>) {
        if self.error.is_none() && operation.kind == EntryKind::RangeDelete {
            self.error = self.add_range(operation.key, operation.value).err();
        } else if self.error.is_none() {
            self.error = self.check(operation).err();
            self.raw.push(operation.kind, &[operation.key], operation.value);
        }
    }

    /// Adds the deletion of a range. A transaction joins those of neighbouring trees.
    fn add_range(&mut self, start: &[u8], end: &[u8]) -> Result<()> {
        let Some((mut id, user_key)) = split_internal_key(start) else { return Err(malformed("a key without a tree")) };
        if !self.touch(id)? {
            check_key(user_key)?;
        }
        let mut start = start.to_vec();
        while let Some(next) = id.end_key().filter(|next| end > next.as_slice()) {
            self.raw.push(EntryKind::RangeDelete, &[&start], &next);
            id = TreeId(id.0 + 1);
            self.touch(id)?;
            start = next.to_vec();
        }
        if start.as_slice() >= end {
            return Err(malformed("a range that ends before it begins"));
        }
        self.raw.push(EntryKind::RangeDelete, &[&start], end);
        Ok(())
    }

    fn check(&mut self, Operation { kind, key, value }: Operation<'_>) -> Result<()> {
        let Some((id, user_key)) = split_internal_key(key) else { return Err(malformed("a key without a tree")) };
        if self.touch(id)? {
            return check_pair(user_key, kind, value);
        }
        check_key(user_key)?;
        let is_sound = match kind {
            EntryKind::Value | EntryKind::Tombstone => true,
            EntryKind::Expiring => match Content::of(kind, value) {
                Some(content) if content.kind == EntryKind::Value => true,
                Some(content) => return self.use_stream(key, content.kind, content.value),
                None => false,
            },
            EntryKind::Merge => return self.check_operands(value),
            EntryKind::RangeDelete => false,
            EntryKind::BlobRef | EntryKind::Stream => return self.use_stream(key, kind, value),
        };
        if is_sound { Ok(()) } else { Err(malformed("an entry that no call makes")) }
    }

    /// Accepts an entry that the preparing process got for a stream.
    fn use_stream(&mut self, key: &[u8], kind: EntryKind, value: &[u8]) -> Result<()> {
        let found = self.streams.iter().find_map(|stream| stream.pending_of(key, kind, value));
        let (len, pending) = found.ok_or_else(|| Error::conflict("the owner that has the stream has ended"))?;
        self.raw.count_placed(len.saturating_sub(value.len() as u64));
        self.pending.push(Arc::clone(pending));
        Ok(())
    }

    fn check_operands(&self, value: &[u8]) -> Result<()> {
        let operands = Operands::decode(value).ok_or_else(|| malformed("operands that no call makes"))?;
        operands.iter().try_for_each(|operand| self.engine.functions.check(operand.function, operand.bytes))
    }

    /// Returns whether the tree is a multi-tree.
    fn touch(&mut self, id: TreeId) -> Result<bool> {
        if let Some(tree) = self.trees.iter().find(|tree| tree.id == id) {
            return Ok(tree.multi);
        }
        let found = self.engine.catalog.by_name.read().values().find(|tree| tree.id == id).cloned();
        let tree = found.ok_or_else(|| Error::NotFound(format!("the tree number {} was dropped", id.0)))?;
        let multi = tree.multi;
        self.trees.push(tree);
        Ok(multi)
    }
}

/// Checks an entry of a multi-tree, whose decoder checks the lengths of the key and the value.
fn check_pair(pair: &[u8], kind: EntryKind, value: &[u8]) -> Result<()> {
    let is_put = matches!(kind, EntryKind::Value | EntryKind::Tombstone);
    if is_put && value.is_empty() && split(pair).is_some() {
        return Ok(());
    }
    Err(malformed("an entry that no call makes in a multi-tree"))
}

fn malformed(detail: &str) -> Error {
    Error::InvalidArgument(format!("a forwarded commit is malformed: {detail}"))
}
