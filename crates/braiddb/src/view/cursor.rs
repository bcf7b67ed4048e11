//! A cursor over a view at a snapshot.
//!
//! A seek finds its segment by the anchors and its lane by blind search, with one key read. `next` and `prev` then follow
//! the selectors without comparisons. [`ViewCursor::fill`] decodes ahead; [`ViewCursor::seek_rows`] seeks and decodes.
//! At or above the view's highest sequence number the record alone decides which lanes show; below it, entries are read.

use super::find::{FindLane, FindShown, Found, InPlace, Locate, PrefetchRows};
use super::format::{
    BASE_BISECT, MAX_RECORD_BYTES, SAME_KEY, SEGMENT_LANES, SELECTOR_RESOLVE, SELECTOR_STALE, SELECTOR_TOMBSTONE,
    Segment, lanes_below,
};
use super::reader::View;
use super::rows::{Decode, HeldRuns, LONG_SCAN, RowBatch, RowPlace};
use crate::base::{Beyond, Cursor, EntryKind, EntryRef, Result, SequenceNumber, near_lane};
use crate::cache::PrefetchQueue;
use crate::table::{Moment, PinnedBlock, Position, Run};
use crossbeam_epoch::Guard;
use std::sync::Arc;

/// How many rows are decoded ahead at the beginning of a scan.
const FEW_LANES: usize = 16;

/// Fewer rows than that are passed before what comes after them could be asked for little by little.
const ROWS_SOON_MIN: usize = 8;

/// A cursor over a view. It holds the view, its runs and one block of each run; it needs no guard.
#[derive(Debug)]
pub struct ViewCursor {
    view: Arc<View>,
    runs: Arc<HeldRuns>,
    snapshot: SequenceNumber,
    sees_all: bool,
    /// The selector bits of entries that do not show if the snapshot sees all.
    hidden: u8,
    loaded: Box<Loaded>,
    /// The segment that comes next, where rows are decoded ahead.
    coming: Box<Loaded>,
    /// How many rows those who seek go on to read, going by the last of them; none if it read but one.
    likely: usize,
    /// Where it stands, if it is valid; the record may be that of another segment by now.
    standing: u32,
    lane: usize,
    /// The entry it stands on, in place or in the block pinned for its run. None if the cursor is not valid.
    present: Option<Present>,
    pins: Vec<Pin>,
}

/// A segment, and what its record says.
#[derive(Debug)]
struct Loaded {
    /// Its number; none if there is no segment here.
    segment: Option<u32>,
    record: [u8; MAX_RECORD_BYTES],
    count: usize,
    /// Lanes that hold another version of the key before them.
    same_key: u32,
    /// Lanes that show if the snapshot sees all.
    shown: u32,
    /// The lanes whose entries have been asked for, and those whose entries will be as rows of a batch are passed.
    fetched: u32,
    queued: u32,
}

impl Default for Loaded {
    fn default() -> Loaded {
        Loaded { segment: None, record: [0; MAX_RECORD_BYTES], count: 0, same_key: 0, shown: 0, fetched: 0, queued: 0 }
    }
}

impl Loaded {
    /// Loads a segment's record, unless it is here. Lanes whose selectors have any bit of `hidden` do not show.
    fn load(&mut self, view: &View, number: u32, hidden: u8, guard: &Guard) -> Result<()> {
        if self.segment == Some(number) {
            return Ok(());
        }
        self.segment = None;
        let record = view.record(number, guard)?;
        let segment = view.parse(number, record)?;
        self.take(view, number, hidden, (record, &segment));
        Ok(())
    }

    /// [`Loaded::load`] of a record that is at hand, and what it says.
    #[inline]
    fn take(&mut self, view: &View, number: u32, hidden: u8, (record, segment): (&[u8], &Segment<'_>)) {
        (self.fetched, self.queued) = (0, 0);
        self.count = segment.count();
        self.same_key = segment.same_key() | u32::from(view.directory.is_continuation(number));
        self.record[..record.len()].copy_from_slice(record);
        self.shown = segment.unmarked(hidden) & !self.same_key;
        self.segment = Some(number);
    }

    /// The segment that is here. Precondition: one is.
    #[inline(always)]
    fn parsed(&self, view: &View) -> Segment<'_> {
        debug_assert!(self.segment.is_some(), "a segment was loaded");
        Segment::of_copy(&self.record, self.count, view.layout.run_count)
    }

    /// Asks for the entries of some lanes, now or soon, unless that was done before; with the ends of all their blocks, if none of
    /// them has been read yet.
    #[inline]
    fn prefetch(
        &mut self,
        view: &View,
        runs: &[Arc<Run>],
        lanes: u32,
        with_ends: bool,
        queue: Option<&mut PrefetchQueue>,
    ) {
        let lanes = lanes & !self.fetched & !self.queued;
        if lanes == 0 || self.segment.is_none() {
            return;
        }
        *(if queue.is_some() { &mut self.queued } else { &mut self.fetched }) |= lanes;
        let segment = self.parsed(view);
        let (first, end) = (lanes.trailing_zeros() as usize, 32 - lanes.leading_zeros() as usize);
        let span = lanes_below(end) & !lanes_below(first);
        view.simd.run(PrefetchRows { runs, segment, first, span, with_ends, queue });
    }
}

/// An entry borrowed from a block that the same cursor has pinned, or that stands in place in one of the runs that it holds.
///
/// Invariant: whoever changes a cursor's pins clears or replaces its present entry before anything reads it.
#[derive(Clone, Copy, Debug)]
struct Present(EntryRef<'static>);

impl Present {
    /// # Safety
    ///
    /// The block that `entry` borrows from must stay where it is for as long as this value, or a copy, is read.
    unsafe fn new(entry: EntryRef<'_>) -> Present {
        // SAFETY: only the lifetime changes, and the caller vouches for it.
        Present(unsafe { std::mem::transmute::<EntryRef<'_>, EntryRef<'static>>(entry) })
    }
}

/// A run's last block that does not stand in place, and its number.
type Pin = Option<(u16, PinnedBlock)>;

impl ViewCursor {
    /// A cursor that is not valid yet. `runs` are those the view was built over.
    pub fn new(view: Arc<View>, runs: Arc<[Arc<Run>]>, snapshot: SequenceNumber) -> ViewCursor {
        assert_eq!(runs.len(), view.layout.run_count, "the runs are the view's");
        let pins = runs.iter().map(|_| None).collect();
        ViewCursor {
            sees_all: snapshot >= view.meta().max_sequence,
            hidden: SELECTOR_STALE,
            view,
            runs: Arc::new(HeldRuns(runs)),
            snapshot,
            loaded: Box::default(),
            coming: Box::default(),
            likely: 0,
            standing: 0,
            lane: 0,
            present: None,
            pins,
        }
    }

    /// Leaves tombstones out, if the snapshot sees all: for who reads no other source that they could hide anything in.
    pub fn hide_tombstones(&mut self) {
        self.hidden |= SELECTOR_TOMBSTONE;
        (self.loaded.segment, self.coming.segment) = (None, None);
    }

    /// Sets the snapshot. The cursor is not valid then.
    pub fn set_snapshot(&mut self, snapshot: SequenceNumber) {
        self.present = None;
        self.snapshot = snapshot;
        self.sees_all = snapshot >= self.view.meta().max_sequence;
    }

    /// Whether all keys after the present one are known to differ from it within so many bytes, without a look at any.
    pub fn is_last_with(&mut self, prefix_len: usize) -> bool {
        // What is wrong with it is told to who moves on.
        if !self.sees_all || !self.valid() || self.load(self.standing).is_err() {
            return false;
        }
        let Loaded { record, count, shown, .. } = &*self.loaded;
        let Ok(segment) = self.view.parse(self.standing, record) else { return false };
        let after = shown & !lanes_below(self.lane + 1);
        let next = (after.trailing_zeros() as usize).min(*count);
        let base = segment.base();
        let differs_at = |difference: u8| 8 * usize::from(base) + usize::from(difference) < 8 * prefix_len;
        let between = segment.differences().get(self.lane + 1..=next.min(SEGMENT_LANES - 1)).unwrap_or_default();
        after != 0
            && base != BASE_BISECT
            && between.iter().any(|&difference| difference != SAME_KEY && differs_at(difference))
    }

    /// Lets go of all blocks. The cursor is not valid then.
    pub fn release(&mut self) {
        self.present = None;
        self.pins.iter_mut().for_each(|pin| *pin = None);
    }

    /// Loads a segment's record, unless it is here.
    #[inline]
    fn load(&mut self, number: u32) -> Result<()> {
        if self.loaded.segment == Some(number) { Ok(()) } else { self.load_other(number, &crossbeam_epoch::pin()) }
    }

    /// The same, if it is not.
    fn load_other(&mut self, number: u32, guard: &Guard) -> Result<()> {
        if self.coming.segment == Some(number) {
            std::mem::swap(&mut self.loaded, &mut self.coming);
            return Ok(());
        }
        self.loaded.load(&self.view, number, self.hidden, guard)
    }

    /// Asks for so many rows of the segment after or before one that is read, or has them asked for soon.
    fn prefetch_coming(
        &mut self,
        next: u32,
        rows: usize,
        is_forward: bool,
        guard: &Guard,
        queue: Option<&mut PrefetchQueue>,
    ) {
        let ViewCursor { view, runs, coming, hidden, .. } = self;
        // What is wrong with it is told to who comes there.
        if next < view.directory.segments() && coming.load(view, next, *hidden, guard).is_ok() {
            coming.prefetch(view, runs, first_lanes(coming.shown, rows, is_forward), false, queue);
        }
    }

    /// Reads an entry, its block pinned. The present entry is not one any more.
    #[inline]
    fn read(&mut self, number: u32, lane: usize) -> Result<Present> {
        let ViewCursor { view, runs, loaded, .. } = self;
        let (run, position) = view.simd.run(Locate { view, runs, number, record: &loaded.record, lane })?;
        self.read_at(run, position, self.runs.moment())
    }

    /// Reads the entry at a position, its block pinned. The present entry is not one any more.
    #[inline]
    fn read_at(&mut self, run: usize, position: Position, moment: Moment) -> Result<Present> {
        self.present = None;
        let (pin, run) = (&mut self.pins[run], &self.runs[run]);
        let entry = match run.entry_in_place(position, moment) {
            Some(entry) => entry?,
            None => {
                pin_block(pin, run, position)?;
                pinned_entry(pin, position.slot)?
            }
        };
        // SAFETY: a block in place stands there as long as its run is open, which is held as long as this cursor lives. Any
        // other is pinned, in memory that does not move, until its pin changes. That is done here, where `present` was cleared
        // first, and by `release`, which clears it too; `entry` reads nothing else.
        Ok(unsafe { Present::new(entry) })
    }

    /// [`ViewCursor::read_at`] of what a seek found, which may have read it already.
    #[inline]
    fn read_found(
        &mut self,
        (run, at): (usize, Position),
        entry: Option<InPlace<'_>>,
        moment: Moment,
    ) -> Result<Present> {
        match entry {
            // SAFETY: it stands in place, in a run of this cursor, as in `read_at`.
            Some(entry) => Ok(unsafe { Present::new(entry.entry()) }),
            None => self.read_at(run, at, moment),
        }
    }

    /// Stands on a lane of the loaded segment.
    #[inline]
    fn stand(&mut self, number: u32, lane: usize) -> Result<()> {
        let present = self.read(number, lane)?;
        (self.standing, self.lane) = (number, lane);
        self.present = Some(present);
        Ok(())
    }

    /// Moves to the first lane that shows at or after `lane` of a segment.
    fn settle_forward(&mut self, mut number: u32, mut lane: usize) -> Result<()> {
        self.present = None;
        while number < self.view.directory.segments() {
            self.load(number)?;
            if self.sees_all {
                let shown = self.loaded.shown & !lanes_below(lane);
                if shown != 0 {
                    return self.stand(number, shown.trailing_zeros() as usize);
                }
            } else {
                while lane < self.loaded.count {
                    // Whichever versions came before are too new: the first that is not shows.
                    if self.is_visible(number, lane)? {
                        return Ok(());
                    }
                    lane += 1;
                }
            }
            number += 1;
            lane = 0;
        }
        Ok(())
    }

    /// Whether the entry is old enough for the snapshot; if so, it becomes the present one.
    fn is_visible(&mut self, number: u32, lane: usize) -> Result<bool> {
        let present = self.read(number, lane)?;
        let is_visible = present.0.sequence <= self.snapshot;
        if is_visible {
            (self.standing, self.lane) = (number, lane);
            self.present = Some(present);
        }
        Ok(is_visible)
    }

    /// The first lane of the next key after `lane` of the loaded segment; it may stand in a later segment.
    fn after_key(&mut self, mut number: u32, lane: usize) -> Result<(u32, usize)> {
        let mut from = lane + 1;
        loop {
            self.load(number)?;
            let newest = lanes_below(self.loaded.count) & !self.loaded.same_key & !lanes_below(from);
            if newest != 0 {
                return Ok((number, newest.trailing_zeros() as usize));
            }
            number += 1;
            from = 0;
            // The segments of a long chain need not be looked at.
            while number < self.view.directory.segments() && self.view.directory.is_continuation(number) {
                number += 1;
            }
            if number >= self.view.directory.segments() {
                return Ok((number, 0));
            }
        }
    }

    /// Moves to the last key that shows before `lane` of a segment: lanes below `lane`, and segments below it.
    fn settle_backward(&mut self, mut number: u32, mut lane: usize) -> Result<()> {
        self.present = None;
        loop {
            if self.view.directory.segments() == 0 {
                return Ok(());
            }
            self.load(number)?;
            let candidates = if self.sees_all { self.loaded.shown } else { !self.loaded.same_key }
                & lanes_below(lane.min(self.loaded.count));
            if candidates == 0 {
                if number == 0 {
                    return Ok(());
                }
                number -= 1;
                // A continuation shows nothing by itself, and its key begins in the segment before.
                lane = SEGMENT_LANES;
                continue;
            }
            let newest = 31 - candidates.leading_zeros() as usize;
            if self.sees_all {
                return self.stand(number, newest);
            }
            if self.stand_on_version(number, newest)? {
                return Ok(());
            }
            self.load(number)?;
            lane = newest;
        }
    }

    /// Stands on the first version that the snapshot sees of the key whose newest version is at `lane`, if any.
    fn stand_on_version(&mut self, mut number: u32, mut lane: usize) -> Result<bool> {
        loop {
            if self.is_visible(number, lane)? {
                return Ok(true);
            }
            lane += 1;
            if lane == self.loaded.count {
                number += 1;
                lane = 0;
                if number == self.view.directory.segments() || !self.view.directory.is_continuation(number) {
                    return Ok(false);
                }
                self.load(number)?;
            } else if self.loaded.same_key & 1 << lane == 0 {
                return Ok(false);
            }
        }
    }

    /// The place of the first key that is `key` or greater: a segment, and a lane that may be one past its last. Who comes
    /// here goes on forward or backward.
    fn find(&mut self, key: &[u8], is_forward: bool) -> Result<Option<(u32, usize)>> {
        self.present = None;
        let likely = std::mem::take(&mut self.likely);
        let Some(number) = self.view.segment_for(key) else {
            return Ok(None);
        };
        let next = if is_forward { number + 1 } else { number.wrapping_sub(1) };
        // A scan will want it.
        self.view.prefetch_record(next);
        self.load(number)?;
        let guard = crossbeam_epoch::pin();
        let ViewCursor { view, runs, loaded, .. } = self;
        let (record, fetched) = (&loaded.record, &mut loaded.fetched);
        let seek = FindLane { view, runs, number, record, query: key, likely, is_forward, fetched, guard: &guard };
        let (lane, left) = view.simd.run(seek)?;
        if left > 0 {
            self.prefetch_coming(next, left, is_forward, &guard, None);
        }
        Ok(Some((number, lane)))
    }

    /// [`ViewCursor::find`] for who goes on forward and sees all: the cursor may stand there already.
    fn find_shown(&mut self, key: &[u8]) -> Result<Option<(u32, usize)>> {
        self.present = None;
        let guard = crossbeam_epoch::pin();
        let ViewCursor { view, runs, hidden, likely, .. } = self;
        let (hidden, likely) = (*hidden, std::mem::take(likely));
        let moment = runs.moment();
        let seek = FindShown::<true> { view, runs, query: key, hidden, likely, moment, guard: &guard };
        let Some(found) = view.simd.run(seek)? else {
            self.likely = likely;
            return self.find(key, true);
        };
        if likely > 0 || !found.is_shown {
            self.load_found(&found, &guard, None);
        }
        if let Some(place) = found.place {
            let present = self.read_found(place, found.entry, moment)?;
            (self.standing, self.lane) = (found.number, found.lane);
            self.present = Some(present);
        }
        Ok(Some((found.number, found.lane)))
    }

    /// Forgets what was to be asked for as rows are passed: the queue of another scan is gone.
    #[inline]
    fn forget_queued(&mut self) {
        (self.loaded.queued, self.coming.queued) = (0, 0);
    }

    /// Loads the record of a segment in which a lane was found, and asks for the rows of the next that are likely to be wanted.
    #[inline]
    fn load_found(&mut self, found: &Found<'_>, guard: &Guard, queue: Option<&mut PrefetchQueue>) {
        if found.left > 0 {
            self.prefetch_coming(found.number + 1, found.left, true, guard, queue);
        }
        if self.loaded.segment != Some(found.number) {
            self.loaded.take(&self.view, found.number, self.hidden, (found.record, &found.segment));
        }
        self.loaded.fetched |= found.fetched;
    }

    /// Seeks in one go, and decodes rows from the first one on into the batch, as many as it says are likely to be wanted. Returns whether it
    /// stands on a row then, that of the batch if that has any. If not, or after an error, it is not valid, and nothing else is known.
    pub fn seek_rows(&mut self, key: &[u8], batch: &mut RowBatch) -> Result<bool> {
        self.present = None;
        if !self.sees_all {
            return Ok(false);
        }
        let guard = crossbeam_epoch::pin();
        match batch.likely_rows() {
            0 => self.seek_row(key, &guard),
            likely => self.seek_and_fill(key, likely, batch, &guard),
        }
    }

    /// [`ViewCursor::seek_rows`] of one row.
    #[inline]
    fn seek_row(&mut self, key: &[u8], guard: &Guard) -> Result<bool> {
        let ViewCursor { view, runs, hidden, .. } = self;
        let moment = runs.moment();
        let seek = FindShown::<true> { view, runs, query: key, hidden: *hidden, likely: 0, moment, guard };
        let Some(Found { number, lane, place: Some(place), entry, .. }) = view.simd.run(seek)? else {
            return Ok(false);
        };
        let present = self.read_found(place, entry, moment)?;
        if present.0.kind == EntryKind::Tombstone {
            return Ok(false);
        }
        (self.standing, self.lane) = (number, lane);
        self.present = Some(present);
        Ok(true)
    }

    /// [`ViewCursor::seek_rows`] of several.
    fn seek_and_fill(&mut self, key: &[u8], likely: usize, batch: &mut RowBatch, guard: &Guard) -> Result<bool> {
        self.forget_queued();
        let ViewCursor { view, runs, hidden, .. } = self;
        let moment = runs.moment();
        let seek = FindShown::<false> { view, runs, query: key, hidden: *hidden, likely, moment, guard };
        let found = match view.simd.run(seek)? {
            Some(found) if found.is_shown => found,
            _ => return Ok(false),
        };
        self.load_found(&found, guard, Some(batch.queue()));
        batch.begin_with_seek(found.number);
        if self.fill_from(found.number, found.lane, true, batch, (moment, guard)).is_err() {
            batch.fail();
        }
        let Some((key, value)) = batch.row() else { return Ok(false) };
        let present = match batch.is_pinning() {
            true => self.read(found.number, found.lane)?,
            // Its sequence number was not decoded: all that matters is that whatever else has the key is newer, since nothing is older than
            // the only source of a partition. One that is gone back to is read anew.
            // SAFETY: the rows of a batch that pins nothing stand in place, as in `read_at`.
            false => unsafe { Present::new(EntryRef { key, sequence: 0, kind: EntryKind::Value, value }) },
        };
        (self.standing, self.lane) = (found.number, found.lane);
        self.present = Some(present);
        Ok(true)
    }

    /// Decodes the rows that come after the present one, or after the one that the batch goes on from; going backward,
    /// before it: some of its segment or, if there are none, of the next. A batch to be merged begins with the present row.
    /// There are none in the batch if rows must be looked at one by one: at an older snapshot, at the ends, at rows that
    /// are more than key and value, and where something is damaged, which is told to who comes there. The cursor stays
    /// where it is. Precondition: valid, unless the batch goes on.
    pub fn fill(&mut self, is_forward: bool, batch: &mut RowBatch) {
        let (number, lane, is_included) = match batch.from() {
            Some(RowPlace { segment, lane }) => (segment, lane, false),
            None => (self.here(), self.lane, batch.is_to_merge()),
        };
        batch.begin(number, is_forward);
        if batch.rounds() == 0 {
            self.forget_queued();
        }
        if self.sees_all {
            // One guard for all the blocks that are pinned.
            let guard = crossbeam_epoch::pin();
            // From here on, to this lane.
            let bound = if is_forward { lane + usize::from(!is_included) } else { lane + usize::from(is_included) };
            let now = (self.runs.moment(), &guard);
            if self.fill_from(number, bound, is_forward, batch, now).is_err() {
                batch.fail();
            }
        }
    }

    fn fill_from(
        &mut self,
        mut number: u32,
        bound: usize,
        is_forward: bool,
        batch: &mut RowBatch,
        (moment, guard): (Moment, &Guard),
    ) -> Result<()> {
        let step = |from: u32| if is_forward { from + 1 } else { from.wrapping_sub(1) };
        if self.loaded.segment != Some(number) {
            self.load_other(number, guard)?;
        }
        let mut lanes = self.loaded.shown & if is_forward { !lanes_below(bound) } else { lanes_below(bound) };
        while lanes == 0 {
            number = step(number);
            if number >= self.view.directory.segments() {
                batch.expect(0, Beyond::End);
                return Ok(());
            }
            if self.loaded.segment != Some(number) {
                self.load_other(number, guard)?;
            }
            lanes = self.loaded.shown;
        }
        batch.begin_again(number);
        let (tombstones, beyond);
        (lanes, tombstones, beyond) = self.plain_lanes(lanes, batch);
        if lanes == 0 {
            batch.expect(0, beyond);
            return Ok(());
        }
        // Short scans are not to pay for what they do not read: the further a scan goes, or the one before it went, the
        // further it looks ahead.
        let is_long = batch.rounds() >= LONG_SCAN;
        if batch.rounds() > 0 {
            // The rows that are decoded now were not all asked for yet.
            batch.queue().prefetch_all();
        }
        let likely = batch.likely_rows();
        let few = if likely > 0 { likely } else { FEW_LANES };
        let chunk = if is_long { lanes } else { first_lanes(lanes, few, is_forward) };
        if batch.rounds() == 0 {
            self.likely = likely;
        }
        batch.expect(tombstones & chunk, if chunk == lanes { beyond } else { Beyond::More });
        let next = step(number);
        if is_long {
            self.view.prefetch_record(next);
        } else {
            let chunk_rows = chunk.count_ones() as usize;
            let coming = if batch.rounds() == 0 { likely } else { likely.max(chunk_rows + FEW_LANES) };
            self.prefetch_ahead([lanes, chunk], [next, step(next)], coming, batch, guard);
            if chunk_rows < ROWS_SOON_MIN {
                batch.queue().prefetch_all();
            }
        }
        let ViewCursor { view, runs, loaded, .. } = self;
        let segment = loaded.parsed(view);
        if !view.simd.run(Decode { runs, moment, segment, lanes: chunk, batch })? {
            return Err(view.corrupt_segment(number, "an entry lies outside of its run"));
        }
        Ok(())
    }

    /// Those of some lanes of the loaded segment that come before the first row that must be looked at by itself, which of all lanes are
    /// tombstones, and what comes after. Tombstones that are not to be shown are not among the lanes.
    #[inline]
    fn plain_lanes(&self, lanes: u32, batch: &RowBatch) -> (u32, u32, Beyond) {
        let segment = self.loaded.parsed(&self.view);
        let tombstones = !segment.unmarked(SELECTOR_TOMBSTONE);
        let mut special = !segment.unmarked(SELECTOR_RESOLVE);
        if !batch.is_to_merge() {
            special |= tombstones;
        }
        special &= lanes;
        if special == 0 {
            return (lanes, tombstones, Beyond::More);
        }
        let is_forward = batch.is_forward();
        let first = near_lane(special, is_forward);
        let plain = lanes & if is_forward { lanes_below(first) } else { !lanes_below(first + 1) };
        (plain, tombstones, Beyond::Row(first))
    }

    /// Asks for the rows of `chunk` and what comes after: the other lanes of the segment, or if there are none rows of the next, so
    /// that `wanted` are asked for in all, and the record of the one after that.
    #[inline]
    fn prefetch_ahead(
        &mut self,
        [lanes, chunk]: [u32; 2],
        [next, after_next]: [u32; 2],
        wanted: usize,
        batch: &mut RowBatch,
        guard: &Guard,
    ) {
        let is_first = batch.rounds() == 0;
        let ViewCursor { view, runs, loaded, .. } = self;
        loaded.prefetch(view, runs, chunk, is_first, None);
        let left = wanted.saturating_sub(chunk.count_ones() as usize);
        if lanes != chunk {
            loaded.prefetch(view, runs, if is_first { 0 } else { lanes & !chunk }, false, None);
        } else if left > 0 {
            // Rows that are merged with others are not passed one by one.
            let is_passed = batch.is_forward() && !batch.is_to_merge();
            self.prefetch_coming(next, left, batch.is_forward(), guard, is_passed.then(|| batch.queue()));
            self.view.prefetch_record(after_next);
        } else {
            view.prefetch_record(next);
        }
    }

    /// Has a batch go on with the rows that it kept for later, from the present one on: see [`RowBatch::aside`]. There are none in the batch if
    /// the cursor stands on none of them. Precondition: valid.
    pub fn resume(&self, batch: &mut RowBatch) {
        batch.resume(&self.runs, RowPlace { segment: self.here(), lane: self.lane });
    }

    /// Stands on a row that was in a batch.
    pub fn go_to(&mut self, place: RowPlace) -> Result<()> {
        self.guarded(|cursor| {
            cursor.load(place.segment)?;
            cursor.stand(place.segment, place.lane)
        })
    }

    /// The least and the greatest sequence number that its entries can have.
    pub fn sequences(&self) -> (SequenceNumber, SequenceNumber) {
        let metas = self.runs.iter().map(|run| run.meta());
        metas
            .fold((SequenceNumber::MAX, 0), |(min, max), meta| (meta.min_sequence.min(min), meta.max_sequence.max(max)))
    }

    /// Stands past its last row. The cursor is not valid then.
    pub fn go_past(&mut self) {
        self.present = None;
    }

    /// The segment of a valid cursor.
    fn here(&self) -> u32 {
        assert!(self.present.is_some(), "the cursor must be valid");
        self.standing
    }

    /// Runs a move; after an error the cursor is not valid.
    fn guarded(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let result = step(self);
        if result.is_err() {
            self.present = None;
        }
        result
    }
}

/// Those of some lanes that stand among so many from the first one in a direction.
#[inline]
fn first_lanes(lanes: u32, span: usize, is_forward: bool) -> u32 {
    if is_forward {
        lanes & lanes_below((lanes.trailing_zeros() as usize).saturating_add(span))
    } else {
        lanes & !lanes_below((32 - lanes.leading_zeros() as usize).saturating_sub(span))
    }
}

/// Makes `pin` the block of a position.
#[inline]
fn pin_block(pin: &mut Pin, run: &Run, position: Position) -> Result<()> {
    if pin.as_ref().is_some_and(|(block, _)| *block == position.block) {
        return Ok(());
    }
    // The old block goes first, so that a run never holds two.
    *pin = None;
    *pin = Some((position.block, run.pin(position.block)?));
    Ok(())
}

#[inline]
fn pinned_entry(pin: &Pin, slot: u16) -> Result<EntryRef<'_>> {
    match pin {
        Some((_, block)) => block.entry(slot),
        None => unreachable!("an entry is read after its block was pinned"),
    }
}

impl Cursor for ViewCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.guarded(|cursor| {
            match if cursor.sees_all { cursor.find_shown(key) } else { cursor.find(key, true) }? {
                _ if cursor.valid() => Ok(()),
                None => Ok(()),
                // Past the segment's last entry, versions of its last key may follow in continuations.
                Some((number, lane)) if lane == cursor.loaded.count => {
                    let (number, lane) = cursor.after_key(number, lane)?;
                    cursor.settle_forward(number, lane)
                }
                Some((number, lane)) => cursor.settle_forward(number, lane),
            }
        })
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.guarded(|cursor| match cursor.find(key, false)? {
            None => Ok(()),
            Some((number, lane)) => cursor.settle_backward(number, lane),
        })
    }

    fn seek_first(&mut self) -> Result<()> {
        self.guarded(|cursor| cursor.settle_forward(0, 0))
    }

    fn seek_last(&mut self) -> Result<()> {
        self.guarded(|cursor| {
            let last = cursor.view.directory.segments().saturating_sub(1);
            cursor.settle_backward(last, SEGMENT_LANES)
        })
    }

    fn next(&mut self) -> Result<()> {
        let number = self.here();
        self.guarded(|cursor| {
            cursor.load(number)?;
            if cursor.sees_all {
                return cursor.settle_forward(number, cursor.lane + 1);
            }
            let (number, lane) = cursor.after_key(number, cursor.lane)?;
            cursor.settle_forward(number, lane)
        })
    }

    fn prev(&mut self) -> Result<()> {
        let number = self.here();
        self.guarded(|cursor| {
            cursor.load(number)?;
            // From an older version, first back to its key's newest one.
            let mut number = number;
            let mut lane = cursor.lane;
            while cursor.loaded.same_key & 1 << lane != 0 {
                if lane == 0 {
                    number -= 1;
                    cursor.load(number)?;
                    lane = cursor.loaded.count;
                }
                lane -= 1;
            }
            cursor.settle_backward(number, lane)
        })
    }

    #[inline]
    fn valid(&self) -> bool {
        self.present.is_some()
    }

    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        match self.present {
            Some(Present(entry)) => entry,
            None => panic!("the cursor must be valid"),
        }
    }
}
