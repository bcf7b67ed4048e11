//! Commits of a shared database: batches, and transactions that retry on conflict.

use super::{
    core::Core,
    database::{SharedDb, logged},
    forward,
    session::Deadline,
};
use crate::{
    base::{Error, Result, SequenceNumber},
    db::{Batch, Db, Durability, Transaction},
};
use std::{any::Any, cell::RefCell, sync::Arc};

/// Retries without a pause.
const RETRIES_AT_ONCE: u32 = 2;

/// Maximum random pause in microseconds; the bound doubles from 16.
const PAUSE_US_MAX: u64 = 5_000;

std::thread_local! {
    /// The databases whose closures of `update` this thread runs as a member.
    static RUNNING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

struct Running;

impl Running {
    fn begin(core: &Arc<Core>) -> Running {
        RUNNING.with_borrow_mut(|running| running.push(Arc::as_ptr(core).addr()));
        Running
    }

    fn is_in(core: &Arc<Core>) -> bool {
        RUNNING.with_borrow(|running| running.contains(&Arc::as_ptr(core).addr()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(|running| _ = running.pop());
    }
}

impl SharedDb {
    pub(super) fn durability(&self) -> Durability {
        self.core().settings.durability
    }

    /// Returns a state, however old.
    pub(super) fn any_state(&self) -> Result<Db> {
        match (self.core().owner(), self.core().follower()) {
            (None, Some(follower)) => Ok(follower.db()),
            _ => self.state(),
        }
    }

    pub(super) fn commit_batch(&self, batch: Batch, durability: Durability) -> Result<SequenceNumber> {
        let core = self.core();
        core.check_process()?;
        if Running::is_in(core) {
            let detail = "a write inside SharedDb::update that bypasses its transaction: it would commit at once, and again \
                          with each retry; write through the transaction";
            return Err(Error::InvalidArgument(detail.to_owned()));
        }
        if let Some(owner) = core.owner() {
            owner.await_room(|| core.deadline().ends_ns)?;
            if batch.database().is_same(owner.db()) {
                return batch.commit_with(durability);
            }
            return owner.db().commit_forwarded(batch.into_forwarded()?, None, durability);
        }
        let batches = batch.into_forwarded()?.batches;
        self.shared.writes.write(core, batches, durability)
    }

    /// Runs `work` in a transaction and commits it. A conflict, perhaps with another process,
    /// repeats both after a random pause, until the timeout. So `work` may run more than once. Its
    /// errors abort the transaction.
    ///
    /// [`SharedTree::in_transaction`](super::SharedTree::in_transaction) gives the tree handles for
    /// it. Write only through the transaction.
    pub fn update<R>(&self, work: impl FnMut(&Transaction) -> Result<R>) -> Result<R> {
        self.try_update_with(self.durability(), work)
    }

    /// Runs [`SharedDb::update`] with the given durability.
    pub fn update_with<R>(&self, durability: Durability, work: impl FnMut(&Transaction) -> Result<R>) -> Result<R> {
        self.try_update_with(durability, work)
    }

    /// Runs [`SharedDb::update`] with an error type of the application: see [`Db::try_update`].
    pub fn try_update<R, E: From<Error> + 'static>(
        &self,
        work: impl FnMut(&Transaction) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        self.try_update_with(self.durability(), work)
    }

    /// Runs [`SharedDb::try_update`] with the given durability.
    pub fn try_update_with<R, E: From<Error> + 'static>(
        &self,
        durability: Durability,
        mut work: impl FnMut(&Transaction) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let durability = logged(durability);
        let core = self.core();
        let deadline = core.deadline();
        let mut retries = 0;
        loop {
            let db = self.latest_by(deadline)?;
            let conflict = if let Some(owner) = core.owner().filter(|owner| owner.db().is_same(&db)) {
                // Refuses writes past the transaction, and retries by itself.
                let may_retry = |_| !deadline.is_over(core.runtime());
                let before_commit = || owner.await_room(|| deadline.ends_ns);
                return db.update_while(durability, may_retry, before_commit, work).map(|(result, _)| result);
            } else {
                let transaction = db.begin()?;
                let running = Running::begin(core);
                let worked = work(&transaction);
                drop(running);
                match worked {
                    Ok(result) => match self.commit_transaction(transaction, durability, deadline) {
                        Ok(()) => return Ok(result),
                        Err(e) if is_to_retry(&e) => E::from(e),
                        Err(e) => return Err(e.into()),
                    },
                    Err(e) if (&e as &dyn Any).downcast_ref::<Error>().is_some_and(is_to_retry) => e,
                    Err(e) => return Err(e),
                }
            };
            if deadline.is_over(core.runtime()) {
                return Err(conflict);
            }
            pause(core, retries);
            retries += 1;
        }
    }

    fn commit_transaction(&self, transaction: Transaction, durability: Durability, deadline: Deadline) -> Result<()> {
        let Some(commit) = transaction.into_forwarded()? else { return Ok(()) };
        forward::commit(self.core(), commit, durability, deadline).map(drop)
    }
}

fn is_to_retry(error: &Error) -> bool {
    error.is_conflict() || error.is_reader_expired()
}

fn pause(core: &Core, retries: u32) {
    if retries >= RETRIES_AT_ONCE {
        let longest = (16_u64 << (retries - RETRIES_AT_ONCE).min(20)).min(PAUSE_US_MAX);
        core.runtime().sleep_us(core.runtime().random_u64() % longest + 1);
    }
}
