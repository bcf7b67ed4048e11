//! Where backups are kept: a place for named objects.

use crate::base::Result;
use std::{fmt::Debug, path::PathBuf};

/// An object, as a target lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
}

/// A place where backups are kept: objects with names, each written once, from front to back, read as a whole, and deleted. An object
/// store can be one, and [`DirectoryTarget`](super::DirectoryTarget) is a directory.
///
/// Little is asked for. There is no renaming. An object that is being put, or whose writer was killed, may be seen or not,
/// whole or in part: what counts is what a description tells of, which is put last. No name is used again before it was
/// deleted. Names have letters, digits, `-` and `.`, and at most 64 of them.
///
/// **Threads.** Any thread may call anything. One at a time puts or deletes: whoever has the lock.
pub trait BackupTarget: Send + Sync + Debug {
    /// Begins an object.
    fn put(&self, name: &str) -> Result<Box<dyn ObjectWriter>>;
    /// Begins to read an object; `NotFound` if there is none.
    fn get(&self, name: &str) -> Result<Box<dyn ObjectReader>>;
    /// All objects, in no order. One whose [`ObjectWriter::finish`] has returned is among them, and one whose deletion has is not.
    fn list(&self) -> Result<Vec<Object>>;
    /// Deletes an object for good; `NotFound` if there is none.
    fn delete(&self, name: &str) -> Result<()>;
    /// Keeps others from putting and deleting until what is returned is dropped; `Locked` if somebody else does already.
    /// A target without locks returns `()` in a box, and its owner sees to it that there is one writer at a time.
    fn lock(&self) -> Result<Box<dyn TargetLock>>;
    /// What to call an object in messages.
    fn path_of(&self, name: &str) -> PathBuf;
}

/// What a target is locked by.
pub trait TargetLock: Send + Debug {}

impl TargetLock for () {}

/// An object that is being put. Dropped before it is finished, it may stay in part.
pub trait ObjectWriter: Send + Debug {
    /// Adds bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    /// Makes the object survive a power failure, under its name.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// An object that is being read.
pub trait ObjectReader: Send + Debug {
    /// Reads the next bytes into `buffer`, and returns how many there are; 0 at the end alone.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize>;
}
