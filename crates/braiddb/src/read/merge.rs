//! Merges cursors: the smallest key comes next, or the largest when going backward.
//!
//! `order` lists the valid sources, first one first. Of equal keys only the newest entry is
//! returned. While the first source stays ahead, as usual, a step costs one comparison with the
//! second.
//!
//! INVARIANT while valid: each source is on its first key at or after the current one (going
//! backward: last at or before it). Sources missing in `order` are exhausted.

use crate::base::{Cursor, EntryRef, Result};
use std::cmp::Ordering;

#[derive(Debug)]
pub struct Merge<C> {
    sources: Vec<C>,
    order: Vec<usize>,
    forward: bool,
}

impl<C: Cursor> Merge<C> {
    pub fn new(sources: Vec<C>) -> Merge<C> {
        Merge { order: Vec::with_capacity(sources.len()), sources, forward: true }
    }

    /// All at the same snapshot. The merge becomes invalid.
    pub fn set_sources(&mut self, sources: Vec<C>) {
        self.order.clear();
        self.sources = sources;
    }

    pub fn take_sources(&mut self) -> Vec<C> {
        self.order.clear();
        std::mem::take(&mut self.sources)
    }

    /// The merge becomes invalid.
    pub fn reset(&mut self, change: impl FnMut(&mut C)) {
        self.order.clear();
        self.sources.iter_mut().for_each(change);
    }

    #[inline]
    pub fn top(&self) -> &C {
        &self.sources[self.order[0]]
    }

    /// Returns the first source and the next one, if the merge goes in this direction.
    pub fn first_two(&mut self, forward: bool) -> Option<(&mut C, Option<&C>)> {
        if self.forward != forward {
            return None;
        }
        match self.order[..] {
            [] => None,
            [only] => Some((&mut self.sources[only], None)),
            [first, second, ..] => {
                let [first, second] = self.sources.get_disjoint_mut([first, second]).ok()?;
                Some((first, Some(second)))
            }
        }
    }

    /// Moves the only source by `seek`, which returns true on an entry. Otherwise returns false,
    /// and the merge is invalid.
    #[inline]
    pub fn seek_only(&mut self, seek: impl FnOnce(&mut C) -> Result<bool>) -> Result<bool> {
        self.forward = true;
        self.order.clear();
        let [only] = &mut self.sources[..] else { return Ok(false) };
        let is_there = seek(only)?;
        if is_there {
            self.order.push(0);
        }
        Ok(is_there)
    }

    /// Seeks forward to `key`. `seek` moves the last source, or returns false to have it sought.
    #[inline]
    pub fn seek_last_by(&mut self, key: &[u8], seek: impl FnOnce(&mut C) -> Result<bool>) -> Result<bool> {
        self.forward = true;
        self.order.clear();
        let Some((last, others)) = self.sources.split_last_mut() else { return Ok(false) };
        let is_there = seek(last)?;
        if !is_there {
            last.seek(key)?;
        }
        if !others.is_empty() {
            others.iter_mut().try_for_each(|source| source.seek(key))?;
            self.sort();
        } else if last.valid() {
            self.order.push(0);
        }
        Ok(is_there)
    }

    pub fn is_forward(&self) -> bool {
        self.forward
    }

    /// Returns all sources and the direction. After moving sources, call [`Merge::restore`].
    pub fn sources(&mut self) -> (&mut [C], bool) {
        (&mut self.sources, self.forward)
    }

    /// Each source must be on its next key after the last one returned, or exhausted.
    pub fn restore(&mut self) {
        self.sort();
    }

    pub fn invalidate(&mut self) {
        self.order.clear();
    }

    /// Moves the sources that `choose` accepts forward to their first key at or after `key`
    /// (backward: last before it). Precondition: valid.
    pub fn skip_to(&mut self, key: &[u8], choose: impl Fn(&C) -> bool) -> Result<()> {
        let forward = self.forward;
        for source in self.sources.iter_mut().filter(|s| s.valid()) {
            let behind = if forward { source.key() < key } else { source.key() >= key };
            if choose(source) && behind {
                let moved = if forward { source.seek(key) } else { source.seek_before(key) };
                moved.inspect_err(|_| self.order.clear())?;
            }
        }
        self.sort();
        Ok(())
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        let (a, b) = (self.sources[a].entry(), self.sources[b].entry());
        let by_key = if self.forward { a.key.cmp(b.key) } else { b.key.cmp(a.key) };
        by_key.then(b.sequence.cmp(&a.sequence))
    }

    fn sort(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend((0..self.sources.len()).filter(|&i| self.sources[i].valid()));
        order.sort_by(|&a, &b| self.compare(a, b));
        self.order = order;
    }

    #[inline]
    fn seek_all(&mut self, forward: bool, mut seek: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        self.forward = forward;
        self.order.clear();
        if let [only] = &mut self.sources[..] {
            seek(only)?;
            if only.valid() {
                self.order.push(0);
            }
            return Ok(());
        }
        for source in &mut self.sources {
            seek(source)?;
        }
        self.sort();
        Ok(())
    }

    fn advance(&mut self, rank: usize) -> Result<()> {
        let index = self.order[rank];
        let source = &mut self.sources[index];
        let moved = if self.forward { source.next() } else { source.prev() };
        if let Err(e) = moved {
            self.order.clear();
            return Err(e);
        }
        if !self.sources[index].valid() {
            self.order.remove(rank);
            return Ok(());
        }
        let mut at = rank;
        while at + 1 < self.order.len() && self.compare(self.order[at], self.order[at + 1]).is_gt() {
            self.order.swap(at, at + 1);
            at += 1;
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> Result<()> {
        if let [only] = self.order[..] {
            let source = &mut self.sources[only];
            let moved = if self.forward { source.next() } else { source.prev() };
            if moved.is_err() || !source.valid() {
                self.order.clear();
            }
            return moved;
        }
        self.step_among_many()
    }

    fn step_among_many(&mut self) -> Result<()> {
        while let [first, second, ..] = self.order[..]
            && self.sources[first].key() == self.sources[second].key()
        {
            self.advance(1)?;
        }
        self.advance(0)
    }

    /// Every source moves to the other side of the current key.
    fn turn(&mut self, forward: bool) -> Result<()> {
        let key = self.key().to_vec();
        self.seek_all(forward, |source| {
            if !forward {
                return source.seek_before(&key);
            }
            source.seek(&key)?;
            if source.valid() && source.key() == key.as_slice() { source.next() } else { Ok(()) }
        })
    }
}

impl<C: Cursor> Cursor for Merge<C> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.seek_all(true, |source| source.seek(key))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.seek_all(false, |source| source.seek_before(key))
    }

    fn seek_first(&mut self) -> Result<()> {
        self.seek_all(true, C::seek_first)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.seek_all(false, C::seek_last)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.forward { self.step() } else { self.turn(true) }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.forward { self.turn(false) } else { self.step() }
    }

    #[inline]
    fn valid(&self) -> bool {
        !self.order.is_empty()
    }

    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        self.top().entry()
    }
}
