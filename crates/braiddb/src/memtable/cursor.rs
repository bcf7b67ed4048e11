//! Cursors over a memtable.
//!
//! A cursor copies the order and key pointers of a leaf when it enters it, prefetches the entries,
//! and walks the copy; later inserts are beyond its snapshot. It leaves a leaf by its links, which
//! stay valid on a replaced leaf (`tree.rs`).

use super::{
    EntryBatch, Memtable,
    entry::EntryPtr,
    node::{NodePtr, Place},
    search::NODE_KEYS,
};
use crate::base::{Beyond, Cursor, EntryRef, Result, SequenceNumber};
use std::sync::Arc;

/// A copy of a leaf, whose pointers are valid as long as the memtable. `count` is stale before the
/// first use of a new leaf.
#[derive(Debug)]
struct LeafCopy {
    leaf: Option<NodePtr<'static>>,
    count: usize,
    entries: [Option<EntryPtr<'static>>; NODE_KEYS],
}

impl LeafCopy {
    const EMPTY: LeafCopy = LeafCopy { leaf: None, count: 0, entries: [None; NODE_KEYS] };

    /// # Safety
    /// The memtable of `leaf` outlives the use of the copy.
    unsafe fn enter(&mut self, leaf: NodePtr<'_>) {
        // SAFETY: by the contract of this function.
        let leaf = unsafe { leaf.extend::<'static>() };
        let node = leaf.node();
        let count = node.count();
        if self.leaf == Some(leaf) && self.count == count {
            // Later versions are beyond the owner's snapshot.
            return;
        }
        let order = node.order(count);
        for (entry, &slot) in self.entries.iter_mut().zip(&order[..count]) {
            *entry = Some(node.key(usize::from(slot)));
        }
        self.leaf = Some(leaf);
        self.count = count;
    }

    /// Returns the rank of the first entry at or after `key`.
    ///
    /// # Safety
    /// As [`LeafCopy::enter`].
    unsafe fn enter_at(&mut self, leaf: NodePtr<'_>, key: &[u8]) -> usize {
        // SAFETY: by the contract of this function.
        unsafe { self.enter(leaf) };
        match leaf.node().place(key, self.count) {
            Place::Absent(rank) => rank,
            Place::Found(slot) => {
                let order = leaf.node().order(self.count);
                order[..self.count].iter().position(|&s| usize::from(s) == slot).unwrap_or(self.count)
            }
        }
    }

    #[inline]
    fn prefetch(&self, rank: usize) {
        if rank < self.count
            && let Some(entry) = self.entries[rank]
        {
            entry.prefetch();
        }
    }

    fn prefetch_all(&self) {
        self.entries[..self.count].iter().flatten().for_each(|entry| entry.prefetch());
    }

    fn prefetch_beyond(&self, is_forward: bool) {
        let beyond = |leaf: NodePtr<'static>| if is_forward { leaf.node().after() } else { leaf.node().before() };
        let Some(next) = self.leaf.and_then(beyond) else { return };
        let node = next.node();
        for slot in 0..node.count() {
            node.key(slot).prefetch_key();
        }
        // SAFETY: a neighbour is in the same arena.
        if let Some(after) = beyond(unsafe { next.extend() }) {
            after.prefetch_whole();
        }
    }

    fn enter_after(&mut self) -> bool {
        let after = self.leaf.and_then(|leaf| leaf.node().after());
        let Some(after) = after else { return false };
        // SAFETY: a neighbour is in the same arena.
        unsafe { self.enter(after) };
        true
    }

    fn enter_before(&mut self) -> bool {
        let before = self.leaf.and_then(|leaf| leaf.node().before());
        let Some(before) = before else { return false };
        // SAFETY: a neighbour is in the same arena.
        unsafe { self.enter(before) };
        true
    }
}

/// Rank that marks a leaf found for a seek but not copied yet.
const SOUGHT: usize = usize::MAX;

/// Moves cannot fail. See [`Cursor`] for the contract and [`Memtable`] for concurrent inserts.
#[derive(Debug)]
pub struct MemtableCursor {
    copy: LeafCopy,
    /// Rank in the copy; [`SOUGHT`] if the leaf was found for the next seek and not copied.
    rank: usize,
    current: Option<EntryPtr<'static>>,
    snapshot: SequenceNumber,
    /// Owns the arena, so dropped last.
    memtable: Arc<Memtable>,
}

impl MemtableCursor {
    pub fn new(memtable: Arc<Memtable>, snapshot: SequenceNumber) -> MemtableCursor {
        MemtableCursor { copy: LeafCopy::EMPTY, rank: 0, current: None, snapshot, memtable }
    }

    pub fn is_over(&self, memtable: &Arc<Memtable>) -> bool {
        Arc::ptr_eq(&self.memtable, memtable)
    }

    pub fn set_snapshot(&mut self, snapshot: SequenceNumber) {
        (self.current, self.rank) = (None, 0);
        self.snapshot = snapshot;
        self.copy.leaf = None;
    }

    fn settle_forward(&mut self, mut rank: usize) {
        loop {
            while rank < self.copy.count {
                self.current = self.copy.entries[rank].and_then(|newest| newest.visible_at(self.snapshot));
                if self.current.is_some() {
                    self.rank = rank;
                    self.copy.prefetch(rank + 1);
                    return;
                }
                rank += 1;
            }
            if !self.copy.enter_after() {
                self.current = None;
                return;
            }
            rank = 0;
        }
    }

    fn settle_backward(&mut self, mut end: usize) {
        loop {
            while let Some(rank) = end.checked_sub(1) {
                self.current = self.copy.entries[rank].and_then(|newest| newest.visible_at(self.snapshot));
                if self.current.is_some() {
                    self.rank = rank;
                    self.copy.prefetch(rank.wrapping_sub(1));
                    return;
                }
                end = rank;
            }
            if !self.copy.enter_before() {
                self.current = None;
                return;
            }
            end = self.copy.count;
        }
    }

    pub fn sequences(&self) -> (SequenceNumber, SequenceNumber) {
        (self.memtable.min_sequence(), self.memtable.max_sequence().min(self.snapshot))
    }

    /// Precondition: valid.
    pub fn fill(&mut self, is_forward: bool, batch: &mut EntryBatch) {
        assert!(self.valid(), "the cursor must be valid");
        let from_here = if is_forward { u32::MAX << self.rank } else { u32::MAX >> (NODE_KEYS - 1 - self.rank) };
        self.take_in(from_here, is_forward, batch);
    }

    pub fn fill_next(&mut self, is_forward: bool, batch: &mut EntryBatch) {
        loop {
            if !(if is_forward { self.copy.enter_after() } else { self.copy.enter_before() }) {
                batch.end();
                return;
            }
            self.take_in(u32::MAX, is_forward, batch);
            if batch.lanes() != 0 || batch.beyond() != Beyond::More {
                return;
            }
        }
    }

    fn take_in(&self, ranks: u32, is_forward: bool, batch: &mut EntryBatch) {
        let ranks = ranks & (((1u64 << self.copy.count) - 1) as u32);
        let mut rest = ranks;
        while rest != 0 {
            self.copy.prefetch(rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
        batch.take_in(&self.memtable, &self.copy.entries, ranks, is_forward, self.snapshot);
        self.copy.prefetch_beyond(is_forward);
    }

    pub fn go_to(&mut self, lane: usize) {
        self.rank = lane;
        self.current = self.copy.entries[lane].and_then(|newest| newest.visible_at(self.snapshot));
    }

    pub fn advance(&mut self, is_forward: bool) {
        if is_forward { self.settle_forward(self.copy.count) } else { self.settle_backward(0) }
    }

    pub fn go_past(&mut self) {
        self.current = None;
    }

    /// Prefetches the leaf of `key`, which the next move seeks. Inserts in between are beyond the
    /// snapshot.
    pub fn expect_seek(&mut self, key: &[u8]) {
        let leaf = self.memtable.tree().leaf_for(key);
        leaf.prefetch_whole();
        // SAFETY: the cursor holds the memtable.
        let leaf = Some(unsafe { leaf.extend::<'static>() });
        if self.copy.leaf != leaf {
            (self.copy.leaf, self.copy.count) = (leaf, 0);
        }
        (self.current, self.rank) = (None, SOUGHT);
    }

    pub fn expect_no_seek(&mut self) {
        self.rank = 0;
    }

    fn enter_at(&mut self, key: &[u8]) -> usize {
        let is_sought = self.current.is_none() && std::mem::take(&mut self.rank) == SOUGHT;
        let leaf = self.copy.leaf.filter(|_| is_sought).unwrap_or_else(|| {
            // SAFETY: the cursor holds the memtable.
            unsafe { self.memtable.tree().leaf_for(key).extend::<'static>() }
        });
        // SAFETY: the cursor holds the memtable.
        unsafe { self.copy.enter_at(leaf, key) }
    }
}

impl Cursor for MemtableCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let rank = self.enter_at(key);
        self.settle_forward(rank);
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let rank = self.enter_at(key);
        self.settle_backward(rank);
        Ok(())
    }

    fn seek_first(&mut self) -> Result<()> {
        self.rank = 0;
        let leaf = self.memtable.tree().first_leaf();
        // SAFETY: the cursor holds the memtable.
        unsafe { self.copy.enter(leaf) };
        self.settle_forward(0);
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.rank = 0;
        let leaf = self.memtable.tree().last_leaf();
        // SAFETY: the cursor holds the memtable.
        unsafe { self.copy.enter(leaf) };
        self.settle_backward(self.copy.count);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        assert!(self.valid(), "next on a cursor that stands nowhere");
        self.settle_forward(self.rank + 1);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        assert!(self.valid(), "prev on a cursor that stands nowhere");
        self.settle_backward(self.rank);
        Ok(())
    }

    fn valid(&self) -> bool {
        self.current.is_some()
    }

    fn entry(&self) -> EntryRef<'_> {
        self.current.expect("the cursor stands on an entry").entry()
    }
}

/// All versions of all keys, in key order and newest first, for the flush. Prefetches one leaf
/// ahead, since entries are stored in order of insertion. On a memtable that is still written, it
/// shows all earlier inserts, and perhaps some later ones.
#[derive(Debug)]
pub struct MemtableScan {
    copy: LeafCopy,
    ahead: LeafCopy,
    rank: usize,
    current: Option<EntryPtr<'static>>,
    /// Owns the arena, so dropped last.
    _memtable: Arc<Memtable>,
}

impl MemtableScan {
    pub(super) fn new(memtable: Arc<Memtable>, start: Option<&[u8]>) -> MemtableScan {
        let mut copy = LeafCopy::EMPTY;
        // SAFETY: the scan holds the memtable.
        let rank = unsafe {
            match start {
                None => {
                    copy.enter(memtable.tree().first_leaf());
                    copy.prefetch_all();
                    0
                }
                Some(start) => {
                    let rank = copy.enter_at(memtable.tree().leaf_for(start), start);
                    copy.prefetch_all();
                    rank
                }
            }
        };
        let mut scan = MemtableScan { copy, ahead: LeafCopy::EMPTY, rank, current: None, _memtable: memtable };
        scan.precheck();
        scan
    }

    fn precheck(&mut self) {
        let Some(next) = self.copy.leaf.and_then(|leaf| leaf.node().after()) else {
            self.ahead = LeafCopy::EMPTY;
            return;
        };
        // SAFETY: a neighbour is in the same arena.
        unsafe { self.ahead.enter(next) };
        self.ahead.prefetch_all();
        if let Some(after) = next.node().after() {
            after.prefetch_whole();
        }
    }

    pub fn advance(&mut self) -> bool {
        if let Some(older) = self.current.and_then(EntryPtr::older) {
            self.current = Some(older);
            return true;
        }
        while self.rank >= self.copy.count {
            if self.ahead.leaf.is_none() {
                self.current = None;
                return false;
            }
            std::mem::swap(&mut self.copy, &mut self.ahead);
            self.precheck();
            self.rank = 0;
        }
        self.current = self.copy.entries[self.rank];
        if let Some(ahead) = self.ahead.entries[..self.ahead.count].get(self.rank).copied().flatten() {
            ahead.prefetch_rest();
        }
        self.rank += 1;
        true
    }

    /// Precondition: the last `advance` returned true.
    pub fn entry(&self) -> EntryRef<'_> {
        self.current.expect("the scan stands on an entry").entry()
    }
}
