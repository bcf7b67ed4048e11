//! Where the runs of a load go within a partition: how it is divided at once, so that nothing has to be written again.
//!
//! A partition can be divided at any key at which none of its runs has to be torn: a view and its runs stay on one side. A small loose run may
//! reach into several parts, as those of flushes do.

use crate::{base::FileNumber, table::RunMeta, version::PartitionLayout, view::ViewMeta};
use std::collections::BTreeMap;

/// A loose run of so small a part of a new partition may be shared.
const SHARED_PART: u64 = 8;

/// A partition as it is.
pub struct Existing<'a> {
    pub partition: &'a PartitionLayout,
    pub runs: &'a BTreeMap<FileNumber, RunMeta>,
}

/// A part of a partition.
#[derive(Debug, PartialEq)]
pub struct Place {
    pub start: Vec<u8>,
    pub end: Option<Vec<u8>>,
    pub runs: Vec<FileNumber>,
    pub loose: Vec<FileNumber>,
    pub view: Option<ViewMeta>,
}

impl Existing<'_> {
    fn metas<'s>(&'s self, numbers: &'s [FileNumber]) -> impl Iterator<Item = &'s RunMeta> {
        numbers.iter().filter_map(|number| self.runs.get(number))
    }

    /// Whether the partition may be divided before `key`.
    fn can_be_cut(&self, key: &[u8], part_bytes: u64) -> bool {
        let lies_across = |run: &RunMeta| run.smallest.as_slice() < key && key <= run.largest.as_slice();
        let is_large = |run: &RunMeta| run.file_bytes * SHARED_PART > part_bytes;
        let before = self.metas(&self.partition.runs).filter(|run| run.smallest.as_slice() < key).count();
        let view_is_whole = before == 0 || before == self.partition.runs.len();
        view_is_whole
            && !self.metas(&self.partition.runs).any(lies_across)
            && !self.metas(&self.partition.loose).any(|run| lies_across(run) && is_large(run))
    }

    /// The bytes of the runs that begin in `from..to`.
    fn bytes_between(&self, from: &[u8], to: &[u8]) -> u64 {
        let all = self.metas(&self.partition.runs).chain(self.metas(&self.partition.loose));
        let begins = |run: &&RunMeta| {
            let smallest = run.smallest.as_slice().max(&self.partition.start);
            from <= smallest && smallest < to
        };
        all.filter(begins).map(|run| run.file_bytes).sum()
    }
}

/// Where to divide: before runs of the load, where what comes before is enough for a partition.
fn cuts(existing: &Existing<'_>, new: &[&RunMeta], part_bytes: u64) -> Vec<Vec<u8>> {
    let mut cuts: Vec<Vec<u8>> = Vec::new();
    let mut bytes = 0;
    let mut from = existing.partition.start.clone();
    for (index, run) in new.iter().enumerate() {
        let key = &run.smallest;
        let before = bytes + existing.bytes_between(&from, key);
        let is_inside = *key > existing.partition.start;
        if is_inside && before >= part_bytes.max(1) && existing.can_be_cut(key, part_bytes) {
            cuts.push(key.clone());
            from.clone_from(key);
            bytes = 0;
        }
        bytes += run.file_bytes;
        // What is left over at the end makes no partition of its own.
        let left: u64 = new[index + 1..].iter().map(|run| run.file_bytes).sum();
        if left < part_bytes / 2 {
            break;
        }
    }
    cuts
}

/// The parts of a partition that these runs come into, which are in key order. One part: it is better left whole.
pub fn divide(existing: &Existing<'_>, new: &[&RunMeta], part_bytes: u64) -> Vec<Place> {
    let Existing { partition, .. } = existing;
    let mut starts = vec![partition.start.clone()];
    starts.extend(cuts(existing, new, part_bytes));
    let ends: Vec<Option<Vec<u8>>> = starts[1..].iter().cloned().map(Some).chain([partition.end.clone()]).collect();
    let mut places = Vec::new();
    for (start, end) in starts.into_iter().zip(ends) {
        let is_here = |run: &RunMeta| {
            let smallest = run.smallest.as_slice().max(&partition.start);
            start <= run.largest && end.as_ref().is_none_or(|end| smallest < end.as_slice())
        };
        let of = |numbers: &[FileNumber]| -> Vec<FileNumber> {
            existing.metas(numbers).filter(|run| is_here(run)).map(|run| run.number).collect()
        };
        let runs = of(&partition.runs);
        let mut loose = of(&partition.loose);
        loose.extend(new.iter().filter(|run| is_here(run)).map(|run| run.number));
        let view = partition.view.clone().filter(|_| !runs.is_empty());
        places.push(Place { start, end, runs, loose, view });
    }
    places
}
