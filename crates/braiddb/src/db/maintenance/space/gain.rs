//! Estimates the space that a merge takes and frees, from the views inside runs.
//!
//! A run that several partitions read is freed by the last of their merges only, so it does not
//! count as freed. Sizes are exact to a segment of a view. Only range tombstones, garbage within a
//! run and tombstones reduce the estimate; superseded entries of other runs do not.

use super::super::install;
use crate::{
    base::{FileNumber, SequenceNumber},
    compaction::{self, Plan, droppable_runs},
    db::engine::root::Engine,
    version::{Partition, RunHandle, Version},
};
use std::{collections::HashMap, sync::Arc};

/// Above all internal keys.
const AFTER_ALL_KEYS: [u8; 5] = [0xff; 5];

pub(in crate::db::maintenance) struct SpaceGain {
    /// Number of partitions that read a run.
    readers: HashMap<FileNumber, usize>,
    oldest_snapshot: SequenceNumber,
    expired_by_us: u64,
}

/// Entries of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    entries: u64,
    bytes: u64,
    tombstones: u64,
}

impl SpaceGain {
    pub fn of(engine: &Engine, version: &Version) -> SpaceGain {
        let mut readers = HashMap::new();
        for handle in version.partitions.iter().flat_map(|partition| partition.all_runs()) {
            *readers.entry(handle.run().meta().number).or_default() += 1;
        }
        let oldest_snapshot = engine.readers.snapshots.strata()[0];
        SpaceGain { readers, oldest_snapshot, expired_by_us: install::expired_by_us(engine) }
    }

    /// `None` unless the reserve is in use. Opens the views that the estimates need.
    pub fn on_full_disk(engine: &Engine) -> Option<SpaceGain> {
        if !engine.storage.reserve.is_used() {
            return None;
        }
        let state = engine.cell.state.load_full();
        for handle in state.version.partitions.iter().flat_map(|partition| partition.all_runs()) {
            // Without a view the run counts in full.
            let _ = handle.view();
        }
        Some(SpaceGain::of(engine, &state.version))
    }

    pub fn readers_of(&self, run: FileNumber) -> usize {
        self.readers.get(&run).copied().unwrap_or(1)
    }

    /// Returns whether a plan frees what it takes: INVARIANT P1 of whole jobs.
    pub fn is_paid(&self, partition: &Partition, plan: &Plan) -> bool {
        if !droppable_runs(partition, self.oldest_snapshot, self.expired_by_us).is_empty() {
            return true;
        }
        let all = || partition.all_runs();
        match plan {
            Plan::Cut { .. } | Plan::Prefix => true,
            Plan::Fold | Plan::Rebuild => false,
            Plan::Split => self.is_merge_paid(partition, all()),
            Plan::Rewrite { run } => self.is_merge_paid(partition, all().filter(|h| h.run().meta().number == *run)),
            Plan::Loose { inputs } | Plan::Major { inputs } => {
                self.is_merge_paid(partition, all().filter(|h| inputs.contains(&h.run().meta().number)))
            }
        }
    }

    fn is_merge_paid<'a>(&self, partition: &Partition, inputs: impl Iterator<Item = &'a Arc<RunHandle>>) -> bool {
        let (mut kept, mut freed) = (Kept::default(), 0);
        for handle in inputs {
            let own = self.kept_of(partition, handle);
            kept.entries += own.entries;
            kept.bytes += own.bytes;
            kept.tombstones += own.tombstones;
            let meta = handle.run().meta();
            freed += if self.readers_of(meta.number) > 1 { 0 } else { meta.file_bytes };
        }
        // Each tombstone is likely to delete an entry of another input.
        let deleted = kept.tombstones.saturating_mul(2).min(kept.entries);
        compaction::is_paid(share(kept.bytes, kept.entries - deleted, kept.entries), freed)
    }

    /// Bytes that a merge of the run alone would keep in the partition.
    pub fn kept_bytes(&self, partition: &Partition, handle: &RunHandle) -> u64 {
        self.kept_of(partition, handle).bytes
    }

    fn kept_of(&self, partition: &Partition, handle: &RunHandle) -> Kept {
        let meta = handle.run().meta();
        let Ok(view) = handle.view() else {
            return Kept { entries: meta.entries, bytes: meta.file_bytes, tombstones: 0 };
        };
        let (start, end) = (&partition.layout.start, partition.layout.end.as_deref());
        let rank = |key: &[u8]| view.rank(handle.alone(), key).unwrap_or(0).min(meta.entries);
        let entries_within = |from: &[u8], to: Option<&[u8]>| to.map_or(meta.entries, rank).saturating_sub(rank(from));
        let mut entries = entries_within(start, end);
        let newest_hidden = |cover: &[SequenceNumber]| cover.iter().copied().find(|s| *s <= self.oldest_snapshot);
        for (from, to, cover) in
            partition.tombstones.iter().flat_map(|set| set.fragments_in(start, end.unwrap_or(&AFTER_ALL_KEYS)))
        {
            if newest_hidden(cover).is_some_and(|sequence| sequence > meta.max_sequence) {
                let to = end.map_or(to, |end| to.min(end));
                entries = entries.saturating_sub(entries_within(from.max(start), Some(to)));
            }
        }
        let counts = view.meta();
        let live = share(entries, counts.entries.saturating_sub(counts.stale), counts.entries);
        let tombstones = share(entries, counts.tombstones, counts.entries);
        Kept { entries: live, bytes: share(meta.file_bytes, live, meta.entries), tombstones }
    }
}

/// Returns `whole * part / parts`, and `whole` without parts.
fn share(whole: u64, part: u64, parts: u64) -> u64 {
    if parts == 0 { whole } else { (u128::from(whole) * u128::from(part.min(parts)) / u128::from(parts)) as u64 }
}
