//! Owners: of the processes that publish checkpoints of one database after another, the last one.
//!
//! The lock of a target protects one publication. A process that was cut off and believes that it
//! still owns its database could take the lock later, and publish its old state as the newest.
//!
//! **Claims.** A claim is an object `EPOCH.owner`, created under the lock; its contents are for
//! people. The highest epoch is the owner's. A publication reads the list after it has the lock, and
//! goes on only if its own claim is the highest.
//!
//! INVARIANT C1: no publication of an epoch becomes visible after the claim of a higher one
//! returned. Proof: a claim is made under the lock. A publication that took the lock later sees it.
//! One that took the lock earlier has lost it, and P1 (`publish.rs`) refuses it.
//! The highest claim is never deleted, and epochs come from `TargetLock::reserve`, so a late put of
//! a process that lost the lock creates a lower one, which has no effect.

use braiddb::{
    Error, Result,
    backup::{BackupTarget, Object, ObjectReader, ObjectWriter, TargetLock},
};
use std::{
    fmt,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

const SUFFIX: &str = ".owner";

fn epoch_of(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}

fn name_of(epoch: u64) -> String {
    format!("{epoch:06}{SUFFIX}")
}

fn epochs(target: &dyn BackupTarget) -> Result<Vec<u64>> {
    let mut epochs: Vec<u64> = target.list()?.iter().filter_map(|object| epoch_of(&object.name)).collect();
    epochs.sort_unstable();
    Ok(epochs)
}

/// Makes the caller the owner. `owner` is for messages.
pub fn claim(target: &dyn BackupTarget, owner: &str) -> Result<u64> {
    let lock = target.lock()?;
    let earlier = epochs(target)?;
    let epoch = lock.reserve(earlier.last().map_or(1, |last| last + 1))?;
    let mut writer = target.put(&name_of(epoch))?;
    writer.write(owner.as_bytes())?;
    writer.finish()?;
    // A target whose lock was lost refuses the list.
    if epochs(target)?.last() != Some(&epoch) {
        return Err(Error::Locked { path: target.path_of(""), owner: "a later owner".to_owned() });
    }
    for earlier in earlier {
        target.delete(&name_of(earlier))?;
    }
    Ok(epoch)
}

/// A target that refuses its lock to all but the owner.
pub struct Owned<'a> {
    pub target: &'a dyn BackupTarget,
    pub epoch: u64,
    /// Runs once the state that is published is fixed.
    pub taken: &'a (dyn Fn() + Sync),
    /// Stops the publication, also right before it becomes visible.
    pub is_cancelled: &'a AtomicBool,
    is_taken: AtomicBool,
    is_superseded: AtomicBool,
}

impl<'a> Owned<'a> {
    pub fn new(
        target: &'a dyn BackupTarget,
        epoch: u64,
        taken: &'a (dyn Fn() + Sync),
        is_cancelled: &'a AtomicBool,
    ) -> Owned<'a> {
        let (is_taken, is_superseded) = (AtomicBool::new(false), AtomicBool::new(false));
        Owned { target, epoch, taken, is_cancelled, is_taken, is_superseded }
    }

    pub fn is_superseded(&self) -> bool {
        self.is_superseded.load(Ordering::Acquire)
    }

    fn check(&self) -> Result<()> {
        if self.is_cancelled.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// A backup puts its marker, takes the image, then puts files and the description.
    fn note_taken(&self) {
        if !self.is_taken.swap(true, Ordering::AcqRel) {
            (self.taken)();
        }
    }
}

impl fmt::Debug for Owned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned").field("target", &self.target).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl BackupTarget for Owned<'_> {
    fn put(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        self.check()?;
        if !name.ends_with(".begun") {
            self.note_taken();
        }
        self.target.put(name)
    }

    fn publish(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.note_taken();
        self.check()?;
        self.target.publish(name, bytes)
    }

    fn get(&self, name: &str) -> Result<Box<dyn ObjectReader>> {
        self.target.get(name)
    }

    fn list(&self) -> Result<Vec<Object>> {
        self.target.list()
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.target.delete(name)
    }

    fn lock(&self) -> Result<Box<dyn TargetLock>> {
        self.check()?;
        let lock = self.target.lock()?;
        if epochs(self.target)?.last() != Some(&self.epoch) {
            self.is_superseded.store(true, Ordering::Release);
            return Err(Error::Locked { path: self.target.path_of(""), owner: "a later owner".to_owned() });
        }
        Ok(lock)
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.target.path_of(name)
    }
}
