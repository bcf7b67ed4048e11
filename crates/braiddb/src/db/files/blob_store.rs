//! The blob files of a database: the writer, the open readers, and when a file may go.
//!
//! A blob file may go when it is closed for writing, no commit that wrote to it is on its way, everything committed to
//! it is in runs, and no run refers to it. What runs refer to is counted in their metas: so the count can never drift.
//!
//! A commit may also refer to what others have written: an append to a stream keeps the pieces that are there. So it has their files
//! count as on their way before it commits ([`BlobStore::pin`]). Who wants to do so has found them in an entry of some state. Either
//! they are still known: then they stay, since a file is forgotten under the same lock under which it is decided that it
//! may go, and none goes that is on its way. Or one is not: then some state does without it, which was published before that was
//! decided; so whoever looks the key up again, in the present state, finds where its value was moved to, or another value.

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

/// What is known of a blob file beyond what runs say.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// Commits that wrote to it and have not been numbered yet.
    on_their_way: u64,
    /// The highest sequence number among those that have.
    last_sequence: SequenceNumber,
}

#[derive(Debug, Default)]
struct Files {
    open: HashMap<FileNumber, Arc<BlobFile>>,
    uses: BTreeMap<FileNumber, Use>,
    /// Those that a record refers to which was replayed; they may never have been synced.
    replayed: BTreeSet<FileNumber>,
}

/// How much of a file is written again at once.
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

/// All blob files.
#[derive(Debug)]
pub struct BlobStore {
    dir: PathBuf,
    table: TableContext,
    writer: Option<Arc<BlobWriter>>,
    files: Mutex<Files>,
    /// Values being written.
    writing: AtomicU64,
    /// The log holds what was committed after this, and what that refers to stays; `u64::MAX` if nothing stays for the log's sake.
    held_above: AtomicU64,
    /// What commits above this one refer to stays: it is to be archived with the log.
    archived: AtomicU64,
}

impl BlobStore {
    /// The blob files of a directory; `known` exist already. No writer: open for reading only.
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

    /// The blob files of a database that another process writes. Those that the runs of a layout refer to are open, so that none can
    /// vanish. Of `others`, those that `before` has open stay so; they are opened with [`BlobStore::open_all`]. Those that `grown` says may have more
    /// in them than when `before` was made. No writer.
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

    /// Opens these files.
    pub fn open_all<'a>(&self, numbers: impl IntoIterator<Item = &'a FileNumber>) -> Result<()> {
        numbers.into_iter().try_for_each(|number| self.file(*number).map(|_| ()))
    }

    /// Lets go of all files.
    pub fn let_go_of_all(&self) {
        *self.files.lock() = Files::default();
    }

    /// Writes a value for a commit on its way; the caller says later what became of the commit.
    pub fn write(&self, key: &[u8], value: &[u8], compression: Compression) -> Result<BlobRef> {
        self.write_to(Lane::Values, key, value, compression)
    }

    /// The same in a lane of the writer.
    pub fn write_to(&self, lane: Lane, key: &[u8], value: &[u8], compression: Compression) -> Result<BlobRef> {
        let writer = self.writer.as_ref().ok_or(Error::Closed)?;
        // No file counts as unused while a value is written whose file is not marked as in use yet.
        self.writing.fetch_add(1, Ordering::AcqRel);
        let written = writer.append_to(lane, key, value, compression);
        if let Ok(blob) = &written {
            self.files.lock().uses.entry(blob.file).or_default().on_their_way += 1;
        }
        self.writing.fetch_sub(1, Ordering::AcqRel);
        written
    }

    /// Counts these files as on their way once more; whether all of them are still known. The caller says later what became of the
    /// commit that is to refer to them.
    pub fn pin(&self, numbers: &BTreeSet<FileNumber>) -> bool {
        let mut files = self.files.lock();
        let are_known = numbers.iter().all(|number| files.uses.contains_key(number));
        if are_known {
            for number in numbers {
                files.uses.entry(*number).or_default().on_their_way += 1;
            }
        }
        are_known
    }

    /// Makes what was written of a stream durable, whether a commit refers to it or not.
    pub fn sync_bulk(&self, numbers: &BTreeSet<FileNumber>) -> Result<()> {
        self.writer.as_ref().map_or(Ok(()), |w| w.sync_bulk(numbers))
    }

    /// Has the log see to it that these files are durable as they are now before what is appended to it next is.
    pub fn need(&self, numbers: &BTreeSet<FileNumber>) {
        if let Some(writer) = &self.writer {
            writer.need(numbers);
        }
    }

    /// Lets the next part of a stream begin a file, if the present one is among these.
    pub fn leave_bulk_file(&self, numbers: &BTreeSet<FileNumber>) {
        if let Some(writer) = &self.writer
            && writer.current_of(Lane::Bulk).is_some_and(|number| numbers.contains(&number))
        {
            writer.roll(Lane::Bulk);
        }
    }

    /// From now on files go only if no commit above this one refers to them.
    pub fn hold_until_archived(&self, archived: SequenceNumber) {
        self.archived.store(archived, Ordering::Release);
    }

    /// Counts all files that are there as on their way.
    pub fn pin_all(&self) -> BTreeSet<FileNumber> {
        let numbers: BTreeSet<FileNumber> = self.files.lock().uses.keys().copied().collect();
        self.pin(&numbers);
        numbers
    }

    /// Has these files never change any more: what comes next is written to others. They are durable when this returns.
    pub fn seal(&self, numbers: &BTreeSet<FileNumber>) -> Result<()> {
        self.writer.as_ref().map_or(Ok(()), |w| w.seal(numbers))
    }

    /// The commit that wrote these was numbered `sequence`, or failed (`None`).
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

    /// Notes a reference found in the log.
    pub fn note_replayed(&self, number: FileNumber, sequence: SequenceNumber) {
        let mut files = self.files.lock();
        let used = files.uses.entry(number).or_default();
        used.last_sequence = used.last_sequence.max(sequence);
        files.replayed.insert(number);
    }

    /// Notes a reference found in what is kept of the log.
    pub fn note_held(&self, number: FileNumber, sequence: SequenceNumber) {
        if let Some(used) = self.files.lock().uses.get_mut(&number) {
            used.last_sequence = used.last_sequence.max(sequence);
        }
    }

    /// Has files stay that were referred to by commits above `floor`.
    pub fn hold_above(&self, floor: SequenceNumber) {
        self.held_above.store(floor, Ordering::Release);
    }

    /// Whether there are any files.
    pub fn has_files(&self) -> bool {
        !self.files.lock().uses.is_empty()
    }

    /// Whether there is such a file, and nobody has let go of it.
    pub fn is_known(&self, number: FileNumber) -> bool {
        self.files.lock().uses.contains_key(&number)
    }

    /// The files that hold what is dead but for the log: the last commit that refers to each, and how many bytes that is.
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

    /// How long the files are.
    fn sizes(&self, vfs: &dyn Vfs) -> HashMap<FileNumber, u64> {
        let entries = vfs.list(&self.dir).unwrap_or_default();
        let blob = |name: &str| name.strip_suffix(".blob")?.parse::<FileNumber>().ok();
        entries.iter().filter_map(|entry| Some((blob(&entry.name)?, entry.len))).collect()
    }

    /// Up to where commits have no more need of the files that they refer to.
    fn settled(&self, layout: &Layout) -> SequenceNumber {
        let kept = self.held_above.load(Ordering::Acquire).min(self.archived.load(Ordering::Acquire));
        layout.flushed.min(kept)
    }

    /// Makes what replayed records refer to durable, whatever it was before; only then may the log say that they are.
    /// `rewrite` writes it once more before, as it does for the log.
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

    /// The open file of this number.
    pub fn file(&self, number: FileNumber) -> Result<Arc<BlobFile>> {
        let is_in_use = {
            let files = self.files.lock();
            if let Some(file) = files.open.get(&number) {
                return Ok(Arc::clone(file));
            }
            // Who writes nothing knows of no file before it is asked for, and of none that is let go of.
            self.writer.is_none() || files.uses.contains_key(&number)
        };
        let file = self.open(number, is_in_use)?;
        let mut files = self.files.lock();
        if self.writer.is_some() && !files.uses.contains_key(&number) {
            // It was let go of, and an old state still reads it: who kept it open would keep its space taken.
            return Ok(Arc::new(file));
        }
        Ok(Arc::clone(files.open.entry(number).or_insert_with(|| Arc::new(file))))
    }

    /// Opens a file.
    fn open(&self, number: FileNumber, is_in_use: bool) -> Result<BlobFile> {
        // What was let go of is opened for one value alone: to map it would not pay.
        let table = TableContext { in_place: self.table.in_place && is_in_use, ..self.table.clone() };
        BlobFile::open(&table, &self.dir, number).map_err(|e| match e {
            Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Error::corruption(path, 0, "the blob file is missing")
            }
            e => e,
        })
    }

    /// The whole value that stands in these pieces.
    pub fn read_pieces(&self, pieces: &Pieces) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        for piece in &pieces.list {
            self.file(piece.file)?.read_streaming(piece, &mut |bytes| value.extend_from_slice(bytes))?;
        }
        Ok(value)
    }

    /// The pieces of which the list, as it stands in an entry, tells.
    pub fn pieces(&self, list: &[u8]) -> Result<Pieces> {
        Pieces::decode(list).ok_or_else(|| self.misunderstood())
    }

    /// The error about an entry that makes no sense.
    pub fn misunderstood(&self) -> Error {
        Error::corruption(&self.dir, 0, "an entry holds a blob reference that cannot be understood")
    }

    /// The value that a reference, as it stands in an entry, leads to.
    pub fn read(&self, reference: &[u8]) -> Result<BlobValue> {
        let blob = self.decode(reference)?;
        self.file(blob.file)?.read(&blob)
    }

    /// As [`BlobStore::read`], but reads and checks the value whatever was read of it lately.
    pub fn read_anew(&self, blob: &BlobRef) -> Result<Vec<u8>> {
        self.file(blob.file)?.read_anew(blob)
    }

    /// Reads the value and checks it, and keeps nothing of it.
    pub fn verify(&self, blob: &BlobRef) -> Result<()> {
        self.file(blob.file)?.read_streaming(blob, &mut |_| {})
    }

    fn decode(&self, reference: &[u8]) -> Result<BlobRef> {
        BlobRef::decode(reference).ok_or_else(|| self.misunderstood())
    }

    /// Whether a reference from the log leads into a file that is long enough for it. Reads nothing of the value.
    pub fn is_present(&self, blob: &BlobRef) -> Result<bool> {
        match self.file(blob.file).and_then(|file| file.len()) {
            Ok(len) => Ok(blob.offset.checked_add(blob.stored_len).is_some_and(|end| end <= len)),
            Err(e) if e.is_corruption() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Whether a reference from the log leads to a whole value. Reads it.
    pub fn is_complete(&self, blob: &BlobRef) -> Result<bool> {
        match self.file(blob.file) {
            Ok(file) => file.exists_and_complete(blob),
            Err(e) if e.is_corruption() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Makes everything written survive a power failure.
    pub fn sync(&self) -> Result<()> {
        self.writer.as_ref().map_or(Ok(()), |w| w.sync())
    }

    /// What the log calls before it syncs, so that no durable record refers to a value that is not on disk.
    pub fn sync_hook(&self) -> Option<Arc<dyn Fn() -> Result<()> + Send + Sync>> {
        let writer = Arc::clone(self.writer.as_ref()?);
        Some(Arc::new(move || writer.sync()))
    }

    /// Bytes written by this handle.
    pub fn bytes_written(&self) -> u64 {
        self.writer.as_ref().map_or(0, |w| w.stats().bytes_written)
    }

    /// Bytes that the runs of a layout refer to, by file.
    pub fn live_bytes(layout: &Layout) -> BTreeMap<FileNumber, u64> {
        let mut live = BTreeMap::new();
        for blob_use in layout.runs.values().flat_map(|meta| &meta.blob_uses) {
            *live.entry(blob_use.file).or_default() += blob_use.bytes;
        }
        live
    }

    fn is_settled(&self, number: FileNumber, used: &Use, flushed: SequenceNumber) -> bool {
        // In this order: once a file is not current any more, whoever writes to it has begun before.
        let open = self.writer.as_ref().is_some_and(|w| w.is_current(number));
        let writing = self.writing.load(Ordering::Acquire) > 0;
        !open && !writing && used.on_their_way == 0 && used.last_sequence <= flushed
    }

    /// Lets go of the files that nothing refers to any more. Each is removed once what is returned, and every other
    /// hold of it, is dropped.
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
            // At once: who wants to keep one must not find it here any more.
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
                // A crash may leave a file without a header; as nothing refers to it, it need not be understood.
                Err(e) if e.is_corruption() => self.remove(number),
                Err(e) => tracing::warn!(number, error = %e, "an unused blob file cannot be opened to be removed"),
            }
        }
        released
    }

    /// Has the writer go on in another file where nothing refers to the present one. Who has begun to write to it before is still
    /// counted as writing, and nobody begins after: so when it is looked at next, it is known what becomes of it.
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

    /// The files of which less than half is referred to, and whose values runs alone refer to: worth moving.
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
