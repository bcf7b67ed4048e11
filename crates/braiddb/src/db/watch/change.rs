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

/// The changes of one commit that match the watcher's filter.
#[derive(Debug)]
#[non_exhaustive]
pub struct ChangeSet {
    /// The sequence number of the commit, greater than all earlier ones.
    pub sequence: SequenceNumber,
    /// The version of the records that the commit wrote.
    pub version: Version,
    /// Approximate commit time by the system's clock, equal within a commit group. `None` for a gap
    /// of unknown time.
    pub time: Option<SystemTime>,
    /// Range deletes first, then single keys in order of tree and key. Only the last write to a key
    /// in the commit appears.
    pub changes: Vec<Change>,
    /// Resumes after this commit.
    pub token: ResumeToken,
}

/// The tree of a change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChangedTree {
    /// Its number, unique forever.
    pub id: u32,
    /// Its name right after the commit. `None` if it is unknown because the tree was dropped.
    pub name: Option<Arc<str>>,
}

/// A change made by a commit.
#[derive(Debug)]
#[non_exhaustive]
pub enum Change {
    /// A key was set to a value.
    Put {
        /// The tree.
        tree: ChangedTree,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// When the value expires, by the present wall clock.
        expires: Option<SystemTime>,
    },
    /// A key was set to a value written as a stream, possibly larger than memory.
    PutStream {
        /// The tree.
        tree: ChangedTree,
        /// The key.
        key: Vec<u8>,
        /// The value.
        stream: LoggedStream,
        /// When the value expires.
        expires: Option<SystemTime>,
    },
    /// A key was deleted; it may not have existed. In a multi-tree, with all its values except those
    /// that the same commit added.
    Delete {
        /// The tree.
        tree: ChangedTree,
        /// The key.
        key: Vec<u8>,
    },
    /// All keys from `start` up to `end` (exclusive) were deleted, except those that the same
    /// commit wrote.
    DeleteRange {
        /// The tree.
        tree: ChangedTree,
        /// The first key.
        start: Vec<u8>,
        /// The exclusive end; `None`: to the end of the tree.
        end: Option<Vec<u8>>,
    },
    /// Merge functions were applied to a key's value.
    Merge {
        /// The tree.
        tree: ChangedTree,
        /// The key.
        key: Vec<u8>,
        /// The base of the operands.
        base: MergeBase,
        /// The operands, in order.
        operands: Vec<MergeOperand>,
    },
    /// A value was added to a key of a multi-tree.
    Add {
        /// The tree.
        tree: ChangedTree,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// A value of a key was deleted; it may not have existed.
    DeletePair {
        /// The tree.
        tree: ChangedTree,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// A tree was created.
    CreateTree {
        /// The tree.
        tree: ChangedTree,
        /// Whether it is a multi-tree.
        multi: bool,
        /// Its options, with the names of its encodings.
        options: TreeOptions,
    },
    /// A tree and its contents were dropped.
    DropTree {
        /// The tree.
        tree: ChangedTree,
    },
    /// A tree's options changed: see [`crate::Tree::set_options`].
    SetTreeOptions {
        /// The tree.
        tree: ChangedTree,
        /// All its options after the change.
        options: TreeOptions,
    },
    /// A tree was renamed.
    RenameTree {
        /// The tree, with its new name.
        tree: ChangedTree,
        /// The previous name.
        from: String,
    },
    /// The application's cursor was set. Only for watchers of all trees.
    ApplicationCursor {
        /// The cursor.
        cursor: Vec<u8>,
    },
    /// Changes missing in the log. A follower must read the data again, from a snapshot taken after
    /// this was returned.
    Gap(Gap),
}

/// Changes missing in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gap {
    /// Unknown changes by all commits after the last returned one, up to this one: commits without
    /// WAL ([`crate::Durability::None`]), or flushed ones that a crash took from the log.
    Commits {
        /// The last of these commits.
        up_to: SequenceNumber,
    },
    /// A key range whose contents changed as a whole without WAL, for example by a bulk load.
    Range {
        /// The tree.
        tree: ChangedTree,
        /// The first key.
        start: Vec<u8>,
        /// The exclusive end; `None`: to the end of the tree.
        end: Option<Vec<u8>>,
    },
}

/// The base of merge operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeBase {
    /// The value before the commit, if any.
    Stored,
    /// No value: the same commit deleted the key first.
    Nothing,
    /// A value that the same commit put first.
    Value(Vec<u8>),
}

/// One application of a merge function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeOperand {
    /// The function's name.
    pub function: String,
    /// The operand.
    pub operand: Vec<u8>,
}

/// A value in blob files. It pins the files.
#[derive(Debug)]
pub struct LoggedStream {
    pub(super) engine: Arc<Engine>,
    pub(super) pieces: Pieces,
    pub(super) _files: PendingBlobs,
}

impl LoggedStream {
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.pieces.len()
    }

    /// Returns whether the value is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the value to `out` in parts, verifies its checksums, and returns its length. `Closed`
    /// once the database is closed.
    pub fn copy_to(&self, out: &mut impl Write) -> Result<u64> {
        for piece in &self.pieces.list {
            self.engine.health.check_open()?;
            let mut written = Ok(());
            self.engine.storage.blobs.file(piece.file)?.read_streaming(piece, &mut |bytes| {
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
    /// Returns the tree of the change, if it concerns one.
    pub fn tree(&self) -> Option<&ChangedTree> {
        match self {
            Change::Put { tree, .. }
            | Change::PutStream { tree, .. }
            | Change::Delete { tree, .. }
            | Change::DeleteRange { tree, .. }
            | Change::Merge { tree, .. }
            | Change::Add { tree, .. }
            | Change::DeletePair { tree, .. }
            | Change::CreateTree { tree, .. }
            | Change::DropTree { tree }
            | Change::SetTreeOptions { tree, .. }
            | Change::RenameTree { tree, .. }
            | Change::Gap(Gap::Range { tree, .. }) => Some(tree),
            Change::ApplicationCursor { .. } | Change::Gap(Gap::Commits { .. }) => None,
        }
    }
}
