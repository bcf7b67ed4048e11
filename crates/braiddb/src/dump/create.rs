//! Writes a dump.
//!
//! Threads take parts of the trees in order and compress them into frames. The caller's thread
//! writes them in key order. A bounded queue per part limits memory.

use super::{
    format::{Frame, FrameKind, Source, Totals, encode_header},
    records::{Amount, RecordsBuilder},
};
use crate::{
    base::{Error, FileId, Result, SequenceNumber},
    codec::{Checksummer, Compression},
    db::{Db, DumpGap, DumpParts, DumpRange, DumpSource, DumpedEntry, EntrySink, Snapshot, check_range},
};
use parking_lot::Mutex;
use std::{
    fmt,
    io::Write,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

const PART_BYTES: u64 = 4 << 20;

const FRAMES_WAITING_MAX: usize = 16;

const THREADS_MAX: usize = 64;

pub(super) fn checked_threads(asked: Option<usize>, otherwise: usize) -> Result<usize> {
    check_range("threads", asked.unwrap_or(0), 0, THREADS_MAX)?;
    Ok(asked.unwrap_or(otherwise.min(THREADS_MAX)))
}

/// Progress of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpProgress {
    /// Trees begun.
    pub trees: u64,
    /// Records written.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Bytes of the dump so far.
    pub dump_bytes: u64,
}

/// Options of a dump.
#[derive(Default)]
#[non_exhaustive]
pub struct DumpOptions<'a> {
    /// Compression of each frame; LZ4 by default.
    pub compression: Compression,
    /// Threads that read and compress, at most 64; by default
    /// [`crate::Builder::background_threads`]. The caller's thread does all work if either is 0.
    pub threads: Option<usize>,
    /// Called after each frame.
    pub progress: Option<&'a mut dyn FnMut(DumpProgress)>,
    /// Called with the error of each record whose merge function fails ([`Error::MergeFailed`]).
    /// The dump contains the raw record, but a load refuses it by default: see
    /// [`crate::dump::LoadOptions`].
    pub failing: Option<&'a mut dyn FnMut(&Error)>,
    /// If set, damaged data are skipped, and this is called for each gap. Older versions in a gap
    /// are omitted too. If not set, damage is an error.
    pub skip_damaged: Option<&'a mut dyn FnMut(&DumpGap)>,
}

impl<'a> DumpOptions<'a> {
    /// Returns the default options.
    pub fn new() -> DumpOptions<'a> {
        DumpOptions::default()
    }

    /// Sets the compression of each frame.
    pub fn compression(mut self, compression: Compression) -> DumpOptions<'a> {
        self.compression = compression;
        self
    }

    /// Sets the number of threads that read and compress.
    pub fn threads(mut self, threads: usize) -> DumpOptions<'a> {
        self.threads = Some(threads);
        self
    }

    /// Sets a function that is called after each frame.
    pub fn progress(mut self, report: &'a mut dyn FnMut(DumpProgress)) -> DumpOptions<'a> {
        self.progress = Some(report);
        self
    }

    /// Sets a function that gets the error of each record whose merge function fails.
    pub fn failing(mut self, report: &'a mut dyn FnMut(&Error)) -> DumpOptions<'a> {
        self.failing = Some(report);
        self
    }

    /// Skips damaged data, and calls `report` for each gap.
    pub fn skip_damaged(mut self, report: &'a mut dyn FnMut(&DumpGap)) -> DumpOptions<'a> {
        self.skip_damaged = Some(report);
        self
    }
}

impl fmt::Debug for DumpOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DumpOptions")
            .field("compression", &self.compression)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// The result of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpReport {
    /// The last commit in it.
    pub sequence: SequenceNumber,
    /// Number of trees.
    pub trees: u64,
    /// Number of records; pairs in a multi-tree. Unapplied merge operands count as records of their
    /// own.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Bytes of the dump.
    pub dump_bytes: u64,
    /// Records whose merge function fails, dumped raw.
    pub failing: u64,
    /// Gaps because of damage: see [`DumpOptions::skip_damaged`].
    pub gaps: u64,
}

impl Db {
    /// Dumps the latest state of the database: see [`Snapshot::dump`].
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use braiddb::{Builder, dump::{DumpOptions, LoadOptions}};
    ///
    /// # let vfs = std::sync::Arc::new(braiddb::platform::MemVfs::new());
    /// let db = braiddb::Db::in_memory()?;
    /// db.tree("albums")?.put(b"1", b"Ten")?;
    /// let mut dump = Vec::new(); // or a file, or a pipe
    /// let report = db.dump(&mut dump, DumpOptions::default())?;
    /// assert_eq!((report.trees, report.records), (1, 1));
    ///
    /// let options = || Builder::new().vfs(vfs.clone());
    /// options().load("/moved.db", &mut dump.as_slice(), LoadOptions::default())?;
    /// let moved = options().open("/moved.db")?.open_tree("albums")?;
    /// assert_eq!(moved.get(b"1")?.as_deref(), Some(&b"Ten"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn dump(&self, out: impl Write, options: DumpOptions<'_>) -> Result<DumpReport> {
        self.snapshot().dump(out, options)
    }
}

impl Snapshot {
    /// Writes the database at this snapshot as a dump, for [`crate::Builder::load`]. It contains
    /// every tree with its options, records with sequence numbers, expiry times and unapplied merge
    /// operands, and the application cursor. Reads and writes go on.
    ///
    /// The format (`docs/dump.md`) is independent of the database's files. `out` is written once,
    /// front to back, and flushed at the end; the caller should sync a file.
    ///
    /// Takes time linear in the data, and some MiB of memory per thread for values of any length.
    /// Merge functions may be missing. Existing ones are called to find failing records: see
    /// [`DumpOptions::failing`].
    ///
    /// Errors: `Corruption` with the tree and keys of unreadable data; `ReaderExpired`, as for any
    /// snapshot; `Io` and `DiskFull` from `out`. `load` refuses an incomplete dump.
    pub fn dump(&self, mut out: impl Write, options: DumpOptions<'_>) -> Result<DumpReport> {
        let mut source = DumpSource::of(self);
        if options.skip_damaged.is_some() {
            source.skip_damaged();
        }
        let threads = checked_threads(options.threads, source.background_threads())?;
        let threads = if source.background_threads() == 0 { 0 } else { threads };
        let compression = options.compression;
        compression.check()?;
        let writer = Writer::begin(&mut out, &source, options)?;
        let (catalog, mut writer) = writer.write_source(&source, compression)?;
        let parts = DumpParts::new(&source, &catalog.trees, PART_BYTES);
        let packing = Packing { source: source.clone(), id: writer.id, compression };
        if threads == 0 {
            dump_here(parts, &packing, &mut writer)?;
        } else {
            dump_with(threads, parts, &packing, &mut writer)?;
        }
        writer.end(compression)
    }
}

type Packed = (Frame, Amount);

struct Writer<'a, 'o> {
    out: &'a mut dyn Write,
    id: FileId,
    chain: Checksummer,
    totals: Totals,
    dump_bytes: u64,
    sequence: SequenceNumber,
    last_tree: Option<u32>,
    progress: DumpProgress,
    report: Option<&'o mut dyn FnMut(DumpProgress)>,
    source: DumpSource,
    failing: u64,
    report_failing: Option<&'o mut dyn FnMut(&Error)>,
    gaps: u64,
    report_gap: Option<&'o mut dyn FnMut(&DumpGap)>,
}

fn written(result: std::io::Result<()>) -> Result<()> {
    result.map_err(|e| Error::output("write", "the dump", e))
}

impl<'a, 'o> Writer<'a, 'o> {
    fn begin(out: &'a mut dyn Write, source: &DumpSource, options: DumpOptions<'o>) -> Result<Writer<'a, 'o>> {
        let (id, sequence) = (source.db().random_id(), source.sequence());
        let header = encode_header(id, sequence);
        written(out.write_all(&header))?;
        let mut chain = Checksummer::new();
        chain.add(&header);
        Ok(Writer {
            out,
            id,
            chain,
            totals: Totals::default(),
            dump_bytes: header.len() as u64,
            sequence,
            last_tree: None,
            progress: DumpProgress::default(),
            report: options.progress,
            source: source.clone(),
            failing: 0,
            report_failing: options.failing,
            gaps: 0,
            report_gap: options.skip_damaged,
        })
    }

    fn write_source(
        mut self,
        source: &DumpSource,
        compression: Compression,
    ) -> Result<(crate::db::DumpedCatalog, Self)> {
        let (time_us, ahead_us) = source.time_us();
        let source_facts = Source { incarnation: source.incarnation(), time_us, ahead_us, catalog: source.catalog()? };
        for payload in source_facts.encode() {
            self.frame(&Frame::pack(FrameKind::Catalog, 0, self.id, compression, payload))?;
        }
        self.totals.trees = source_facts.catalog.trees.len() as u64;
        Ok((source_facts.catalog, self))
    }

    fn frame(&mut self, frame: &Frame) -> Result<()> {
        let header = frame.header(self.id, self.dump_bytes);
        written(self.out.write_all(&header))?;
        written(self.out.write_all(&frame.payload))?;
        self.dump_bytes += (header.len() + frame.payload.len()) as u64;
        if frame.kind != FrameKind::End {
            self.totals.frames += 1;
            self.chain.add(&header);
        }
        Ok(())
    }

    fn packed(&mut self, (frame, amount): &Packed) -> Result<()> {
        self.frame(frame)?;
        self.note_failing();
        self.totals.records += amount.records;
        self.totals.bytes += amount.bytes;
        if self.last_tree != Some(frame.tree) {
            self.last_tree = Some(frame.tree);
            self.progress.trees += 1;
        }
        if let Some(report) = &mut self.report {
            let Totals { records, bytes, .. } = self.totals;
            report(DumpProgress { records, bytes, dump_bytes: self.dump_bytes, ..self.progress });
        }
        Ok(())
    }

    fn note_failing(&mut self) {
        for gap in self.source.take_gaps() {
            self.gaps += 1;
            if let Some(report) = &mut self.report_gap {
                report(&gap);
            }
        }
        for error in self.source.take_failing() {
            self.failing += 1;
            if let Some(report) = &mut self.report_failing {
                report(&error);
            }
        }
    }

    fn end(mut self, compression: Compression) -> Result<DumpReport> {
        self.note_failing();
        self.totals.chain = self.chain.finish();
        self.frame(&Frame::pack(FrameKind::End, 0, self.id, compression, self.totals.encode()))?;
        written(self.out.flush())?;
        let Totals { trees, records, bytes, .. } = self.totals;
        let Writer { sequence, dump_bytes, failing, gaps, .. } = self;
        Ok(DumpReport { sequence, trees, records, bytes, dump_bytes, failing, gaps })
    }
}

#[derive(Clone, Debug)]
struct Packing {
    source: DumpSource,
    id: FileId,
    compression: Compression,
}

impl Packing {
    fn part(&self, mut part: DumpRange, emit: &mut dyn FnMut(Packed) -> Result<()>) -> Result<()> {
        let tree = part.tree();
        let mut sink = PackingSink { packing: self, tree, records: RecordsBuilder::default(), emit };
        while part.read(&self.source, &mut sink)? {}
        sink.end_frame()
    }
}

struct PackingSink<'a> {
    packing: &'a Packing,
    tree: u32,
    records: RecordsBuilder,
    emit: &'a mut dyn FnMut(Packed) -> Result<()>,
}

impl PackingSink<'_> {
    fn end_frame(&mut self) -> Result<()> {
        match self.records.take() {
            Some((payload, amount)) => self.pack(FrameKind::Records, payload, amount),
            None => Ok(()),
        }
    }

    fn pack(&mut self, kind: FrameKind, payload: Vec<u8>, amount: Amount) -> Result<()> {
        let frame = Frame::pack(kind, self.tree, self.packing.id, self.packing.compression, payload);
        (self.emit)((frame, amount))
    }
}

impl EntrySink for PackingSink<'_> {
    fn entry(&mut self, entry: &DumpedEntry<'_>) -> Result<()> {
        self.records.add(entry);
        if self.records.is_full() || entry.content.is_long() { self.end_frame() } else { Ok(()) }
    }

    fn piece(&mut self, bytes: &[u8]) -> Result<()> {
        self.pack(FrameKind::Piece, bytes.to_vec(), Amount::default())
    }
}

fn dump_here(mut parts: DumpParts, packing: &Packing, writer: &mut Writer<'_, '_>) -> Result<()> {
    while let Some(part) = parts.take_next()? {
        packing.part(part, &mut |packed| writer.packed(&packed))?;
    }
    Ok(())
}

enum Product {
    Frame(Packed),
    End(Result<()>),
}

/// One lock keeps the remaining parts and the queue for the writer in the same order.
struct Shared {
    parts: DumpParts,
    next_to: SyncSender<Result<Receiver<Product>>>,
}

fn dump_with(threads: usize, parts: DumpParts, packing: &Packing, writer: &mut Writer<'_, '_>) -> Result<()> {
    let (next_to, next_from) = sync_channel(2 * threads);
    let shared = Arc::new(Mutex::new(Some(Shared { parts, next_to })));
    let mut handles = Vec::new();
    for _ in 0..threads {
        let (shared, packing) = (Arc::clone(&shared), packing.clone());
        handles.push(packing.source.db().clone().spawn("braiddb-dump", Box::new(move || work(&shared, &packing)))?);
    }
    let done = write_parts(&next_from, writer);
    drop(next_from);
    let panicked = handles.into_iter().map(|handle| handle.join().is_err()).fold(false, |any, one| any | one);
    match done {
        Ok(()) if panicked => Err(lost()),
        done => done,
    }
}

fn lost() -> Error {
    Error::abort("a thread of the dump panicked; what was written is no whole dump")
}

fn write_parts(next_from: &Receiver<Result<Receiver<Product>>>, writer: &mut Writer<'_, '_>) -> Result<()> {
    for part in next_from {
        let part = part?;
        loop {
            match part.recv() {
                Ok(Product::Frame(packed)) => writer.packed(&packed)?,
                Ok(Product::End(done)) => break done?,
                Err(_) => return Err(lost()),
            }
        }
    }
    Ok(())
}

fn work(shared: &Mutex<Option<Shared>>, packing: &Packing) {
    loop {
        let (frames_to, frames_from) = sync_channel(FRAMES_WAITING_MAX);
        let mut guard = shared.lock();
        let Some(left) = guard.as_mut() else { return };
        let part = match left.parts.take_next() {
            Ok(Some(part)) if left.next_to.send(Ok(frames_from)).is_ok() => part,
            Ok(_) => return *guard = None,
            Err(e) => {
                let _ = left.next_to.send(Err(e));
                return *guard = None;
            }
        };
        drop(guard);
        let gone = || Error::abort("nobody writes the dump any more");
        let done = packing.part(part, &mut |packed| frames_to.send(Product::Frame(packed)).map_err(|_| gone()));
        let has_failed = done.is_err();
        if frames_to.send(Product::End(done)).is_err() || has_failed {
            return *shared.lock() = None;
        }
    }
}
