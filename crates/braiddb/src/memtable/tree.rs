//! The ordered map as readers see it.
//!
//! A B+-tree whose leaves are linked both ways. One writer changes it (`writer.rs`), any number of threads read it
//! without waiting; `node.rs` tells how a single node is changed under them.
//!
//! **Why readers may stand on replaced nodes.** A reader works at a snapshot: it may only be made after every entry at or
//! below that snapshot has been inserted, as the commit pipeline publishes a sequence number only then. Call
//! that moment T. The claim: *every leaf that the reader reaches was in the tree at some moment after T*, and so holds
//! all that the reader may see in the leaf's range. It holds for a leaf found from the root, since loads after T
//! see at least what was stored before T, a replaced node keeps the links it had when it was replaced, and those led to
//! nodes that were in the tree then. It holds for a neighbour by the same argument. Ranges fit without gap or
//! overlap: a leaf's range begins where that of its neighbour in front ends, whenever each of them was current; when a
//! leaf's range shrinks without its being replaced (it was full, and a greater key got a leaf of its own), only keys
//! that were inserted after T have left it.

use super::{
    entry::EntryPtr,
    node::{Node, NodePtr},
};
use std::{
    ptr::NonNull,
    sync::atomic::{
        AtomicPtr,
        Ordering::{Acquire, Release},
    },
};

/// The root. Nodes and entries belong to an arena that outlives it.
#[derive(Debug)]
pub(super) struct Tree {
    root: AtomicPtr<Node>,
}

impl Tree {
    /// A tree of one leaf.
    ///
    /// # Safety
    /// The arena of `root`, and of all nodes that will be stored in the tree, outlives the tree.
    pub unsafe fn new(root: NodePtr<'_>) -> Tree {
        Tree { root: AtomicPtr::new(root.as_ptr()) }
    }

    /// The root as it is now.
    pub fn root(&self) -> NodePtr<'_> {
        let root = NonNull::new(self.root.load(Acquire)).expect("a tree has a root");
        // SAFETY: stored from a `NodePtr` with Release; its arena outlives `self`.
        unsafe { NodePtr::new(root) }
    }

    /// Puts a node above the root. Writer only.
    pub fn set_root(&self, root: NodePtr<'_>) {
        self.root.store(root.as_ptr(), Release);
    }

    /// The leaf whose range holds `key`.
    pub fn leaf_for(&self, key: &[u8]) -> NodePtr<'_> {
        let mut node = self.root();
        while let Some(inner) = node.inner() {
            node = inner.child_for(key).node;
        }
        node
    }

    /// The leaf of the least keys.
    pub fn first_leaf(&self) -> NodePtr<'_> {
        let mut node = self.root();
        while node.node().level() > 0 {
            node = node.node().before().expect("an inner node has a first child");
        }
        node
    }

    /// The leaf of the greatest keys.
    pub fn last_leaf(&self) -> NodePtr<'_> {
        let mut node = self.root();
        while let Some(inner) = node.inner() {
            node = inner.last_child().node;
        }
        node
    }

    /// The newest version of `key`.
    pub fn newest(&self, key: &[u8]) -> Option<EntryPtr<'_>> {
        let leaf = self.leaf_for(key).node();
        leaf.find(key).map(|slot| leaf.key(slot))
    }
}
