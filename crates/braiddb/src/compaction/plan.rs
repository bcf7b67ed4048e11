//! Plans: what to do with a partition, decided from sizes and counts alone.
//!
//! - *Rebuild*: the view is missing or damaged; braid it anew from the runs.
//! - *Major*, all runs: too many entries are dead, or one has been expired for too long.
//! - *Major*, all loose runs and those that are sparse: files shared with partitions that have let them go.
//! - *Cut*: the partition has grown too large, and there is a key between its runs, as where keys grow with time: each
//!   side keeps its runs as they are.
//! - *Split*: the partition has grown too large; merge everything and cut it into several. If that gave one part, as of
//!   a key larger than a partition, then not again before it has grown by half.
//! - *Loose*: there are many loose runs, but little is in them; merge the newest into one. A view costs its whole length
//!   to write, so it waits until it gets enough.
//! - *Fold*: the loose runs go into the view, and no entry is rewritten. Sooner if readers ask them so often that this pays.
//! - *Major*, all runs, while idle: none of them holds much of the partition, so that every range is in pieces. For each entry that was new, one
//!   and a half are written at the most.
//! - *Major*, some runs: the view would get too many runs; merge the loose ones into one, and once the view is full the
//!   smallest half of its runs with them. So small runs are merged often, large ones seldom.

use crate::base::FileNumber;

/// About what a get pays for a loose run, in nanoseconds.
const LOOSE_READ_NS: u64 = 150;
/// About what a fold pays for each entry of the view, and for each that is new in it.
const VIEW_ENTRY_NS: u64 = 20;
const NEW_ENTRY_NS: u64 = 600;
/// What it pays for the new files, at least.
const FOLD_NS_MIN: u64 = 5_000_000;

/// A partition is in pieces if it has so many times what its largest run has.
const PIECES: u64 = 3;

/// A run, for planning.
#[derive(Clone, Debug, PartialEq)]
pub struct RunShape {
    /// Its number.
    pub number: FileNumber,
    /// Its bytes within this partition; a shared run counts with its share.
    pub bytes: u64,
    /// Its entries within this partition, likewise.
    pub entries: u64,
    /// Its blocks within this partition, likewise.
    pub blocks: u64,
    /// Whether much of its file belongs to partitions that have let it go: what is left is worth moving out.
    pub is_sparse: bool,
}

/// What a view counts, for planning.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewShape {
    /// All its entries.
    pub entries: u64,
    /// Those that are stale or tombstones, and about as many as have expired.
    pub dead: u64,
}

/// A partition, for planning.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionShape {
    /// The runs of the view.
    pub runs: Vec<RunShape>,
    /// The loose runs, oldest first.
    pub loose: Vec<RunShape>,
    /// How many loose runs count where it is asked whether they are too many: fewer than there are, if none lies over another.
    pub loose_weight: usize,
    /// How many of them, from the oldest on, have no key that anything older has.
    pub loose_adding: usize,
    /// How many gets had to ask loose runs one by one, or other reads that took as long.
    pub loose_reads: u64,
    /// Whether there is a view over `runs`.
    pub has_view: bool,
    /// What the view counts; without one, what the oldest run's own view counts.
    pub counts: Option<ViewShape>,
    /// Dead entries that the last merge could not drop because snapshots hold them still.
    pub dead_held: u64,
    /// A key that no run lies on both sides of, with at least a quarter of the bytes on either; asked for if the partition
    /// is too large.
    pub cut: Option<Vec<u8>>,
    /// Whether there is such a key, or might be: asked for while idle.
    pub is_in_order: bool,
    /// How long ago the first of its entries expired, in microseconds; 0 if none has.
    pub expired_for_us: u64,
    /// About how many of its entries have expired.
    pub expired: u64,
    /// Its bytes when a split last gave one part, since it could not be cut; 0 if none did.
    pub unsplit_bytes: u64,
    /// Whether a blob file waits to be given up that runs of this partition refer to.
    pub relocate_blobs: bool,
}

/// When to do what.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOptions {
    /// A partition larger than this is split, in bytes.
    pub partition_bytes_max: u64,
    /// One with more blocks likewise.
    pub partition_blocks_max: u64,
    /// Loose runs with more blocks together are not merged into one.
    pub merged_blocks_max: u64,
    /// So many loose runs are too many.
    pub loose_max: usize,
    /// Loose runs are folded once they have so many bytes for each entry that the view will have.
    pub fold_bytes_per_entry: u64,
    /// The most runs in a view.
    pub view_runs_max: usize,
    /// The most that are left in a view when idle.
    pub view_runs_max_idle: usize,
    /// The most dead entries among all, in per cent.
    pub dead_percent_max: u64,
    /// What has expired is let go of after so long at the latest, in microseconds.
    pub expired_for_us_max: u64,
    /// And after so long, if it is a hundredth of all entries: sooner if it is more, later if less.
    pub expired_hundredth_for_us_max: u64,
    /// Whether the database is idle: then loose runs are folded whatever their number.
    pub idle: bool,
    /// Whether the disk was not full of late: else nothing is merged that can stay as it is.
    pub has_space: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// Braid the view anew.
    Rebuild,
    /// Divide the runs among two partitions, the second of which begins at this key. Both read a run that lies on both sides.
    Cut {
        /// The key.
        at: Vec<u8>,
    },
    /// Merge everything and cut it into partitions of an equal part of the largest size.
    Split,
    /// Merge the first keys into a partition of their own and leave the others in the old runs: where the disk has no space
    /// for a merge of everything. Only asked for after such a merge was refused.
    Prefix,
    /// Merge these loose runs, the newest, into one loose run.
    Loose {
        /// Their numbers.
        inputs: Vec<FileNumber>,
    },
    /// Merge these runs into one of the view's; loose runs that are not among them go into the view as well.
    Major {
        /// Their numbers.
        inputs: Vec<FileNumber>,
    },
    /// Fold the loose runs into the view.
    Fold,
}

/// The best key to cut at, for [`PartitionShape::cut`]: `runs` have a first key, a last key and a length in bytes.
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

/// The partition to merge next so that no more than this share of all entries is dead, in per cent: the one with the most dead
/// entries among its own, which gives back most space for what is written. `None` if there are no more.
///
/// What stands in loose runs is not counted yet. It is taken to supersede as much as it can, so that what will be merged is not
/// folded before; but only what is known to be dead makes a partition worth a merge.
pub fn deadest<'a>(shapes: impl Iterator<Item = &'a PartitionShape>, percent_max: u64) -> Option<usize> {
    let (mut entries, mut dead) = (0, 0);
    let mut most = None;
    for (index, shape) in shapes.enumerate() {
        let Some(counts) = &shape.counts else { continue };
        let loose: u64 = shape.loose.iter().map(|r| r.entries).sum();
        let loose = if shape.has_view && shape.dead_held < u64::MAX { loose } else { 0 };
        entries += counts.entries + loose;
        dead += counts.dead.saturating_sub(shape.dead_held) + loose;
        // Of those that are alike, the smallest: then there may be enough of it.
        let rank = (dead_percent(shape), std::cmp::Reverse(counts.entries));
        if rank.0 > percent_max && most.is_none_or(|(most, _)| rank > most) {
            most = Some((rank, index));
        }
    }
    most.filter(|_| dead * 100 > entries * percent_max).map(|(_, index)| index)
}

/// How much is dead of all entries, about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadEstimate {
    /// Its share, in thousandths, without what was let go of.
    pub per_mille: u64,
    /// The partition of which most is dead, if with what was let go of it is more than was asked for, and half as much in that partition.
    pub deadest: Option<usize>,
}

/// How much is dead while there are commits, and which partition to merge next so that it is no more than this share, in per cent. Unlike [`deadest`], this counts what
/// stands in runs outside of views: of a thousand of their entries so many are taken to have superseded another, tombstones twice. And
/// `let_go` entries of files that no partition reads any more.
pub fn estimate_dead<'a>(
    shapes: impl Iterator<Item = &'a PartitionShape>,
    (percent_max, superseding_per_mille, let_go): (u64, u64, u64),
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
    let is_too_much = (dead + let_go) * 100 > (entries + let_go) * percent_max;
    DeadEstimate { per_mille, deadest: most.filter(|_| is_too_much).map(|(_, index)| index) }
}

/// What to do with a partition; `None` if nothing.
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
    // One run needs no view but its own.
    let foldable = count > 1 && !shape.loose.is_empty();
    // What will be merged whole before long is not merged in part.
    let is_lasting = dead_percent(shape) * 4 < options.dead_percent_max;
    if options.idle && options.has_space && is_lasting && !shape.is_in_order && is_in_pieces(shape) {
        return Some(Plan::Major { inputs: all(shape).map(|r| r.number).collect() });
    }
    if options.idle && shape.loose.is_empty() && count > options.view_runs_max_idle && is_lasting {
        return Some(Plan::Major { inputs: smallest(&shape.runs, count - options.view_runs_max_idle + 1) });
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
        // One run alone is not merged, nor runs that would be as many afterwards.
        if inputs.len() >= 2 {
            return Some(Plan::Loose { inputs });
        }
    }
    if count <= options.view_runs_max {
        return Some(Plan::Fold);
    }
    if dead_percent(shape) * 2 >= options.dead_percent_max {
        // All would be merged soon anyhow, and these entries with it once more.
        return Some(Plan::Major { inputs: all(shape).map(|r| r.number).collect() });
    }
    Some(Plan::Major { inputs: cheapest(base, newer, options) })
}

/// Whether no run holds more than a third of the entries, nor of the bytes. Merging all of them then writes one and a half times as much as
/// was written since the largest of them was all there was. Not where a merge of all made several runs before.
fn is_in_pieces(shape: &PartitionShape) -> bool {
    let is_spread = |size: fn(&RunShape) -> u64| {
        let largest = all(shape).map(size).max().unwrap_or(0);
        largest > 0 && all(shape).map(size).sum::<u64>() >= PIECES * largest
    };
    shape.unsplit_bytes == 0 && is_spread(|run| run.entries) && is_spread(|run| run.bytes)
}

/// Whether readers have paid as much for having to ask loose runs one by one as a fold costs.
fn is_read_often(shape: &PartitionShape) -> bool {
    let entries: u64 = all(shape).map(|r| r.entries).sum();
    let newer: u64 = shape.loose.iter().map(|r| r.entries).sum();
    shape.loose_reads * LOOSE_READ_NS >= (entries * VIEW_ENTRY_NS + newer * NEW_ENTRY_NS).max(FOLD_NS_MIN)
}

/// The bytes of a partition without what is known to be dead of the view.
fn live_bytes(shape: &PartitionShape) -> u64 {
    let counted = if shape.has_view { shape.runs.as_slice() } else { shape.loose.get(..1).unwrap_or_default() };
    let counted: u64 = counted.iter().map(|r| r.bytes).sum();
    all(shape).map(|r| r.bytes).sum::<u64>() - counted * dead_percent(shape) / 100
}

/// The share of dead entries among those that are counted, without those that snapshots hold.
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

/// Whether something has been expired for so long that it must go, or so much for some time.
fn is_expired_too_long(shape: &PartitionShape, options: &PlanOptions) -> bool {
    let entries: u64 = all(shape).map(|r| r.entries).sum();
    let waited = u128::from(shape.expired_for_us) * u128::from(shape.expired) * 100;
    let most = u128::from(options.expired_hundredth_for_us_max) * u128::from(entries);
    shape.expired_for_us >= options.expired_for_us_max || (shape.expired > 0 && waited >= most)
}

/// The runs of the view, and the loose ones. Where there is no view yet, the oldest loose run is as good as one if it is
/// larger than the others together.
fn base_and_newer(shape: &PartitionShape) -> (&[RunShape], &[RunShape]) {
    match shape.loose.split_first() {
        Some((first, rest)) if shape.runs.is_empty() && first.bytes > rest.iter().map(|r| r.bytes).sum() => {
            shape.loose.split_at(1)
        }
        _ => (&shape.runs, &shape.loose),
    }
}

/// The two newest, and older ones as long as each is no larger than all that are newer; none if that is too much for one run.
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

/// All loose runs; and if the view is full, the smallest others until it is half empty.
fn cheapest(base: &[RunShape], newer: &[RunShape], options: &PlanOptions) -> Vec<FileNumber> {
    let mut inputs: Vec<FileNumber> = newer.iter().map(|r| r.number).collect();
    // The loose runs become one run; without others, if that leaves room in the view.
    if base.len() < options.view_runs_max {
        return inputs;
    }
    inputs.extend(smallest(base, base.len() - options.view_runs_max / 2));
    inputs
}

fn smallest(runs: &[RunShape], count: usize) -> Vec<FileNumber> {
    let mut runs: Vec<&RunShape> = runs.iter().collect();
    runs.sort_by_key(|r| r.bytes);
    runs.iter().take(count).map(|r| r.number).collect()
}
