//! Checks a view, alone and against its runs.

use super::bits::compare_bits;
use super::build::{Bounds, Covering};
use super::format::{
    BASE_BISECT, MAX_DIFFERENCE, SAME_KEY, SELECTOR_RUN, SELECTOR_STALE, SELECTOR_TOMBSTONE, Segment, selector, tag,
};
use super::reader::View;
use super::scan::SegmentStream;
use crate::base::{Result, SequenceNumber};
use crate::table::{KeyScan, Position, Run};
use std::{cmp::Ordering, sync::Arc};

impl View {
    /// Checks every page's checksums and counts, without the runs. Returns the bytes read.
    pub fn verify(self: &Arc<Self>) -> Result<u64> {
        let mut stream = SegmentStream::new(self.clone());
        let (mut stale, mut tombstones) = (0, 0);
        while let Some(number) = stream.next()? {
            let segment = stream.segment()?;
            let is_continuation = self.directory.is_continuation(number);
            for lane in 0..segment.count() {
                let selector = segment.selector(lane);
                if segment.run(lane) >= self.layout.run_count {
                    return Err(self.corrupt_segment(number, "an entry is of a run that the view does not have"));
                }
                let same_key = segment.same_key() & 1 << lane != 0 || (lane == 0 && is_continuation);
                if (same_key || is_continuation) && !(same_key && selector & SELECTOR_STALE != 0) {
                    return Err(self.corrupt_segment(number, "an older version is not marked stale"));
                }
                if selector & SELECTOR_STALE != 0 {
                    stale += 1;
                } else if selector & SELECTOR_TOMBSTONE != 0 {
                    tombstones += 1;
                }
            }
        }
        if (stale, tombstones) != (self.meta().stale, self.meta().tombstones) {
            return Err(self.corrupt_segment(0, "stale entries and tombstones are not as many as the footer says"));
        }
        Ok(self.meta().file_bytes)
    }

    /// Reads every key of the runs within `bounds` in the view's order. Checks order, differences,
    /// tags, separators and marks, and that no entry is missing.
    pub fn verify_against(self: &Arc<Self>, runs: &[Arc<Run>], bounds: &Bounds) -> Result<()> {
        let mut check = Check {
            view: self,
            runs,
            bounds,
            covering: Covering::new(runs),
            keys: Vec::new(),
            next: Vec::new(),
            last: None,
            anchor: 0,
        };
        let mut stream = SegmentStream::new(self.clone());
        while let Some(number) = stream.next()? {
            let segment = stream.segment()?;
            check.cursors(number, &segment)?;
            for lane in 0..segment.count() {
                check.entry(number, &segment, lane)?;
            }
        }
        check.nothing_is_left()
    }
}

struct Check<'a> {
    view: &'a Arc<View>,
    runs: &'a [Arc<Run>],
    bounds: &'a Bounds,
    covering: Covering<'a>,
    keys: Vec<KeyScan>,
    next: Vec<Position>,
    last: Option<(Vec<u8>, SequenceNumber)>,
    anchor: usize,
}

impl Check<'_> {
    fn cursors(&mut self, number: u32, segment: &Segment<'_>) -> Result<()> {
        let cursors: Vec<Position> = (0..self.runs.len()).filter_map(|run| segment.cursor(run)).collect();
        if number == 0 {
            self.keys = self.runs.iter().zip(&cursors).map(|(run, &from)| run.keys(from)).collect();
            self.next = cursors.clone();
        }
        if cursors != self.next {
            return Err(self.view.corrupt_segment(number, "a run's cursor does not go on where it was"));
        }
        Ok(())
    }

    fn entry(&mut self, number: u32, segment: &Segment<'_>, lane: usize) -> Result<()> {
        let bad = |detail: &str| Err(self.view.corrupt_segment(number, detail));
        let index = segment.run(lane);
        let Some(scan) = self.keys.get_mut(index) else {
            return bad("an entry is of a run that the view does not have");
        };
        if !scan.next()? || scan.position() != self.next[index] {
            return bad("an entry lies outside of its run");
        }
        self.next[index] = self.runs[index].advance(self.next[index], 1);
        let (key, sequence, kind) = (scan.key(), scan.sequence(), scan.kind());
        if key < self.bounds.start.as_slice() || !self.bounds.ends_after(key) {
            return bad("a key lies outside of the partition");
        }
        let (order, bit) = match &self.last {
            None => (Ordering::Greater, None),
            Some((last, newer)) => match compare_bits(key, last) {
                (Ordering::Equal, _) if sequence >= *newer => return bad("versions of a key are out of order"),
                (Ordering::Less, _) => return bad("keys are out of order"),
                comparison => comparison,
            },
        };
        let same_key = order == Ordering::Equal;
        let decode = segment.differences()[lane];
        let is_continuation = self.view.directory.is_continuation(number);
        let claims_same = if lane == 0 { is_continuation } else { decode == SAME_KEY };
        if claims_same != same_key {
            return bad("versions of a key are not told as such");
        }
        if lane > 0 && !same_key && segment.base() != BASE_BISECT {
            let relative = bit.and_then(|bit| bit.checked_sub(8 * u32::from(segment.base())));
            if relative != Some(u32::from(decode)) || relative > Some(MAX_DIFFERENCE) {
                return bad("a difference is wrong");
            }
        }
        let stale = same_key || self.covering.deletes(key, sequence);
        let marks = segment.selector(lane) & !SELECTOR_RUN;
        // A range tombstone added after entries leaves them unmarked, in a run's own view and its
        // folds. Readers apply range tombstones regardless.
        let may_be_unmarked = stale && !same_key;
        let marks_are_right =
            marks == selector(0, kind, stale) || (may_be_unmarked && marks == selector(0, kind, false));
        if segment.tag(lane) != tag(key) || !marks_are_right {
            return bad("an entry's tag or marks are wrong");
        }
        if lane == 0 && !is_continuation {
            let anchors = &self.view.directory.anchors;
            let is_above = |(last, _): &(Vec<u8>, SequenceNumber)| anchors.compare(self.anchor, last).is_gt();
            if anchors.compare(self.anchor, key).is_gt() || !self.last.as_ref().is_none_or(is_above) {
                return bad("its separator does not separate");
            }
            self.anchor += 1;
        }
        self.last = Some((key.to_vec(), sequence));
        Ok(())
    }

    fn nothing_is_left(mut self) -> Result<()> {
        if self.keys.is_empty() {
            self.keys = self.runs.iter().map(|run| run.keys(Position::default())).collect();
        }
        for mut rest in self.keys {
            while rest.next()? && self.bounds.ends_after(rest.key()) {
                if rest.key() >= self.bounds.start.as_slice() {
                    return Err(self.view.corrupt_segment(0, "an entry of a run is missing"));
                }
            }
        }
        Ok(())
    }
}
