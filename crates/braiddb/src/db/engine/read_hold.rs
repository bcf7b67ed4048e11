//! Holds: what keeps a snapshot, a transaction or an iterator at one commit.

use super::core::Core;
use crate::{
    base::{ReaderKind, Result, SequenceNumber},
    commit::Held,
};
use std::sync::Arc;

/// A hold on a sequence number: what it sees is kept while this lives, unless it expires. Clones are the same reader.
pub struct Hold {
    core: Arc<Core>,
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
    pub fn now(core: &Arc<Core>, kind: ReaderKind) -> Hold {
        let held = core.snapshots.acquire(kind, || {
            let now = core.now();
            (now.ns, now.us)
        });
        Hold { core: Arc::clone(core), held }
    }

    /// Whose commits it holds.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// What it holds.
    pub fn sequence(&self) -> SequenceNumber {
        self.held.sequence
    }

    /// The same, for the list of readers.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Fails if it has expired. Tells nothing of states that are loaded later: see [`Core::state_for`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.core.check_held(&self.held)
    }
}

impl Clone for Hold {
    fn clone(&self) -> Hold {
        self.core.snapshots.acquire_again(&self.held);
        Hold { core: Arc::clone(&self.core), held: self.held }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.core.snapshots.release(&self.held);
    }
}
