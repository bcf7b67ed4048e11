//! A merge of cursors: what stands on the smallest key, or going backward the largest, comes next.
//!
//! `order` holds the valid sources, the one to show first; of equal keys the newest entry comes first and the others
//! are passed over. Moving the first source on costs one comparison with the second while the first stays ahead,
//! which is the rule: most rows come from one source.
//!
//! Invariant while valid: going forward, each source stands on its first key at or after the current one (backward:
//! its last key at or before it), and sources that are not in `order` have none.

use crate::base::{Cursor, EntryRef, Result};
use std::cmp::Ordering;

/// Cursors shown as one, itself a cursor.
#[derive(Debug)]
pub struct Merge<C> {
    sources: Vec<C>,
    order: Vec<usize>,
    forward: bool,
}

impl<C: Cursor> Merge<C> {
    /// A merge of these sources, all at the same snapshot.
    pub fn new(sources: Vec<C>) -> Merge<C> {
        Merge { order: Vec::with_capacity(sources.len()), sources, forward: true }
    }

    /// Merges these sources instead of those before, all at the same snapshot; the merge is not valid then.
    pub fn set_sources(&mut self, sources: Vec<C>) {
        self.order.clear();
        self.sources = sources;
    }

    /// Takes the sources out again; the merge is of none then.
    pub fn take_sources(&mut self) -> Vec<C> {
        self.order.clear();
        std::mem::take(&mut self.sources)
    }

    /// Calls `change` on each source; the merge is not valid then.
    pub fn reset(&mut self, change: impl FnMut(&mut C)) {
        self.order.clear();
        self.sources.iter_mut().for_each(change);
    }

    /// The source that the current entry comes from. Precondition: valid.
    #[inline]
    pub fn top(&self) -> &C {
        &self.sources[self.order[0]]
    }

    /// The first source and the one that comes after it, if this is the way they go.
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

    /// Goes forward from where `seek` takes the source, if there is but one and `seek` says that it stands on an entry then; returns whether it
    /// does. If not, the merge is not valid.
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

    /// Goes forward from the first key at or after `key`. The last source is taken there by `seek`, which says whether it stands there then; if not,
    /// as the others are. Returns what `seek` said.
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

    /// Whether it goes forward.
    pub fn is_forward(&self) -> bool {
        self.forward
    }

    /// All sources, and whether the merge goes forward. Whoever moves them calls [`Merge::restore`].
    pub fn sources(&mut self) -> (&mut [C], bool) {
        (&mut self.sources, self.forward)
    }

    /// Goes on with sources that have been moved: each stands on its next key after what was shown last, or has none.
    pub fn restore(&mut self) {
        self.sort();
    }

    /// Shows nothing any more: not valid.
    pub fn invalidate(&mut self) {
        self.order.clear();
    }

    /// Moves those sources that `choose` accepts to their first key at or after `key` (backward: their last key before
    /// it), where that is further on, and leaves the others. Precondition: valid.
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
        // Most merges are of one source.
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

    /// Moves the source at `rank` on, and puts it where it belongs among those behind it.
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
        // Most merges are of one source by far the most of the time.
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

    /// Turns round: every source goes to the other side of the current key.
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
