//! What this process has written a short while ago.
//!
//! The bytes went to the system together with their checksum, and the system has them in memory as much as it has what was
//! checked at that moment. So they count as checked, for as long as that lasts (`place.rs`): who reads what was just written
//! need not sum it up again. One part in [`SAMPLED`] is checked all the same when it is first read, so that an error in how things
//! are made and written shows at once.

use super::place::{CHECKED_FOR_NS, Moment};
use crate::base::FileId;
use parking_lot::Mutex;

/// One part of a file in so many is checked although it was written lately.
const SAMPLED: u64 = 16;

/// Whether a part of a file, by its number, is one of those.
pub(super) fn is_sample(file: FileId, part: u64) -> bool {
    // A product with the golden ratio scatters whatever numbers parts have; its top bits are the best.
    ((file ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(SAMPLED)
}

/// Parts of files that were written lately. Shared by all threads.
#[derive(Debug, Default)]
pub struct RecentWrites {
    written: Mutex<Vec<Written>>,
}

#[derive(Debug)]
struct Written {
    file: FileId,
    from: u64,
    since: Moment,
}

impl RecentWrites {
    /// Notes that whatever stands in a file at `from` and after it was written at `since` or later, in a way that can be read in
    /// place.
    pub(super) fn note(&self, file: FileId, from: u64, since: Moment) {
        let mut written = self.written.lock();
        // What is older counts for nothing.
        written.retain(|part| since.ns_after(part.since) < 2 * CHECKED_FOR_NS);
        let is_known = |part: &Written| part.file == file && part.from <= from && part.since.is_with(since);
        if !written.iter().any(is_known) {
            written.push(Written { file, from, since });
        }
    }

    /// When the bytes at an offset of a file were written at the earliest, if they were written lately.
    pub(super) fn since(&self, file: FileId, offset: u64) -> Option<Moment> {
        let written = self.written.lock();
        let parts = written.iter().filter(|part| part.file == file && part.from <= offset);
        parts.map(|part| part.since).max()
    }
}
