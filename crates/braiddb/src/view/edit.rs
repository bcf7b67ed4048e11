//! Inserts a few entries into a group of segments without reading all of its keys.
//!
//! Blind search over the differences finds the one old key to read. Let p be the first bit in which
//! the new key differs from it. The new key splits one difference in two: the boundary with the
//! neighbour that shares the candidate's prefix is p, the other boundary keeps the neighbours' old
//! difference. All other differences and all tags stay. So an insert costs one key read. A segment
//! that overflows costs one more for the separator of each new segment.

use super::bits::compare_bits;
use super::builder::ViewBuilder;
use super::format::{Difference, Lane, SEGMENT_LANES, SELECTOR_STALE, selector, tag};
use super::writer::Anchor;
use crate::base::{EntryKind, EntryRef, Result, SequenceNumber};
use crate::table::{PinnedBlock, Position, Run};
use std::{cmp::Ordering, sync::Arc};

#[derive(Clone, Debug)]
pub(crate) struct NewEntry {
    pub(crate) key: Vec<u8>,
    pub(crate) sequence: SequenceNumber,
    pub(crate) kind: EntryKind,
    pub(crate) run: u8,
    pub(crate) position: Position,
    pub(crate) is_covered: bool,
}

#[derive(Debug)]
pub(crate) struct PinnedReader {
    runs: Vec<Arc<Run>>,
    pins: Vec<Option<(u16, PinnedBlock)>>,
    pub(crate) reads: u64,
}

impl PinnedReader {
    pub(crate) fn new(runs: &[Arc<Run>]) -> PinnedReader {
        PinnedReader { runs: runs.to_vec(), pins: runs.iter().map(|_| None).collect(), reads: 0 }
    }

    pub(crate) fn read(&mut self, run: usize, position: Position) -> Result<EntryRef<'_>> {
        self.reads += 1;
        let pin = &mut self.pins[run];
        if pin.as_ref().is_none_or(|(block, _)| *block != position.block) {
            *pin = None;
        }
        match pin {
            Some((_, block)) => block.entry(position.slot),
            None => pin.insert((position.block, self.runs[run].pin(position.block)?)).1.entry(position.slot),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct EditLane {
    pub(crate) lane: Lane,
    pub(crate) new: Option<usize>,
}

/// A decoded group: an anchor's segment and its continuations.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) lanes: Vec<EditLane>,
    /// Some differences are unknown, so blind inserts are impossible.
    pub(crate) is_ambiguous: bool,
}

impl Group {
    /// Inserts entries in order. After false (a difference cannot be stored) the group is unusable.
    pub(crate) fn insert_all(&mut self, entries: &[NewEntry], old: &mut PinnedReader) -> Result<bool> {
        for index in 0..entries.len() {
            if self.is_ambiguous || !self.insert(entries, index, old)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn insert(&mut self, entries: &[NewEntry], index: usize, old: &mut PinnedReader) -> Result<bool> {
        let entry = &entries[index];
        let candidate = self.blind_candidate(&entry.key);
        let (key, newest) = self.read(candidate, entries, old)?;
        let (order, bit) = compare_bits(&entry.key, key);
        let mut lane = Lane {
            selector: selector(entry.run, entry.kind, entry.is_covered),
            tag: tag(&entry.key),
            difference: Difference::Untold,
            position: entry.position,
        };
        let at = match (order, bit) {
            (Ordering::Equal, _) if newest <= entry.sequence => candidate,
            (Ordering::Equal, _) => self.place_of_version(candidate, entries, entry.sequence, old)?,
            (_, None) => return Ok(false),
            (Ordering::Less, Some(bit)) => self.boundary_before(candidate, bit),
            (Ordering::Greater, Some(bit)) => self.boundary_after(candidate, bit),
        };
        match (order, bit) {
            (Ordering::Less, Some(bit)) => {
                lane.difference = self.lanes[at].lane.difference;
                self.lanes[at].lane.difference = Difference::Bit(bit);
            }
            (Ordering::Greater, Some(bit)) => lane.difference = Difference::Bit(bit),
            _ if at == candidate => {
                let before = &mut self.lanes[at].lane;
                lane.difference = std::mem::replace(&mut before.difference, Difference::Same);
                before.selector |= SELECTOR_STALE;
            }
            _ => {
                lane.difference = Difference::Same;
                lane.selector |= SELECTOR_STALE;
            }
        }
        self.lanes.insert(at, EditLane { lane, new: Some(index) });
        Ok(true)
    }

    fn read<'r>(
        &self,
        lane: usize,
        entries: &'r [NewEntry],
        old: &'r mut PinnedReader,
    ) -> Result<(&'r [u8], SequenceNumber)> {
        let EditLane { lane, new } = &self.lanes[lane];
        if let Some(entry) = new.and_then(|index| entries.get(index)) {
            return Ok((&entry.key, entry.sequence));
        }
        let entry = old.read(usize::from(lane.selector & super::format::SELECTOR_RUN), lane.position)?;
        Ok((entry.key, entry.sequence))
    }

    fn blind_candidate(&self, key: &[u8]) -> usize {
        let mut candidate = 0;
        let mut threshold = u32::MAX;
        for (i, lane) in self.lanes.iter().enumerate().skip(1) {
            let Difference::Bit(bit) = lane.lane.difference else { continue };
            if threshold <= bit {
                continue;
            }
            if key.get(bit as usize / 8).is_some_and(|byte| byte << (bit % 8) & 0x80 != 0) {
                candidate = i;
                threshold = u32::MAX;
            } else {
                threshold = bit;
            }
        }
        candidate
    }

    /// Returns the nearest boundary at or before `from` with a difference at or before `bit`, or
    /// the start.
    fn boundary_before(&self, from: usize, bit: u32) -> usize {
        let is_boundary = |i: &usize| matches!(self.lanes[*i].lane.difference, Difference::Bit(b) if b <= bit);
        (1..=from).rev().find(is_boundary).unwrap_or(0)
    }

    /// Returns the nearest boundary after `from` with a difference at or before `bit`, or the end.
    fn boundary_after(&self, from: usize, bit: u32) -> usize {
        let is_boundary = |i: &usize| matches!(self.lanes[*i].lane.difference, Difference::Bit(b) if b <= bit);
        (from + 1..self.lanes.len()).find(is_boundary).unwrap_or(self.lanes.len())
    }

    fn place_of_version(
        &self,
        newest: usize,
        entries: &[NewEntry],
        sequence: SequenceNumber,
        old: &mut PinnedReader,
    ) -> Result<usize> {
        let mut at = newest + 1;
        while self.lanes.get(at).is_some_and(|lane| lane.lane.difference == Difference::Same)
            && self.read(at, entries, old)?.1 > sequence
        {
            at += 1;
        }
        Ok(at)
    }

    /// Writes segments of about equal size. Versions of a key stay together unless they overflow
    /// one.
    pub(crate) fn write(
        &self,
        separator: Vec<u8>,
        entries: &[NewEntry],
        old: &mut PinnedReader,
        builder: &mut ViewBuilder,
    ) -> Result<()> {
        let lanes: Vec<Lane> = self.lanes.iter().map(|lane| lane.lane).collect();
        let mut anchor = Anchor::Separator(separator);
        let mut from = 0;
        while from < lanes.len() {
            let to = cut(&lanes, from);
            let mut piece = from;
            while piece < to {
                let end = to.min(piece + SEGMENT_LANES);
                builder.writer.write(&lanes[piece..end], &anchor)?;
                anchor = Anchor::Continuation;
                piece = end;
            }
            if to < lanes.len() {
                anchor = Anchor::of(self.read(to, entries, old)?.0, lanes[to].difference);
            }
            from = to;
        }
        Ok(())
    }
}

/// Ends the segment at a new key; larger than a segment only if all entries have one key.
fn cut(lanes: &[Lane], from: usize) -> usize {
    let rest = lanes.len() - from;
    if rest <= SEGMENT_LANES {
        return lanes.len();
    }
    let target = from + rest.div_ceil(rest.div_ceil(SEGMENT_LANES));
    let starts_key = |i: &usize| lanes[*i].difference != Difference::Same;
    (from + 1..=target)
        .rev()
        .find(starts_key)
        .or_else(|| (target + 1..lanes.len()).find(starts_key))
        .unwrap_or(lanes.len())
}
