//! Reads values from a blob file.

use super::{
    format::{
        BLOB_CHUNK_LEN, BlobRef, ChunkEntry, RECORD_ALIGN, RECORD_HEADER_LEN, RECORD_MAGIC, RecordHeader,
        TABLE_CHECKSUM_LEN, blob_path,
    },
    place::BlobPlace,
};
use crate::{
    base::{Corruption, Error, FileId, FileNumber, Result},
    cache::PinnedUnit,
    codec::{ByteReader, Compression, FILE_HEADER_LEN, FileHeader, FileKind, checksum, decompress},
    platform::{DeferredClose, File, OpenMode, Vfs},
    table::{DamagedUnit, TableContext},
};
use std::{
    ops::{Deref, Range},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

const WINDOW_LEN: u64 = 256 << 10;

const READ_LEN: u64 = 1 << 20;

const HEAD_READ_LEN: u64 = 4 << 10;

/// May still grow. Thread-safe. An obsolete file is removed with its last handle.
#[derive(Debug)]
pub struct BlobFile {
    vfs: Arc<dyn Vfs>,
    deferred_close: Arc<DeferredClose>,
    place: BlobPlace,
    file: Arc<dyn File>,
    path: PathBuf,
    number: FileNumber,
    file_id: FileId,
    obsolete: AtomicBool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanItem {
    /// Valid header and key. The chunks were not read.
    Record { reference: BlobRef, key: Vec<u8> },
    /// Valid header, but damaged or unwritten key or chunk table.
    Broken { reference: BlobRef },
    /// A failed or missing write, or damage.
    Hole { range: Range<u64> },
}

#[derive(Debug)]
pub enum BlobValue {
    Owned(Vec<u8>),
    InPlace(PinnedUnit),
}

impl BlobValue {
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            BlobValue::Owned(bytes) => bytes,
            BlobValue::InPlace(bytes) => bytes.to_vec(),
        }
    }
}

impl Deref for BlobValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            BlobValue::Owned(bytes) => bytes,
            BlobValue::InPlace(bytes) => bytes,
        }
    }
}

struct Layout {
    header: RecordHeader,
    key: Vec<u8>,
    chunks: Vec<ChunkEntry>,
    chunks_at: u64,
}

impl BlobFile {
    pub fn open(ctx: &TableContext, dir: &Path, number: FileNumber) -> Result<BlobFile> {
        BlobFile::open_by(ctx, dir, number, |bytes, path| FileHeader::decode(FileKind::Blob, bytes, path, 0))
    }

    pub fn open_damaged(ctx: &TableContext, dir: &Path, number: FileNumber) -> Result<BlobFile> {
        let decode = |bytes: &[u8], path: &Path| FileHeader::decode_repaired(FileKind::Blob, bytes, path, 0);
        BlobFile::open_by(ctx, dir, number, |bytes, path| Ok(decode(bytes, path)?.0))
    }

    fn open_by(
        ctx: &TableContext,
        dir: &Path,
        number: FileNumber,
        decode: impl FnOnce(&[u8], &Path) -> Result<FileHeader>,
    ) -> Result<BlobFile> {
        let (vfs, place) = (Arc::clone(&ctx.vfs), BlobPlace::new(ctx));
        let path = blob_path(dir, number);
        let file = vfs.open(&path, OpenMode::Read).map_err(|e| Error::io("open", &path, e))?;
        let len = file.len().map_err(|e| Error::io("read", &path, e))?;
        let mut bytes = [0; FILE_HEADER_LEN];
        if len < FILE_HEADER_LEN as u64 {
            return Err(Error::corruption(path, len, "the file header is cut short"));
        }
        file.read_exact_at(&mut bytes, 0).map_err(|e| Error::io("read", &path, e))?;
        let header = decode(&bytes, &path)?;
        let (deferred_close, obsolete) = (Arc::clone(&ctx.deferred_close), AtomicBool::new(false));
        Ok(BlobFile { vfs, deferred_close, place, file, path, number, file_id: header.file_id, obsolete })
    }

    pub fn len(&self) -> Result<u64> {
        self.file.len().map_err(|e| Error::io("read the length of", &self.path, e))
    }

    /// Keeps all bytes so far readable even if the file is removed. Corruption if it is already
    /// gone.
    pub fn catch_up(&self) -> Result<()> {
        self.file.catch_up().map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::corruption(&self.path, 0, "the blob file is missing"),
            _ => Error::io("open", &self.path, e),
        })
    }

    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    pub fn read(&self, reference: &BlobRef) -> Result<BlobValue> {
        match self.read_in_place(reference) {
            Ok(Some(value)) => Ok(BlobValue::InPlace(value)),
            // The map may be wrong where the file is right; if not, this read reports the error.
            Ok(None) | Err(_) => self.read_uncached(reference).map(BlobValue::Owned),
        }
    }

    /// Checks the value even if it was checked recently.
    pub fn read_uncached(&self, reference: &BlobRef) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        self.read_streaming(reference, &mut |bytes| {
            value.extend_from_slice(bytes);
        })?;
        Ok(value)
    }

    /// `None`: not mapped, compressed, or unreadable; an ordinary read then reports the error.
    fn read_in_place(&self, reference: &BlobRef) -> Result<Option<PinnedUnit>> {
        let BlobRef { offset, stored_len, .. } = *reference;
        let is_plain = reference.file == self.number && reference.compression == Compression::None;
        let Some(end) = offset.checked_add(stored_len).filter(|_| is_plain) else { return Ok(None) };
        let Some(mapped) = self.place.mapped(&*self.file, end) else { return Ok(None) };
        let Some(mapped) = &*mapped else { return Ok(None) };
        let now = self.place.now();
        let mut is_checked = mapped.is_checked(offset, now);
        if !is_checked && self.place.is_written(self.file_id, offset, now) {
            // It is in the page cache; mapping it page by page is faster.
            mapped.set_checked(offset, now);
            is_checked = true;
        }
        if !is_checked && !mapped.have_in_memory(offset..end) {
            return Ok(None);
        }
        let Some(record) = mapped.file.pin(offset..end) else { return Ok(None) };
        let mut window = Window { file: self, file_len: end, at: offset, bytes: WindowBytes::Mapped(record) };
        let chunks_at = if is_checked {
            offset + self.header(reference, &mut window, 0)?.head_len()
        } else {
            let layout = self.layout(reference, &mut window, 0)?;
            if layout.chunks.iter().any(|chunk| chunk.compressed) {
                return Ok(None);
            }
            self.read_chunks(reference, &layout, &mut window, 0..layout.header.chunk_count(), &mut |_| {})?;
            mapped.set_checked(offset, now);
            layout.chunks_at
        };
        Ok(mapped.file.pin(chunks_at..end))
    }

    /// Truncated at the value's end. Memory is bounded by the range and its chunks.
    pub fn read_range(&self, reference: &BlobRef, range: Range<u64>) -> Result<Vec<u8>> {
        let mut window = Window::new(self)?;
        let layout = self.layout(reference, &mut window, HEAD_READ_LEN)?;
        let range = range.start.min(reference.len)..range.end.min(reference.len);
        let mut value = Vec::new();
        if range.is_empty() {
            return Ok(value);
        }
        let from = range.start % BLOB_CHUNK_LEN as u64;
        let chunks = range.start / BLOB_CHUNK_LEN as u64..range.end.div_ceil(BLOB_CHUNK_LEN as u64);
        self.read_chunks(reference, &layout, &mut window, chunks, &mut |bytes| value.extend_from_slice(bytes))?;
        let part_len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        value.drain(..usize::try_from(from).unwrap_or(usize::MAX).min(value.len()));
        value.truncate(part_len);
        Ok(value)
    }

    /// Memory is bounded by a piece.
    pub fn read_streaming(&self, reference: &BlobRef, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut window = Window::new(self)?;
        let layout = self.layout(reference, &mut window, READ_LEN)?;
        self.read_chunks(reference, &layout, &mut window, 0..layout.header.chunk_count(), sink)
    }

    #[cfg(test)]
    pub fn read_key(&self, reference: &BlobRef) -> Result<Vec<u8>> {
        Ok(self.layout(reference, &mut Window::new(self)?, HEAD_READ_LEN)?.key)
    }

    /// Only failed reads are errors.
    pub fn exists_and_complete(&self, reference: &BlobRef) -> Result<bool> {
        match self.read_streaming(reference, &mut |_| {}) {
            Ok(()) => Ok(true),
            Err(error) if error.is_corruption() => Ok(false),
            Err(Error::Unsupported { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Behind a damaged header or chunk table, the remaining record counts as damaged. Only failed
    /// reads are errors.
    pub fn damaged_parts(&self, reference: &BlobRef) -> Result<Vec<DamagedUnit>> {
        let mut window = Window::new(self)?;
        let end = reference.offset.saturating_add(reference.stored_len);
        let layout = match self.layout(reference, &mut window, READ_LEN) {
            Ok(layout) => layout,
            Err(Error::Corruption(Corruption { offset, detail, .. })) => {
                let begin = offset.max(reference.offset);
                return Ok(vec![DamagedUnit::new(begin..end.max(begin + 1), detail)]);
            }
            Err(error) => return Err(error),
        };
        let (mut damaged, mut at) = (Vec::new(), layout.chunks_at);
        for entry in &layout.chunks {
            let range = at..at + u64::from(entry.stored_len);
            at = range.end;
            let detail = match window.get(range.start, u64::from(entry.stored_len), READ_LEN.min(end - range.start)) {
                Ok(stored) if checksum(self.file_id, range.start, stored) == entry.checksum => continue,
                Ok(_) => "the checksum of a chunk of a value does not match".to_owned(),
                Err(Error::Corruption(Corruption { detail, .. })) => detail,
                Err(error) => return Err(error),
            };
            damaged.push(DamagedUnit::new(range, detail));
        }
        Ok(damaged)
    }

    /// Visits records and holes in order. Linear in the file's length; reads no chunks.
    pub fn scan(&self, visitor: &mut dyn FnMut(ScanItem) -> Result<()>) -> Result<()> {
        let mut window = Window::new(self)?;
        let len = window.file_len;
        let mut offset = FILE_HEADER_LEN as u64;
        let mut hole = offset;
        let visit_hole = |range: Range<u64>, visitor: &mut dyn FnMut(ScanItem) -> Result<()>| {
            if range.is_empty() { Ok(()) } else { visitor(ScanItem::Hole { range }) }
        };
        while offset < len {
            let Some((header, sum)) = window.header(offset)? else {
                offset += RECORD_ALIGN;
                continue;
            };
            visit_hole(hole..offset, visitor)?;
            let reference = BlobRef {
                file: self.number,
                offset,
                len: header.value_len,
                stored_len: header.stored_len,
                compression: header.compression,
                checksum: sum,
            };
            match self.layout(&reference, &mut window, WINDOW_LEN) {
                Ok(layout) => visitor(ScanItem::Record { reference, key: layout.key })?,
                Err(error) if error.is_corruption() => visitor(ScanItem::Broken { reference })?,
                Err(error) => return Err(error),
            }
            offset = (offset + header.stored_len).next_multiple_of(RECORD_ALIGN);
            hole = offset;
        }
        visit_hole(hole..len, visitor)
    }

    fn bad(&self, offset: u64, detail: &str) -> Error {
        Error::corruption(&self.path, offset, detail)
    }

    /// Reads up to `ahead` bytes at once.
    fn header(&self, reference: &BlobRef, window: &mut Window<'_>, ahead: u64) -> Result<RecordHeader> {
        let at = reference.offset;
        if reference.file != self.number {
            return Err(self.bad(at, &format!("a reference to blob file {} is no reference to this", reference.file)));
        }
        let bytes = window.get(at, RECORD_HEADER_LEN as u64, ahead.min(reference.stored_len))?;
        let (header, sum) = RecordHeader::decode(bytes, self.file_id, at)
            .ok_or_else(|| self.bad(at, "no blob begins here, where one is referred to"))?;
        let same = sum == reference.checksum
            && header.value_len == reference.len
            && header.stored_len == reference.stored_len
            && header.compression == reference.compression;
        if same { Ok(header) } else { Err(self.bad(at, "the blob is not the one that is referred to")) }
    }

    fn layout(&self, reference: &BlobRef, window: &mut Window<'_>, ahead: u64) -> Result<Layout> {
        let at = reference.offset;
        let header = self.header(reference, window, ahead)?;
        let key_at = at + RECORD_HEADER_LEN as u64;
        let head_len = header.head_len() - RECORD_HEADER_LEN as u64;
        let head = window.get(key_at, head_len, ahead.min(header.stored_len))?;
        let (head, sum) = head.split_at(head.len().saturating_sub(TABLE_CHECKSUM_LEN));
        if checksum(self.file_id, key_at, head).to_le_bytes() != sum {
            return Err(self.bad(key_at, "the checksum of a blob's key and chunk table does not match"));
        }
        let mut reader = ByteReader::new(head);
        let cut = || self.bad(key_at, "the chunk table of a blob contradicts its header");
        let key = reader.take(header.key_len as usize).ok_or_else(cut)?.to_vec();
        let mut chunks = Vec::new();
        let mut stored_len = header.head_len();
        while !reader.is_at_end() {
            let entry = ChunkEntry::decode(&mut reader).ok_or_else(cut)?;
            let raw_len = header.chunk_len(chunks.len() as u64);
            let fits = if entry.compressed {
                u64::from(entry.stored_len) <= raw_len && header.compression != Compression::None
            } else {
                u64::from(entry.stored_len) == raw_len
            };
            stored_len += u64::from(entry.stored_len);
            chunks.push(entry);
            if !fits {
                return Err(cut());
            }
        }
        if stored_len != header.stored_len || chunks.len() as u64 != header.chunk_count() {
            return Err(cut());
        }
        Ok(Layout { header, key, chunks, chunks_at: at + header.head_len() })
    }

    /// If this build cannot decompress some chunks, the error comes after all were verified.
    fn read_chunks(
        &self,
        reference: &BlobRef,
        layout: &Layout,
        window: &mut Window<'_>,
        range: Range<u64>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let mut at = layout.chunks_at;
        let end = reference.offset + reference.stored_len;
        let mut is_readable = true;
        for (index, entry) in (0..).zip(&layout.chunks).take_while(|(index, _)| *index < range.end) {
            let stored_len = u64::from(entry.stored_len);
            if index >= range.start {
                // More chunks may follow.
                let most = (range.end - index) * BLOB_CHUNK_LEN as u64;
                let stored = window.get(at, stored_len, READ_LEN.min(end - at).min(most))?;
                if checksum(self.file_id, at, stored) != entry.checksum {
                    return Err(self.bad(at, "the checksum of a chunk of a blob does not match"));
                }
                if entry.compressed && !layout.header.compression.is_readable() {
                    is_readable = false;
                } else if entry.compressed {
                    let raw_len = usize::try_from(layout.header.chunk_len(index)).unwrap_or(usize::MAX);
                    let raw = decompress(layout.header.compression, stored, raw_len)
                        .ok_or_else(|| self.bad(at, "a chunk of a blob cannot be unpacked"))?;
                    sink(&raw);
                } else {
                    sink(stored);
                }
            }
            at += stored_len;
        }
        if !is_readable {
            let detail =
                "it has values that are compressed with Zstandard; use a build with the feature `zstd`".to_owned();
            return Err(Error::Unsupported { path: self.path.clone(), detail });
        }
        Ok(())
    }
}

impl Drop for BlobFile {
    fn drop(&mut self) {
        let file = Arc::clone(&self.file);
        if self.obsolete.load(Ordering::Acquire) {
            self.deferred_close.remove(&self.vfs, &self.path, file);
        } else {
            self.deferred_close.drop_later(file);
        }
    }
}

struct Window<'a> {
    file: &'a BlobFile,
    file_len: u64,
    at: u64,
    bytes: WindowBytes,
}

enum WindowBytes {
    Read(Vec<u8>),
    Mapped(PinnedUnit),
}

impl Deref for WindowBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            WindowBytes::Read(bytes) => bytes,
            WindowBytes::Mapped(bytes) => bytes,
        }
    }
}

impl<'a> Window<'a> {
    fn new(file: &'a BlobFile) -> Result<Window<'a>> {
        Ok(Window { file, file_len: file.len()?, at: 0, bytes: WindowBytes::Read(Vec::new()) })
    }

    fn get(&mut self, offset: u64, len: u64, ahead: u64) -> Result<&[u8]> {
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= self.file_len)
            .ok_or_else(|| self.file.bad(offset, "the blob reaches past the end of its file"))?;
        if offset < self.at || end > self.at + self.bytes.len() as u64 {
            let read_len = usize::try_from(len.max(ahead.min(self.file_len - offset))).unwrap_or(usize::MAX);
            // If the read fails, the window is empty.
            let mut bytes = match std::mem::replace(&mut self.bytes, WindowBytes::Read(Vec::new())) {
                WindowBytes::Read(bytes) => bytes,
                WindowBytes::Mapped(_) => Vec::new(),
            };
            bytes.clear();
            bytes.resize(read_len, 0);
            let path = &self.file.path;
            self.file.file.read_exact_at(&mut bytes, offset).map_err(|e| Error::io("read", path, e))?;
            (self.at, self.bytes) = (offset, WindowBytes::Read(bytes));
        }
        let from = usize::try_from(offset - self.at).unwrap_or(usize::MAX);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.bytes.get(from..from.saturating_add(len)).ok_or_else(|| self.file.bad(offset, "the blob is cut short"))
    }

    fn header(&mut self, offset: u64) -> Result<Option<(RecordHeader, u64)>> {
        let file_id = self.file.file_id;
        if offset + RECORD_HEADER_LEN as u64 > self.file_len {
            return Ok(None);
        }
        let bytes = self.get(offset, RECORD_HEADER_LEN as u64, WINDOW_LEN)?;
        Ok(if bytes.starts_with(&RECORD_MAGIC) { RecordHeader::decode(bytes, file_id, offset) } else { None })
    }
}
