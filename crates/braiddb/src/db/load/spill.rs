//! Files of sorted records for an external sort (`sorter.rs`).
//!
//! A *spill* is one run file, or several consecutive ones, without view and sync. No manifest names
//! spills, so the next open removes leftovers of a crash. A spill's number is its sequence number:
//! a merge meets the latest record of a key first. At the fan-in limit all spills are merged into
//! one.

use super::sorter::Buffer;
use crate::{
    base::{EntryKind, EntryRef, Error, MergeOrder, Result, shared_prefix_len},
    codec::Compression,
    db::{engine::root::Engine, maintenance::install},
    platform::{AheadVfs, BehindVfs, Vfs, WriteBehind},
    table::{KeyBlocks, Run, RunMeta, RunOptions, RunScan, RunWriter, TableContext},
    version::FileSet,
};
use parking_lot::Mutex;
use std::{
    cmp::Ordering,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender},
    },
    thread::JoinHandle,
};

/// Memory per spill in a merge: two read-ahead pieces, the current piece, a decompressed block.
const SCAN_BYTES: usize = 448 << 10;
const FAN_IN_MIN: usize = 4;
const FAN_IN_MAX: usize = 256;

/// Maximum number of sorting threads; another thread must read the input.
const THREADS_MAX: usize = 2;

/// Long, because spills are read sequentially.
const SPILL_BLOCK_BYTES: usize = 64 << 10;

const SPILL_BLOCKS_MAX: u32 = 50_000;

#[derive(Debug)]
struct Spill(Vec<Arc<Run>>);

#[derive(Clone, Debug)]
struct SpillPlace {
    engine: Arc<Engine>,
    table: TableContext,
    compression: Compression,
}

impl SpillPlace {
    fn spill(&self, number: u64, buffer: &mut Buffer) -> Result<Spill> {
        buffer.sort();
        let mut writer = self.writer(number);
        buffer.visit(|key, value| writer.add(key, value))?;
        let spill = writer.finish()?;
        buffer.clear();
        Ok(spill)
    }

    fn writer(&self, number: u64) -> SpillWriter {
        SpillWriter::new(self, number)
    }
}

/// Spill files are written and read once, so they bypass the page cache and need their own
/// read-ahead.
fn spill_table(engine: &Engine) -> TableContext {
    let table = TableContext { deferred_close: Arc::default(), ..engine.storage.table.clone() };
    if engine.settings.background_threads == 0 {
        return table;
    }
    let runtime = &engine.settings.runtime;
    // Without the thread the sort is only slower.
    let behind = WriteBehind::start(&**runtime).ok().map(Arc::new);
    let written: Option<Arc<dyn Vfs>> = behind.map(|behind| Arc::new(BehindVfs::new(&table.vfs, &behind)) as _);
    let vfs = Arc::new(AheadVfs::new(written.as_ref().unwrap_or(&table.vfs), runtime));
    TableContext { vfs, ..table }
}

/// Sorts and writes buffers, with threads while the next fills. Removes its spills when dropped.
#[derive(Debug)]
pub struct Spiller {
    place: SpillPlace,
    fan_in: usize,
    spills: Vec<Spill>,
    numbered: u64,
    spilled_bytes: u64,
    buffers: usize,
    buffer_bytes: usize,
    made: usize,
    spare: Vec<Buffer>,
    threads: Option<SpillThreads>,
}

impl Spiller {
    /// `memory` is used for all buffers, and later for the merge.
    pub fn new(engine: &Arc<Engine>, compression: Compression, memory: usize) -> Spiller {
        let buffers = 1 + engine.settings.background_threads.min(THREADS_MAX);
        Spiller {
            place: SpillPlace { engine: Arc::clone(engine), table: spill_table(engine), compression },
            fan_in: (memory / SCAN_BYTES).clamp(FAN_IN_MIN, FAN_IN_MAX),
            spills: Vec::new(),
            numbered: 0,
            spilled_bytes: 0,
            buffers,
            buffer_bytes: memory / buffers,
            made: 1,
            spare: Vec::new(),
            threads: None,
        }
    }

    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes
    }

    pub fn has_spilled(&self) -> bool {
        self.numbered > 0
    }

    /// Queues a buffer and returns an empty one. An error removes all spills.
    pub fn spill(&mut self, full: Buffer) -> Result<Buffer> {
        self.try_spill(full).inspect_err(|_| self.give_up())
    }

    fn try_spill(&mut self, mut full: Buffer) -> Result<Buffer> {
        if self.spills.len() + self.in_flight() >= self.fan_in {
            self.merge_spills()?;
        }
        self.numbered += 1;
        if self.buffers == 1 {
            let spill = self.place.spill(self.numbered, &mut full)?;
            self.take(spill);
            return Ok(full);
        }
        let threads = match &mut self.threads {
            Some(threads) => threads,
            none => none.insert(SpillThreads::start(&self.place, self.buffers - 1)?),
        };
        threads.send(self.numbered, full)?;
        if self.spare.is_empty() && self.made < self.buffers {
            self.made += 1;
            return Ok(Buffer::new(self.buffer_bytes));
        }
        while self.spare.is_empty() {
            self.await_one()?;
        }
        Ok(self.spare.pop().unwrap_or_else(|| Buffer::new(self.buffer_bytes)))
    }

    fn in_flight(&self) -> usize {
        self.threads.as_ref().map_or(0, |threads| threads.in_flight)
    }

    fn await_one(&mut self) -> Result<()> {
        let (spill, empty) = self.threads.as_mut().ok_or_else(panicked)?.receive()?;
        self.take(spill);
        self.spare.push(empty);
        Ok(())
    }

    /// Waits for all buffers and frees them: the merge needs the memory.
    fn await_all(&mut self) -> Result<()> {
        while self.in_flight() > 0 {
            self.await_one()?;
        }
        self.made -= self.spare.len();
        self.spare.clear();
        Ok(())
    }

    fn take(&mut self, spill: Spill) {
        self.spilled_bytes += spill.0.iter().map(|run| run.meta().file_bytes).sum::<u64>();
        self.spills.push(spill);
    }

    fn merge_spills(&mut self) -> Result<()> {
        self.await_all()?;
        self.numbered += 1;
        let mut writer = self.place.writer(self.numbered);
        merge(&std::mem::take(&mut self.spills), |key, value| writer.add(key, value))?;
        let spill = writer.finish()?;
        self.take(spill);
        Ok(())
    }

    /// Passes the latest record of each key to `take` in key order. Calls `begin` with the spilled
    /// bytes once all spills are written.
    pub fn merge(mut self, begin: impl FnOnce(u64), take: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        self.await_all()?;
        self.threads = None;
        begin(self.spilled_bytes);
        merge(&self.spills, take)
    }

    fn give_up(&mut self) {
        self.threads = None;
        self.spills.clear();
    }
}

type Written = Result<(Spill, Buffer)>;

#[derive(Debug)]
struct SpillThreads {
    full_to: Option<SyncSender<(u64, Buffer)>>,
    written_from: Receiver<Written>,
    in_flight: usize,
    handles: Vec<JoinHandle<()>>,
}

impl SpillThreads {
    fn start(place: &SpillPlace, count: usize) -> Result<SpillThreads> {
        // Neither side ever blocks on sending.
        let (full_to, full_from) = mpsc::sync_channel(count + 1);
        let (written_to, written_from) = mpsc::sync_channel(count + 1);
        let full_from = Arc::new(Mutex::new(full_from));
        let mut threads =
            SpillThreads { full_to: Some(full_to), written_from, in_flight: 0, handles: Vec::with_capacity(count) };
        for _ in 0..count {
            let (place, full_from, written_to) = (place.clone(), Arc::clone(&full_from), written_to.clone());
            let (engine, runtime) = (Arc::clone(&place.engine), Arc::clone(&place.engine.settings.runtime));
            let handle = runtime.spawn("braiddb-sort", Box::new(move || work(&place, &full_from, &written_to)));
            // Without any thread the buffers would wait forever; with fewer the sort is only
            // slower.
            match handle {
                Ok(handle) => threads.handles.push(handle),
                Err(_) if !threads.handles.is_empty() => {}
                Err(e) => return Err(Error::io("start a thread for", &engine.dir, e)),
            }
        }
        Ok(threads)
    }

    fn send(&mut self, number: u64, full: Buffer) -> Result<()> {
        self.full_to.as_ref().ok_or_else(panicked)?.send((number, full)).map_err(|_| panicked())?;
        self.in_flight += 1;
        Ok(())
    }

    fn receive(&mut self) -> Written {
        self.in_flight -= 1;
        self.written_from.recv().map_err(|_| panicked())?
    }
}

impl Drop for SpillThreads {
    fn drop(&mut self) {
        drop(self.full_to.take());
        for handle in self.handles.drain(..) {
            if handle.join().is_err() {
                tracing::error!("a thread that sorted a load panicked");
            }
        }
    }
}

fn work(place: &SpillPlace, full_from: &Mutex<Receiver<(u64, Buffer)>>, written_to: &SyncSender<Written>) {
    loop {
        let Ok((number, mut buffer)) = full_from.lock().recv() else { return };
        // Reports to the waiting thread even after a panic.
        let mut reply = Reply { to: written_to, what: Some(Err(panicked())) };
        reply.what = Some(place.spill(number, &mut buffer).map(|spill| (spill, buffer)));
    }
}

struct Reply<'a> {
    to: &'a SyncSender<Written>,
    what: Option<Written>,
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        if let Some(what) = self.what.take() {
            // Without a receiver, dropping the result removes the spill.
            let _ = self.to.send(what);
        }
    }
}

fn panicked() -> Error {
    Error::ReadOnly { reason: "a thread that sorted the load panicked".to_owned() }
}

struct SpillWriter {
    engine: Arc<Engine>,
    table: TableContext,
    options: RunOptions,
    number: u64,
    open: Option<(RunWriter, PathBuf)>,
    parts: Vec<Arc<Run>>,
}

impl SpillWriter {
    fn new(place: &SpillPlace, number: u64) -> SpillWriter {
        let (engine, compression) = (&place.engine, place.compression);
        // Fast, since spills are written and read once.
        let compression = if compression == Compression::None { Compression::None } else { Compression::Lz4 };
        let options = RunOptions {
            compression,
            block_bytes: SPILL_BLOCK_BYTES,
            key_blocks: KeyBlocks::Never,
            is_unnumbered: true,
            is_unbuffered: true,
            ..install::run_options(engine)
        };
        SpillWriter {
            engine: Arc::clone(engine),
            table: place.table.clone(),
            options,
            number,
            open: None,
            parts: Vec::new(),
        }
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.open.as_ref().is_some_and(|(writer, _)| writer.block_count() >= SPILL_BLOCKS_MAX) {
            self.finish_part()?;
        }
        if self.open.is_none() {
            let _inside = self.engine.health.enter()?;
            self.engine.health.check_writable()?;
            let number = self.engine.storage.new_file_number();
            let path = FileSet::run_path(&self.engine.dir, number);
            let id = self.engine.settings.runtime.random_u64();
            self.open = Some((RunWriter::create(&self.table, &path, number, id, &self.options)?, path));
        }
        let Some((writer, _)) = &mut self.open else { return Ok(()) };
        writer.add(EntryRef { key, sequence: 0, kind: EntryKind::Value, value }).map(|_| ())
    }

    fn finish_part(&mut self) -> Result<()> {
        let Some((writer, path)) = self.open.take() else { return Ok(()) };
        let opened = writer.finish_unsynced(|_, _| Ok(Vec::new())).and_then(|meta| {
            let meta = RunMeta { min_sequence: self.number, max_sequence: self.number, ..meta };
            Run::open(&self.table, &path, &meta)
        });
        match opened {
            Ok(run) => {
                run.mark_obsolete();
                self.parts.push(run);
                Ok(())
            }
            Err(e) => {
                install::remove_files(&self.engine, &[path]);
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
            install::remove_files(&self.engine, &[path]);
        }
    }
}

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

fn shared_len(spills: &[Spill]) -> usize {
    let firsts = spills.iter().filter_map(|spill| spill.0.first()).map(|run| run.meta().smallest.as_slice());
    let lasts = spills.iter().filter_map(|spill| spill.0.last()).map(|run| run.meta().largest.as_slice());
    firsts.min().zip(lasts.max()).map_or(0, |(first, last)| shared_prefix_len(first, last))
}

fn merge(spills: &[Spill], mut take: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let compare = |a: &SpillScan<'_>, b: &SpillScan<'_>| -> Ordering {
        let (a, b) = (a.entry(), b.entry());
        a.key.cmp(b.key).then(b.sequence.cmp(&a.sequence))
    };
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
