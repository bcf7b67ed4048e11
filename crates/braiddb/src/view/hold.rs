//! What a view knows of a key without its runs: for when a block of a run, or a run, is lost.
//!
//! Blind search leaves one entry that may have the key, and its tag is a byte of its key's hash. So of keys that the view lacks, all but
//! one in 256 are known to be absent, and no key is read.

use super::{
    format::{lanes_below, tag},
    reader::View,
    search::candidate,
};
use crate::{base::Result, table::Position};

/// What a view knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It has no entry with this key.
    Absent,
    /// This entry, if any, is the newest with this key.
    Perhaps {
        /// The run that it stands in, by its place among the view's.
        run: usize,
        /// That run's first entry in the segment, and how many entries stand between.
        cursor: Position,
        /// The number of entries from the cursor to the entry.
        after: u32,
    },
    /// It may have entries with this key anywhere.
    Unknown,
}

impl View {
    /// What the view knows of a key. Reads a page of the view at most, and no run.
    pub fn held(&self, key: &[u8]) -> Result<Held> {
        let Some(number) = self.segment_for(key) else { return Ok(Held::Absent) };
        let guard = crossbeam_epoch::pin();
        let segment = self.segment(number, &guard)?;
        let Some(lane) = candidate(&segment, self.simd, key) else { return Ok(Held::Unknown) };
        if lane >= segment.count() {
            return Err(self.corrupt_segment(number, "its differences lead past its entries"));
        }
        if segment.tag(lane) != tag(key) {
            return Ok(Held::Absent);
        }
        let run = segment.run(lane);
        let after = (segment.lanes_of_run(run) & lanes_below(lane)).count_ones();
        Ok(segment.cursor(run).map_or(Held::Unknown, |cursor| Held::Perhaps { run, cursor, after }))
    }
}
