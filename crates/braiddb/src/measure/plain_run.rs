//! A run as LSM stores search it: bisect the first keys of its blocks, then the block; a filter in front of gets.
//!
//! The first keys stand in memory, one after the other, as in an index block. A cursor holds its block and entry under the
//! guard it was made with, so that no entry is decoded twice.

use super::{counters::count_key_comparison, filter::Filter};
use crate::codec::hash64;
use crate::{
    base::{Cursor, EntryRef, Result},
    table::{Block, Position, Run},
};
use crossbeam_epoch::Guard;
use std::{cmp::Ordering, sync::Arc};

/// A run, the first keys of its blocks, and its filter.
#[derive(Debug)]
pub(super) struct PlainRun {
    run: Arc<Run>,
    keys: Vec<u8>,
    /// Where each block's first key ends in `keys`.
    ends: Vec<u32>,
    filter: Filter,
}

impl PlainRun {
    /// Reads the keys of a run.
    pub(super) fn new(run: &Arc<Run>) -> Result<PlainRun> {
        let mut filter = Filter::new(run.meta().entries as usize);
        let (mut keys, mut ends) = (Vec::new(), Vec::new());
        let mut scan = run.keys(Position::default());
        while scan.next()? {
            filter.add(hash64(scan.key()));
            if scan.position().slot == 0 {
                keys.extend_from_slice(scan.key());
                ends.push(keys.len() as u32);
            }
        }
        Ok(PlainRun { run: Arc::clone(run), keys, ends, filter })
    }

    /// Bytes of first keys and filter.
    pub(super) fn index_bytes(&self) -> usize {
        self.keys.len() + size_of_val(self.ends.as_slice()) + self.filter.bytes()
    }

    /// The entry of `key`, whose hash is given.
    pub(super) fn get<'g>(&'g self, key: &[u8], hash: u64, guard: &'g Guard) -> Result<Option<EntryRef<'g>>> {
        if !self.filter.may_contain(hash) {
            return Ok(None);
        }
        let Some(number) = self.block_of(key) else { return Ok(None) };
        let block = self.run.block(number, guard)?;
        let slot = first_at_least(&block, key)?;
        if slot == block.entries() {
            return Ok(None);
        }
        let entry = block.entry(slot)?;
        Ok(compare(entry.key, key).is_eq().then_some(entry))
    }

    /// The last block that begins at or before `key`; none if all begin after it.
    fn block_of(&self, key: &[u8]) -> Option<u16> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low.midpoint(high);
            let start = middle.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
            if compare(&self.keys[start..self.ends[middle] as usize], key).is_le() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1).map(|block| block as u16)
    }
}

/// The first slot of a block whose key is `key` or greater; the number of entries if there is none.
fn first_at_least(block: &Block<'_>, key: &[u8]) -> Result<u16> {
    let (mut low, mut high) = (0, block.entries());
    while low < high {
        let middle = low.midpoint(high);
        if compare(block.entry(middle)?.key, key).is_lt() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// A comparison that counts.
#[inline]
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    count_key_comparison();
    a.cmp(b)
}

/// A cursor over a run that has each key once.
#[derive(Debug)]
pub(super) struct PlainRunCursor<'g> {
    plain: &'g PlainRun,
    guard: &'g Guard,
    block: Option<(u16, Block<'g>)>,
    slot: u16,
    entry: Option<EntryRef<'g>>,
}

impl<'g> PlainRunCursor<'g> {
    /// A cursor that is not valid yet.
    pub(super) fn new(plain: &'g PlainRun, guard: &'g Guard) -> PlainRunCursor<'g> {
        PlainRunCursor { plain, guard, block: None, slot: 0, entry: None }
    }

    /// The key it stands on. Precondition: valid.
    #[inline]
    pub(super) fn held_key(&self) -> &'g [u8] {
        match &self.entry {
            Some(entry) => entry.key,
            None => panic!("the cursor must be valid"),
        }
    }

    /// Holds a block; none if the run has no such block. The cursor is not valid then.
    #[inline]
    fn hold(&mut self, number: u16) -> Result<()> {
        self.entry = None;
        if self.block.as_ref().is_none_or(|(held, _)| *held != number) {
            self.block = None;
            if u32::from(number) < self.plain.run.block_count() {
                self.block = Some((number, self.plain.run.block(number, self.guard)?));
            }
        }
        Ok(())
    }

    /// Stands on a slot of a block; on none if the run has no such block.
    #[inline]
    fn stand(&mut self, number: u16, slot: u16) -> Result<()> {
        self.hold(number)?;
        if let Some((_, block)) = &self.block {
            self.slot = slot;
            self.entry = Some(block.entry(slot)?);
        }
        Ok(())
    }

    /// Stands on the entry before a position; on none at the first.
    fn stand_before(&mut self, position: Position) -> Result<()> {
        match self.plain.run.retreat(position) {
            Some(Position { block, slot }) => self.stand(block, slot),
            None => {
                self.entry = None;
                Ok(())
            }
        }
    }

    /// The position of the first key that is `key` or greater, which may be one past the end of its block.
    fn find(&mut self, key: &[u8]) -> Result<Position> {
        let Some(number) = self.plain.block_of(key) else { return Ok(Position::default()) };
        self.hold(number)?;
        match &self.block {
            Some((_, block)) => Ok(Position { block: number, slot: first_at_least(block, key)? }),
            None => Ok(self.plain.run.end()),
        }
    }
}

impl Cursor for PlainRunCursor<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let Position { block, slot } = self.find(key)?;
        if slot == self.plain.run.block_entries(block) { self.stand(block + 1, 0) } else { self.stand(block, slot) }
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let position = self.find(key)?;
        self.stand_before(position)
    }

    fn seek_first(&mut self) -> Result<()> {
        self.stand(0, 0)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.stand_before(self.plain.run.end())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        match &self.block {
            Some((number, block)) if self.slot + 1 == block.entries() => self.stand(number + 1, 0),
            Some((number, _)) => self.stand(*number, self.slot + 1),
            None => Ok(()),
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        match &self.block {
            Some((number, _)) if self.slot > 0 => self.stand(*number, self.slot - 1),
            Some((number, _)) => self.stand_before(Position { block: *number, slot: 0 }),
            None => Ok(()),
        }
    }

    #[inline]
    fn valid(&self) -> bool {
        self.entry.is_some()
    }

    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        match self.entry {
            Some(entry) => entry,
            None => panic!("the cursor must be valid"),
        }
    }
}
