//! Asynchronous commits: see `write/async_commit.rs`.

use super::{batch::Batch, database::Db, transaction::handle::Transaction, tree::Tree};
use crate::{
    base::{Result, SequenceNumber},
    db::{
        engine::{settings::Durability, slow_commits::timer::CommitTimer},
        write::async_commit::{self, Awaited},
    },
};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

/// A future that is ready when a commit is durable, as one with [`Durability::Sync`] is. Works with
/// any executor.
///
/// - **The call commits.** When it returns, the commit is visible and ordered, exactly as one with
///   [`Durability::Buffered`]. Dropping the future changes nothing about it.
/// - **The future waits for the log sync.** One sync serves all waiting commits of all tasks. A
///   background thread does it, started by the first asynchronous commit. In a database without
///   [background threads](crate::Builder::background_threads), the poll syncs the log, and blocks
///   meanwhile.
/// - **The future returns all errors**, none the call. Conflicts, invalid arguments, full disks and
///   refused writes are known at the call: the future is ready at once, and nothing was committed.
///   A failed sync gives the [`Error::CommitUnknown`](crate::Error::CommitUnknown) of a blocking
///   commit to every waiting future.
/// - **The call may block**, as a buffered commit may: while commits are throttled or wait for a
///   flush, while an exclusive transaction is open, and to write values to blob files. Usually it
///   takes a few microseconds.
/// - **A close** syncs the log and completes all futures. A future does not keep the database open.
///
/// A background thread calls the waker, without a lock. The waker must not wait for another commit;
/// its panic is logged and ignored.
///
/// ```
/// # async fn serve() -> braiddb::Result<()> {
/// let db = braiddb::Db::in_memory()?;
/// let albums = db.tree("albums")?;
/// let commit = albums.put_async(b"1", b"Ten"); // visible now
/// assert_eq!(albums.get(b"1")?.as_deref(), Some(&b"Ten"[..]));
/// commit.await?; // durable now
/// # Ok(())
/// # }
/// ```
#[must_use = "the commit is applied, but only the future returns its errors"]
pub struct Commit {
    state: Awaited,
}

impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commit").field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}

impl Commit {
    /// Commits buffered by `commit`. `writes` is false if there is nothing to make durable.
    fn begin(db: &Db, writes: bool, commit: impl FnOnce(&mut CommitTimer) -> Result<SequenceNumber>) -> Commit {
        let mut timer = CommitTimer::begin(db.engine());
        let state = match commit(&mut timer) {
            Ok(sequence) if writes => async_commit::await_durable(db.engine(), sequence, timer),
            result => {
                timer.end(db.engine(), &result);
                Awaited::Done(result)
            }
        };
        Commit { state }
    }

    /// Returns the commit's sequence number, durable or not; `None` if nothing was committed, or
    /// after a failed sync.
    pub fn sequence(&self) -> Option<SequenceNumber> {
        match &self.state {
            Awaited::Done(result) => result.as_ref().ok().copied(),
            Awaited::Unsynced { sequence, .. } => Some(*sequence),
            Awaited::Queued(waiter) => waiter.result().map_or(Some(waiter.sequence), Result::ok),
        }
    }

    /// Blocks the thread until the commit is durable, and returns its sequence number.
    pub fn wait(mut self) -> Result<SequenceNumber> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => thread::park(),
            }
        }
    }
}

impl Future for Commit {
    type Output = Result<SequenceNumber>;

    /// Returns the same result again if it is polled after the end.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &self.state {
            Awaited::Done(Ok(sequence)) => return Poll::Ready(Ok(*sequence)),
            Awaited::Done(Err(error)) => return Poll::Ready(Err(error.duplicate())),
            Awaited::Queued(waiter) => return waiter.poll(context.waker()),
            Awaited::Unsynced { engine, sequence, lsn, timer } => {
                async_commit::sync_now(engine, *sequence, *lsn, timer)
            }
        };
        let copy = result.as_ref().map(|sequence| *sequence).map_err(|error| error.duplicate());
        self.state = Awaited::Done(copy);
        Poll::Ready(result)
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        if let Awaited::Queued(waiter) = &self.state {
            waiter.forget();
        }
    }
}

impl Batch {
    /// Commits, and returns a future that is ready when the commit is durable: see [`Commit`].
    ///
    /// ```
    /// # async fn serve() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let (albums, songs) = (db.tree("albums")?, db.tree("songs")?);
    /// let mut batch = db.batch();
    /// batch.put(&albums, b"1", b"Ten").put(&songs, b"1/1", b"Once");
    /// batch.commit_async().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn commit_async(self) -> Commit {
        let (db, writes) = (self.db().clone(), !self.is_empty());
        Commit::begin(&db, writes, |timer| self.commit_timed(Durability::Buffered, timer))
    }
}

impl Transaction {
    /// Commits, and returns a future that is ready when the commit is durable: see [`Commit`]. A
    /// conflict makes it ready at once, with an error for which
    /// [`Error::is_conflict`](crate::Error::is_conflict) holds. A read-only transaction is ready at
    /// once.
    ///
    /// ```
    /// # async fn serve(db: braiddb::Db, accounts: braiddb::Tree) -> braiddb::Result<()> {
    /// let tx = db.begin()?;
    /// let balance = tx.get(&accounts, b"ann")?;
    /// tx.put(&accounts, b"bob", balance.as_deref().unwrap_or(b"0"))?;
    /// tx.commit_async().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn commit_async(self) -> Commit {
        let (db, writes) = (self.db().clone(), !self.is_empty());
        Commit::begin(&db, writes, |timer| self.commit_timed(Durability::Buffered, timer))
    }
}

impl Tree {
    /// Sets the value of `key`, as [`Tree::put`] does, and returns a future that is ready when the
    /// commit is durable: see [`Commit`].
    pub fn put_async(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Commit {
        let mut batch = self.db().batch();
        batch.put(self, key, value);
        batch.commit_async()
    }

    /// Deletes `key`, which may be absent, and returns a future that is ready when the commit is
    /// durable: see [`Commit`].
    pub fn delete_async(&self, key: impl AsRef<[u8]>) -> Commit {
        let mut batch = self.db().batch();
        batch.delete(self, key);
        batch.commit_async()
    }
}
