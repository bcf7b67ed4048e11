//! A merging iterator as LSM stores have it: a heap of cursors, one a run.
//!
//! The root of the heap is the current entry. A step moves that cursor and lets it sink; as long as it stays the root, it is
//! compared with the better one of its children alone, which is remembered. A key that several runs have shows once, its
//! newest entry: later runs are newer.
//!
//! Left out, since it would only cost: sequence numbers and snapshots, tombstones, and whatever turns a merge of internal
//! keys into what a user sees. So this is the least that a merging iterator can do.

use super::plain_run::{PlainRun, PlainRunCursor, compare};
use crate::base::{Cursor, EntryRef, Result};
use crate::codec::hash64;
use crossbeam_epoch::Guard;
use std::cmp::Ordering;

/// The newest entry of `key`: runs are asked one after the other, the newest first.
pub(super) fn get<'g>(runs: &'g [PlainRun], key: &[u8], guard: &'g Guard) -> Result<Option<EntryRef<'g>>> {
    let hash = hash64(key);
    for run in runs.iter().rev() {
        let entry = run.get(key, hash, guard)?;
        if entry.is_some() {
            return Ok(entry);
        }
    }
    Ok(None)
}

/// The runs, oldest first, shown as one.
#[derive(Debug)]
pub(super) struct PlainMerge<'g> {
    cursors: Vec<PlainRunCursor<'g>>,
    /// Indexes of valid cursors; each comes before its children.
    heap: Vec<usize>,
    /// Which child of the root comes first; 0 if that is not known.
    better_child: usize,
    forward: bool,
}

impl<'g> PlainMerge<'g> {
    /// A merge that is not valid yet.
    pub(super) fn new(runs: &'g [PlainRun], guard: &'g Guard) -> PlainMerge<'g> {
        let cursors = runs.iter().map(|run| PlainRunCursor::new(run, guard)).collect();
        PlainMerge { cursors, heap: Vec::with_capacity(runs.len()), better_child: 0, forward: true }
    }

    /// Whether what stands at one place of the heap comes before what stands at another.
    #[inline]
    fn is_before(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.heap[a], self.heap[b]);
        match compare(self.cursors[a].held_key(), self.cursors[b].held_key()) {
            Ordering::Less => self.forward,
            Ordering::Greater => !self.forward,
            Ordering::Equal => a > b,
        }
    }

    /// The child of a place that comes first; none if it has no child.
    #[inline]
    fn first_child(&self, at: usize) -> Option<usize> {
        let left = 2 * at + 1;
        if left + 1 < self.heap.len() && self.is_before(left + 1, left) {
            return Some(left + 1);
        }
        (left < self.heap.len()).then_some(left)
    }

    fn sink(&mut self, mut at: usize) {
        while let Some(child) = self.first_child(at)
            && self.is_before(child, at)
        {
            self.heap.swap(child, at);
            at = child;
        }
    }

    /// Puts the root in its place after its cursor has moved.
    fn sink_root(&mut self) {
        let child = match self.better_child {
            0 => self.first_child(0).unwrap_or(0),
            child => child,
        };
        if child != 0 && self.is_before(child, 0) {
            self.heap.swap(child, 0);
            self.better_child = 0;
            self.sink(child);
        } else {
            self.better_child = child;
        }
    }

    fn seek_all(&mut self, forward: bool, mut seek: impl FnMut(&mut PlainRunCursor<'g>) -> Result<()>) -> Result<()> {
        self.forward = forward;
        self.heap.clear();
        self.better_child = 0;
        for cursor in &mut self.cursors {
            seek(cursor)?;
        }
        self.heap.extend((0..self.cursors.len()).filter(|&index| self.cursors[index].valid()));
        for at in (0..self.heap.len() / 2).rev() {
            self.sink(at);
        }
        Ok(())
    }

    /// Moves the root's cursor on.
    fn advance(&mut self) -> Result<()> {
        let cursor = &mut self.cursors[self.heap[0]];
        let moved = if self.forward { cursor.next() } else { cursor.prev() };
        if let Err(error) = moved {
            self.heap.clear();
            return Err(error);
        }
        if !cursor.valid() {
            self.heap.swap_remove(0);
            self.better_child = 0;
        }
        self.sink_root();
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let key = self.cursors[self.heap[0]].held_key();
        self.advance()?;
        while let Some(&root) = self.heap.first()
            && compare(self.cursors[root].held_key(), key).is_eq()
        {
            self.advance()?;
        }
        Ok(())
    }

    /// Turns round: every cursor goes to the other side of the current key.
    fn turn(&mut self, forward: bool) -> Result<()> {
        let key = self.cursors[self.heap[0]].held_key();
        self.seek_all(forward, |cursor| {
            if !forward {
                return cursor.seek_before(key);
            }
            cursor.seek(key)?;
            if cursor.valid() && cursor.held_key() == key { cursor.next() } else { Ok(()) }
        })
    }
}

impl Cursor for PlainMerge<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.seek_all(true, |cursor| cursor.seek(key))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.seek_all(false, |cursor| cursor.seek_before(key))
    }

    fn seek_first(&mut self) -> Result<()> {
        self.seek_all(true, PlainRunCursor::seek_first)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.seek_all(false, PlainRunCursor::seek_last)
    }

    fn next(&mut self) -> Result<()> {
        if self.forward { self.step() } else { self.turn(true) }
    }

    fn prev(&mut self) -> Result<()> {
        if self.forward { self.turn(false) } else { self.step() }
    }

    #[inline]
    fn valid(&self) -> bool {
        !self.heap.is_empty()
    }

    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        self.cursors[self.heap[0]].entry()
    }
}
