//! Holds pin a snapshot, a transaction or an iterator to one commit.

use super::root::Engine;
use crate::{
    base::{ReaderKind, Result, SequenceNumber},
    commit::Held,
};
use std::sync::Arc;

/// Pins the versions visible at one sequence number, unless it expires. Clones are the same reader.
pub struct Hold {
    engine: Arc<Engine>,
    held: Held,
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").field("sequence", &self.held.sequence).finish_non_exhaustive()
    }
}

impl Hold {
    pub fn now(engine: &Arc<Engine>, kind: ReaderKind) -> Hold {
        let held = engine.readers.snapshots.acquire(kind, || {
            let now = engine.now();
            (now.ns, now.us)
        });
        Hold { engine: Arc::clone(engine), held }
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub fn sequence(&self) -> SequenceNumber {
        self.held.sequence
    }

    /// Returns the hold's entry in the list of readers.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Fails if the hold has expired. A state loaded later needs another check: see
    /// [`Engine::state_for`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.engine.check_held(&self.held)
    }
}

impl Clone for Hold {
    fn clone(&self) -> Hold {
        self.engine.readers.snapshots.acquire_again(&self.held);
        Hold { engine: Arc::clone(&self.engine), held: self.held }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.engine.readers.snapshots.release(&self.held);
    }
}
