//! Prefetches of blocks, entries and rows.
//!
//! If each block has its own page in a mapped file, an entry's address follows from its numbers,
//! for entries of equal length; otherwise from the cache's note of its block. A wrong guess costs
//! one fetched line.

use super::{
    Position, Run,
    block::{average_entry_bytes, slot_before_end},
    format::{PAGE_BYTES, UNIT_HEADER_LEN},
};
use crate::cache::{Ahead, Hint, PrefetchQueue};

const KEY_BYTES_MOSTLY: usize = 24;

impl Run {
    /// Does not wait for the block's slot. False if blocks have no pages in a mapped file.
    #[inline(always)]
    pub(super) fn prefetch_on_grid(&self, position: Position) -> bool {
        let Some((page_end, before_end)) = self.on_grid(position) else { return false };
        page_end.prefetch_page_end();
        page_end.prefetch_item_in_page(before_end);
        true
    }

    #[inline(always)]
    fn on_grid(&self, position: Position) -> Option<(Hint, usize)> {
        let is_full = usize::from(position.block) + 1 < self.slots.units();
        let file = self.place.get().filter(|_| self.stride > 0 && is_full)?;
        let before_entry = UNIT_HEADER_LEN + usize::from(position.slot) * self.stride;
        let page_end = (u64::from(position.block) + 1) * PAGE_BYTES;
        Some((file.hint(page_end), (PAGE_BYTES as usize).saturating_sub(before_entry)))
    }

    /// Exact for entries of equal length.
    #[inline(always)]
    pub(super) fn bytes_before_end(&self, position: Position) -> usize {
        let note = self.note(position.block);
        note.len().saturating_sub(usize::from(position.slot) * average_entry_bytes(note.len(), note.mark()))
    }

    #[inline]
    fn hint(&self, block: u16) -> Hint {
        self.slots.hint_or(u32::from(block), || {
            self.place.get().map(|file| file.hint(self.unit_of(block).end)).unwrap_or_default()
        })
    }

    #[inline]
    pub fn prefetch_slot(&self, block: u16) {
        self.slots.prefetch_slot(u32::from(block));
    }

    #[inline]
    pub fn prefetch_soon(&self, position: Position) {
        self.prefetch_slot(position.block);
        self.prefetch_on_grid(position);
    }

    /// Prefetches for a read, if the block is cached.
    #[inline]
    pub fn prefetch(&self, position: Position) {
        if self.prefetch_on_grid(position) {
            return;
        }
        let slot = slot_before_end(self.note(position.block).mark(), position.slot);
        self.hint(position.block).prefetch([1, slot, self.bytes_before_end(position)]);
    }

    #[inline(always)]
    pub fn prefetch_next_key(&self, position: Position) {
        if let Some((page_end, before_end)) = self.on_grid(position) {
            page_end.prefetch_before([before_end.saturating_sub(self.stride + KEY_BYTES_MOSTLY)]);
        }
    }

    /// Prefetches `rows` entries, now or through `queue`, if their blocks are cached. Includes a
    /// block's end if the rows touch one of its ends, or `with_ends` is set.
    #[inline]
    pub fn prefetch_rows(
        &self,
        mut position: Position,
        mut rows: u32,
        with_ends: bool,
        mut queue: Option<&mut PrefetchQueue>,
    ) {
        while rows > 0 && usize::from(position.block) < self.slots.units() {
            let entries = self.block_entries(position.block);
            let here = rows.min(u32::from(entries.saturating_sub(position.slot)));
            let with_end = with_ends || position.slot == 0 || u32::from(position.slot) + here == u32::from(entries);
            if let Some((page_end, before_end)) = self.on_grid(position) {
                if with_end {
                    page_end.prefetch_page_end();
                }
                prefetch_items(page_end, before_end, here, self.stride, queue.as_deref_mut());
            } else {
                let note = self.note(position.block);
                let stride = average_entry_bytes(note.len(), note.mark());
                let hint = self.hint(position.block);
                if with_end {
                    hint.prefetch([1, slot_before_end(entries as u8, position.slot)]);
                }
                let before_end = note.len().saturating_sub(usize::from(position.slot) * stride);
                prefetch_items(hint, before_end, here, stride, queue.as_deref_mut());
            }
            rows -= here;
            position = Position { block: position.block.saturating_add(1), slot: 0 };
        }
    }

    /// Prefetches the end of a block to be read row by row: it is read first.
    #[inline]
    pub fn ahead(&self, block: u16) -> Ahead {
        let note = self.note(block);
        self.hint(block).ahead(note.len(), slot_before_end(note.mark(), 0))
    }
}

#[inline]
fn prefetch_items(unit: Hint, before_end: usize, items: u32, stride: usize, queue: Option<&mut PrefetchQueue>) {
    match (queue, unit.lines_of_items(before_end, items, stride)) {
        (Some(queue), Some(lines)) => queue.add(lines),
        _ => unit.prefetch_items(before_end, items, stride),
    }
}
