//! Reads entries whose byte offset is known.
//!
//! Such a read fetches no cache lines of the slot array. It needs an uncompressed block in a mapped
//! file. The entry is prefetched before the block is touched.

use super::{
    Moment, Position, Run,
    block::{average_entry_bytes, entry_at, plain_at},
    format::{PAGE_BYTES, UNIT_HEADER_LEN},
};
use crate::{
    base::{EntryRef, Result},
    cache::{MappedFile, UnitNote},
    codec::FILE_HEADER_LEN,
};
use crossbeam_epoch::Guard;
use std::ops::RangeInclusive;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryOffset {
    pub block: u16,
    pub offset: u16,
}

pub const OFFSET_BITS: u32 = PAGE_BYTES.trailing_zeros();

impl Run {
    /// These blocks are uncompressed in a mapped file, and offsets are below a page's size.
    pub fn has_offsets(&self, mut blocks: RangeInclusive<u16>) -> bool {
        let has_small_offsets = |block| self.note(block).len() as u64 <= PAGE_BYTES || self.note(block).mark() == 1;
        self.place.get().is_some() && blocks.all(|block| self.is_plain(block) && has_small_offsets(block))
    }

    #[inline]
    pub fn is_on_grid(&self) -> bool {
        self.stride > 0 && self.place.get().is_some()
    }

    #[inline(always)]
    pub fn prefetch_at(&self, entry_offset: EntryOffset) {
        if let Some(file) = self.place.get() {
            file.hint(self.contents_start(entry_offset.block) + u64::from(entry_offset.offset)).prefetch_item();
        }
    }

    #[inline(always)]
    pub fn can_prefetch_ends(&self, entries: usize) -> bool {
        (1..=2 * PAGE_BYTES as usize).contains(&(self.stride * entries))
    }

    /// Prefetches the ends of the two blocks with most of `entries` entries from the start of
    /// `block` on. Nothing if the entries need more blocks, or blocks have no pages in a mapped
    /// file.
    #[inline(always)]
    pub fn prefetch_ends(&self, block: u16, entries: usize) {
        if let Some(file) = self.place.get()
            && self.can_prefetch_ends(entries)
            && usize::from(block) + 1 < self.slots.units()
        {
            self.prefetch_slot(block);
            let end = (u64::from(block) + 1) * PAGE_BYTES;
            file.hint(end).prefetch_page_end();
            file.hint(end + PAGE_BYTES).prefetch_page_end();
        }
    }

    /// Reads an entry. Without `with_sequence`, a plain value's sequence number is undefined.
    #[inline(always)]
    pub fn read_at<'g>(
        &self,
        entry_offset: EntryOffset,
        with_sequence: bool,
        guard: &'g Guard,
    ) -> Result<EntryRef<'g>> {
        let EntryOffset { block, offset } = entry_offset;
        let no_such_entry = || self.no_such_entry(Position { block, slot: 0 });
        if usize::from(block) >= self.slots.units() {
            return Err(no_such_entry());
        }
        self.prefetch_at(entry_offset);
        let bytes = match self.at_hand_in_place(block, || self.moment()) {
            Some((file, range)) => file.get(range, guard).ok_or_else(no_such_entry)?,
            None => self.block_elsewhere(block, guard)?,
        };
        let entry = entry_at(bytes, usize::from(offset), with_sequence).ok_or_else(no_such_entry)?;
        Ok(entry.numbered(self.given_sequence()))
    }

    /// [`Run::read_at`] without the sequence number; `None` unless the block is read in place and
    /// needs no check.
    #[inline(always)]
    pub fn entry_at_hand(&self, entry_offset: EntryOffset, now: Moment) -> Option<EntryRef<'_>> {
        let file = self.place.get()?;
        let start = self.contents_start(entry_offset.block);
        file.hint(start + u64::from(entry_offset.offset)).prefetch_item();
        entry_at(self.contents_in(file, start, entry_offset, now)?, usize::from(entry_offset.offset), false)
    }

    /// [`Run::entry_at_hand`] for a plain value with a common header and a key of `key_len` bytes.
    #[inline(always)]
    pub fn plain_at_hand(&self, entry_offset: EntryOffset, key_len: usize, now: Moment) -> Option<(&[u8], &[u8])> {
        let file = self.place.get()?;
        let start = self.contents_start(entry_offset.block);
        file.hint(start + u64::from(entry_offset.offset)).prefetch_item();
        plain_at(self.contents_in(file, start, entry_offset, now)?, usize::from(entry_offset.offset), key_len)
    }

    #[inline(always)]
    pub fn prefetch_at_hand(&self, entry_offset: EntryOffset) {
        self.prefetch_slot(entry_offset.block);
        self.prefetch_at(entry_offset);
    }

    /// [`Run::plain_at_hand`] for a prefetched entry.
    #[inline(always)]
    pub fn plain_prefetched(&self, entry_offset: EntryOffset, key_len: usize, now: Moment) -> Option<(&[u8], &[u8])> {
        let contents =
            self.contents_in(self.place.get()?, self.contents_start(entry_offset.block), entry_offset, now)?;
        plain_at(contents, usize::from(entry_offset.offset), key_len)
    }

    #[inline(always)]
    fn contents_start(&self, block: u16) -> u64 {
        if self.stride > 0 {
            return start_on_grid(block);
        }
        self.index.offset(usize::from(block)) + UNIT_HEADER_LEN as u64
    }

    #[inline(always)]
    fn contents_in<'r>(
        &'r self,
        file: &'r MappedFile,
        start: u64,
        entry_offset: EntryOffset,
        now: Moment,
    ) -> Option<&'r [u8]> {
        let (checked, note) = self.slots.in_place(u32::from(entry_offset.block))?;
        if checked != now.span_of(entry_offset.block.into()) {
            return None;
        }
        self.slots.note_hit();
        file.bytes(start..start + note.len() as u64)
    }

    #[cold]
    fn block_elsewhere<'g>(&self, block: u16, guard: &'g Guard) -> Result<&'g [u8]> {
        match self.slots.get(u32::from(block), guard) {
            Some(bytes) => Ok(bytes),
            None => self.read_uncached(block, [0; 2], guard),
        }
    }
}

/// Offset of a block's contents if each block has its own page.
#[inline(always)]
pub(super) fn start_on_grid(block: u16) -> u64 {
    (u64::from(block) * PAGE_BYTES).max(FILE_HEADER_LEN as u64) + UNIT_HEADER_LEN as u64
}

pub(super) fn average_stride(notes: &[UnitNote]) -> usize {
    let entries: usize = notes.iter().map(|note| usize::from(note.mark())).sum();
    let bytes: usize =
        notes.iter().map(|note| average_entry_bytes(note.len(), note.mark()) * usize::from(note.mark())).sum();
    (bytes + entries / 2) / entries.max(1)
}
