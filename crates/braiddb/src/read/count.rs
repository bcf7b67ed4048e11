//! Counts the keys in a range.
//!
//! A partition's view counts the keys it shows at its newest snapshot. Newer entries in the range
//! add keys that the view lacks or remove keys that it has. Newer range tombstones subtract the
//! parts of the view that they delete whole.
//!
//! The caller must walk parts that cannot be counted:
//! - the snapshot does not cover the view,
//! - a range tombstone deletes only some of the view's sequence numbers,
//! - entries of the view must be resolved,
//! - there are too many newer entries to look each one up.
//!
//! A **survey** walks keys one by one, tombstones included, up to a limit: its cost does not depend
//! on garbage.

use super::{Merge, ReadState};
use crate::{
    base::{Content, Cursor, EntryKind, EntryRef, RangeTombstoneSet, Result, SequenceNumber},
    codec::hash64,
    memtable::MemtableCursor,
    table::Run,
    version::{Partition, RunHandle, ViewOfRuns, is_counted},
    view::{View, ViewCursor},
};
use std::{cmp::Ordering, sync::Arc};

/// This many entries above a view are always looked up in it.
const LOOKUPS_MIN: u64 = 256;
/// Keys of the view per additional lookup, which costs as much as walking 12 rows.
const ROWS_PER_LOOKUP: u64 = 12;
/// Gets that one seek in an unindexed run counts as.
const GETS_PER_SEEK: u64 = 4;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub keys: u64,
    pub left: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Counts keys that exist at `snapshot` and are not expired at `now_us`.
pub fn count(state: &ReadState, start: &[u8], end: &[u8], snapshot: SequenceNumber, now_us: u64) -> Result<Counted> {
    let mut counted = Counted::default();
    visit_parts(state, start, end, snapshot, now_us, &mut |part| {
        match part.count()? {
            Some(keys) => counted.keys += keys,
            None => match counted.left.last_mut() {
                Some((_, reach)) if *reach == part.start => part.end.clone_into(reach),
                _ => counted.left.push((part.start.to_vec(), part.end.to_vec())),
            },
        }
        Ok(true)
    })?;
    Ok(counted)
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Survey {
    pub keys: u64,
    /// First key not surveyed; `None` at the end.
    pub next: Option<Vec<u8>>,
}

/// Walks up to `keys_max` keys of `start..end`, deleted ones included, and counts those visible at
/// `snapshot` and `now_us`. O(entries passed).
pub fn survey(
    state: &ReadState,
    start: &[u8],
    end: &[u8],
    snapshot: SequenceNumber,
    now_us: u64,
    keys_max: u64,
) -> Result<Survey> {
    let (mut found, mut left) = (Survey::default(), keys_max);
    visit_parts(state, start, end, snapshot, now_us, &mut |part| {
        found.next = part.survey(&mut left, &mut found.keys)?;
        Ok(found.next.is_none())
    })?;
    Ok(found)
}

fn visit_parts(
    state: &ReadState,
    start: &[u8],
    end: &[u8],
    snapshot: SequenceNumber,
    now_us: u64,
    visit: &mut dyn FnMut(&Part<'_>) -> Result<bool>,
) -> Result<()> {
    if start >= end {
        return Ok(());
    }
    let tombstones: Vec<_> = state.memtables().filter_map(|memtable| memtable.range_tombstones()).collect();
    for partition in &state.version.partitions[state.version.find(start)..] {
        let layout = &partition.layout;
        // Comparing with an empty key by masked vector loads can take 100 times as long: the
        // dangling address of an empty vector is slow to load from.
        let start = match layout.start.as_slice() {
            [] => start,
            partition_start if partition_start >= end => break,
            partition_start => start.max(partition_start),
        };
        let end = layout.end.as_deref().map_or(end, |partition_end| end.min(partition_end));
        if !visit(&Part { state, partition, tombstones: &tombstones, start, end, snapshot, now_us })? {
            break;
        }
    }
    Ok(())
}

/// Returns the cached count from `start` to the same key with `end` as its last byte. Needs one
/// view with all keys and no newer source.
#[inline]
pub fn count_kept(state: &ReadState, start: &[u8], end: u8, snapshot: SequenceNumber) -> Result<Option<u64>> {
    if !state.memtables().all(|memtable| memtable.is_empty()) {
        return Ok(None);
    }
    let Some(partition) = state.version.partitions.get(state.version.find(start)) else { return Ok(None) };
    let view = match (&partition.view, partition.apart.as_slice()) {
        (Some(view), []) => view,
        (None, [handle]) => handle.view()?,
        _ => return Ok(None),
    };
    let is_within = partition.layout.end.as_deref().is_none_or(|bound| ends_within(start, end, bound));
    let is_settled = is_within && snapshot >= view.meta().max_sequence;
    Ok(if is_settled { view.count_kept(start, end) } else { None })
}

fn ends_within(start: &[u8], end: u8, bound: &[u8]) -> bool {
    let front = &start[..start.len().saturating_sub(1)];
    let (bound, rest) = bound.split_at(front.len().min(bound.len()));
    match front.cmp(bound) {
        Ordering::Less => true,
        Ordering::Equal => rest.first().is_some_and(|&byte| end <= byte),
        Ordering::Greater => false,
    }
}

struct Part<'a> {
    state: &'a ReadState,
    partition: &'a Partition,
    tombstones: &'a [Arc<RangeTombstoneSet>],
    start: &'a [u8],
    end: &'a [u8],
    snapshot: SequenceNumber,
    now_us: u64,
}

#[derive(Clone, Copy)]
struct Base<'a> {
    view: Option<(&'a View, &'a [Arc<Run>])>,
    max_sequence: SequenceNumber,
}

#[derive(Clone, Copy)]
struct Beneath {
    sequence: SequenceNumber,
    is_tombstone: bool,
}

impl<'a> Part<'a> {
    fn count(&self) -> Result<Option<u64>> {
        let (base, apart) = self.base()?;
        if self.snapshot < base.max_sequence {
            return Ok(None);
        }
        let Some(deleted) = self.deleted(&base, &apart) else { return Ok(None) };
        let Some(keys) = self.count_in_base(&base, &deleted)? else { return Ok(None) };
        let Some(mut over) = self.over(&apart)? else { return Ok(Some(keys)) };
        let mut keys = keys as i64;
        let mut lookups = LOOKUPS_MIN + keys as u64 / ROWS_PER_LOOKUP;
        while over.valid() && over.key() < self.end {
            let entry = over.entry();
            let beneath = if base.view.is_none() || is_within(&deleted, entry.key) {
                None
            } else if lookups == 0 {
                return Ok(None);
            } else {
                lookups -= 1;
                base.find(entry.key, self.snapshot)?
            };
            keys += self.change(entry, beneath);
            over.next()?;
        }
        Ok(Some(keys as u64))
    }

    /// The partition's view or that of its largest run, and the runs above it.
    fn base(&self) -> Result<(Base<'a>, Vec<&'a RunHandle>)> {
        let partition = self.partition;
        let mut apart: Vec<&RunHandle> = partition.apart.iter().map(|handle| &**handle).collect();
        let mut view = partition.view.as_ref().map(|view| (&**view, &*partition.view_runs));
        if view.is_none()
            && let Some(at) = (0..apart.len()).max_by_key(|&at| apart[at].run().meta().entries)
        {
            let largest = apart.swap_remove(at);
            view = Some((&**largest.view()?, &**largest.alone()));
        }
        apart.retain(|handle| {
            let meta = handle.run().meta();
            meta.smallest.as_slice() < self.end && self.start <= meta.largest.as_slice()
        });
        let max_sequence = view.map_or(0, |(view, _)| view.meta().max_sequence);
        Ok((Base { view, max_sequence }, apart))
    }

    /// The ranges deleted whole in the base by newer tombstones, sorted and disjoint; `None` if a
    /// tombstone may delete only part.
    fn deleted(&self, base: &Base<'_>, apart: &[&'a RunHandle]) -> Option<Vec<(&'a [u8], &'a [u8])>> {
        let of_runs = apart.iter().map(|handle| &**handle.run().range_tombstones());
        let sets = self.tombstones.iter().map(|set| &**set).chain(of_runs);
        let mut deleted = Vec::new();
        for (from, to, cover) in sets.flat_map(|set| set.fragments_in(self.start, self.end)) {
            match cover.iter().find(|&&sequence| sequence <= self.snapshot) {
                None => {}
                Some(&sequence) if sequence > base.max_sequence => {
                    deleted.push((from.max(self.start), to.min(self.end)));
                }
                Some(_) => return None,
            }
        }
        deleted.sort_unstable();
        deleted.dedup_by(|next, before| {
            let touches = next.0 <= before.1;
            if touches {
                before.1 = before.1.max(next.1);
            }
            touches
        });
        Some(deleted)
    }

    fn count_in_base(&self, base: &Base<'_>, deleted: &[(&[u8], &[u8])]) -> Result<Option<u64>> {
        let Some((view, runs)) = base.view else { return Ok(Some(0)) };
        if deleted.is_empty() && self.is_whole() {
            return view.count_all_live(runs);
        }
        let guard = crossbeam_epoch::pin();
        let (mut keys, mut from) = (0, self.start);
        for (gap_end, next) in deleted.iter().copied().chain([(self.end, self.end)]) {
            if from < gap_end {
                let Some(shown) = view.count_live(runs, from, gap_end, &guard)? else { return Ok(None) };
                keys += shown;
            }
            from = next;
        }
        Ok(Some(keys))
    }

    fn is_whole(&self) -> bool {
        let Partition { layout, view, .. } = self.partition;
        view.is_some() && self.start == layout.start && layout.end.as_deref() == Some(self.end)
    }

    fn over(&self, apart: &[&RunHandle]) -> Result<Option<Merge<Box<dyn Cursor>>>> {
        let is_counted = !apart.is_empty() && is_counted(hash64(self.start));
        let mut views = Vec::with_capacity(apart.len());
        for handle in apart {
            if is_counted {
                handle.note_read(GETS_PER_SEEK);
            }
            views.push((Arc::clone(handle.view()?), Arc::clone(handle.alone())));
        }
        self.sources(views)
    }

    fn sources(&self, views: Vec<ViewOfRuns>) -> Result<Option<Merge<Box<dyn Cursor>>>> {
        let mut sources: Vec<Box<dyn Cursor>> = Vec::new();
        for memtable in self.state.memtables().filter(|memtable| memtable.entry_count() > 0) {
            sources.push(Box::new(MemtableCursor::new(Arc::clone(memtable), self.snapshot)));
        }
        for (view, runs) in views {
            sources.push(Box::new(ViewCursor::new(view, runs, self.snapshot)));
        }
        if sources.is_empty() {
            return Ok(None);
        }
        let mut over = Merge::new(sources);
        over.seek(self.start)?;
        Ok(Some(over))
    }

    fn change(&self, entry: EntryRef<'_>, beneath: Option<Beneath>) -> i64 {
        if beneath.is_some_and(|beneath| beneath.sequence > entry.sequence) {
            return 0;
        }
        let newest = self.newest_covering(entry.key);
        let is_counted = |beneath: Beneath| !beneath.is_tombstone && beneath.sequence >= newest;
        i64::from(self.is_live(&entry, newest)) - i64::from(beneath.is_some_and(is_counted))
    }

    fn newest_covering(&self, key: &[u8]) -> SequenceNumber {
        let covering = self.tombstones.iter().map(|set| set.newest_covering(key, self.snapshot));
        covering.max().unwrap_or(0).max(self.partition.newest_covering(key, self.snapshot))
    }

    /// True if a key's newest entry is a value. Blobs and operands always are.
    fn is_live(&self, entry: &EntryRef<'_>, newest_covering: SequenceNumber) -> bool {
        let is_value = match entry.kind {
            EntryKind::Tombstone => false,
            EntryKind::Expiring => {
                let content = Content::of(entry.kind, entry.value);
                content.is_none_or(|content| content.expires_us.is_none_or(|expires_us| expires_us > self.now_us))
            }
            _ => true,
        };
        is_value && entry.sequence >= newest_covering
    }

    /// Decrements `left` for each key and increments `keys` for existing ones. Returns the first
    /// key not reached.
    fn survey(&self, left: &mut u64, keys: &mut u64) -> Result<Option<Vec<u8>>> {
        let Some(mut all) = self.sources(self.partition.all_views()?)? else { return Ok(None) };
        while all.valid() && all.key() < self.end {
            let entry = all.entry();
            if *left == 0 {
                return Ok(Some(entry.key.to_vec()));
            }
            *left -= 1;
            *keys += u64::from(self.is_live(&entry, self.newest_covering(entry.key)));
            all.next()?;
        }
        Ok(None)
    }
}

impl Base<'_> {
    fn find(&self, key: &[u8], snapshot: SequenceNumber) -> Result<Option<Beneath>> {
        let Some((view, runs)) = self.view else { return Ok(None) };
        let guard = crossbeam_epoch::pin();
        let found = view.get(runs, key, snapshot, &guard)?;
        Ok(found.map(|entry| Beneath { sequence: entry.sequence, is_tombstone: entry.kind == EntryKind::Tombstone }))
    }
}

fn is_within(ranges: &[(&[u8], &[u8])], key: &[u8]) -> bool {
    let after = ranges.partition_point(|(from, _)| *from <= key);
    after > 0 && key < ranges[after - 1].1
}

#[cfg(test)]
mod tests {
    use super::ends_within;

    #[test]
    fn ends_within_without_end_key_matches_comparison() {
        let mut strings = vec![vec![]];
        for from in 0..40 {
            let longer = (1..4).map(|byte| [&strings[from][..], &[byte]].concat());
            strings.extend(longer.collect::<Vec<_>>());
        }
        for start in strings.iter().filter(|start| !start.is_empty()) {
            for end in 1..5 {
                let mut key = start.clone();
                *key.last_mut().unwrap() = end;
                for bound in &strings {
                    assert_eq!(ends_within(start, end, bound), key <= *bound, "{start:?} to {end}, {bound:?}");
                }
            }
        }
    }
}
