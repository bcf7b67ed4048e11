//! Blocks in memory: borrowed under a guard ([`Block`]), or pinned by a handle ([`PinnedBlock`]).

use super::super::{
    Position,
    block::{self, Rows},
};
use super::Run;
use crate::{
    base::{EntryRef, Error, FileNumber, Result, SequenceNumber},
    cache::PinnedUnit,
};

#[derive(Clone, Copy, Debug)]
pub struct Block<'g> {
    pub(super) bytes: &'g [u8],
    pub(super) run: &'g Run,
    pub(super) block: u16,
}

impl<'g> Block<'g> {
    #[inline]
    #[cfg(test)]
    pub fn entry(&self, slot: u16) -> Result<EntryRef<'g>> {
        let entry = block::entry(self.bytes, slot).map(|entry| entry.numbered(self.run.given));
        entry.ok_or_else(|| self.run.no_such_entry(Position { block: self.block, slot }))
    }

    #[inline]
    pub fn rows(&self) -> Result<Rows<'g>> {
        Rows::new(self.bytes).ok_or_else(|| self.run.no_such_entry(Position { block: self.block, slot: 0 }))
    }
}

/// A block that stays in memory even after its run is closed.
#[derive(Debug)]
pub struct PinnedBlock {
    pub(super) unit: PinnedUnit,
    pub(super) number: FileNumber,
    pub(super) given: SequenceNumber,
    pub(super) block: u16,
}

impl PinnedBlock {
    /// Corruption if there is no such entry. (The error's path is only the file name.)
    #[inline(always)]
    pub fn entry(&self, slot: u16) -> Result<EntryRef<'_>> {
        match block::entry(&self.unit, slot) {
            Some(entry) => Ok(entry.numbered(self.given)),
            None => Err(self.no_such_entry(slot)),
        }
    }

    pub fn is_of(&self, run: &Run) -> bool {
        self.number == run.meta.number
    }

    pub fn number(&self) -> u16 {
        self.block
    }

    #[inline]
    pub fn rows(&self) -> Result<Rows<'_>> {
        Rows::new(&self.unit).ok_or_else(|| self.no_such_entry(0))
    }

    #[inline]
    #[cfg(test)]
    pub fn entries(&self) -> u16 {
        block::entry_count(&self.unit)
    }

    #[cold]
    pub(in crate::table) fn no_such_entry(&self, slot: u16) -> Error {
        let detail = format!("block {} has no entry {slot}", self.block);
        Error::corruption(format!("{:06}.run", self.number), 0, detail)
    }
}
