//! Rows of a segment decoded ahead of a cursor, for scans.
//!
//! Decoding in one pass costs a few instructions a row, and prefetches all lines first. A batch
//! pins the blocks of its rows, so it stays readable when the cursor moves. It keeps each run's
//! last block for the next batch. Blocks in mapped files need no pin: the batch holds the runs.

use super::format::SEGMENT_LANES;
use crate::base::{Beyond, ROW_LANES, Result, RowSlots, near_lane};
use crate::cache::{Ahead, PrefetchQueue};
use crate::table::{Moment, PinnedBlock, Rows, Run};
pub(super) use decode::Decode;
use std::fmt;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;

mod decode;
mod merge;

/// Lines of a later block to prefetch for each row of 100 to 200 bytes.
pub(super) const LINES_AHEAD: usize = 3;
/// Blocks to prefetch ahead going backward. Batches are decoded forward, so they enter the previous
/// block early.
const AHEAD_BACKWARD: u16 = 2;
/// Prefetch distance of a long scan, if each block has its own page: two pages.
const BYTES_AHEAD: usize = 8 << 10;
const LINES_SOON: usize = 4;
/// Maximum rows expected from the last scan's length.
const LIKELY_ROWS_MAX: u32 = 128;
/// Batches after which a scan decodes whole segments and prefetches whole blocks.
pub(super) const LONG_SCAN: u32 = 6;

const _: () = assert!(ROW_LANES == SEGMENT_LANES);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPlace {
    pub(super) segment: u32,
    pub(super) lane: usize,
}

/// A reference count of their own avoids contention with other threads.
#[derive(Debug)]
pub(super) struct HeldRuns(pub(super) Arc<[Arc<Run>]>);

impl HeldRuns {
    #[inline]
    pub(super) fn moment(&self) -> Moment {
        self.0[0].moment()
    }
}

impl Deref for HeldRuns {
    type Target = [Arc<Run>];

    #[inline]
    fn deref(&self) -> &[Arc<Run>] {
        &self.0
    }
}

/// The block that a run was last read in.
///
/// INVARIANT: `rows` are those of `block`, which is in place or pinned by `pin`.
#[derive(Default)]
struct RunState {
    rows: Option<Rows<'static>>,
    block: u16,
    pin: Option<PinnedBlock>,
    /// Prefetched as rows are passed, in a long scan.
    ahead: Ahead,
}

/// Decoded rows of a segment, passed in order. [`RowBatch::default`] is read directly and has only
/// plain values. [`RowBatch::to_merge`] has tombstones too, sequence numbers on request, and the
/// reason why it ends; the merger tracks passed rows.
///
/// INVARIANT: rows borrow from blocks that `states` or `passed` pin, or that are in place in
/// `runs`. None is released before the rows are cleared. If any block is pinned, `is_pinning` is
/// true.
pub struct RowBatch {
    slots: RowSlots,
    is_to_merge: bool,
    with_sequences: bool,
    /// Lanes with tombstones, and the reason for the end. For merges.
    tombstones: u32,
    beyond: Beyond,
    /// The current lane, `at`, and later ones.
    lanes: u32,
    at: usize,
    /// Lanes put aside until a row of another source has been passed.
    aside: u32,
    /// Rows in `lanes` when they were filled or resumed.
    filled: u32,
    segment: u32,
    is_forward: bool,
    /// Row before these, if it is not the cursor's.
    from: Option<RowPlace>,
    /// Consecutive batches in one direction, and their passed rows.
    rounds: u32,
    passed_rows: u32,
    /// Rows that the last scan passed.
    likely_rows: u32,
    /// Prefetch distance from each row passed (wrapping); 0 if decoding prefetches.
    bytes_ahead: usize,
    /// Prefetches of the next segment's rows, made as rows are passed; only forward.
    queue: PrefetchQueue,
    /// The next fill belongs to the same scan but does not follow directly.
    is_interrupted: bool,
    /// The seek decoded the scan's first row, and no other source's row came since. A caller that
    /// only seeks passes just that row.
    begins_with_seek: bool,
    runs: Option<Arc<HeldRuns>>,
    states: Vec<RunState>,
    is_pinning: bool,
    passed: Vec<PinnedBlock>,
}

impl Default for RowBatch {
    fn default() -> RowBatch {
        RowBatch {
            slots: RowSlots::default(),
            is_to_merge: false,
            with_sequences: false,
            tombstones: 0,
            beyond: Beyond::More,
            lanes: 0,
            at: 0,
            aside: 0,
            filled: 0,
            segment: 0,
            is_forward: true,
            from: None,
            rounds: 0,
            passed_rows: 0,
            likely_rows: 0,
            bytes_ahead: 0,
            queue: PrefetchQueue::default(),
            is_interrupted: false,
            begins_with_seek: false,
            runs: None,
            states: Vec::new(),
            is_pinning: false,
            passed: Vec::new(),
        }
    }
}

impl fmt::Debug for RowBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowBatch").field("lanes", &self.lanes).field("segment", &self.segment).finish_non_exhaustive()
    }
}

impl RowBatch {
    #[inline]
    pub fn is_on_row(&self) -> bool {
        self.lanes != 0
    }

    pub fn is_pinning(&self) -> bool {
        self.is_pinning
    }

    pub fn rows_left(&self) -> u32 {
        self.lanes.count_ones()
    }

    #[inline]
    pub fn is_forward(&self) -> bool {
        self.is_forward
    }

    #[inline]
    pub fn row(&self) -> Option<(&[u8], &[u8])> {
        if self.lanes == 0 {
            return None;
        }
        self.slots.row(self.at)
    }

    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        if self.lanes == 0 { None } else { Some(self.slots.key(self.at)) }
    }

    /// Counts later rows whose keys satisfy `is_kept`, up to the first rejected one; 0 backward.
    pub fn rows_after(&self, is_kept: impl Fn(&[u8]) -> bool) -> u32 {
        if !self.is_forward {
            return 0;
        }
        self.slots.kept(self.lanes & self.lanes.wrapping_sub(1), true, is_kept).count_ones()
    }

    #[inline]
    pub fn step(&mut self, forward: bool) -> bool {
        let lanes = lanes_after(self.lanes, self.at, forward);
        if lanes == 0 || self.is_forward != forward {
            return false;
        }
        self.lanes = lanes;
        self.at = near_lane(lanes, forward);
        self.prefetch_ahead(self.at);
        self.queue.prefetch::<LINES_SOON>();
        true
    }

    /// Passes the current and later rows to `visit` until it breaks. Returns the steps and the last
    /// result. Ends on the last row visited; does not move if `visit` panics. Precondition: on a
    /// row.
    #[inline]
    pub fn visit<B>(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>) -> (u32, ControlFlow<B>) {
        if self.is_forward { self.visit_in::<true, B>(&mut visit) } else { self.visit_in::<false, B>(&mut visit) }
    }

    #[inline(always)]
    fn visit_in<const FORWARD: bool, B>(
        &mut self,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
    ) -> (u32, ControlFlow<B>) {
        let (mut lanes, mut at) = (self.lanes, self.at);
        let flow = loop {
            let (key, value) = self.slots.row(at).expect("a row has its key");
            let flow = visit(key, value);
            let rest = lanes_after(lanes, at, FORWARD);
            if flow.is_break() || rest == 0 {
                break flow;
            }
            (lanes, at) = (rest, near_lane(rest, FORWARD));
            self.prefetch_ahead(at);
            self.queue.prefetch::<LINES_SOON>();
        };
        let steps = self.lanes.count_ones() - lanes.count_ones();
        (self.lanes, self.at) = (lanes, at);
        (steps, flow)
    }

    pub(super) fn queue(&mut self) -> &mut PrefetchQueue {
        &mut self.queue
    }

    /// Prefetches lines that a long scan needs soon. All at once, the requests would stall
    /// decoding.
    #[inline(always)]
    fn prefetch_ahead(&self, at: usize) {
        if self.bytes_ahead != 0 {
            Ahead::from_address(self.slots.address(at)).prefetch::<LINES_AHEAD>(self.bytes_ahead);
        }
    }

    fn bytes_ahead_of_long_scan(&self) -> usize {
        let is_on_grid = self.runs.as_ref().is_some_and(|runs| runs.iter().all(|run| run.is_on_grid()));
        match is_on_grid && !self.is_to_merge {
            true if self.is_forward => BYTES_AHEAD,
            true => BYTES_AHEAD.wrapping_neg(),
            false => 0,
        }
    }

    /// Forgets all rows; the next fill starts after the current one.
    pub fn advance(&mut self) {
        if self.lanes != 0 {
            self.from = Some(self.place(self.at));
            self.passed_rows = self.passed_rows.saturating_add(self.filled + 1 - self.lanes.count_ones());
            self.lanes = 0;
        }
    }

    pub fn from(&self) -> Option<RowPlace> {
        self.from
    }

    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    pub fn likely_rows(&self) -> usize {
        self.likely_rows.saturating_sub(self.passed_rows) as usize
    }

    #[inline(always)]
    pub fn slots(&self) -> &RowSlots {
        &self.slots
    }

    #[inline]
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    #[inline]
    pub fn tombstones(&self) -> u32 {
        self.tombstones
    }

    #[inline]
    pub fn beyond(&self) -> Beyond {
        self.beyond
    }

    pub fn place(&self, lane: usize) -> RowPlace {
        RowPlace { segment: self.segment, lane }
    }

    pub fn follow_cursor(&mut self) {
        self.is_interrupted |= self.from.take().is_some();
        self.begins_with_seek = false;
    }

    pub(super) fn fail(&mut self) {
        (self.lanes, self.aside, self.tombstones, self.beyond) = (0, 0, 0, Beyond::More);
    }

    pub fn end(&mut self) {
        self.release();
        self.beyond = Beyond::End;
    }

    pub(super) fn expect(&mut self, tombstones: u32, beyond: Beyond) {
        (self.tombstones, self.beyond) = (tombstones, beyond);
    }

    /// Ends a scan and starts another; releases rows like [`RowBatch::release`].
    pub fn restart(&mut self) {
        self.advance();
        let is_seek_alone = self.begins_with_seek && self.passed_rows == 1;
        self.likely_rows = if is_seek_alone { 0 } else { self.passed_rows.min(LIKELY_ROWS_MAX) };
        self.release();
    }

    /// Releases rows, but the scan continues after a row of another source.
    pub fn interrupt(&mut self) {
        self.queue.prefetch_all();
        let counts = (self.rounds, self.passed_rows);
        self.release();
        (self.rounds, self.passed_rows) = counts;
        self.is_interrupted = true;
    }

    pub fn release(&mut self) {
        self.is_interrupted = false;
        self.begins_with_seek = false;
        self.queue.clear();
        (self.lanes, self.aside) = (0, 0);
        self.from = None;
        (self.rounds, self.passed_rows) = (0, 0);
        if self.is_pinning {
            self.unpin();
        }
        // A block in place may need another check by its next use.
        self.states.iter_mut().for_each(|state| state.rows = None);
    }

    pub fn release_runs(&mut self) {
        self.unpin();
        self.slots.clear();
        self.states.clear();
        self.runs = None;
    }

    #[cold]
    fn unpin(&mut self) {
        self.slots.clear();
        self.states.iter_mut().for_each(|state| *state = RunState::default());
        self.passed.clear();
        self.is_pinning = false;
    }

    pub(super) fn begin(&mut self, segment: u32, is_forward: bool) {
        (self.lanes, self.aside) = (0, 0);
        let goes_on = self.from.is_some() || std::mem::take(&mut self.is_interrupted);
        self.rounds = if self.is_forward == is_forward && goes_on { self.rounds + 1 } else { 0 };
        (self.segment, self.is_forward) = (segment, is_forward);
        match self.rounds {
            0 => self.bytes_ahead = 0,
            LONG_SCAN => self.bytes_ahead = self.bytes_ahead_of_long_scan(),
            _ => {}
        }
        (self.tombstones, self.beyond) = (0, Beyond::More);
        if !self.passed.is_empty() {
            self.slots.clear();
            self.passed.clear();
        }
    }

    pub(super) fn begin_with_seek(&mut self, segment: u32) {
        self.begin(segment, true);
        self.begins_with_seek = true;
    }

    pub(super) fn begin_again(&mut self, segment: u32) {
        self.segment = segment;
    }

    #[inline(never)]
    fn enter(&mut self, index: usize, run: &Run, block: u16, moment: Moment) -> Result<Option<(Rows<'static>, Ahead)>> {
        if block >= run.end().block {
            return Ok(None);
        }
        let state = &mut self.states[index];
        // Going backward, the next batch continues in this batch's first block.
        let is_after = !self.is_forward && state.rows.is_some() && state.block.checked_add(1) == Some(block);
        if let Some(rows) = run.rows_in_place(block, moment) {
            // SAFETY: as below, but the block stays in place while the run is open, and `runs`
            // holds it.
            let rows = unsafe { std::mem::transmute::<Rows<'_>, Rows<'static>>(rows?) };
            let next = if self.is_forward { block.checked_add(1) } else { block.checked_sub(AHEAD_BACKWARD) };
            let ahead = ahead_of(run, next, self.rounds);
            if !is_after {
                if state.pin.is_some() {
                    self.passed.extend(state.pin.take());
                }
                (state.rows, state.block, state.ahead) = (Some(rows), block, ahead);
            }
            return Ok(Some((rows, ahead)));
        }
        self.is_pinning = true;
        if is_after {
            let pinned = self.passed.iter().position(|pin| pin.number() == block && pin.is_of(run));
            let at = match pinned {
                Some(at) => at,
                None => {
                    self.passed.push(run.pin(block)?);
                    self.passed.len() - 1
                }
            };
            // SAFETY: as below.
            let rows = unsafe { std::mem::transmute::<Rows<'_>, Rows<'static>>(self.passed[at].rows()?) };
            return Ok(Some((rows, ahead_of(run, block.checked_sub(AHEAD_BACKWARD), self.rounds))));
        }
        state.rows = None;
        self.passed.extend(state.pin.take());
        let pin = run.pin(block)?;
        // SAFETY: only the lifetime changes. `states` or `passed` keep the block, which does not
        // move, until no row of it is left: `begin`, `unpin` and `set_runs` forget all rows before
        // they release any block, and `state.rows` is replaced with its pin. Rows are lent no
        // longer than `self`.
        let rows = unsafe { std::mem::transmute::<Rows<'_>, Rows<'static>>(pin.rows()?) };
        let next = if self.is_forward { block.checked_add(1) } else { block.checked_sub(AHEAD_BACKWARD) };
        let ahead = ahead_of(run, next, self.rounds);
        *state = RunState { rows: Some(rows), block, pin: Some(pin), ahead };
        Ok(Some((rows, ahead)))
    }

    #[inline(always)]
    fn block_of(
        &mut self,
        index: usize,
        run: &Run,
        block: u16,
        moment: Moment,
    ) -> Result<Option<(Rows<'static>, Ahead)>> {
        match &self.states[index] {
            RunState { rows: Some(rows), block: of, ahead, .. } if *of == block => Ok(Some((*rows, *ahead))),
            _ => self.enter(index, run, block, moment),
        }
    }

    #[inline(always)]
    fn set_runs(&mut self, runs: &Arc<HeldRuns>) {
        if !self.runs.as_ref().is_some_and(|held| Arc::ptr_eq(held, runs)) {
            self.change_runs(runs);
        }
    }

    #[inline(never)]
    fn change_runs(&mut self, runs: &Arc<HeldRuns>) {
        (self.lanes, self.aside) = (0, 0);
        self.slots.clear();
        self.states.clear();
        self.passed.clear();
        self.is_pinning = false;
        self.states.resize_with(runs.len(), RunState::default);
        self.runs = Some(Arc::clone(runs));
    }
}

#[inline(always)]
fn lanes_after(lanes: u32, at: usize, is_forward: bool) -> u32 {
    if is_forward { lanes & lanes.wrapping_sub(1) } else { lanes & !(1 << (at % SEGMENT_LANES)) }
}

fn ahead_of(run: &Run, queue: Option<u16>, rounds: u32) -> Ahead {
    match queue {
        Some(queue) if rounds >= LONG_SCAN => run.ahead(queue),
        _ => Ahead::default(),
    }
}
