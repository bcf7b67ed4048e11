//! Replay: inserts the log's records above the flushed commits into memtables.
//!
//! A record counts only with its values. Values of a durable record were synced before it, so a
//! check of their files' presence and length suffices; reads report damage. Values of later records
//! may be lost in a power failure: all are read, and the first bad one ends the log. The durable
//! position is at the log's end, so values are read after the walk. If one is bad, a second walk
//! ends there.

use crate::{
    base::{EntryKind, FileNumber, Result, SequenceNumber},
    codec::MergeFunctions,
    commit::{Operation, decode_group},
    db::{
        engine::{root::Engine, settings::Settings},
        files::blob_store::BlobStore,
        read::merge_operands::insert_operands,
        write::wal_bypass::{marks_load, unlogged_before},
    },
    memtable::{ChunksAhead, Memtable, MemtableOptions, MemtableWriter},
    table::blob::{BlobRef, blob_path, visit_references},
    version::Layout,
    wal::{self, Lsn, RecordInfo, RecoveryInput, RecoveryOutcome, Visit},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::Path,
    sync::Arc,
};

/// Memtable growth between two wakeups of the prefault thread, in bytes.
const REPORT_EACH_BYTES: usize = 512 << 10;

pub struct Replayed {
    pub memtables: Vec<Arc<Memtable>>,
    pub last_sequence: SequenceNumber,
    pub records: u64,
    /// Latest wall clock time of a commit, in microseconds since 1970; 0 if the log has none.
    pub last_commit_us: u64,
    pub blob_files: BTreeSet<FileNumber>,
    /// Whether a bulk load was announced by the last record.
    pub load_is_next: bool,
    /// Whether a record follows the announcement of a bulk load.
    pub is_past_load: bool,
    pub outcome: RecoveryOutcome,
    /// The prefault thread, which may still be running.
    pub ahead: Option<ChunksAhead>,
}

struct Unusable {
    lsn: Lsn,
    reason: String,
}

/// Replays the log. With `is_to_sync`, the caller then makes it durable.
pub fn replay(
    settings: &Settings,
    dir: &Path,
    layout: &Layout,
    blobs: &BlobStore,
    functions: &MergeFunctions,
    is_to_sync: bool,
) -> Result<Replayed> {
    let mut walk = Walk::new(settings, layout, blobs, functions, Engine::new_memtable(settings, 0));
    // A follower has few memtables, and no thread that would free the memory.
    walk.prepares_memory = is_to_sync
        && settings.background_threads > 0
        && MemtableOptions::for_capacity(settings.memtable_bytes()).is_of_huge_chunks();
    let mut outcome = walk.run(dir, None, is_to_sync)?;
    if let Some(end) = walk.first_unusable(outcome.durable_lsn)? {
        walk = Walk::new(settings, layout, blobs, functions, Engine::new_memtable(settings, 0));
        outcome = walk.run(dir, Some(end), is_to_sync)?;
    }
    for (&file, &sequence) in &walk.files {
        blobs.note_replayed(file, sequence);
    }
    if !walk.memtable.is_empty() {
        walk.memtables.push(walk.memtable);
    }
    let last_sequence = layout.flushed.max(outcome.last_sequence);
    let blob_files = walk.files.into_keys().collect();
    let Walk { memtables, records, last_commit_us, load_is_next, is_past_load, ahead, .. } = walk;
    if let Some(ahead) = &ahead {
        ahead.stop();
    }
    Ok(Replayed {
        memtables,
        last_sequence,
        records,
        last_commit_us,
        blob_files,
        load_is_next,
        is_past_load,
        outcome,
        ahead,
    })
}

pub(in crate::db) struct Walk<'a> {
    settings: &'a Settings,
    layout: &'a Layout,
    blobs: &'a BlobStore,
    functions: &'a MergeFunctions,
    /// Full memtables, oldest first.
    pub memtables: Vec<Arc<Memtable>>,
    pub memtable: Arc<Memtable>,
    /// Whether to start a prefault thread after the first growth step.
    prepares_memory: bool,
    ahead: Option<ChunksAhead>,
    /// Memtable size at the next wakeup, in bytes.
    report_at: usize,
    pub records: u64,
    pub last_commit_us: u64,
    pub last_sequence: SequenceNumber,
    pub load_is_next: bool,
    pub is_past_load: bool,
    /// Values, each with its first record, in log order. Later versions of an appended stream
    /// repeat earlier references.
    references: Vec<(Lsn, BlobRef)>,
    known: HashSet<BlobRef>,
    /// Their blob files, and the last sequence number that refers to each.
    pub files: BTreeMap<FileNumber, SequenceNumber>,
}

impl<'a> Walk<'a> {
    pub fn new(
        settings: &'a Settings,
        layout: &'a Layout,
        blobs: &'a BlobStore,
        functions: &'a MergeFunctions,
        memtable: Arc<Memtable>,
    ) -> Walk<'a> {
        Walk {
            settings,
            layout,
            blobs,
            functions,
            memtables: Vec::new(),
            memtable,
            prepares_memory: false,
            ahead: None,
            report_at: REPORT_EACH_BYTES,
            records: 0,
            last_commit_us: 0,
            last_sequence: layout.flushed,
            load_is_next: false,
            is_past_load: false,
            references: Vec::new(),
            known: HashSet::new(),
            files: BTreeMap::new(),
        }
    }

    pub fn going_on(self, last_sequence: SequenceNumber, load_is_next: bool) -> Walk<'a> {
        Walk { last_sequence, load_is_next, ..self }
    }

    /// Walks to the end of the log or to `end`.
    fn run(&mut self, dir: &Path, end: Option<Unusable>, is_to_sync: bool) -> Result<RecoveryOutcome> {
        let settings = self.settings;
        let input = RecoveryInput {
            oldest_segment: (self.layout.oldest_segment > 0).then_some(self.layout.oldest_segment),
            durable_lsn: self.layout.durable_lsn,
            flushed: self.layout.flushed,
            is_to_sync,
        };
        let mut visitor = |info: &RecordInfo, payload: &[u8]| match &end {
            Some(end) if end.lsn == info.lsn => {
                self.records += 1;
                Ok(Visit::EndHere(end.reason.clone()))
            }
            _ => self.visit(info, payload),
        };
        let helper = (settings.background_threads > 0).then_some(&*settings.runtime);
        wal::recover_with(&*settings.vfs, dir, &input, helper, &mut visitor)
    }

    pub fn visit(&mut self, info: &RecordInfo, payload: &[u8]) -> Result<Visit> {
        self.records += 1;
        let flushed = self.layout.flushed;
        let mut references = Vec::new();
        let (mut stands_on, mut is_before_load) = (0, false);
        let (mut first, mut operations) = (None, 0_usize);
        let batches = decode_group(payload, |batch, op| {
            operations += 1;
            first.get_or_insert((batch, op));
            if info.first_sequence + batch > flushed {
                stands_on = stands_on.max(unlogged_before(&op));
                is_before_load |= marks_load(&op);
                let visit = |blob: &BlobRef| {
                    if !self.known.contains(blob) {
                        references.push((info.lsn, *blob));
                    }
                };
                // Ignore malformed values: the record is as written, and reads report them.
                let _ = visit_references(op.kind, op.value, visit);
            }
        });
        // Check before applying anything: no part of a record may count alone.
        if batches != Some(info.last_sequence - info.first_sequence + 1) {
            let reason = "the record's checksum matches but its contents cannot be understood";
            return Ok(Visit::EndHere(reason.to_owned()));
        }
        if stands_on > flushed {
            // Beside a writer, a follower may have a manifest older than the flush.
            return Ok(Visit::EndHere(format!("it stands on commit {stands_on}, which is in no log and not in runs")));
        }
        for (_, reference) in &references {
            if !self.blobs.is_present(reference)? {
                return Ok(Visit::EndHere(missing(reference)));
            }
        }
        self.make_room();
        let mut writer = self.memtable.writer();
        let mut insert = |batch, op: Operation<'_>| {
            let sequence = info.first_sequence + batch;
            if sequence > flushed {
                insert(&self.memtable, &mut writer, self.functions, &mut self.files, &op, sequence);
            }
        };
        match first.filter(|_| operations == 1) {
            Some((batch, only)) => insert(batch, only),
            None => {
                decode_group(payload, insert);
            }
        }
        drop(writer);
        self.last_commit_us = self.last_commit_us.max(info.commit_time_us);
        self.last_sequence = info.last_sequence;
        self.is_past_load |= self.load_is_next;
        self.load_is_next = is_before_load;
        self.known.extend(references.iter().map(|(_, blob)| *blob));
        self.references.extend(references);
        Ok(Visit::Taken)
    }

    fn make_room(&mut self) {
        let used = self.memtable.bytes_used();
        if used >= self.settings.memtable_bytes() {
            let next = Engine::new_memtable(self.settings, used);
            let full = std::mem::replace(&mut self.memtable, next);
            self.memtables.push(full);
            self.report_at = 0;
        }
        if used >= self.report_at {
            self.report_at += REPORT_EACH_BYTES;
            match &self.ahead {
                Some(ahead) => ahead.wake(),
                None if self.prepares_memory => {
                    let common = self.settings.common();
                    self.ahead = ChunksAhead::start(&*self.settings.runtime, &common.chunk_pool);
                    // Do not retry after a refusal.
                    self.prepares_memory = false;
                }
                None => {}
            }
        }
    }

    /// Returns the first record past the durable position with a bad value.
    fn first_unusable(&self, durable_lsn: Lsn) -> Result<Option<Unusable>> {
        for (lsn, reference) in self.references.iter().filter(|(lsn, _)| *lsn >= durable_lsn) {
            if !self.blobs.is_complete(reference)? {
                return Ok(Some(Unusable { lsn: *lsn, reason: missing(reference) }));
            }
        }
        Ok(None)
    }
}

fn insert(
    memtable: &Memtable,
    writer: &mut MemtableWriter<'_>,
    functions: &MergeFunctions,
    files: &mut BTreeMap<FileNumber, SequenceNumber>,
    op: &Operation<'_>,
    sequence: SequenceNumber,
) {
    let _ = visit_references(op.kind, op.value, |blob| {
        files.insert(blob.file, sequence);
    });
    match op.kind {
        EntryKind::RangeDelete => writer.insert_range_tombstone(op.range_tombstone(sequence)),
        EntryKind::Merge => {
            insert_operands(memtable, writer, functions, op, sequence);
        }
        _ => writer.insert(op.key, sequence, op.kind, op.value),
    }
}

fn missing(blob: &BlobRef) -> String {
    let name = blob_path(Path::new(""), blob.file);
    format!("a value it refers to is missing from its blob file {}, or damaged there", name.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::tests_common::{mem, open, small};

    #[test]
    fn the_only_operation_of_a_group_has_the_number_of_its_batch() {
        let db = open(small(&mem())).unwrap();
        let engine = db.engine();
        let key = [0, 0, 0, 9, b'k'];
        // Two empty batches, then one with a single value.
        let payload = [&[0, 0, 2, EntryKind::Value as u8, 5][..], &key, &[1, b'v']].concat();
        let info =
            RecordInfo { epoch: 1, lsn: 0, end_lsn: 99, first_sequence: 10, last_sequence: 12, commit_time_us: 0 };
        for (flushed, is_new) in [(9, true), (11, true), (12, false)] {
            let layout = Layout { flushed, ..Layout::default() };
            let memtable = Engine::new_memtable(&engine.settings, 0);
            let blobs = &engine.storage.blobs;
            let mut walk = Walk::new(&engine.settings, &layout, blobs, &engine.functions, memtable);
            assert_eq!(walk.visit(&info, &payload).unwrap(), Visit::Taken);
            assert!(walk.memtable.get(&key, 11).is_none(), "flushed up to {flushed}");
            assert_eq!(walk.memtable.get(&key, 12).map(|entry| entry.value.to_vec()), is_new.then(|| b"v".to_vec()));
        }
    }
}
