//! Commits that a process prepares and another one applies: see `crate::shared`.
//!
//! The preparing process reads a follower's state. The applying process has no snapshot of that
//! state, and its merges may have dropped later tombstones. So only the conflict window can
//! validate the reads, and a transaction that is older than the window gets a conflict. An
//! [`OpenWindow`] keeps the window open.

use super::handle::Transaction;
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
            batch::{Batch, commit},
            database::Db,
            snapshot::Snapshot,
            tree::Tree,
        },
        write::{
            backpressure,
            conflict_window::ConflictWindowGuard,
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
}

/// Keeps the conflict window of a database open.
#[derive(Debug)]
pub struct OpenWindow(#[expect(dead_code, reason = "dropped with the window")] ConflictWindowGuard);

impl Transaction {
    /// Takes the transaction apart. `None` if it writes nothing.
    pub(crate) fn into_forwarded(self) -> Result<Option<ForwardedCommit>> {
        self.check_complete()?;
        let Transaction { hold, reads, writes, .. } = self;
        let writes = writes.into_inner();
        if writes.is_empty() {
            return Ok(None);
        }
        hold.check()?;
        let mut reads = reads.into_inner();
        reads.seal();
        let batches = writes.into_batch().prepare()?.bytes().to_vec();
        Ok(Some(ForwardedCommit { snapshot: hold.sequence(), reads, batches }))
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

    /// Commits the writes if no later commit has changed the reads. Also puts `record`, a session
    /// and its record, in the same commit.
    ///
    /// Fails with `InvalidArgument` if the bytes are not batches of user writes.
    pub(crate) fn commit_forwarded(
        &self,
        forwarded: ForwardedCommit,
        record: Option<(&[u8], &[u8])>,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        let mut checked = Checked { engine: self.engine(), raw: RawBatch::default(), trees: Vec::new(), error: None };
        if let Some((session, record)) = record {
            // Before the keys of all trees, so the batch is in order unless it deletes ranges.
            checked.raw.push(EntryKind::Value, &[&TreeId::CATALOG.first_key(), &[SESSION_TAG], session], record);
        }
        let decoded = decode_group(&forwarded.batches, |_, operation| checked.add(operation));
        let Checked { raw, mut trees, error, .. } = checked;
        if let Some(e) = error.or_else(|| decoded.is_none().then(|| malformed("the batches end early"))) {
            return Err(e);
        }
        trees.sort_unstable_by_key(|tree| tree.id.0);
        let condition = match forwarded.reads.is_empty() {
            true => CommitCondition::None,
            false => CommitCondition::Unchanged(Box::new(Check::new(forwarded.reads, forwarded.snapshot, None))),
        };
        let committed = commit(self, raw, &trees, durability, condition);
        if committed.as_ref().is_err_and(Error::is_conflict) {
            self.engine().counters.note_conflict();
        }
        committed
    }
}

/// Operations of another process, checked as those of a caller are.
struct Checked<'a> {
    engine: &'a Engine,
    raw: RawBatch,
    trees: Vec<Arc<TreeState>>,
    error: Option<Error>,
}

impl Checked<'_> {
    fn add(&mut self, operation: Operation<'_>) {
        if self.error.is_none() {
            self.error = self.check(operation).err();
            self.raw.push(operation.kind, &[operation.key], operation.value);
        }
    }

    fn check(&mut self, Operation { kind, key, value }: Operation<'_>) -> Result<()> {
        let Some((id, user_key)) = split_internal_key(key) else { return Err(malformed("a key without a tree")) };
        // The decoder checks the length of the pairs of multi-trees.
        if !self.touch(id)? {
            check_key(user_key)?;
        }
        let is_sound = match kind {
            EntryKind::Value | EntryKind::Tombstone => true,
            EntryKind::Expiring => Content::of(kind, value).is_some_and(|content| content.kind == EntryKind::Value),
            EntryKind::Merge => return self.check_operands(value),
            EntryKind::RangeDelete => key < value && is_end_in(id, value),
            EntryKind::BlobRef | EntryKind::Stream => return Err(no_streams()),
        };
        if is_sound { Ok(()) } else { Err(malformed("an entry that no call makes")) }
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

/// Returns whether the end of a deleted range is in the tree or at its end.
fn is_end_in(tree: TreeId, end: &[u8]) -> bool {
    end.starts_with(&tree.first_key()) || tree.end_key().is_some_and(|last| end == last)
}

fn malformed(detail: &str) -> Error {
    Error::InvalidArgument(format!("a forwarded commit is malformed: {detail}"))
}

fn no_streams() -> Error {
    Error::InvalidArgument("a database shared by processes takes no streams: put the value whole".to_owned())
}
