//! Streams of a process that another process writes, and commits with the other writes.
//!
//! The applying process has the value in blob files and returns its entry. The preparing process puts
//! the entry into its commit, and reads the value from the files. The applying process accepts no
//! other references to blob files.

use super::handle::Transaction;
use crate::{
    base::{Content, EntryKind, Error, Result, TreeId},
    db::{
        engine::key::KeyBuf,
        handles::{batch::Batch, database::Db, expiry, streams::writer::StreamWriter, tree::Tree},
        write::{pending_blobs::PendingBlobs, piece_writer::Placed},
    },
    table::blob::Pieces,
};
use std::sync::Arc;

/// A value in blob files, for a later commit of another process.
#[derive(Debug)]
pub struct ForwardedStream {
    key: KeyBuf,
    placed: Placed,
    pending: Arc<PendingBlobs>,
}

impl ForwardedStream {
    /// Returns the entry, without an expiry time.
    pub fn placed(&self) -> &Placed {
        &self.placed
    }

    /// Returns the bytes in memory.
    pub fn size_bytes(&self) -> usize {
        self.key.len() + self.placed.value.len()
    }

    pub(super) fn pending_of(&self, key: &[u8], kind: EntryKind, value: &[u8]) -> Option<(u64, &Arc<PendingBlobs>)> {
        let is_it = *self.key == *key && self.placed.kind == kind && self.placed.value == value;
        is_it.then_some((self.placed.len, &self.pending))
    }
}

impl StreamWriter {
    /// Ends the value, for a commit of another process.
    pub(crate) fn finish_forwarded(self) -> Result<ForwardedStream> {
        let (key, placed, pending) = self.into_placed()?;
        Ok(ForwardedStream { key, placed, pending: Arc::new(pending) })
    }
}

impl Transaction {
    /// Sets a value that the committing process has in blob files.
    pub(crate) fn put_placed_elsewhere(&self, tree: &Tree, key: &[u8], placed: Placed) -> Result<()> {
        self.check_tree(tree.db(), tree.state())?;
        let engine = self.db().engine();
        let content = Content { kind: placed.kind, value: &placed.value, expires_us: None };
        for piece in Pieces::of(&content).iter().flat_map(|pieces| &pieces.list) {
            // A file that is open already may be longer now.
            let opened = engine.storage.blobs.file(piece.file).and_then(|file| file.catch_up());
            opened.map_err(|e| Error::conflict(format!("the owner that has the stream has ended: {e}")))?;
        }
        let placed = placed.expiring(expiry::default_expiry(engine, tree.state()));
        self.write_placed(tree, &KeyBuf::of(tree.state(), key)?, placed, PendingBlobs::new(engine))
    }
}

impl Batch {
    /// Sets a value that the committing process has in blob files.
    pub(crate) fn put_placed_elsewhere(&mut self, tree: &Tree, key: &[u8], placed: Placed) {
        let engine = tree.db().engine();
        let placed = placed.expiring(expiry::default_expiry(engine, tree.state()));
        self.push_placed(tree, key, &placed, Arc::new(PendingBlobs::new(engine)));
    }
}

impl Db {
    /// Returns a tree that keeps one value per key, by its number.
    pub(crate) fn tree_numbered(&self, id: TreeId) -> Result<Tree> {
        let found = self.engine().catalog.by_name.read().values().find(|tree| tree.id == id).cloned();
        let tree = found.ok_or_else(|| Error::NotFound(format!("the tree number {} was dropped", id.0)))?;
        if tree.multi {
            return Err(Error::InvalidArgument("a multi-tree has no streams".to_owned()));
        }
        Tree::new(self, tree)
    }

    /// Returns the maximum bytes of a transaction's writes.
    pub(crate) fn transaction_bytes_max(&self) -> usize {
        self.engine().settings.transaction_bytes_max()
    }
}
