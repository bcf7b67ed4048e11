//! Rows decoded ahead of a cursor: what a scan is made of.
//!
//! Decoding what is left of a segment in one go costs a few instructions a row, and the cache lines of all of them are
//! asked for before the first is needed. A batch holds the blocks that its rows stand in, so it can be read whatever
//! becomes of the cursor. It keeps those that the next batch needs again: a block is counted once while a scan passes.

use crate::base::Result;
use crate::table::{PinnedBlock, Run};
use std::fmt;

use super::format::SEGMENT_LANES;

/// Key and value.
type Row<'a> = (&'a [u8], &'a [u8]);

/// A block, and its number.
struct Pin {
    block: u16,
    bytes: PinnedBlock,
}

/// Up to a segment of rows, in the order in which they are to be passed.
///
/// Invariant: each of the first `len` rows borrows from one of `pins`.
pub struct RowBatch {
    rows: [Row<'static>; SEGMENT_LANES],
    lanes: [u8; SEGMENT_LANES],
    len: usize,
    segment: u32,
    is_forward: bool,
    /// The row that these come after, if it is not the one that the cursor stands on.
    from: Option<(u32, usize)>,
    /// How many batches were filled one after the other.
    rounds: u32,
    pins: Vec<Pin>,
    /// The pins of the batch before, while this one is filled.
    old: Vec<Pin>,
}

impl Default for RowBatch {
    fn default() -> RowBatch {
        RowBatch {
            rows: [(b"", b""); SEGMENT_LANES],
            lanes: [0; SEGMENT_LANES],
            len: 0,
            segment: 0,
            is_forward: true,
            from: None,
            rounds: 0,
            pins: Vec::new(),
            old: Vec::new(),
        }
    }
}

impl fmt::Debug for RowBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowBatch").field("len", &self.len).field("segment", &self.segment).finish_non_exhaustive()
    }
}

impl RowBatch {
    /// How many rows there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether they go forward.
    #[inline]
    pub fn is_forward(&self) -> bool {
        self.is_forward
    }

    /// A row, if there are so many.
    #[inline]
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        self.rows().get(index).copied()
    }

    #[inline]
    fn rows(&self) -> &[Row<'_>] {
        self.rows.get(..self.len).unwrap_or_default()
    }

    /// Forgets all rows, but for the place of one: what is filled in next comes after that.
    pub fn go_on_from(&mut self, index: usize) {
        if index < self.len {
            self.from = Some((self.segment, usize::from(self.lanes[index])));
            self.len = 0;
        }
    }

    /// The place that was kept by [`RowBatch::go_on_from`].
    pub(super) fn from(&self) -> Option<(u32, usize)> {
        self.from
    }

    /// How many batches in one direction came before this one.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Forgets all rows, and the blocks they stand in.
    pub fn release(&mut self) {
        self.len = 0;
        self.from = None;
        self.rounds = 0;
        self.pins.clear();
    }

    /// Keeps the rows that come before `bound`: keys that are less, or going backward, greater.
    pub fn keep_before(&mut self, bound: &[u8]) {
        let is_before = |(key, _): &Row<'_>| if self.is_forward { *key < bound } else { *key > bound };
        if self.rows().last().is_some_and(|last| !is_before(last)) {
            self.len = self.rows().partition_point(is_before);
        }
    }

    /// Keeps the rows whose keys are `start` or greater, of rows that go backward.
    pub fn keep_from(&mut self, start: &[u8]) {
        if self.rows().last().is_some_and(|(last, _)| *last < start) {
            self.len = self.rows().partition_point(|(key, _)| *key >= start);
        }
    }

    /// Keeps the rows whose keys begin with `prefix`; those that do come first.
    pub fn keep_prefix(&mut self, prefix: &[u8]) {
        if self.rows().last().is_some_and(|(last, _)| !last.starts_with(prefix)) {
            self.len = self.rows().partition_point(|(key, _)| key.starts_with(prefix));
        }
    }

    /// Forgets all rows, and begins to take in others.
    pub(super) fn begin(&mut self, segment: u32, is_forward: bool) {
        self.len = 0;
        self.rounds = if self.is_forward == is_forward && self.from.is_some() { self.rounds + 1 } else { 0 };
        (self.segment, self.is_forward) = (segment, is_forward);
        self.old.clear();
        std::mem::swap(&mut self.old, &mut self.pins);
    }

    /// Says that the rows are of another segment.
    pub(super) fn begin_again(&mut self, segment: u32) {
        self.segment = segment;
    }

    /// Pins a block of a run for the rows to come; where it is among the pins. To be called once for each block.
    #[inline(never)]
    pub(super) fn pin(&mut self, run: &Run, block: u16) -> Result<usize> {
        let bytes = match self.old.iter().position(|pin| pin.block == block && pin.bytes.is_of(run)) {
            Some(at) => self.old.swap_remove(at).bytes,
            None => run.pin(block)?,
        };
        self.pins.push(Pin { block, bytes });
        Ok(self.pins.len() - 1)
    }

    /// Takes in the entry at a slot of a pinned block.
    #[inline(always)]
    pub(super) fn push(&mut self, lane: usize, pin: usize, slot: u16) -> Result<()> {
        let row = self.pins[pin].bytes.pair(slot)?;
        // SAFETY: only the lifetimes change. The block stays in `pins`, and so in its place in memory, until `begin` or
        // `release`, which forget all rows first; and rows are lent no longer than `self`.
        let row = unsafe { std::mem::transmute::<Row<'_>, Row<'static>>(row) };
        let len = self.len % SEGMENT_LANES;
        self.rows[len] = row;
        self.lanes[len] = lane as u8;
        self.len = len + 1;
        Ok(())
    }

    /// Lets go of the blocks that were not needed again.
    pub(super) fn finish(&mut self) {
        self.old.clear();
    }
}
