//! Reads the log and sorts its operations by key.
//!
//! Operations beyond the memory limit spill into temporary runs in the new directory, which are
//! removed at the end.

use super::{
    losses::{Losses, loss},
    plan::{Plan, PlannedRun},
    report::{Loss, LossKind, ManifestCondition},
    source::LoggedEntry,
};
use crate::{
    base::{EntryKind, RangeTombstone, Result, SequenceNumber},
    codec::Compression,
    commit::{Operation, decode_group},
    table::{KeyBlocks, RunOptions, RunWriter, TableContext},
    wal::{DamagedLog, DamagedLogInput, RecordInfo, read_damaged_log},
};
use std::path::{Path, PathBuf};

/// A run has a maximum number of blocks.
const GATHERED_BYTES_MAX: usize = 64 << 20;

const ENTRY_BYTES: usize = size_of::<LoggedEntry>() + 32;

#[derive(Debug, Default)]
pub struct SortedLog {
    pub entries: Vec<LoggedEntry>,
    pub runs: Vec<PlannedRun>,
    pub range_tombstones: Vec<RangeTombstone>,
    pub last_sequence: SequenceNumber,
    pub last_commit_us: u64,
    pub bytes: u64,
}

pub fn part_path(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("salvage-{number}.part"))
}

struct Sorter<'a> {
    context: &'a TableContext,
    to: &'a Path,
    memory: usize,
    bytes: usize,
    log: SortedLog,
    flushed: SequenceNumber,
}

pub fn read_log(
    context: &TableContext,
    (from, to): (&Path, &Path),
    plan: &mut Plan,
    memory: usize,
    stop_at_gap: bool,
    losses: &mut Losses,
) -> Result<SortedLog> {
    let layout = &plan.layout;
    let is_whole = plan.condition == ManifestCondition::Whole;
    // The log fields of the manifest may be outdated.
    let input = DamagedLogInput {
        oldest_segment: Some(layout.oldest_segment).filter(|oldest| is_whole && *oldest > 0),
        durable_lsn: if is_whole { layout.durable_lsn } else { 0 },
        epoch: u32::try_from(layout.epoch).ok().filter(|_| is_whole),
        flushed: layout.flushed,
        stop_at_gap,
    };
    let memory = memory.min(GATHERED_BYTES_MAX);
    let mut sorter = Sorter { context, to, memory, bytes: 0, log: SortedLog::default(), flushed: layout.flushed };
    let mut misunderstood = Vec::new();
    let found = read_damaged_log(&*context.vfs, from, &input, &mut |info, payload| {
        if !sorter.group(info, payload)? {
            misunderstood.push(*info);
        }
        Ok(())
    })?;
    for info in misunderstood {
        let detail = "a record's checksum fits, but what it says cannot be understood";
        let commits = Some((info.first_sequence, info.last_sequence));
        losses.add(Loss { commits, ..loss(LossKind::Commits, from, detail) });
    }
    note_gaps(&found, plan, losses);
    let mut log = sorter.finish()?;
    (log.last_sequence, log.last_commit_us, log.bytes) = (found.last_sequence, found.last_commit_us, found.bytes);
    Ok(log)
}

fn note_gaps(found: &DamagedLog, plan: &mut Plan, losses: &mut Losses) {
    for gap in &found.gaps {
        let last = gap.before.map(|before| before.saturating_sub(1));
        let detail = match last {
            Some(_) => gap.detail.clone(),
            None => format!("{}: commits after {} may be gone", gap.detail, gap.after),
        };
        losses.add(Loss {
            offset: Some(gap.offset),
            commits: last.filter(|last| *last > gap.after).map(|last| (gap.after + 1, last)),
            ..loss(LossKind::Commits, &gap.path, detail)
        });
    }
    for path in &found.unlinked {
        let detail = "nothing that can be read leads to this segment of the log: it was taken by its place";
        losses.add(loss(LossKind::Uncertain, path, detail));
    }
    let ignored = found.ignored.iter().map(|(path, why)| format!("{} does not count: {why}", path.display()));
    let put_right = |(path, place): &(PathBuf, usize)| {
        format!("{}: byte {place} of the header is damaged, and was put right", path.display())
    };
    plan.notes.extend(ignored.chain(found.repaired.iter().map(put_right)));
}

impl Sorter<'_> {
    /// Returns false if the group cannot be decoded.
    fn group(&mut self, info: &RecordInfo, payload: &[u8]) -> Result<bool> {
        let batches = decode_group(payload, |_, _| {});
        if batches != Some(info.last_sequence - info.first_sequence + 1) {
            return Ok(false);
        }
        let flushed = self.flushed;
        decode_group(payload, |batch, operation| {
            let sequence = info.first_sequence + batch;
            if sequence > flushed {
                self.operation(&operation, sequence);
            }
        });
        if self.bytes > self.memory {
            self.spill()?;
        }
        Ok(true)
    }

    fn operation(&mut self, operation: &Operation<'_>, sequence: SequenceNumber) {
        if operation.kind == EntryKind::RangeDelete {
            self.log.range_tombstones.push(operation.range_tombstone(sequence));
            return;
        }
        self.bytes += operation.key.len() + operation.value.len() + ENTRY_BYTES;
        let (key, value) = (operation.key.to_vec(), operation.value.to_vec());
        self.log.entries.push(LoggedEntry { key, sequence, kind: operation.kind, value });
    }

    fn sort(&mut self) {
        let entries = &mut self.log.entries;
        entries.sort_by(|a, b| a.key.cmp(&b.key).then(b.sequence.cmp(&a.sequence)));
        entries.dedup_by(|a, b| a.sequence == b.sequence && a.key == b.key);
    }

    fn spill(&mut self) -> Result<()> {
        self.sort();
        let Some(first) = self.log.entries.first() else { return Ok(()) };
        let (smallest, number) = (first.key.clone(), self.log.runs.len());
        let path = part_path(self.to, number);
        let options = RunOptions {
            compression: Compression::None,
            block_bytes: 1 << 16,
            key_blocks: KeyBlocks::Never,
            ..RunOptions::default()
        };
        let file_id = self.context.runtime.random_u64();
        let mut writer = RunWriter::create(self.context, &path, number as u64, file_id, &options)?;
        for entry in self.log.entries.drain(..) {
            writer.add(entry.entry())?;
        }
        let meta = writer.finish(|_, _| Ok(Vec::new()))?;
        self.bytes = 0;
        let (number, listed) = (meta.number, Some(meta));
        self.log.runs.push(PlannedRun { path, number, listed, allowed: None, smallest, given: 0 });
        Ok(())
    }

    fn finish(mut self) -> Result<SortedLog> {
        self.sort();
        Ok(self.log)
    }
}
