//! Recent writes of this process.
//!
//! The bytes went to the system with their checksum, and are as likely in memory as checked blocks.
//! So they count as checked for the same time (`place.rs`). One part in [`SAMPLED`] is still
//! checked on first read, so that an error in writing shows.

use super::place::{CHECKED_FOR_NS, Moment};
use crate::base::FileId;
use parking_lot::Mutex;

const SAMPLED: u64 = 16;

pub(super) fn is_sample(file: FileId, part: u64) -> bool {
    // The golden ratio scatters the numbers; the top bits are best.
    ((file ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(SAMPLED)
}

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
    /// All bytes from `from` on were written at `since` or later, readable in place.
    pub(super) fn note(&self, file: FileId, from: u64, since: Moment) {
        let mut written = self.written.lock();
        written.retain(|part| since.ns_after(part.since) < 2 * CHECKED_FOR_NS);
        let is_known = |part: &Written| part.file == file && part.from <= from && part.since.is_with(since);
        if !written.iter().any(is_known) {
            written.push(Written { file, from, since });
        }
    }

    pub(super) fn since(&self, file: FileId, offset: u64) -> Option<Moment> {
        let written = self.written.lock();
        let parts = written.iter().filter(|part| part.file == file && part.from <= offset);
        parts.map(|part| part.since).max()
    }
}
