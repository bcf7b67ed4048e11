//! The blob files of a database: the writer, the open readers, and when a file may go.
//!
//! A blob file may go when it is closed for writing, no commit that wrote to it is on its way, everything committed to
//! it is in runs, and no run refers to it. What runs refer to is counted in their metas: so the count can never drift.

use crate::{
    base::{Error, FileNumber, Result, SequenceNumber},
    codec::Compression,
    platform::{File, OpenMode, Vfs},
    table::{
        TableContext,
        blob::{BlobFile, BlobRef, BlobValue, BlobWriter, blob_path},
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
        }
    }

    /// Writes a value for a commit on its way; the caller says later what became of the commit.
    pub fn write(&self, key: &[u8], value: &[u8], compression: Compression) -> Result<BlobRef> {
        let writer = self.writer.as_ref().ok_or(Error::Closed)?;
        // No file counts as unused while a value is written whose file is not marked as in use yet.
        self.writing.fetch_add(1, Ordering::AcqRel);
        let written = writer.append(key, value, compression);
        if let Ok(blob) = &written {
            self.files.lock().uses.entry(blob.file).or_default().on_their_way += 1;
        }
        self.writing.fetch_sub(1, Ordering::AcqRel);
        written
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
            files.uses.contains_key(&number)
        };
        // What was let go of is opened for one value alone: to map it would not pay.
        let table = TableContext { in_place: self.table.in_place && is_in_use, ..self.table.clone() };
        let file = BlobFile::open(&table, &self.dir, number).map_err(|e| match e {
            Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Error::corruption(path, 0, "the blob file is missing")
            }
            e => e,
        })?;
        let mut files = self.files.lock();
        if !files.uses.contains_key(&number) {
            // It was let go of, and an old state still reads it: who kept it open would keep its space taken.
            return Ok(Arc::new(file));
        }
        Ok(Arc::clone(files.open.entry(number).or_insert_with(|| Arc::new(file))))
    }

    /// The value that a reference, as it stands in an entry, leads to.
    pub fn read(&self, reference: &[u8]) -> Result<BlobValue> {
        let blob = self.decode(reference)?;
        self.file(blob.file)?.read(&blob)
    }

    /// As [`BlobStore::read`], but reads and checks the value whatever was read of it lately.
    pub fn read_anew(&self, reference: &[u8]) -> Result<Vec<u8>> {
        let blob = self.decode(reference)?;
        self.file(blob.file)?.read_anew(&blob)
    }

    fn decode(&self, reference: &[u8]) -> Result<BlobRef> {
        BlobRef::decode(reference)
            .ok_or_else(|| Error::corruption(&self.dir, 0, "an entry holds a blob reference that cannot be understood"))
    }

    /// Whether a reference from the log leads into a file that is long enough for it. Reads nothing of the value.
    pub fn is_present(&self, reference: &[u8]) -> Result<bool> {
        let Some(blob) = BlobRef::decode(reference) else { return Ok(false) };
        match self.file(blob.file).and_then(|file| file.len()) {
            Ok(len) => Ok(blob.offset.checked_add(blob.stored_len).is_some_and(|end| end <= len)),
            Err(e) if e.is_corruption() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Whether a reference from the log leads to a whole value. Reads it.
    pub fn is_complete(&self, reference: &[u8]) -> Result<bool> {
        let Some(blob) = BlobRef::decode(reference) else { return Ok(false) };
        match self.file(blob.file) {
            Ok(file) => file.exists_and_complete(&blob),
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
        let open = self.writer.as_ref().is_some_and(|w| w.current_file() == Some(number));
        let writing = self.writing.load(Ordering::Acquire) > 0;
        !open && !writing && used.on_their_way == 0 && used.last_sequence <= flushed
    }

    /// Lets go of the files that nothing refers to any more. Each is removed once what is returned, and every other
    /// hold of it, is dropped.
    pub fn release_unused(&self, layout: &Layout) -> Vec<Box<dyn Any + Send + Sync>> {
        let live = BlobStore::live_bytes(layout);
        let unused: Vec<FileNumber> = {
            let files = self.files.lock();
            let unused = |(number, used): (&FileNumber, &Use)| {
                (!live.contains_key(number) && self.is_settled(*number, used, layout.flushed)).then_some(*number)
            };
            files.uses.iter().filter_map(unused).collect()
        };
        let mut released: Vec<Box<dyn Any + Send + Sync>> = Vec::new();
        for number in unused {
            match self.file(number) {
                Ok(file) => {
                    file.mark_obsolete();
                    released.push(Box::new(file));
                }
                // A crash may leave a file without a header; as nothing refers to it, it need not be understood.
                Err(e) if e.is_corruption() => self.remove(number),
                Err(e) => tracing::warn!(number, error = %e, "an unused blob file cannot be opened to be removed"),
            }
            let mut files = self.files.lock();
            files.open.remove(&number);
            files.uses.remove(&number);
        }
        released
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
        let sizes: HashMap<String, u64> = match vfs.list(&self.dir) {
            Ok(entries) => entries.into_iter().map(|e| (e.name, e.len)).collect(),
            Err(_) => return Vec::new(),
        };
        let files = self.files.lock();
        let is_sparse = |(number, bytes): (FileNumber, u64)| {
            let used = files.uses.get(&number).copied().unwrap_or_default();
            let name = blob_path(Path::new(""), number).to_string_lossy().into_owned();
            let size = sizes.get(&name).copied().unwrap_or(0);
            (self.is_settled(number, &used, layout.flushed) && bytes * 2 < size).then_some(number)
        };
        live.into_iter().filter_map(is_sparse).collect()
    }
}
