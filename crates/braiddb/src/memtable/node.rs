//! Nodes of the tree, which readers see while one writer changes them.
//!
//! ```text
//! bytes  fields of a node, on cache lines
//!    32  count u32 | level u8 | sorted u8 | guaranteed u32 | prefix u32 | before, after: pointers
//!   544  positions 32 x u8 | heads 32 x i64 | keys 32 x pointer to entry
//!        only in an inner node:
//!   320  orders 2 x 32 x u8 | children 32 x pointer to node
//! ```
//!
//! **Slots are a log.** To add a key, the writer fills the next free slot and then publishes
//! `count`. Head and position of a published slot never change; the key pointer of a leaf is only
//! replaced by a newer version of the same key. So a loaded `count` gives a consistent node,
//! without locks or retries.
//!
//! A leaf does not store the sorted order: cursors and splits reconstruct it from `positions`, the
//! rank at which each slot was inserted. The first `sorted` slots were in order when the node was
//! made. An inner node needs its order on every descent: version `count` of the order is in
//! `orders[count % 2]`, so the next version is written beside the current one.
//!
//! **Full nodes are replaced.** A split makes two new nodes and never changes the old one again. A
//! reader on the old node still finds every entry inserted before the split, and so every entry
//! visible to it (`tree.rs`).
//!
//! **Heads** are taken after the first `prefix` bytes. All keys routed to the node share its first
//! `guaranteed` bytes, because its bounds do. If heads would tie there, a longer prefix is learned
//! from the present keys; a key without that prefix gets the least or the greatest head.

use super::{
    entry::{EntryHeader, EntryPtr},
    search::{self, Heads, Matches, NODE_KEYS, head},
};
use std::{
    array,
    cmp::Ordering as Compare,
    marker::PhantomData,
    ptr::{NonNull, null_mut},
    sync::atomic::{
        AtomicI64, AtomicPtr, AtomicU8, AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// Maximum tied heads compared one by one; more are searched in binary.
const LINEAR_TIES: u32 = 4;

#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Node {
    count: AtomicU32,
    level: u8,
    sorted: u8,
    guaranteed: u32,
    /// At least `guaranteed`; constant once the first slot is published.
    prefix: AtomicU32,
    /// Leaf: the previous leaf. Inner node: the child left of all separators.
    before: AtomicPtr<Node>,
    after: AtomicPtr<Node>,
    positions: [AtomicU8; NODE_KEYS],
    heads: Heads,
    /// Leaf: the newest version of each key. Inner node: an entry with the separator as key, the
    /// least possible key of the slot's child.
    keys: [AtomicPtr<EntryHeader>; NODE_KEYS],
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct Inner {
    node: Node,
    orders: [[AtomicU8; NODE_KEYS]; 2],
    children: [AtomicPtr<Node>; NODE_KEYS],
}

#[derive(Clone, Copy, Debug)]
pub(super) struct HeadChoice {
    /// Length of the prefix that all keys routed to the node share.
    pub guaranteed: usize,
    /// Offset of the heads in the keys.
    pub prefix: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Found(usize),
    /// This many keys are less.
    Absent(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Child<'a> {
    pub node: NodePtr<'a>,
    pub rank: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodePtr<'a>(NonNull<Node>, PhantomData<&'a Node>);

// SAFETY: a `NodePtr` is a shared reference, and all mutable parts of a node are atomic.
unsafe impl Send for NodePtr<'_> {}
// SAFETY: as above.
unsafe impl Sync for NodePtr<'_> {}

impl<'a> NodePtr<'a> {
    /// # Safety
    /// `pointer` points to a complete leaf or inner node, as its level says, and may access all of
    /// it. The node lives for `'a` and was published to this thread.
    pub unsafe fn new(pointer: NonNull<Node>) -> NodePtr<'a> {
        NodePtr(pointer, PhantomData)
    }

    /// # Safety
    /// The arena outlives the use of the result.
    pub unsafe fn extend<'b>(self) -> NodePtr<'b> {
        NodePtr(self.0, PhantomData)
    }

    pub fn as_ptr(self) -> *mut Node {
        self.0.as_ptr()
    }

    pub fn node(self) -> &'a Node {
        // SAFETY: by the contract of `new`.
        unsafe { self.0.as_ref() }
    }

    pub fn inner(self) -> Option<&'a Inner> {
        // SAFETY: the level shows the node's type, and the pointer may access all of it.
        (self.node().level > 0).then(|| unsafe { self.0.cast::<Inner>().as_ref() })
    }

    pub fn prefetch_whole(self) {
        let start = self.0.as_ptr().cast::<u8>().cast_const();
        for line in 0..size_of::<Node>() / 64 {
            search::prefetch(start.wrapping_add(64 * line));
        }
    }

    fn prefetch(self) {
        let start = self.0.as_ptr().cast::<u8>().cast_const();
        for line in 0..5 {
            search::prefetch(start.wrapping_add(64 * line));
        }
    }
}

fn load<'a>(link: &'a AtomicPtr<Node>) -> Option<NodePtr<'a>> {
    // SAFETY: a link is only stored from a `NodePtr` into the same arena, with Release, and that
    // arena outlives all references into it.
    NonNull::new(link.load(Acquire)).map(|pointer| unsafe { NodePtr::new(pointer) })
}

impl Node {
    pub fn new(level: u8, choice: HeadChoice) -> Node {
        Node {
            count: AtomicU32::new(0),
            level,
            sorted: 0,
            guaranteed: bounded(choice.guaranteed),
            prefix: AtomicU32::new(bounded(choice.prefix)),
            before: AtomicPtr::new(null_mut()),
            after: AtomicPtr::new(null_mut()),
            positions: array::from_fn(|_| AtomicU8::new(0)),
            heads: array::from_fn(|_| AtomicI64::new(0)),
            keys: array::from_fn(|_| AtomicPtr::new(null_mut())),
        }
    }

    pub fn with_keys(level: u8, choice: HeadChoice, keys: &[EntryPtr<'_>]) -> Node {
        let mut heads = [0; NODE_KEYS];
        for (to, key) in heads.iter_mut().zip(keys) {
            *to = head(key.key(), choice.prefix);
        }
        Node::with_heads(level, choice, keys, &heads[..keys.len()])
    }

    pub fn with_heads(level: u8, choice: HeadChoice, keys: &[EntryPtr<'_>], heads: &[i64]) -> Node {
        let mut node = Node::new(level, choice);
        for (slot, (key, head)) in keys.iter().zip(heads).enumerate() {
            node.heads[slot] = AtomicI64::new(*head);
            node.positions[slot] = AtomicU8::new(slot as u8);
            node.keys[slot] = AtomicPtr::new(key.as_ptr());
        }
        node.sorted = keys.len() as u8;
        node.count = AtomicU32::new(keys.len() as u32);
        node
    }

    pub fn count(&self) -> usize {
        self.count.load(Acquire) as usize
    }

    pub fn level(&self) -> u8 {
        self.level
    }

    pub fn before(&self) -> Option<NodePtr<'_>> {
        load(&self.before)
    }

    pub fn after(&self) -> Option<NodePtr<'_>> {
        load(&self.after)
    }

    pub fn set_before(&self, node: Option<NodePtr<'_>>) {
        self.before.store(node.map_or(null_mut(), NodePtr::as_ptr), Release);
    }

    pub fn set_after(&self, node: Option<NodePtr<'_>>) {
        self.after.store(node.map_or(null_mut(), NodePtr::as_ptr), Release);
    }

    pub fn key(&self, slot: usize) -> EntryPtr<'_> {
        // SAFETY: stored with Release from an entry of this node's arena.
        unsafe { EntryPtr::from_ptr(self.keys[slot].load(Acquire)) }.expect("a published slot has a key")
    }

    pub fn head_at(&self, slot: usize) -> i64 {
        self.heads[slot].load(Relaxed)
    }

    /// The offset of the heads, if all future keys share the bytes before it.
    pub fn plain_prefix(&self) -> Option<usize> {
        Some(self.prefix()).filter(|prefix| *prefix == self.guaranteed as usize)
    }

    pub fn set_version(&self, slot: usize, version: EntryPtr<'_>) {
        self.keys[slot].store(version.as_ptr(), Release);
    }

    /// Writer only; there is room.
    pub fn append(&self, rank: usize, key: EntryPtr<'_>) {
        let count = self.count.load(Relaxed) as usize;
        debug_assert!(rank <= count && count < NODE_KEYS);
        let head = if count == 0 { head(key.key(), self.prefix()) } else { self.head_of(key.key()) };
        self.heads[count].store(head, Relaxed);
        self.positions[count].store(rank as u8, Relaxed);
        self.keys[count].store(key.as_ptr(), Release);
        self.count.store(count as u32 + 1, Release);
    }

    pub fn is_ascending(&self) -> bool {
        (0..self.count()).all(|slot| self.positions[slot].load(Relaxed) as usize == slot)
    }

    /// Returns the slots of the first `count` keys by rank.
    pub fn order(&self, count: usize) -> [u8; NODE_KEYS] {
        let mut order = array::from_fn(|slot| slot as u8);
        for slot in self.sorted as usize..count {
            let rank = self.positions[slot].load(Relaxed) as usize;
            order.copy_within(rank..slot, rank + 1);
            order[rank] = slot as u8;
        }
        order
    }

    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let count = self.count();
        let Matches { mut equal, .. } = search::search(&self.heads, count, self.head_for(key, count));
        while equal != 0 {
            let slot = equal.trailing_zeros() as usize;
            if self.key(slot).key() == key {
                return Some(slot);
            }
            equal &= equal - 1;
        }
        None
    }

    pub fn place(&self, key: &[u8], count: usize) -> Place {
        let order = || self.order(count);
        self.place_with(key, count, order)
    }

    fn place_with(&self, key: &[u8], count: usize, order: impl FnOnce() -> [u8; NODE_KEYS]) -> Place {
        let Matches { less, mut equal } = search::search(&self.heads, count, self.head_for(key, count));
        let (mut rank, ties) = (less as usize, equal.count_ones());
        if ties > LINEAR_TIES {
            let order = order();
            let tied = &order[rank..(rank + ties as usize).min(NODE_KEYS)];
            let found = tied.binary_search_by(|&slot| self.key(slot as usize % NODE_KEYS).key().cmp(key));
            return match found {
                Ok(index) => Place::Found(tied[index] as usize % NODE_KEYS),
                Err(index) => Place::Absent(rank + index),
            };
        }
        while equal != 0 {
            let slot = equal.trailing_zeros() as usize;
            match self.key(slot).key().cmp(key) {
                Compare::Equal => return Place::Found(slot),
                Compare::Less => rank += 1,
                Compare::Greater => {}
            }
            equal &= equal - 1;
        }
        Place::Absent(rank)
    }

    fn prefix(&self) -> usize {
        self.prefix.load(Relaxed) as usize
    }

    fn head_for(&self, key: &[u8], count: usize) -> i64 {
        if count == 0 { 0 } else { self.head_of(key) }
    }

    fn head_of(&self, key: &[u8]) -> i64 {
        let (guaranteed, prefix) = (self.guaranteed as usize, self.prefix());
        if prefix > guaranteed {
            let first = self.key(0).key();
            let learned = first.get(guaranteed..prefix).unwrap_or_default();
            let own = key.get(guaranteed..prefix.min(key.len())).unwrap_or_default();
            match own.cmp(learned) {
                Compare::Less => return i64::MIN,
                Compare::Greater => return i64::MAX,
                Compare::Equal => {}
            }
        }
        head(key, prefix)
    }
}

impl Inner {
    /// `children` has one child per separator, in order.
    pub fn new(
        level: u8,
        choice: HeadChoice,
        first: NodePtr<'_>,
        separators: &[EntryPtr<'_>],
        children: &[NodePtr<'_>],
    ) -> Inner {
        debug_assert_eq!(separators.len(), children.len());
        let node = Node::with_keys(level, choice, separators);
        node.set_before(Some(first));
        let identity = || array::from_fn(|rank| AtomicU8::new(rank as u8));
        let links = array::from_fn(|i| AtomicPtr::new(children.get(i).map_or(null_mut(), |c| c.as_ptr())));
        Inner { node, orders: [identity(), identity()], children: links }
    }

    pub fn node(&self) -> &Node {
        &self.node
    }

    pub fn child_for(&self, key: &[u8]) -> Child<'_> {
        self.stable(|count| self.rank(key, count))
    }

    pub fn last_child(&self) -> Child<'_> {
        self.stable(|count| count)
    }

    pub fn separator(&self, rank: usize) -> Option<EntryPtr<'_>> {
        let count = self.node.count();
        (rank < count).then(|| self.node.key(self.slot(count, rank)))
    }

    pub fn child(&self, rank: usize) -> NodePtr<'_> {
        self.child_at(self.node.count(), rank)
    }

    pub fn replace_child(&self, rank: usize, child: NodePtr<'_>) {
        match rank.checked_sub(1) {
            None => self.node.set_before(Some(child)),
            Some(before) => {
                let slot = self.slot(self.node.count(), before);
                self.children[slot].store(child.as_ptr(), Release);
            }
        }
    }

    /// Writer only; there is room.
    pub fn append(&self, rank: usize, separator: EntryPtr<'_>, child: NodePtr<'_>) {
        let count = self.node.count();
        self.children[count].store(child.as_ptr(), Release);
        // A reader may use version `count - 1` of the order, which is overwritten here. Slots that
        // it reads from the new version must be complete, so the separator is stored first. The
        // reader then sees the changed count and restarts.
        self.node.keys[count].store(separator.as_ptr(), Release);
        let next = &self.orders[(count + 1) % 2];
        for (to, from) in next[..rank].iter().zip(&self.orders[count % 2][..rank]) {
            to.store(from.load(Relaxed), Release);
        }
        next[rank].store(count as u8, Release);
        for (to, from) in next[rank + 1..=count].iter().zip(&self.orders[count % 2][rank..count]) {
            to.store(from.load(Relaxed), Release);
        }
        self.node.append(rank, separator);
    }

    /// Writer only; the node has no separators yet.
    pub fn learn_prefix(&self, prefix: usize) {
        debug_assert_eq!(self.node.count(), 0);
        self.node.prefix.store(bounded(prefix).max(self.node.guaranteed), Relaxed);
    }

    pub fn guaranteed(&self) -> usize {
        self.node.guaranteed as usize
    }

    /// Searches a rank and loads its child, again until no separator was added in the meantime.
    ///
    /// The split of a child first adds a separator, then replaces the child, both with `Release`.
    /// So a reader that loads the replacement sees the new count; else it could take the left half
    /// for a key of the right one. The check also rejects an order that was overwritten during the
    /// read. It fails at most 32 times a node.
    pub fn stable(&self, rank: impl Fn(usize) -> usize) -> Child<'_> {
        loop {
            let count = self.node.count();
            let rank = rank(count);
            let node = self.child_at(count, rank);
            node.prefetch();
            // The earlier loads were `Acquire`, so this one comes after them.
            if self.node.count.load(Relaxed) as usize == count {
                return Child { node, rank };
            }
        }
    }

    /// Returns how many of the first `count` separators are at or below `key`.
    fn rank(&self, key: &[u8], count: usize) -> usize {
        let order = || array::from_fn(|rank| self.orders[count % 2][rank].load(Acquire));
        match self.node.place_with(key, count, order) {
            Place::Absent(rank) => rank,
            Place::Found(slot) => (0..count).position(|rank| self.slot(count, rank) == slot).map_or(count, |r| r + 1),
        }
    }

    fn slot(&self, count: usize, rank: usize) -> usize {
        self.orders[count % 2][rank].load(Acquire) as usize
    }

    fn child_at(&self, count: usize, rank: usize) -> NodePtr<'_> {
        let link = match rank.checked_sub(1) {
            None => &self.node.before,
            Some(before) => &self.children[self.slot(count, before)],
        };
        load(link).expect("a published child")
    }
}

fn bounded(length: usize) -> u32 {
    u32::try_from(length).expect("keys are far shorter than 4 GiB")
}
