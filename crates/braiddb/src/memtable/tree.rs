//! The ordered map as readers see it.
//!
//! A B+-tree with doubly linked leaves. One writer changes it (`writer.rs`); any number of threads
//! read without waiting.
//!
//! **Why readers may be on replaced nodes.** Let T be the moment when everything visible at a
//! reader's snapshot had been inserted; the commit pipeline publishes the snapshot after T. Claim:
//! *every leaf that the reader reaches was in the tree at some moment after T*, so it has
//! everything visible in its range.
//!
//! - A leaf found from the root: loads after T see all stores before T. A replaced node keeps its
//!   links of that moment, which led to nodes in the tree.
//! - A neighbour: by the same argument. Ranges fit without gap or overlap: a leaf's range begins
//!   where its predecessor's ends, whenever each was current. If a full leaf's range shrinks
//!   because a greater key got its own leaf, then only keys inserted after T have left it.

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

/// A tree whose nodes and entries belong to an arena that outlives it.
#[derive(Debug)]
pub(super) struct Tree {
    root: AtomicPtr<Node>,
}

impl Tree {
    /// # Safety
    /// The arena of all nodes stored in the tree outlives the tree.
    pub unsafe fn new(root: NodePtr<'_>) -> Tree {
        Tree { root: AtomicPtr::new(root.as_ptr()) }
    }

    pub fn root(&self) -> NodePtr<'_> {
        let root = NonNull::new(self.root.load(Acquire)).expect("a tree has a root");
        // SAFETY: stored from a `NodePtr` with Release; its arena outlives `self`.
        unsafe { NodePtr::new(root) }
    }

    pub fn set_root(&self, root: NodePtr<'_>) {
        self.root.store(root.as_ptr(), Release);
    }

    pub fn leaf_for(&self, key: &[u8]) -> NodePtr<'_> {
        let mut node = self.root();
        while let Some(inner) = node.inner() {
            node = inner.child_for(key).node;
        }
        node
    }

    pub fn first_leaf(&self) -> NodePtr<'_> {
        let mut node = self.root();
        while node.node().level() > 0 {
            node = node.node().before().expect("an inner node has a first child");
        }
        node
    }

    pub fn last_leaf(&self) -> NodePtr<'_> {
        let mut node = self.root();
        while let Some(inner) = node.inner() {
            node = inner.last_child().node;
        }
        node
    }

    pub fn newest(&self, key: &[u8]) -> Option<EntryPtr<'_>> {
        let leaf = self.leaf_for(key).node();
        leaf.find(key).map(|slot| leaf.key(slot))
    }
}
