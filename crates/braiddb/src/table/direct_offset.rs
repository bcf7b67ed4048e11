//! Reading entries whose place is known to the byte.
//!
//! Who kept where an entry begins need not ask its block's slots: they stand at the block's end, in lines that are fetched for nothing
//! else. That is for blocks that stand in a mapped file as they are, where the place of an entry in memory follows from numbers, or, if not every
//! block has a page of its own, from the list of where blocks begin: so that it is asked for before anything else is known of the block.

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

/// Where an entry stands in a run: its block, and where in that it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryOffset {
    /// The block.
    pub block: u16,
    /// The bytes before the entry in it.
    pub offset: u16,
}

/// The bits that every offset in a page fits in.
pub const OFFSET_BITS: u32 = PAGE_BYTES.trailing_zeros();

impl Run {
    /// Whether [`EntryOffset`]s tell where entries of these blocks begin, and that is known before the blocks are looked at: they stand in a mapped file as
    /// they are, and all offsets are those of bytes in a page.
    pub fn has_spots(&self, mut blocks: RangeInclusive<u16>) -> bool {
        let has_small_offsets = |block| self.note(block).len() as u64 <= PAGE_BYTES || self.note(block).mark() == 1;
        self.place.get().is_some() && blocks.all(|block| self.is_plain(block) && has_small_offsets(block))
    }

    /// Whether each block has a page of its own, one right after the other, in a mapped file.
    #[inline]
    pub fn is_on_grid(&self) -> bool {
        self.stride > 0 && self.place.get().is_some()
    }

    /// Asks the processor for the entry at a spot: its first lines, which is where a short one stands.
    #[inline(always)]
    pub fn prefetch_at(&self, entry_offset: EntryOffset) {
        if let Some(file) = self.place.get() {
            file.hint(self.contents_start(entry_offset.block) + u64::from(entry_offset.offset)).prefetch_item();
        }
    }

    /// Whether [`Run::prefetch_ends`] may ask for anything.
    #[inline(always)]
    pub fn can_prefetch_ends(&self, entries: usize) -> bool {
        (1..=2 * PAGE_BYTES as usize).contains(&(self.stride * entries))
    }

    /// Asks the processor for the ends of the two blocks that most of `entries` entries stand in which begin in `block`, and for what is noted of
    /// them; nothing if that many take more, or blocks have no pages of their own in a mapped file.
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

    /// The entry at a spot, as [`Run::read`]. The sequence number of a plain value is told only `with_sequence`; without, what stands in
    /// its place means nothing.
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

    /// [`Run::read_at`] without the sequence number, if the block is read in place and need not be checked again.
    #[inline(always)]
    pub fn entry_at_hand(&self, entry_offset: EntryOffset, now: Moment) -> Option<EntryRef<'_>> {
        let file = self.place.get()?;
        let start = self.contents_start(entry_offset.block);
        file.hint(start + u64::from(entry_offset.offset)).prefetch_item();
        entry_at(self.contents_in(file, start, entry_offset, now)?, usize::from(entry_offset.offset), false)
    }

    /// The key, if it has so many bytes, and the value of [`Run::entry_at_hand`], if that is a plain one with a usual header.
    #[inline(always)]
    pub fn plain_at_hand(&self, entry_offset: EntryOffset, key_len: usize, now: Moment) -> Option<(&[u8], &[u8])> {
        let file = self.place.get()?;
        let start = self.contents_start(entry_offset.block);
        file.hint(start + u64::from(entry_offset.offset)).prefetch_item();
        plain_at(self.contents_in(file, start, entry_offset, now)?, usize::from(entry_offset.offset), key_len)
    }

    /// Asks the processor for the first lines of an entry, and for what is known of the block.
    #[inline(always)]
    pub fn prefetch_at_hand(&self, entry_offset: EntryOffset) {
        self.prefetch_slot(entry_offset.block);
        self.prefetch_at(entry_offset);
    }

    /// [`Run::plain_at_hand`] of a spot that was asked for before.
    #[inline(always)]
    pub fn plain_prefetched(&self, entry_offset: EntryOffset, key_len: usize, now: Moment) -> Option<(&[u8], &[u8])> {
        let contents =
            self.contents_in(self.place.get()?, self.contents_start(entry_offset.block), entry_offset, now)?;
        plain_at(contents, usize::from(entry_offset.offset), key_len)
    }

    /// Where the contents of a block begin.
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

    /// A block that is cached, or has to be checked.
    #[cold]
    fn block_elsewhere<'g>(&self, block: u16, guard: &'g Guard) -> Result<&'g [u8]> {
        match self.slots.get(u32::from(block), guard) {
            Some(bytes) => Ok(bytes),
            None => self.read_uncached(block, [0; 2], guard),
        }
    }
}

/// Where the contents of a block begin in a file of which each block has a page of its own.
#[inline(always)]
pub(super) fn start_on_grid(block: u16) -> u64 {
    (u64::from(block) * PAGE_BYTES).max(FILE_HEADER_LEN as u64) + UNIT_HEADER_LEN as u64
}

/// The average bytes of an entry of blocks of which this is noted.
pub(super) fn average_stride(notes: &[UnitNote]) -> usize {
    let entries: usize = notes.iter().map(|note| usize::from(note.mark())).sum();
    let bytes: usize =
        notes.iter().map(|note| average_entry_bytes(note.len(), note.mark()) * usize::from(note.mark())).sum();
    (bytes + entries / 2) / entries.max(1)
}
