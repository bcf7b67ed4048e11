//! External sorting in bounded memory: returns records in key order, the last one of each key.
//!
//! A full buffer is sorted and spilled (`spill.rs`), by a background thread if there is one, while
//! the next fills. At the end all spills are merged. Records that fit into one buffer are never
//! spilled.

use super::{spill::Spiller, writer::LoadRows};
use crate::{
    base::{Error, Result, TreeId, key_head, shared_prefix_len},
    codec::Compression,
    db::engine::root::Engine,
    platform::pages::prefetch,
};
use std::{cell::Cell, sync::Arc};

pub const SORT_MEMORY_MIN: usize = 64 << 10;
/// Default memory: this fraction of the database's, at most `MEMORY_MAX`.
const MEMORY_PART: usize = 4;
const MEMORY_MAX: usize = 512 << 20;

const RECORDS_PER_REPORT: u64 = 1 << 16;

/// Prefetch distance in records, and bytes prefetched for each.
const ROWS_AHEAD: usize = 8;
const BYTES_AHEAD: usize = 256;

/// Progress of a bulk load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkProgress {
    /// Records added.
    pub records_read: u64,
    /// Bytes of spill files written so far.
    pub spilled_bytes: u64,
    /// Records written in order; 0 until all were added.
    pub records_written: u64,
}

/// Options of an unsorted bulk load.
#[derive(Default)]
#[non_exhaustive]
pub struct BulkOptions<'a> {
    /// Memory for sorting in bytes, at least 64 KiB, taken from the block cache. `None`: a quarter
    /// of the database's memory, at most 512 MiB.
    pub memory: Option<usize>,
    /// Called every 65,536 records.
    pub progress: Option<&'a mut dyn FnMut(BulkProgress)>,
}

impl<'a> BulkOptions<'a> {
    /// Returns the default options.
    pub fn new() -> BulkOptions<'a> {
        BulkOptions::default()
    }

    /// Sets the memory for sorting, in bytes.
    pub fn memory(mut self, bytes: usize) -> BulkOptions<'a> {
        self.memory = Some(bytes);
        self
    }

    /// Sets a function that is called every 65,536 records.
    pub fn progress(mut self, report: &'a mut dyn FnMut(BulkProgress)) -> BulkOptions<'a> {
        self.progress = Some(report);
        self
    }
}

impl std::fmt::Debug for BulkOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BulkOptions").field("memory", &self.memory).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct CacheReservation {
    engine: Arc<Engine>,
    bytes: usize,
}

impl CacheReservation {
    fn new(engine: &Arc<Engine>, bytes: usize) -> CacheReservation {
        engine.reserve(bytes, 0);
        CacheReservation { engine: Arc::clone(engine), bytes }
    }
}

impl Drop for CacheReservation {
    fn drop(&mut self) {
        self.engine.reserve(0, self.bytes);
    }
}

fn head(key: &[u8]) -> u64 {
    (key_head(key) >> 64) as u64
}

#[derive(Clone, Copy, Debug)]
struct Row {
    /// The first 8 bytes of the key after the shared prefix.
    head: u64,
    at: usize,
    key_len: u32,
    value_len: u32,
}

#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    rows: Vec<Row>,
    /// Length of the prefix that all keys share.
    shared: usize,
}

impl Buffer {
    pub fn new(bytes: usize) -> Buffer {
        Buffer { bytes: Vec::with_capacity(bytes), rows: Vec::new(), shared: 0 }
    }

    fn push(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&tree.first_key());
        self.bytes.extend_from_slice(key);
        let key_len = self.bytes.len() - at;
        self.bytes.extend_from_slice(value);
        let len = |len: usize| u32::try_from(len).expect("within the limits");
        let (key_len, value_len) = (len(key_len), len(value.len()));
        let mut row = Row { head: 0, at, key_len, value_len };
        match self.rows.first() {
            None => self.shared = key_len as usize,
            Some(first) => {
                let shared = shared_prefix_len(&self.key(first)[..self.shared], self.key(&row));
                if shared < self.shared {
                    self.share(shared);
                }
            }
        }
        row.head = head(&self.key(&row)[self.shared..]);
        self.rows.push(row);
    }

    #[cold]
    fn share(&mut self, shared: usize) {
        let mut rows = std::mem::take(&mut self.rows);
        for row in &mut rows {
            row.head = head(&self.key(row)[shared..]);
        }
        (self.rows, self.shared) = (rows, shared);
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

    pub fn visit(&self, mut take: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        for (index, row) in self.rows.iter().enumerate() {
            if let Some(soon) = self.rows.get(index + ROWS_AHEAD) {
                let len = (soon.key_len as usize + soon.value_len as usize).min(BYTES_AHEAD);
                prefetch(&self.bytes[soon.at..soon.at + len]);
            }
            take(self.key(row), self.value(row))?;
        }
        Ok(())
    }

    /// Keeps only the last record of each key.
    pub fn sort(&mut self) {
        let mut rows = std::mem::take(&mut self.rows);
        let compare = |a: &Row, b: &Row| a.head.cmp(&b.head).then_with(|| self.key(a).cmp(self.key(b)));
        rows.sort_unstable_by(|a, b| compare(a, b).then_with(|| b.at.cmp(&a.at)));
        rows.dedup_by(|later, first| compare(later, first).is_eq());
        self.rows = rows;
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }
}

pub struct Sorter<'a> {
    tree: TreeId,
    buffer: Buffer,
    /// `None` after a failure.
    spiller: Option<Spiller>,
    done: BulkProgress,
    progress: Option<&'a mut dyn FnMut(BulkProgress)>,
    _reservation: CacheReservation,
}

impl std::fmt::Debug for Sorter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sorter").field("done", &self.done).finish_non_exhaustive()
    }
}

impl<'a> Sorter<'a> {
    pub fn new(engine: &Arc<Engine>, tree: TreeId, compression: Compression, options: BulkOptions<'a>) -> Sorter<'a> {
        let memory =
            options.memory.unwrap_or((engine.settings.memory / MEMORY_PART).min(MEMORY_MAX)).max(SORT_MEMORY_MIN);
        let spiller = Spiller::new(engine, compression, memory);
        Sorter {
            tree,
            buffer: Buffer::new(spiller.buffer_bytes()),
            spiller: Some(spiller),
            done: BulkProgress::default(),
            progress: options.progress,
            _reservation: CacheReservation::new(engine, memory),
        }
    }

    /// Precondition: key and value are within the limits.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let len = key.len() + value.len() + 4 + size_of::<Row>();
        let room = self.spiller.as_ref().ok_or_else(failed)?.buffer_bytes();
        if !self.buffer.rows.is_empty() && self.buffer.len() + len > room {
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
        let full = std::mem::replace(&mut self.buffer, Buffer::new(0));
        let mut spiller = self.spiller.take().ok_or_else(failed)?;
        self.buffer = spiller.spill(full)?;
        self.done.spilled_bytes = spiller.spilled_bytes();
        self.spiller = Some(spiller);
        Ok(())
    }

    pub fn finish(mut self, mut write: impl FnMut(LoadRows) -> Result<()>) -> Result<()> {
        let has_spilled = self.spiller.as_ref().is_some_and(Spiller::has_spilled);
        if has_spilled && !self.buffer.rows.is_empty() {
            self.spill()?;
        }
        let spiller = self.spiller.take().ok_or_else(failed)?;
        let mut buffer = std::mem::replace(&mut self.buffer, Buffer::new(0));
        let spilled_bytes = Cell::new(self.done.spilled_bytes);
        let mut rows = LoadRows::default();
        let mut take = |key: &[u8], value: &[u8]| {
            rows.push(&[key], value);
            if rows.is_full() {
                self.done.records_written += rows.len() as u64;
                self.done.spilled_bytes = spilled_bytes.get();
                write(std::mem::take(&mut rows))?;
                self.report();
            }
            Ok(())
        };
        if has_spilled {
            drop(buffer);
            spiller.merge(|bytes| spilled_bytes.set(bytes), take)?;
        } else {
            buffer.sort();
            buffer.visit(&mut take)?;
        }
        self.done.records_written += rows.len() as u64;
        self.done.spilled_bytes = spilled_bytes.get();
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
