//! Open run: random access to its entries, through the cache or the mapped file (`place.rs`).
//! Dropping the last handle of an obsolete run, which no version names (`version/file_set.rs`),
//! removes its file.
//!
//! Memory for each block: eight bytes for the cache's slot, with length and entry count, and four
//! for the offset (eight beyond 4 GiB). If each block has its own page, nine bytes: an array of
//! entry counts locates entries without the slot.
//!
//! A read goes from the slot to the frame, to the block's end (count, base, slot), to the entry. It
//! allocates nothing, takes no lock and compares nothing.

use super::{
    Position,
    block::{self, Rows, entry_count},
    direct_offset::start_on_grid,
    format::{PAGE_BYTES, UNIT_HEADER_LEN},
    meta::RunMeta,
    place::{Moment, Place},
    scan::{KeyScan, RunScan},
    sequence::Sequence,
    tail::Index,
};
use crate::{
    base::{EntryRef, Error, RangeTombstoneSet, ReadSource, Result, SequenceNumber},
    cache::{CacheSlots, MappedFile, UnitNote},
    platform::{DeferredClose, File, Vfs},
};
use crossbeam_epoch::Guard;
use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

mod load;
mod open;
mod pinned;

pub(super) use open::{Tail, read_tail, read_tail_without_tombstones, read_tombstones};
pub use pinned::{Block, PinnedBlock};

/// Blocks per query whether they are in memory: 64 KiB.
const BLOCKS_ASKED_AT_ONCE: u16 = 16;

/// Immutable; shared by all threads.
#[derive(Debug)]
pub struct Run {
    pub(super) slots: CacheSlots,
    pub(super) index: Index,
    meta: RunMeta,
    version: u32,
    /// Sequence number of all entries if the file has none, else 0.
    given: SequenceNumber,
    pub(super) place: Place,
    sequence: Sequence,
    /// Average bytes of an entry if each block has its own page, else 0.
    pub(super) stride: usize,
    /// Entries of each block if each has its own page, else empty.
    counts: Box<[u8]>,
    file: Arc<dyn File>,
    path: PathBuf,
    range_tombstones: Arc<RangeTombstoneSet>,
    vfs: Arc<dyn Vfs>,
    deferred_close: Arc<DeferredClose>,
    is_obsolete: AtomicBool,
}

impl Run {
    #[inline(always)]
    pub fn given_sequence(&self) -> SequenceNumber {
        self.given
    }

    pub fn meta(&self) -> &RunMeta {
        &self.meta
    }

    pub fn version(&self) -> u32 {
        self.version
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    pub fn block_count(&self) -> u32 {
        self.meta.blocks
    }

    /// 0 past the end.
    #[inline(always)]
    pub fn block_entries(&self, block: u16) -> u16 {
        match self.counts.get(usize::from(block)) {
            Some(&count) => u16::from(count),
            None => u16::from(self.note(block).mark()),
        }
    }

    #[inline(always)]
    pub(super) fn note(&self, block: u16) -> UnitNote {
        self.slots.note(u32::from(block))
    }

    /// Moves `n` entries, at most to [`Run::end`]. Takes a step for each block passed.
    #[inline(always)]
    pub fn advance(&self, position: Position, n: u32) -> Position {
        let Position { mut block, slot } = position;
        let mut left = u32::from(slot).saturating_add(n);
        while usize::from(block) < self.slots.units() {
            let entries = u32::from(self.block_entries(block));
            if left < entries {
                return Position { block, slot: left as u16 };
            }
            left -= entries;
            block += 1;
        }
        self.end()
    }

    #[inline]
    #[cfg(test)]
    pub fn retreat(&self, position: Position) -> Option<Position> {
        if position.slot > 0 {
            return Some(Position { slot: position.slot - 1, ..position });
        }
        let block = position.block.min(self.end().block).checked_sub(1)?;
        Some(Position { block, slot: self.block_entries(block).saturating_sub(1) })
    }

    #[inline]
    pub fn end(&self) -> Position {
        Position { block: self.slots.units() as u16, slot: 0 }
    }

    /// Corruption if there is no entry.
    #[inline(always)]
    pub fn read<'g>(&self, position: Position, guard: &'g Guard) -> Result<EntryRef<'g>> {
        self.read_by(position, guard, || self.moment())
    }

    #[inline(always)]
    pub fn read_by<'g>(
        &self,
        position: Position,
        guard: &'g Guard,
        moment: impl FnOnce() -> Moment,
    ) -> Result<EntryRef<'g>> {
        Ok(self.read_with_block(position, guard, moment)?.0)
    }

    /// Returns also the block if it is read in place: it is valid as long as the run is open.
    #[inline(always)]
    pub fn read_with_block<'g>(
        &self,
        position: Position,
        guard: &'g Guard,
        moment: impl FnOnce() -> Moment,
    ) -> Result<(EntryRef<'g>, Option<&'g [u8]>)> {
        if usize::from(position.block) < self.slots.units() {
            self.prefetch_on_grid(position);
            // Prefetch the entry while the block's end, which is read first, is loading.
            let entry = self.bytes_before_end(position);
            let soon = [entry, entry.saturating_sub(64)];
            let (bytes, is_in_place) = match self.slots.get_soon(u32::from(position.block), guard, soon) {
                Some(bytes) => (bytes, false),
                None => match self.at_hand_in_place(position.block, moment) {
                    Some((file, range)) => {
                        file.hint(range.end).prefetch_before(soon);
                        (file.get(range, guard).ok_or_else(|| self.no_such_entry(position))?, true)
                    }
                    None => (self.read_uncached(position.block, soon, guard)?, false),
                },
            };
            if let Some(entry) = block::entry(bytes, position.slot) {
                return Ok((entry.numbered(self.given), is_in_place.then_some(bytes)));
            }
        }
        Err(self.no_such_entry(position))
    }

    #[inline(always)]
    pub fn entry_in_block<'g>(&self, block: &'g [u8], slot: u16) -> Option<EntryRef<'g>> {
        Some(block::entry(block, slot)?.numbered(self.given))
    }

    pub fn cached_blocks(&self, blocks: Range<u16>) -> u64 {
        let is_mapped = self.place.file(&*self.file, self.meta.file_bytes).is_some();
        let now = |block| is_mapped.then(|| self.place.now(block));
        blocks.filter(|&block| self.slots.is_at_hand(u32::from(block), now(block))).count() as u64
    }

    /// Maps the file if possible.
    pub fn is_mapped(&self) -> bool {
        self.place.file(&*self.file, self.meta.file_bytes).is_some()
    }

    pub fn blocks_in_memory(&self, blocks: Range<u16>) -> u64 {
        let Some(file) = self.place.file(&*self.file, self.meta.file_bytes) else { return self.cached_blocks(blocks) };
        let end = blocks.end.min(self.end().block);
        let count = |first: u16| {
            let some = first..first.saturating_add(BLOCKS_ASKED_AT_ONCE).min(end);
            let bytes = self.index.offset(some.start.into())..self.index.offset(some.end.into());
            match file.is_in_memory(bytes) {
                true => {
                    some.map(|block| u64::from(self.is_plain(block)).max(self.cached_blocks(block..block + 1))).sum()
                }
                false => self.cached_blocks(some),
            }
        };
        (blocks.start..end).step_by(BLOCKS_ASKED_AT_ONCE.into()).map(count).sum()
    }

    pub(super) fn is_plain(&self, block: u16) -> bool {
        let (len, unit) = (self.note(block).len(), self.unit_of(block));
        len > 0 && unit.end - unit.start == (UNIT_HEADER_LEN + len) as u64
    }

    #[inline]
    pub fn block<'g>(&'g self, block: u16, guard: &'g Guard) -> Result<Block<'g>> {
        if usize::from(block) >= self.slots.units() {
            return Err(self.no_such_entry(Position { block, slot: 0 }));
        }
        let bytes = match self.slots.get(u32::from(block), guard) {
            Some(bytes) => bytes,
            None => self.read_uncached(block, [0; 2], guard)?,
        };
        Ok(Block { bytes, run: self, block })
    }

    #[inline]
    pub fn moment(&self) -> Moment {
        self.place.moment()
    }

    /// `None` unless the block is read in place and needs no check. Valid while the run is open.
    #[inline(always)]
    pub fn entry_in_place(&self, position: Position, moment: Moment) -> Option<Result<EntryRef<'_>>> {
        let (file, range) = self.at_hand_in_place(position.block, || moment)?;
        let bytes = file.bytes(range)?;
        let entry = block::entry(bytes, position.slot).map(|entry| entry.numbered(self.given));
        Some(entry.ok_or_else(|| self.no_such_entry(position)))
    }

    /// See [`Run::entry_in_place`].
    #[inline(always)]
    pub fn rows_in_place(&self, block: u16, moment: Moment) -> Option<Result<Rows<'_>>> {
        let (file, range) = self.at_hand_in_place(block, || moment)?;
        let bytes = file.bytes(range)?;
        // Readers of many rows rely on the index's entry count.
        let rows = Rows::new(bytes).filter(|_| entry_count(bytes) == self.block_entries(block));
        Some(rows.ok_or_else(|| self.no_such_entry(Position { block, slot: 0 })))
    }

    #[inline(always)]
    pub(super) fn at_hand_in_place(
        &self,
        block: u16,
        moment: impl FnOnce() -> Moment,
    ) -> Option<(&MappedFile, Range<u64>)> {
        if usize::from(block) >= self.slots.units() {
            return None;
        }
        let checked = self.slots.in_place_since(u32::from(block))?;
        if checked != moment().span_of(u64::from(block)) {
            return None;
        }
        let file = self.place.get()?;
        self.slots.note_hit();
        Some((file, self.contents_of(block)))
    }

    #[inline]
    pub fn pin(&self, block: u16) -> Result<PinnedBlock> {
        if usize::from(block) >= self.slots.units() {
            return Err(self.no_such_entry(Position { block, slot: 0 }));
        }
        let unit = match self.slots.pin(u32::from(block)) {
            Some(unit) => unit,
            None => self.pin_uncached(block)?,
        };
        Ok(PinnedBlock { unit, number: self.meta.number, given: self.given, block })
    }

    /// True if the block must probably be read from the file.
    #[inline]
    pub fn is_absent(&self, block: u16) -> bool {
        self.slots.is_vacant(u32::from(block))
    }

    /// Returns where a block is, for a caller that reports it.
    #[cold]
    pub fn source(&self, block: u16) -> ReadSource {
        if usize::from(block) >= self.slots.units() {
            return ReadSource::Disk;
        }
        let Some(file) = self.place.file(&*self.file, self.meta.file_bytes).filter(|_| self.is_plain(block)) else {
            return if self.is_absent(block) { ReadSource::Disk } else { ReadSource::Cache };
        };
        let checked = self.slots.in_place_since(u32::from(block));
        match checked {
            None if !self.is_absent(block) => ReadSource::Cache,
            _ if !file.is_in_memory(self.unit_of(block)) => ReadSource::Disk,
            Some(checked) if checked == self.moment().span_of(u64::from(block)) => ReadSource::Mapped,
            _ => ReadSource::MappedUnchecked,
        }
    }

    pub fn range_tombstones(&self) -> &Arc<RangeTombstoneSet> {
        &self.range_tombstones
    }

    pub fn scan(self: &Arc<Self>, from: Position) -> RunScan {
        RunScan::new(self.clone(), from)
    }

    pub fn keys(self: &Arc<Self>, from: Position) -> KeyScan {
        KeyScan::new(self.clone(), from)
    }

    /// Checks all bytes and their consistency, past the cache. Linear in the bytes, which it
    /// returns.
    pub fn verify(self: &Arc<Self>) -> Result<u64> {
        self.verify_with(&mut |_| {})
    }

    pub fn verify_with(self: &Arc<Self>, visitor: &mut dyn FnMut(&EntryRef<'_>)) -> Result<u64> {
        super::verify::verify(self, visitor)
    }

    pub fn resident_bytes(&self) -> usize {
        let bounds = |key: &Vec<u8>| 2 * (size_of::<Vec<u8>>() + key.len());
        let tombstones: usize = self.range_tombstones.iter().map(|t| 16 + bounds(&t.start) + bounds(&t.end)).sum();
        let meta = self.meta.smallest.len() + self.meta.largest.len() + size_of_val(&*self.meta.blob_uses);
        let path = self.path.as_os_str().len();
        let blocks = self.slots.resident_bytes() + self.index.resident_bytes() + self.counts.len();
        size_of::<Run>() + blocks + tombstones + meta + path
    }

    /// Removes the file with the last handle.
    pub fn mark_obsolete(&self) {
        // Release, paired with acquire in `drop`, which may run on another thread.
        self.is_obsolete.store(true, Ordering::Release);
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    #[cold]
    pub(super) fn no_such_entry(&self, position: Position) -> Error {
        let Position { block, slot } = position;
        let offset = self.index.offset(usize::from(block));
        Error::corruption(&self.path, offset, format!("block {block} has no whole entry {slot}"))
    }

    #[inline]
    pub fn unit_of(&self, block: u16) -> Range<u64> {
        self.index.unit(usize::from(block), self.note(block).len())
    }

    #[inline(always)]
    fn contents_of(&self, block: u16) -> Range<u64> {
        let len = self.note(block).len() as u64;
        if self.stride > 0 && len > 0 && usize::from(block) + 1 < self.slots.units() {
            let start = start_on_grid(block);
            return start..(start + len).min((u64::from(block) + 1) * PAGE_BYTES);
        }
        let unit = self.unit_of(block);
        unit.start + UNIT_HEADER_LEN as u64..unit.end
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let file = Arc::clone(&self.file);
        if self.is_obsolete.load(Ordering::Acquire) {
            self.deferred_close.remove(&self.vfs, &self.path, file);
        } else {
            // Another process removes a follower's files.
            self.deferred_close.drop_later(file);
        }
    }
}

pub(super) fn read_bytes(file: &dyn File, path: &Path, from: u64, to: u64) -> Result<Vec<u8>> {
    let len = to.checked_sub(from).and_then(|len| usize::try_from(len).ok());
    let len = len.ok_or_else(|| Error::corruption(path, from, "a length that this machine cannot hold"))?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, from).map_err(|error| read_error(path, from, error))?;
    Ok(bytes)
}

pub(super) fn read_error(path: &Path, offset: u64, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::corruption(path, offset, "the file is cut short"),
        _ => Error::io("read", path, error),
    }
}
