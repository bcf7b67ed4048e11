//! External sorting: records in any order come out in key order, each key once, its last record; in bounded memory.
//!
//! Records are gathered in a buffer. When it is full they are sorted and written as a *spill*: a run file without a view that is not synced.
//! No manifest ever names one, so the next open removes what a crash leaves of them. A spill is given its number as a sequence number, so
//! that a merge of spills finds the later record of a key first. When there are as many spills as may be merged at once, they are merged into one.

use super::{core::Core, load_writer::LoadRows};
use crate::{
    base::{EntryKind, EntryRef, MergeOrder, Result, TreeId},
    codec::Compression,
    table::{KeyBlocks, Run, RunMeta, RunOptions, RunScan, RunWriter},
    version::FileSet,
};
use std::{cmp::Ordering, path::PathBuf, sync::Arc};

/// The least memory to sort with.
const MEMORY_MIN: usize = 64 << 10;
/// The most that is taken unless more is asked for.
const MEMORY_MAX: usize = 512 << 20;

/// What a spill takes of the memory while it is merged.
const SCAN_BYTES: usize = 256 << 10;
const FAN_IN_MIN: usize = 4;
const FAN_IN_MAX: usize = 256;

/// Blocks of spills are read in order, so the longest are best.
const SPILL_BLOCK_BYTES: usize = 64 << 10;

/// A part of a spill has so many blocks.
const SPILL_BLOCKS_MAX: u32 = 50_000;

/// Records between two reports of progress.
const RECORDS_PER_REPORT: u64 = 1 << 16;

/// How far a load has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkProgress {
    /// Records that were taken.
    pub records_read: u64,
    /// Bytes of files that were written to sort with, so far.
    pub spilled_bytes: u64,
    /// Records that were written in order; none before all were read.
    pub records_written: u64,
}

/// How to load records that are not sorted.
#[derive(Default)]
pub struct BulkOptions<'a> {
    /// How much memory to sort with, in bytes; `None`: an eighth of the database's, 512 MiB at most. The block cache has as much less meanwhile.
    pub memory: Option<usize>,
    /// Is told how far it is, every 65,536 records.
    pub progress: Option<&'a mut dyn FnMut(BulkProgress)>,
}

impl std::fmt::Debug for BulkOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BulkOptions").field("memory", &self.memory).finish_non_exhaustive()
    }
}

/// Memory that the block cache does without.
#[derive(Debug)]
struct Lent {
    core: Arc<Core>,
    bytes: usize,
}

impl Lent {
    fn new(core: &Arc<Core>, bytes: usize) -> Lent {
        core.lend(bytes, 0);
        Lent { core: Arc::clone(core), bytes }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.core.lend(0, self.bytes);
    }
}

/// Where a record stands in the buffer.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The first bytes of the key, as a number.
    head: u64,
    at: usize,
    key_len: u32,
    value_len: u32,
}

#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

impl Buffer {
    fn push(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&tree.first_key());
        self.bytes.extend_from_slice(key);
        let key_len = self.bytes.len() - at;
        self.bytes.extend_from_slice(value);
        let mut head = [0; 8];
        head.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        let len = |len: usize| u32::try_from(len).expect("within the limits");
        let (key_len, value_len) = (len(key_len), len(value.len()));
        self.rows.push(Row { head: u64::from_be_bytes(head), at, key_len, value_len });
    }

    fn len(&self) -> usize {
        self.bytes.len() + self.rows.len() * size_of::<Row>()
    }

    fn key(&self, row: &Row) -> &[u8] {
        &self.bytes[row.at..row.at + row.key_len as usize]
    }

    fn value(&self, row: &Row) -> &[u8] {
        let at = row.at + row.key_len as usize;
        &self.bytes[at..at + row.value_len as usize]
    }

    /// Brings the records in order, and keeps the last of each key.
    fn sort(&mut self) {
        let mut rows = std::mem::take(&mut self.rows);
        let compare = |a: &Row, b: &Row| a.head.cmp(&b.head).then_with(|| self.key(a).cmp(self.key(b)));
        rows.sort_unstable_by(|a, b| compare(a, b).then_with(|| b.at.cmp(&a.at)));
        rows.dedup_by(|later, first| compare(later, first).is_eq());
        self.rows = rows;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }
}

/// Files of sorted records, in order.
#[derive(Debug)]
struct Spill(Vec<Arc<Run>>);

/// Sorts the records of a tree.
pub struct Sorter<'a> {
    core: Arc<Core>,
    tree: TreeId,
    compression: Compression,
    memory: usize,
    fan_in: usize,
    buffer: Buffer,
    spills: Vec<Spill>,
    /// How many spills there ever were.
    numbered: u64,
    done: BulkProgress,
    progress: Option<&'a mut dyn FnMut(BulkProgress)>,
    _lent: Lent,
}

impl<'a> Sorter<'a> {
    /// No records yet.
    pub fn new(core: &Arc<Core>, tree: TreeId, compression: Compression, options: BulkOptions<'a>) -> Sorter<'a> {
        let memory = options.memory.unwrap_or((core.settings.memory / 8).min(MEMORY_MAX)).max(MEMORY_MIN);
        Sorter {
            core: Arc::clone(core),
            tree,
            compression,
            memory,
            fan_in: (memory / SCAN_BYTES).clamp(FAN_IN_MIN, FAN_IN_MAX),
            // It is not touched before it is needed.
            buffer: Buffer { bytes: Vec::with_capacity(memory), rows: Vec::new() },
            spills: Vec::new(),
            numbered: 0,
            done: BulkProgress::default(),
            progress: options.progress,
            _lent: Lent::new(core, memory),
        }
    }

    /// Adds a record. Precondition: key and value are within the limits.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let len = key.len() + value.len() + 4 + size_of::<Row>();
        if !self.buffer.rows.is_empty() && self.buffer.len() + len > self.memory {
            self.spill()?;
        }
        self.buffer.push(self.tree, key, value);
        self.done.records_read += 1;
        if self.done.records_read.is_multiple_of(RECORDS_PER_REPORT) {
            self.report();
        }
        Ok(())
    }

    fn report(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress(self.done);
        }
    }

    fn spill(&mut self) -> Result<()> {
        if self.spills.len() >= self.fan_in {
            self.merge_spills()?;
        }
        self.buffer.sort();
        let number = self.next_number();
        let mut writer = SpillWriter::new(&self.core, self.compression, number);
        for row in &self.buffer.rows {
            writer.add(self.buffer.key(row), self.buffer.value(row))?;
        }
        self.spills.push(writer.finish(&mut self.done)?);
        self.buffer.clear();
        Ok(())
    }

    fn next_number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    /// Merges all spills into one.
    fn merge_spills(&mut self) -> Result<()> {
        let spills = std::mem::take(&mut self.spills);
        let number = self.next_number();
        let mut writer = SpillWriter::new(&self.core, self.compression, number);
        merge(&spills, |key, value| writer.add(key, value))?;
        self.spills.push(writer.finish(&mut self.done)?);
        Ok(())
    }

    /// Gives all records to `write`, in order.
    pub fn finish(mut self, mut write: impl FnMut(LoadRows) -> Result<()>) -> Result<()> {
        let mut rows = LoadRows::default();
        if self.spills.is_empty() {
            self.buffer.sort();
            let sorted = std::mem::take(&mut self.buffer.rows);
            for row in &sorted {
                rows.push(&[self.buffer.key(row)], self.buffer.value(row));
                if rows.is_full() {
                    self.done.records_written += rows.len() as u64;
                    write(std::mem::take(&mut rows))?;
                    self.report();
                }
            }
        } else {
            if !self.buffer.rows.is_empty() {
                self.spill()?;
            }
            // The memory is needed for what is read and written from now on.
            self.buffer = Buffer { bytes: Vec::new(), rows: Vec::new() };
            let spills = std::mem::take(&mut self.spills);
            merge(&spills, |key, value| {
                rows.push(&[key], value);
                if rows.is_full() {
                    self.done.records_written += rows.len() as u64;
                    write(std::mem::take(&mut rows))?;
                    self.report();
                }
                Ok(())
            })?;
        }
        self.done.records_written += rows.len() as u64;
        if !rows.is_empty() {
            write(rows)?;
        }
        self.report();
        Ok(())
    }
}

/// Writes a spill.
struct SpillWriter<'a> {
    core: &'a Core,
    options: RunOptions,
    number: u64,
    open: Option<(RunWriter, PathBuf)>,
    parts: Vec<Arc<Run>>,
}

impl<'a> SpillWriter<'a> {
    fn new(core: &'a Core, compression: Compression, number: u64) -> SpillWriter<'a> {
        // What is written once and read once is packed quickly, if it is to be packed at all.
        let compression = if compression == Compression::None { Compression::None } else { Compression::Lz4 };
        let options = RunOptions {
            compression,
            block_bytes: SPILL_BLOCK_BYTES,
            key_blocks: KeyBlocks::Never,
            is_unnumbered: true,
            ..core.run_options()
        };
        SpillWriter { core, options, number, open: None, parts: Vec::new() }
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.open.as_ref().is_some_and(|(writer, _)| writer.block_count() >= SPILL_BLOCKS_MAX) {
            self.finish_part()?;
        }
        if self.open.is_none() {
            let _inside = self.core.enter()?;
            self.core.check_writable()?;
            let number = self.core.new_file_number();
            let path = FileSet::run_path(&self.core.dir, number);
            let id = self.core.settings.runtime.random_u64();
            self.open = Some((RunWriter::create(&self.core.table, &path, number, id, &self.options)?, path));
        }
        let Some((writer, _)) = &mut self.open else { return Ok(()) };
        writer.add(EntryRef { key, sequence: 0, kind: EntryKind::Value, value }).map(|_| ())
    }

    fn finish_part(&mut self) -> Result<()> {
        let Some((writer, path)) = self.open.take() else { return Ok(()) };
        let opened = writer.finish_unsynced(|_, _| Ok(Vec::new())).and_then(|meta| {
            let meta = RunMeta { min_sequence: self.number, max_sequence: self.number, ..meta };
            Run::open(&self.core.table, &path, &meta)
        });
        match opened {
            Ok(run) => {
                // It is removed when it is let go of.
                run.mark_obsolete();
                self.parts.push(run);
                Ok(())
            }
            Err(e) => {
                self.core.remove_files(&[path]);
                Err(e)
            }
        }
    }

    fn finish(mut self, done: &mut BulkProgress) -> Result<Spill> {
        self.finish_part()?;
        done.spilled_bytes += self.parts.iter().map(|run| run.meta().file_bytes).sum::<u64>();
        Ok(Spill(std::mem::take(&mut self.parts)))
    }
}

impl Drop for SpillWriter<'_> {
    fn drop(&mut self) {
        if let Some((writer, path)) = self.open.take() {
            drop(writer);
            self.core.remove_files(&[path]);
        }
    }
}

/// A walk over a spill.
struct SpillScan<'a> {
    rest: std::slice::Iter<'a, Arc<Run>>,
    scan: Option<RunScan>,
}

impl SpillScan<'_> {
    fn next(&mut self) -> Result<bool> {
        loop {
            if let Some(scan) = &mut self.scan
                && scan.next()?
            {
                return Ok(true);
            }
            match self.rest.next() {
                None => return Ok(false),
                Some(run) => self.scan = Some(run.scan(Default::default())),
            }
        }
    }

    fn entry(&self) -> EntryRef<'_> {
        self.scan.as_ref().expect("a walk that stands on a record").entry()
    }
}

/// Gives the records of all spills to `take`, in order, of each key the latest.
fn merge(spills: &[Spill], mut take: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let compare = |a: &SpillScan<'_>, b: &SpillScan<'_>| -> Ordering {
        let (a, b) = (a.entry(), b.entry());
        a.key.cmp(b.key).then(b.sequence.cmp(&a.sequence))
    };
    let mut scans: Vec<SpillScan<'_>> =
        spills.iter().map(|spill| SpillScan { rest: spill.0.iter(), scan: None }).collect();
    let mut order = MergeOrder::default();
    for index in 0..scans.len() {
        if scans[index].next()? {
            order.add(index, scans[index].entry().key, |a, b| compare(&scans[a], &scans[b]));
        }
    }
    let mut last: Option<Vec<u8>> = None;
    while let Some(first) = order.first() {
        let entry = scans[first].entry();
        if last.as_deref() != Some(entry.key) {
            take(entry.key, entry.value)?;
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(entry.key);
        }
        if scans[first].next()? {
            order.move_first(scans[first].entry().key, |a, b| compare(&scans[a], &scans[b]));
        } else {
            order.remove_first();
        }
    }
    Ok(())
}
