//! Folds new runs into a view.
//!
//! The new runs' entries are merged in order, the old view's segments streamed in order, in groups
//! (an anchor's segment and its continuations). A group's changes decide its handling:
//!
//! - none: its records are copied with the new runs' cursors; no key is read;
//! - a range tombstone covers all of it and is newer than the old view: copied and marked stale;
//! - few entries: inserted blindly, with one old key read each (see [`super::edit`]);
//! - many entries, unknown differences, or an end of a range tombstone: its old keys are read and
//!   merged.
//!
//! Reading single keys costs far more than an ordered merge. So the whole view is merged if new
//! entries fall into many groups, or if segments are or would be left half empty. The merge
//! compares each old key once, with the next new key.
//!
//! INVARIANT: the result equals a view built from the runs: same entries, order and marks.

use super::build::{Bounds, Covering, KeyMerge, MergedEntry, build_view, start_positions};
use super::builder::ViewBuilder;
use super::edit::{EditLane, Group, NewEntry, PinnedReader};
use super::format::{BASE_BISECT, Difference, Lane, SEGMENT_LANES, SELECTOR_EMPTY, SELECTOR_STALE, Segment, ViewMeta};
use super::reader::View;
use super::scan::{SegmentStream, ViewScan};
use super::writer::Anchor;
use crate::base::{EntryRef, Error, FileId, FileNumber, RangeTombstone, RangeTombstoneSet, Result, SequenceNumber};
use crate::table::{KeyScan, Position, Run, TableContext};
use std::{cmp::Ordering, collections::VecDeque, path::Path, sync::Arc};

/// Up to one new entry per 20 old ones counts as few.
const OLD_PER_NEW: u64 = 20;
/// Touched groups, as a part of all, up to which more new entries count as few: one in four.
const GROUPS_PER_TOUCHED: u64 = 4;
/// Maximum entries of an edited group; larger ones are merged, since each insert walks the group.
const EDITED_LANES_MAX: usize = 8 * SEGMENT_LANES;
/// Minimum average entries of a segment; below it the view is repacked. See [`least_fill`].
const LEAST_FILL: u64 = 24;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoldStats {
    pub new_entries: u64,
    /// Groups edited or merged rather than copied.
    pub touched_groups: u64,
    pub key_reads: u64,
    pub is_merged: bool,
    pub is_rebuilt: bool,
}

/// Writes the view file `path`, which must not exist: `old` plus the entries of `new_runs` within
/// `bounds`.
#[expect(
    clippy::too_many_arguments,
    reason = "a file, an old view, new runs: nothing to group that would be told apart"
)]
pub fn fold_view(
    ctx: &TableContext,
    path: &Path,
    number: FileNumber,
    file_id: FileId,
    old: &Arc<View>,
    old_runs: &[Arc<Run>],
    new_runs: &[Arc<Run>],
    bounds: &Bounds,
) -> Result<(ViewMeta, FoldStats)> {
    assert_eq!(old_runs.len(), old.layout.run_count, "the old runs are the old view's");
    let runs = [old_runs, new_runs].concat();
    if old.directory.segments() == 0 || !is_within(old, old_runs, bounds)? {
        let meta = build_view(ctx, path, number, file_id, &runs, bounds)?;
        return Ok((meta, FoldStats { is_rebuilt: true, ..FoldStats::default() }));
    }
    let new_positions = start_positions(ctx, new_runs, bounds)?;
    let is_merged = is_better_merged(ctx, old, new_runs, &new_positions, bounds)?;
    let first = first_positions(old)?;
    let positions = [first.as_slice(), &new_positions].concat();
    let fold = Fold {
        builder: ViewBuilder::new(ctx, path, number, file_id, &runs, &positions)?,
        new: NewEntries {
            queue: VecDeque::new(),
            merge: KeyMerge::new(new_runs, &new_positions, bounds.clone())?,
            covering: Covering::new(&runs),
            first_run: old_runs.len(),
            taken: 0,
        },
        covering_new: Covering::new(new_runs),
        keys: PinnedReader::new(old_runs),
        stats: FoldStats { is_merged, ..FoldStats::default() },
        old,
        old_runs,
    };
    if is_merged { fold.merge(&first) } else { fold.edit(&range_deletes(new_runs)) }
}

/// True if the old view is within the bounds; false only after a split.
fn is_within(old: &Arc<View>, runs: &[Arc<Run>], bounds: &Bounds) -> Result<bool> {
    let guard = crossbeam_epoch::pin();
    let last = old.directory.segments() - 1;
    let segment = old.segment(0, &guard)?;
    if old.entry(runs, 0, &segment, 0, &guard)?.key < bounds.start.as_slice() {
        return Ok(false);
    }
    let segment = old.segment(last, &guard)?;
    Ok(bounds.ends_after(old.entry(runs, last, &segment, segment.count() - 1, &guard)?.key))
}

fn first_positions(old: &Arc<View>) -> Result<Vec<Position>> {
    let guard = crossbeam_epoch::pin();
    let segment = old.segment(0, &guard)?;
    let cursor = |run| segment.cursor(run).ok_or_else(|| old.corrupt_segment(0, "a cursor is missing"));
    (0..old.layout.run_count).map(cursor).collect()
}

fn is_better_merged(
    ctx: &TableContext,
    old: &Arc<View>,
    new_runs: &[Arc<Run>],
    positions: &[Position],
    bounds: &Bounds,
) -> Result<bool> {
    let meta = old.meta();
    let mut new_entries = 0;
    for run in new_runs {
        new_entries += entries_within(ctx, run, bounds)?;
    }
    if meta.segments > 16 && meta.entries < least_fill(meta) * u64::from(meta.segments) {
        return Ok(true);
    }
    let anchors = &old.directory.anchors;
    let most = if new_entries * OLD_PER_NEW > meta.entries {
        anchors.len() as u64 / GROUPS_PER_TOUCHED
    } else if stays_filled(meta, new_entries) {
        return Ok(false);
    } else {
        (meta.entries / least_fill(meta)).saturating_sub(u64::from(meta.segments))
    };
    // Many new entries can fall into few groups, as with keys that grow with time.
    let (mut touched, mut next_anchor) = (0, 0);
    let mut merge = KeyMerge::new(new_runs, positions, bounds.clone())?;
    while let Some(entry) = merge.peek() {
        if next_anchor < anchors.len() && anchors.compare(next_anchor, entry.key).is_le() {
            touched += 1;
            next_anchor = anchors.find(entry.key) + 1;
            if touched > most {
                return Ok(true);
            }
        }
        merge.next()?;
    }
    Ok(false)
}

/// Minimum average entries of a segment. Lower with many versions, which stay together.
fn least_fill(meta: &ViewMeta) -> u64 {
    let keys = meta.entries.saturating_sub(meta.stale).max(1);
    LEAST_FILL - (2 * meta.stale / keys).min(LEAST_FILL - 8)
}

/// Returns true if segments keep [`least_fill`] entries after `new_entries` scattered inserts and
/// their splits.
fn stays_filled(meta: &ViewMeta, new_entries: u64) -> bool {
    let (segments, entries) = (f64::from(meta.segments), meta.entries as f64);
    let (room, mean) = (SEGMENT_LANES as f64 - entries / segments, new_entries as f64 / segments);
    // Share of segments without overflow, by the Poisson distribution.
    let (mut share, mut fitting, mut count) = ((-mean).exp(), 0.0, 0.0);
    while count <= room {
        fitting += share;
        count += 1.0;
        share *= mean / count;
    }
    entries + new_entries as f64 >= least_fill(meta) as f64 * segments * (2.0 - fitting)
}

fn entries_within(ctx: &TableContext, run: &Arc<Run>, bounds: &Bounds) -> Result<u64> {
    let meta = run.meta();
    if meta.view_bytes == 0 || (bounds.start <= meta.smallest && bounds.ends_after(&meta.largest)) {
        return Ok(meta.entries);
    }
    let view = View::open_embedded(ctx, run)?;
    let end = match &bounds.end {
        Some(end) => view.rank(&[], end)?,
        None => meta.entries,
    };
    Ok(end.saturating_sub(view.rank(&[], &bounds.start)?))
}

type RangeDelete = (Vec<u8>, Vec<u8>, SequenceNumber);

fn range_deletes(runs: &[Arc<Run>]) -> Vec<RangeDelete> {
    let all: Vec<RangeTombstone> = runs.iter().flat_map(|run| run.range_tombstones().iter().cloned()).collect();
    let mut borders: Vec<Vec<u8>> = all.iter().flat_map(|t| [t.start.clone(), t.end.clone()]).collect();
    borders.sort();
    borders.dedup();
    let set = RangeTombstoneSet::new(all);
    let fragment = |pair: &[Vec<u8>]| {
        let newest = *set.covering(&pair[0]).first()?;
        Some((pair[0].clone(), pair[1].clone(), newest))
    };
    borders.windows(2).filter_map(fragment).collect()
}

struct NewEntries<'a> {
    queue: VecDeque<NewEntry>,
    merge: KeyMerge,
    covering: Covering<'a>,
    first_run: usize,
    taken: u64,
}

impl NewEntries<'_> {
    fn peek(&self) -> Option<(MergedEntry<'_>, bool)> {
        if let Some(entry) = self.queue.front() {
            let NewEntry { key, sequence, kind, run, position, is_covered } = entry;
            let (run, sequence, kind, position) = (usize::from(*run), *sequence, *kind, *position);
            return Some((MergedEntry { key, sequence, kind, run, position }, *is_covered));
        }
        let mut entry = self.merge.peek()?;
        entry.run += self.first_run;
        Some((entry, self.covering.deletes(entry.key, entry.sequence)))
    }

    fn next(&mut self) -> Result<()> {
        self.taken += 1;
        if self.queue.pop_front().is_none() {
            self.merge.next()?;
        }
        Ok(())
    }

    fn take(&mut self, most: usize, is_wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<NewEntry>> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some((entry, is_covered)) = self.peek()
            && is_wanted(entry.key)
        {
            let MergedEntry { key, sequence, kind, run, position } = entry;
            taken.push(NewEntry { key: key.to_vec(), sequence, kind, run: run as u8, position, is_covered });
            self.next()?;
        }
        Ok(taken)
    }

    fn put_back(&mut self, entries: Vec<NewEntry>) {
        self.taken -= entries.len() as u64;
        for entry in entries.into_iter().rev() {
            self.queue.push_front(entry);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Deletion {
    None,
    Whole,
    Partial,
}

struct Fold<'a> {
    old: &'a Arc<View>,
    old_runs: &'a [Arc<Run>],
    builder: ViewBuilder,
    new: NewEntries<'a>,
    covering_new: Covering<'a>,
    keys: PinnedReader,
    stats: FoldStats,
}

impl Fold<'_> {
    fn merge(mut self, first: &[Position]) -> Result<(ViewMeta, FoldStats)> {
        let mut scan = ViewScan::new(self.old.clone(), self.old_runs);
        let mut keys: Vec<KeyScan> = self.old_runs.iter().zip(first).map(|(run, &at)| run.keys(at)).collect();
        while let Some(entry) = scan.next()? {
            let index = usize::from(entry.run);
            let scan = &mut keys[index];
            if !scan.next()? || scan.position() != entry.position {
                return Err(self.old.corrupt_segment(0, "its entries do not follow each other in their runs"));
            }
            let EntryRef { key, sequence, kind, .. } = scan.entry();
            push_new_before(&mut self.new, &mut self.builder, Some((key, sequence)), |_| true)?;
            let stale = entry.stale || self.covering_new.deletes(key, sequence);
            self.builder.push(key, sequence, entry.run, entry.position, kind, stale)?;
        }
        push_new_before(&mut self.new, &mut self.builder, None, |_| true)?;
        self.finish()
    }

    fn edit(mut self, deletes: &[RangeDelete]) -> Result<(ViewMeta, FoldStats)> {
        let mut deletes = deletes;
        let mut stream = SegmentStream::new(self.old.clone());
        let mut anchor = 0;
        let mut number = stream.next()?;
        while let Some(first) = number {
            let has_new = self.new.peek().is_some_and(|(entry, _)| self.is_in_group(anchor, entry.key));
            let deletion = self.deletion(anchor, &mut deletes);
            if !has_new && deletion != Deletion::Partial {
                number = self.copy_group(&mut stream, anchor, first, deletion)?;
            } else {
                self.stats.touched_groups += 1;
                number = self.change_group(&mut stream, anchor, first, deletion)?;
            }
            anchor += 1;
        }
        self.finish()
    }

    fn finish(mut self) -> Result<(ViewMeta, FoldStats)> {
        self.stats.new_entries = self.new.taken;
        self.stats.key_reads = self.keys.reads;
        Ok((self.builder.finish()?, self.stats))
    }

    fn is_in_group(&self, anchor: usize, key: &[u8]) -> bool {
        let anchors = &self.old.directory.anchors;
        anchor + 1 >= anchors.len() || anchors.compare(anchor + 1, key).is_gt()
    }

    /// Returns the effect of deletes on a group; drops deletes before it.
    fn deletion(&self, anchor: usize, deletes: &mut &[RangeDelete]) -> Deletion {
        let anchors = &self.old.directory.anchors;
        while let Some(((_, end, _), later)) = deletes.split_first()
            && anchors.compare(anchor, end).is_ge()
        {
            *deletes = later;
        }
        let Some((start, end, newest)) = deletes.first() else {
            return Deletion::None;
        };
        let is_last = anchor + 1 >= anchors.len();
        if !is_last && anchors.compare(anchor + 1, start).is_le() {
            return Deletion::None;
        }
        let is_whole = !is_last
            && anchors.compare(anchor, start).is_ge()
            && anchors.compare(anchor + 1, end).is_le()
            && *newest > self.old.meta().max_sequence;
        if is_whole { Deletion::Whole } else { Deletion::Partial }
    }

    fn copy_group(
        &mut self,
        stream: &mut SegmentStream,
        anchor: usize,
        first: u32,
        deletion: Deletion,
    ) -> Result<Option<u32>> {
        let mut number = first;
        let mut anchor = Anchor::Separator(self.old.directory.anchors.separator(anchor));
        loop {
            let record = stream.record();
            if deletion == Deletion::Whole {
                for selector in &mut record[..SEGMENT_LANES] {
                    if *selector != SELECTOR_EMPTY {
                        *selector |= SELECTOR_STALE;
                    }
                }
            }
            let count = self.old.directory.count(number);
            self.builder.writer.copy(record, count, self.old_runs.len(), &anchor)?;
            anchor = Anchor::Continuation;
            match stream.next()? {
                Some(next) if self.old.directory.is_continuation(next) => number = next,
                after => return Ok(after),
            }
        }
    }

    /// Inserts new entries or marks deleted ones. Returns the next segment.
    fn change_group(
        &mut self,
        stream: &mut SegmentStream,
        anchor: usize,
        first: u32,
        deletion: Deletion,
    ) -> Result<Option<u32>> {
        let mut group = Group::default();
        let mut number = first;
        let cursors: Vec<Position> = {
            let segment = stream.segment()?;
            (0..self.old_runs.len()).filter_map(|run| segment.cursor(run)).collect()
        };
        let after = loop {
            take_apart(self.old, self.old_runs, number, &stream.segment()?, &mut group)?;
            match stream.next()? {
                Some(next) if self.old.directory.is_continuation(next) => number = next,
                after => break after,
            }
        };
        let separator = self.old.directory.anchors.separator(anchor);
        self.builder.writer.set_positions(cursors.into_iter());
        if deletion != Deletion::Partial
            && !group.is_ambiguous
            && self.edit_group(anchor, &separator, &group, deletion)?
        {
            return Ok(after);
        }
        self.merge_group(anchor, first, separator, &group)?;
        Ok(after)
    }

    /// Inserts blindly. On false nothing was written: too many entries, or a difference cannot be
    /// stored.
    fn edit_group(&mut self, anchor: usize, separator: &[u8], group: &Group, deletion: Deletion) -> Result<bool> {
        if group.lanes.len() > EDITED_LANES_MAX {
            return Ok(false);
        }
        let old = self.old;
        let anchors = &old.directory.anchors;
        let is_wanted = |key: &[u8]| anchor + 1 >= anchors.len() || anchors.compare(anchor + 1, key).is_gt();
        let entries = self.new.take(group.lanes.len() / 2 + 2, is_wanted)?;
        let has_more = self.new.peek().is_some_and(|(entry, _)| is_wanted(entry.key));
        if !has_more {
            let mut edited = Group { lanes: group.lanes.clone(), is_ambiguous: false };
            if deletion == Deletion::Whole {
                edited.lanes.iter_mut().for_each(|lane| lane.lane.selector |= SELECTOR_STALE);
            }
            if edited.insert_all(&entries, &mut self.keys)? {
                edited.write(separator.to_vec(), &entries, &mut self.keys, &mut self.builder)?;
                return Ok(true);
            }
        }
        self.new.put_back(entries);
        Ok(false)
    }

    fn merge_group(&mut self, anchor: usize, first: u32, separator: Vec<u8>, group: &Group) -> Result<()> {
        self.builder.start_group(separator)?;
        let old = self.old;
        let anchors = &old.directory.anchors;
        let is_wanted = |key: &[u8]| anchor + 1 >= anchors.len() || anchors.compare(anchor + 1, key).is_gt();
        for EditLane { lane, .. } in &group.lanes {
            let run = lane.selector & super::format::SELECTOR_RUN;
            let entry = self.keys.read(usize::from(run), lane.position)?;
            let at = Some((entry.key, entry.sequence));
            push_new_before(&mut self.new, &mut self.builder, at, is_wanted)?;
            let stale = lane.selector & SELECTOR_STALE != 0 || self.covering_new.deletes(entry.key, entry.sequence);
            if !is_wanted(entry.key) {
                return Err(self.old.corrupt_segment(first, "it holds a key of the segment after it"));
            }
            self.builder.push(entry.key, entry.sequence, run, lane.position, entry.kind, stale)?;
        }
        push_new_before(&mut self.new, &mut self.builder, None, is_wanted)?;
        self.builder.flush()
    }
}

fn push_new_before(
    new: &mut NewEntries<'_>,
    builder: &mut ViewBuilder,
    old: Option<(&[u8], SequenceNumber)>,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Result<()> {
    while let Some((entry, is_covered)) = new.peek() {
        let order = match old {
            Some((key, sequence)) => entry.key.cmp(key).then_with(|| sequence.cmp(&entry.sequence)),
            None => Ordering::Less,
        };
        if order != Ordering::Less || !is_wanted(entry.key) {
            break;
        }
        builder.push(entry.key, entry.sequence, entry.run as u8, entry.position, entry.kind, is_covered)?;
        new.next()?;
    }
    Ok(())
}

fn take_apart(old: &View, runs: &[Arc<Run>], number: u32, segment: &Segment<'_>, group: &mut Group) -> Result<()> {
    let outside = || -> Error { old.corrupt_segment(number, "an entry lies outside of its run") };
    let mut positions: Vec<Position> = (0..runs.len()).filter_map(|run| segment.cursor(run)).collect();
    let is_continuation = old.directory.is_continuation(number);
    let same_key = segment.same_key() | u32::from(is_continuation);
    group.is_ambiguous |= segment.base() == BASE_BISECT && segment.count() > 1;
    for index in 0..segment.count() {
        let run = segment.run(index);
        let position = positions.get_mut(run).ok_or_else(outside)?;
        if position.slot >= runs[run].block_entries(position.block) {
            return Err(outside());
        }
        let difference = match same_key & 1 << index {
            0 if index == 0 || segment.base() == BASE_BISECT => Difference::Untold,
            0 => Difference::Bit(8 * u32::from(segment.base()) + u32::from(segment.differences()[index])),
            _ => Difference::Same,
        };
        let lane = Lane { selector: segment.selector(index), tag: segment.tag(index), difference, position: *position };
        group.lanes.push(EditLane { lane, new: None });
        *position = runs[run].advance(*position, 1);
    }
    Ok(())
}
