//! Size estimates, split points and clipping of key ranges.

use super::{
    iter::user_bounds,
    key_range::KeyRange,
    multi::tree::{MultiTree, bounds_of_keys},
    tree::Tree,
};
use crate::{
    base::{Error, Result, SequenceNumber},
    cache::Uncounted,
    db::{
        engine::root::Engine,
        read::{healing, point_read},
    },
    read::{self, ReadState, Survey},
    version::{Partition, PartitionLayout, RunHandle},
};
use std::{ops::Bound, sync::Arc};

/// Samples per part and run. More give more even parts and use more memory.
const SAMPLES_PER_PART: usize = 16;

/// Maximum parts of a split.
const PARTS_MAX: usize = 4096;

/// Maximum entries of a view segment: the precision of ranks.
const SEGMENT_ENTRIES: u64 = 32;

/// Maximum entries of a range that is counted exactly; larger ranges are sampled.
const COUNTED_ENTRIES_MAX: u64 = 8192;

/// Samples per range, of about equal bytes, and maximum keys counted in each.
const SURVEYS: usize = 32;
const SURVEYED_KEYS: u64 = 1024;

/// Estimated size of a range.
///
/// `keys` is exact for up to 8192 entries, old versions and tombstones included, and in merged data
/// without range deletions and expiring values. Otherwise it is extrapolated from 32 samples.
/// **Error**: the true number is always in `keys_min..=keys_max`. With evenly spread garbage it is
/// within 10 % of `keys`; each edge of clustered garbage adds up to 1/32 of all entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeEstimate {
    /// Live keys.
    pub keys: u64,
    /// Lower bound of `keys`.
    pub keys_min: u64,
    /// Upper bound of `keys`.
    pub keys_max: u64,
    /// Bytes in files and memory, large values and garbage included.
    pub bytes: u64,
}

/// Internal keys; no end is past the last tree.
struct Span {
    start: Vec<u8>,
    end: Option<Vec<u8>>,
}

impl Span {
    fn of(tree: &Tree, range: &impl KeyRange) -> Span {
        let (start, end) = user_bounds(tree.state().id, range);
        Span { start, end }
    }

    fn is_before_end(&self, key: &[u8]) -> bool {
        self.end.as_deref().is_none_or(|end| key < end)
    }

    fn is_empty(&self) -> bool {
        !self.is_before_end(&self.start)
    }

    fn within(&self, partition: &Partition) -> Span {
        let layout = &partition.layout;
        let start = self.start.clone().max(layout.start.clone());
        let end = match (&self.end, &layout.end) {
            (Some(a), Some(b)) => Some(a.clone().min(b.clone())),
            (a, b) => a.clone().or_else(|| b.clone()),
        };
        Span { start, end }
    }

    fn partitions<'s>(&'s self, state: &'s ReadState) -> impl Iterator<Item = &'s Arc<Partition>> {
        let all = &state.version.partitions;
        all[all.len().min(state.version.find(&self.start))..].iter().take_while(|p| self.is_before_end(&p.layout.start))
    }

    fn is_outside(&self, handle: &RunHandle) -> bool {
        let meta = handle.run().meta();
        meta.largest < self.start || !self.is_before_end(&meta.smallest)
    }

    /// Exact to tens of entries.
    fn entries_of(&self, handle: &RunHandle) -> Result<u64> {
        if self.is_outside(handle) {
            return Ok(0);
        }
        let meta = handle.run().meta();
        let view = handle.view()?;
        let before = if meta.smallest >= self.start { 0 } else { view.rank(handle.alone(), &self.start)? };
        let upto = match &self.end {
            Some(end) if *end <= meta.largest => view.rank(handle.alone(), end)?,
            _ => meta.entries,
        };
        Ok(upto.saturating_sub(before))
    }
}

fn share(whole: u64, part: u64, all: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(part) / u128::from(all.max(1))).unwrap_or(u64::MAX)
}

/// Includes large values.
fn bytes_of(handle: &RunHandle) -> u64 {
    let meta = handle.run().meta();
    meta.file_bytes + meta.blob_uses.iter().map(|used| used.bytes).sum::<u64>()
}

#[derive(Clone, Copy, Debug, Default)]
struct Size {
    entries: u64,
    bytes: u64,
}

/// O(leaves of the memtables in the span).
fn in_memory(state: &ReadState, span: &Span) -> Size {
    let mut size = Size::default();
    for memtable in state.memtables().filter(|memtable| !memtable.is_empty()) {
        let here = memtable.count_between(&span.start, span.end.as_deref()) as u64;
        size.entries += here;
        size.bytes += share(memtable.raw_bytes() as u64, here, memtable.key_count() as u64);
    }
    size
}

fn in_runs(partition: &Partition, span: &Span) -> Result<Size> {
    let (here, mut size) = (span.within(partition), Size::default());
    for handle in partition.all_runs() {
        let of_run = here.entries_of(handle)?;
        size.entries += of_run;
        size.bytes += share(bytes_of(handle), of_run, handle.run().meta().entries);
    }
    Ok(size)
}

fn is_inside(layout: &PartitionLayout, handle: &RunHandle) -> bool {
    let meta = handle.run().meta();
    layout.start <= meta.smallest && layout.end.as_ref().is_none_or(|end| meta.largest < *end)
}

/// Returns the live keys from metadata alone, if exact: the span covers the partition, no unindexed
/// runs lie over its view, and it has no expiring values or range deletions.
fn settled_keys(partition: &Partition, span: &Span) -> Result<Option<u64>> {
    let (here, layout) = (span.within(partition), &partition.layout);
    let is_whole = here.start == layout.start && here.end == layout.end;
    let view = match (&partition.view, partition.apart.as_slice()) {
        (Some(view), []) => view,
        (None, [alone]) if is_inside(layout, alone) => alone.view()?,
        _ => return Ok(None),
    };
    let is_plain =
        |handle: &Arc<RunHandle>| handle.run().meta().expiries.is_empty() && handle.run().range_tombstones().is_empty();
    let meta = view.meta();
    let live = meta.entries.saturating_sub(meta.stale + meta.tombstones);
    Ok((is_whole && partition.all_runs().all(is_plain)).then_some(live))
}

fn surveyed(state: &ReadState, span: &Span, now: (SequenceNumber, u64), keys_max: u64) -> Result<Survey> {
    // Only the largest tree id, never assigned, has no end.
    let Some(end) = &span.end else { return Ok(Survey::default()) };
    read::survey(state, &span.start, end, now.0, now.1, keys_max)
}

fn size_of(state: &ReadState, span: &Span) -> Result<Size> {
    let mut size = in_memory(state, span);
    for partition in span.partitions(state) {
        let of_runs = in_runs(partition, span)?;
        (size.entries, size.bytes) = (size.entries + of_runs.entries, size.bytes + of_runs.bytes);
    }
    Ok(size)
}

/// Returns the bytes of a range with `keys` live keys. Ranks are exact to a segment of each run: a
/// small tree can get all entries of a segment that it shares, or none of them.
fn bytes_of_few(state: &ReadState, span: &Span, keys: u64) -> Result<u64> {
    let memory = in_memory(state, span);
    let (mut found, mut of_runs, mut runs) = (Size::default(), Size::default(), 0);
    for partition in span.partitions(state) {
        let here = span.within(partition);
        let in_partition = in_runs(partition, span)?;
        (found.entries, found.bytes) = (found.entries + in_partition.entries, found.bytes + in_partition.bytes);
        for handle in partition.all_runs().filter(|handle| !here.is_outside(handle)) {
            of_runs.entries += handle.run().meta().entries;
            of_runs.bytes += bytes_of(handle);
            runs += 1;
        }
    }
    let (slack, each) = (SEGMENT_ENTRIES * runs, if found.entries > 0 { found } else { of_runs });
    let entries = keys.saturating_sub(memory.entries);
    let entries = entries.clamp(found.entries.saturating_sub(slack), found.entries + slack);
    Ok(memory.bytes + share(each.bytes, entries, each.entries))
}

fn approximate(engine: &Engine, span: &Span) -> Result<RangeEstimate> {
    engine.health.check_open()?;
    // Monitors ask for sizes again and again: an idle database must not seem to be read.
    let _uncounted = Uncounted::begin();
    if span.is_empty() {
        return Ok(RangeEstimate::default());
    }
    healing::retry(engine, || {
        let (state, snapshot) = engine.state_for(None)?;
        let now = (snapshot, point_read::time_of(engine, None));
        let Size { entries, bytes } = size_of(&state, span)?;
        if entries <= COUNTED_ENTRIES_MAX {
            let keys = surveyed(&state, span, now, u64::MAX)?.keys;
            let bytes = bytes_of_few(&state, span, keys)?;
            return Ok(RangeEstimate { keys, keys_min: keys, keys_max: keys, bytes });
        }
        let mut estimate = RangeEstimate { bytes, ..RangeEstimate::default() };
        for part in unsettled(&state, span, &mut estimate)? {
            estimate_by_surveys(engine, &state, &part, now, &mut estimate)?;
        }
        Ok(estimate)
    })
}

fn unsettled(state: &ReadState, span: &Span, estimate: &mut RangeEstimate) -> Result<Vec<Span>> {
    let mut left: Vec<Span> = Vec::new();
    for partition in span.partitions(state) {
        let here = span.within(partition);
        if let Some(keys) = settled_keys(partition, span)?
            && in_memory(state, &here).entries == 0
        {
            estimate.keys += keys;
            estimate.keys_min += keys;
            estimate.keys_max += keys;
            continue;
        }
        match left.last_mut() {
            Some(last) if last.end.as_ref() == Some(&here.start) => last.end = here.end,
            _ => left.push(here),
        }
    }
    Ok(left)
}

fn estimate_by_surveys(
    engine: &Engine,
    state: &ReadState,
    span: &Span,
    now: (SequenceNumber, u64),
    estimate: &mut RangeEstimate,
) -> Result<()> {
    let points = points(engine, span, SURVEYS, Sampling::Few)?;
    let starts = std::iter::once(span.start.clone()).chain(points.iter().cloned());
    let ends = points.iter().cloned().map(Some).chain([span.end.clone()]);
    for part in starts.zip(ends).map(|(start, end)| Span { start, end }) {
        let found = surveyed(state, &part, now, SURVEYED_KEYS)?;
        estimate.keys_min += found.keys;
        let Some(next) = found.next else {
            estimate.keys += found.keys;
            estimate.keys_max += found.keys;
            continue;
        };
        let rest = Span { start: next.clone(), end: part.end.clone() };
        let seen = Span { start: part.start.clone(), end: Some(next) };
        let (seen, rest) = (size_of(state, &seen)?.entries.max(found.keys), size_of(state, &rest)?.entries);
        estimate.keys += found.keys + share(rest, found.keys, seen);
        estimate.keys_max += found.keys + rest + slack(state, &part);
    }
    estimate.keys = estimate.keys.clamp(estimate.keys_min, estimate.keys_max);
    Ok(())
}

/// Maximum undercount: one segment per run.
fn slack(state: &ReadState, span: &Span) -> u64 {
    span.partitions(state).map(|partition| SEGMENT_ENTRIES * partition.all_runs().count() as u64).sum()
}

/// Entries of memtables that are read for samples.
#[derive(Clone, Copy)]
enum Sampling {
    /// Keys at about equal distances, as if all entries of a memtable had its average size.
    Few,
    /// Every entry, with its size.
    All,
}

/// Returns sorted keys and the approximate bytes after each.
fn samples(engine: &Engine, span: &Span, parts: usize, sampling: Sampling) -> Result<Vec<(Vec<u8>, u64)>> {
    healing::retry(engine, || {
        let state = engine.present_state()?;
        let mut samples = Vec::new();
        for partition in span.partitions(&state) {
            let here = span.within(partition);
            for handle in partition.all_runs() {
                let meta = handle.run().meta();
                let mut keys = vec![meta.smallest.clone()];
                keys.extend(handle.view()?.split_points(handle.alone(), parts * SAMPLES_PER_PART)?);
                let each = bytes_of(handle) / keys.len() as u64;
                let is_here = |key: &Vec<u8>| *key >= here.start && here.is_before_end(key);
                samples.extend(keys.into_iter().filter(is_here).map(|key| (key, each.max(1))));
            }
        }
        for memtable in state.memtables() {
            if let Sampling::Few = sampling {
                let found = memtable.sample_between(&span.start, span.end.as_deref(), parts * SAMPLES_PER_PART);
                let each = |keys: usize| share(memtable.raw_bytes() as u64, keys as u64, memtable.key_count() as u64);
                samples.extend(found.into_iter().map(|(key, keys)| (key, each(keys))));
                continue;
            }
            let mut scan = memtable.scan_from(&span.start);
            while scan.advance() && span.is_before_end(scan.entry().key) {
                let entry = scan.entry();
                samples.push((entry.key.to_vec(), (entry.key.len() + entry.value.len()) as u64));
            }
        }
        samples.sort();
        Ok(samples)
    })
}

/// Keys that divide a span into about equal bytes, without its start.
fn points(engine: &Engine, span: &Span, parts: usize, sampling: Sampling) -> Result<Vec<Vec<u8>>> {
    let samples = samples(engine, span, parts, sampling)?;
    let all: u64 = samples.iter().map(|(_, bytes)| bytes).sum();
    let (mut points, mut before): (Vec<Vec<u8>>, u64) = (Vec::new(), 0);
    for (key, bytes) in samples {
        let wanted = share(all, points.len() as u64 + 1, parts as u64);
        let is_new = key > span.start && points.last().is_none_or(|last| *last < key);
        if points.len() + 1 < parts && before >= wanted.max(1) && is_new {
            points.push(key);
        }
        before += bytes;
    }
    Ok(points)
}

/// Divides a range into at most `max` parts of about `bytes`.
pub(in crate::db) fn points_every(
    engine: &Engine,
    start: &[u8],
    end: Option<&[u8]>,
    bytes: u64,
    max: usize,
) -> Result<Vec<Vec<u8>>> {
    let span = Span { start: start.to_vec(), end: end.map(<[u8]>::to_vec) };
    if span.is_empty() {
        return Ok(Vec::new());
    }
    let size = healing::retry(engine, || size_of(&*engine.present_state()?, &span))?;
    let parts = size.bytes / bytes.max(1);
    let parts = usize::try_from(parts).unwrap_or(max).min(max);
    if parts < 2 { Ok(Vec::new()) } else { points(engine, &span, parts, Sampling::All) }
}

impl Tree {
    /// Estimates the keys and bytes in a range, with the error of [`RangeEstimate`]. Reads at most
    /// some tens of thousands of entries, and few in settled data; in memtables, it also visits the
    /// leaves of the range, of up to 32 keys each. [`Tree::count`] counts exactly.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let numbers = db.tree("numbers")?;
    /// numbers.bulk_load((0..10_000u32).map(|n| (n.to_be_bytes(), [7; 100])))?;
    /// let estimate = numbers.approximate(2500u32.to_be_bytes()..7500u32.to_be_bytes())?;
    /// assert!((4900..5100).contains(&estimate.keys));
    /// # Ok(())
    /// # }
    /// ```
    pub fn approximate(&self, range: impl KeyRange) -> Result<RangeEstimate> {
        self.state().check()?;
        approximate(self.db().engine(), &Span::of(self, &range))
    }

    /// Returns at most `parts - 1` sorted keys that divide a range into parts of about equal bytes.
    /// Each is the first key of its part or just before it. Scans the memtables.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let numbers = db.tree("numbers")?;
    /// numbers.bulk_load((0..10_000u32).map(|n| (n.to_be_bytes(), [7; 100])))?;
    /// assert_eq!(numbers.split_points(.., 4)?.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn split_points(&self, range: impl KeyRange, parts: usize) -> Result<Vec<Vec<u8>>> {
        self.state().check()?;
        self.db().engine().health.check_open()?;
        if !(1..=PARTS_MAX).contains(&parts) {
            return Err(Error::InvalidArgument(format!("{parts} parts: choose 1 to {PARTS_MAX}")));
        }
        let span = Span::of(self, &range);
        if span.is_empty() {
            return Ok(Vec::new());
        }
        let points = points(self.db().engine(), &span, parts, Sampling::All)?;
        Ok(points.iter().map(|key| key.get(4..).unwrap_or_default().to_vec()).collect())
    }

    /// Deletes all keys outside `range` in one commit, in constant time. Files without remaining
    /// keys are removed unread.
    pub fn clip(&self, range: impl KeyRange) -> Result<SequenceNumber> {
        let bound = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        let mut batch = self.db().batch();
        // An empty range keeps nothing.
        if Span::of(self, &range).is_empty() {
            batch.delete_range(self, ..);
        } else {
            match bound(range.first()) {
                Bound::Included(start) => _ = batch.delete_range(self, ..start),
                Bound::Excluded(start) => _ = batch.delete_range(self, ..=start),
                Bound::Unbounded => {}
            }
            match bound(range.last()) {
                Bound::Included(end) => _ = batch.delete_range(self, (Bound::Excluded(end), Bound::Unbounded)),
                Bound::Excluded(end) => _ = batch.delete_range(self, end..),
                Bound::Unbounded => {}
            }
        }
        batch.commit()
    }
}

impl MultiTree {
    /// Estimates pairs with keys in a range: see [`Tree::approximate`]. [`MultiTree::count`] counts
    /// exactly.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let tags = db.multi_tree("tags")?;
    /// tags.add(b"red", b"1")?;
    /// tags.add(b"red", b"2")?;
    /// assert_eq!(tags.approximate(..)?.keys, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn approximate(&self, range: impl KeyRange) -> Result<RangeEstimate> {
        self.state().check()?;
        let (start, end) = bounds_of_keys(self.state().id, &range);
        approximate(self.db().engine(), &Span { start, end })
    }
}
