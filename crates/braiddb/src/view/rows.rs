//! Rows decoded ahead of a cursor: what a scan is made of.
//!
//! Decoding what is left of a segment in one go costs a few instructions a row, and the cache lines of all of them are
//! asked for before the first is needed. A batch holds the blocks that its rows stand in, so it can be read whatever
//! becomes of the cursor. It keeps the last block of each run for the next batch: a block is counted once while a scan
//! passes. A block that is read where its file is mapped is not counted at all: the batch holds the runs, and with them the maps.

use super::format::{SEGMENT_LANES, Segment, lanes_below};
use super::simd::{Simd, Task};
use crate::base::{Beyond, ROW_LANES, Result, RowSlots, SequenceNumber, near_lane};
use crate::cache::{Ahead, PrefetchQueue};
use crate::table::{Moment, PinnedBlock, Position, Rows, Run};
use std::fmt;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;

/// How many lines of the next block are asked for where a row is passed: what rows of a hundred bytes or two have, and the
/// beginning of longer ones.
pub(super) const LINES_AHEAD: usize = 3;
/// How many blocks further a scan that goes backward asks for lines: the rows of a batch are decoded forward, so that it enters
/// the block before while it still passes this one.
const AHEAD_BACKWARD: u16 = 2;
/// Where each block has a page of its own, a long scan asks for the lines that stand so many bytes further on: two pages.
const BYTES_AHEAD: usize = 8 << 10;
/// How many lines are asked for with each row that is passed.
const LINES_SOON: usize = 4;
/// More rows are not asked for at a time.
const LIKELY_ROWS_MAX: u32 = 128;
/// After so many batches a scan is a long one, which decodes whole segments and fetches whole blocks.
pub(super) const LONG_SCAN: u32 = 6;

const _: () = assert!(ROW_LANES == SEGMENT_LANES);

/// Where a row stands in its view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPlace {
    pub(super) segment: u32,
    pub(super) lane: usize,
}

/// The runs of a view, held by one cursor and its batches, so that what they count is not what other threads count.
#[derive(Debug)]
pub(super) struct HeldRuns(pub(super) Arc<[Arc<Run>]>);

impl HeldRuns {
    /// Now.
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
/// Invariant: `rows` are those of `block`, which is read in place or is that of `pin`.
#[derive(Default)]
struct RunState {
    rows: Option<Rows<'static>>,
    block: u16,
    pin: Option<PinnedBlock>,
    /// The block to ask for as rows are passed, if the scan is a long one.
    ahead: Ahead,
}

/// Rows of a segment, which are passed in order.
///
/// There are two kinds. A batch that is read as it is ([`RowBatch::default`]) has only rows that are key and value. One that
/// is merged with others ([`RowBatch::to_merge`]) has tombstones too, sequence numbers if they are asked for, and says what comes after its
/// rows; whoever merges keeps account of what has been passed.
///
/// Invariant: rows borrow from blocks that are pinned by one of `states` or of `passed`, or stand in place in one of `runs`; these
/// let go of none before the rows are cleared. If any is pinned, `is_pinning`.
pub struct RowBatch {
    slots: RowSlots,
    is_to_merge: bool,
    /// Whether sequence numbers are decoded as well.
    with_sequences: bool,
    /// Those of `lanes` whose rows are tombstones, and what comes after: of a batch to be merged.
    tombstones: u32,
    beyond: Beyond,
    /// The lanes whose rows have not been passed: the one at `at`, and those that come after it.
    lanes: u32,
    at: usize,
    /// Lanes that were decoded and come after the others, but not before a row of another source: they are kept for when that has been passed.
    aside: u32,
    /// How many rows there were when it last came to stand on one that was decoded, or kept for later.
    filled: u32,
    segment: u32,
    is_forward: bool,
    /// The row that these come after, if it is not the one that the cursor stands on.
    from: Option<RowPlace>,
    /// How many batches were filled one after the other, and how many of their rows were passed.
    rounds: u32,
    passed_rows: u32,
    /// How many rows the scan before went on for: so many are likely to be wanted again.
    likely_rows: u32,
    /// How far past each row on which it comes to stand lines are asked for, as a number to add; 0 if none are. Then none are when rows are decoded.
    bytes_ahead: usize,
    /// The lines of rows of the next segment that are likely to be wanted, asked for as rows of the batch are passed; going forward alone.
    queue: PrefetchQueue,
    /// Whether what is filled in next belongs to the same scan, though it does not come right after.
    is_interrupted: bool,
    /// Whether its scan's first row was decoded with the seek, and it has met none of another source: that one row was passed by whoever did no
    /// more than seek.
    begins_with_seek: bool,
    runs: Option<Arc<HeldRuns>>,
    /// For each of them.
    states: Vec<RunState>,
    is_pinning: bool,
    /// Blocks that runs have gone on from, and whose rows are in the batch.
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
    /// Whether there is a row to stand on.
    #[inline]
    pub fn is_on_row(&self) -> bool {
        self.lanes != 0
    }

    /// Whether it holds blocks of the cache.
    pub fn is_pinning(&self) -> bool {
        self.is_pinning
    }

    /// How many rows have not been passed.
    pub fn rows_left(&self) -> u32 {
        self.lanes.count_ones()
    }

    /// Whether its rows go forward.
    #[inline]
    pub fn is_forward(&self) -> bool {
        self.is_forward
    }

    /// The row it stands on.
    #[inline]
    pub fn row(&self) -> Option<(&[u8], &[u8])> {
        if self.lanes == 0 {
            return None;
        }
        self.slots.row(self.at)
    }

    /// The key of the row it stands on.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        if self.lanes == 0 { None } else { Some(self.slots.key(self.at)) }
    }

    /// How many rows come after the one it stands on, going forward, whose keys are kept, as far as there is none between that is not.
    pub fn rows_after(&self, is_kept: impl Fn(&[u8]) -> bool) -> u32 {
        if !self.is_forward {
            return 0;
        }
        self.slots.kept(self.lanes & self.lanes.wrapping_sub(1), true, is_kept).count_ones()
    }

    /// Goes on to the next row in a direction, if it is here.
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

    /// Shows the row it stands on and those that come after it, in its direction, until `visit` breaks: how many steps that took, and what `visit`
    /// said last. It stands on the row that was shown last, or where it stood if `visit` panics. Precondition: it stands on a row.
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

    /// What is asked for as rows are passed.
    pub(super) fn queue(&mut self) -> &mut PrefetchQueue {
        &mut self.queue
    }

    /// Asks for lines that a long scan comes to soon after the row at `at`. Little by little, as rows are passed: when they are decoded, the processor would do nothing
    /// but wait for room for so many requests, and fetch nothing while the rows are read.
    #[inline(always)]
    fn prefetch_ahead(&self, at: usize) {
        if self.bytes_ahead != 0 {
            Ahead::from_address(self.slots.address(at)).prefetch::<LINES_AHEAD>(self.bytes_ahead);
        }
    }

    /// [`RowBatch::bytes_ahead`] of a long scan.
    fn bytes_ahead_of_long_scan(&self) -> usize {
        let is_on_grid = self.runs.as_ref().is_some_and(|runs| runs.iter().all(|run| run.is_on_grid()));
        match is_on_grid && !self.is_to_merge {
            true if self.is_forward => BYTES_AHEAD,
            true => BYTES_AHEAD.wrapping_neg(),
            false => 0,
        }
    }

    /// Forgets all rows, but for the place of the one it stands on: what is filled in next comes after that.
    pub fn go_on(&mut self) {
        if self.lanes != 0 {
            self.from = Some(self.place(self.at));
            self.passed_rows = self.passed_rows.saturating_add(self.filled + 1 - self.lanes.count_ones());
            self.lanes = 0;
        }
    }

    /// The place that was kept by [`RowBatch::go_on`] or [`RowBatch::pass`].
    pub fn from(&self) -> Option<RowPlace> {
        self.from
    }

    /// How many batches in one direction came before this one.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// How many rows are likely to be wanted from here on, going by the scan before.
    pub fn likely_rows(&self) -> usize {
        self.likely_rows.saturating_sub(self.passed_rows) as usize
    }

    /// A batch of the kind that is merged with others.
    pub fn to_merge() -> RowBatch {
        RowBatch { is_to_merge: true, ..RowBatch::default() }
    }

    /// Says whether sequence numbers are to be decoded as well.
    pub fn set_with_sequences(&mut self, with_sequences: bool) {
        self.with_sequences = with_sequences;
    }

    /// Whether it is of that kind.
    pub(super) fn is_to_merge(&self) -> bool {
        self.is_to_merge
    }

    /// Its rows.
    #[inline(always)]
    pub fn slots(&self) -> &RowSlots {
        &self.slots
    }

    /// The lanes of its rows.
    #[inline]
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// The lanes whose rows are tombstones.
    #[inline]
    pub fn tombstones(&self) -> u32 {
        self.tombstones
    }

    /// What comes after its rows.
    #[inline]
    pub fn beyond(&self) -> Beyond {
        self.beyond
    }

    /// Where the row of a lane stands.
    pub fn place(&self, lane: usize) -> RowPlace {
        RowPlace { segment: self.segment, lane }
    }

    /// Where the first of the rows stands that come after a row of another source, if there are any in this direction.
    pub fn aside(&self, is_forward: bool) -> Option<RowPlace> {
        (self.aside != 0 && self.is_forward == is_forward).then(|| self.place(near_lane(self.aside, is_forward)))
    }

    /// Says that the scan goes on from where its cursor stands, and not from the row that was passed last.
    pub fn follow_cursor(&mut self) {
        self.is_interrupted |= self.from.take().is_some();
        self.begins_with_seek = false;
    }

    /// Keeps all rows of a seek for later, unless they stand in blocks of the cache: these are let go of.
    pub fn put_aside(&mut self) {
        if self.is_pinning {
            return self.release();
        }
        self.aside = std::mem::take(&mut self.lanes);
        self.begins_with_seek = false;
    }

    /// Goes on with the rows that were kept for later, those from `place` on: where the cursor over `runs` stands. There are none if it stands on
    /// none of them.
    pub(super) fn resume(&mut self, runs: &Arc<HeldRuns>, place: RowPlace) {
        let is_of = self.runs.as_ref().is_some_and(|held| Arc::ptr_eq(held, runs)) && self.segment == place.segment;
        let kept = std::mem::take(&mut self.aside);
        if is_of && kept >> place.lane & 1 != 0 {
            let passed = if self.is_forward { lanes_below(place.lane) } else { !lanes_below(place.lane + 1) };
            self.lanes = kept & !passed;
            self.filled = self.lanes.count_ones();
            self.at = place.lane;
        }
    }

    /// Passes all rows but those of `rest`; what is filled in next comes after the last of all.
    pub fn pass(&mut self, rest: u32) {
        if self.lanes != 0 {
            let passed = self.lanes & !rest;
            self.passed_rows = self.passed_rows.saturating_add(passed.count_ones());
            self.from = Some(self.place(near_lane(self.lanes, !self.is_forward)));
            self.lanes = 0;
        }
    }

    /// Forgets all rows after a mishap: none could be decoded.
    pub(super) fn fail(&mut self) {
        (self.lanes, self.aside, self.tombstones, self.beyond) = (0, 0, 0, Beyond::More);
    }

    /// Says that nothing comes after no rows.
    pub fn end(&mut self) {
        self.release();
        self.beyond = Beyond::End;
    }

    /// Says what the rows are that are going to be decoded: those of `tombstones`, and what comes after.
    pub(super) fn expect(&mut self, tombstones: u32, beyond: Beyond) {
        (self.tombstones, self.beyond) = (tombstones, beyond);
    }

    /// Ends a scan where it stands, and begins another: as [`RowBatch::release`].
    pub fn restart(&mut self) {
        self.go_on();
        let is_seek_alone = self.begins_with_seek && self.passed_rows == 1;
        self.likely_rows = if is_seek_alone { 0 } else { self.passed_rows.min(LIKELY_ROWS_MAX) };
        self.release();
    }

    /// As [`RowBatch::release`], where a row of another source comes, and then the scan goes on.
    pub fn interrupt(&mut self) {
        self.queue.prefetch_all();
        let counts = (self.rounds, self.passed_rows);
        self.release();
        (self.rounds, self.passed_rows) = counts;
        self.is_interrupted = true;
    }

    /// Forgets all rows, and the blocks they stand in.
    pub fn release(&mut self) {
        self.is_interrupted = false;
        self.begins_with_seek = false;
        self.queue.clear();
        (self.lanes, self.aside) = (0, 0);
        self.from = None;
        (self.rounds, self.passed_rows) = (0, 0);
        if self.is_pinning {
            self.let_go();
        }
        // What stands in place may have to be checked again before it is read again.
        self.states.iter_mut().for_each(|state| state.rows = None);
    }

    /// The same, and lets go of the runs.
    pub fn release_runs(&mut self) {
        self.release();
        self.slots.clear();
        self.states.clear();
        self.runs = None;
    }

    #[cold]
    fn let_go(&mut self) {
        self.slots.clear();
        self.states.iter_mut().for_each(|state| *state = RunState::default());
        self.passed.clear();
        self.is_pinning = false;
    }

    /// Keeps the rows whose keys lie before `end`, and going backward not before `start`: the source has no others.
    pub fn keep_within(&mut self, start: &[u8], end: Option<&[u8]>) {
        let is_forward = self.is_forward;
        let is_within = |key: &[u8]| if is_forward { end.is_none_or(|end| key < end) } else { key >= start };
        if self.keep(is_within).is_some() {
            self.beyond = Beyond::End;
        }
    }

    /// Keeps the rows that come before `bound`: keys that are less, or going backward, greater; the others are kept for later, see
    /// [`RowBatch::aside`]. Returns whether that is all.
    pub fn keep_before(&mut self, bound: &[u8]) -> bool {
        let (is_forward, before) = (self.is_forward, self.lanes);
        let is_all = self.keep(|key| if is_forward { key < bound } else { key > bound }).is_none();
        self.aside |= before & !self.lanes;
        is_all
    }

    /// Keeps the rows whose keys begin with `prefix`; those that do come first.
    pub fn keep_prefix(&mut self, prefix: &[u8]) {
        if let Some(lane) = self.keep(|key| key.starts_with(prefix)) {
            self.beyond = Beyond::Outside(lane);
        }
    }

    /// Keeps the rows that are to be kept, which come first. To be called before any has been passed. Yields the lane of
    /// the first that was not kept.
    #[inline]
    fn keep(&mut self, is_kept: impl Fn(&[u8]) -> bool) -> Option<usize> {
        let kept = self.slots.kept(self.lanes, self.is_forward, is_kept);
        let others = self.lanes & !kept;
        (self.lanes, self.filled) = (kept, kept.count_ones());
        (others != 0).then(|| near_lane(others, self.is_forward))
    }

    /// Forgets all rows, and begins to take in others.
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

    /// [`RowBatch::begin`] for the row that a seek leads to, and those that come after it.
    pub(super) fn begin_with_seek(&mut self, segment: u32) {
        self.begin(segment, true);
        self.begins_with_seek = true;
    }

    /// Says that the rows are of another segment.
    pub(super) fn begin_again(&mut self, segment: u32) {
        self.segment = segment;
    }

    /// Goes to a block in which a run goes on.
    #[inline(never)]
    fn enter(&mut self, index: usize, run: &Run, block: u16, moment: Moment) -> Result<Option<(Rows<'static>, Ahead)>> {
        if block >= run.end().block {
            return Ok(None);
        }
        let state = &mut self.states[index];
        // Going backward, the next batch goes on in the first block of this one.
        let is_after = !self.is_forward && state.rows.is_some() && state.block.checked_add(1) == Some(block);
        if let Some(rows) = run.rows_in_place(block, moment) {
            // SAFETY: as below, but that the block stands where it does as long as the run is open: `runs` holds it.
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
        // SAFETY: only the lifetime changes. The block stays in `states` or `passed`, and so in its place in memory, until
        // no row of it is left: `begin`, `let_go` and `set_runs` forget all rows before they let go of any block, and
        // `state.rows` goes with its pin. Rows are lent no longer than `self`.
        let rows = unsafe { std::mem::transmute::<Rows<'_>, Rows<'static>>(pin.rows()?) };
        let next = if self.is_forward { block.checked_add(1) } else { block.checked_sub(AHEAD_BACKWARD) };
        let ahead = ahead_of(run, next, self.rounds);
        *state = RunState { rows: Some(rows), block, pin: Some(pin), ahead };
        Ok(Some((rows, ahead)))
    }

    /// The rows of the block in which a run goes on.
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

    /// Says what runs the rows are of that are going to be decoded.
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

/// Those of some lanes, which begin with `at` in a direction, that come after it.
#[inline(always)]
fn lanes_after(lanes: u32, at: usize, is_forward: bool) -> u32 {
    if is_forward { lanes & lanes.wrapping_sub(1) } else { lanes & !(1 << (at % SEGMENT_LANES)) }
}

/// A block that comes soon, for a long scan.
fn ahead_of(run: &Run, queue: Option<u16>, rounds: u32) -> Ahead {
    match queue {
        Some(queue) if rounds >= LONG_SCAN => run.ahead(queue),
        _ => Ahead::default(),
    }
}

/// Decodes those of `lanes` that are `wanted`, whose entries stand side by side in a block from a slot on. Returns the lanes
/// that go on in the next block; `None` if an entry is damaged.
struct DecodeBlock<'a> {
    block: Rows<'static>,
    from: u16,
    lanes: u32,
    wanted: u32,
    ahead: Ahead,
    given: SequenceNumber,
    slots: &'a mut RowSlots,
}

/// The block's keys and values alone; the same, while lines further on are asked for; and with sequence numbers as well.
struct Plain<'a>(DecodeBlock<'a>);
struct WithAhead<'a>(DecodeBlock<'a>);
struct WithSequences<'a>(DecodeBlock<'a>);

impl Task for Plain<'_> {
    type Output = Option<u32>;

    #[inline(always)]
    fn run(self, _simd: Simd) -> Option<u32> {
        self.0.decode::<false, false>()
    }
}

impl Task for WithAhead<'_> {
    type Output = Option<u32>;

    #[inline(always)]
    fn run(self, _simd: Simd) -> Option<u32> {
        self.0.decode::<false, true>()
    }
}

impl Task for WithSequences<'_> {
    type Output = Option<u32>;

    #[inline(always)]
    fn run(self, _simd: Simd) -> Option<u32> {
        self.0.decode::<true, true>()
    }
}

impl DecodeBlock<'_> {
    #[inline(always)]
    fn decode<const WITH_SEQUENCES: bool, const WITH_AHEAD: bool>(self) -> Option<u32> {
        let DecodeBlock { block, from, mut lanes, wanted, ahead, given, slots } = self;
        for offset in block.offsets(from) {
            let lane = lanes.trailing_zeros() as usize % SEGMENT_LANES;
            if wanted >> lane & 1 != 0 {
                if WITH_SEQUENCES {
                    let (bytes, key_len, sequence) = block.get_with_sequence(offset)?;
                    slots.set(lane, bytes, key_len);
                    slots.set_sequence(lane, sequence.wrapping_add(given));
                } else {
                    let (bytes, key_len) = block.get(offset)?;
                    slots.set(lane, bytes, key_len);
                }
                if WITH_AHEAD {
                    ahead.prefetch::<LINES_AHEAD>(offset);
                }
            }
            lanes &= lanes.wrapping_sub(1);
            if lanes == 0 {
                break;
            }
        }
        Some(lanes)
    }
}

/// Decodes lanes of a segment into a batch; whether all their entries are there.
pub(super) struct Decode<'a> {
    pub(super) runs: &'a Arc<HeldRuns>,
    pub(super) moment: Moment,
    pub(super) segment: Segment<'a>,
    pub(super) lanes: u32,
    pub(super) batch: &'a mut RowBatch,
}

impl Task for Decode<'_> {
    type Output = Result<bool>;

    /// Run by run, since the entries of one run stand side by side.
    #[inline(always)]
    fn run(self, simd: Simd) -> Result<bool> {
        let Decode { runs, moment, segment, lanes, batch } = self;
        let first = lanes.trailing_zeros() as usize;
        let span = lanes_below(32 - lanes.leading_zeros() as usize) & !lanes_below(first);
        batch.set_runs(runs);
        for (index, run) in runs.iter().enumerate() {
            let of_run = segment.lanes_of_run(index);
            let mut rest = of_run & span;
            if rest == 0 {
                continue;
            }
            let before = (of_run & lanes_below(first)).count_ones();
            let mut at = run.advance(segment.cursor(index).unwrap_or_default(), before);
            while rest != 0 {
                let Some((rows, ahead)) = batch.block_of(index, run, at.block, moment)? else { return Ok(false) };
                let ahead = if batch.bytes_ahead == 0 { ahead } else { Ahead::default() };
                let (slots, given) = (&mut batch.slots, run.given_sequence());
                let block = DecodeBlock { block: rows, from: at.slot, lanes: rest, wanted: lanes, ahead, given, slots };
                let left = match (batch.with_sequences, ahead.is_somewhere()) {
                    (false, false) => simd.run(Plain(block)),
                    (false, true) => simd.run(WithAhead(block)),
                    (true, _) => simd.run(WithSequences(block)),
                };
                let Some(left) = left else { return Ok(false) };
                rest = left;
                at = Position { block: at.block.saturating_add(1), slot: 0 };
            }
        }
        (batch.lanes, batch.filled) = (lanes, lanes.count_ones());
        batch.at = near_lane(lanes, batch.is_forward);
        batch.prefetch_ahead(batch.at);
        Ok(true)
    }
}
