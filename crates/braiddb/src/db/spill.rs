//! Files of sorted records, for an external sort (`sorter.rs`): written, merged, and removed.
//!
//! A *spill* is a run file without a view that is not synced, or several of them, one after the other. No manifest ever names one, so the next
//! open removes what a crash leaves of them. A spill is given its number as a sequence number, so that a merge of spills finds the later record
//! of a key first. When there are as many spills as may be merged at once, they are merged into one.

use super::{core::Core, sorter::Buffer};
use crate::{
    base::{EntryKind, EntryRef, Error, MergeOrder, Result, shared_prefix_len},
    codec::Compression,
    table::{KeyBlocks, Run, RunMeta, RunOptions, RunScan, RunWriter},
    version::FileSet,
};
use std::{
    cmp::Ordering,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{self, Receiver, SyncSender},
    },
    thread::JoinHandle,
};

/// What a spill takes of the memory while it is merged.
const SCAN_BYTES: usize = 256 << 10;
const FAN_IN_MIN: usize = 4;
const FAN_IN_MAX: usize = 256;

/// Blocks of spills are read in order, so the longest are best.
const SPILL_BLOCK_BYTES: usize = 64 << 10;

/// A part of a spill has so many blocks.
const SPILL_BLOCKS_MAX: u32 = 50_000;

/// Files of sorted records, in order.
#[derive(Debug)]
struct Spill(Vec<Arc<Run>>);

/// Sorts buffers and writes them as spills.
#[derive(Debug)]
pub struct Spiller {
    core: Arc<Core>,
    compression: Compression,
    fan_in: usize,
    spills: Vec<Spill>,
    /// How many spills there ever were.
    numbered: u64,
    /// The bytes that were written.
    spilled_bytes: Arc<AtomicU64>,
}

impl Spiller {
    /// No spills yet. So much memory is there to merge with.
    pub fn new(core: &Arc<Core>, compression: Compression, memory: usize, spilled_bytes: &Arc<AtomicU64>) -> Spiller {
        Spiller {
            core: Arc::clone(core),
            compression,
            fan_in: (memory / SCAN_BYTES).clamp(FAN_IN_MIN, FAN_IN_MAX),
            spills: Vec::new(),
            numbered: 0,
            spilled_bytes: Arc::clone(spilled_bytes),
        }
    }

    /// Writes the records of a buffer as a spill, and empties it.
    pub fn spill(&mut self, buffer: &mut Buffer) -> Result<()> {
        if self.spills.len() >= self.fan_in {
            self.merge_spills()?;
        }
        buffer.sort();
        let mut writer = self.writer();
        buffer.iter().try_for_each(|(key, value)| writer.add(key, value))?;
        let spill = writer.finish()?;
        self.take(spill);
        buffer.clear();
        Ok(())
    }

    fn writer(&mut self) -> SpillWriter {
        self.numbered += 1;
        SpillWriter::new(&self.core, self.compression, self.numbered)
    }

    fn take(&mut self, spill: Spill) {
        let bytes: u64 = spill.0.iter().map(|run| run.meta().file_bytes).sum();
        self.spilled_bytes.fetch_add(bytes, Relaxed);
        self.spills.push(spill);
    }

    /// Merges all spills into one.
    fn merge_spills(&mut self) -> Result<()> {
        let mut writer = self.writer();
        merge(&std::mem::take(&mut self.spills), |key, value| writer.add(key, value))?;
        let spill = writer.finish()?;
        self.take(spill);
        Ok(())
    }

    /// Gives the records of all spills to `take`, in order, of each key the latest.
    pub fn merge(self, take: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        merge(&self.spills, take)
    }
}

/// A spiller with a thread of its own, so that a buffer is sorted and written while the next one is filled. When it is dropped, nothing is
/// left of its spills.
#[derive(Debug)]
pub struct SpillThread {
    full_to: Option<SyncSender<Buffer>>,
    empty_from: Receiver<Buffer>,
    done_from: Receiver<Result<Box<Spiller>>>,
    handle: Option<JoinHandle<()>>,
}

impl SpillThread {
    /// Starts the thread, which gives `spare` out as the first empty buffer.
    pub fn start(mut spiller: Box<Spiller>, spare: Buffer) -> Result<SpillThread> {
        let core = Arc::clone(&spiller.core);
        let (full_to, full_from) = mpsc::sync_channel::<Buffer>(1);
        let (empty_to, empty_from) = mpsc::sync_channel(2);
        let (done_to, done_from) = mpsc::sync_channel(1);
        let body = Box::new(move || {
            let _ = empty_to.send(spare);
            let done = full_from.iter().try_for_each(|mut buffer| {
                spiller.spill(&mut buffer)?;
                // Nobody takes the last ones.
                let _ = empty_to.send(buffer);
                Ok(())
            });
            // Before it tells of a failure, nothing is left of the spills.
            let _ = done_to.send(match done {
                Ok(()) => Ok(spiller),
                Err(e) => {
                    drop(spiller);
                    Err(e)
                }
            });
        });
        let handle = core.settings.runtime.spawn("braiddb-sort", body);
        let handle = handle.map_err(|e| Error::io("start a thread for", &core.dir, e))?;
        Ok(SpillThread { full_to: Some(full_to), empty_from, done_from, handle: Some(handle) })
    }

    /// Hands a full buffer on, for an empty one. `None` if that cannot be done any more: [`SpillThread::finish`] says why.
    pub fn exchange(&self, full: Buffer) -> Option<Buffer> {
        let empty = self.empty_from.recv().ok()?;
        self.full_to.as_ref()?.send(full).ok()?;
        Some(empty)
    }

    /// The spiller, when it has written all that it was given.
    pub fn finish(mut self) -> Result<Box<Spiller>> {
        drop(self.full_to.take());
        let panicked = || Error::ReadOnly { reason: "the thread that sorted the load panicked".to_owned() };
        self.done_from.recv().map_err(|_| panicked())?
    }
}

impl Drop for SpillThread {
    fn drop(&mut self) {
        drop(self.full_to.take());
        if let Some(handle) = self.handle.take()
            && handle.join().is_err()
        {
            tracing::error!("the thread that sorted a load panicked");
        }
    }
}

/// Writes a spill.
struct SpillWriter {
    core: Arc<Core>,
    options: RunOptions,
    number: u64,
    open: Option<(RunWriter, PathBuf)>,
    parts: Vec<Arc<Run>>,
}

impl SpillWriter {
    fn new(core: &Arc<Core>, compression: Compression, number: u64) -> SpillWriter {
        // What is written once and read once is packed quickly, if it is to be packed at all.
        let compression = if compression == Compression::None { Compression::None } else { Compression::Lz4 };
        let options = RunOptions {
            compression,
            block_bytes: SPILL_BLOCK_BYTES,
            key_blocks: KeyBlocks::Never,
            is_unnumbered: true,
            ..core.run_options()
        };
        SpillWriter { core: Arc::clone(core), options, number, open: None, parts: Vec::new() }
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

    fn finish(mut self) -> Result<Spill> {
        self.finish_part()?;
        Ok(Spill(std::mem::take(&mut self.parts)))
    }
}

impl Drop for SpillWriter {
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

/// How many bytes all keys of these spills begin with in common.
fn shared_len(spills: &[Spill]) -> usize {
    let firsts = spills.iter().filter_map(|spill| spill.0.first()).map(|run| run.meta().smallest.as_slice());
    let lasts = spills.iter().filter_map(|spill| spill.0.last()).map(|run| run.meta().largest.as_slice());
    firsts.min().zip(lasts.max()).map_or(0, |(first, last)| shared_prefix_len(first, last))
}

/// Gives the records of all spills to `take`, in order, of each key the latest.
fn merge(spills: &[Spill], mut take: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let compare = |a: &SpillScan<'_>, b: &SpillScan<'_>| -> Ordering {
        let (a, b) = (a.entry(), b.entry());
        a.key.cmp(b.key).then(b.sequence.cmp(&a.sequence))
    };
    // What all have in common tells nothing.
    let shared = shared_len(spills);
    let mut scans: Vec<SpillScan<'_>> =
        spills.iter().map(|spill| SpillScan { rest: spill.0.iter(), scan: None }).collect();
    let mut order = MergeOrder::default();
    for index in 0..scans.len() {
        if scans[index].next()? {
            order.add(index, &scans[index].entry().key[shared..], |a, b| compare(&scans[a], &scans[b]));
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
            order.move_first(&scans[first].entry().key[shared..], |a, b| compare(&scans[a], &scans[b]));
        } else {
            order.remove_first();
        }
    }
    Ok(())
}
