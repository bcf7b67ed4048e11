//! The state that a process reads.
//!
//! A member reads a follower's state. It is refreshed by the next read if it is older than
//! [`STATE_KEPT_NS`], or if it lacks a commit that this process has got a reply for. So a process
//! reads its own writes, and those of others after a bounded time.

use super::{core::Core, session::Deadline};
use crate::{
    base::{Error, Result},
    db::{Db, Follower},
};
use parking_lot::{Mutex, MutexGuard};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Age in nanoseconds at which a read refreshes the state.
const STATE_KEPT_NS: u64 = 5_000_000;

/// Pause before the log is read again for a commit that it must have.
const PAUSE_US: u64 = 200;

#[derive(Debug, Default)]
pub struct Freshness {
    /// The last commit of the state, and the time before its refresh. They only grow.
    sequence: AtomicU64,
    as_of_ns: AtomicU64,
    refreshing: Mutex<()>,
}

impl Freshness {
    /// Returns the database to read.
    pub fn state(&self, core: &Core) -> Result<Db> {
        self.state_by(core, || core.deadline())
    }

    /// The deadline counts only if the call waits.
    pub fn state_by(&self, core: &Core, deadline: impl FnOnce() -> Deadline) -> Result<Db> {
        core.check_process()?;
        if let Some(owner) = core.owner() {
            return Ok(owner.db().clone());
        }
        let Some(follower) = core.follower() else { return self.after_election(core, deadline()) };
        let must_see = core.must_see.load(Ordering::Acquire);
        let is_recent = |limit_ns: u64| {
            core.runtime().monotonic_coarse_ns().saturating_sub(self.as_of_ns.load(Ordering::Acquire)) < limit_ns
        };
        if self.sequence.load(Ordering::Acquire) >= must_see {
            if is_recent(STATE_KEPT_NS) {
                return Ok(follower.db());
            }
            // One thread refreshes; the others read on.
            if let Some(_turn) = self.refreshing.try_lock() {
                self.refresh(core, &follower, deadline())?;
            }
            return Ok(follower.db());
        }
        let deadline = deadline();
        loop {
            let turn = self.turn(core, deadline)?;
            if self.sequence.load(Ordering::Acquire) >= must_see {
                return Ok(follower.db());
            }
            self.refresh(core, &follower, deadline)?;
            drop(turn);
            if self.sequence.load(Ordering::Acquire) >= must_see {
                return Ok(follower.db());
            }
            self.pause(core, deadline)?;
        }
    }

    /// Returns the latest database: with all commits that were acknowledged before the call.
    pub fn latest(&self, core: &Core, deadline: Deadline) -> Result<Db> {
        core.check_process()?;
        if let (None, Some(follower)) = (core.owner(), core.follower()) {
            let _turn = self.turn(core, deadline)?;
            self.refresh(core, &follower, deadline)?;
        }
        self.state_by(core, || deadline)
    }

    /// Waits until no other thread refreshes.
    fn turn(&self, core: &Core, deadline: Deadline) -> Result<MutexGuard<'_, ()>> {
        let turn = self.refreshing.try_lock_for(deadline.left(core.runtime()));
        turn.ok_or_else(|| too_busy(core, deadline, "another thread refreshes"))
    }

    /// This process may be between the roles of member and owner.
    fn after_election(&self, core: &Core, deadline: Deadline) -> Result<Db> {
        core.await_role(deadline)?;
        match (core.owner(), core.follower()) {
            (Some(owner), _) => Ok(owner.db().clone()),
            (None, Some(follower)) => Ok(follower.db()),
            (None, None) => Err(Error::Closed),
        }
    }

    /// The caller has the turn.
    fn refresh(&self, core: &Core, follower: &Arc<Follower>, deadline: Deadline) -> Result<()> {
        let as_of_ns = core.runtime().monotonic_coarse_ns();
        let refreshed = follower.refresh_within(deadline.left_ns(core.runtime()))?;
        self.sequence.fetch_max(refreshed.sequence, Ordering::AcqRel);
        self.as_of_ns.fetch_max(as_of_ns, Ordering::AcqRel);
        Ok(())
    }

    fn pause(&self, core: &Core, deadline: Deadline) -> Result<()> {
        if deadline.is_over(core.runtime()) {
            return Err(too_busy(core, deadline, "an acknowledged commit is not in the log"));
        }
        core.runtime().sleep_us(PAUSE_US);
        Ok(())
    }
}

fn too_busy(core: &Core, deadline: Deadline, reason: &str) -> Error {
    Error::too_busy(&core.dir, 1, deadline.waited(core.runtime()), Error::InvalidArgument(reason.to_owned()))
}
