//! The read state: memtables and version behind one pointer.
//!
//! A state is immutable, except that the commit leader adds to the active memtable. INVARIANT R1: a
//! reader loads the state first and its sequence number second. So versions that the state's runs
//! dropped were not needed at that number. A snapshot's reader then checks that the snapshot is
//! still held: see [`crate::commit::SnapshotList`].

use crate::{
    memtable::{Memtable, MemtableOptions},
    version::Version,
};
use parking_lot::Mutex;
use std::{
    any::Any,
    sync::{Arc, OnceLock},
};

#[derive(Debug)]
pub struct ReadState {
    pub active: Arc<Memtable>,
    /// Memtables that wait for their flush, newest first.
    pub frozen: Vec<Arc<Memtable>>,
    pub version: Arc<Version>,
    /// Resources that must live as long as this state and all older ones.
    pub garbage: Arc<Garbage>,
}

impl ReadState {
    /// A state for closed databases and expired readers. It must not be read.
    pub fn empty() -> ReadState {
        ReadState {
            active: Arc::new(Memtable::new(MemtableOptions::for_capacity(0))),
            frozen: Vec::new(),
            version: Arc::default(),
            garbage: Arc::default(),
        }
    }

    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }
}

/// A chain that keeps resources alive for readers of older states. Each state holds the newest link
/// of its time, and each link holds the next. A resource released with a state goes into that
/// state's link, so it lives until that state and all older ones are dropped.
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
    /// Adds resources of this and older states. Returns the next state's link. The thread that
    /// replaces the state calls it once.
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
    /// Link by link: the default would recurse as deep as the chain is long.
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
