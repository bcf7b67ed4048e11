//! Holds: what keeps a snapshot, a transaction or an iterator at one commit.

use super::root::Engine;
use crate::{
    base::{ReaderKind, Result, SequenceNumber},
    commit::Held,
};
use std::sync::Arc;

/// A hold on a sequence number: what it sees is kept while this lives, unless it expires. Clones are the same reader.
pub struct Hold {
    engine: Arc<Engine>,
    held: Held,
}

impl std::fmt::Debug for Hold {
    /// Without what is inside: see [`Db`](crate::Db).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").field("sequence", &self.held.sequence).finish_non_exhaustive()
    }
}

impl Hold {
    /// A hold on what is visible now.
    pub fn now(engine: &Arc<Engine>, kind: ReaderKind) -> Hold {
        let held = engine.readers.snapshots.acquire(kind, || {
            let now = engine.now();
            (now.ns, now.us)
        });
        Hold { engine: Arc::clone(engine), held }
    }

    /// Whose commits it holds.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What it holds.
    pub fn sequence(&self) -> SequenceNumber {
        self.held.sequence
    }

    /// The same, for the list of readers.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Fails if it has expired. Tells nothing of states that are loaded later: see [`Engine::state_for`].
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
