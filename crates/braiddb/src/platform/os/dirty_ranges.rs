//! Which bytes of a file were written since its last sync: for systems where a sync of some bytes is a write of its own.
//!
//! On Windows, to make a commit durable without flushing a whole file is to write its bytes once more, through the system's
//! cache. So a file has to know where it was written to, exactly: to write once more what another thread is writing just then
//! would undo that. This knows no system: it only decides.
//!
//! **States.** A range is *being written*, then *written*, then *being synced*, then forgotten. A sync takes all written
//! ranges, and waits for those being written that overlap them; a write that overlaps what is being synced waits for the
//! sync. Writes and syncs of different bytes never wait for each other: the log's appends and its syncs.
//!
//! **When all of the file is flushed instead** (`Plan::Flush`): at first, since others may have written to it before it was
//! opened; when its length changed, which is not in its bytes; when what was written lies in too many pieces or is so much
//! that writing it twice would cost more.
//!
//! **Threads.** One mutex, held for some comparisons. Syncs come one at a time: the caller sees to that.

use parking_lot::{Condvar, Mutex};
use std::ops::Range;

/// More pieces than this, and all of the file is flushed.
const RANGES_MAX: usize = 32;

/// More bytes than this, and all of the file is flushed.
const BYTES_MAX: u64 = 4 << 20;

/// So many threads may write to one file at once before the list of them grows.
const WRITERS_USUAL: usize = 16;

/// What a sync has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing was written.
    Nothing,
    /// Have the system write all that it holds of the file, and the file's length.
    Flush,
    /// Write the ranges that [`DirtyRanges::ranges_to_sync`] gives once more.
    Ranges,
}

/// What is written to one file.
#[derive(Debug)]
pub struct DirtyRanges {
    state: Mutex<State>,
    /// Told when a range is no longer being written, or synced.
    turn: Condvar,
}

#[derive(Debug)]
struct State {
    /// Written and not durable: in order, apart from each other.
    ranges: Vec<Range<u64>>,
    being_written: Vec<Range<u64>>,
    being_synced: Vec<Range<u64>>,
    /// The length that is known to be durable.
    durable_len: u64,
    needs_flush: bool,
}

impl Default for DirtyRanges {
    fn default() -> Self {
        DirtyRanges::new()
    }
}

impl DirtyRanges {
    /// A file that was just opened, of which nothing is known.
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

    /// To be called before bytes are written; waits while any of them is synced.
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

    /// To be called after that, whether or not it succeeded: any part may have been written.
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

    /// To be called after the file's length was set.
    pub fn note_length(&self) {
        self.state.lock().needs_flush = true;
    }

    /// Decides what a sync of the whole file does. [`DirtyRanges::end_sync`] must follow.
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

    /// Decides what a sync of these bytes does, which nobody writes to meanwhile: to write them once more, or more than that.
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

    /// What a sync with [`Plan::Ranges`] is to write once more, put into a list that is empty.
    pub fn ranges_to_sync(&self, list: &mut Vec<Range<u64>>) {
        list.extend_from_slice(&self.state.lock().being_synced);
    }

    /// Ends a sync. `flushed_len`: after a flush that succeeded, what the length was before it. After a failure nothing counts as
    /// durable, and the next sync flushes everything.
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
    /// Notes that a range was written.
    fn add(&mut self, range: Range<u64>) {
        if self.needs_flush || range.is_empty() {
            return;
        }
        if range.end > self.durable_len {
            self.needs_flush = true;
            return;
        }
        // Those that it touches: from `first` on, up to `last`.
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

    /// Forgets a range.
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

    /// A file of a megabyte that was flushed.
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
    fn contiguous_pieces_are_gathered() {
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
    fn what_is_not_in_the_bytes_or_too_much_is_flushed() {
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
    fn a_write_that_ends_during_a_flush_is_left_to_the_next() {
        let written = flushed();
        written.note_length();
        written.begin_write(0..10);
        assert_eq!(written.begin_sync(), Plan::Flush);
        written.end_write(0..10);
        written.end_sync(true, Some(1 << 20));
        assert_eq!(synced(&written), [0..10]);
    }

    #[test]
    fn after_a_failure_everything_is_flushed() {
        let written = flushed();
        write(&written, 0..10);
        assert_eq!(written.begin_sync(), Plan::Ranges);
        written.end_sync(false, None);
        assert_eq!(written.begin_sync(), Plan::Flush);
        written.end_sync(false, None);
        assert_eq!(written.begin_sync(), Plan::Flush);
    }

    #[test]
    fn some_bytes_are_synced_and_the_rest_stays() {
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

    /// Else a sync would put back what stood there before the write.
    #[test]
    fn a_write_waits_for_the_sync_of_its_bytes_and_a_sync_for_the_write() {
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
            // Others do not wait.
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
