//! Writes a dump.
//!
//! The trees are cut into parts of some mebibytes. Threads take parts in order, and read and pack each into frames; the caller's thread
//! writes the frames of one part after the other, so the dump is in key order. Of a part, and of finished parts that wait for their
//! turn, so many frames are kept at most; then the thread waits. So memory is bounded, whatever a part turns out to hold.

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

/// About so much of the files goes into a part.
const PART_BYTES: u64 = 4 << 20;

/// So many frames of a part wait for their turn.
const FRAMES_WAITING_MAX: usize = 16;

/// No more threads are started.
const THREADS_MAX: usize = 64;

/// The threads that were asked for, or `otherwise`. Fails if they are too many.
pub(super) fn checked_threads(asked: Option<usize>, otherwise: usize) -> Result<usize> {
    check_range("threads", asked.unwrap_or(0), 0, THREADS_MAX)?;
    Ok(asked.unwrap_or(otherwise.min(THREADS_MAX)))
}

/// How far a dump has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpProgress {
    /// Trees that were begun.
    pub trees: u64,
    /// Records that were written.
    pub records: u64,
    /// The bytes of their keys and values.
    pub bytes: u64,
    /// The bytes of the dump so far.
    pub dump_bytes: u64,
}

/// How a database is dumped.
#[derive(Default)]
pub struct DumpOptions<'a> {
    /// Compression of the dump, frame by frame; LZ4 by default.
    pub compression: Compression,
    /// So many threads read and pack, 64 at most; by default as many as merge for the database ([`crate::Builder::background_threads`]). With 0, and in a
    /// database without threads, the caller's does it all.
    pub threads: Option<usize>,
    /// Is told how far it is, after each frame.
    pub progress: Option<&'a mut dyn FnMut(DumpProgress)>,
    /// Is called with the error of each record on which a merge function fails ([`Error::MergeFailed`] names tree and key). Such a
    /// record is in the dump as it stands, and a load refuses it unless it is asked to take it: see [`crate::LoadOptions`].
    pub failing: Option<&'a mut dyn FnMut(&Error)>,
    /// If it is there, what is damaged is passed over, and this is called with each gap; else damage is an error. The dump is whole, but for
    /// the gaps. Older versions of what is damaged are not in it either.
    pub skip_damaged: Option<&'a mut dyn FnMut(&DumpGap)>,
}

impl fmt::Debug for DumpOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DumpOptions")
            .field("compression", &self.compression)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// What was dumped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpReport {
    /// The last commit in it.
    pub sequence: SequenceNumber,
    /// Trees.
    pub trees: u64,
    /// Records: of a tree of many values to a key, pairs; what is merged into a value and not applied yet counts by itself.
    pub records: u64,
    /// The bytes of their keys and values.
    pub bytes: u64,
    /// The bytes of the dump.
    pub dump_bytes: u64,
    /// Records on which a merge function fails; they are in the dump as they stand.
    pub failing: u64,
    /// What was passed over because it is damaged: see [`DumpOptions::skip_damaged`].
    pub gaps: u64,
}

impl Db {
    /// Writes all that the database holds as of now into a dump: see [`Snapshot::dump`].
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use braiddb::{Builder, DumpOptions, LoadOptions};
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
    /// Writes all that the database held when the snapshot was taken into a dump, from which [`crate::Builder::load`] makes a database: every tree with
    /// its options, records with the numbers of their commits and with their ends, what merge functions have not been applied to yet, and the
    /// application cursor. So it is the state at one commit, while reads and writes go on. The bytes are specified in `docs/dump.md`, say
    /// nothing of how the database keeps its files, and need not be kept in a file: they are written from front to back, once, and flushed
    /// at the end. A file should be synced by the caller.
    ///
    /// Takes time linear in what is there, and some mebibytes of memory for each thread, whatever the length of values. Merge functions need not be
    /// there. Those that are there are called to find records on which they fail: see [`DumpOptions::failing`].
    ///
    /// Errors: `Corruption` if something cannot be read, with the tree and the keys; `ReaderExpired` as of any snapshot; `Io` and
    /// `DiskFull` of `out`. What was written until then is no whole dump, and is refused by `load`.
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
        let (catalog, mut writer) = writer.tell_source(&source, compression)?;
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

/// A frame, and how much is in it.
type Packed = (Frame, Amount);

/// Writes frames, and counts them.
struct Writer<'a, 'o> {
    out: &'a mut dyn Write,
    id: FileId,
    chain: Checksummer,
    totals: Totals,
    dump_bytes: u64,
    sequence: SequenceNumber,
    last_tree: Option<u32>,
    progress: DumpProgress,
    tell: Option<&'o mut dyn FnMut(DumpProgress)>,
    source: DumpSource,
    failing: u64,
    tell_failing: Option<&'o mut dyn FnMut(&Error)>,
    gaps: u64,
    tell_gap: Option<&'o mut dyn FnMut(&DumpGap)>,
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
            tell: options.progress,
            source: source.clone(),
            failing: 0,
            tell_failing: options.failing,
            gaps: 0,
            tell_gap: options.skip_damaged,
        })
    }

    /// Writes what there is to be told of the database.
    fn tell_source(
        mut self,
        source: &DumpSource,
        compression: Compression,
    ) -> Result<(crate::db::DumpedCatalog, Self)> {
        let (time_us, ahead_us) = source.time_us();
        let told = Source { incarnation: source.incarnation(), time_us, ahead_us, catalog: source.catalog()? };
        for payload in told.encode() {
            self.frame(&Frame::pack(FrameKind::Catalog, 0, self.id, compression, payload))?;
        }
        self.totals.trees = told.catalog.trees.len() as u64;
        Ok((told.catalog, self))
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
        if let Some(tell) = &mut self.tell {
            let Totals { records, bytes, .. } = self.totals;
            tell(DumpProgress { records, bytes, dump_bytes: self.dump_bytes, ..self.progress });
        }
        Ok(())
    }

    /// Names the records that were read meanwhile and on which a merge function fails, and what could not be read.
    fn note_failing(&mut self) {
        for gap in self.source.take_gaps() {
            self.gaps += 1;
            if let Some(tell) = &mut self.tell_gap {
                tell(&gap);
            }
        }
        for error in self.source.take_failing() {
            self.failing += 1;
            if let Some(tell) = &mut self.tell_failing {
                tell(&error);
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

/// How parts are read and packed.
#[derive(Clone, Debug)]
struct Packing {
    source: DumpSource,
    id: FileId,
    compression: Compression,
}

impl Packing {
    /// Reads a part, and hands its frames on.
    fn part(&self, mut part: DumpRange, emit: &mut dyn FnMut(Packed) -> Result<()>) -> Result<()> {
        let tree = part.tree();
        let mut sink = PackingSink { packing: self, tree, records: RecordsBuilder::default(), emit };
        while part.read(&self.source, &mut sink)? {}
        sink.end_frame()
    }
}

/// Makes frames of entries.
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

/// What comes of a part, in order; its end is told.
enum Product {
    Frame(Packed),
    End(Result<()>),
}

/// The parts that are left, and where to say who works on the next one: both under one lock, so that the order is the same.
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
    // Whoever is at work has nobody to hand anything to, if this was not the end.
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

/// Writes all parts, one after the other.
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

/// Takes parts and packs them, until there is none left or nobody wants them.
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
