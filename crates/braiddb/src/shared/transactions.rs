//! Commits of a shared database: batches, and transactions that retry on conflict.

use super::{
    core::Core,
    database::{SharedDb, logged},
    forward,
    message::Request,
    owner::Owner,
    seat::Seat,
    session::Deadline,
    streams::{self, Ended},
    tree::SharedTree,
};
use crate::{
    base::{Error, Result, SequenceNumber},
    db::{Batch, Db, Durability, Kept, MergeFunctionHandle, Transaction},
};
use std::{
    any::Any,
    cell::{Cell, RefCell},
    fmt,
    io::Read,
    ops::Deref,
    sync::Arc,
};

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
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(|running| _ = running.pop());
    }
}

/// Fails inside a closure of `update` of this database on this thread.
fn check_outside(core: &Arc<Core>) -> Result<()> {
    if !RUNNING.with_borrow(|running| running.contains(&Arc::as_ptr(core).addr())) {
        return Ok(());
    }
    let detail = "a write inside SharedDb::update that bypasses its transaction: it would commit at once, and again \
                  with each retry; write through the transaction";
    Err(Error::InvalidArgument(detail.to_owned()))
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
        let deadline = core.deadline();
        core.check_process()?;
        check_outside(core)?;
        if let Some(owner) = core.owner() {
            owner.await_room(|| deadline.ends_ns)?;
            return owner.db().waiting_until(deadline.ends_ns, |db| match batch.database().is_same(db) {
                true => batch.commit_with(durability),
                false => db.commit_forwarded(batch.into_forwarded()?, None, durability, Kept::default()),
            });
        }
        let batches = batch.into_forwarded()?.batches;
        self.shared.writes.write(core, batches, durability, deadline)
    }

    /// Begins a transaction at the latest commit, for callers that [`SharedDb::update`] does not
    /// suit. Its commit fails with [`Error::Conflict`] if a commit of any process changed its
    /// reads: the caller begins again. In a member it ends with [`Error::Superseded`] after ten
    /// minutes.
    pub fn begin(&self) -> Result<SharedTransaction> {
        Ok(SharedTransaction::new(self, self.latest()?.begin()?, None))
    }

    /// Runs `work` in a transaction and commits it. A conflict, perhaps with another process,
    /// repeats both after a random pause, until the timeout. So `work` may run more than once. Its
    /// errors abort the transaction. The timeout counts the time of `work` only to decide whether to
    /// repeat it.
    ///
    /// [`SharedTree::in_transaction`](super::SharedTree::in_transaction) gives the tree handles for
    /// it. Write only through the transaction: another write to the database on this thread, a
    /// nested `update` included, fails with `InvalidArgument`.
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
        check_outside(core)?;
        let deadline = core.deadline();
        let worked_ns = Cell::new(0);
        // The waits for other processes still have the whole timeout after a long closure.
        let by = || deadline.later_by(worked_ns.get());
        let mut work = |transaction: &Transaction| {
            let began_ns = core.runtime().monotonic_ns();
            let done = work(transaction);
            worked_ns.set(worked_ns.get() + core.runtime().monotonic_ns().saturating_sub(began_ns));
            done
        };
        let mut retries = 0;
        loop {
            let db = self.latest_by(by())?;
            let conflict = if let Some(owner) = core.owner().filter(|owner| owner.db().is_same(&db)) {
                // Refuses writes past the transaction, and retries by itself.
                let may_retry = |_| !deadline.is_over(core.runtime());
                let before_commit = || {
                    let ends_ns = by().ends_ns;
                    owner.await_room(|| ends_ns).map(|()| ends_ns)
                };
                return db.update_while(durability, may_retry, before_commit, work).map(|(result, _)| result);
            } else {
                let transaction = db.begin()?;
                let running = Running::begin(core);
                let worked = work(&transaction);
                drop(running);
                match worked {
                    Ok(result) => match self.commit_transaction(transaction, durability, by()) {
                        Ok(_) => return Ok(result),
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

    /// Commits a transaction of a member, perhaps in the owner that this process has become.
    fn commit_transaction(
        &self,
        transaction: Transaction,
        durability: Durability,
        deadline: Deadline,
    ) -> Result<SequenceNumber> {
        let begun = transaction.sequence();
        match transaction.into_forwarded()? {
            Some(commit) => forward::commit(self.core(), commit, durability, deadline),
            None => Ok(begun),
        }
    }
}

/// A transaction of [`SharedDb::begin`]. Reads and writes are those of [`Transaction`];
/// [`SharedTree::in_transaction`](super::SharedTree::in_transaction) gives the tree handles.
/// Dropping it discards its writes.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// # if !cfg!(any(unix, windows)) { return Ok(()) }
/// # let dir = std::env::temp_dir().join(format!("braiddb-doc-begin-{}", std::process::id()));
/// let db = braiddb::Db::builder().open_shared(&dir)?;
/// let albums = db.tree("albums")?;
/// let tx = db.begin()?;
/// tx.put(&albums.in_transaction(&tx)?, "1", "Ten")?;
/// assert_eq!(albums.get("1")?, None);
/// tx.commit()?;
/// assert_eq!(albums.get("1")?.unwrap(), "Ten");
/// # db.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok(())
/// # }
/// ```
pub struct SharedTransaction {
    db: SharedDb,
    transaction: Transaction,
    /// Of a member's exclusive transaction, or one with streams.
    seat: RefCell<Option<Seat>>,
}

impl fmt::Debug for SharedTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTransaction").field("transaction", &self.transaction).finish_non_exhaustive()
    }
}

impl Deref for SharedTransaction {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        &self.transaction
    }
}

impl SharedTransaction {
    pub(super) fn new(db: &SharedDb, transaction: Transaction, seat: Option<Seat>) -> SharedTransaction {
        SharedTransaction { db: db.clone(), transaction, seat: RefCell::new(seat) }
    }

    /// Returns a merge function for this transaction: see [`Db::merge_function`]. The first use of
    /// an application's function in a member fails with [`Error::Conflict`], once.
    pub fn merge_function(&self, name: &str) -> Result<MergeFunctionHandle> {
        let found = Db::of_transaction(&self.transaction).merge_function(name);
        if found.is_ok() || self.owner().is_some() {
            return found;
        }
        // The owner gives the function its number, in a commit that this transaction cannot see.
        self.db.call(Request::Function { name: name.to_owned() })?;
        Err(Error::conflict(format!("the merge function {name:?} got its number after the transaction began")))
    }

    /// Sets the value of `key` to the contents of `reader`: see [`SharedTree::put_stream`]. Writes
    /// blobs now and frees them without a commit.
    pub fn put_stream(&self, tree: &SharedTree, key: impl AsRef<[u8]>, reader: impl Read) -> Result<()> {
        let (own, key) = (tree.in_transaction(&self.transaction)?, key.as_ref());
        if self.owner().is_some() {
            return self.transaction.put_stream(&own, key, reader);
        }
        let mut seat = self.seat.borrow_mut();
        let ended = streams::send(self.db.core(), &mut seat, (tree.id(), key), reader)?;
        match ended {
            Ended::Short(value) => self.transaction.put(&own, key, value),
            Ended::Placed(placed) => self.transaction.put_placed_elsewhere(&own, key, placed),
        }
    }

    /// Commits with the database's durability, and returns the commit's sequence number.
    pub fn commit(self) -> Result<SequenceNumber> {
        let durability = self.db.durability();
        self.commit_with(durability)
    }

    /// Commits with the given durability: see [`SharedTransaction::commit`].
    pub fn commit_with(self, durability: Durability) -> Result<SequenceNumber> {
        let core = self.db.core();
        core.check_process()?;
        let (durability, deadline) = (logged(durability), core.deadline());
        let Some(owner) = self.owner() else {
            let SharedTransaction { db, transaction, seat } = self;
            let Some(seat) = seat.into_inner() else { return db.commit_transaction(transaction, durability, deadline) };
            let begun = transaction.sequence();
            // An error or an empty transaction drops the seat.
            let Some(commit) = transaction.into_forwarded()? else { return Ok(begun) };
            return seat.commit(commit, durability, deadline);
        };
        owner.await_room(|| deadline.ends_ns)?;
        owner.db().waiting_until(deadline.ends_ns, |_| self.transaction.commit_with(durability))
    }

    /// Returns the owner if the transaction is of its database.
    fn owner(&self) -> Option<Arc<Owner>> {
        let db = Db::of_transaction(&self.transaction);
        self.db.core().owner().filter(|owner| owner.db().is_same(db))
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
