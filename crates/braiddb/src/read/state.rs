//! The read state: everything a reader needs, behind one pointer.
//!
//! A state never changes, except that the commit leader adds to the active memtable. A reader loads the state first
//! and its sequence number after that; so whatever the state's runs have left out was not needed at that number. A reader of a
//! snapshot asks then whether that is still held: see [`crate::commit::SnapshotList`].

use crate::{
    memtable::{Memtable, MemtableOptions},
    version::Version,
};
use parking_lot::Mutex;
use std::{
    any::Any,
    sync::{Arc, OnceLock},
};

/// Memtables and version at one moment.
#[derive(Debug)]
pub struct ReadState {
    /// The memtable that takes writes.
    pub active: Arc<Memtable>,
    /// The memtables that wait for their flush, newest first.
    pub frozen: Vec<Arc<Memtable>>,
    /// The runs and views.
    pub version: Arc<Version>,
    /// What must live as long as this state and those before it.
    pub garbage: Arc<Garbage>,
}

impl ReadState {
    /// A state of nothing, for who has no right to another any more. There is nothing that could be read in it.
    pub fn empty() -> ReadState {
        ReadState {
            active: Arc::new(Memtable::new(MemtableOptions::for_capacity(0))),
            frozen: Vec::new(),
            version: Arc::default(),
            garbage: Arc::default(),
        }
    }

    /// All memtables, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }
}

/// A link of a chain that keeps things alive for the readers of older states.
///
/// Each state holds the link that was newest when it was made, and each link holds the next. What is let go when a
/// state is replaced is put into that state's link: it lives until that state and all before it are gone.
#[derive(Default)]
pub struct Garbage {
    kept: Mutex<Vec<Box<dyn Any + Send + Sync>>>,
    next: OnceLock<Arc<Garbage>>,
}

impl std::fmt::Debug for Garbage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Garbage").field("kept", &self.kept.lock().len()).finish_non_exhaustive()
    }
}

impl Garbage {
    /// Adds what this state and older ones may still use, and returns the link for the state that follows. A link is
    /// followed once, by whoever replaces its state.
    pub fn follow(self: &Arc<Garbage>, kept: Vec<Box<dyn Any + Send + Sync>>) -> Arc<Garbage> {
        if kept.is_empty() {
            return Arc::clone(self);
        }
        self.kept.lock().extend(kept);
        let next = Arc::new(Garbage::default());
        let linked = self.next.set(Arc::clone(&next)).is_ok();
        assert!(linked, "a link is followed once");
        next
    }
}

impl Drop for Garbage {
    /// Takes the chain apart link by link: the default would recurse as deep as the chain is long.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(link) = next {
            next = match Arc::try_unwrap(link) {
                Ok(mut link) => link.next.take(),
                Err(_) => None,
            };
        }
    }
}
