//! Nodes of the tree: what readers see while the one writer changes them.
//!
//! ```text
//! Node (leaf, or the first part of an inner node), on cache lines
//!   count u32 | level u8 | sorted u8 | guaranteed u32 | prefix u32 | before pointer | after pointer     32 bytes
//!   positions 32 x u8 | heads 32 x i64 | keys 32 x pointer to entry                                    544 bytes
//! Inner adds
//!   orders 2 x 32 x u8 | children 32 x pointer to node                                                 320 bytes
//! ```
//!
//! **Slots are a log.** A key is added by writing the next free slot and then publishing `count`; head and position of
//! a published slot never change, and the key pointer of a leaf is only ever replaced by a newer version of the same
//! key. So a reader that has loaded `count` has a consistent node without locks or retries. The sorted order
//! is not stored in a leaf: `positions` says at which rank each slot was inserted, so the order is replayed by whoever
//! needs it (a cursor once a leaf, the writer once a split). The first `sorted` slots were in order when the node
//! was made. An inner node needs its order on every descent and keeps it: version `count` of the order
//! stands in `orders[count % 2]`, so that writing the next one leaves the current one whole.
//!
//! **Full nodes are replaced.** A split makes two new nodes, and the old one is never changed again. A reader may
//! still stand on it: it holds every entry that was inserted before it was replaced, and so every entry that such a
//! reader may see (see `tree.rs`).
//!
//! **Heads.** A node's heads are taken after its first `prefix` bytes. All keys that can ever be routed to
//! the node agree in the first `guaranteed` bytes, because its bounds do. Where heads would tie there, a longer
//! prefix is learned from the keys at hand; a key that does not share it has the least or the greatest head.

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

/// Up to this many tied heads are compared one by one; more of them by binary search.
const LINEAR_TIES: u32 = 4;

/// A leaf, or what an inner node shares with it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Node {
    count: AtomicU32,
    /// Zero for a leaf.
    level: u8,
    sorted: u8,
    guaranteed: u32,
    /// Not below `guaranteed`; written before the first slot is published, then never changed.
    prefix: AtomicU32,
    /// Leaf: the leaf before. Inner node: the child left of all separators.
    before: AtomicPtr<Node>,
    /// Leaf: the leaf after.
    after: AtomicPtr<Node>,
    positions: [AtomicU8; NODE_KEYS],
    heads: Heads,
    /// Leaf: the newest version of each key. Inner node: an entry with the separator as its key, which is the least
    /// key that the child of the slot may hold.
    keys: [AtomicPtr<EntryHeader>; NODE_KEYS],
}

/// An inner node.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Inner {
    node: Node,
    orders: [[AtomicU8; NODE_KEYS]; 2],
    children: [AtomicPtr<Node>; NODE_KEYS],
}

/// Where heads are taken in a node to be made, and what it keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadChoice {
    /// What all keys that can be routed to the node share.
    pub guaranteed: usize,
    /// Where heads begin.
    pub prefix: usize,
}

/// What the writer finds in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The key stands in this slot.
    Found(usize),
    /// The key is absent; this many keys are less.
    Absent(usize),
}

/// A child of an inner node, and the separators around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Child<'a> {
    pub node: NodePtr<'a>,
    /// How many separators stand at or before it.
    pub rank: usize,
}

/// A node of an arena that lives for `'a` at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodePtr<'a>(NonNull<Node>, PhantomData<&'a Node>);

// SAFETY: a `NodePtr` is a shared reference, and all that changes in a node is atomic.
unsafe impl Send for NodePtr<'_> {}
// SAFETY: as above.
unsafe impl Sync for NodePtr<'_> {}

impl<'a> NodePtr<'a> {
    /// # Safety
    /// `pointer` points to a whole leaf or inner node, as its level says, with the right to access all of it. It lives
    /// for `'a`, and was published to this thread.
    pub unsafe fn new(pointer: NonNull<Node>) -> NodePtr<'a> {
        NodePtr(pointer, PhantomData)
    }

    /// The same node, for as long as the caller can vouch for.
    ///
    /// # Safety
    /// The arena lives as long as the result is used.
    pub unsafe fn extend<'b>(self) -> NodePtr<'b> {
        NodePtr(self.0, PhantomData)
    }

    /// For a shared field.
    pub fn as_ptr(self) -> *mut Node {
        self.0.as_ptr()
    }

    /// The leaf, or the common part of an inner node.
    pub fn node(self) -> &'a Node {
        // SAFETY: by the contract of `new`.
        unsafe { self.0.as_ref() }
    }

    /// The inner node; `None` if this is a leaf.
    pub fn inner(self) -> Option<&'a Inner> {
        // SAFETY: the level says what stands here, and the pointer may access all of it.
        (self.node().level > 0).then(|| unsafe { self.0.cast::<Inner>().as_ref() })
    }

    /// Asks for all of a leaf.
    pub fn prefetch_whole(self) {
        let start = self.0.as_ptr().cast::<u8>().cast_const();
        for line in 0..size_of::<Node>() / 64 {
            search::prefetch(start.wrapping_add(64 * line));
        }
    }

    /// Asks for the lines that a search reads first.
    fn prefetch(self) {
        let start = self.0.as_ptr().cast::<u8>().cast_const();
        for line in 0..5 {
            search::prefetch(start.wrapping_add(64 * line));
        }
    }
}

/// Loads a link; `None` where it is null.
fn load<'a>(link: &'a AtomicPtr<Node>) -> Option<NodePtr<'a>> {
    // SAFETY: a link is only stored from a `NodePtr` into the same arena, with Release, and that arena outlives all
    // references into it.
    NonNull::new(link.load(Acquire)).map(|pointer| unsafe { NodePtr::new(pointer) })
}

impl Node {
    /// A node of no keys.
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

    /// A node of these keys, which are in order.
    pub fn with_keys(level: u8, choice: HeadChoice, keys: &[EntryPtr<'_>]) -> Node {
        let mut heads = [0; NODE_KEYS];
        for (to, key) in heads.iter_mut().zip(keys) {
            *to = head(key.key(), choice.prefix);
        }
        Node::with_heads(level, choice, keys, &heads[..keys.len()])
    }

    /// The same where the heads are known, so that no key is read.
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

    /// How many slots are published.
    pub fn count(&self) -> usize {
        self.count.load(Acquire) as usize
    }

    /// Zero for a leaf.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// A leaf's neighbour in front; an inner node's first child.
    pub fn before(&self) -> Option<NodePtr<'_>> {
        load(&self.before)
    }

    /// A leaf's neighbour behind.
    pub fn after(&self) -> Option<NodePtr<'_>> {
        load(&self.after)
    }

    /// Writer only.
    pub fn set_before(&self, node: Option<NodePtr<'_>>) {
        self.before.store(node.map_or(null_mut(), NodePtr::as_ptr), Release);
    }

    /// Writer only.
    pub fn set_after(&self, node: Option<NodePtr<'_>>) {
        self.after.store(node.map_or(null_mut(), NodePtr::as_ptr), Release);
    }

    /// What stands in a published slot.
    pub fn key(&self, slot: usize) -> EntryPtr<'_> {
        // SAFETY: stored with Release from an entry of the arena that this node lives in.
        unsafe { EntryPtr::from_ptr(self.keys[slot].load(Acquire)) }.expect("a published slot has a key")
    }

    /// The head of a published slot.
    pub fn head_at(&self, slot: usize) -> i64 {
        self.heads[slot].load(Relaxed)
    }

    /// Where heads begin, if all keys have the bytes before in common for good.
    pub fn plain_prefix(&self) -> Option<usize> {
        Some(self.prefix()).filter(|prefix| *prefix == self.guaranteed as usize)
    }

    /// Replaces the version in a leaf's slot by a newer one. Writer only.
    pub fn set_version(&self, slot: usize, version: EntryPtr<'_>) {
        self.keys[slot].store(version.as_ptr(), Release);
    }

    /// Adds a key at its rank. Writer only; there is room.
    pub fn append(&self, rank: usize, key: EntryPtr<'_>) {
        let count = self.count.load(Relaxed) as usize;
        debug_assert!(rank <= count && count < NODE_KEYS);
        // The prefix is compared with the key of slot 0, which is this one if there is none yet.
        let head = if count == 0 { head(key.key(), self.prefix()) } else { self.head_of(key.key()) };
        self.heads[count].store(head, Relaxed);
        self.positions[count].store(rank as u8, Relaxed);
        self.keys[count].store(key.as_ptr(), Release);
        self.count.store(count as u32 + 1, Release);
    }

    /// Whether every key was added behind all others.
    pub fn is_ascending(&self) -> bool {
        (0..self.count()).all(|slot| self.positions[slot].load(Relaxed) as usize == slot)
    }

    /// The slots of the first `count` keys by rank. The rest of the array means nothing.
    pub fn order(&self, count: usize) -> [u8; NODE_KEYS] {
        let mut order = array::from_fn(|slot| slot as u8);
        for slot in self.sorted as usize..count {
            let rank = self.positions[slot].load(Relaxed) as usize;
            order.copy_within(rank..slot, rank + 1);
            order[rank] = slot as u8;
        }
        order
    }

    /// The slot of `key` in a leaf.
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

    /// The slot of `key` in a leaf, or the rank that it would have, among the first `count`.
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

    /// The head of `key` here. The node has a key.
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
    /// An inner node: a child left of all separators, and a child for each separator, in order.
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

    /// The common part.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The child that `key` belongs to.
    pub fn child_for(&self, key: &[u8]) -> Child<'_> {
        self.stable(|count| self.rank(key, count))
    }

    /// The last child.
    pub fn last_child(&self) -> Child<'_> {
        self.stable(|count| count)
    }

    /// The separator of a rank. Writer only.
    pub fn separator(&self, rank: usize) -> Option<EntryPtr<'_>> {
        let count = self.node.count();
        (rank < count).then(|| self.node.key(self.slot(count, rank)))
    }

    /// The child after `rank` separators. Writer only, or as [`Inner::stable`] does.
    pub fn child(&self, rank: usize) -> NodePtr<'_> {
        self.child_at(self.node.count(), rank)
    }

    /// Puts another node in the place of a child. Writer only.
    pub fn replace_child(&self, rank: usize, child: NodePtr<'_>) {
        match rank.checked_sub(1) {
            None => self.node.set_before(Some(child)),
            Some(before) => {
                let slot = self.slot(self.node.count(), before);
                self.children[slot].store(child.as_ptr(), Release);
            }
        }
    }

    /// Adds a separator at its rank, and the child behind it. Writer only; there is room.
    pub fn append(&self, rank: usize, separator: EntryPtr<'_>, child: NodePtr<'_>) {
        let count = self.node.count();
        self.children[count].store(child.as_ptr(), Release);
        // A reader may be at version `count - 1` of the order, which stands where this one is written. What it reads of
        // the new one names slots whose contents are in place; it then sees that the count has changed and begins anew.
        // The new separator is therefore stored before the order that names it.
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

    /// Sets where heads begin. Writer only; the node has no separators yet.
    pub fn learn_prefix(&self, prefix: usize) {
        debug_assert_eq!(self.node.count(), 0);
        self.node.prefix.store(bounded(prefix).max(self.node.guaranteed), Relaxed);
    }

    /// What all keys that can be routed here share.
    pub fn guaranteed(&self) -> usize {
        self.node.guaranteed as usize
    }

    /// Runs a search that yields a rank and follows the child there, until no separator was added meanwhile.
    ///
    /// The split of a child adds a separator first, with Release, and then replaces the child, with Release. Whoever
    /// loads the replacement therefore sees the new count; without the check it could take the left half for a key that has
    /// moved to the right one. The check also refuses an order that was read while it was overwritten. It fails only
    /// when the writer has split a child, at most 32 times a node.
    pub fn stable(&self, rank: impl Fn(usize) -> usize) -> Child<'_> {
        loop {
            let count = self.node.count();
            let rank = rank(count);
            let node = self.child_at(count, rank);
            node.prefetch();
            // The loads before were Acquire, so this one is not done before them.
            if self.node.count.load(Relaxed) as usize == count {
                return Child { node, rank };
            }
        }
    }

    /// How many of the first `count` separators are at or below `key`.
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
