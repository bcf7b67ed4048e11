//! Reopens a cursor on the latest read state, after a damaged view or many steps, and replays its
//! position there.

use super::{Cursor, Place};
use crate::{
    base::{Cursor as _, Error, Result},
    db::read::healing::{self, HEAL_TRIES},
    read::{PooledScan, StateScan, UNKNOWN_AGE},
};
use std::sync::Arc;

impl Cursor {
    /// Saves the current key as origin and switches to the latest state.
    #[cold]
    pub(super) fn follow_state(&mut self) -> Result<()> {
        self.origin.key.set(self.scan.cursor.entry().key);
        (self.origin.is_forward, self.origin.is_end, self.origin.steps) = (true, false, 0);
        let state = self.engine().present_state().inspect_err(|_| self.release())?;
        let state = (!Arc::ptr_eq(&state, &self.scan.state)).then(|| Arc::clone(&state));
        self.check_hold()?;
        let Some(state) = state else { return Ok(()) };
        self.scan.move_to(state);
        self.scan.reset(self.hold.sequence());
        let moved = self.replay();
        self.arrive(true, moved).map(|_| ())
    }

    #[cold]
    pub(super) fn replay_steps(&mut self) -> Result<()> {
        let steps = self.origin.steps;
        for _ in 0..steps.unsigned_abs() {
            if steps > 0 {
                self.scan.cursor.next()?
            } else {
                self.scan.cursor.prev()?
            }
            self.pass_expired(steps > 0)?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(in crate::db) fn restart(&mut self) -> Result<()> {
        let state = self.engine().cell.state.load_full();
        self.scan = PooledScan::new(StateScan::new(state, UNKNOWN_AGE, self.hold.sequence(), self.tree.id));
        let moved = self.replay();
        self.arrive(true, moved).map(|_| ())
    }

    /// Sets damaged views aside, or returns the error.
    #[cold]
    pub(super) fn heal(&mut self, error: Error) -> Result<()> {
        let healed = self.try_heal(error);
        healed.map_err(|e| self.engine().catalog.with_tree(e, &self.tree.id.first_key()))
    }

    fn try_heal(&mut self, mut error: Error) -> Result<()> {
        self.place = Place::Fresh;
        for _ in 0..HEAL_TRIES {
            healing::set_aside_or_fail(self.engine(), error)?;
            let state = Arc::clone(&*self.engine().present_state()?);
            self.check_hold()?;
            self.scan = PooledScan::new(StateScan::new(state, UNKNOWN_AGE, self.hold.sequence(), self.tree.id));
            match self.replay() {
                Ok(()) => return Ok(()),
                Err(e) => error = e,
            }
        }
        Err(error)
    }
}
