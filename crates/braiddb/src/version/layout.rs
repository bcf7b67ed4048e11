//! Layout: the contents of the manifest as plain data.
//!
//! INVARIANTS (a manifest that violates one is corrupt): partitions cover the keyspace in order
//! without overlap; every run of a partition is known; a view has as many runs as its partition
//! lists.

use super::{Change, Edit};
use crate::{
    base::{FileNumber, SequenceNumber, limits},
    table::RunMeta,
    view::ViewMeta,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartitionLayout {
    pub start: Vec<u8>,
    /// First key after the partition; `None` for the last.
    pub end: Option<Vec<u8>>,
    /// By selector of the view.
    pub runs: Vec<FileNumber>,
    /// Oldest first.
    pub loose: Vec<FileNumber>,
    /// Over `runs`; `None` without runs or until it is rebuilt.
    pub view: Option<ViewMeta>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    pub runs: BTreeMap<FileNumber, RunMeta>,
    pub partitions: BTreeMap<u64, PartitionLayout>,
    pub flushed: SequenceNumber,
    pub oldest_segment: FileNumber,
    /// Synced length of the log.
    pub durable_lsn: u64,
    pub next_file: FileNumber,
    /// Highest number that may have been used.
    pub last_sequence: SequenceNumber,
    /// See [`Change::Time`].
    pub time_us: u64,
    pub time_ahead_us: u64,
    pub incarnation: u64,
    pub epoch: u64,
}

impl Layout {
    /// An error names the violated rule; the layout is then unusable.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), String> {
        for change in &edit.changes {
            self.apply_change(change)?;
        }
        self.forget_unused_runs();
        Ok(())
    }

    pub(super) fn apply_change(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::NewRun(meta) => {
                self.runs.insert(meta.number, (**meta).clone());
            }
            Change::NewPartition { id, start, end } => {
                let partition = PartitionLayout { start: start.clone(), end: end.clone(), ..Default::default() };
                if self.partitions.insert(*id, partition).is_some() {
                    return Err(format!("partition {id} begins twice"));
                }
            }
            Change::DropPartition(id) => {
                self.partitions.remove(id).ok_or_else(|| format!("partition {id} ends, but never began"))?;
            }
            Change::AddLoose { partition, run } => {
                let known = self.runs.contains_key(run);
                let layout = self.partition_mut(*partition)?;
                layout.loose.push(*run);
                if !known {
                    return Err(format!("partition {partition} gets unknown run {run}"));
                }
            }
            Change::SetRuns { partition, runs, loose, view } => {
                if let Some(unknown) = runs.iter().chain(loose).find(|r| !self.runs.contains_key(r)) {
                    return Err(format!("partition {partition} gets unknown run {unknown}"));
                }
                if runs.len() > limits::MAX_VIEW_RUNS {
                    return Err(format!("partition {partition} has {} runs in its view", runs.len()));
                }
                if view.as_ref().is_some_and(|v| usize::from(v.run_count) != runs.len()) {
                    return Err(format!("the view of partition {partition} is over another number of runs"));
                }
                let layout = self.partition_mut(*partition)?;
                layout.runs.clone_from(runs);
                layout.loose.clone_from(loose);
                layout.view = view.as_deref().cloned();
            }
            Change::Flushed(sequence) => self.flushed = self.flushed.max(*sequence),
            Change::Log { oldest_segment, durable_lsn } => {
                self.oldest_segment = *oldest_segment;
                self.durable_lsn = *durable_lsn;
            }
            Change::NextFile(number) => self.next_file = self.next_file.max(*number),
            Change::LastSequence(sequence) => self.last_sequence = self.last_sequence.max(*sequence),
            Change::Time { now_us, ahead_us } => {
                (self.time_us, self.time_ahead_us) = (self.time_us.max(*now_us), *ahead_us);
            }
            Change::Incarnation(id) => self.incarnation = *id,
            Change::Epoch(epoch) => self.epoch = *epoch,
        }
        Ok(())
    }

    fn partition_mut(&mut self, id: u64) -> Result<&mut PartitionLayout, String> {
        self.partitions.get_mut(&id).ok_or_else(|| format!("partition {id} is not known"))
    }

    pub(super) fn forget_unused_runs(&mut self) {
        let used: BTreeSet<FileNumber> =
            self.partitions.values().flat_map(|p| p.runs.iter().chain(&p.loose)).copied().collect();
        self.runs.retain(|number, _| used.contains(number));
    }

    pub fn check_cover(&self) -> Result<(), String> {
        let mut partitions: Vec<_> = self.partitions.iter().collect();
        partitions.sort_by(|a, b| a.1.start.cmp(&b.1.start));
        let mut next: Option<&[u8]> = Some(&[]);
        for (id, partition) in partitions {
            if next != Some(&partition.start) {
                return Err(format!("partition {id} does not begin where the one before ends"));
            }
            next = partition.end.as_deref();
            if next.is_some_and(|end| end <= partition.start.as_slice()) {
                return Err(format!("partition {id} ends before it begins"));
            }
        }
        if next.is_some() { Err("the last partition has an end".to_owned()) } else { Ok(()) }
    }

    pub fn to_edit(&self) -> Edit {
        let mut changes = vec![
            Change::Incarnation(self.incarnation),
            Change::Epoch(self.epoch),
            Change::NextFile(self.next_file),
            Change::LastSequence(self.last_sequence),
            Change::Time { now_us: self.time_us, ahead_us: self.time_ahead_us },
            Change::Flushed(self.flushed),
            Change::Log { oldest_segment: self.oldest_segment, durable_lsn: self.durable_lsn },
        ];
        changes.extend(self.runs.values().map(|meta| Change::NewRun(Box::new(meta.clone()))));
        for (&id, partition) in &self.partitions {
            changes.push(Change::NewPartition { id, start: partition.start.clone(), end: partition.end.clone() });
            changes.push(Change::SetRuns {
                partition: id,
                runs: partition.runs.clone(),
                loose: partition.loose.clone(),
                view: partition.view.clone().map(Box::new),
            });
        }
        Edit::new(changes)
    }
}
