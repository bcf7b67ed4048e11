//! A cursor over a view at a snapshot.
//!
//! A seek finds its segment by the anchors and its entry by blind search, with one key read. `next`
//! and `prev` follow the selectors without comparisons. If the snapshot covers the view, the record
//! alone decides which entries are visible; otherwise they are read.

use super::find::{FindLane, FindShown, Found, InPlace, Locate};
use super::format::{BASE_BISECT, SAME_KEY, SEGMENT_LANES, SELECTOR_STALE, SELECTOR_TOMBSTONE, lanes_below};
use super::reader::View;
use super::rows::{HeldRuns, RowBatch, RowPlace};
use crate::base::{Cursor, EntryKind, EntryRef, Result, SequenceNumber};
use crate::cache::PrefetchQueue;
use crate::table::{Moment, PinnedBlock, Position, Run};
use crossbeam_epoch::Guard;
use loaded::Loaded;
use std::sync::Arc;

mod fill;
mod loaded;

/// Holds the view, its runs and one block of each run; needs no guard of the epoch collector.
#[derive(Debug)]
pub struct ViewCursor {
    view: Arc<View>,
    runs: Arc<HeldRuns>,
    snapshot: SequenceNumber,
    sees_all: bool,
    /// Selector bits of hidden entries, if the snapshot covers the view.
    hidden: u8,
    loaded: Box<Loaded>,
    coming: Box<Loaded>,
    /// Rows that the last scan read after its seek.
    likely: usize,
    /// Position of a valid cursor. The loaded record can be another segment's.
    standing: u32,
    lane: usize,
    /// The current entry, in place or in its run's pinned block; `None` if the cursor is invalid.
    present: Option<Present>,
    pins: Vec<Pin>,
}

/// An entry borrowed from a block that the cursor has pinned, or that is read in place.
///
/// INVARIANT: code that changes a cursor's pins clears or replaces its present entry before any
/// read of it.
#[derive(Clone, Copy, Debug)]
struct Present(EntryRef<'static>);

impl Present {
    /// # Safety
    ///
    /// The block that `entry` borrows from must not move while this value or a copy is read.
    unsafe fn new(entry: EntryRef<'_>) -> Present {
        // SAFETY: only the lifetime changes; the caller guarantees it.
        Present(unsafe { std::mem::transmute::<EntryRef<'_>, EntryRef<'static>>(entry) })
    }
}

type Pin = Option<(u16, PinnedBlock)>;

impl ViewCursor {
    /// `runs` are the view's. The cursor starts invalid.
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

    /// Hides tombstones if the snapshot covers the view. For callers without older sources.
    pub fn hide_tombstones(&mut self) {
        self.hidden |= SELECTOR_TOMBSTONE;
        (self.loaded.segment, self.coming.segment) = (None, None);
    }

    /// The cursor becomes invalid.
    pub fn set_snapshot(&mut self, snapshot: SequenceNumber) {
        self.present = None;
        self.snapshot = snapshot;
        self.sees_all = snapshot >= self.view.meta().max_sequence;
    }

    /// True if all later keys are known, without reads, to differ within `prefix_len` bytes.
    pub fn is_last_with(&mut self, prefix_len: usize) -> bool {
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

    pub fn release(&mut self) {
        self.present = None;
        self.pins.iter_mut().for_each(|pin| *pin = None);
    }

    #[inline]
    fn load(&mut self, number: u32) -> Result<()> {
        if self.loaded.segment == Some(number) { Ok(()) } else { self.load_other(number, &crossbeam_epoch::pin()) }
    }

    fn load_other(&mut self, number: u32, guard: &Guard) -> Result<()> {
        if self.coming.segment == Some(number) {
            std::mem::swap(&mut self.loaded, &mut self.coming);
            return Ok(());
        }
        self.loaded.load(&self.view, number, self.hidden, guard)
    }

    fn prefetch_coming(
        &mut self,
        next: u32,
        rows: usize,
        is_forward: bool,
        guard: &Guard,
        queue: Option<&mut PrefetchQueue>,
    ) {
        let ViewCursor { view, runs, coming, hidden, .. } = self;
        // The move to that segment reports damage.
        if next < view.directory.segments() && coming.load(view, next, *hidden, guard).is_ok() {
            coming.prefetch(view, runs, first_lanes(coming.shown, rows, is_forward), false, queue);
        }
    }

    #[inline]
    fn read(&mut self, number: u32, lane: usize) -> Result<Present> {
        let ViewCursor { view, runs, loaded, .. } = self;
        let (run, position) = view.simd.run(Locate { view, runs, number, record: &loaded.record, lane })?;
        self.read_at(run, position, self.runs.moment())
    }

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
        // SAFETY: a block in a mapped file stays there while its run is open, and the cursor
        // holds its runs. Any other block is pinned: it does not move until the cursor pins
        // another. Only this function and `release` do that, and both clear `present` first.
        // `entry` reads no other memory.
        Ok(unsafe { Present::new(entry) })
    }

    #[inline]
    fn read_found(
        &mut self,
        (run, at): (usize, Position),
        entry: Option<InPlace<'_>>,
        moment: Moment,
    ) -> Result<Present> {
        match entry {
            // SAFETY: the entry is in place in a run of this cursor, as in `read_at`.
            Some(entry) => Ok(unsafe { Present::new(entry.entry()) }),
            None => self.read_at(run, at, moment),
        }
    }

    #[inline]
    fn stand(&mut self, number: u32, lane: usize) -> Result<()> {
        let present = self.read(number, lane)?;
        (self.standing, self.lane) = (number, lane);
        self.present = Some(present);
        Ok(())
    }

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

    fn is_visible(&mut self, number: u32, lane: usize) -> Result<bool> {
        let present = self.read(number, lane)?;
        let is_visible = present.0.sequence <= self.snapshot;
        if is_visible {
            (self.standing, self.lane) = (number, lane);
            self.present = Some(present);
        }
        Ok(is_visible)
    }

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
            while number < self.view.directory.segments() && self.view.directory.is_continuation(number) {
                number += 1;
            }
            if number >= self.view.directory.segments() {
                return Ok((number, 0));
            }
        }
    }

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
                // The continuation's key begins in an earlier segment.
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

    /// Finds the first key at or above `key`; its index can be one past the segment's last.
    fn find(&mut self, key: &[u8], is_forward: bool) -> Result<Option<(u32, usize)>> {
        self.present = None;
        let likely = std::mem::take(&mut self.likely);
        let Some(number) = self.view.segment_for(key) else {
            return Ok(None);
        };
        let next = if is_forward { number + 1 } else { number.wrapping_sub(1) };
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

    /// [`ViewCursor::find`] forward for a snapshot that covers the view; mostly moves there.
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

    #[inline]
    fn forget_queued(&mut self) {
        (self.loaded.queued, self.coming.queued) = (0, 0);
    }

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

    /// Seeks in one pass and decodes as many rows as the batch expects. Returns true if the cursor
    /// is on a row: the batch's, if any. On false or an error the cursor is invalid.
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
            // The sequence number was not decoded: 0 is enough, since no source is older than a
            // partition's only one. A return to this row reads it again.
            // SAFETY: rows of a batch without pins are in place, as in `read_at`.
            false => unsafe { Present::new(EntryRef { key, sequence: 0, kind: EntryKind::Value, value }) },
        };
        (self.standing, self.lane) = (found.number, found.lane);
        self.present = Some(present);
        Ok(true)
    }

    pub fn go_to(&mut self, place: RowPlace) -> Result<()> {
        self.guarded(|cursor| {
            cursor.load(place.segment)?;
            cursor.stand(place.segment, place.lane)
        })
    }

    pub fn sequences(&self) -> (SequenceNumber, SequenceNumber) {
        let metas = self.runs.iter().map(|run| run.meta());
        metas
            .fold((SequenceNumber::MAX, 0), |(min, max), meta| (meta.min_sequence.min(min), meta.max_sequence.max(max)))
    }

    pub fn go_past(&mut self) {
        self.present = None;
    }

    fn here(&self) -> u32 {
        assert!(self.present.is_some(), "the cursor must be valid");
        self.standing
    }

    fn guarded(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let result = step(self);
        if result.is_err() {
            self.present = None;
        }
        result
    }
}

#[inline]
fn first_lanes(lanes: u32, span: usize, is_forward: bool) -> u32 {
    if is_forward {
        lanes & lanes_below((lanes.trailing_zeros() as usize).saturating_add(span))
    } else {
        lanes & !lanes_below((32 - lanes.leading_zeros() as usize).saturating_sub(span))
    }
}

#[inline]
fn pin_block(pin: &mut Pin, run: &Run, position: Position) -> Result<()> {
    if pin.as_ref().is_some_and(|(block, _)| *block == position.block) {
        return Ok(());
    }
    // Release the old block first, so that a run never pins two.
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
                // Versions of the segment's last key can follow in continuations.
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
