//! Planner: selects the next job of a partition from sizes and counts alone.
//!
//! - *Rebuild*: the view is missing or damaged.
//! - *Major*, all runs: too much garbage, or entries that expired too long ago.
//! - *Major*, all unindexed and all sparse runs: their files are mostly garbage, shared with
//!   partitions that dropped them.
//! - *Cut*: the partition is too large and a key separates its runs (keys that grow with time).
//! - *Split*: the partition is too large. If one key exceeds a partition, that gives one part;
//!   retry after growth by half.
//! - *`Loose`*: many unindexed runs with little data, too little to pay for rewriting the view.
//! - *Fold*: enough new data, or reads of unindexed runs cost as much. No entry is rewritten.
//! - *Major*, all runs, while idle: every range is spread over the runs. Writes at most 1.5 entries
//!   for each new one.
//! - *Major*, the smallest runs, while idle: the view has too many.
//! - *Major*, some runs: the view would have too many runs. Merge the unindexed ones, and if the
//!   view is full also the smallest half of its runs: small runs are merged often, large ones
//!   seldom.

use crate::base::FileNumber;

/// Cost of probing an unindexed run in a get.
const LOOSE_READ_NS: u64 = 150;
/// Cost of a fold for each entry of the view.
const VIEW_ENTRY_NS: u64 = 20;
const NEW_ENTRY_NS: u64 = 600;
const FOLD_NS_MIN: u64 = 5_000_000;

/// A partition is spread if it has this many times the size of its largest run.
const PIECES: u64 = 3;

#[derive(Clone, Debug, PartialEq)]
pub struct RunShape {
    pub number: FileNumber,
    /// Bytes, of a shared run only this partition's share; so are `entries` and `blocks`.
    pub bytes: u64,
    pub entries: u64,
    pub blocks: u64,
    /// The file is mostly garbage of other partitions: moving the remaining entries out pays.
    pub is_sparse: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ViewShape {
    pub entries: u64,
    /// Stale entries, tombstones, and about the number of expired ones.
    pub dead: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PartitionShape {
    pub runs: Vec<RunShape>,
    pub loose: Vec<RunShape>,
    /// Number to compare with `loose_max`: smaller if the runs do not overlap.
    pub loose_weight: usize,
    /// Number of the oldest unindexed runs whose keys occur in nothing older.
    pub loose_adding: usize,
    /// Gets that probed unindexed runs; other reads count by duration.
    pub loose_reads: u64,
    pub has_view: bool,
    /// Counts of the view, or of the oldest run's view.
    pub counts: Option<ViewShape>,
    /// Garbage that snapshots pinned at the last merge. `u64::MAX`: never choose the partition.
    pub dead_held: u64,
    /// Separates the runs, at least a quarter of the bytes on each side, if the partition is too
    /// large.
    pub cut: Option<Vec<u8>>,
    /// A cut key exists. Computed while idle; otherwise `true`.
    pub is_in_order: bool,
    /// Time since the first entry expired; 0 if none has.
    pub expired_for_us: u64,
    pub expired: u64,
    /// Bytes when a split last gave only one part, else 0.
    pub unsplit_bytes: u64,
    /// A blob file that its runs refer to is to be dropped.
    pub relocate_blobs: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlanOptions {
    pub partition_bytes_max: u64,
    pub partition_blocks_max: u64,
    pub merged_blocks_max: u64,
    pub loose_max: usize,
    /// A fold pays from this many new bytes for each entry of the new view.
    pub fold_bytes_per_entry: u64,
    pub view_runs_max: usize,
    pub view_runs_max_idle: usize,
    pub dead_percent_max: u64,
    pub expired_for_us_max: u64,
    /// The same if they are one percent of all entries; inversely proportional to their share.
    pub expired_hundredth_for_us_max: u64,
    pub idle: bool,
    /// The disk was not full recently. Optional merges need it.
    pub has_space: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    Rebuild,
    /// Two partitions share the runs; the second begins at `at`.
    Cut {
        at: Vec<u8>,
    },
    /// Merge everything into partitions of a fraction of the maximum size.
    Split,
    /// Merge the first keys into a partition, after the disk was too full to merge everything.
    Prefix,
    Loose {
        inputs: Vec<FileNumber>,
    },
    /// Write one run again, without its garbage and without keys of other partitions.
    Rewrite {
        run: FileNumber,
    },
    /// Merge these runs into one of the view; fold the other unindexed runs into it.
    Major {
        inputs: Vec<FileNumber>,
    },
    Fold,
}

/// Best key for [`PartitionShape::cut`]. Each run is (first key, last key, bytes).
pub fn best_cut<'a>(mut runs: Vec<(&'a [u8], &'a [u8], u64)>) -> Option<&'a [u8]> {
    runs.sort_unstable();
    let all: u64 = runs.iter().map(|run| run.2).sum();
    let (mut left, mut last): (u64, &[u8]) = (0, &[]);
    let mut best: Option<(u64, &[u8])> = None;
    for &(first_key, last_key, bytes) in &runs {
        let smaller = left.min(all - left);
        if left > 0 && last < first_key && smaller >= all / 4 && best.is_none_or(|(most, _)| smaller > most) {
            best = Some((smaller, first_key));
        }
        left += bytes;
        last = last.max(last_key);
    }
    best.map(|(_, key)| key)
}

/// Selects the partition with the highest garbage share if garbage exceeds `percent_max` of all
/// entries: it frees most space per byte written. To merge data rather than fold it first, each
/// unindexed entry is assumed to supersede another; but only known garbage makes a partition
/// eligible.
pub fn deadest<'a>(shapes: impl Iterator<Item = &'a PartitionShape>, percent_max: u64) -> Option<usize> {
    let (mut entries, mut dead) = (0, 0);
    let mut most = None;
    for (index, shape) in shapes.enumerate() {
        let Some(counts) = &shape.counts else { continue };
        let loose: u64 = shape.loose.iter().map(|r| r.entries).sum();
        let loose = if shape.has_view && shape.dead_held < u64::MAX { loose } else { 0 };
        entries += counts.entries + loose;
        dead += counts.dead.saturating_sub(shape.dead_held) + loose;
        // The smallest may already free enough.
        let rank = (dead_percent(shape), std::cmp::Reverse(counts.entries));
        if rank.0 > percent_max && most.is_none_or(|(most, _)| rank > most) {
            most = Some((rank, index));
        }
    }
    most.filter(|_| dead * 100 > entries * percent_max).map(|(_, index)| index)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadEstimate {
    /// Garbage share without `released`.
    pub per_mille: u64,
    /// Set if garbage with `released` exceeds the limit and the highest share half the limit.
    pub deadest: Option<usize>,
}

/// Estimates garbage under write load, and selects the partition to merge. `superseding_per_mille`
/// of 1000 unindexed entries supersede another (tombstones count twice). `released` counts entries
/// in files that no partition reads any more.
pub fn estimate_dead<'a>(
    shapes: impl Iterator<Item = &'a PartitionShape>,
    (percent_max, superseding_per_mille, released): (u64, u64, u64),
) -> DeadEstimate {
    let (mut entries, mut dead) = (0, 0);
    let mut most = None;
    for (index, shape) in shapes.enumerate() {
        let Some(counts) = &shape.counts else { continue };
        let own: u64 = all(shape).map(|r| r.entries).sum();
        let new: u64 = shape.loose.iter().skip(shape.loose_adding).map(|r| r.entries).sum();
        let new = if shape.dead_held < u64::MAX { new } else { 0 };
        let own_dead = counts.dead.saturating_sub(shape.dead_held) + new * superseding_per_mille / 1000;
        entries += own;
        dead += own_dead.min(own);
        let rank = (own_dead * 1000 / own.max(1), std::cmp::Reverse(own));
        if rank.0 > 5 * percent_max && most.is_none_or(|(most, _)| rank > most) {
            most = Some((rank, index));
        }
    }
    let per_mille = dead * 1000 / entries.max(1);
    let is_too_much = (dead + released) * 100 > (entries + released) * percent_max;
    DeadEstimate { per_mille, deadest: most.filter(|_| is_too_much).map(|(_, index)| index) }
}

pub fn plan(shape: &PartitionShape, options: &PlanOptions) -> Option<Plan> {
    let count = shape.runs.len() + shape.loose.len();
    let bytes: u64 = all(shape).map(|r| r.bytes).sum();
    if is_too_dead(shape, options) || shape.relocate_blobs || is_expired_too_long(shape, options) {
        return Some(Plan::Major { inputs: all(shape).map(|r| r.number).collect() });
    }
    let sparse: Vec<FileNumber> = shape.runs.iter().filter(|r| r.is_sparse).map(|r| r.number).collect();
    if !sparse.is_empty() || shape.loose.iter().any(|r| r.is_sparse) {
        return Some(Plan::Major { inputs: shape.loose.iter().map(|r| r.number).chain(sparse).collect() });
    }
    let blocks: u64 = all(shape).map(|r| r.blocks).sum();
    let is_too_large = (live_bytes(shape) > options.partition_bytes_max || blocks > options.partition_blocks_max)
        && bytes > shape.unsplit_bytes + shape.unsplit_bytes / 2;
    if count > 1 && is_too_large {
        return Some(shape.cut.clone().map_or(Plan::Split, |at| Plan::Cut { at }));
    }
    if !shape.has_view && !shape.runs.is_empty() {
        return Some(Plan::Rebuild);
    }
    // A single run uses the view in its file.
    let foldable = count > 1 && !shape.loose.is_empty();
    // From half of the allowed garbage on, a merge of everything comes soon and would write entries
    // merged now again.
    let is_rewrite_near = dead_percent(shape) * 2 >= options.dead_percent_max;
    let everything = || Plan::Major { inputs: all(shape).map(|r| r.number).collect() };
    // Below a quarter of the allowed garbage.
    let is_lasting = dead_percent(shape) * 4 < options.dead_percent_max;
    if options.idle && options.has_space && is_lasting && !shape.is_in_order && is_in_pieces(shape) {
        return Some(everything());
    }
    if options.idle && options.has_space && shape.loose.is_empty() && count > options.view_runs_max_idle {
        let smallest = smallest(&shape.runs, count - options.view_runs_max_idle + 1);
        let inputs = fitting(&smallest, options.merged_blocks_max);
        // The inputs must become fewer.
        if inputs.len() >= 2 {
            return Some(Plan::Major { inputs });
        }
    }
    let is_read = is_read_often(shape) && count <= options.view_runs_max;
    if !foldable || (shape.loose_weight < options.loose_max && !options.idle && !is_read) {
        return None;
    }
    let (base, newer) = base_and_newer(shape);
    let newer_bytes: u64 = newer.iter().map(|r| r.bytes).sum();
    let entries: u64 = all(shape).map(|r| r.entries).sum();
    if !options.idle && !is_read && newer_bytes < entries.saturating_mul(options.fold_bytes_per_entry) {
        let inputs = newest(newer, options.merged_blocks_max);
        // The inputs must become fewer.
        if inputs.len() >= 2 {
            return Some(Plan::Loose { inputs });
        }
    }
    if count <= options.view_runs_max {
        return Some(Plan::Fold);
    }
    if is_rewrite_near {
        return Some(everything());
    }
    Some(Plan::Major { inputs: cheapest(base, newer, options) })
}

/// No run has more than a third of the entries or bytes: a merge writes at most 1.5 times the data
/// added since one run was the whole partition. False if a merge of everything gave several runs
/// before.
fn is_in_pieces(shape: &PartitionShape) -> bool {
    let is_spread = |size: fn(&RunShape) -> u64| {
        let largest = all(shape).map(size).max().unwrap_or(0);
        largest > 0 && all(shape).map(size).sum::<u64>() >= PIECES * largest
    };
    shape.unsplit_bytes == 0 && is_spread(|run| run.entries) && is_spread(|run| run.bytes)
}

fn is_read_often(shape: &PartitionShape) -> bool {
    let entries: u64 = all(shape).map(|r| r.entries).sum();
    let newer: u64 = shape.loose.iter().map(|r| r.entries).sum();
    shape.loose_reads * LOOSE_READ_NS >= (entries * VIEW_ENTRY_NS + newer * NEW_ENTRY_NS).max(FOLD_NS_MIN)
}

fn live_bytes(shape: &PartitionShape) -> u64 {
    let counted = if shape.has_view { shape.runs.as_slice() } else { shape.loose.get(..1).unwrap_or_default() };
    let counted: u64 = counted.iter().map(|r| r.bytes).sum();
    all(shape).map(|r| r.bytes).sum::<u64>() - counted * dead_percent(shape) / 100
}

fn dead_percent(shape: &PartitionShape) -> u64 {
    let Some(counts) = &shape.counts else { return 0 };
    (counts.dead.saturating_sub(shape.dead_held) * 100).checked_div(counts.entries).unwrap_or(0)
}

fn all(shape: &PartitionShape) -> impl Iterator<Item = &RunShape> {
    shape.runs.iter().chain(&shape.loose)
}

fn is_too_dead(shape: &PartitionShape, options: &PlanOptions) -> bool {
    let Some(counts) = &shape.counts else { return false };
    let dead = counts.dead.saturating_sub(shape.dead_held);
    dead * 100 > counts.entries * options.dead_percent_max
}

fn is_expired_too_long(shape: &PartitionShape, options: &PlanOptions) -> bool {
    let entries: u64 = all(shape).map(|r| r.entries).sum();
    let waited = u128::from(shape.expired_for_us) * u128::from(shape.expired) * 100;
    let most = u128::from(options.expired_hundredth_for_us_max) * u128::from(entries);
    shape.expired_for_us >= options.expired_for_us_max || (shape.expired > 0 && waited >= most)
}

/// Without a view, the oldest unindexed run serves as one if it is larger than all newer ones
/// together.
fn base_and_newer(shape: &PartitionShape) -> (&[RunShape], &[RunShape]) {
    match shape.loose.split_first() {
        Some((first, rest)) if shape.runs.is_empty() && first.bytes > rest.iter().map(|r| r.bytes).sum() => {
            shape.loose.split_at(1)
        }
        _ => (&shape.runs, &shape.loose),
    }
}

/// The two newest, and older ones while each is no larger than all newer ones together.
fn newest(loose: &[RunShape], blocks_max: u64) -> Vec<FileNumber> {
    let (mut inputs, mut bytes, mut blocks) = (Vec::new(), 0, 0);
    for run in loose.iter().rev() {
        if (inputs.len() >= 2 && run.bytes > bytes) || blocks + run.blocks > blocks_max {
            break;
        }
        inputs.push(run.number);
        bytes += run.bytes;
        blocks += run.blocks;
    }
    inputs
}

fn cheapest(base: &[RunShape], newer: &[RunShape], options: &PlanOptions) -> Vec<FileNumber> {
    let mut inputs: Vec<FileNumber> = newer.iter().map(|r| r.number).collect();
    // Merging the unindexed runs suffices if the view has room for one more.
    if base.len() < options.view_runs_max {
        return inputs;
    }
    inputs.extend(smallest(base, base.len() - options.view_runs_max / 2).iter().map(|r| r.number));
    inputs
}

fn smallest(runs: &[RunShape], count: usize) -> Vec<&RunShape> {
    let mut runs: Vec<&RunShape> = runs.iter().collect();
    runs.sort_by_key(|r| r.bytes);
    runs.truncate(count);
    runs
}

/// The first runs that a merge writes as one.
fn fitting(runs: &[&RunShape], blocks_max: u64) -> Vec<FileNumber> {
    let mut blocks = 0;
    let fits = runs.iter().take_while(|run| {
        blocks += run.blocks;
        blocks <= blocks_max
    });
    fits.map(|run| run.number).collect()
}
