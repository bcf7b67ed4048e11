//! Loads blocks that are not cached: reads them, checks them and caches them, or checks them in the
//! mapped file.

use super::super::{
    Position, block,
    format::{Contents, open_unit, read_unit},
};
use super::{Run, read_bytes};
use crate::{
    base::{Error, Result},
    cache::{MappedFile, PinnedUnit, UnitNote},
    platform::ReadRequest,
};
use crossbeam_epoch::Guard;
use std::{ops::Range, sync::Arc};

enum Found<'a> {
    InPlace(&'a MappedFile, Range<u64>),
    Loaded(Vec<u8>),
}

impl Run {
    /// Makes a read to be batched and passed to [`Run::take_in`]. `None` if the system has the
    /// block in memory, or there is no such block.
    pub fn request(&self, block: u16) -> Option<ReadRequest> {
        if usize::from(block) >= self.slots.units() {
            return None;
        }
        let unit = self.unit_of(block);
        let mapped = self.place.file(&*self.file, self.meta.file_bytes);
        if mapped.is_some_and(|file| file.is_in_memory(unit.clone())) {
            return None;
        }
        let len = usize::try_from(unit.end - unit.start).ok()?;
        Some(ReadRequest::new(Arc::clone(&self.file), unit.start, len))
    }

    /// Caches a block, unless it is read in place. Leaves errors to a later read.
    pub fn take_in(&self, block: u16, read: &ReadRequest) {
        if matches!(read.result, Some(Ok(()))) && self.is_absent(block) {
            let _ = self.take_in_unit(block, &read.bytes, self.place.get().is_none());
        }
    }

    fn take_in_unit(&self, block: u16, unit: &[u8], even_plain: bool) -> Result<()> {
        let mut unpacked = Vec::new();
        let contents = match open_unit(unit, self.meta.file_id, self.unit_of(block).start, &self.path, &mut unpacked)? {
            Contents::Plain(_) if !even_plain => return Ok(()),
            Contents::Plain(contents) => contents,
            Contents::Unpacked => &unpacked,
        };
        self.check_contents(block, contents)?;
        self.slots.insert(u32::from(block), contents, &crossbeam_epoch::pin());
        Ok(())
    }

    #[inline(never)]
    pub(in crate::table) fn read_uncached<'g>(
        &self,
        block: u16,
        soon: [usize; 2],
        guard: &'g Guard,
    ) -> Result<&'g [u8]> {
        match self.find_uncached(block)? {
            Found::InPlace(file, range) => {
                file.hint(range.end).prefetch_before(soon);
                file.get(range, guard).ok_or_else(|| self.no_such_entry(Position { block, slot: 0 }))
            }
            Found::Loaded(bytes) => Ok(self.slots.insert(u32::from(block), &bytes, guard)),
        }
    }

    /// Holds no guard while loading: it would block reclamation.
    #[inline(never)]
    pub(super) fn pin_uncached(&self, block: u16) -> Result<PinnedUnit> {
        match self.find_uncached(block)? {
            Found::InPlace(file, range) => {
                file.pin(range).ok_or_else(|| self.no_such_entry(Position { block, slot: 0 }))
            }
            Found::Loaded(bytes) => Ok(self.slots.insert_pinned(u32::from(block), &bytes)),
        }
    }

    #[inline(always)]
    fn find_uncached(&self, block: u16) -> Result<Found<'_>> {
        let unit = u32::from(block);
        let Some(file) = self.place.file(&*self.file, self.meta.file_bytes) else {
            return Ok(Found::Loaded(self.load(block)?));
        };
        let now = self.place.now(block);
        if self.slots.in_place_since(unit) == Some(now) {
            self.slots.note_hit();
        } else if let Some(unpacked) = self.check(file, block)? {
            return Ok(Found::Loaded(unpacked));
        } else {
            self.slots.set_in_place(unit, now, self.note(block).len());
        }
        Ok(Found::InPlace(file, self.contents_of(block)))
    }

    #[cold]
    #[inline(never)]
    pub(in crate::table) fn load(&self, block: u16) -> Result<Vec<u8>> {
        let unit = self.unit_of(block);
        let ahead = if self.file.is_unbuffered() { self.sequence.note(block, self.end().block) } else { block };
        let end = self.unit_of(ahead).end.max(unit.end);
        let mut bytes = read_bytes(&*self.file, &self.path, unit.start, end)?;
        for next in block + 1..=ahead {
            self.take_in_ahead(next, unit.start, &bytes);
        }
        bytes.truncate((unit.end - unit.start) as usize);
        let bytes = read_unit(bytes, self.meta.file_id, unit.start, &self.path)?;
        self.check_contents(block, &bytes)?;
        Ok(bytes)
    }

    /// Caches a block that was read with an earlier one at `start`. Leaves errors to a later read.
    fn take_in_ahead(&self, block: u16, start: u64, bytes: &[u8]) {
        let Range { start: from, end: to } = self.unit_of(block);
        let part = from.checked_sub(start).zip(to.checked_sub(start));
        let part = part.and_then(|(from, to)| bytes.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?));
        if let Some(unit) = part.filter(|_| self.is_absent(block)) {
            let _ = self.take_in_unit(block, unit, true);
        }
    }

    /// Returns the contents of a compressed block.
    #[cold]
    #[inline(never)]
    fn check(&self, file: &MappedFile, block: u16) -> Result<Option<Vec<u8>>> {
        let unit = self.unit_of(block);
        self.place.have_in_memory(&unit, &*self.file, &self.path)?;
        let guard = crossbeam_epoch::pin();
        let bytes = file.get(unit.clone(), &guard).ok_or_else(|| self.no_such_entry(Position { block, slot: 0 }))?;
        let mut unpacked = Vec::new();
        match open_unit(bytes, self.meta.file_id, unit.start, &self.path, &mut unpacked)? {
            Contents::Plain(contents) => self.check_contents(block, contents).map(|()| None),
            Contents::Unpacked => self.check_contents(block, &unpacked).map(|()| Some(unpacked)),
        }
    }

    fn check_contents(&self, block: u16, bytes: &[u8]) -> Result<()> {
        let note = self.note(block);
        let offset = self.index.offset(usize::from(block));
        if !block::validate(bytes, u16::from(note.mark())) {
            return Err(Error::corruption(&self.path, offset, format!("block {block} is malformed")));
        }
        if UnitNote::new(bytes.len(), note.mark()) != note {
            return Err(Error::corruption(&self.path, offset, format!("block {block} is not the one in the index")));
        }
        Ok(())
    }
}
