//! Divides a partition at the runs of a load without rewriting data.
//!
//! A partition can be cut at a key only if its view and all view runs stay on one side. A small
//! unindexed run may reach into several parts.

use crate::{base::FileNumber, table::RunMeta, version::PartitionLayout, view::ViewMeta};
use std::collections::BTreeMap;

/// Divisor: an unindexed run may be shared if it is smaller than this part of a partition.
const SHARED_PART: u64 = 8;

pub struct Existing<'a> {
    pub partition: &'a PartitionLayout,
    pub runs: &'a BTreeMap<FileNumber, RunMeta>,
}

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

    fn can_be_cut(&self, key: &[u8], part_bytes: u64) -> bool {
        let lies_across = |run: &RunMeta| run.smallest.as_slice() < key && key <= run.largest.as_slice();
        let is_large = |run: &RunMeta| run.file_bytes * SHARED_PART > part_bytes;
        let before = self.metas(&self.partition.runs).filter(|run| run.smallest.as_slice() < key).count();
        let view_is_whole = before == 0 || before == self.partition.runs.len();
        view_is_whole
            && !self.metas(&self.partition.runs).any(lies_across)
            && !self.metas(&self.partition.loose).any(|run| lies_across(run) && is_large(run))
    }

    fn bytes_between(&self, from: &[u8], to: &[u8]) -> u64 {
        let all = self.metas(&self.partition.runs).chain(self.metas(&self.partition.loose));
        let begins = |run: &&RunMeta| {
            let smallest = run.smallest.as_slice().max(&self.partition.start);
            from <= smallest && smallest < to
        };
        all.filter(begins).map(|run| run.file_bytes).sum()
    }
}

/// Chooses cuts before runs of the load, after enough data for a partition.
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
        let left: u64 = new[index + 1..].iter().map(|run| run.file_bytes).sum();
        if left < part_bytes / 2 {
            break;
        }
    }
    cuts
}

/// Returns the parts of a partition for these sorted runs; a single part means no division.
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
