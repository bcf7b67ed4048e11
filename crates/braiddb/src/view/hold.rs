//! Looks keys up in a view without its runs, for lost or damaged blocks and runs.
//!
//! Blind search leaves one candidate, whose tag is a byte of its key's hash: 255 in 256 absent keys
//! are recognized without a key read.

use super::{
    format::{lanes_below, tag},
    reader::View,
    search::candidate,
};
use crate::{base::Result, table::Position};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    Absent,
    /// Only this entry can be the newest one of the key.
    Perhaps {
        run: usize,
        /// The run's first entry in the segment.
        cursor: Position,
        /// Entries of the run from `cursor` to this one.
        after: u32,
    },
    /// The view may have entries of the key anywhere.
    Unknown,
}

impl View {
    /// Reads at most one page of the view, and no run.
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
