//! Files of sorted records, for an external sort (`sorter.rs`): written, merged, and removed.
//!
//! A *spill* is a run file without a view that is not synced, or several of them, one after the other. No manifest ever names one, so the next
//! open removes what a crash leaves of them. A spill is given its number as a sequence number, so that a merge of spills finds the later record
//! of a key first. When there are as many spills as may be merged at once, they are merged into one.

use super::sorter::Buffer;
use crate::{
    base::{EntryKind, EntryRef, Error, MergeOrder, Result, shared_prefix_len},
    codec::Compression,
    db::engine::root::Engine,
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

/// What a spill takes of the memory while it is merged: two pieces that are read ahead, one that is looked at, and a block unpacked.
const SCAN_BYTES: usize = 448 << 10;
const FAN_IN_MIN: usize = 4;
const FAN_IN_MAX: usize = 256;

/// As many threads sort at most: what comes in has to be read by another one.
const THREADS_MAX: usize = 2;

/// Blocks of spills are read in order, so the longest are best.
const SPILL_BLOCK_BYTES: usize = 64 << 10;

/// A part of a spill has so many blocks.
const SPILL_BLOCKS_MAX: u32 = 50_000;

/// Files of sorted records, in order.
#[derive(Debug)]
struct Spill(Vec<Arc<Run>>);

/// How spills are written.
#[derive(Clone, Debug)]
struct SpillPlace {
    engine: Arc<Engine>,
    table: TableContext,
    compression: Compression,
}

impl SpillPlace {
    /// Writes the records of a buffer as a spill with this number, and empties it.
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

/// How files of spills are opened. They are written once and read once, so they are not to take the place of other things in the system's cache;
/// and then somebody has to read ahead.
fn spill_table(engine: &Engine) -> TableContext {
    // Nobody else has handles to them: they are gone when the load is.
    let table = TableContext { disposal: Arc::default(), ..engine.table.clone() };
    if engine.settings.background_threads == 0 {
        return table;
    }
    let runtime = &engine.settings.runtime;
    // Without a thread it is only slower.
    let behind = WriteBehind::start(&**runtime).ok().map(Arc::new);
    let written: Option<Arc<dyn Vfs>> = behind.map(|behind| Arc::new(BehindVfs::new(&table.vfs, &behind)) as _);
    let vfs = Arc::new(AheadVfs::new(written.as_ref().unwrap_or(&table.vfs), runtime));
    TableContext { vfs, ..table }
}

/// Sorts buffers and writes them as spills: where the database has threads, some are sorted and written while the next one is filled. When it is
/// dropped, nothing is left of its spills.
#[derive(Debug)]
pub struct Spiller {
    place: SpillPlace,
    fan_in: usize,
    /// In the order in which they were finished.
    spills: Vec<Spill>,
    /// How many spills there ever were.
    numbered: u64,
    /// The bytes that were written.
    spilled_bytes: u64,
    /// How many buffers there may be, each of so many bytes.
    buffers: usize,
    buffer_bytes: usize,
    /// How many there are, and those of them that are empty.
    made: usize,
    spare: Vec<Buffer>,
    /// None before they are needed.
    threads: Option<SpillThreads>,
}

impl Spiller {
    /// No spills yet. So much memory is there, for all buffers, and later to merge with.
    pub fn new(engine: &Arc<Engine>, compression: Compression, memory: usize) -> Spiller {
        // Each thread has a buffer to sort and write while another one is filled.
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

    /// How many bytes a buffer may have.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// The bytes of all spills that were written.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes
    }

    /// Whether there was anything to spill.
    pub fn has_spilled(&self) -> bool {
        self.numbered > 0
    }

    /// Has the records of a buffer written as a spill, and gives another buffer that is empty. After an error nothing is left of any spill.
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

    /// How many buffers are being written.
    fn in_flight(&self) -> usize {
        self.threads.as_ref().map_or(0, |threads| threads.in_flight)
    }

    /// Waits until one more buffer is written.
    fn await_one(&mut self) -> Result<()> {
        let (spill, empty) = self.threads.as_mut().ok_or_else(panicked)?.receive()?;
        self.take(spill);
        self.spare.push(empty);
        Ok(())
    }

    /// Waits until all buffers are written, and lets go of them: their memory is needed to merge with.
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

    /// Merges all spills into one.
    fn merge_spills(&mut self) -> Result<()> {
        self.await_all()?;
        self.numbered += 1;
        let mut writer = self.place.writer(self.numbered);
        merge(&std::mem::take(&mut self.spills), |key, value| writer.add(key, value))?;
        let spill = writer.finish()?;
        self.take(spill);
        Ok(())
    }

    /// Gives the records of all spills to `take`, in order, of each key the latest. `begin` is told when all spills are written, how many bytes they have.
    pub fn merge(mut self, begin: impl FnOnce(u64), take: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        self.await_all()?;
        self.threads = None;
        begin(self.spilled_bytes);
        merge(&self.spills, take)
    }

    /// After a failure: leaves nothing.
    fn give_up(&mut self) {
        self.threads = None;
        self.spills.clear();
    }
}

/// What comes back of a buffer.
type Written = Result<(Spill, Buffer)>;

/// Threads that sort buffers and write them as spills.
#[derive(Debug)]
struct SpillThreads {
    full_to: Option<SyncSender<(u64, Buffer)>>,
    written_from: Receiver<Written>,
    in_flight: usize,
    handles: Vec<JoinHandle<()>>,
}

impl SpillThreads {
    fn start(place: &SpillPlace, count: usize) -> Result<SpillThreads> {
        // Neither has to wait for the other to take what it sends.
        let (full_to, full_from) = mpsc::sync_channel(count + 1);
        let (written_to, written_from) = mpsc::sync_channel(count + 1);
        let full_from = Arc::new(Mutex::new(full_from));
        let mut threads =
            SpillThreads { full_to: Some(full_to), written_from, in_flight: 0, handles: Vec::with_capacity(count) };
        for _ in 0..count {
            let (place, full_from, written_to) = (place.clone(), Arc::clone(&full_from), written_to.clone());
            let (engine, runtime) = (Arc::clone(&place.engine), Arc::clone(&place.engine.settings.runtime));
            let handle = runtime.spawn("braiddb-sort", Box::new(move || work(&place, &full_from, &written_to)));
            // One that has none would have each buffer wait for ever; with fewer it is only slower.
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

/// What a thread does.
fn work(place: &SpillPlace, full_from: &Mutex<Receiver<(u64, Buffer)>>, written_to: &SyncSender<Written>) {
    loop {
        let Ok((number, mut buffer)) = full_from.lock().recv() else { return };
        // Whoever waits for the buffer is told even if this panics.
        let mut told = Told { to: written_to, what: Some(Err(panicked())) };
        told.what = Some(place.spill(number, &mut buffer).map(|spill| (spill, buffer)));
    }
}

/// Tells what has become of a buffer when it is dropped.
struct Told<'a> {
    to: &'a SyncSender<Written>,
    what: Option<Written>,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if let Some(what) = self.what.take() {
            // If nobody waits any more, the spill is removed with what is not taken.
            let _ = self.to.send(what);
        }
    }
}

fn panicked() -> Error {
    Error::ReadOnly { reason: "a thread that sorted the load panicked".to_owned() }
}

/// Writes a spill.
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
        // What is written once and read once is packed quickly, if it is to be packed at all.
        let compression = if compression == Compression::None { Compression::None } else { Compression::Lz4 };
        let options = RunOptions {
            compression,
            block_bytes: SPILL_BLOCK_BYTES,
            key_blocks: KeyBlocks::Never,
            is_unnumbered: true,
            is_unbuffered: true,
            ..engine.run_options()
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
            let _inside = self.engine.enter()?;
            self.engine.check_writable()?;
            let number = self.engine.new_file_number();
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
                // It is removed when it is let go of.
                run.mark_obsolete();
                self.parts.push(run);
                Ok(())
            }
            Err(e) => {
                self.engine.remove_files(&[path]);
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
            self.engine.remove_files(&[path]);
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
