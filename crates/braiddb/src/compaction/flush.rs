//! The flush: a frozen memtable becomes runs, in one pass and one edit over all partitions.
//!
//! A partition that gets enough has a run of its own (Minor). The entries of all others share one run (Residue), which
//! each of them reads as one of its loose runs, within its bounds; sharing spares thousands of tiny files when the
//! database is much larger than a memtable.

use super::{JobContext, Sieve, VersionFilter, output::RunOutput};
use crate::{
    base::{EntryRef, RangeTombstone, RangeTombstoneSet, Result},
    memtable::Memtable,
    table::RunMeta,
    version::{Partition, Version},
    view::Bounds,
};
use std::sync::Arc;

/// How much is written at once of what will be merged soon. Writes as long as huge pages cost more where memory is short of
/// them, which whoever waits for a flush would feel.
const WRITE_BYTES_MAX: usize = 512 << 10;
/// A run that is as large is not merged soon, but read for long, and whoever fills memtables as large does not wait for each: it is
/// written like the runs of merges.
const LASTING_BYTES_MIN: u64 = 64 << 20;

/// A run made by a flush, and the partitions that read it.
#[derive(Clone, Debug)]
pub struct FlushOutput {
    /// The run.
    pub run: RunMeta,
    /// The numbers of the partitions with entries or range tombstones in it.
    pub partitions: Vec<u64>,
}

/// Whether `key` lies before the end of `partition`.
fn is_before_end(partition: &Partition, key: &[u8]) -> bool {
    partition.layout.end.as_deref().is_none_or(|end| key < end)
}

/// The part of a range tombstone within the bounds, if any.
pub(super) fn clip(tombstone: &RangeTombstone, bounds: &Bounds) -> Option<RangeTombstone> {
    let start = tombstone.start.clone().max(bounds.start.clone());
    let end = match &bounds.end {
        Some(end) => tombstone.end.clone().min(end.clone()),
        None => tombstone.end.clone(),
    };
    (start < end).then_some(RangeTombstone { start, end, sequence: tombstone.sequence })
}

/// About how many bytes of keys and values each partition gets; 0 only if it gets no key.
fn bytes_by_partition(memtable: &Memtable, version: &Version) -> Vec<u64> {
    let ends: Vec<Option<&[u8]>> = version.partitions.iter().map(|p| p.layout.end.as_deref()).collect();
    let counts = memtable.count_keys(&ends);
    let all: usize = counts.iter().sum();
    let bytes_per_key = memtable.raw_bytes() / all.max(1) + 1;
    counts.into_iter().map(|count| (count * bytes_per_key) as u64).collect()
}

/// Writes all entries of a frozen memtable that any snapshot can see into runs. A partition with fewer than
/// `own_run_bytes_min` bytes shares a run with its like. The files are synced, the directory is not.
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
        // Below a partition without runs there is nothing that a tombstone could hide.
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

/// A run in the making and the partitions that get it.
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
        // All that is in runs is older.
        if sieve.judge(entry, |_, _| false) { self.output.add(entry, droppable) } else { Ok(()) }
    }

    /// Adds the versions of a key that were held back.
    fn add_held(&mut self, sieve: &mut Sieve<'_>, droppable: bool) -> Result<()> {
        sieve.finish(|_, _| droppable).iter().try_for_each(|held| self.output.add(&held.entry(), droppable))
    }

    /// A run may have been cut; each piece goes to those partitions that it reaches into.
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

/// The range tombstones of a set of runs, within a partition.
pub(super) fn clipped_tombstones(sets: &[Arc<RangeTombstoneSet>], partition: &Partition) -> Vec<RangeTombstone> {
    let bounds = partition.bounds();
    sets.iter().flat_map(|set| set.iter()).filter_map(|t| clip(t, &bounds)).collect()
}
