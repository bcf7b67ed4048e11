//! Storage of backups: named objects.

use crate::base::Result;
use std::{fmt::Debug, path::PathBuf};

/// An object in a target's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The name.
    pub name: String,
    /// The length in bytes.
    pub len: u64,
}

/// A store of named objects that holds backups, such as a directory
/// ([`DirectoryTarget`](super::DirectoryTarget)) or an object store. Each object is written once,
/// front to back, read as a whole, and deleted.
///
/// There is no renaming. An unfinished object may be visible or not, whole or in part: only objects
/// that a description names count, and the description is put last. A name is reused only after its
/// deletion. Names have at most 64 characters: letters, digits, `-` and `.`.
///
/// **Threads.** Any thread may call any method. Only the holder of the lock puts and deletes.
pub trait BackupTarget: Send + Sync + Debug {
    /// Creates an object.
    fn put(&self, name: &str) -> Result<Box<dyn ObjectWriter>>;
    /// Creates the object that makes a backup valid, with all its bytes. A target whose lock can
    /// pass to another process while its holder is suspended must refuse if that happened since
    /// [`lock`](Self::lock): the next holder may have deleted objects of the backup. By default a
    /// plain [`put`](Self::put).
    fn publish(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut writer = self.put(name)?;
        writer.write(bytes)?;
        writer.finish()
    }
    /// Opens an object for reading; `NotFound` if it does not exist.
    fn get(&self, name: &str) -> Result<Box<dyn ObjectReader>>;
    /// Lists all objects in any order. Must include an object after [`ObjectWriter::finish`]
    /// returned, and omit it after its deletion returned.
    fn list(&self) -> Result<Vec<Object>>;
    /// Deletes an object for good. If it does not exist, returns `NotFound` or does nothing.
    fn delete(&self, name: &str) -> Result<()>;
    /// Keeps other processes from putting and deleting until the lock is dropped; `Locked` if it is
    /// held. A target without locks returns a boxed `()`; its owner then ensures one writer at a
    /// time.
    fn lock(&self) -> Result<Box<dyn TargetLock>>;
    /// Returns a name of an object for messages.
    fn path_of(&self, name: &str) -> PathBuf;
}

/// The lock of a target.
pub trait TargetLock: Send + Debug {
    /// Returns the id for a new backup, `at_least` or higher. A target whose lock can be lost to
    /// another process must never return an id twice, even if no object of the id is left: late
    /// deletions of a former holder would hit the new objects. By default `at_least`.
    fn reserve(&self, at_least: u64) -> Result<u64> {
        Ok(at_least)
    }
}

impl TargetLock for () {}

/// An object being written. Dropped before [`finish`](Self::finish), a partial object may stay.
pub trait ObjectWriter: Send + Debug {
    /// Appends bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    /// Makes the object durable under its name.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// An object being read.
pub trait ObjectReader: Send + Debug {
    /// Reads the next bytes into `buffer` and returns their number; 0 only at the end.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize>;
}
