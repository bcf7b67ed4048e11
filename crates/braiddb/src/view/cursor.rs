//! Walking a view at a snapshot.
//!
//! A cursor stands on a lane of a segment whose record it has copied. A seek finds its segment by the anchors and its
//! lane by blind search: one key read. From there, `next` and `prev` follow the selectors without a comparison; the
//! positions of a segment's entries are worked out all at once by the first step within it, not by the seek.
//!
//! A snapshot at or above the view's highest sequence number sees each key's newest version, or nothing where a range
//! tombstone marked it stale: which lanes show is a matter of the record alone. A lower snapshot shows, of each key,
//! the first version that is old enough, and reads entries to find out.
//!
//! Each run's last block stays pinned, so that entries are borrowed without a copy, and without an epoch held. The
//! present entry borrows from such a block for longer than the compiler can see: [`Present`], an island of unsafe.

use super::format::{MAX_RECORD_BYTES, SEGMENT_LANES, SELECTOR_RUN, SELECTOR_STALE, SELECTOR_TOMBSTONE, lanes_below};
use super::reader::View;
use super::search::compare_counted;
use super::simd::match_lanes;
use crate::base::{Cursor, EntryRef, Result, SequenceNumber};
use crate::table::{PinnedBlock, Position, Run};
use std::sync::Arc;

/// How many entries ahead of the present one are fetched into the processor's cache.
const LOOK_AHEAD: usize = 8;

/// A cursor over a view. It holds the view, its runs and one block of each run; it needs no guard.
#[derive(Debug)]
pub struct ViewCursor {
    view: Arc<View>,
    runs: Arc<[Arc<Run>]>,
    snapshot: SequenceNumber,
    /// Whether the snapshot sees each key's newest version.
    sees_all: bool,
    /// The selector bits of entries that do not show if the snapshot sees all.
    hidden: u8,
    /// The segment whose record is here; none if the cursor has not moved yet.
    segment: Option<u32>,
    record: [u8; MAX_RECORD_BYTES],
    count: usize,
    /// Lanes that hold another version of the key before them.
    same_key: u32,
    /// Lanes that show if the snapshot sees all.
    shown: u32,
    /// Where the entries stand, from lane 0, if `is_located`.
    positions: [Position; SEGMENT_LANES],
    is_located: bool,
    lane: usize,
    /// The entry it stands on, in the block pinned for its run. None if the cursor is not valid.
    present: Option<Present>,
    pins: Vec<Pin>,
}

/// An entry borrowed from a block that the same cursor has pinned.
///
/// Invariant: whoever changes a cursor's pins clears or replaces its present entry before anything reads it.
#[derive(Clone, Copy, Debug)]
struct Present(EntryRef<'static>);

impl Present {
    /// # Safety
    ///
    /// The block that `entry` borrows from must stay pinned for as long as this value, or a copy, is read.
    unsafe fn new(entry: EntryRef<'_>) -> Present {
        // SAFETY: only the lifetime changes, and the caller vouches for it.
        Present(unsafe { std::mem::transmute::<EntryRef<'_>, EntryRef<'static>>(entry) })
    }
}

/// A run's last block, and its number.
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
            runs,
            snapshot,
            segment: None,
            record: [0; MAX_RECORD_BYTES],
            count: 0,
            same_key: 0,
            shown: 0,
            positions: [Position::default(); SEGMENT_LANES],
            is_located: false,
            lane: 0,
            present: None,
            pins,
        }
    }

    /// Leaves tombstones out, if the snapshot sees all: for who reads no other source that they could hide anything in.
    pub fn hide_tombstones(&mut self) {
        self.hidden |= SELECTOR_TOMBSTONE;
        self.segment = None;
    }

    /// Sets the snapshot. The cursor is not valid then.
    pub fn set_snapshot(&mut self, snapshot: SequenceNumber) {
        self.present = None;
        self.snapshot = snapshot;
        self.sees_all = snapshot >= self.view.meta().max_sequence;
    }

    /// Lets go of all blocks. The cursor is not valid then.
    pub fn release(&mut self) {
        self.present = None;
        self.pins.iter_mut().for_each(|pin| *pin = None);
    }

    /// Loads a segment's record, unless it is here.
    fn load(&mut self, number: u32) -> Result<()> {
        if self.segment == Some(number) {
            return Ok(());
        }
        self.segment = None;
        self.is_located = false;
        let guard = crossbeam_epoch::pin();
        let record = self.view.record(number, &guard)?;
        let segment = self.view.parse(number, record)?;
        self.count = segment.count();
        self.same_key = segment.same_key() | u32::from(self.view.directory.is_continuation(number));
        self.record[..record.len()].copy_from_slice(record);
        let Some(selectors) = self.record.first_chunk() else { unreachable!("a record has selectors") };
        let visible = match_lanes(selectors, self.hidden, 0) & lanes_below(self.count);
        self.shown = visible & !self.same_key;
        self.segment = Some(number);
        Ok(())
    }

    /// Reads an entry, its block pinned. The present entry is not one any more.
    #[inline]
    fn read(&mut self, number: u32, lane: usize) -> Result<Present> {
        self.present = None;
        let (run, position) = if self.is_located {
            (usize::from(self.record[lane] & SELECTOR_RUN), self.positions[lane])
        } else {
            self.view.locate(&self.runs, number, &self.view.parse(number, &self.record)?, lane)?
        };
        pin_block(&mut self.pins[run], &self.runs[run], position)?;
        let entry = pinned_entry(&self.pins[run], position.slot)?;
        // SAFETY: the block is pinned, in memory that does not move, until `pin_block` is called again. Both callers
        // of that, this function and `find`, clear `present` first, and `entry` reads nothing else.
        Ok(unsafe { Present::new(entry) })
    }

    /// Works out where all entries of the segment stand.
    fn locate_all(&mut self, number: u32, is_forward: bool) -> Result<()> {
        let segment = self.view.parse(number, &self.record)?;
        let mut cursors = [Position::default(); SEGMENT_LANES];
        for (run, cursor) in cursors.iter_mut().enumerate().take(self.runs.len()) {
            *cursor = segment.cursor(run).unwrap_or_default();
        }
        for lane in 0..segment.count() {
            let index = segment.run(lane);
            let cursor = &mut cursors[index];
            match self.runs.get(index) {
                Some(run) if cursor.slot < run.block_entries(cursor.block) => {
                    self.positions[lane] = *cursor;
                    *cursor = run.advance(*cursor, 1);
                }
                _ => return Err(self.view.corrupt_segment(number, "an entry lies outside of its run")),
            }
        }
        self.is_located = true;
        if self.runs.len() > 1 {
            let lanes = match is_forward {
                true => self.lane + 1..self.count.min(self.lane + LOOK_AHEAD),
                false => self.lane.saturating_sub(LOOK_AHEAD - 1)..self.lane,
            };
            lanes.for_each(|lane| self.prefetch(lane));
        }
        Ok(())
    }

    /// Stands on a lane of the loaded segment.
    #[inline]
    fn stand(&mut self, number: u32, lane: usize) -> Result<()> {
        let present = self.read(number, lane)?;
        self.lane = lane;
        self.present = Some(present);
        Ok(())
    }

    /// Asks for what steps soon to come will read: the entry some lanes on, and, halfway through the segment, the
    /// record of the next.
    #[inline]
    fn look_ahead(&self, number: u32, is_forward: bool) {
        let ahead = if is_forward { self.lane + LOOK_AHEAD } else { self.lane.wrapping_sub(LOOK_AHEAD) };
        if self.runs.len() > 1 && ahead < self.count {
            self.prefetch(ahead);
        }
        if self.lane == SEGMENT_LANES / 2 {
            self.view.prefetch_record(if is_forward { number + 1 } else { number.wrapping_sub(1) });
        }
    }

    fn prefetch(&self, lane: usize) {
        if let Some(run) = self.runs.get(usize::from(self.record[lane] & SELECTOR_RUN)) {
            run.prefetch(self.positions[lane]);
        }
    }

    /// Moves to the first lane that shows at or after `lane` of a segment.
    fn settle_forward(&mut self, mut number: u32, mut lane: usize) -> Result<()> {
        self.present = None;
        while number < self.view.directory.segments() {
            self.load(number)?;
            if self.sees_all {
                let shown = self.shown & !lanes_below(lane);
                if shown != 0 {
                    return self.stand(number, shown.trailing_zeros() as usize);
                }
            } else {
                while lane < self.count {
                    // Whichever versions came before are too new: the first that is not shows.
                    if self.is_visible(number, lane)? {
                        self.lane = lane;
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
            self.present = Some(present);
        }
        Ok(is_visible)
    }

    /// The first lane of the next key after `lane` of the loaded segment; it may stand in a later segment.
    fn after_key(&mut self, mut number: u32, lane: usize) -> Result<(u32, usize)> {
        let mut from = lane + 1;
        loop {
            self.load(number)?;
            let newest = lanes_below(self.count) & !self.same_key & !lanes_below(from);
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
            let candidates =
                if self.sees_all { self.shown } else { !self.same_key } & lanes_below(lane.min(self.count));
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
                self.lane = lane;
                return Ok(true);
            }
            lane += 1;
            if lane == self.count {
                number += 1;
                lane = 0;
                if number == self.view.directory.segments() || !self.view.directory.is_continuation(number) {
                    return Ok(false);
                }
                self.load(number)?;
            } else if self.same_key & 1 << lane == 0 {
                return Ok(false);
            }
        }
    }

    /// The place of the first key that is `key` or greater: a segment, and a lane that may be one past its last.
    fn find(&mut self, key: &[u8]) -> Result<Option<(u32, usize)>> {
        self.present = None;
        let Some(number) = self.view.segment_for(key) else {
            return Ok(None);
        };
        self.load(number)?;
        let ViewCursor { view, runs, record, pins, .. } = self;
        let segment = view.parse(number, record)?;
        let place = view.find_in_segment(number, &segment, key, |lane| {
            let (run, position) = view.locate(runs, number, &segment, lane)?;
            runs[run].prefetch(position);
            pin_block(&mut pins[run], &runs[run], position)?;
            Ok(compare_counted(key, pinned_entry(&pins[run], position.slot)?.key))
        })?;
        Ok(Some((number, place.lane)))
    }

    /// The segment of a valid cursor.
    fn here(&self) -> u32 {
        assert!(self.present.is_some(), "the cursor must be valid");
        match self.segment {
            Some(number) => number,
            None => unreachable!("a valid cursor has a segment"),
        }
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
        self.guarded(|cursor| match cursor.find(key)? {
            None => Ok(()),
            Some((number, lane)) => {
                // Past the segment's last entry, versions of its last key may follow in continuations.
                if lane < cursor.count {
                    return cursor.settle_forward(number, lane);
                }
                let (number, lane) = cursor.after_key(number, lane)?;
                cursor.settle_forward(number, lane)
            }
        })
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.guarded(|cursor| match cursor.find(key)? {
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
            if !cursor.is_located {
                cursor.locate_all(number, true)?;
            }
            cursor.look_ahead(number, true);
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
            if !cursor.is_located {
                cursor.locate_all(number, false)?;
            }
            cursor.look_ahead(number, false);
            // From an older version, first back to its key's newest one.
            let mut number = number;
            let mut lane = cursor.lane;
            while cursor.same_key & 1 << lane != 0 {
                if lane == 0 {
                    number -= 1;
                    cursor.load(number)?;
                    lane = cursor.count;
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
