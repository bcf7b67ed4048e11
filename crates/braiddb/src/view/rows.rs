//! Rows decoded ahead of a cursor: what a scan is made of.
//!
//! Decoding what is left of a segment in one go costs a few instructions a row, and the cache lines of all of them are
//! asked for before the first is needed. A batch holds the blocks that its rows stand in, so it can be read whatever
//! becomes of the cursor. It keeps the last block of each run for the next batch: a block is counted once while a scan
//! passes.

use super::format::{SEGMENT_LANES, Segment, lanes_below};
use super::simd::{Simd, Task};
use crate::base::Result;
use crate::cache::Ahead;
use crate::table::{PinnedBlock, Position, Rows, Run};
use std::fmt;
use std::sync::Arc;

/// How many lines of the next block are asked for where a row is passed: what rows of a hundred bytes or two have, and the
/// beginning of longer ones.
const LINES_AHEAD: usize = 3;
/// More rows are not asked for at a time.
const LIKELY_ROWS_MAX: u32 = 64;
/// After so many batches a scan is a long one, which decodes whole segments and fetches whole blocks.
pub(super) const LONG_SCAN: u32 = 6;

/// Key and value, one right after the other.
#[derive(Clone, Copy)]
struct Row {
    bytes: &'static [u8],
    key_len: usize,
}

impl Row {
    #[inline(always)]
    fn key(&self) -> &[u8] {
        self.bytes.get(..self.key_len).unwrap_or_default()
    }
}

/// Where a run stands while lanes are decoded.
///
/// Invariant: `rows` are those of `pin`, or none.
#[derive(Default)]
struct RunState {
    rows: Option<Rows<'static>>,
    pin: Option<PinnedBlock>,
    /// The entry ahead; going backward, the one after it.
    at: Position,
    /// The block that comes next, if the scan is a long one.
    ahead: Ahead,
}

/// Up to a segment of rows, in the order in which they are to be passed.
///
/// Invariant: each of the first `len` rows borrows from a block that is pinned by one of `states` or of `passed`.
pub struct RowBatch {
    rows: [Row; SEGMENT_LANES],
    lanes: [u8; SEGMENT_LANES],
    len: usize,
    segment: u32,
    is_forward: bool,
    /// The row that these come after, if it is not the one that the cursor stands on.
    from: Option<(u32, usize)>,
    /// How many batches were filled one after the other, and the rows of those that were passed.
    rounds: u32,
    passed_rows: u32,
    /// How many rows the scan before went on for: so many are likely to be wanted again.
    likely_rows: u32,
    states: Vec<RunState>,
    /// Blocks that runs have gone on from, and whose rows are in the batch.
    passed: Vec<PinnedBlock>,
}

impl Default for RowBatch {
    fn default() -> RowBatch {
        RowBatch {
            rows: [Row { bytes: b"", key_len: 0 }; SEGMENT_LANES],
            lanes: [0; SEGMENT_LANES],
            len: 0,
            segment: 0,
            is_forward: true,
            from: None,
            rounds: 0,
            passed_rows: 0,
            likely_rows: 0,
            states: Vec::new(),
            passed: Vec::new(),
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
        if index >= self.len {
            return None;
        }
        let row = self.rows[index % SEGMENT_LANES];
        row.bytes.split_at_checked(row.key_len)
    }

    #[inline]
    fn rows(&self) -> &[Row] {
        self.rows.get(..self.len).unwrap_or_default()
    }

    /// Forgets all rows, but for the place of one: what is filled in next comes after that.
    pub fn go_on_from(&mut self, index: usize) {
        if index < self.len {
            self.from = Some((self.segment, usize::from(self.lanes[index])));
            self.passed_rows = self.passed_rows.saturating_add(index as u32 + 1);
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

    /// How many rows are likely to be wanted from here on, going by the scan before.
    pub(super) fn likely_rows(&self) -> usize {
        self.likely_rows.saturating_sub(self.passed_rows) as usize
    }

    /// Ends a scan at a row, and begins another: as [`RowBatch::release`].
    pub fn restart(&mut self, index: usize) {
        self.go_on_from(index);
        self.likely_rows = self.passed_rows.min(LIKELY_ROWS_MAX);
        self.release();
    }

    /// Forgets all rows, and the blocks they stand in.
    pub fn release(&mut self) {
        self.len = 0;
        self.from = None;
        (self.rounds, self.passed_rows) = (0, 0);
        self.states.clear();
        self.passed.clear();
    }

    /// Keeps the rows that come before `bound`: keys that are less, or going backward, greater.
    pub fn keep_before(&mut self, bound: &[u8]) {
        let is_forward = self.is_forward;
        self.keep_while(|row| if is_forward { row.key() < bound } else { row.key() > bound });
    }

    /// Keeps the rows whose keys are `start` or greater, of rows that go backward.
    pub fn keep_from(&mut self, start: &[u8]) {
        self.keep_while(|row| row.key() >= start);
    }

    /// Keeps the rows whose keys begin with `prefix`; those that do come first.
    pub fn keep_prefix(&mut self, prefix: &[u8]) {
        self.keep_while(|row| row.key().starts_with(prefix));
    }

    /// Keeps the rows that are to be kept, which are the first.
    fn keep_while(&mut self, is_kept: impl Fn(&Row) -> bool) {
        if self.rows().last().is_some_and(|last| !is_kept(last)) {
            self.len = self.rows().partition_point(is_kept);
        }
    }

    /// Forgets all rows, and begins to take in others.
    pub(super) fn begin(&mut self, segment: u32, is_forward: bool) {
        self.len = 0;
        self.rounds = if self.is_forward == is_forward && self.from.is_some() { self.rounds + 1 } else { 0 };
        (self.segment, self.is_forward) = (segment, is_forward);
        self.passed.clear();
    }

    /// Says that the rows are of another segment.
    pub(super) fn begin_again(&mut self, segment: u32) {
        self.segment = segment;
    }

    /// Takes a run to a position, which going backward is one past the row that comes next.
    #[inline(always)]
    fn place(&mut self, index: usize, run: &Run, at: Position) {
        let Some(state) = self.states.get_mut(index) else { return };
        let is_here = state.at.block == at.block && state.pin.as_ref().is_some_and(|pin| pin.is_of(run));
        if !is_here {
            state.rows = None;
            self.passed.extend(state.pin.take());
        }
        state.at = at;
    }

    /// Passes the next entry of a run, and takes it in if it is `wanted`; whether there is one.
    #[inline(always)]
    fn step<const FORWARD: bool>(&mut self, runs: &[Arc<Run>], index: usize, lane: usize, wanted: bool) -> Result<bool> {
        let Some(state) = self.states.get_mut(index) else { return Ok(false) };
        let slot = if FORWARD { state.at.slot } else { state.at.slot.wrapping_sub(1) };
        let (rows, ahead, slot) = match state.rows {
            Some(rows) if slot < rows.count() => {
                state.at.slot = if FORWARD { slot + 1 } else { slot };
                (rows, state.ahead, slot)
            }
            _ => match self.enter(runs, index)? {
                Some(entered) => entered,
                None => return Ok(false),
            },
        };
        if wanted {
            let Some(offset) = rows.offset(slot) else { return Ok(false) };
            let Some((bytes, key_len)) = rows.get(offset) else { return Ok(false) };
            for line in 0..LINES_AHEAD {
                ahead.prefetch(offset + 64 * line);
            }
            let len = self.len % SEGMENT_LANES;
            self.rows[len] = Row { bytes, key_len };
            self.lanes[len] = lane as u8;
            self.len = len + 1;
        }
        Ok(true)
    }

    /// Pins the block in which a run goes on, and passes its first entry: which that is; `None` if there is none.
    #[inline(never)]
    fn enter(&mut self, runs: &[Arc<Run>], index: usize) -> Result<Option<(Rows<'static>, Ahead, u16)>> {
        let (state, Some(run)) = (&mut self.states[index], runs.get(index)) else { return Ok(None) };
        let Position { mut block, mut slot } = state.at;
        if self.is_forward && state.pin.is_some() {
            // The pinned block has been passed.
            (block, slot) = (block.saturating_add(1), 0);
        } else if !self.is_forward && slot == 0 {
            let Some(before) = block.checked_sub(1) else { return Ok(None) };
            (block, slot) = (before, run.block_entries(before));
        }
        if block >= run.end().block {
            return Ok(None);
        }
        state.rows = None;
        self.passed.extend(state.pin.take());
        let pin = run.pin(block)?;
        let rows = pin.rows()?;
        // SAFETY: only the lifetime changes. The block stays in `states` or `passed`, and so in its place in memory, until
        // no row of it is left: `begin`, `release` and `set_runs` forget all rows before they let go of any block, and
        // `state.rows` goes with its pin. Rows are lent no longer than `self`.
        let rows = unsafe { std::mem::transmute::<Rows<'_>, Rows<'static>>(rows) };
        (state.pin, state.rows) = (Some(pin), Some(rows));
        let next = if self.is_forward { block.checked_add(1) } else { block.checked_sub(1) };
        state.ahead = if self.rounds >= LONG_SCAN { next.map_or(Ahead::default(), |next| run.ahead(next)) } else { Ahead::default() };
        let slot = if self.is_forward { slot } else { slot.wrapping_sub(1) };
        state.at = Position { block, slot: if self.is_forward { slot.saturating_add(1) } else { slot } };
        Ok((slot < rows.count()).then_some((rows, state.ahead, slot)))
    }

    /// Makes room for the states of so many runs.
    fn set_runs(&mut self, runs: usize) {
        if self.states.len() != runs {
            self.len = 0;
            self.states.clear();
            self.states.resize_with(runs, RunState::default);
        }
    }
}

/// Decodes lanes of a segment into a batch; whether all their entries are there.
pub(super) struct Decode<'a> {
    pub(super) runs: &'a [Arc<Run>],
    pub(super) segment: Segment<'a>,
    pub(super) lanes: u32,
    pub(super) batch: &'a mut RowBatch,
}

impl Decode<'_> {
    #[inline(always)]
    fn go<const FORWARD: bool>(self) -> Result<bool> {
        let Decode { runs, segment, lanes, batch } = self;
        let (first, end) = (lanes.trailing_zeros() as usize, 32 - lanes.leading_zeros() as usize);
        let (edge, span) = (if FORWARD { first } else { end }, lanes_below(end) & !lanes_below(first));
        batch.set_runs(runs.len());
        for (index, run) in runs.iter().enumerate() {
            let of_run = segment.lanes_of_run(index);
            if of_run & span != 0 {
                let before = (of_run & lanes_below(edge)).count_ones();
                batch.place(index, run, run.advance(segment.cursor(index).unwrap_or_default(), before));
            }
        }
        for passed in 0..end - first {
            let lane = if FORWARD { first + passed } else { end - 1 - passed };
            if !batch.step::<FORWARD>(runs, segment.run(lane), lane, lanes >> lane & 1 != 0)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Task for Decode<'_> {
    type Output = Result<bool>;

    #[inline(always)]
    fn run(self, _simd: Simd) -> Result<bool> {
        if self.batch.is_forward { self.go::<true>() } else { self.go::<false>() }
    }
}
