//! What the disk was asked to do, in the order in which it did it.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A file's number, whatever its names are. Never reused.
pub(crate) type FileIndex = u64;

/// A whole path without `.` parts.
pub(crate) type Name = Arc<Path>;

/// One change. Reads are not journaled.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Bytes were written.
    Write { file: FileIndex, offset: u64, bytes: Arc<[u8]> },
    /// The length was set.
    SetLength { file: FileIndex, len: u64 },
    /// Space was reserved, and the length raised.
    Reserve { file: FileIndex, len: u64 },
    /// A name was given to a file: a creation, or a second name.
    Link { name: Name, file: FileIndex },
    /// A name was removed.
    Unlink { name: Name },
    /// A name was moved, replacing what had the new name.
    Rename { from: Name, to: Name, file: FileIndex },
    /// A directory was made.
    MakeDirectory { name: Name },
    /// A file was synced: its operations before `upto` are durable.
    Sync { file: FileIndex, upto: usize },
    /// Some bytes of a file were synced: what was written before `upto` and lies wholly within their pages is durable.
    SyncBytes { file: FileIndex, offset: u64, len: u64, upto: usize },
    /// A file's sync failed: its operations before `upto` may be lost, whatever comes later.
    SyncFailed { file: FileIndex, upto: usize },
    /// A directory was synced: the operations on its names before `upto` are durable.
    SyncDirectory { name: Name, upto: usize },
    /// A directory's sync failed.
    SyncDirectoryFailed { name: Name },
    /// Damage from outside, which is on disk at once.
    Damage(Box<Operation>),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Write { file, offset, bytes } => {
                write!(f, "write file {file} bytes {offset}..{}", offset + bytes.len() as u64)
            }
            Operation::SetLength { file, len } => write!(f, "set length of file {file} to {len}"),
            Operation::Reserve { file, len } => write!(f, "reserve {len} bytes of file {file}"),
            Operation::Link { name, file } => write!(f, "name {} file {file}", name.display()),
            Operation::Unlink { name } => write!(f, "remove {}", name.display()),
            Operation::Rename { from, to, file } => {
                write!(f, "rename {} to {} (file {file})", from.display(), to.display())
            }
            Operation::MakeDirectory { name } => write!(f, "make directory {}", name.display()),
            Operation::Sync { file, .. } => write!(f, "sync file {file}"),
            Operation::SyncBytes { file, offset, len, .. } => {
                write!(f, "sync file {file} bytes {offset}..{}", offset + len)
            }
            Operation::SyncFailed { file, .. } => write!(f, "sync file {file}: failed"),
            Operation::SyncDirectory { name, .. } => write!(f, "sync directory {}", name.display()),
            Operation::SyncDirectoryFailed { name, .. } => write!(f, "sync directory {}: failed", name.display()),
            Operation::Damage(operation) => write!(f, "damage: {operation}"),
        }
    }
}

/// The directory of a name; the root for the root.
pub(crate) fn parent_of(name: &Path) -> Name {
    name.parent().unwrap_or(name).into()
}

/// A path without its `.` parts.
pub(crate) fn clean(path: &Path) -> Name {
    let clean: PathBuf = path.components().filter(|part| *part != std::path::Component::CurDir).collect();
    clean.into()
}
