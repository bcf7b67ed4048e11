//! Checking a view, alone and against its runs.

use super::bits::compare_bits;
use super::build::{Bounds, Covering};
use super::format::{
    BASE_BISECT, MAX_DIFFERENCE, SAME_KEY, SELECTOR_RESOLVE, SELECTOR_RUN, SELECTOR_STALE, SELECTOR_TOMBSTONE, tag,
};
use super::reader::View;
use super::scan::SegmentStream;
use crate::base::{EntryKind, Result};
use crate::table::{Position, Run};
use std::{cmp::Ordering, sync::Arc};

impl View {
    /// Reads every page and checks checksums and counts, all that can be told without the runs. Returns the bytes
    /// read.
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

    /// Reads every key of the runs within `bounds` in the view's order, and checks order, differences, tags,
    /// separators, marks, and that no entry is missing.
    pub fn verify_against(self: &Arc<Self>, runs: &[Arc<Run>], bounds: &Bounds) -> Result<()> {
        let covering = Covering::new(runs);
        let mut stream = SegmentStream::new(self.clone());
        let mut keys: Vec<Option<crate::table::KeyScan>> = runs.iter().map(|_| None).collect();
        let mut next: Vec<Position> = Vec::new();
        let mut last: Option<(Vec<u8>, u64)> = None;
        let mut anchor = 0;
        while let Some(number) = stream.next()? {
            let bad = |detail: &str| self.corrupt_segment(number, detail);
            let segment = stream.segment()?;
            let cursors: Vec<Position> = (0..runs.len()).filter_map(|run| segment.cursor(run)).collect();
            if number == 0 {
                next = cursors.clone();
                for (scan, (run, &from)) in keys.iter_mut().zip(runs.iter().zip(&next)) {
                    *scan = Some(run.keys(from));
                }
            }
            for (run, (&found, &expected)) in cursors.iter().zip(&next).enumerate() {
                // The view of one run is written before the end of a block is known.
                let is_end = found.slot == runs[run].block_entries(found.block) || expected == runs[run].end();
                if found != expected && !(is_end && segment.lanes_of_run(run) == 0) {
                    return Err(bad("a run's cursor does not go on where it was"));
                }
            }
            let is_continuation = self.directory.is_continuation(number);
            for lane in 0..segment.count() {
                let index = segment.run(lane);
                let Some(scan) = keys.get_mut(index).and_then(Option::as_mut) else {
                    return Err(bad("an entry is of a run that the view does not have"));
                };
                if !scan.next()? || scan.position() != next[index] {
                    return Err(bad("an entry lies outside of its run"));
                }
                next[index] = runs[index].advance(next[index], 1);
                let (key, sequence) = (scan.key(), scan.sequence());
                if key < bounds.start.as_slice() || !bounds.ends_after(key) {
                    return Err(bad("a key lies outside of the partition"));
                }
                let told = segment.differences()[lane];
                let before = last.as_ref().map(|(k, s)| (compare_bits(key, k), *s));
                let same_key = match before {
                    None | Some(((Ordering::Greater, _), _)) => false,
                    Some(((Ordering::Equal, _), newer)) if sequence < newer => true,
                    _ => return Err(bad("entries are out of order")),
                };
                let told_same = if lane == 0 { is_continuation } else { told == SAME_KEY };
                if told_same != same_key || (lane == 0 && !is_continuation && same_key) {
                    return Err(bad("versions of a key are not told as such"));
                }
                if let Some(((Ordering::Greater, bit), _)) = before
                    && lane > 0
                    && segment.base() != BASE_BISECT
                    && bit.map(|b| b.wrapping_sub(8 * u32::from(segment.base()))).filter(|&b| b <= MAX_DIFFERENCE)
                        != Some(u32::from(told))
                {
                    return Err(bad("a difference is wrong"));
                }
                if lane == 0 && !is_continuation {
                    let below = last
                        .as_ref()
                        .is_none_or(|(k, _)| anchor == 0 || self.directory.anchors.compare(anchor, k).is_gt());
                    if !below || self.directory.anchors.compare(anchor, key).is_gt() {
                        return Err(bad("its separator does not separate"));
                    }
                    anchor += 1;
                }
                let stale = same_key || covering.deletes(key, sequence);
                if segment.tag(lane) != tag(key)
                    || segment.selector(lane) & !SELECTOR_RUN != super::format::selector(0, scan.kind(), stale)
                {
                    return Err(bad("an entry's tag or marks are wrong"));
                }
                last = Some((key.to_vec(), sequence));
            }
        }
        for (scan, run) in keys.iter_mut().zip(runs) {
            let mut rest = scan.take().unwrap_or_else(|| run.keys(Position::default()));
            if rest.next()? && bounds.ends_after(rest.key()) && rest.key() >= bounds.start.as_slice() {
                return Err(self.corrupt_segment(0, "an entry of a run is missing"));
            }
        }
        let _ = (EntryKind::Value, SELECTOR_RESOLVE);
        Ok(())
    }
}
