//! Options of a watch: which changes it returns, and where it starts.

use super::{decode::Filter, token::ResumeToken};
use crate::{
    base::SequenceNumber,
    db::{
        engine::catalog::TreeState,
        handles::{multi::tree::MultiTree, tree::Tree},
    },
};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Start {
    #[default]
    Now,
    After(SequenceNumber),
    Resume(ResumeToken),
    Oldest,
}

/// Filter and start of a watcher: see [`crate::Db::watch`].
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    pub(super) filter: Filter,
    pub(super) tree: Option<Arc<TreeState>>,
    pub(super) start: Start,
    pub(super) is_unsynced: bool,
}

impl WatchOptions {
    /// Watches all trees for synced commits, from now on.
    pub fn new() -> WatchOptions {
        WatchOptions::default()
    }

    /// Watches only this tree, including its drop and renames.
    pub fn tree(self, tree: &Tree) -> WatchOptions {
        self.of_tree(tree.state())
    }

    /// Watches only this multi-tree.
    pub fn multi_tree(self, tree: &MultiTree) -> WatchOptions {
        self.of_tree(tree.state())
    }

    fn of_tree(self, tree: &Arc<TreeState>) -> WatchOptions {
        WatchOptions { tree: Some(Arc::clone(tree)), ..self.tree_id(tree.id.0) }
    }

    /// Watches only the tree of this number, which may have been dropped.
    pub fn tree_id(mut self, id: u32) -> WatchOptions {
        self.filter.tree = Some(id);
        self.tree = None;
        self
    }

    /// Watches only keys with this prefix; requires a tree. Clips deleted ranges to the prefix.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> WatchOptions {
        self.filter.prefix = prefix.as_ref().to_vec();
        self
    }

    /// Starts after this commit, for example that of a [`crate::Snapshot`] whose data were read.
    pub fn after(mut self, commit: SequenceNumber) -> WatchOptions {
        self.start = Start::After(commit);
        self
    }

    /// Starts at the position of another watcher of this database, in any process.
    pub fn resume(mut self, token: ResumeToken) -> WatchOptions {
        self.start = Start::Resume(token);
        self
    }

    /// Starts at the first commit in the log.
    pub fn from_oldest(mut self) -> WatchOptions {
        self.start = Start::Oldest;
        self
    }

    /// If true, returns commits once they are visible, before they are synced, and never syncs the
    /// log. A crash of the system may take them back; the token is then refused.
    pub fn unsynced(mut self, unsynced: bool) -> WatchOptions {
        self.is_unsynced = unsynced;
        self
    }
}
