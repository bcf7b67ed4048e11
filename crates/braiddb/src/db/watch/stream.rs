//! The change stream for tasks: a watcher that is polled.
//!
//! A poll does what [`Watcher::try_next`] does, except that it never syncs the log: it asks the
//! thread that syncs for asynchronous commits to do so, at most every 5 ms as a blocking watcher
//! would. A task registers where blocking watchers sleep (`engine/wal_notify.rs`), and checks for
//! news after that. So no wake-up is lost, and an idle task costs nothing.

use super::{
    change::ChangeSet,
    token::ResumeToken,
    watcher::{WatchStopper, Watcher},
};
use crate::base::{Error, Result};
use std::{
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

/// Maximum reads of up to 1 MiB of the log in one poll.
const READS_MAX: usize = 16;

/// The changes of a database for a task, with any executor: see [`Watcher::into_stream`]. Keeps the
/// database open.
///
/// With the feature `futures` it implements `futures_core::Stream`.
pub struct ChangeStream {
    watcher: Watcher,
    is_over: bool,
}

impl fmt::Debug for ChangeStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeStream").field("watcher", &self.watcher).finish_non_exhaustive()
    }
}

impl Watcher {
    /// Returns the following commits as a stream for a task.
    ///
    /// The stream ends when the watcher is stopped, at the end of a read-only database, and after
    /// an error, such as [`Error::WatchTooOld`] or, once the database is closed,
    /// [`Error::Closed`]. A poll reads the log's files, which are usually in memory. A background
    /// thread wakes the task.
    ///
    /// # Errors
    /// `InvalidArgument` if the database has no
    /// [background threads](crate::Builder::background_threads), or no thread could be started.
    ///
    /// ```
    /// # async fn follow(db: braiddb::Db) -> braiddb::Result<()> {
    /// let mut changes = db.watch(braiddb::watch::WatchOptions::new())?.into_stream()?;
    /// while let Some(commit) = changes.next().await {
    ///     println!("{:?}", commit?.changes);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_stream(self) -> Result<ChangeStream> {
        let engine = self.engine();
        if engine.log.wal.is_some() {
            let (common, id) = (Arc::downgrade(&engine.tenant.common), engine.tenant.id);
            engine.log.watches.tasks.on_call(move || {
                if let Some(common) = common.upgrade() {
                    common.pool.call_syncer(id);
                }
            });
            engine.health.check_open()?;
            if engine.settings.background_threads == 0 || !engine.tenant.common.pool.call_syncer(id) {
                let reason = "a change stream needs a background thread of the database, and there is none";
                return Err(Error::InvalidArgument(reason.to_owned()));
            }
        }
        Ok(ChangeStream { watcher: self, is_over: false })
    }
}

impl ChangeStream {
    /// Returns the next commit, an error, or `None` at the end: see [`Watcher::into_stream`]. The
    /// future may be dropped at any time; no commit is lost.
    pub async fn next(&mut self) -> Option<Result<ChangeSet>> {
        poll_fn(|context| self.poll_next_change(context)).await
    }

    /// Polls for the next commit, as a stream does.
    pub fn poll_next_change(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ChangeSet>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let polled = self.poll_by(context).map(Result::transpose);
        self.is_over = matches!(polled, Poll::Ready(None | Some(Err(_))));
        if self.is_over {
            self.forget_task();
        }
        polled
    }

    /// Returns the token to resume after the last returned commit: see [`Watcher::token`].
    pub fn token(&self) -> ResumeToken {
        self.watcher.token()
    }

    /// Returns a handle to stop the stream.
    pub fn stopper(&self) -> WatchStopper {
        self.watcher.stopper()
    }

    fn poll_by(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<ChangeSet>>> {
        let engine = Arc::clone(self.watcher.engine());
        for _ in 0..READS_MAX {
            if self.watcher.is_stopped() {
                return Poll::Ready(Ok(None));
            }
            engine.health.check_open()?;
            // Loaded before reading: anything newer counts as news below.
            let before = self.watcher.source_state();
            if let Some(shown) = self.watcher.show_pending(&engine)? {
                return Poll::Ready(Ok(Some(shown)));
            }
            if self.watcher.has_read_on()? {
                continue;
            }
            if self.watcher.is_of_closed_log() {
                return Poll::Ready(Ok(None));
            }
            let needs_sync = self.watcher.needs_sync(&engine);
            if needs_sync && engine.health.has_failed() {
                // Returns the error of the failed sync.
                self.watcher.sync(&engine)?;
                continue;
            }
            let watcher = &self.watcher;
            watcher.task.set_waker(context.waker());
            let is_news =
                || watcher.is_stopped() || engine.health.check_open().is_err() || watcher.source_state() != before;
            if engine.register_for_commits(&watcher.task, needs_sync, is_news) {
                if needs_sync {
                    // After the registration: the sync wakes the task.
                    engine.log.watches.tasks.request_sync(engine.now_ns());
                }
                return Poll::Pending;
            }
        }
        // Let other tasks run.
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl ChangeStream {
    /// No commit wakes the task any more.
    fn forget_task(&self) {
        self.watcher.engine().log.watches.remove(&self.watcher.task);
        drop(self.watcher.task.take_waker());
    }
}

impl Drop for ChangeStream {
    fn drop(&mut self) {
        self.forget_task();
    }
}

#[cfg(feature = "futures")]
impl futures_core::Stream for ChangeStream {
    type Item = Result<ChangeSet>;

    fn poll_next(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_next_change(context)
    }
}
