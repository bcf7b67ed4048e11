//! Insertion into the tree, by one thread at a time.
//!
//! The writer remembers its leaf, with path and bounds. After two inserts into the same leaf, the
//! next one tries that leaf first. Ascending keys are inserted without a descent.
//!
//! A full node that was filled in ascending order is not halved: the next greater key begins a new
//! one.

use super::{
    arena::{Arena, Kind},
    entry::EntryPtr,
    node::{HeadChoice, Inner, Node, NodePtr, Place},
    search::{NODE_KEYS, head},
    tree::Tree,
};
use crate::base::{EntryRef, shared_prefix_len};
use std::{alloc::Layout, array, ops::Range};

/// A node that grows at its end learns a prefix shorter by this, since later keys share less.
const GROWTH_BYTES: usize = 2;

/// An inner node learns a prefix only if it is this much longer than the guaranteed one.
const INNER_PREFIX_GAIN: usize = 3;

#[derive(Debug)]
struct Step {
    inner: NodePtr<'static>,
    rank: usize,
    bounds: Bounds,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    low: Option<EntryPtr<'static>>,
    high: Option<EntryPtr<'static>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    Key,
    Version,
    Again,
}

/// Pointers are `'static` because they point into its own arena; none leaves this module as such.
#[derive(Debug)]
pub(super) struct TreeWriter {
    arena: Arena,
    path: Vec<Step>,
    leaf: Option<NodePtr<'static>>,
    bounds: Bounds,
    repeated: bool,
    greatest: Option<EntryPtr<'static>>,
}

impl TreeWriter {
    /// # Safety
    /// The tree is dropped no later than the writer, and the writer inserts into no other tree.
    pub unsafe fn new(arena: Arena) -> (TreeWriter, Tree) {
        let mut writer = TreeWriter {
            arena,
            path: Vec::new(),
            leaf: None,
            bounds: Bounds::default(),
            repeated: false,
            greatest: None,
        };
        let root = writer.add_leaf(Node::new(0, HeadChoice { guaranteed: 0, prefix: 0 }));
        // SAFETY: the arena is the writer's, and the caller keeps the writer as long as the tree.
        let tree = unsafe { Tree::new(root) };
        (writer, tree)
    }

    pub fn reserved_bytes(&self) -> usize {
        self.arena.reserved_bytes()
    }

    pub fn used_bytes(&self) -> usize {
        self.arena.used_bytes()
    }

    /// Inserts a version. Calls `before_new` before a new key becomes visible.
    pub fn insert(&mut self, tree: &Tree, entry: EntryRef<'_>, before_new: impl FnOnce()) -> Inserted {
        let behind = self.leaf.filter(|_| self.is_behind_greatest(entry.key));
        let leaf = behind.unwrap_or_else(|| self.locate(tree, entry.key));
        let node = leaf.node();
        let count = node.count();
        self.greatest = None;
        match if behind.is_some() { Place::Absent(count) } else { node.place(entry.key, count) } {
            Place::Found(slot) => {
                let newest = node.key(slot);
                assert!(newest.sequence() <= entry.sequence, "the sequence numbers of a key grow");
                let again = newest.sequence() == entry.sequence;
                let older = if again { newest.older() } else { Some(newest) };
                let version = self.add_entry(entry, older);
                node.set_version(slot, version);
                if again { Inserted::Again } else { Inserted::Version }
            }
            Place::Absent(rank) => {
                let entry = self.add_entry(entry, None);
                before_new();
                if count < NODE_KEYS {
                    node.append(rank, entry);
                    self.greatest = Some(entry).filter(|_| rank == count);
                } else if rank == NODE_KEYS && node.is_ascending() {
                    self.extend(tree, leaf, entry);
                } else {
                    self.split(tree, leaf, rank, entry);
                }
                Inserted::Key
            }
        }
    }

    fn is_behind_greatest(&self, key: &[u8]) -> bool {
        self.greatest.is_some_and(|greatest| greatest.key() < key)
            && self.bounds.high.is_none_or(|high| key < high.key())
    }

    fn locate(&mut self, tree: &Tree, key: &[u8]) -> NodePtr<'static> {
        if let Some(leaf) = self.leaf
            && self.repeated
            && self.bounds.low.is_none_or(|low| low.key() <= key)
            && self.bounds.high.is_none_or(|high| key < high.key())
        {
            return leaf;
        }
        self.path.clear();
        let mut bounds = Bounds::default();
        // SAFETY: all nodes and entries of the tree are in the arena, which lives as long as the
        // writer.
        let mut node = unsafe { tree.root().extend::<'static>() };
        while let Some(inner) = node.inner() {
            let child = inner.child_for(key);
            self.path.push(Step { inner: node, rank: child.rank, bounds });
            if let Some(before) = child.rank.checked_sub(1) {
                bounds.low = inner.separator(before);
            }
            bounds.high = inner.separator(child.rank).or(bounds.high);
            node = child.node;
        }
        self.repeated = self.leaf == Some(node);
        self.leaf = Some(node);
        self.bounds = bounds;
        node
    }

    /// Gives a key beyond a full leaf a new leaf; the full leaf stays.
    fn extend(&mut self, tree: &Tree, leaf: NodePtr<'static>, entry: EntryPtr<'static>) {
        let (low, high) = (Some(entry), self.bounds.high);
        let mut choice = guaranteed(Bounds { low, high });
        let least = leaf.node().key(usize::from(leaf.node().order(NODE_KEYS)[0])).key();
        if head(least, choice.guaranteed) == head(entry.key(), choice.guaranteed) {
            choice.prefix = learned(least, entry.key(), GROWTH_BYTES, choice.guaranteed);
        }
        let right = self.add_leaf(Node::with_keys(0, choice, &[entry]));
        let after = leaf.node().after();
        right.node().set_before(Some(leaf));
        right.node().set_after(after);
        leaf.node().set_after(Some(right));
        if let Some(after) = after {
            after.node().set_before(Some(right));
        }
        self.insert_above(tree, leaf, None, entry, right);
    }

    fn split(&mut self, tree: &Tree, leaf: NodePtr<'static>, rank: usize, entry: EntryPtr<'static>) {
        let old = leaf.node();
        let order = old.order(NODE_KEYS);
        let slot_of = |at: usize| usize::from(order[at - usize::from(at > rank)]);
        let key_of = |at: usize| if at == rank { entry } else { old.key(slot_of(at)) };
        let keys: [_; NODE_KEYS + 1] = array::from_fn(key_of);
        let heads: Option<(usize, [i64; NODE_KEYS + 1])> = old.plain_prefix().map(|prefix| {
            let head_of = |at| if at == rank { head(entry.key(), prefix) } else { old.head_at(slot_of(at)) };
            (prefix, array::from_fn(head_of))
        });
        let known = |range: Range<usize>| heads.as_ref().map(|(prefix, heads)| (*prefix, &heads[range]));
        let middle = keys.len() / 2;
        let (lower, upper) = keys.split_at(middle);
        let separator = upper[0];
        let Bounds { low, high } = self.bounds;
        let left = leaf_of(Bounds { low, high: Some(separator) }, lower, known(0..middle));
        let right = leaf_of(Bounds { low: Some(separator), high }, upper, known(middle..keys.len()));
        let (left, right) = (self.add_leaf(left), self.add_leaf(right));
        let (before, after) = (old.before(), old.after());
        left.node().set_before(before);
        left.node().set_after(Some(right));
        right.node().set_before(Some(left));
        right.node().set_after(after);
        if let Some(before) = before {
            before.node().set_after(Some(left));
        }
        if let Some(after) = after {
            after.node().set_before(Some(right));
        }
        self.insert_above(tree, leaf, Some(left), separator, right);
    }

    fn insert_above(
        &mut self,
        tree: &Tree,
        mut old: NodePtr<'static>,
        mut replacement: Option<NodePtr<'static>>,
        mut separator: EntryPtr<'static>,
        mut right: NodePtr<'static>,
    ) {
        self.leaf = None;
        while let Some(Step { inner: pointer, rank, bounds }) = self.path.pop() {
            let inner = pointer.inner().expect("a path has inner nodes");
            let count = inner.node().count();
            if count < NODE_KEYS {
                if let (0, Some(low)) = (count, bounds.low) {
                    inner.learn_prefix(learned(low.key(), separator.key(), GROWTH_BYTES, inner.guaranteed()));
                }
                inner.append(rank, separator, right);
                if let Some(replacement) = replacement {
                    inner.replace_child(rank, replacement);
                }
                return;
            }
            old = pointer;
            // A replacement must be in the same node as its right half, so this node cannot stay.
            if rank == NODE_KEYS && replacement.is_none() && inner.node().is_ascending() {
                let choice = guaranteed(Bounds { low: Some(separator), high: bounds.high });
                right = self.add_inner(Inner::new(inner.node().level(), choice, right, &[], &[]));
                continue;
            }
            let halves = self.split_inner(inner, rank, bounds, replacement, separator, right);
            replacement = Some(halves.0);
            (separator, right) = (halves.1, halves.2);
        }
        let first = replacement.unwrap_or(old);
        let least = first.node().key(usize::from(first.node().order(first.node().count())[0])).key();
        let greatest = greatest_key(right).unwrap_or(separator).key();
        let choice = HeadChoice { guaranteed: 0, prefix: learned(least, greatest, GROWTH_BYTES, 0) };
        let root = Inner::new(first.node().level() + 1, choice, first, &[separator], &[right]);
        let root = self.add_inner(root);
        tree.set_root(root);
    }

    fn split_inner(
        &mut self,
        inner: &'static Inner,
        rank: usize,
        bounds: Bounds,
        replacement: Option<NodePtr<'static>>,
        separator: EntryPtr<'static>,
        right: NodePtr<'static>,
    ) -> (NodePtr<'static>, EntryPtr<'static>, NodePtr<'static>) {
        let mut separators: Vec<_> = (0..NODE_KEYS).filter_map(|rank| inner.separator(rank)).collect();
        let mut children: Vec<_> = (0..=NODE_KEYS).map(|rank| inner.child(rank)).collect();
        if let Some(replacement) = replacement {
            children[rank] = replacement;
        }
        separators.insert(rank, separator);
        children.insert(rank + 1, right);
        let middle = separators.len() / 2;
        let (lower, upper) = (&separators[..middle], &separators[middle + 1..]);
        let separator = separators[middle];
        let level = inner.node().level();
        let left_choice = choose_for_inner(Bounds { low: bounds.low, high: Some(separator) }, lower);
        let left = Inner::new(level, left_choice, children[0], lower, &children[1..=middle]);
        let right_choice = choose_for_inner(Bounds { low: Some(separator), high: bounds.high }, upper);
        let right = Inner::new(level, right_choice, children[middle + 1], upper, &children[middle + 2..]);
        (self.add_inner(left), separator, self.add_inner(right))
    }

    fn add_entry(&mut self, entry: EntryRef<'_>, older: Option<EntryPtr<'static>>) -> EntryPtr<'static> {
        // SAFETY: the arena lives as long as the writer, which keeps the pointer.
        unsafe { EntryPtr::write(&mut self.arena, entry, older) }
    }

    fn add_leaf(&mut self, leaf: Node) -> NodePtr<'static> {
        debug_assert_eq!(leaf.level(), 0);
        let piece = self.arena.allocate(Kind::Node, Layout::new::<Node>()).cast::<Node>();
        // SAFETY: fresh memory of this layout, in an arena that lives as long as the writer.
        unsafe {
            piece.write(leaf);
            NodePtr::new(piece)
        }
    }

    fn add_inner(&mut self, inner: Inner) -> NodePtr<'static> {
        debug_assert!(inner.node().level() > 0);
        let piece = self.arena.allocate(Kind::Node, Layout::new::<Inner>()).cast::<Inner>();
        // SAFETY: fresh memory of this layout, in an arena that lives as long as the writer; an
        // inner node begins with a node, and its level is not zero.
        unsafe {
            piece.write(inner);
            NodePtr::new(piece.cast())
        }
    }
}

fn greatest_key(node: NodePtr<'_>) -> Option<EntryPtr<'_>> {
    let count = node.node().count();
    let last = count.checked_sub(1)?;
    Some(node.node().key(usize::from(node.node().order(count)[last])))
}

fn guaranteed(bounds: Bounds) -> HeadChoice {
    let shared = match (bounds.low, bounds.high) {
        (Some(low), Some(high)) => shared_prefix_len(low.key(), high.key()),
        _ => 0,
    };
    HeadChoice { guaranteed: shared, prefix: shared }
}

/// `known` are heads and their offset, if the old leaf had no learned prefix: no key may be read.
fn leaf_of(bounds: Bounds, keys: &[EntryPtr<'_>], known: Option<(usize, &[i64])>) -> Node {
    let choice = guaranteed(bounds);
    match known {
        Some((prefix, heads)) if prefix == choice.prefix && heads.windows(2).all(|pair| pair[0] != pair[1]) => {
            Node::with_heads(0, choice, keys, heads)
        }
        _ => Node::with_keys(0, choose_for_leaf(bounds, keys), keys),
    }
}

/// Learns a prefix only if heads would tie otherwise, and a search read another entry.
fn choose_for_leaf(bounds: Bounds, keys: &[EntryPtr<'_>]) -> HeadChoice {
    let mut choice = guaranteed(bounds);
    let heads =
        |pair: &[EntryPtr<'_>]| head(pair[0].key(), choice.guaranteed) == head(pair[1].key(), choice.guaranteed);
    if let [first, .., last] = keys
        && keys.windows(2).any(heads)
    {
        choice.prefix = learned(first.key(), last.key(), 0, choice.guaranteed);
    }
    choice
}

/// Chooses the head of an inner node: skips the common prefix of its separators if that is long
/// enough to pay. Inner nodes live long.
fn choose_for_inner(bounds: Bounds, separators: &[EntryPtr<'_>]) -> HeadChoice {
    let mut choice = guaranteed(bounds);
    if let [first, .., last] = separators {
        let prefix = learned(first.key(), last.key(), 0, choice.guaranteed);
        if prefix >= choice.guaranteed + INNER_PREFIX_GAIN {
            choice.prefix = prefix;
        }
    }
    choice
}

/// Returns a prefix length: at most the bytes that `first` and `last` share less `spare`, no longer
/// than heads need to reach the end of `last`, and at least `least`.
fn learned(first: &[u8], last: &[u8], spare: usize, least: usize) -> usize {
    let shared = shared_prefix_len(first, last).saturating_sub(spare);
    shared.min(last.len().saturating_sub(8)).max(least)
}
