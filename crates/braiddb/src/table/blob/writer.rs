use super::format::{
    BLOB_CHUNK_LEN, BlobRef, ChunkEntry, RECORD_ALIGN, RECORD_HEADER_LEN, RecordHeader, blob_path, head_len,
};
use crate::{
    base::{Error, FileId, FileNumber, Result, limits},
    codec::{Compression, FILE_HEADER_LEN, FileHeader, FileKind, checksum, compress},
    platform::{File, OpenMode, Runtime, Vfs},
    table::{Moment, RecentWrites},
};
use parking_lot::Mutex;
use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Maximum bytes of a value that is written with its head in one call.
const WHOLE_WRITE_LEN: usize = 256 << 10;

const WRITE_WAIT_US: u64 = 100;

#[derive(Clone)]
pub struct BlobWriterContext {
    pub vfs: Arc<dyn Vfs>,
    pub dir: PathBuf,
    pub runtime: Arc<dyn Runtime>,
    pub next_file_number: Arc<dyn Fn() -> FileNumber + Send + Sync>,
    /// A new file begins after this length.
    pub file_len: u64,
    pub recent_writes: Arc<RecentWrites>,
    pub sync_failed: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for BlobWriterContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobWriterContext").field("dir", &self.dir).field("file_len", &self.file_len).finish()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlobWriterStats {
    pub values: u64,
    pub bytes_written: u64,
    pub files: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    Values,
    /// Pieces of long values. [`BlobWriter::sync`] skips them until [`BlobWriter::need`] reports a
    /// commit that refers to them, so that other syncs do not wait for gigabytes.
    Bulk,
}

/// Writes blobs, from many threads, into one file of each [`Lane`].
///
/// **Threads.** `append_to` reserves a range under a short lock and writes without it; only file
/// creation happens under the lock. A failed write leaves a hole. Each finished write increments
/// its file's `written`; `sync` reads that count before it flushes and stores it afterwards, so
/// later writes remain unsynced. A full file is dropped once it has no write in progress and all
/// are synced.
///
/// **Bulk files.** Of these, `sync` covers only `needed`: the writes finished when a commit came to
/// refer to the file. Bulk writers sync in small steps themselves ([`BlobWriter::sync_bulk`]).
///
/// **Order.** A log record that refers to a blob is appended after `append_to` returned, and the log
/// calls `sync` before it syncs itself. A new file's directory entry is synced with its first data.
///
/// **Failures.** After a failed sync nothing is written or synced any more. A failed write fails
/// only its caller.
///
/// A writer never opens an existing file.
#[derive(Debug)]
pub struct BlobWriter {
    context: BlobWriterContext,
    state: Mutex<State>,
    /// Held by a sync.
    syncing: Mutex<()>,
    failure: OnceLock<String>,
    values: AtomicU64,
    bytes_written: AtomicU64,
    files: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    current: [Current; 2],
    full: Vec<Arc<OpenFile>>,
}

#[derive(Debug, Default)]
struct Current {
    file: Option<Arc<OpenFile>>,
    end: u64,
}

impl State {
    fn files(&self) -> impl Iterator<Item = &Arc<OpenFile>> {
        self.full.iter().chain(self.current.iter().filter_map(|current| current.file.as_ref()))
    }
}

#[derive(Debug)]
struct OpenFile {
    number: FileNumber,
    file_id: FileId,
    path: PathBuf,
    file: Arc<dyn File>,
    /// Incremented only under the state's lock.
    writing: AtomicU64,
    written: AtomicU64,
    /// Changed only under `syncing`.
    synced: AtomicU64,
    /// Writes that commits refer to, in bulk files.
    needed: AtomicU64,
    lane: Lane,
    syncing: Mutex<()>,
    named: AtomicBool,
}

impl OpenFile {
    fn needed(&self) -> u64 {
        match self.lane {
            Lane::Values => self.written.load(Ordering::Acquire),
            Lane::Bulk => self.needed.load(Ordering::Acquire),
        }
    }
}

struct Reservation {
    file: Arc<OpenFile>,
    offset: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // Also after a failed write. First `written`, then `writing`: a syncer that sees no write
        // in progress sees all as written.
        self.file.written.fetch_add(1, Ordering::AcqRel);
        self.file.writing.fetch_sub(1, Ordering::AcqRel);
    }
}

impl BlobWriter {
    pub fn new(context: BlobWriterContext) -> BlobWriter {
        BlobWriter {
            context,
            state: Mutex::default(),
            syncing: Mutex::default(),
            failure: OnceLock::new(),
            values: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            files: AtomicU64::new(0),
        }
    }

    pub fn is_current(&self, number: FileNumber) -> bool {
        let state = self.state.lock();
        state.current.iter().any(|current| current.file.as_ref().is_some_and(|file| file.number == number))
    }

    pub fn current_of(&self, lane: Lane) -> Option<FileNumber> {
        self.state.lock().current[lane as usize].file.as_ref().map(|file| file.number)
    }

    #[cfg(test)]
    pub fn append(&self, internal_key: &[u8], value: &[u8], compression: Compression) -> Result<BlobRef> {
        self.append_to(Lane::Values, internal_key, value, compression)
    }

    /// Appends a value, durable after the next [`BlobWriter::sync`]. Needs memory for the compressed
    /// value at most. After [`Error::DiskFull`] the same call may succeed later.
    pub fn append_to(
        &self,
        lane: Lane,
        internal_key: &[u8],
        value: &[u8],
        compression: Compression,
    ) -> Result<BlobRef> {
        self.check()?;
        let value_len = value.len() as u64;
        if internal_key.len() > limits::MAX_INTERNAL_KEY_LEN || value_len > limits::MAX_VALUE_LEN {
            return Err(Error::InvalidArgument(format!(
                "a key of {} and a value of {value_len} bytes: too long",
                internal_key.len()
            )));
        }
        let packed = Packed::new(value, compression);
        let key_len = u32::try_from(internal_key.len()).unwrap_or(u32::MAX);
        let head_len = head_len(u64::from(key_len), packed.chunks.len() as u64);
        let stored_len = head_len + packed.bytes.len() as u64;
        let header = RecordHeader { compression: packed.compression, value_len, stored_len, key_len };

        // Before the reservation: everything behind its offset is written later.
        let since = Moment::now(&*self.context.runtime);
        let reservation = self.reserve(stored_len, lane)?;
        let (file, offset) = (&reservation.file, reservation.offset);
        self.context.recent_writes.note(file.file_id, offset, since);
        let (mut head, sum) = packed.head(&header, internal_key, file.file_id, offset);
        debug_assert_eq!(head.len() as u64, head_len);
        let written = if packed.bytes.len() <= WHOLE_WRITE_LEN {
            head.extend_from_slice(&packed.bytes);
            file.file.write_at(&head, offset)
        } else {
            file.file.write_at(&head, offset).and_then(|()| file.file.write_at(&packed.bytes, offset + head_len))
        };
        written.map_err(|e| Error::io("write", &file.path, e))?;
        self.values.fetch_add(1, Ordering::Relaxed);
        self.bytes_written.fetch_add(stored_len, Ordering::Relaxed);
        Ok(BlobRef {
            file: file.number,
            offset,
            len: value_len,
            stored_len,
            compression: packed.compression,
            checksum: sum,
        })
    }

    /// Makes all values durable whose append returned before, with their directory entries; in
    /// bulk files only needed ones.
    pub fn sync(&self) -> Result<()> {
        let _alone = self.syncing.lock();
        self.check()?;
        let files: Vec<Arc<OpenFile>> = self.state.lock().files().cloned().collect();
        for file in &files {
            if file.needed() > file.synced.load(Ordering::Acquire) {
                self.sync_file(file)?;
            }
        }
        self.name(files.iter().filter(|file| file.needed() > 0))?;
        self.state.lock().full.retain(|file| {
            // A full file gets no new writes: without one in progress the counts are final.
            let idle = file.writing.load(Ordering::Acquire) == 0;
            let is_synced = file.written.load(Ordering::Acquire) <= file.synced.load(Ordering::Relaxed);
            !idle || !is_synced || !file.named.load(Ordering::Relaxed)
        });
        Ok(())
    }

    pub fn sync_bulk(&self, numbers: &BTreeSet<FileNumber>) -> Result<()> {
        self.check()?;
        let is_meant = |file: &&Arc<OpenFile>| file.lane == Lane::Bulk && numbers.contains(&file.number);
        let files: Vec<Arc<OpenFile>> = self.state.lock().files().filter(is_meant).cloned().collect();
        files.iter().try_for_each(|file| self.sync_file(file))?;
        self.name(files.iter())
    }

    /// Includes these files in [`BlobWriter::sync`], before a commit refers to them.
    pub fn need(&self, numbers: &BTreeSet<FileNumber>) {
        for file in self.state.lock().files().filter(|file| numbers.contains(&file.number)) {
            file.needed.fetch_max(file.written.load(Ordering::Acquire), Ordering::AcqRel);
        }
    }

    fn sync_file(&self, file: &OpenFile) -> Result<()> {
        let _alone = file.syncing.lock();
        // After a failed sync a success means nothing.
        self.check()?;
        let written = file.written.load(Ordering::Acquire);
        if written > file.synced.load(Ordering::Relaxed) {
            file.file.sync_data().map_err(|e| self.failed(Error::io("sync", &file.path, e)))?;
            file.synced.store(written, Ordering::Release);
        }
        Ok(())
    }

    fn name<'a>(&self, files: impl Iterator<Item = &'a Arc<OpenFile>>) -> Result<()> {
        let unnamed: Vec<_> = files.filter(|file| !file.named.load(Ordering::Acquire)).collect();
        if unnamed.is_empty() {
            return Ok(());
        }
        let dir = &self.context.dir;
        self.context.vfs.sync_dir(dir).map_err(|e| self.failed(Error::io("sync", dir, e)))?;
        for file in unnamed {
            file.named.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Returns files that may get writes or have unsynced data. They are not garbage.
    #[cfg(test)]
    pub fn open_files(&self) -> Vec<FileNumber> {
        self.state.lock().files().map(|file| file.number).collect()
    }

    /// Ends the current file, so that it can be reclaimed or copied.
    pub fn roll(&self, lane: Lane) -> Option<FileNumber> {
        let mut state = self.state.lock();
        let full = state.current[lane as usize].file.take()?;
        let number = full.number;
        state.full.push(full);
        Some(number)
    }

    /// Ends these files, waits for their writes and syncs them: they never change again.
    pub fn seal(&self, numbers: &BTreeSet<FileNumber>) -> Result<()> {
        let files: Vec<Arc<OpenFile>> = {
            let mut state = self.state.lock();
            let State { current, full } = &mut *state;
            let is_meant = |file: &mut Arc<OpenFile>| numbers.contains(&file.number);
            full.extend(current.iter_mut().filter_map(|current| current.file.take_if(is_meant)));
            full.iter().filter(|file| numbers.contains(&file.number)).cloned().collect()
        };
        for file in &files {
            while file.writing.load(Ordering::Acquire) > 0 {
                self.context.runtime.sleep_us(WRITE_WAIT_US);
            }
            self.sync_file(file)?;
        }
        self.name(files.iter())
    }

    /// Closes a full file without references, to free its space.
    pub fn forget(&self, number: FileNumber) {
        self.state.lock().full.retain(|file| file.number != number);
    }

    pub fn stats(&self) -> BlobWriterStats {
        BlobWriterStats {
            values: self.values.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            files: self.files.load(Ordering::Relaxed),
        }
    }

    fn check(&self) -> Result<()> {
        match self.failure.get() {
            Some(reason) => Err(Error::ReadOnly { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn failed(&self, error: Error) -> Error {
        tracing::error!(%error, "a sync of blobs failed; no more are written");
        let _ = self.failure.set(error.to_string());
        (self.context.sync_failed)();
        error
    }

    fn reserve(&self, len: u64, lane: Lane) -> Result<Reservation> {
        let mut state = self.state.lock();
        let State { current, full } = &mut *state;
        let Current { file, end } = &mut current[lane as usize];
        let fits = end.checked_add(len).is_some_and(|end| end <= self.context.file_len);
        let file = match file {
            Some(file) if fits || *end <= FILE_HEADER_LEN as u64 => file.clone(),
            present => {
                let file = Arc::new(self.create(lane)?);
                full.extend(present.replace(file.clone()));
                *end = FILE_HEADER_LEN as u64;
                file
            }
        };
        let offset = *end;
        *end = (offset + len).next_multiple_of(RECORD_ALIGN);
        file.writing.fetch_add(1, Ordering::AcqRel);
        Ok(Reservation { file, offset })
    }

    fn create(&self, lane: Lane) -> Result<OpenFile> {
        let context = &self.context;
        let number = (context.next_file_number)();
        let path = blob_path(&context.dir, number);
        let file = context.vfs.open(&path, OpenMode::CreateNew).map_err(|e| Error::io("create", &path, e))?;
        let file_id = context.runtime.random_u64();
        let header = FileHeader::new(FileKind::Blob, file_id, [0, 0]).encode();
        if let Err(error) = file.write_at(&header, 0) {
            let _ = context.vfs.remove(&path);
            return Err(Error::io("write", &path, error));
        }
        self.files.fetch_add(1, Ordering::Relaxed);
        Ok(OpenFile {
            number,
            file_id,
            path,
            file,
            writing: AtomicU64::new(0),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            needed: AtomicU64::new(0),
            lane,
            syncing: Mutex::default(),
            named: AtomicBool::new(false),
        })
    }
}

struct Packed<'a> {
    compression: Compression,
    chunks: Vec<(u32, bool)>,
    bytes: Cow<'a, [u8]>,
}

impl<'a> Packed<'a> {
    fn new(value: &'a [u8], compression: Compression) -> Packed<'a> {
        let compression = compression.or_available();
        let mut chunks = Vec::with_capacity(value.len().div_ceil(BLOB_CHUNK_LEN));
        let mut copy: Option<Vec<u8>> = None;
        for (index, chunk) in value.chunks(BLOB_CHUNK_LEN).enumerate() {
            let packed = compress(compression, chunk);
            let stored = packed.as_deref().unwrap_or(chunk);
            if packed.is_some() && copy.is_none() {
                copy = Some(value.get(..index * BLOB_CHUNK_LEN).unwrap_or_default().to_vec());
            }
            if let Some(copy) = &mut copy {
                copy.extend_from_slice(stored);
            }
            chunks.push((u32::try_from(stored.len()).unwrap_or(u32::MAX), packed.is_some()));
        }
        let compression = if copy.is_some() { compression } else { Compression::None };
        Packed { compression, chunks, bytes: copy.map_or(Cow::Borrowed(value), Cow::Owned) }
    }

    fn head(&self, header: &RecordHeader, key: &[u8], file_id: FileId, offset: u64) -> (Vec<u8>, u64) {
        let (header_bytes, sum) = header.encode(file_id, offset);
        let whole = if self.bytes.len() <= WHOLE_WRITE_LEN { header.stored_len } else { header.head_len() };
        let mut head = Vec::with_capacity(usize::try_from(whole).unwrap_or_default());
        head.extend_from_slice(&header_bytes);
        head.extend_from_slice(key);
        let mut rest: &[u8] = &self.bytes;
        let mut at = offset + header.head_len();
        for (stored_len, compressed) in &self.chunks {
            let (stored, after) = rest.split_at(*stored_len as usize);
            let checksum = checksum(file_id, at, stored);
            ChunkEntry { stored_len: *stored_len, compressed: *compressed, checksum }.encode(&mut head);
            at += stored.len() as u64;
            rest = after;
        }
        let table_sum = checksum(file_id, offset + RECORD_HEADER_LEN as u64, &head[RECORD_HEADER_LEN..]);
        head.extend_from_slice(&table_sum.to_le_bytes());
        (head, sum)
    }
}
