//! A partition: a key range, the view over most of its runs, and its loose runs.
//!
//! A partition never changes; a job or a flush makes another in its place. Threads share it freely.
//!
//! Reads merge the view with each loose run, which is read through the one-run view inside its file. While the
//! partition's own view is missing or damaged, all of its runs are read that way.

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

/// Of a smaller run a partition counts the whole: ranks are exact to a segment only, and there is little to gain.
const SHARE_ENTRIES_MIN: u64 = 64 * SEGMENT_ENTRIES as u64;

/// Of so many reads of loose runs one is counted, as so many: which is a matter of its key, so that no reader writes to
/// memory that others read, and equal reads are counted equally.
const READS_PER_COUNT: u64 = 32;

/// So many runs that only add keys at either end, as where keys grow with time, weigh as much as one that lies over others.
const ADDED_PER_WEIGHT: usize = 3;

/// Whether a read of a key with this hash is counted.
#[inline]
pub fn is_counted(hash: u64) -> bool {
    (hash >> 8).is_multiple_of(READS_PER_COUNT)
}

/// A view and the runs that it is over.
pub type ViewOfRuns = (Arc<View>, Arc<[Arc<Run>]>);

/// An open run, with the view inside its file opened when first needed.
#[derive(Debug)]
pub struct RunHandle {
    alone: Arc<[Arc<Run>]>,
    view: OnceLock<Arc<View>>,
    /// About how many gets had to ask it by itself, or other reads that took as long.
    reads: AtomicU64,
    /// Which keys it has, if it was written by this process to stand apart.
    filter: Option<KeyFilter>,
    context: TableContext,
}

impl RunHandle {
    /// A handle on an open run.
    pub fn new(run: Arc<Run>, context: &TableContext) -> RunHandle {
        let filter = context.new_filters.take(run.meta().number, run.meta().file_id);
        let (view, reads) = Default::default();
        RunHandle { alone: Arc::from([run]), view, reads, filter, context: context.clone() }
    }

    /// The run.
    pub fn run(&self) -> &Arc<Run> {
        &self.alone[0]
    }

    /// The run as the list of runs of its own view.
    pub fn alone(&self) -> &Arc<[Arc<Run>]> {
        &self.alone
    }

    /// The run's own view. Fails with corruption of the run.
    pub fn view(&self) -> Result<&Arc<View>> {
        if let Some(view) = self.view.get() {
            return Ok(view);
        }
        let view = View::open_embedded(&self.context, self.run())?;
        Ok(self.view.get_or_init(|| view))
    }

    /// The run's own view, if it has been opened.
    pub fn opened_view(&self) -> Option<&Arc<View>> {
        self.view.get()
    }

    /// Whether it is known that it has no key with this hash.
    #[inline]
    pub fn lacks(&self, hash: u64) -> bool {
        self.filter.as_ref().is_some_and(|filter| !filter.may_contain(hash))
    }

    /// Asks for what [`RunHandle::lacks`] will read.
    #[inline]
    pub fn prefetch_filter(&self, hash: u64) {
        if let Some(filter) = &self.filter {
            filter.prefetch(hash);
        }
    }

    /// Notes a read that [`is_counted`] and had to ask the run by itself; it took as long as so many gets.
    pub fn note_read(&self, gets: u64) {
        self.reads.fetch_add(gets * READS_PER_COUNT, Ordering::Relaxed);
    }

    /// About how many gets had to ask it by itself since it was opened, or other reads that took as long.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Bytes of memory that stay taken while the run is open, its view included.
    pub fn resident_bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, KeyFilter::bytes);
        self.run().resident_bytes() + self.view.get().map_or(0, |v| v.resident_bytes()) + filter
    }
}

/// A view that is asked first for a key, and its runs.
#[derive(Clone, Copy, Debug)]
pub struct FirstView<'a> {
    /// The view.
    pub view: &'a View,
    /// Its runs.
    pub runs: &'a [Arc<Run>],
    /// Whether nothing else can have the key. If not, what the view has of it is newer.
    pub is_only: bool,
    /// The run, if it is that of one that stands apart beside others: reads of such are counted.
    pub apart: Option<&'a RunHandle>,
}

/// Of each of these runs, told by the least and the greatest number they have and newest first by the latter: whether all that it has is newer than all that the
/// runs after it have, and than this number.
fn are_newest(sequences: &[(SequenceNumber, SequenceNumber)], view_max_sequence: SequenceNumber) -> Box<[bool]> {
    let mut older = view_max_sequence;
    let mut are_newest: Box<[bool]> = sequences.iter().map(|_| false).collect();
    for (&(least, greatest), is_newest) in sequences.iter().zip(&mut are_newest).rev() {
        *is_newest = least > older;
        older = older.max(greatest);
    }
    are_newest
}

/// How many of the loose runs, oldest first, lie before or after the keys of all that come before them, and of all `runs`, up to the first that does not.
fn adding_runs(runs: &[Arc<RunHandle>], loose: &[Arc<RunHandle>]) -> usize {
    let range = |handle: &Arc<RunHandle>| {
        let meta = handle.run().meta();
        (meta.smallest.clone(), meta.largest.clone())
    };
    adding(runs.iter().map(range), loose.iter().map(range))
}

/// The same of ranges of keys, both ends included.
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

/// A key range and its runs, open.
#[derive(Debug)]
pub struct Partition {
    /// Its number.
    pub id: u64,
    /// What the manifest says of it.
    pub layout: PartitionLayout,
    /// The runs of the view, by selector; all of them are in `apart` when there is no view.
    pub runs: Vec<Arc<RunHandle>>,
    /// The same runs, as the view wants them.
    pub view_runs: Arc<[Arc<Run>]>,
    /// The view over `runs`.
    pub view: Option<Arc<View>>,
    /// The runs that are read through their own views, newest first by their highest sequence number.
    pub apart: Vec<Arc<RunHandle>>,
    /// All range tombstones of all runs; `None` if there are none, which is the common case.
    pub tombstones: Option<Arc<RangeTombstoneSet>>,
    /// Of each run in `apart`, whether all that it has is newer than all that those after it and the view have.
    are_newest: Box<[bool]>,
    /// The highest sequence number in the view.
    pub view_max_sequence: SequenceNumber,
    /// Whether all there is to ask is one view: its own, or that of its only run.
    is_plain: bool,
    /// How many loose runs, from the oldest on, lie before or after all that is older, so that no key of theirs stands in two.
    adding: usize,
    /// Of runs that reach past the key range: which share lies within it, in per mille. Counted when first asked for.
    shares: OnceLock<HashMap<FileNumber, u64>>,
}

impl Partition {
    /// A partition of open runs. `loose` is oldest first, as in the layout.
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

    /// The key range.
    pub fn bounds(&self) -> Bounds {
        Bounds { start: self.layout.start.clone(), end: self.layout.end.clone() }
    }

    /// The view that most of its entries are in, and its runs: its own or, without one, that of its only run, if it was
    /// opened before.
    #[inline]
    pub fn main_view(&self) -> Option<(&View, &[Arc<Run>])> {
        match (&self.view, &self.apart[..]) {
            (Some(view), _) => Some((view, &self.view_runs)),
            (None, [only]) => Some((only.view.get()?, &only.alone)),
            _ => None,
        }
    }

    /// Opens the main view, if it is that of the only run.
    pub fn open_main_view(&self) -> Result<()> {
        match (&self.view, &self.apart[..]) {
            (None, [only]) => only.view().map(|_| ()),
            _ => Ok(()),
        }
    }

    /// The main view, if there is nothing else to ask: neither runs apart nor range tombstones.
    #[inline]
    pub fn only_view(&self) -> Option<(&View, &[Arc<Run>])> {
        if self.is_plain { self.main_view() } else { None }
    }

    /// The view to ask first for a key with this hash, if what it has of the key is newer than all that others have. Filters tell which runs that stand
    /// apart may have it. `None` if more must be asked, or that view was not opened before.
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

    /// All views that are open, and their runs.
    pub fn open_views(&self) -> impl Iterator<Item = (&View, &[Arc<Run>])> {
        let own = self.view.as_ref().map(|view| (&**view, &*self.view_runs));
        let apart = self.apart.iter().filter_map(|handle| Some((&**handle.view.get()?, &*handle.alone)));
        own.into_iter().chain(apart)
    }

    /// The newest range tombstone at or below `snapshot` that covers `key`; 0 if there is none.
    pub fn newest_covering(&self, key: &[u8], snapshot: SequenceNumber) -> SequenceNumber {
        self.tombstones.as_ref().map_or(0, |set| set.newest_covering(key, snapshot))
    }

    /// How many entries the view has, and how many of them are stale or tombstones. Without a view, of the oldest run
    /// alone; `None` if there is no run, or its own view cannot be read.
    pub fn counts(&self) -> Option<(u64, u64)> {
        let meta = match (&self.view, self.apart.last()) {
            (Some(view), _) => view.meta().clone(),
            (None, Some(oldest)) => oldest.view().ok()?.meta().clone(),
            (None, None) => return None,
        };
        Some((meta.entries, meta.stale + meta.tombstones))
    }

    /// Which share of a run's entries lies within the key range, in per mille. The first call for a partition may read
    /// from the views of runs that reach past it.
    pub fn share_per_mille(&self, handle: &RunHandle) -> u64 {
        if self.holds_all_of(handle) {
            return 1000;
        }
        let shares = self.shares.get_or_init(|| {
            let others = self.all_runs().filter(|h| !self.holds_all_of(h));
            // A run that cannot be read is nothing to plan by; reading it tells of the damage.
            others.map(|h| (h.run().meta().number, self.count_share(h).unwrap_or(1000))).collect()
        });
        shares.get(&handle.run().meta().number).copied().unwrap_or(1000)
    }

    fn holds_all_of(&self, handle: &RunHandle) -> bool {
        let (meta, layout) = (handle.run().meta(), &self.layout);
        // A range tombstone may end where the partition does.
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

    /// All its runs, those of the view first.
    pub fn all_runs(&self) -> impl Iterator<Item = &Arc<RunHandle>> {
        let loose = self
            .layout
            .loose
            .iter()
            .filter_map(|number| self.apart.iter().find(|handle| handle.run().meta().number == *number));
        self.runs.iter().chain(loose)
    }

    /// All views that a read merges, each with its runs.
    pub fn all_views(&self) -> Result<Vec<ViewOfRuns>> {
        let mut views: Vec<_> = self.view.iter().map(|view| (Arc::clone(view), Arc::clone(&self.view_runs))).collect();
        for handle in &self.apart {
            views.push((Arc::clone(handle.view()?), Arc::clone(handle.alone())));
        }
        Ok(views)
    }

    /// How many loose runs it has, where it is asked whether they are too many. A third of them if none lies over another, nor over the view: then a
    /// read seldom has to look into more than one of them, and none of their entries supersedes another.
    pub fn loose_weight(&self) -> usize {
        let loose = self.layout.loose.len();
        let only_adds = self.adding == loose && self.tombstones.is_none();
        if only_adds { loose.div_ceil(ADDED_PER_WEIGHT) } else { loose }
    }

    /// How many loose runs, from the oldest on, have no key that anything older has: where there is no view, what a merge of all has left among them.
    pub fn adding_runs(&self) -> usize {
        self.adding
    }

    /// The loose runs, oldest first.
    pub fn loose_runs(&self) -> Vec<Arc<RunHandle>> {
        self.all_runs().skip(self.runs.len()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{adding, are_newest};

    #[test]
    fn a_run_that_lies_over_an_older_one_is_told() {
        for (runs, loose, expected) in [
            (&[][..], &[][..], 0),
            (&[], &[(3, 5)], 1),
            (&[], &[(3, 5), (6, 6), (7, 9)], 3),
            // Before what there is, and after it.
            (&[(5, 7), (4, 9)], &[(10, 12), (1, 3)], 2),
            // One of their keys is the same.
            (&[(5, 7)], &[(7, 9)], 0),
            (&[(5, 7)], &[(1, 5)], 0),
            (&[(5, 7)], &[(8, 9), (9, 10), (11, 12)], 1),
            // Between two, which may be where nothing is, but is not told from one that lies over them.
            (&[(1, 2), (8, 9)], &[(4, 5)], 0),
            (&[], &[(1, 2), (8, 9), (4, 5)], 2),
            (&[(5, 6)], &[(1, 9)], 0),
            (&[(1, 9)], &[(5, 6)], 0),
        ] {
            assert_eq!(adding(runs.iter().copied(), loose.iter().copied()), expected, "{loose:?} on {runs:?}");
        }
    }

    #[test]
    fn runs_whose_numbers_reach_back_are_not_the_newest() {
        for (sequences, view, expected) in [
            (&[][..], 7, &[][..]),
            (&[(8, 9)], 7, &[true]),
            (&[(7, 9)], 7, &[false]),
            // Nothing but the runs.
            (&[(5, 9), (1, 4)], 0, &[true, true]),
            // One that was merged of those before and after the next.
            (&[(1, 9), (3, 4)], 0, &[false, true]),
            (&[(1, 9), (3, 4)], 3, &[false, false]),
            // Of a commit that stands in two.
            (&[(4, 9), (2, 4)], 1, &[false, true]),
            // The last reaches further than the one between.
            (&[(20, 30), (11, 19), (5, 18)], 4, &[true, false, true]),
        ] {
            assert_eq!(&*are_newest(sequences, view), expected, "{sequences:?} over {view}");
        }
    }
}
