//! Flush: writes a frozen memtable to runs, in one pass over all partitions and for one edit.
//!
//! A partition with enough new data gets its own run (Minor). The other partitions share one run
//! (Residue), an unindexed run read within their bounds. That avoids thousands of tiny files in a
//! database much larger than a memtable.

use super::{JobContext, Sieve, VersionFilter, output::RunOutput};
use crate::{
    base::{EntryRef, RangeTombstone, RangeTombstoneSet, Result},
    memtable::Memtable,
    table::RunMeta,
    version::{Partition, Version},
    view::Bounds,
};
use std::sync::Arc;

/// Maximum bytes of one write. Longer writes use huge pages, which are slow to get when memory is
/// scarce and would delay the flush.
const WRITE_BYTES_MAX: usize = 512 << 10;
/// Bytes from which a run is written like the output of merges: it is merged late, and commits do
/// not wait for it.
const LASTING_BYTES_MIN: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub struct FlushOutput {
    pub run: RunMeta,
    /// Partitions with entries or range tombstones in the run.
    pub partitions: Vec<u64>,
}

fn is_before_end(partition: &Partition, key: &[u8]) -> bool {
    partition.layout.end.as_deref().is_none_or(|end| key < end)
}

pub(super) fn clip(tombstone: &RangeTombstone, bounds: &Bounds) -> Option<RangeTombstone> {
    let start = tombstone.start.clone().max(bounds.start.clone());
    let end = match &bounds.end {
        Some(end) => tombstone.end.clone().min(end.clone()),
        None => tombstone.end.clone(),
    };
    (start < end).then_some(RangeTombstone { start, end, sequence: tombstone.sequence })
}

fn bytes_by_partition(memtable: &Memtable, version: &Version) -> Vec<u64> {
    let ends: Vec<Option<&[u8]>> = version.partitions.iter().map(|p| p.layout.end.as_deref()).collect();
    let counts = memtable.count_keys(&ends);
    let all: usize = counts.iter().sum();
    let bytes_per_key = memtable.raw_bytes() / all.max(1) + 1;
    counts.into_iter().map(|count| (count * bytes_per_key) as u64).collect()
}

/// Partitions with fewer than `own_run_bytes_min` bytes share a run. Syncs the files, not the
/// directory.
pub fn flush(
    context: &JobContext<'_>,
    memtable: &Arc<Memtable>,
    version: &Version,
    own_run_bytes_min: u64,
) -> Result<Vec<FlushOutput>> {
    let tombstones = memtable.range_tombstones().unwrap_or_default();
    let bytes = bytes_by_partition(memtable, version);
    let mut shared = Group::new(context);
    let mut outputs = Vec::new();
    let mut sieve = Sieve::new(VersionFilter::new(&context.strata, &tombstones), context.functions);
    let mut scan = memtable.scan();
    let mut more = scan.advance();
    let single = version.partitions.len() == 1;
    for (partition, &partition_bytes) in version.partitions.iter().zip(&bytes) {
        let bounds = partition.bounds();
        let clipped: Vec<RangeTombstone> = tombstones.iter().filter_map(|t| clip(t, &bounds)).collect();
        if partition_bytes == 0 && clipped.is_empty() {
            continue;
        }
        let own = single || partition_bytes >= own_run_bytes_min;
        let mut own_group = own.then(|| match partition_bytes {
            LASTING_BYTES_MIN.. => Group::of(context, RunOutput::new(context)),
            _ => Group::new(context),
        });
        let group = own_group.as_mut().unwrap_or(&mut shared);
        group.partitions.push(partition.id);
        clipped.into_iter().for_each(|t| group.output.add_range_tombstone(t));
        // Without older runs a tombstone hides nothing.
        let droppable = partition.all_runs().next().is_none();
        while more && is_before_end(partition, scan.entry().key) {
            group.add(scan.entry(), &mut sieve, droppable)?;
            more = scan.advance();
        }
        group.add_held(&mut sieve, droppable)?;
        if let Some(group) = own_group {
            group.finish(version, &mut outputs)?;
        }
    }
    shared.finish(version, &mut outputs)?;
    Ok(outputs)
}

struct Group<'a> {
    context: &'a JobContext<'a>,
    output: RunOutput<'a>,
    partitions: Vec<u64>,
}

impl<'a> Group<'a> {
    fn new(context: &'a JobContext<'a>) -> Group<'a> {
        Group::of(context, RunOutput::new(context).in_writes_of(WRITE_BYTES_MAX))
    }

    fn of(context: &'a JobContext<'a>, output: RunOutput<'a>) -> Group<'a> {
        Group { context, output: output.standing_apart(), partitions: Vec::new() }
    }

    fn add(&mut self, entry: EntryRef<'_>, sieve: &mut Sieve<'_>, droppable: bool) -> Result<()> {
        let entry = &self.context.judged(entry);
        if sieve.holds_other_than(entry.key) {
            self.add_held(sieve, droppable)?;
        }
        // All versions in runs are older.
        if sieve.judge(entry, |_, _| false) { self.output.add(entry, droppable) } else { Ok(()) }
    }

    fn add_held(&mut self, sieve: &mut Sieve<'_>, droppable: bool) -> Result<()> {
        sieve.finish(|_, _| droppable).iter().try_for_each(|held| self.output.add(&held.entry(), droppable))
    }

    /// Each piece of a cut run goes to the partitions that it overlaps.
    fn finish(self, version: &Version, outputs: &mut Vec<FlushOutput>) -> Result<()> {
        for run in self.output.finish()? {
            let reaches = |partition: &Partition| {
                is_before_end(partition, &run.smallest) && partition.layout.start <= run.largest
            };
            let partitions = version
                .partitions
                .iter()
                .filter(|p| self.partitions.contains(&p.id) && reaches(p))
                .map(|p| p.id)
                .collect();
            outputs.push(FlushOutput { run, partitions });
        }
        Ok(())
    }
}

pub(super) fn clipped_tombstones(sets: &[Arc<RangeTombstoneSet>], partition: &Partition) -> Vec<RangeTombstone> {
    let bounds = partition.bounds();
    sets.iter().flat_map(|set| set.iter()).filter_map(|t| clip(t, &bounds)).collect()
}
