//! Manages the blob files of a database.
//!
//! INVARIANT B1: a blob file is removed only when it is closed for writing, no pending commit uses
//! it, all commits with references to it are flushed, and no run refers to it (run metas count the
//! references).
//!
//! A commit that refers to existing files, like an append to a stream, pins them first
//! ([`BlobStore::pin`]). Known files stay, because one lock guards removal and pins. If a file is
//! unknown, a read state without it is already published: a new lookup finds the moved or replaced
//! value.

use crate::{
    base::{Error, FileNumber, Result, SequenceNumber},
    codec::Compression,
    platform::{File, OpenMode, Vfs},
    table::{
        TableContext,
        blob::{BlobFile, BlobRef, BlobValue, BlobWriter, Lane, Pieces, blob_path},
    },
    version::Layout,
};
use parking_lot::Mutex;
use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// Pending commits, not numbered yet.
    on_their_way: u64,
    /// Highest number of the other commits.
    last_sequence: SequenceNumber,
}

#[derive(Debug, Default)]
struct Files {
    open: HashMap<FileNumber, Arc<BlobFile>>,
    uses: BTreeMap<FileNumber, Use>,
    /// May never have been synced, but replayed records refer to them.
    replayed: BTreeSet<FileNumber>,
}

const REWRITE_LEN: u64 = 256 << 10;

fn rewrite_in_place(file: &dyn File) -> io::Result<()> {
    let len = file.len()?;
    let mut buffer = Vec::new();
    for at in (0..len).step_by(REWRITE_LEN as usize) {
        buffer.resize((len - at).min(REWRITE_LEN) as usize, 0);
        file.read_exact_at(&mut buffer, at)?;
        file.write_at(&buffer, at)?;
    }
    Ok(())
}

#[derive(Debug)]
pub struct BlobStore {
    dir: PathBuf,
    table: TableContext,
    writer: Option<Arc<BlobWriter>>,
    files: Mutex<Files>,
    writing: AtomicU64,
    /// Commits above this are in the log and keep their files; `u64::MAX` without retention.
    held_above: AtomicU64,
    /// Commits above this keep their files until they are archived.
    archived: AtomicU64,
}

impl BlobStore {
    pub fn new(
        dir: &Path,
        table: &TableContext,
        writer: Option<Arc<BlobWriter>>,
        known: impl IntoIterator<Item = FileNumber>,
    ) -> BlobStore {
        let uses = known.into_iter().map(|number| (number, Use::default())).collect();
        BlobStore {
            dir: dir.to_owned(),
            table: table.clone(),
            writer,
            files: Mutex::new(Files { uses, ..Files::default() }),
            writing: AtomicU64::new(0),
            held_above: AtomicU64::new(u64::MAX),
            archived: AtomicU64::new(SequenceNumber::MAX),
        }
    }

    /// Creates the store of a database that another process writes. Opens all files of `layout`, so
    /// that none can disappear. Of `others`, keeps those open in `before`; the caller opens the
    /// remaining ones with [`BlobStore::open_all`]. Files in `grown` may be longer than in
    /// `before`.
    pub fn beside_writer(
        dir: &Path,
        table: &TableContext,
        before: Option<&BlobStore>,
        layout: &Layout,
        others: &BTreeSet<FileNumber>,
        grown: &BTreeSet<FileNumber>,
    ) -> Result<BlobStore> {
        let live = BlobStore::live_bytes(layout);
        let store = BlobStore::new(dir, table, None, []);
        if let Some(before) = before {
            let before = before.files.lock();
            let kept = before.open.iter().filter(|(number, _)| live.contains_key(number) || others.contains(number));
            store.files.lock().open.extend(kept.map(|(number, file)| (*number, Arc::clone(file))));
        }
        store.open_all(live.keys())?;
        for number in grown {
            store.file(*number)?.catch_up()?;
        }
        Ok(store)
    }

    pub fn open_all<'a>(&self, numbers: impl IntoIterator<Item = &'a FileNumber>) -> Result<()> {
        numbers.into_iter().try_for_each(|number| self.file(*number).map(|_| ()))
    }

    pub fn release_all(&self) {
        *self.files.lock() = Files::default();
    }

    /// Writes a value for a pending commit. The caller must [`settle`](Self::settle) it later.
    pub fn write(&self, key: &[u8], value: &[u8], compression: Compression) -> Result<BlobRef> {
        self.write_to(Lane::Values, key, value, compression)
    }

    pub fn write_to(&self, lane: Lane, key: &[u8], value: &[u8], compression: Compression) -> Result<BlobRef> {
        let writer = self.writer.as_ref().ok_or(Error::Closed)?;
        // Until the file is marked as pending, `writing` keeps all files in use.
        self.writing.fetch_add(1, Ordering::AcqRel);
        let written = writer.append_to(lane, key, value, compression);
        if let Ok(blob) = &written {
            self.files.lock().uses.entry(blob.file).or_default().on_their_way += 1;
        }
        self.writing.fetch_sub(1, Ordering::AcqRel);
        written
    }

    /// Marks these files as pending once more, or none of them and returns false if one is unknown.
    /// The caller must [`settle`](Self::settle) them later. A store beside a writer removes no file.
    pub fn pin(&self, numbers: &BTreeSet<FileNumber>) -> bool {
        if self.writer.is_none() {
            return true;
        }
        let mut files = self.files.lock();
        let are_known = numbers.iter().all(|number| files.uses.contains_key(number));
        if are_known {
            for number in numbers {
                files.uses.entry(*number).or_default().on_their_way += 1;
            }
        }
        are_known
    }

    /// Syncs the data of a stream, even without a commit.
    pub fn sync_bulk(&self, numbers: &BTreeSet<FileNumber>) -> Result<()> {
        self.writer.as_ref().map_or(Ok(()), |w| w.sync_bulk(numbers))
    }

    /// Makes the next log sync include these files.
    pub fn need(&self, numbers: &BTreeSet<FileNumber>) {
        if let Some(writer) = &self.writer {
            writer.need(numbers);
        }
    }

    /// Starts a new stream file if the current one is among these.
    pub fn leave_bulk_file(&self, numbers: &BTreeSet<FileNumber>) {
        if let Some(writer) = &self.writer
            && writer.current_of(Lane::Bulk).is_some_and(|number| numbers.contains(&number))
        {
            writer.roll(Lane::Bulk);
        }
    }

    pub fn hold_until_archived(&self, archived: SequenceNumber) {
        self.archived.store(archived, Ordering::Release);
    }

    pub fn pin_all(&self) -> BTreeSet<FileNumber> {
        let numbers: BTreeSet<FileNumber> = self.files.lock().uses.keys().copied().collect();
        self.pin(&numbers);
        numbers
    }

    /// Makes these files immutable and durable; later values go to others.
    pub fn seal(&self, numbers: &BTreeSet<FileNumber>) -> Result<()> {
        self.writer.as_ref().map_or(Ok(()), |w| w.seal(numbers))
    }

    /// Ends a pending use: the commit was numbered `sequence`, or failed (`None`).
    pub fn settle(&self, written: &[FileNumber], sequence: Option<SequenceNumber>) {
        if written.is_empty() {
            return;
        }
        let mut files = self.files.lock();
        for number in written {
            if let Some(used) = files.uses.get_mut(number) {
                used.on_their_way -= 1;
                used.last_sequence = used.last_sequence.max(sequence.unwrap_or(0));
            }
        }
    }

    pub fn note_replayed(&self, number: FileNumber, sequence: SequenceNumber) {
        let mut files = self.files.lock();
        let used = files.uses.entry(number).or_default();
        used.last_sequence = used.last_sequence.max(sequence);
        files.replayed.insert(number);
    }

    pub fn note_held(&self, number: FileNumber, sequence: SequenceNumber) {
        if let Some(used) = self.files.lock().uses.get_mut(&number) {
            used.last_sequence = used.last_sequence.max(sequence);
        }
    }

    pub fn hold_above(&self, floor: SequenceNumber) {
        self.held_above.store(floor, Ordering::Release);
    }

    pub fn has_files(&self) -> bool {
        !self.files.lock().uses.is_empty()
    }

    pub fn is_known(&self, number: FileNumber) -> bool {
        self.files.lock().uses.contains_key(&number)
    }

    /// Returns, for each file, the last commit with a reference and the garbage that only the log
    /// retains.
    pub fn held_bytes(&self, layout: &Layout, vfs: &dyn Vfs) -> Vec<(SequenceNumber, u64)> {
        if !self.has_files() {
            return Vec::new();
        }
        let live = BlobStore::live_bytes(layout);
        let sizes = self.sizes(vfs);
        let files = self.files.lock();
        let is_held = |(number, used): (&FileNumber, &Use)| {
            let size = sizes.get(number).copied().unwrap_or(0);
            let dead = size.saturating_sub(live.get(number).copied().unwrap_or(0));
            (used.last_sequence <= layout.flushed).then_some((used.last_sequence, dead))
        };
        files.uses.iter().filter_map(is_held).collect()
    }

    fn sizes(&self, vfs: &dyn Vfs) -> HashMap<FileNumber, u64> {
        let entries = vfs.list(&self.dir).unwrap_or_default();
        let blob = |name: &str| name.strip_suffix(".blob")?.parse::<FileNumber>().ok();
        entries.iter().filter_map(|entry| Some((blob(&entry.name)?, entry.len))).collect()
    }

    fn settled(&self, layout: &Layout) -> SequenceNumber {
        let kept = self.held_above.load(Ordering::Acquire).min(self.archived.load(Ordering::Acquire));
        layout.flushed.min(kept)
    }

    /// Makes the values of replayed records durable, before the log may count the records as
    /// durable. `rewrite` writes them again first.
    pub fn sync_replayed(&self, rewrite: bool) -> Result<()> {
        let replayed = std::mem::take(&mut self.files.lock().replayed);
        for number in &replayed {
            let path = blob_path(&self.dir, *number);
            let file = self.table.vfs.open(&path, OpenMode::ReadWrite).map_err(|e| Error::io("open", &path, e))?;
            if rewrite {
                rewrite_in_place(&*file).map_err(|e| Error::io("rewrite", &path, e))?;
            }
            file.sync_data().map_err(|e| Error::io("sync", &path, e))?;
        }
        if !replayed.is_empty() {
            self.table.vfs.sync_dir(&self.dir).map_err(|e| Error::io("sync", &self.dir, e))?;
        }
        Ok(())
    }

    pub fn file(&self, number: FileNumber) -> Result<Arc<BlobFile>> {
        let is_in_use = {
            let files = self.files.lock();
            if let Some(file) = files.open.get(&number) {
                return Ok(Arc::clone(file));
            }
            // A read-only store learns of files when they are read.
            self.writer.is_none() || files.uses.contains_key(&number)
        };
        let file = self.open(number, is_in_use)?;
        let mut files = self.files.lock();
        if self.writer.is_some() && !files.uses.contains_key(&number) {
            // Released, but an old read state uses it; caching it would retain its space.
            return Ok(Arc::new(file));
        }
        Ok(Arc::clone(files.open.entry(number).or_insert_with(|| Arc::new(file))))
    }

    fn open(&self, number: FileNumber, is_in_use: bool) -> Result<BlobFile> {
        // A released file is opened to read one value: mapping it would cost more than it saves.
        let table = TableContext { in_place: self.table.in_place && is_in_use, ..self.table.clone() };
        BlobFile::open(&table, &self.dir, number).map_err(|e| match e {
            Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Error::corruption(path, 0, "the blob file is missing")
            }
            e => e,
        })
    }

    pub fn read_pieces(&self, pieces: &Pieces) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        for piece in &pieces.list {
            self.file(piece.file)?.read_streaming(piece, &mut |bytes| value.extend_from_slice(bytes))?;
        }
        Ok(value)
    }

    pub fn pieces(&self, list: &[u8]) -> Result<Pieces> {
        Pieces::decode(list).ok_or_else(|| self.misunderstood())
    }

    pub fn misunderstood(&self) -> Error {
        Error::corruption(&self.dir, 0, "an entry holds a blob reference that cannot be understood")
    }

    pub fn read(&self, reference: &[u8]) -> Result<BlobValue> {
        let blob = self.decode(reference)?;
        self.file(blob.file)?.read(&blob)
    }

    /// Reads and verifies the value, ignoring earlier reads.
    pub fn read_uncached(&self, blob: &BlobRef) -> Result<Vec<u8>> {
        self.file(blob.file)?.read_uncached(blob)
    }

    pub fn verify(&self, blob: &BlobRef) -> Result<()> {
        self.file(blob.file)?.read_streaming(blob, &mut |_| {})
    }

    fn decode(&self, reference: &[u8]) -> Result<BlobRef> {
        BlobRef::decode(reference).ok_or_else(|| self.misunderstood())
    }

    /// Returns whether the file is long enough for a reference from the log. Does not read the
    /// value.
    pub fn is_present(&self, blob: &BlobRef) -> Result<bool> {
        match self.file(blob.file).and_then(|file| file.len()) {
            Ok(len) => Ok(blob.offset.checked_add(blob.stored_len).is_some_and(|end| end <= len)),
            Err(e) if e.is_corruption() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Returns whether a reference from the log has an intact value. Reads it.
    pub fn is_complete(&self, blob: &BlobRef) -> Result<bool> {
        match self.file(blob.file) {
            Ok(file) => file.exists_and_complete(blob),
            Err(e) if e.is_corruption() => Ok(false),
            Err(e) => Err(e),
        }
    }

    pub fn sync(&self) -> Result<()> {
        self.writer.as_ref().map_or(Ok(()), |w| w.sync())
    }

    /// Called before each log sync, so that no durable record refers to a value that is not
    /// durable.
    pub fn sync_hook(&self) -> Option<Arc<dyn Fn() -> Result<()> + Send + Sync>> {
        let writer = Arc::clone(self.writer.as_ref()?);
        Some(Arc::new(move || writer.sync()))
    }

    pub fn bytes_written(&self) -> u64 {
        self.writer.as_ref().map_or(0, |w| w.stats().bytes_written)
    }

    pub fn live_bytes(layout: &Layout) -> BTreeMap<FileNumber, u64> {
        let mut live = BTreeMap::new();
        for blob_use in layout.runs.values().flat_map(|meta| &meta.blob_uses) {
            *live.entry(blob_use.file).or_default() += blob_use.bytes;
        }
        live
    }

    fn is_settled(&self, number: FileNumber, used: &Use, flushed: SequenceNumber) -> bool {
        // Check `open` first: once the file is not current, no writer begins in it, so `writing`
        // counts all that still write to it.
        let open = self.writer.as_ref().is_some_and(|w| w.is_current(number));
        let writing = self.writing.load(Ordering::Acquire) > 0;
        !open && !writing && used.on_their_way == 0 && used.last_sequence <= flushed
    }

    /// Releases unreferenced files. Each is removed once the returned handles and all other
    /// references are dropped.
    pub fn release_unused(&self, layout: &Layout) -> Vec<Box<dyn Any + Send + Sync>> {
        let live = BlobStore::live_bytes(layout);
        let settled = self.settled(layout);
        self.leave_unused(&live, settled);
        let unused: Vec<(FileNumber, Option<Arc<BlobFile>>)> = {
            let mut files = self.files.lock();
            let unused = |(number, used): (&FileNumber, &Use)| {
                (!live.contains_key(number) && self.is_settled(*number, used, settled)).then_some(*number)
            };
            let unused: Vec<FileNumber> = files.uses.iter().filter_map(unused).collect();
            // No later pin may find it.
            let forget = |number: FileNumber| {
                files.uses.remove(&number);
                (number, files.open.remove(&number))
            };
            unused.into_iter().map(forget).collect()
        };
        let mut released: Vec<Box<dyn Any + Send + Sync>> = Vec::new();
        for (number, open) in unused {
            if let Some(writer) = &self.writer {
                writer.forget(number);
            }
            match open.map_or_else(|| self.open(number, false).map(Arc::new), Ok) {
                Ok(file) => {
                    file.mark_obsolete();
                    released.push(Box::new(file));
                }
                // A crash may leave a file without a header.
                Err(e) if e.is_corruption() => self.remove(number),
                Err(e) => tracing::warn!(number, error = %e, "an unused blob file cannot be opened to be removed"),
            }
        }
        released
    }

    /// Closes a lane's current file if nothing refers to it. `writing` counts earlier writers and
    /// none begins later, so the next check can decide.
    fn leave_unused(&self, live: &BTreeMap<FileNumber, u64>, flushed: SequenceNumber) {
        let Some(writer) = &self.writer else { return };
        for lane in [Lane::Values, Lane::Bulk] {
            let Some(number) = writer.current_of(lane).filter(|number| !live.contains_key(number)) else { continue };
            let used = self.files.lock().uses.get(&number).copied();
            if used.is_some_and(|used| used.on_their_way == 0 && used.last_sequence <= flushed) {
                writer.roll(lane);
            }
        }
    }

    fn remove(&self, number: FileNumber) {
        let path = blob_path(&self.dir, number);
        match self.table.vfs.remove(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), error = %e, "an unused blob file could not be removed");
            }
            _ => {}
        }
    }

    /// Returns files with more than half garbage that only runs refer to: moving their values pays.
    pub fn sparse_files(&self, layout: &Layout, vfs: &dyn Vfs) -> Vec<FileNumber> {
        let live = BlobStore::live_bytes(layout);
        if live.is_empty() {
            return Vec::new();
        }
        let (sizes, settled) = (self.sizes(vfs), self.settled(layout));
        let files = self.files.lock();
        let is_sparse = |(number, bytes): (FileNumber, u64)| {
            let used = files.uses.get(&number).copied().unwrap_or_default();
            let size = sizes.get(&number).copied().unwrap_or(0);
            (self.is_settled(number, &used, settled) && bytes * 2 < size).then_some(number)
        };
        live.into_iter().filter_map(is_sparse).collect()
    }
}
