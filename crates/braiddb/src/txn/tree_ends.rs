//! Where the live keys of a tree begin and end, as transactions found it.
//!
//! A queue removes its rows at one end. Their tombstones stay until a merge drops them, and each
//! scan from that end passes them all: n pops would cost n² steps. So a transaction that reads the
//! first (last) row and deletes it, a **pop**, leaves a bound behind. The next reads of that end
//! begin there.
//!
//! INVARIANT B1: a read at a snapshot at or above `since` of a bound finds no key beyond the bound.
//!
//! - A pop reads its row before its transaction writes, and proposes the bound before it commits.
//!   The commit fails if another one wrote a key up to the popped one since the pop's snapshot. So
//!   the bound holds at the pop's number.
//! - The leader notes each write under the lock `write` and before it is visible, and moves bounds
//!   and proposals back. So the bound holds at later numbers. It knows of every proposal whose
//!   commit comes before the write.
//! - A load forgets the bounds of its tree.
//! - A reader takes its snapshot first and the bound second, so the bound has all that is visible.
//!
//! Bounds are in memory only, of trees with pops only. Other trees cost a relaxed load a commit.

use crate::{
    base::{EntryKind, SequenceNumber, TreeId, split_internal_key},
    commit::decode_group,
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Maximum trees with bounds. One more forgets all others.
const TREES_MAX: usize = 1024;

/// Maximum proposals of a tree. One more withdraws the oldest.
const PROPOSALS_MAX: usize = 16;

#[derive(Debug, Default)]
pub struct TreeEnds {
    is_in_use: AtomicBool,
    trees: Mutex<Trees>,
}

#[derive(Debug, Default)]
struct Trees {
    by_id: BTreeMap<TreeId, Ends>,
    last_ticket: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    First,
    Last,
}

#[derive(Debug, Default)]
struct Ends {
    first: Option<Bound>,
    last: Option<Bound>,
    proposals: VecDeque<Proposal>,
    turn: Arc<Mutex<()>>,
}

#[derive(Debug)]
struct Bound {
    /// Internal key. First: no lower key has a value. Last: neither this key nor a higher one has.
    key: Vec<u8>,
    since: SequenceNumber,
}

/// A proposal, for [`TreeEnds::conclude`].
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    tree: TreeId,
    number: u64,
}

#[derive(Debug)]
struct Proposal {
    ticket: u64,
    side: Side,
    key: Vec<u8>,
}

impl TreeEnds {
    /// Returns the lock with which pops of a tree take turns. Without it they conflict.
    pub fn turn(&self, tree: TreeId) -> Arc<Mutex<()>> {
        Arc::clone(&self.trees.lock().ends(tree).turn)
    }

    /// Returns the internal key at which a read from this side may begin (for the last side: before
    /// which). `snapshot` was taken before this call.
    #[inline]
    pub fn bound(&self, tree: TreeId, side: Side, snapshot: SequenceNumber) -> Option<Vec<u8>> {
        if !self.is_in_use.load(Ordering::Relaxed) {
            return None;
        }
        let trees = self.trees.lock();
        let ends = trees.by_id.get(&tree)?;
        let bound = if side == Side::First { &ends.first } else { &ends.last };
        bound.as_ref().filter(|bound| bound.since <= snapshot).map(|bound| bound.key.clone())
    }

    /// Proposes the bound behind `key`, which the caller read as the first (last) one and is about
    /// to delete.
    pub fn propose(&self, tree: TreeId, side: Side, key: &[u8]) -> Ticket {
        let mut trees = self.trees.lock();
        self.is_in_use.store(true, Ordering::Relaxed);
        trees.last_ticket += 1;
        let ticket = Ticket { tree, number: trees.last_ticket };
        let ends = trees.ends(tree);
        if ends.proposals.len() >= PROPOSALS_MAX {
            ends.proposals.pop_front();
        }
        let key = if side == Side::First { after(key) } else { key.to_vec() };
        ends.proposals.push_back(Proposal { ticket: ticket.number, side, key });
        ticket
    }

    /// Sets the proposed bound if the delete was committed, at `since`; the commit has validated all
    /// that the caller had read. Else withdraws the proposal.
    pub fn conclude(&self, ticket: Ticket, since: Option<SequenceNumber>) {
        let mut trees = self.trees.lock();
        let Some(ends) = trees.by_id.get_mut(&ticket.tree) else { return };
        let at = ends.proposals.iter().position(|proposal| proposal.ticket == ticket.number);
        let (Some(Proposal { side, key, .. }), Some(since)) = (at.and_then(|at| ends.proposals.remove(at)), since)
        else {
            return;
        };
        let bound = if side == Side::First { &mut ends.first } else { &mut ends.last };
        if bound.as_ref().is_none_or(|bound| bound.since < since) {
            *bound = Some(Bound { key, since });
        }
    }

    /// Moves the bounds back to the keys that a commit group writes. The caller holds `write`, and
    /// the group is not visible yet.
    #[inline]
    pub fn note(&self, group: &[u8]) {
        if self.is_in_use.load(Ordering::Relaxed) {
            self.note_keys(group);
        }
    }

    #[cold]
    fn note_keys(&self, group: &[u8]) {
        let mut trees = self.trees.lock();
        decode_group(group, |_, operation| {
            if matches!(operation.kind, EntryKind::Tombstone | EntryKind::RangeDelete) {
                return;
            }
            let tree = split_internal_key(operation.key).map(|(tree, _)| tree);
            if let Some(ends) = tree.and_then(|tree| trees.by_id.get_mut(&tree)) {
                ends.note(operation.key);
            }
        });
    }

    /// Forgets the bounds of a tree: it is loaded, or dropped. The caller holds `write`, and the
    /// rows are not visible yet.
    pub fn forget(&self, tree: TreeId) {
        self.trees.lock().by_id.remove(&tree);
    }
}

impl Trees {
    fn ends(&mut self, tree: TreeId) -> &mut Ends {
        if self.by_id.len() >= TREES_MAX && !self.by_id.contains_key(&tree) {
            self.by_id.clear();
        }
        self.by_id.entry(tree).or_default()
    }
}

impl Ends {
    fn note(&mut self, written: &[u8]) {
        let Ends { first, last, proposals, .. } = self;
        let bounds = [(Side::First, first), (Side::Last, last)];
        let bounds = bounds.into_iter().filter_map(|(side, bound)| Some((side, &mut bound.as_mut()?.key)));
        for (side, key) in bounds.chain(proposals.iter_mut().map(|proposal| (proposal.side, &mut proposal.key))) {
            match side {
                Side::First if written < key.as_slice() => *key = written.to_vec(),
                Side::Last if written >= key.as_slice() => *key = after(written),
                _ => {}
            }
        }
    }
}

/// The least key above `key`.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests;
