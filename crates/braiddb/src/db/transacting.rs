//! What the core does for transactions: it lets them join the window of recent commits, looks ahead of their commits, and
//! has one at a time be exclusive.
//!
//! While an exclusive transaction is open nobody else commits: the leader of a commit group waits for its end, and those
//! behind it with it. It commits without the queue, so nothing stands in its own way but itself: a thread that has one open is
//! told so when it commits anything else.

use super::{
    core::{Committed, Core, Request},
    write::{changed, outlived},
};
use crate::{
    base::{Error, Result},
    commit::PreparedBatch,
    txn::{Check, Verdict},
};
use std::{
    slice,
    sync::{Arc, atomic::Ordering},
    thread,
};

/// A place among the transactions that the window of recent commits is kept for.
#[derive(Debug)]
pub struct Membership(Arc<Core>);

impl Membership {
    /// To be taken before the snapshot: all commits after that are then noted.
    pub fn new(core: &Arc<Core>) -> Membership {
        if !core.window.join() {
            let write = core.write.lock();
            core.window.open(write.last_sequence);
        }
        Membership(Arc::clone(core))
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.0.window.leave();
    }
}

/// The right to commit, taken from all others.
#[derive(Debug)]
pub struct Exclusive(Arc<Core>);

impl Exclusive {
    /// Waits until nobody else has it.
    pub fn new(core: &Arc<Core>) -> Result<Exclusive> {
        core.check_writable()?;
        core.check_not_exclusive_here()?;
        let mut write = core.write.lock();
        while write.exclusive.is_some() {
            core.check_writable()?;
            core.exclusivity.ended.wait(&mut write);
        }
        core.check_writable()?;
        write.exclusive = Some(thread::current().id());
        core.exclusivity.is_taken.store(true, Ordering::Relaxed);
        Ok(Exclusive(Arc::clone(core)))
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        let mut write = self.0.write.lock();
        write.exclusive = None;
        self.0.exclusivity.is_taken.store(false, Ordering::Relaxed);
        drop(write);
        self.0.exclusivity.ended.notify_all();
    }
}

impl Core {
    /// Fails if the calling thread has begun the exclusive transaction that is open: it would wait for itself.
    #[cold]
    pub fn check_not_exclusive_here(&self) -> Result<()> {
        if self.write.lock().exclusive == Some(thread::current().id()) {
            return Err(Error::InvalidArgument(
                "this thread has an exclusive transaction open: write through that, or commit or drop it first"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Wakes whoever waits for an exclusive transaction to end: the database is being closed.
    pub fn wake_leaders(&self) {
        // Whoever holds this was about to wait, and has not seen that the database is closed; or does so now, and will.
        drop(self.write.lock());
        self.exclusivity.ended.notify_all();
    }

    /// Commits for the exclusive transaction that is open.
    pub fn commit_alone(
        &self,
        batch: PreparedBatch,
        is_unlogged: bool,
        check_trees: impl Fn() -> Result<()>,
    ) -> Result<Committed> {
        let mut write = self.write.lock();
        check_trees()?;
        let drops = self.catalog.drops.load(Ordering::Acquire);
        let mut request = Request { batch, drops, is_unlogged, check: None, verdict: Verdict::Unchanged };
        let group = slice::from_mut(&mut request);
        let done = self.contained("a commit", || self.try_commit_group(&mut write, group, drops));
        done.unwrap_or_else(|reason| Err(Error::CommitUnknown { reason }))
    }

    /// Looks whether what was read has been written since, as far as that can be told without holding others up.
    pub fn look_ahead(&self, check: &mut Check) -> Result<()> {
        if check.upto >= self.snapshots.visible() {
            return Ok(());
        }
        let verdict = match (check.look_ahead(&self.window), check.held) {
            (Verdict::TooOld, Some(held)) => self.healing(|| {
                // The state comes after what it must hold, and before it is known that its traces were.
                let visible = self.snapshots.visible();
                let state = self.state.load_full();
                self.check_held(&held)?;
                check.look_in(&state, visible)
            })?,
            (verdict, _) => verdict,
        };
        match verdict {
            Verdict::Unchanged => Ok(()),
            Verdict::Changed => Err(changed()),
            Verdict::TooOld => Err(outlived()),
        }
    }
}
