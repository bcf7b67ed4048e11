//! The present read state.

use crate::{
    memtable::Memtable,
    platform::HazardCell,
    read::{ReadState, RestingScans},
};
use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, atomic::AtomicBool};

/// The state, for all readers and for the fast path of gets.
pub struct StateCell {
    pub state: ArcSwap<ReadState>,
    pub fast_state: HazardCell<ReadState>,
    pub resting: RestingScans,
    /// Held by leaders and jobs while they make a new state.
    pub change: Mutex<()>,
    /// The active memtable must freeze to make room for another database.
    pub is_to_freeze: AtomicBool,
}

impl StateCell {
    pub fn new(state: ReadState) -> StateCell {
        let state = Arc::new(state);
        StateCell {
            state: ArcSwap::new(Arc::clone(&state)),
            fast_state: HazardCell::new(state),
            resting: RestingScans::default(),
            change: Mutex::new(()),
            is_to_freeze: AtomicBool::new(false),
        }
    }

    /// Replaces the present state. `_change` is the guard of [`StateCell::change`].
    pub fn replace(&self, _change: &MutexGuard<'_, ()>, state: Arc<ReadState>) {
        self.resting.change(|| {
            self.state.store(Arc::clone(&state));
            self.fast_state.replace(state);
        });
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Memtables<'a> {
    Same,
    Flushed(&'a Arc<Memtable>),
    /// Later commits go to a fresh memtable. The caller holds `write`.
    Fresh,
}
