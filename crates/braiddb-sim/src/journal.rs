//! The operations of the disk, in order.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Number of a file, independent of its names. Never reused.
pub(crate) type FileIndex = u64;

pub(crate) type Name = Arc<Path>;

/// One change or sync. Reads are not journaled.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Write {
        file: FileIndex,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    SetLength {
        file: FileIndex,
        len: u64,
    },
    /// Reserves space and raises the length.
    Reserve {
        file: FileIndex,
        len: u64,
    },
    /// Gives a file its first or another name.
    Link {
        name: Name,
        file: FileIndex,
    },
    Unlink {
        name: Name,
    },
    /// Moves a name; replaces the file that had the new name.
    Rename {
        from: Name,
        to: Name,
        file: FileIndex,
    },
    MakeDirectory {
        name: Name,
    },
    /// Makes the file's operations before `upto` durable.
    Sync {
        file: FileIndex,
        upto: usize,
    },
    /// Makes the writes before `upto` durable that lie wholly within the pages of these bytes.
    SyncBytes {
        file: FileIndex,
        offset: u64,
        len: u64,
        upto: usize,
    },
    /// The file's operations before `upto` may be lost, even if a later sync succeeds.
    SyncFailed {
        file: FileIndex,
        upto: usize,
    },
    /// Makes the operations before `upto` on the directory's names durable.
    SyncDirectory {
        name: Name,
        upto: usize,
    },
    SyncDirectoryFailed {
        name: Name,
    },
    /// Damage from outside, durable at once.
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

pub(crate) fn parent_of(name: &Path) -> Name {
    name.parent().unwrap_or(name).into()
}

pub(crate) fn clean(path: &Path) -> Name {
    let clean: PathBuf = path.components().filter(|part| *part != std::path::Component::CurDir).collect();
    clean.into()
}
