//! Folds and merges of one partition. Each returns its new contents; unindexed runs that a flush
//! adds meanwhile stay.

use super::{
    JobContext, MergeScan, Sieve, VersionFilter,
    flush::{clip, clipped_tombstones},
    output::RunOutput,
    prefix::{Prefix, rest_of},
};
use crate::{
    base::{EntryKind, EntryRef, Error, FileNumber, RangeTombstone, RangeTombstoneSet, Result, SequenceNumber, limits},
    table::{Position, Run, RunMeta},
    version::{FileSet, Partition, RunHandle},
    view::{Bounds, ViewMeta, build_view, fold_view},
};
use std::{collections::BTreeSet, sync::Arc};

const ROWS_PER_CHECK: u64 = 4096;

#[derive(Clone, Debug, Default)]
pub struct MergePart {
    pub start: Vec<u8>,
    pub end: Option<Vec<u8>>,
    /// In key order.
    pub written: Vec<RunMeta>,
    /// By selector of the view.
    pub runs: Vec<FileNumber>,
    pub view: Option<ViewMeta>,
    /// Oldest first.
    pub loose: Vec<FileNumber>,
}

#[derive(Clone, Debug, Default)]
pub struct MergeOutput {
    pub parts: Vec<MergePart>,
    pub consumed: BTreeSet<FileNumber>,
    pub folded: BTreeSet<FileNumber>,
}

fn whole(partition: &Partition) -> MergePart {
    MergePart { start: partition.layout.start.clone(), end: partition.layout.end.clone(), ..Default::default() }
}

fn runs_of(handles: &[Arc<RunHandle>]) -> Vec<Arc<Run>> {
    handles.iter().map(|h| Arc::clone(h.run())).collect()
}

fn numbers(runs: &[Arc<Run>]) -> Vec<FileNumber> {
    runs.iter().map(|r| r.meta().number).collect()
}

/// Adds the unindexed runs to the view; without one, to the view in the oldest run.
pub fn fold(context: &JobContext<'_>, partition: &Partition) -> Result<MergeOutput> {
    let bounds = partition.bounds();
    let loose = partition.loose_runs();
    let (number, path) = context.new_view();
    let id = (context.new_file_id)();
    let (meta, runs) = if let Some(view) = &partition.view {
        let new = runs_of(&loose);
        let (meta, _) = fold_view(context.table, &path, number, id, view, &partition.view_runs, &new, &bounds)?;
        (meta, partition.view_runs.iter().cloned().chain(new).collect::<Vec<_>>())
    } else if let Some((base, newer)) = loose.split_first()
        && partition.runs.is_empty()
        && is_inside(base.run().meta(), &bounds)
    {
        let new = runs_of(newer);
        let (meta, _) = fold_view(context.table, &path, number, id, base.view()?, base.alone(), &new, &bounds)?;
        (meta, runs_of(&loose))
    } else {
        let runs: Vec<Arc<Run>> = partition.all_runs().map(|h| Arc::clone(h.run())).collect();
        (build_view(context.table, &path, number, id, &runs, &bounds)?, runs)
    };
    let part = MergePart { runs: numbers(&runs), view: Some(meta), ..whole(partition) };
    let folded = loose.iter().map(|h| h.run().meta().number).collect();
    Ok(MergeOutput { parts: vec![part], folded, ..Default::default() })
}

pub fn rebuild(context: &JobContext<'_>, partition: &Partition) -> Result<MergeOutput> {
    let (number, path) = context.new_view();
    let runs = runs_of(&partition.runs);
    let meta = build_view(context.table, &path, number, (context.new_file_id)(), &runs, &partition.bounds())?;
    let part = MergePart { runs: numbers(&runs), view: Some(meta), ..whole(partition) };
    Ok(MergeOutput { parts: vec![part], ..Default::default() })
}

/// Cuts a partition at a key without rewriting entries. Both sides read a run that overlaps both;
/// their views are rebuilt later.
pub fn cut(context: &JobContext<'_>, partition: &Partition, at: &[u8]) -> Result<MergeOutput> {
    assert!(partition.layout.start.as_slice() < at && partition.bounds().ends_after(at), "a cut lies inside");
    let lies_over = |handle: &Arc<RunHandle>| {
        let meta = handle.run().meta();
        meta.smallest.as_slice() < at && at <= meta.largest.as_slice()
    };
    if partition.all_runs().any(lies_over) {
        return Ok(MergeOutput { parts: super::prefix::sides_of(partition, at), ..Default::default() });
    }
    let Bounds { start, end } = partition.bounds();
    let sides = [Bounds { start, end: Some(at.to_vec()) }, Bounds { start: at.to_vec(), end }];
    let loose = partition.loose_runs();
    let mut parts = Vec::new();
    for (side, bounds) in sides.into_iter().enumerate() {
        let is_here = |handle: &&Arc<RunHandle>| (handle.run().meta().smallest.as_slice() < at) == (side == 0);
        let of_view: Vec<_> = partition.runs.iter().filter(is_here).cloned().collect();
        let mut part = MergePart { start: bounds.start.clone(), end: bounds.end.clone(), ..Default::default() };
        let loose = loose.iter().filter(is_here).cloned().collect::<Vec<_>>();
        match of_view.as_slice() {
            [] => {}
            // A single run uses the view in its file.
            [only] => part.loose = vec![only.run().meta().number],
            all if all.len() == partition.runs.len() => {
                part.view.clone_from(&partition.layout.view);
                part.runs = numbers(&runs_of(all));
            }
            some => {
                let (number, path) = context.new_view();
                let runs = runs_of(some);
                part.view = Some(build_view(context.table, &path, number, (context.new_file_id)(), &runs, &bounds)?);
                part.runs = numbers(&runs);
            }
        }
        part.loose.extend(numbers(&runs_of(&loose)));
        parts.push(part);
    }
    Ok(MergeOutput { parts, ..Default::default() })
}

fn is_inside(meta: &RunMeta, bounds: &Bounds) -> bool {
    bounds.start <= meta.smallest && bounds.end.as_ref().is_none_or(|end| meta.largest < *end)
}

fn first_position(handle: &RunHandle, bounds: &Bounds) -> Result<Position> {
    if bounds.start <= handle.run().meta().smallest {
        return Ok(Position::default());
    }
    // By position: an entry under a newer range tombstone may be visible to a snapshot.
    handle.view()?.position_of(handle.run(), &bounds.start, &crossbeam_epoch::pin())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    View,
    /// One input, or the newest unindexed runs. The output is unindexed.
    Loose,
    /// New partitions of about this many bytes, from all runs.
    Parts(u64),
    /// A new partition of at least `bytes` from the first keys of all runs. It ends where the runs
    /// that it replaces free as much space as it takes; other keys stay in the old runs.
    Prefix {
        bytes: u64,
        /// Read by other partitions too: dropping them frees no space.
        shared: &'a BTreeSet<FileNumber>,
    },
}

pub fn merge(
    context: &JobContext<'_>,
    partition: &Partition,
    inputs: &[FileNumber],
    target: Target<'_>,
) -> Result<MergeOutput> {
    let mut chosen: BTreeSet<FileNumber> = inputs.iter().copied().collect();
    let (merged, kept): (Vec<Arc<RunHandle>>, Vec<Arc<RunHandle>>) =
        partition.all_runs().cloned().partition(|h| chosen.contains(&h.run().meta().number));
    let mut merger = Merger::new(context, partition, &merged, runs_of(&kept))?;
    let split_bytes = if let Target::Parts(bytes) = target { Some(bytes) } else { None };
    if let Target::Prefix { bytes, shared } = target {
        merger.prefix = Some(Prefix::new(bytes, partition, &merged, shared));
    } else if split_bytes.is_none() {
        merger.output = RunOutput::new(context).whole();
    }
    if target == Target::Loose {
        merger.output = merger.output.standing_apart();
    }
    merger.run(split_bytes)?;
    let gone = merger.prefix.as_mut().and_then(Prefix::take_gone);
    let (mut parts, dropped) = merger.finish(gone.is_some())?;
    tracing::debug!(partition = partition.id, inputs = merged.len(), parts = parts.len(), dropped, "merged runs");
    let mut folded = BTreeSet::new();
    for part in &mut parts {
        if target == Target::Loose {
            stay_loose(partition, &kept, part);
        } else if kept.is_empty() && part.written.len() <= limits::MAX_LOOSE_RUNS {
            // A single run uses the view in its file.
            part.loose = part.written.iter().map(|m| m.number).collect();
        } else {
            braid(context, partition, part, &kept)?;
            folded = kept.iter().map(|h| h.run().meta().number).filter(|n| is_loose(partition, n)).collect();
        }
    }
    if let Some(gone) = gone {
        let start = parts.last().and_then(|part| part.end.clone()).unwrap_or_default();
        parts.push(rest_of(partition, start, &gone));
        chosen = gone;
    }
    Ok(MergeOutput { parts, consumed: chosen, folded })
}

fn is_loose(partition: &Partition, number: &FileNumber) -> bool {
    partition.layout.loose.contains(number)
}

/// Puts the written runs in the place of the newest input. A view over an input is dropped.
fn stay_loose(partition: &Partition, kept: &[Arc<RunHandle>], part: &mut MergePart) {
    let layout = &partition.layout;
    let kept: BTreeSet<FileNumber> = kept.iter().map(|h| h.run().meta().number).collect();
    let keep = |numbers: &[FileNumber]| numbers.iter().copied().filter(|n| kept.contains(n)).collect::<Vec<_>>();
    let newest_input = layout.loose.iter().rposition(|n| !kept.contains(n)).unwrap_or(0);
    let (older, newer) = layout.loose.split_at(newest_input);
    part.loose = keep(older);
    part.loose.extend(part.written.iter().map(|m| m.number));
    part.loose.extend(keep(newer));
    part.runs = keep(&layout.runs);
    part.view = layout.view.clone().filter(|_| part.runs.len() == layout.runs.len());
}

/// Folds the written runs into the view of the kept ones, or makes a new view.
fn braid(context: &JobContext<'_>, partition: &Partition, part: &mut MergePart, kept: &[Arc<RunHandle>]) -> Result<()> {
    let mut written = Vec::with_capacity(part.written.len());
    for meta in &part.written {
        written.push(Run::open(context.table, &FileSet::run_path(&context.dir, meta.number), meta)?);
    }
    let bounds = Bounds { start: part.start.clone(), end: part.end.clone() };
    let old = match (&partition.view, kept) {
        (Some(view), kept) if numbers(&runs_of(kept)) == partition.layout.runs => Some(view),
        (None, [base]) if is_inside(base.run().meta(), &bounds) => Some(base.view()?),
        _ => None,
    };
    let (number, path) = context.new_view();
    let (id, kept) = ((context.new_file_id)(), runs_of(kept));
    let runs = [kept.as_slice(), &written].concat();
    let meta = match old {
        Some(old) => fold_view(context.table, &path, number, id, old, &kept, &written, &bounds)?.0,
        None => build_view(context.table, &path, number, id, &runs, &bounds)?,
    };
    part.view = Some(meta);
    part.runs = numbers(&runs);
    Ok(())
}

struct Merger<'a> {
    context: &'a JobContext<'a>,
    partition: &'a Partition,
    scan: MergeScan,
    others: Vec<Arc<Run>>,
    tombstones: Arc<RangeTombstoneSet>,
    written_tombstones: Vec<RangeTombstone>,
    parts: Vec<MergePart>,
    start: Vec<u8>,
    output: RunOutput<'a>,
    dropped: u64,
    prefix: Option<Prefix>,
}

impl<'a> Merger<'a> {
    fn new(
        context: &'a JobContext<'a>,
        partition: &'a Partition,
        merged: &[Arc<RunHandle>],
        others: Vec<Arc<Run>>,
    ) -> Result<Merger<'a>> {
        let bounds = partition.bounds();
        let mut scans = Vec::with_capacity(merged.len());
        for handle in merged {
            scans.push(handle.run().scan(first_position(handle, &bounds)?));
        }
        let sets: Vec<_> = merged.iter().map(|h| Arc::clone(h.run().range_tombstones())).collect();
        // Drop range tombstones that all snapshots see if no unmerged run has older entries.
        let oldest_snapshot = context.strata.first().copied().unwrap_or(0);
        let needed = |t: &RangeTombstone| {
            t.sequence > oldest_snapshot || others.iter().any(|run| run.meta().min_sequence < t.sequence)
        };
        let written_tombstones = clipped_tombstones(&sets, partition).into_iter().filter(needed).collect();
        Ok(Merger {
            context,
            partition,
            scan: MergeScan::new(scans),
            others,
            tombstones: partition.tombstones.clone().unwrap_or_default(),
            written_tombstones,
            parts: Vec::new(),
            start: partition.layout.start.clone(),
            output: RunOutput::new(context),
            dropped: 0,
            prefix: None,
        })
    }

    fn run(&mut self, split_bytes: Option<u64>) -> Result<()> {
        if split_bytes.is_none() && self.prefix.is_none() {
            // A single part has known bounds, so its tombstones can precede their entries.
            for tombstone in std::mem::take(&mut self.written_tombstones) {
                self.output.add_range_tombstone(tombstone);
            }
        }
        let tombstones = Arc::clone(&self.tombstones);
        let context = self.context;
        let mut sieve = Sieve::new(VersionFilter::new(&context.strata, &tombstones), context.functions);
        let mut rows = 0;
        let mut cutter = Cutter { split_bytes, last_key: Vec::new() };
        while self.scan.advance()? {
            rows += 1;
            if rows % ROWS_PER_CHECK == 0 && (self.context.cancelled)() {
                return Err(Error::Closed);
            }
            let entry = self.scan.entry();
            if self.partition.layout.end.as_deref().is_some_and(|end| entry.key >= end) {
                break;
            }
            if sieve.holds_other_than(entry.key) {
                self.add_held(&mut sieve, &mut cutter)?;
            }
            if self.prefix.is_some() && self.ends_prefix() {
                let key = self.scan.entry().key.to_vec();
                self.dropped = sieve.dropped();
                return self.finish_part(Some(key));
            }
            let entry = context.judged(self.scan.entry());
            let is_tombstone = entry.kind == EntryKind::Tombstone;
            if self.judge(&mut sieve, &entry) {
                self.add_scanned(&mut cutter, is_tombstone)?;
            }
        }
        self.add_held(&mut sieve, &mut cutter)?;
        self.dropped = sieve.dropped();
        Ok(())
    }

    /// All versions of smaller keys are written by then.
    #[cold]
    fn ends_prefix(&mut self) -> bool {
        let Merger { prefix: Some(prefix), scan, output, partition, .. } = self else { return false };
        prefix.ends_before(scan.entry().key, output, |input| scan.is_left(input, partition.layout.end.as_deref()))
    }

    #[inline]
    fn judge(&self, sieve: &mut Sieve<'_>, entry: &EntryRef<'_>) -> bool {
        let others = &self.others;
        sieve.judge(entry, |after, before| others.iter().any(|run| has_between(run, entry.key, after, before)))
    }

    fn add_held(&mut self, sieve: &mut Sieve<'_>, cutter: &mut Cutter) -> Result<()> {
        for held in sieve.finish(|key, sequence| self.is_bottom(key, sequence)) {
            let entry = held.entry();
            if cutter.cuts_before(&self.output, entry.key) {
                self.finish_part(Some(entry.key.to_vec()))?;
            }
            self.output.add(&entry, self.is_droppable(&entry))?;
            cutter.note(entry.key);
        }
        Ok(())
    }

    #[inline]
    fn is_droppable(&self, entry: &EntryRef<'_>) -> bool {
        entry.kind == EntryKind::Tombstone
            && entry.sequence <= self.context.strata[0]
            && self.is_bottom(entry.key, entry.sequence)
    }

    /// Returns true if no unmerged run has an older version of `key`.
    fn is_bottom(&self, key: &[u8], sequence: SequenceNumber) -> bool {
        !self.others.iter().any(|run| {
            let meta = run.meta();
            meta.min_sequence < sequence && meta.smallest.as_slice() <= key && key <= meta.largest.as_slice()
        })
    }

    fn add_scanned(&mut self, cutter: &mut Cutter, is_tombstone: bool) -> Result<()> {
        if cutter.split_bytes.is_some() && cutter.cuts_before(&self.output, self.scan.entry().key) {
            let key = self.scan.entry().key.to_vec();
            self.finish_part(Some(key))?;
        }
        let mut entry = self.scan.entry();
        if is_tombstone {
            entry = EntryRef { kind: EntryKind::Tombstone, value: &[], ..entry };
        }
        let droppable = self.is_droppable(&entry);
        self.output.add(&entry, droppable)?;
        cutter.note(entry.key);
        Ok(())
    }

    fn finish_part(&mut self, end: Option<Vec<u8>>) -> Result<()> {
        let mut output = std::mem::replace(&mut self.output, RunOutput::new(self.context));
        let last = end.is_none();
        let end = end.or_else(|| self.partition.layout.end.clone());
        let start = std::mem::replace(&mut self.start, end.clone().unwrap_or_default());
        let bounds = Bounds { start, end };
        for tombstone in &self.written_tombstones {
            if let Some(clipped) = clip(tombstone, &bounds) {
                output.add_range_tombstone(clipped);
            }
        }
        let written = output.finish()?;
        debug_assert!(!last || bounds.end == self.partition.layout.end);
        self.parts.push(MergePart { start: bounds.start, end: bounds.end, written, ..Default::default() });
        Ok(())
    }

    /// Returns also the number of dropped versions. A prefix has its only part already.
    fn finish(mut self, is_prefix: bool) -> Result<(Vec<MergePart>, u64)> {
        if !is_prefix {
            self.finish_part(None)?;
        }
        Ok((self.parts, self.dropped))
    }
}

/// Returns true if a run may have a version of a key between two commits.
fn has_between(run: &Run, key: &[u8], after: SequenceNumber, before: SequenceNumber) -> bool {
    let meta = run.meta();
    meta.min_sequence < before
        && meta.max_sequence > after
        && meta.smallest.as_slice() <= key
        && key <= meta.largest.as_slice()
}

struct Cutter {
    split_bytes: Option<u64>,
    last_key: Vec<u8>,
}

impl Cutter {
    #[inline]
    fn cuts_before(&self, output: &RunOutput<'_>, key: &[u8]) -> bool {
        self.split_bytes.is_some_and(|bytes| self.last_key != key && is_cut_here(output, bytes, &self.last_key, key))
    }

    #[inline]
    fn note(&mut self, key: &[u8]) {
        if self.split_bytes.is_some() {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
    }
}

/// Cuts where a part is full, or three quarters full and a tree ends.
fn is_cut_here(output: &RunOutput<'_>, split_bytes: u64, last_key: &[u8], key: &[u8]) -> bool {
    if output.open_bytes() == 0 || last_key.is_empty() {
        return false;
    }
    let tree_ends = last_key.get(..4) != key.get(..4);
    output.fills_part(split_bytes) || (tree_ends && output.fills_part(split_bytes / 4 * 3))
}

/// Runs to drop unread: fully deleted by range tombstones, or fully expired.
pub fn droppable_runs(
    partition: &Partition,
    oldest_snapshot: SequenceNumber,
    expired_by_us: u64,
) -> BTreeSet<FileNumber> {
    let mut dropped = deleted_runs(partition, oldest_snapshot);
    dropped.extend(expired_runs(partition, expired_by_us));
    dropped
}

/// An expired entry still hides older versions: a run above possibly older data is left to a merge.
fn expired_runs(partition: &Partition, expired_by_us: u64) -> impl Iterator<Item = FileNumber> + '_ {
    let hides = |meta: &RunMeta, other: &RunMeta| {
        other.number != meta.number
            && other.min_sequence < meta.max_sequence
            && other.smallest <= meta.largest
            && meta.smallest <= other.largest
    };
    let is_expired = move |meta: &RunMeta| {
        meta.expiries.entries == meta.entries
            && meta.range_tombstones == 0
            && meta.expiries.latest().is_some_and(|latest| latest <= expired_by_us)
            && !partition.all_runs().any(|other| hides(meta, other.run().meta()))
    };
    partition.all_runs().map(|handle| handle.run().meta()).filter(move |meta| is_expired(meta)).map(|meta| meta.number)
}

fn deleted_runs(partition: &Partition, oldest_snapshot: SequenceNumber) -> BTreeSet<FileNumber> {
    let Some(tombstones) = &partition.tombstones else { return BTreeSet::new() };
    let layout = &partition.layout;
    let is_dropped = |meta: &RunMeta| {
        let first = meta.smallest.as_slice().max(&layout.start);
        let Some((_, end)) = tombstones.fragment(first) else { return false };
        let past = match &layout.end {
            Some(partition_end) => end >= partition_end.as_slice() || end > meta.largest.as_slice(),
            None => end > meta.largest.as_slice(),
        };
        past && meta.range_tombstones == 0 && tombstones.newest_covering(first, oldest_snapshot) > meta.max_sequence
    };
    partition.all_runs().map(|h| h.run().meta()).filter(|m| is_dropped(m)).map(|m| m.number).collect()
}
