//! Plans: what to do with a partition, decided from sizes and counts alone.
//!
//! - *Rebuild*: the view is missing or damaged; braid it anew from the runs.
//! - *Split*: the partition has grown too large; merge everything and cut it into several.
//! - *Major*, all runs: too many entries are dead.
//! - *Fold*: the loose runs go into the view, and no entry is rewritten.
//! - *Major*, some runs: the view would get too many runs; merge the smallest ones, together with those next in size
//!   that are no larger than what is merged anyway. So each entry is rewritten about once for each doubling of its run.

use crate::base::FileNumber;

/// A run, for planning.
#[derive(Clone, Debug, PartialEq)]
pub struct RunShape {
    /// Its number.
    pub number: FileNumber,
    /// Its bytes within this partition; a shared run counts with its share.
    pub bytes: u64,
    /// Its entries within this partition, likewise.
    pub entries: u64,
}

/// What a view counts, for planning.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewShape {
    /// All its entries.
    pub entries: u64,
    /// Those that are stale or tombstones.
    pub dead: u64,
}

/// A partition, for planning.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionShape {
    /// The runs of the view.
    pub runs: Vec<RunShape>,
    /// The loose runs, oldest first.
    pub loose: Vec<RunShape>,
    /// Whether there is a view over `runs`.
    pub has_view: bool,
    /// What the view counts; without one, what the oldest run's own view counts.
    pub counts: Option<ViewShape>,
    /// Dead entries that the last merge could not drop because snapshots hold them still.
    pub dead_held: u64,
    /// Whether a blob file waits to be given up that runs of this partition refer to.
    pub relocate_blobs: bool,
}

/// When to do what.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOptions {
    /// A partition larger than this is split, in bytes.
    pub partition_bytes_max: u64,
    /// So many loose runs are folded.
    pub loose_fold: usize,
    /// The most runs in a view in steady state.
    pub view_runs_max: usize,
    /// The most dead entries among all, in per cent.
    pub dead_percent_max: u64,
    /// Whether the database is idle: then loose runs are folded whatever their number.
    pub idle: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// Braid the view anew.
    Rebuild,
    /// Merge everything and cut it into partitions of about half the largest size.
    Split,
    /// Merge these runs into one, all loose runs among them.
    Major {
        /// Their numbers.
        inputs: Vec<FileNumber>,
    },
    /// Fold the loose runs into the view.
    Fold,
}

/// What to do with a partition; `None` if nothing.
pub fn plan(shape: &PartitionShape, options: &PlanOptions) -> Option<Plan> {
    let count = shape.runs.len() + shape.loose.len();
    let bytes: u64 = all(shape).map(|r| r.bytes).sum();
    if count > 1 && bytes > options.partition_bytes_max {
        return Some(Plan::Split);
    }
    if is_too_dead(shape, options) || shape.relocate_blobs {
        return Some(Plan::Major { inputs: all(shape).map(|r| r.number).collect() });
    }
    if !shape.has_view && !shape.runs.is_empty() {
        return Some(Plan::Rebuild);
    }
    // One run needs no view but its own.
    let foldable = count > 1 && !shape.loose.is_empty();
    if !foldable || (shape.loose.len() < options.loose_fold && !options.idle) {
        return None;
    }
    if count <= options.view_runs_max {
        return Some(Plan::Fold);
    }
    Some(Plan::Major { inputs: cheapest(shape, options) })
}

fn all(shape: &PartitionShape) -> impl Iterator<Item = &RunShape> {
    shape.runs.iter().chain(&shape.loose)
}

fn is_too_dead(shape: &PartitionShape, options: &PlanOptions) -> bool {
    let Some(counts) = &shape.counts else { return false };
    let dead = counts.dead.saturating_sub(shape.dead_held);
    dead * 100 > counts.entries * options.dead_percent_max
}

/// All loose runs, then the smallest others until enough room is made, then those no larger than what is merged.
fn cheapest(shape: &PartitionShape, options: &PlanOptions) -> Vec<FileNumber> {
    let mut inputs: Vec<FileNumber> = shape.loose.iter().map(|r| r.number).collect();
    let mut bytes: u64 = shape.loose.iter().map(|r| r.bytes).sum();
    let mut rest: Vec<&RunShape> = shape.runs.iter().collect();
    rest.sort_by_key(|r| r.bytes);
    let kept_max = options.view_runs_max.saturating_sub(options.loose_fold + 1).max(1);
    let mut left = rest.len();
    for run in rest {
        if left <= kept_max && run.bytes > bytes {
            break;
        }
        inputs.push(run.number);
        bytes += run.bytes;
        left -= 1;
    }
    inputs
}
