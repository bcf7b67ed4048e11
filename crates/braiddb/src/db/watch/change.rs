//! What a watcher is shown.

use super::token::ResumeToken;
use crate::{
    base::{Error, Result, SequenceNumber},
    db::{
        engine::{root::Engine, settings::TreeOptions},
        record::version::Version,
        write::pending_blobs::PendingBlobs,
    },
    platform::SystemTime,
    table::blob::Pieces,
};
use std::{io::Write, path::PathBuf, sync::Arc};

/// A commit: all that it changed, as far as the watcher asked for it. What a commit changes is always shown together.
#[derive(Debug)]
#[non_exhaustive]
pub struct ChangeSet {
    /// Its sequence number, greater than those of all before it.
    pub sequence: SequenceNumber,
    /// The version that the records have which it wrote.
    pub version: Version,
    /// About when it was committed, by the system's clock; commits of one group have the same time. `None` for a gap of which nothing
    /// is known but that it is there.
    pub time: Option<SystemTime>,
    /// What it did, in order: first ranges of keys that it deleted, then single keys, in the order of trees and keys. Of several
    /// writes to one key in a commit the last is shown.
    pub changes: Vec<Change>,
    /// To go on after it.
    pub token: ResumeToken,
}

/// A tree in a change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChangedTree {
    /// Its number, which no other tree ever has.
    pub id: u32,
    /// Its name, as the watcher knows it: as of the change if a change of the name was seen, else the present one. `None` if it was dropped and neither is known.
    pub name: Option<Arc<str>>,
}

/// What a commit did.
#[derive(Debug)]
#[non_exhaustive]
pub enum Change {
    /// A key got a value.
    Put {
        /// The tree.
        tree: ChangedTree,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// When the value expires, by the wall clock as it is now; no other change tells of that.
        expires: Option<SystemTime>,
    },
    /// A key got a value that was written as a stream: it may be longer than memory.
    PutStream {
        /// The tree.
        tree: ChangedTree,
        /// The key.
        key: Vec<u8>,
        /// The value.
        stream: LoggedStream,
        /// When it expires.
        expires: Option<SystemTime>,
    },
    /// A key was deleted; it may not have been there.
    Delete {
        /// The tree.
        tree: ChangedTree,
        /// The key.
        key: Vec<u8>,
    },
    /// All keys from `start` up to `end`, which is not among them, were deleted; but not those that the same commit wrote.
    DeleteRange {
        /// The tree.
        tree: ChangedTree,
        /// The first key.
        start: Vec<u8>,
        /// The first key past it; `None`: to the end of the tree.
        end: Option<Vec<u8>>,
    },
    /// Merge functions were used on a key's value.
    Merge {
        /// The tree.
        tree: ChangedTree,
        /// The key.
        key: Vec<u8>,
        /// On what.
        base: MergeBase,
        /// Which, and by what, in order.
        operands: Vec<MergeOperand>,
    },
    /// A value was added to those of a key, in a tree of many values.
    Add {
        /// The tree.
        tree: ChangedTree,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// A value was taken from those of a key; it may not have been there.
    Remove {
        /// The tree.
        tree: ChangedTree,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// All values of a key were taken away; but not those that the same commit added.
    RemoveAll {
        /// The tree.
        tree: ChangedTree,
        /// The key.
        key: Vec<u8>,
    },
    /// A tree was created.
    CreateTree {
        /// The tree.
        tree: ChangedTree,
        /// Whether it keeps many values to a key.
        multi: bool,
    },
    /// A tree was dropped with all that was in it.
    DropTree {
        /// The tree.
        tree: ChangedTree,
    },
    /// A tree got other options: see [`crate::Tree::set_options`].
    SetTreeOptions {
        /// The tree.
        tree: ChangedTree,
        /// All its options from then on.
        options: TreeOptions,
    },
    /// A tree got another name.
    RenameTree {
        /// The tree, by its new name.
        tree: ChangedTree,
        /// The name before.
        from: String,
    },
    /// The application's cursor was set. Shown to those who watch all trees.
    ApplicationCursor {
        /// The cursor.
        cursor: Vec<u8>,
    },
    /// Something was changed that the log does not tell. Whoever follows must read it anew, from a snapshot taken after this was shown.
    Gap(Gap),
}

/// What the log does not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gap {
    /// Anything, anywhere, by all commits after the last one that was shown up to this one: they did not go to the log
    /// ([`crate::Durability::None`]), or the log lost them in a crash though they were flushed.
    Commits {
        /// The last of them.
        up_to: SequenceNumber,
    },
    /// The contents of a range of keys, which came or went as a whole and past the log, by a bulk load for instance.
    Range {
        /// The tree.
        tree: ChangedTree,
        /// The first key.
        start: Vec<u8>,
        /// The first key past it; `None`: to the end of the tree.
        end: Option<Vec<u8>>,
    },
}

/// What merge functions were used on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeBase {
    /// The value that the key had before the commit, if any.
    Stored,
    /// No value: the same commit deleted the key before.
    Nothing,
    /// A value that the same commit put before.
    Value(Vec<u8>),
}

/// A use of a merge function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeOperand {
    /// The function's name.
    pub function: String,
    /// What it was given.
    pub operand: Vec<u8>,
}

/// A value that stands in pieces in blob files, which stay as long as this is there.
#[derive(Debug)]
pub struct LoggedStream {
    pub(super) engine: Arc<Engine>,
    pub(super) pieces: Pieces,
    /// Keeps the files.
    pub(super) _files: PendingBlobs,
}

impl LoggedStream {
    /// The value's length in bytes.
    pub fn len(&self) -> u64 {
        self.pieces.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the value to `out`, a part at a time, checked; how many bytes. `Closed` once the database is.
    pub fn copy_to(&self, out: &mut impl Write) -> Result<u64> {
        for piece in &self.pieces.list {
            self.engine.check_open()?;
            let mut written = Ok(());
            self.engine.blobs.file(piece.file)?.read_streaming(piece, &mut |bytes| {
                if written.is_ok() {
                    written = out.write_all(bytes);
                }
            })?;
            written.map_err(|e| Error::io("copy a value to", PathBuf::from("its reader"), e))?;
        }
        Ok(self.len())
    }
}

impl Change {
    /// The tree that it is about, if it is about one.
    pub fn tree(&self) -> Option<&ChangedTree> {
        match self {
            Change::Put { tree, .. }
            | Change::PutStream { tree, .. }
            | Change::Delete { tree, .. }
            | Change::DeleteRange { tree, .. }
            | Change::Merge { tree, .. }
            | Change::Add { tree, .. }
            | Change::Remove { tree, .. }
            | Change::RemoveAll { tree, .. }
            | Change::CreateTree { tree, .. }
            | Change::DropTree { tree }
            | Change::SetTreeOptions { tree, .. }
            | Change::RenameTree { tree, .. }
            | Change::Gap(Gap::Range { tree, .. }) => Some(tree),
            Change::ApplicationCursor { .. } | Change::Gap(Gap::Commits { .. }) => None,
        }
    }
}
