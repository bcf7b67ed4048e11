//! Merges a partition part by part on a full disk.
//!
//! A merge of a whole partition needs space for its output before its inputs can be dropped. Here
//! only the first keys become a partition. The second partition reads the old runs within its
//! bounds. Runs that end in the first part are dropped when the edit is installed.
//!
//! INVARIANT P1: a part frees about as much space as it takes. It ends only before a key where the
//! runs with nothing at or above it, and that no other partition reads, are as large as the part.
//! Otherwise, if all runs cover the whole range, the first parts would use up the space and free
//! none.

use super::{MergePart, output::RunOutput};
use crate::{
    base::{FileNumber, RangeTombstoneSet},
    version::{Partition, RunHandle},
};
use std::{collections::BTreeSet, sync::Arc};

/// Fraction by which a part may exceed the runs that it replaces, for headers and footers.
const LOSS_FRACTION: u64 = 32;

#[derive(Debug)]
struct Input {
    number: FileNumber,
    /// Bytes freed when the run is dropped.
    bytes: u64,
    tombstones: Arc<RangeTombstoneSet>,
}

#[derive(Debug)]
pub struct Prefix {
    bytes_min: u64,
    partition_end: Option<Vec<u8>>,
    inputs: Vec<Input>,
    last_key: Vec<u8>,
    gone: Option<BTreeSet<FileNumber>>,
}

impl Prefix {
    /// `inputs` are in the order of their scans; `shared` are runs that other partitions read.
    pub fn new(
        bytes_min: u64,
        partition: &Partition,
        inputs: &[Arc<RunHandle>],
        shared: &BTreeSet<FileNumber>,
    ) -> Prefix {
        let input = |handle: &Arc<RunHandle>| {
            let meta = handle.run().meta();
            Input {
                number: meta.number,
                bytes: if shared.contains(&meta.number) { 0 } else { meta.file_bytes },
                tombstones: Arc::clone(handle.run().range_tombstones()),
            }
        };
        Prefix {
            bytes_min,
            partition_end: partition.layout.end.clone(),
            inputs: inputs.iter().map(input).collect(),
            last_key: Vec::new(),
            gone: None,
        }
    }

    /// True if the part ends before `key`, the next one. `has_entries(i)`: input `i` reaches `key`.
    pub fn ends_before(&mut self, key: &[u8], output: &RunOutput<'_>, has_entries: impl Fn(usize) -> bool) -> bool {
        if self.last_key == key {
            return false;
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        if !output.fills_part(self.bytes_min) {
            return false;
        }
        let inputs = self.inputs.iter().enumerate();
        let gone = inputs.filter(|(index, input)| !has_entries(*index) && !self.covers_from(&input.tombstones, key));
        let (mut numbers, mut freed) = (BTreeSet::new(), 0);
        for (_, input) in gone {
            numbers.insert(input.number);
            freed += input.bytes;
        }
        let is_paid = is_paid(output.bytes(), freed);
        if is_paid {
            self.gone = Some(numbers);
        }
        is_paid
    }

    /// True if a range tombstone covers a key of the partition at or above `key`.
    fn covers_from(&self, tombstones: &RangeTombstoneSet, key: &[u8]) -> bool {
        let starts_inside = |start: &[u8]| self.partition_end.as_deref().is_none_or(|end| start < end);
        tombstones.iter().any(|tombstone| tombstone.end.as_slice() > key && starts_inside(&tombstone.start))
    }

    /// `None` if the merge reached the partition's end.
    pub fn take_gone(&mut self) -> Option<BTreeSet<FileNumber>> {
        self.gone.take()
    }
}

/// INVARIANT P1.
pub fn is_paid(written: u64, freed: u64) -> bool {
    written <= freed + freed / LOSS_FRACTION
}

/// Returns the partition from `start` on, in its old runs except `gone`. Omits the view, since the
/// old one covers smaller keys.
pub fn rest_of(partition: &Partition, start: Vec<u8>, gone: &BTreeSet<FileNumber>) -> MergePart {
    let keep = |numbers: &[FileNumber]| numbers.iter().copied().filter(|number| !gone.contains(number)).collect();
    MergePart {
        start,
        end: partition.layout.end.clone(),
        runs: keep(&partition.layout.runs),
        loose: keep(&partition.layout.loose),
        ..MergePart::default()
    }
}

/// Cuts a partition at a key. Each side reads all runs that overlap it.
pub fn sides_of(partition: &Partition, at: &[u8]) -> Vec<MergePart> {
    let numbers_where = |is_gone: &dyn Fn(&[u8], &[u8]) -> bool| -> BTreeSet<FileNumber> {
        let metas = partition.all_runs().map(|handle| handle.run().meta());
        metas.filter(|meta| is_gone(&meta.smallest, &meta.largest)).map(|meta| meta.number).collect()
    };
    let start = partition.layout.start.clone();
    let left = rest_of(partition, start, &numbers_where(&|smallest, _| smallest >= at));
    let right = rest_of(partition, at.to_vec(), &numbers_where(&|_, largest| largest < at));
    vec![MergePart { end: Some(at.to_vec()), ..left }, right]
}

#[cfg(test)]
mod tests {
    use super::is_paid;

    #[test]
    fn is_paid_of_larger_part_allows_header_overhead_only() {
        assert!(!is_paid(1, 0));
        assert!(is_paid(1000, 1000));
        assert!(is_paid(33 << 10, 32 << 10));
        assert!(!is_paid((33 << 10) + 1, 32 << 10));
    }
}
