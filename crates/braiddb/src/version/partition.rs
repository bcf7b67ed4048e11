//! A partition: a key range, the view over most of its runs, and its unindexed runs.
//!
//! Partitions are immutable; a job or flush replaces them. Reads merge the view with each unindexed
//! run, read through the one-run view in its file. Without a valid view, all runs are read that
//! way.

use super::PartitionLayout;
use crate::{
    base::{FileNumber, RangeTombstone, RangeTombstoneSet, Result, SequenceNumber, limits::SEGMENT_ENTRIES},
    table::{KeyFilter, Run, TableContext},
    view::{Bounds, View},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// A smaller run counts in full. Ranks are exact to a segment only, so a share would gain little.
const SHARE_ENTRIES_MIN: u64 = 64 * SEGMENT_ENTRIES as u64;

/// One in this many reads of unindexed runs is counted, by key hash, to write seldom to shared
/// memory.
const READS_PER_COUNT: u64 = 32;

/// Unindexed runs that weigh as much as one overlapping run, if they only add keys at either end.
const ADDED_PER_WEIGHT: usize = 3;

#[inline]
pub fn is_counted(hash: u64) -> bool {
    (hash >> 8).is_multiple_of(READS_PER_COUNT)
}

pub type ViewOfRuns = (Arc<View>, Arc<[Arc<Run>]>);

/// The view in the file is opened on first use.
#[derive(Debug)]
pub struct RunHandle {
    alone: Arc<[Arc<Run>]>,
    view: OnceLock<Arc<View>>,
    /// Gets that probed the run by itself; other reads count by duration.
    reads: AtomicU64,
    /// Filter of an unindexed run that this process wrote.
    filter: Option<KeyFilter>,
    context: TableContext,
}

impl RunHandle {
    pub fn new(run: Arc<Run>, context: &TableContext) -> RunHandle {
        let filter = context.new_filters.take(run.meta().number, run.meta().file_id);
        let (view, reads) = Default::default();
        RunHandle { alone: Arc::from([run]), view, reads, filter, context: context.clone() }
    }

    pub fn run(&self) -> &Arc<Run> {
        &self.alone[0]
    }

    pub fn alone(&self) -> &Arc<[Arc<Run>]> {
        &self.alone
    }

    pub fn view(&self) -> Result<&Arc<View>> {
        if let Some(view) = self.view.get() {
            return Ok(view);
        }
        let view = View::open_embedded(&self.context, self.run())?;
        Ok(self.view.get_or_init(|| view))
    }

    pub fn opened_view(&self) -> Option<&Arc<View>> {
        self.view.get()
    }

    #[inline]
    pub fn lacks(&self, hash: u64) -> bool {
        self.filter.as_ref().is_some_and(|filter| !filter.may_contain(hash))
    }

    #[inline]
    pub fn prefetch_filter(&self, hash: u64) {
        if let Some(filter) = &self.filter {
            filter.prefetch(hash);
        }
    }

    /// Records a counted read, with the duration of `gets` gets.
    pub fn note_read(&self, gets: u64) {
        self.reads.fetch_add(gets * READS_PER_COUNT, Ordering::Relaxed);
    }

    /// Approximate, since it was opened.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    pub fn resident_bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, KeyFilter::bytes);
        self.run().resident_bytes() + self.view.get().map_or(0, |v| v.resident_bytes()) + filter
    }
}

#[derive(Clone, Copy, Debug)]
pub struct FirstView<'a> {
    pub view: &'a View,
    pub runs: &'a [Arc<Run>],
    /// Nothing else has the key. Otherwise this view has its newest versions.
    pub is_only: bool,
    /// Set for one of several runs; its reads are counted.
    pub apart: Option<&'a RunHandle>,
}

/// Returns for each run: all its entries are newer than the view and all later runs. `sequences`:
/// the (lowest, highest) of each run, highest first.
fn are_newest(sequences: &[(SequenceNumber, SequenceNumber)], view_max_sequence: SequenceNumber) -> Box<[bool]> {
    let mut older = view_max_sequence;
    let mut are_newest: Box<[bool]> = sequences.iter().map(|_| false).collect();
    for (&(least, greatest), is_newest) in sequences.iter().zip(&mut are_newest).rev() {
        *is_newest = least > older;
        older = older.max(greatest);
    }
    are_newest
}

fn adding_runs(runs: &[Arc<RunHandle>], loose: &[Arc<RunHandle>]) -> usize {
    let range = |handle: &Arc<RunHandle>| {
        let meta = handle.run().meta();
        (meta.smallest.clone(), meta.largest.clone())
    };
    adding(runs.iter().map(range), loose.iter().map(range))
}

fn adding<K: Ord>(ranges: impl Iterator<Item = (K, K)>, added: impl Iterator<Item = (K, K)>) -> usize {
    let union = |(smallest, largest): (K, K), other: (K, K)| (smallest.min(other.0), largest.max(other.1));
    let mut all = ranges.reduce(union);
    let mut count = 0;
    for range in added {
        all = match all {
            Some(all) if range.0 <= all.1 && range.1 >= all.0 => return count,
            Some(all) => Some(union(all, range)),
            None => Some(range),
        };
        count += 1;
    }
    count
}

#[derive(Debug)]
pub struct Partition {
    pub id: u64,
    pub layout: PartitionLayout,
    /// By selector of the view. Without one they are also in `apart`.
    pub runs: Vec<Arc<RunHandle>>,
    pub view_runs: Arc<[Arc<Run>]>,
    pub view: Option<Arc<View>>,
    /// Read through their own views; highest sequence number first.
    pub apart: Vec<Arc<RunHandle>>,
    /// Range tombstones of all runs; usually `None`.
    pub tombstones: Option<Arc<RangeTombstoneSet>>,
    are_newest: Box<[bool]>,
    pub view_max_sequence: SequenceNumber,
    /// One view has everything.
    is_plain: bool,
    adding: usize,
    shares: OnceLock<HashMap<FileNumber, u64>>,
}

impl Partition {
    /// `loose` is oldest first.
    pub fn new(
        id: u64,
        layout: PartitionLayout,
        runs: Vec<Arc<RunHandle>>,
        loose: Vec<Arc<RunHandle>>,
        view: Option<Arc<View>>,
    ) -> Partition {
        let mut apart = loose.clone();
        if view.is_none() {
            apart.extend(runs.iter().cloned());
        }
        apart.sort_by_key(|handle| std::cmp::Reverse(handle.run().meta().max_sequence));
        let tombstones: Vec<RangeTombstone> =
            runs.iter().chain(&loose).flat_map(|h| h.run().range_tombstones().iter().cloned()).collect();
        let sources = apart.len() + usize::from(view.is_some());
        let view_max_sequence = view.as_ref().map_or(0, |v| v.meta().max_sequence);
        let sequences = |handle: &Arc<RunHandle>| (handle.run().meta().min_sequence, handle.run().meta().max_sequence);
        let sequences: Vec<_> = apart.iter().map(sequences).collect();
        Partition {
            are_newest: are_newest(&sequences, view_max_sequence),
            id,
            layout,
            is_plain: sources == 1 && tombstones.is_empty(),
            adding: adding_runs(&runs, &loose),
            view_runs: runs.iter().map(|h| Arc::clone(h.run())).collect(),
            view_max_sequence,
            runs,
            view,
            apart,
            shares: OnceLock::new(),
            tombstones: (!tombstones.is_empty()).then(|| Arc::new(RangeTombstoneSet::new(tombstones))),
        }
    }

    pub fn bounds(&self) -> Bounds {
        Bounds { start: self.layout.start.clone(), end: self.layout.end.clone() }
    }

    /// Returns the view or, without one, that of the only run if it is open.
    #[inline]
    pub fn main_view(&self) -> Option<(&View, &[Arc<Run>])> {
        match (&self.view, &self.apart[..]) {
            (Some(view), _) => Some((view, &self.view_runs)),
            (None, [only]) => Some((only.view.get()?, &only.alone)),
            _ => None,
        }
    }

    pub fn open_main_view(&self) -> Result<()> {
        match (&self.view, &self.apart[..]) {
            (None, [only]) => only.view().map(|_| ()),
            _ => Ok(()),
        }
    }

    #[inline]
    pub fn only_view(&self) -> Option<(&View, &[Arc<Run>])> {
        if self.is_plain { self.main_view() } else { None }
    }

    /// The view to search first for a key with this hash, if it has the key's newest versions.
    /// Filters exclude unindexed runs. `None` if several sources must be searched or the view is
    /// not open.
    #[inline]
    pub fn first_view_with(&self, hash: u64) -> Option<FirstView<'_>> {
        if self.is_plain {
            let (view, runs) = self.main_view()?;
            return Some(FirstView { view, runs, is_only: true, apart: None });
        }
        self.first_left_with(hash)
    }

    #[inline(never)]
    fn first_left_with(&self, hash: u64) -> Option<FirstView<'_>> {
        if self.tombstones.is_some() {
            return None;
        }
        self.apart.iter().for_each(|handle| handle.prefetch_filter(hash));
        if let Some(view) = &self.view {
            view.prefetch_by_hash(hash);
        }
        match self.apart.iter().position(|handle| !handle.lacks(hash)) {
            None => {
                self.view.as_ref().map(|view| FirstView { view, runs: &self.view_runs, is_only: true, apart: None })
            }
            Some(index) => {
                let handle = self.apart.get(index)?;
                let is_only = self.view.is_none() && index + 1 == self.apart.len();
                if !is_only && !*self.are_newest.get(index)? {
                    return None;
                }
                Some(FirstView { view: handle.view.get()?, runs: &handle.alone, is_only, apart: Some(handle) })
            }
        }
    }

    pub fn open_views(&self) -> impl Iterator<Item = (&View, &[Arc<Run>])> {
        let own = self.view.as_ref().map(|view| (&**view, &*self.view_runs));
        let apart = self.apart.iter().filter_map(|handle| Some((&**handle.view.get()?, &*handle.alone)));
        own.into_iter().chain(apart)
    }

    pub fn newest_covering(&self, key: &[u8], snapshot: SequenceNumber) -> SequenceNumber {
        self.tombstones.as_ref().map_or(0, |set| set.newest_covering(key, snapshot))
    }

    /// Entries, and stale entries plus tombstones, of the view or the oldest run. `None` if
    /// damaged.
    pub fn counts(&self) -> Option<(u64, u64)> {
        let meta = match (&self.view, self.apart.last()) {
            (Some(view), _) => view.meta().clone(),
            (None, Some(oldest)) => oldest.view().ok()?.meta().clone(),
            (None, None) => return None,
        };
        Some((meta.entries, meta.stale + meta.tombstones))
    }

    /// Share of a run's entries within the key range. The first call may read views.
    pub fn share_per_mille(&self, handle: &RunHandle) -> u64 {
        if self.holds_all_of(handle) {
            return 1000;
        }
        let shares = self.shares.get_or_init(|| {
            let others = self.all_runs().filter(|h| !self.holds_all_of(h));
            // An unreadable run counts in full; reads will report the damage.
            others.map(|h| (h.run().meta().number, self.count_share(h).unwrap_or(1000))).collect()
        });
        shares.get(&handle.run().meta().number).copied().unwrap_or(1000)
    }

    fn holds_all_of(&self, handle: &RunHandle) -> bool {
        let (meta, layout) = (handle.run().meta(), &self.layout);
        let is_inside = layout.start <= meta.smallest && layout.end.as_ref().is_none_or(|end| meta.largest <= *end);
        is_inside || meta.entries < SHARE_ENTRIES_MIN
    }

    fn count_share(&self, handle: &RunHandle) -> Result<u64> {
        let (meta, layout) = (handle.run().meta(), &self.layout);
        let (view, alone) = (handle.view()?, handle.alone());
        let end = layout.end.as_ref().map_or(Ok(meta.entries), |end| view.rank(alone, end))?;
        let entries = end.saturating_sub(view.rank(alone, &layout.start)?);
        Ok(entries.min(meta.entries) * 1000 / meta.entries)
    }

    pub fn all_runs(&self) -> impl Iterator<Item = &Arc<RunHandle>> {
        let loose = self
            .layout
            .loose
            .iter()
            .filter_map(|number| self.apart.iter().find(|handle| handle.run().meta().number == *number));
        self.runs.iter().chain(loose)
    }

    pub fn all_views(&self) -> Result<Vec<ViewOfRuns>> {
        let mut views: Vec<_> = self.view.iter().map(|view| (Arc::clone(view), Arc::clone(&self.view_runs))).collect();
        for handle in &self.apart {
            views.push((Arc::clone(handle.view()?), Arc::clone(handle.alone())));
        }
        Ok(views)
    }

    /// Number of unindexed runs to compare with the maximum. A third if they do not overlap: then
    /// reads seldom probe several, and no entry supersedes another.
    pub fn loose_weight(&self) -> usize {
        let loose = self.layout.loose.len();
        let only_adds = self.adding == loose && self.tombstones.is_none();
        if only_adds { loose.div_ceil(ADDED_PER_WEIGHT) } else { loose }
    }

    /// Oldest unindexed runs whose keys occur in nothing older. Without a view, a merge of
    /// everything left them.
    pub fn adding_runs(&self) -> usize {
        self.adding
    }

    pub fn loose_runs(&self) -> Vec<Arc<RunHandle>> {
        self.all_runs().skip(self.runs.len()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{adding, are_newest};

    #[test]
    fn adding_stops_at_first_overlapping_run() {
        for (runs, loose, expected) in [
            (&[][..], &[][..], 0),
            (&[], &[(3, 5)], 1),
            (&[], &[(3, 5), (6, 6), (7, 9)], 3),
            (&[(5, 7), (4, 9)], &[(10, 12), (1, 3)], 2),
            (&[(5, 7)], &[(7, 9)], 0),
            (&[(5, 7)], &[(1, 5)], 0),
            (&[(5, 7)], &[(8, 9), (9, 10), (11, 12)], 1),
            // Between two runs: counts as overlap, even if there are no keys.
            (&[(1, 2), (8, 9)], &[(4, 5)], 0),
            (&[], &[(1, 2), (8, 9), (4, 5)], 2),
            (&[(5, 6)], &[(1, 9)], 0),
            (&[(1, 9)], &[(5, 6)], 0),
        ] {
            assert_eq!(adding(runs.iter().copied(), loose.iter().copied()), expected, "{loose:?} on {runs:?}");
        }
    }

    #[test]
    fn are_newest_of_runs_with_old_entries_is_false() {
        for (sequences, view, expected) in [
            (&[][..], 7, &[][..]),
            (&[(8, 9)], 7, &[true]),
            (&[(7, 9)], 7, &[false]),
            (&[(5, 9), (1, 4)], 0, &[true, true]),
            (&[(1, 9), (3, 4)], 0, &[false, true]),
            (&[(1, 9), (3, 4)], 3, &[false, false]),
            (&[(4, 9), (2, 4)], 1, &[false, true]),
            (&[(20, 30), (11, 19), (5, 18)], 4, &[true, false, true]),
        ] {
            assert_eq!(&*are_newest(sequences, view), expected, "{sequences:?} over {view}");
        }
    }
}
