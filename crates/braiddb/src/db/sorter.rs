//! External sorting: records in any order come out in key order, each key once, its last record; in bounded memory.
//!
//! Records are gathered in a buffer. When it is full they are sorted and written as a spill (`spill.rs`), where the database has threads by one
//! of them, while the next buffer is filled. In the end all spills are merged. What fits into the buffer is never written.

use super::{
    core::Core,
    load_writer::LoadRows,
    spill::{SpillThread, Spiller},
};
use crate::{
    base::{Error, Result, TreeId, key_head, shared_prefix_len},
    codec::Compression,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// The least memory to sort with.
const MEMORY_MIN: usize = 64 << 10;
/// What is taken of the database's memory unless something else is asked for: this part of it.
const MEMORY_PART: usize = 4;
/// The most that is taken unless more is asked for.
const MEMORY_MAX: usize = 512 << 20;

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
    /// How much memory to sort with, in bytes; `None`: a quarter of the database's, 512 MiB at most. The block cache has as much less meanwhile.
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

/// The first bytes of a key, as a number.
fn head(key: &[u8]) -> u64 {
    (key_head(key) >> 64) as u64
}

/// Where a record stands in the buffer.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The first bytes of the key after what all keys have in common, as a number; only once they are sorted.
    head: u64,
    at: usize,
    key_len: u32,
    value_len: u32,
}

/// Records, and where they stand.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

impl Buffer {
    /// An empty one, for so many bytes. Memory is not touched before it is needed.
    fn new(bytes: usize) -> Buffer {
        Buffer { bytes: Vec::with_capacity(bytes), rows: Vec::new() }
    }

    fn push(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&tree.first_key());
        self.bytes.extend_from_slice(key);
        let key_len = self.bytes.len() - at;
        self.bytes.extend_from_slice(value);
        let len = |len: usize| u32::try_from(len).expect("within the limits");
        let (key_len, value_len) = (len(key_len), len(value.len()));
        self.rows.push(Row { head: 0, at, key_len, value_len });
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

    /// Keys and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.rows.iter().map(|row| (self.key(row), self.value(row)))
    }

    /// Brings the records in order, and keeps the last of each key.
    pub fn sort(&mut self) {
        let mut rows = std::mem::take(&mut self.rows);
        let Some(first) = rows.first().map(|row| self.key(row)) else { return };
        let shared = rows.iter().fold(first.len(), |len, row| shared_prefix_len(&first[..len], self.key(row)));
        for row in &mut rows {
            row.head = head(&self.key(row)[shared..]);
        }
        let compare = |a: &Row, b: &Row| a.head.cmp(&b.head).then_with(|| self.key(a).cmp(self.key(b)));
        rows.sort_unstable_by(|a, b| compare(a, b).then_with(|| b.at.cmp(&a.at)));
        rows.dedup_by(|later, first| compare(later, first).is_eq());
        self.rows = rows;
    }

    /// No records.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }
}

/// Sorts the records of a tree.
pub struct Sorter<'a> {
    core: Arc<Core>,
    tree: TreeId,
    /// What one buffer may have.
    buffer_bytes: usize,
    buffer: Buffer,
    /// Writes spills: here, or in a thread once there are any.
    here: Option<Box<Spiller>>,
    there: Option<SpillThread>,
    has_spilled: bool,
    spilled_bytes: Arc<AtomicU64>,
    done: BulkProgress,
    progress: Option<&'a mut dyn FnMut(BulkProgress)>,
    _lent: Lent,
}

impl std::fmt::Debug for Sorter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sorter").field("done", &self.done).finish_non_exhaustive()
    }
}

impl<'a> Sorter<'a> {
    /// No records yet.
    pub fn new(core: &Arc<Core>, tree: TreeId, compression: Compression, options: BulkOptions<'a>) -> Sorter<'a> {
        let memory = options.memory.unwrap_or((core.settings.memory / MEMORY_PART).min(MEMORY_MAX)).max(MEMORY_MIN);
        let spilled_bytes = Arc::default();
        // With a thread, one buffer is written while the other one is filled.
        let buffers = if core.settings.background_threads > 0 { 2 } else { 1 };
        Sorter {
            core: Arc::clone(core),
            tree,
            buffer_bytes: memory / buffers,
            buffer: Buffer::new(memory / buffers),
            here: Some(Box::new(Spiller::new(core, compression, memory, &spilled_bytes))),
            there: None,
            has_spilled: false,
            spilled_bytes,
            done: BulkProgress::default(),
            progress: options.progress,
            _lent: Lent::new(core, memory),
        }
    }

    /// Adds a record. Precondition: key and value are within the limits.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let len = key.len() + value.len() + 4 + size_of::<Row>();
        if !self.buffer.rows.is_empty() && self.buffer.len() + len > self.buffer_bytes {
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
        self.done.spilled_bytes = self.spilled_bytes.load(Relaxed);
        if let Some(progress) = &mut self.progress {
            progress(self.done);
        }
    }

    fn spill(&mut self) -> Result<()> {
        self.has_spilled = true;
        if self.core.settings.background_threads == 0 {
            let spiller = self.here.as_mut().ok_or_else(failed)?;
            return spiller.spill(&mut self.buffer);
        }
        if let Some(spiller) = self.here.take() {
            self.there = Some(SpillThread::start(spiller, Buffer::new(self.buffer_bytes))?);
        }
        let thread = self.there.as_ref().ok_or_else(failed)?;
        match thread.exchange(std::mem::replace(&mut self.buffer, Buffer::new(0))) {
            Some(empty) => {
                self.buffer = empty;
                Ok(())
            }
            // It has failed, and says why.
            None => Err(self.there.take().map_or_else(failed, |thread| thread.finish().err().unwrap_or_else(failed))),
        }
    }

    /// Gives all records to `write`, in order.
    pub fn finish(mut self, mut write: impl FnMut(LoadRows) -> Result<()>) -> Result<()> {
        if self.has_spilled && !self.buffer.rows.is_empty() {
            self.spill()?;
        }
        let has_spilled = self.has_spilled;
        let mut rows = LoadRows::default();
        let mut buffer = std::mem::replace(&mut self.buffer, Buffer::new(0));
        let spiller = match self.there.take() {
            Some(thread) => thread.finish()?,
            None => self.here.take().ok_or_else(failed)?,
        };
        let mut take = |key: &[u8], value: &[u8]| {
            rows.push(&[key], value);
            if rows.is_full() {
                self.done.records_written += rows.len() as u64;
                write(std::mem::take(&mut rows))?;
                self.report();
            }
            Ok(())
        };
        if has_spilled {
            // The memory is needed for what is read and written from now on.
            drop(buffer);
            spiller.merge(take)?;
        } else {
            buffer.sort();
            buffer.iter().try_for_each(|(key, value)| take(key, value))?;
        }
        self.done.records_written += rows.len() as u64;
        if !rows.is_empty() {
            write(rows)?;
        }
        self.report();
        Ok(())
    }
}

fn failed() -> Error {
    Error::InvalidArgument("the load has failed before: begin another".to_owned())
}
