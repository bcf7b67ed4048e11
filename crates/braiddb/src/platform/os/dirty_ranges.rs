//! Tracks the dirty ranges of a file, for systems where syncing a range means rewriting it.
//!
//! On Windows, a commit becomes durable without a full flush by writing its bytes again, through
//! the cache. The ranges must be exact: rewriting bytes that another thread is writing would undo
//! its write. This file only decides.
//!
//! **States.** A range is being written, dirty, being synced, then clean. A sync takes all dirty
//! ranges and waits for overlapping writes. A write waits for an overlapping sync. Disjoint writes
//! and syncs, such as those of the log, never wait for each other.
//!
//! **Full flush** (`Plan::Flush`): at first, since another program may have written before the
//! open; after a change of the length, which is no part of the bytes; and when the ranges are too
//! many or too large.
//!
//! **Threads.** One mutex, held for some comparisons. The caller serializes syncs.

use parking_lot::{Condvar, Mutex};
use std::ops::Range;

/// Maximum dirty ranges before a sync flushes the whole file.
const RANGES_MAX: usize = 32;

/// Maximum dirty bytes before a sync flushes the whole file.
const BYTES_MAX: u64 = 4 << 20;

const WRITERS_USUAL: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    Nothing,
    Flush,
    /// Rewrite the ranges of [`DirtyRanges::ranges_to_sync`].
    Ranges,
}

#[derive(Debug)]
pub struct DirtyRanges {
    state: Mutex<State>,
    turn: Condvar,
}

#[derive(Debug)]
struct State {
    ranges: Vec<Range<u64>>,
    being_written: Vec<Range<u64>>,
    being_synced: Vec<Range<u64>>,
    durable_len: u64,
    needs_flush: bool,
}

impl Default for DirtyRanges {
    fn default() -> Self {
        DirtyRanges::new()
    }
}

impl DirtyRanges {
    pub fn new() -> DirtyRanges {
        let state = State {
            ranges: Vec::new(),
            being_written: Vec::new(),
            being_synced: Vec::new(),
            durable_len: 0,
            needs_flush: true,
        };
        DirtyRanges { state: Mutex::new(state), turn: Condvar::new() }
    }

    /// Must precede each write. Waits while a sync overlaps `range`.
    pub fn begin_write(&self, range: Range<u64>) {
        let mut state = self.state.lock();
        while overlaps(&state.being_synced, &range) {
            self.turn.wait(&mut state);
        }
        if state.being_written.capacity() == 0 {
            state.being_written.reserve(WRITERS_USUAL);
        }
        state.being_written.push(range);
    }

    /// Must follow each write, even a failed one, which may have written any part.
    pub fn end_write(&self, range: Range<u64>) {
        let mut state = self.state.lock();
        if let Some(at) = state.being_written.iter().position(|other| *other == range) {
            state.being_written.swap_remove(at);
        }
        state.add(range);
        if !state.being_synced.is_empty() {
            self.turn.notify_all();
        }
    }

    /// Must follow each change of the length.
    pub fn note_length(&self) {
        self.state.lock().needs_flush = true;
    }

    /// Plans a sync of the whole file. [`DirtyRanges::end_sync`] must follow.
    pub fn begin_sync(&self) -> Plan {
        let mut state = self.state.lock();
        if state.needs_flush {
            state.needs_flush = false;
            state.ranges.clear();
            return Plan::Flush;
        }
        if state.ranges.is_empty() {
            return Plan::Nothing;
        }
        let State { ranges, being_synced, .. } = &mut *state;
        std::mem::swap(ranges, being_synced);
        self.wait_for_writers(&mut state);
        Plan::Ranges
    }

    /// Plans a sync of `range`, which must not be written to meanwhile. May plan a full flush.
    /// [`DirtyRanges::end_sync`] must follow.
    pub fn begin_sync_of(&self, range: Range<u64>) -> Plan {
        let mut state = self.state.lock();
        if state.needs_flush || range.end > state.durable_len {
            state.needs_flush = false;
            state.ranges.clear();
            return Plan::Flush;
        }
        state.remove(&range);
        state.being_synced.clear();
        state.being_synced.push(range);
        self.wait_for_writers(&mut state);
        Plan::Ranges
    }

    fn wait_for_writers(&self, state: &mut parking_lot::MutexGuard<'_, State>) {
        while state.being_synced.iter().any(|range| overlaps(&state.being_written, range)) {
            self.turn.wait(state);
        }
    }

    /// Appends the ranges of a [`Plan::Ranges`].
    pub fn ranges_to_sync(&self, list: &mut Vec<Range<u64>>) {
        list.extend_from_slice(&self.state.lock().being_synced);
    }

    /// `flushed_len` is the length before a successful flush. After a failure, the next sync
    /// flushes everything.
    pub fn end_sync(&self, succeeded: bool, flushed_len: Option<u64>) {
        let mut state = self.state.lock();
        state.needs_flush |= !succeeded;
        if let Some(len) = flushed_len.filter(|_| succeeded) {
            state.durable_len = len;
        }
        state.being_synced.clear();
        self.turn.notify_all();
    }
}

impl State {
    fn add(&mut self, range: Range<u64>) {
        if self.needs_flush || range.is_empty() {
            return;
        }
        if range.end > self.durable_len {
            self.needs_flush = true;
            return;
        }
        // `first..last` are the ranges that it touches.
        let first = self.ranges.partition_point(|other| other.end < range.start);
        let last = self.ranges.partition_point(|other| other.start <= range.end);
        if first == last {
            self.ranges.insert(first, range);
        } else {
            let merged = range.start.min(self.ranges[first].start)..range.end.max(self.ranges[last - 1].end);
            self.ranges[first] = merged;
            self.ranges.drain(first + 1..last);
        }
        let bytes: u64 = self.ranges.iter().map(|range| range.end - range.start).sum();
        self.needs_flush = self.ranges.len() > RANGES_MAX || bytes > BYTES_MAX;
    }

    fn remove(&mut self, range: &Range<u64>) {
        let mut at = 0;
        while let Some(other) = self.ranges.get(at).cloned() {
            let (before, after) = (other.start..range.start.min(other.end), range.end.max(other.start)..other.end);
            match (before.is_empty(), after.is_empty()) {
                (true, true) => {
                    self.ranges.remove(at);
                    continue;
                }
                (false, true) => self.ranges[at] = before,
                (true, false) => self.ranges[at] = after,
                (false, false) => {
                    self.ranges[at] = before;
                    self.ranges.insert(at + 1, after);
                    at += 1;
                }
            }
            at += 1;
        }
    }
}

fn overlaps(ranges: &[Range<u64>], range: &Range<u64>) -> bool {
    ranges.iter().any(|other| other.start < range.end && range.start < other.end)
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, of which one has one")]
mod tests {
    use super::{BYTES_MAX, DirtyRanges, Plan, RANGES_MAX};
    use std::{
        ops::Range,
        sync::atomic::{AtomicBool, Ordering},
    };

    fn flushed() -> DirtyRanges {
        let written = DirtyRanges::new();
        assert_eq!(written.begin_sync(), Plan::Flush, "others may have written to it");
        written.end_sync(true, Some(1 << 20));
        assert_eq!(written.begin_sync(), Plan::Nothing);
        written.end_sync(true, None);
        written
    }

    fn write(written: &DirtyRanges, range: Range<u64>) {
        written.begin_write(range.clone());
        written.end_write(range);
    }

    fn synced(written: &DirtyRanges) -> Vec<Range<u64>> {
        assert_eq!(written.begin_sync(), Plan::Ranges);
        let mut list = Vec::new();
        written.ranges_to_sync(&mut list);
        written.end_sync(true, None);
        list
    }

    #[test]
    fn sync_after_adjacent_writes_merges_ranges() {
        let written = flushed();
        for range in [10..20, 30..40, 20..30, 100..110, 5..12, 108..109, 200..200] {
            write(&written, range);
        }
        assert_eq!(synced(&written), [5..40, 100..110]);
        assert_eq!(written.begin_sync(), Plan::Nothing);
        written.end_sync(true, None);
        write(&written, 0..1);
        assert_eq!(synced(&written), [0..1]);
    }

    #[test]
    fn sync_after_length_change_or_many_ranges_flushes() {
        let far = |written: &DirtyRanges| write(written, (1 << 20) - 1..(1 << 20) + 1);
        let many = |written: &DirtyRanges| (0..=RANGES_MAX as u64).for_each(|i| write(written, i * 10..i * 10 + 1));
        for change in [far, many, |written: &DirtyRanges| written.note_length()] {
            let written = flushed();
            write(&written, 0..9);
            change(&written);
            assert_eq!(written.begin_sync(), Plan::Flush);
            written.end_sync(true, Some(2 << 20));
            assert_eq!(written.begin_sync(), Plan::Nothing);
            written.end_sync(true, None);
        }
        let written = DirtyRanges::new();
        written.begin_sync();
        written.end_sync(true, Some(BYTES_MAX * 2));
        write(&written, 0..BYTES_MAX);
        assert_eq!(synced(&written), [0..BYTES_MAX]);
        write(&written, 0..BYTES_MAX + 1);
        assert_eq!(written.begin_sync(), Plan::Flush);
    }

    #[test]
    fn write_ending_during_flush_stays_dirty() {
        let written = flushed();
        written.note_length();
        written.begin_write(0..10);
        assert_eq!(written.begin_sync(), Plan::Flush);
        written.end_write(0..10);
        written.end_sync(true, Some(1 << 20));
        assert_eq!(synced(&written), [0..10]);
    }

    #[test]
    fn sync_after_failure_flushes_everything() {
        let written = flushed();
        write(&written, 0..10);
        assert_eq!(written.begin_sync(), Plan::Ranges);
        written.end_sync(false, None);
        assert_eq!(written.begin_sync(), Plan::Flush);
        written.end_sync(false, None);
        assert_eq!(written.begin_sync(), Plan::Flush);
    }

    #[test]
    fn sync_of_range_keeps_other_ranges_dirty() {
        let written = flushed();
        for range in [0..10, 20..30, 40..50] {
            write(&written, range);
        }
        for range in [22..24, 5..8, 45..60, 0..1] {
            assert_eq!(written.begin_sync_of(range.clone()), Plan::Ranges);
            let mut list = Vec::new();
            written.ranges_to_sync(&mut list);
            assert_eq!(list, [range]);
            written.end_sync(true, None);
        }
        assert_eq!(synced(&written), [1..5, 8..10, 20..22, 24..30, 40..45]);
        assert_eq!(written.begin_sync_of((1 << 20) - 1..(1 << 20) + 1), Plan::Flush, "the length is to be synced too");
        written.end_sync(true, Some(1 << 20));
    }

    /// Otherwise a sync could restore the bytes from before the write.
    #[test]
    fn write_overlapping_sync_waits_and_vice_versa() {
        let written = flushed();
        write(&written, 0..10);
        let (is_over, is_written) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            assert_eq!(written.begin_sync(), Plan::Ranges);
            scope.spawn(|| {
                written.begin_write(9..12);
                assert!(is_over.load(Ordering::SeqCst), "the write began while its bytes were synced");
                is_written.store(true, Ordering::SeqCst);
                written.end_write(9..12);
            });
            // Other ranges do not wait.
            write(&written, 10..11);
            std::thread::yield_now();
            is_over.store(true, Ordering::SeqCst);
            written.end_sync(true, None);
        });
        assert_eq!(synced(&written), [9..12]);
        is_written.store(false, Ordering::SeqCst);
        std::thread::scope(|scope| {
            write(&written, 0..10);
            written.begin_write(5..6);
            scope.spawn(|| {
                assert_eq!(written.begin_sync(), Plan::Ranges);
                assert!(is_written.load(Ordering::SeqCst), "the sync began while its bytes were written");
                written.end_sync(true, None);
            });
            std::thread::yield_now();
            is_written.store(true, Ordering::SeqCst);
            written.end_write(5..6);
        });
    }
}
