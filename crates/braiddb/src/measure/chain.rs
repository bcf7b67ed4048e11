//! Cursors over neighbouring parts of the keyspace, shown as one.

use super::data::Key;
use crate::base::{Cursor, EntryRef, Result};

/// Cursors in key order, and where each part begins.
#[derive(Debug)]
pub(super) struct Chain<C> {
    starts: Vec<Key>,
    cursors: Vec<C>,
    index: usize,
}

impl<C: Cursor> Chain<C> {
    /// The parts' cursors. Precondition: as many as starts, one at least.
    pub(super) fn new(starts: Vec<Key>, cursors: Vec<C>) -> Chain<C> {
        assert!(starts.len() == cursors.len() && !cursors.is_empty());
        Chain { starts, cursors, index: 0 }
    }

    fn part_of(&self, key: &[u8]) -> usize {
        part_of(&self.starts, key)
    }

    fn settle_forward(&mut self) -> Result<()> {
        while !self.valid() && self.index + 1 < self.cursors.len() {
            self.index += 1;
            self.cursors[self.index].seek_first()?;
        }
        Ok(())
    }

    fn settle_backward(&mut self) -> Result<()> {
        while !self.valid() && self.index > 0 {
            self.index -= 1;
            self.cursors[self.index].seek_last()?;
        }
        Ok(())
    }
}

/// The part that a key belongs to.
#[inline]
pub(super) fn part_of(starts: &[Key], key: &[u8]) -> usize {
    starts.partition_point(|start| start.as_slice() <= key).saturating_sub(1)
}

impl<C: Cursor> Cursor for Chain<C> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.index = self.part_of(key);
        self.cursors[self.index].seek(key)?;
        self.settle_forward()
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.index = self.part_of(key);
        self.cursors[self.index].seek_before(key)?;
        self.settle_backward()
    }

    fn seek_first(&mut self) -> Result<()> {
        self.index = 0;
        self.cursors[0].seek_first()?;
        self.settle_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        self.index = self.cursors.len() - 1;
        self.cursors[self.index].seek_last()?;
        self.settle_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.cursors[self.index].next()?;
        self.settle_forward()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.cursors[self.index].prev()?;
        self.settle_backward()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.cursors[self.index].valid()
    }

    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        self.cursors[self.index].entry()
    }
}
