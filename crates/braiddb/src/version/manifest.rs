//! The manifest: a log of edits, rewritten when it is much longer than its state.
//!
//! Records follow the file header, one for each edit:
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | length of the payload |
//! | 4..12 | checksum of length and payload, of the manifest's file id at the record's offset |
//! | 12.. | the edit |
//!
//! An edit is written and synced, then CURRENT records the new length. Bytes below that length must
//! be valid. One valid record after it counts: the crash came before the update of CURRENT.

use super::{Current, Edit, Layout, SeenCurrent};
use crate::{
    base::{Error, FileNumber, Result},
    codec::{ByteReader, FILE_HEADER_LEN, FORMAT_VERSION, FileHeader, FileKind, checksum},
    platform::{File, OpenMode, Runtime, Vfs},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const RECORD_HEADER_LEN: usize = 12;

/// Minimum bytes for a rewrite, at four times the last rewritten length.
const REWRITE_BYTES_MIN: u64 = 256 << 10;

pub fn manifest_name(number: FileNumber) -> String {
    format!("MANIFEST-{number:06}")
}

#[derive(Clone, Debug)]
pub struct ManifestRecord {
    pub offset: u64,
    pub edit: Edit,
}

/// `synced_len` bytes must be valid. Also returns the end of the records.
pub fn read_records(bytes: &[u8], synced_len: u64, path: &Path) -> Result<(Vec<ManifestRecord>, u64)> {
    let bad = |offset: usize, detail: &str| Error::corruption(path, offset as u64, detail);
    let header = FileHeader::decode(FileKind::Manifest, bytes, path, 0)?;
    if (bytes.len() as u64) < synced_len {
        return Err(bad(bytes.len(), &format!("the manifest is cut short: {synced_len} bytes of it were synced")));
    }
    let records = bytes.get(FILE_HEADER_LEN..).unwrap_or_default();
    read_records_from(records, header.file_id, FILE_HEADER_LEN as u64, synced_len, path)
}

/// `bytes` begin at offset `start`. Also returns the end of the records.
fn read_records_from(
    mut bytes: &[u8],
    file_id: u64,
    start: u64,
    synced_len: u64,
    path: &Path,
) -> Result<(Vec<ManifestRecord>, u64)> {
    let mut records = Vec::new();
    let mut offset = start;
    while let Some((payload, len)) = read_record(bytes, file_id, offset) {
        let edit = Edit::decode(payload)
            .ok_or_else(|| Error::corruption(path, offset, "an edit has a valid checksum but cannot be understood"))?;
        records.push(ManifestRecord { offset, edit });
        bytes = bytes.get(len..).unwrap_or_default();
        offset += len as u64;
    }
    if offset < synced_len {
        return Err(Error::corruption(path, offset, "an edit's checksum does not match"));
    }
    Ok((records, offset))
}

pub(super) fn read_record(bytes: &[u8], file_id: u64, offset: u64) -> Option<(&[u8], usize)> {
    let mut reader = ByteReader::new(bytes);
    let len = usize::try_from(reader.u32()?).ok()?;
    let sum = reader.u64()?;
    let payload = reader.take(len)?;
    (record_checksum(file_id, offset, payload) == sum).then_some((payload, RECORD_HEADER_LEN + len))
}

/// Returns offset and checksum of the first record after `synced_len`.
fn unsettled(records: &[ManifestRecord], synced_len: u64, sum_of: impl Fn(u64) -> Option<u64>) -> Option<(u64, u64)> {
    let record = records.iter().find(|record| record.offset >= synced_len)?;
    Some((record.offset, sum_of(record.offset)?))
}

fn sum_in(bytes: &[u8], offset: u64) -> Option<u64> {
    let mut reader = ByteReader::new(bytes.get(usize::try_from(offset).ok()?..)?);
    reader.u32()?;
    reader.u64()
}

fn record_checksum(file_id: u64, offset: u64, payload: &[u8]) -> u64 {
    checksum(file_id ^ payload.len() as u64, offset, payload)
}

#[derive(Clone, Debug)]
pub struct Manifest {
    vfs: Arc<dyn Vfs>,
    runtime: Arc<dyn Runtime>,
    dir: PathBuf,
    path: PathBuf,
    file: Arc<dyn File>,
    file_id: u64,
    number: FileNumber,
    len: u64,
    rewritten_len: u64,
    current: Current,
    current_is_behind: bool,
    layout: Layout,
    bytes_written: u64,
    /// The header has an earlier version, with fewer kinds of changes.
    is_older: bool,
    /// Offset and checksum of a record that CURRENT did not count at open. The writer may take it
    /// back.
    unsettled: Option<(u64, u64)>,
}

impl Manifest {
    /// Creates the manifest of a new database; syncs everything.
    pub fn create(vfs: &Arc<dyn Vfs>, runtime: &Arc<dyn Runtime>, dir: &Path, mut layout: Layout) -> Result<Manifest> {
        let number = layout.next_file;
        layout.next_file += 1;
        let file_id = runtime.random_u64();
        let (path, file, len) = write_manifest(&**vfs, dir, number, file_id, &layout)?;
        vfs.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
        let current = Current::create(&**vfs, dir, runtime.random_u64(), number, len)?;
        vfs.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
        let (vfs, runtime) = (Arc::clone(vfs), Arc::clone(runtime));
        let dir = dir.to_owned();
        let rewritten_len = len;
        Ok(Manifest {
            vfs,
            runtime,
            dir,
            path,
            file,
            file_id,
            number,
            len,
            rewritten_len,
            current,
            current_is_behind: false,
            layout,
            bytes_written: len,
            is_older: false,
            unsettled: None,
        })
    }

    /// `Ok(None)` without CURRENT.
    pub fn open(
        vfs: &Arc<dyn Vfs>,
        runtime: &Arc<dyn Runtime>,
        dir: &Path,
        read_only: bool,
    ) -> Result<Option<Manifest>> {
        let Some(current) = Current::open(&**vfs, dir, read_only)? else { return Ok(None) };
        let slot = current.newest();
        let path = dir.join(manifest_name(slot.manifest));
        let mode = if read_only { OpenMode::Read } else { OpenMode::ReadWrite };
        let file = vfs.open(&path, mode).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::corruption(&path, 0, "CURRENT names this manifest, but it is missing")
            }
            _ => Error::io("open", &path, e),
        })?;
        let len = file.len().map_err(|e| Error::io("read", &path, e))?;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0).map_err(|e| Error::io("read", &path, e))?;
        let (records, end) = read_records(&bytes, slot.manifest_len, &path)?;
        let header = FileHeader::decode(FileKind::Manifest, &bytes, &path, 0)?;
        let mut layout = Layout::default();
        for record in &records {
            layout.apply(&record.edit).map_err(|rule| Error::corruption(&path, record.offset, rule))?;
        }
        layout.check_cover().map_err(|rule| Error::corruption(&path, 0, rule))?;
        layout.next_file = layout.next_file.max(slot.manifest + 1);
        let mut manifest = Manifest {
            vfs: Arc::clone(vfs),
            runtime: Arc::clone(runtime),
            dir: dir.to_owned(),
            path,
            file,
            file_id: header.file_id,
            number: slot.manifest,
            len: end,
            rewritten_len: FILE_HEADER_LEN as u64,
            current,
            current_is_behind: false,
            layout,
            bytes_written: 0,
            is_older: header.version < FORMAT_VERSION,
            unsettled: unsettled(&records, slot.manifest_len, |offset| sum_in(&bytes, offset)),
        };
        if !read_only {
            manifest.settle_tail(len, slot.manifest_len, &bytes)?;
        }
        Ok(Some(manifest))
    }

    /// Opens the manifest in force for reading; reads only the added edits if this file still is.
    /// `Ok(None)` without CURRENT.
    pub fn reopen(&self) -> Result<Option<Manifest>> {
        match self.with_added_edits() {
            Some(manifest) => Ok(Some(manifest)),
            None => Manifest::open(&self.vfs, &self.runtime, &self.dir, true),
        }
    }

    /// `None`: the whole manifest must be read, which also reports errors.
    fn with_added_edits(&self) -> Option<Manifest> {
        let current = Current::open(&*self.vfs, &self.dir, true).ok()??;
        let slot = current.newest();
        // Another database may have a manifest of this number, as after a restore.
        let file = self.vfs.open(&self.path, OpenMode::Read).ok()?;
        let mut header = [0; FILE_HEADER_LEN];
        file.read_exact_at(&mut header, 0).ok()?;
        let header = FileHeader::decode(FileKind::Manifest, &header, &self.path, 0).ok()?;
        if slot.manifest != self.number || header.file_id != self.file_id {
            return None;
        }
        // Records that CURRENT counts do not change.
        match self.unsettled {
            Some((offset, sum)) => {
                let mut bytes = [0; RECORD_HEADER_LEN];
                file.read_exact_at(&mut bytes, offset).ok()?;
                (sum_in(&bytes, 0) == Some(sum)).then_some(())?;
            }
            None if slot.manifest_len < self.len => return None,
            None => {}
        }
        let added = file.len().ok()?.checked_sub(self.len)?;
        let mut bytes = vec![0; usize::try_from(added).ok()?];
        file.read_exact_at(&mut bytes, self.len).ok()?;
        let (records, len) = read_records_from(&bytes, self.file_id, self.len, slot.manifest_len, &self.path).ok()?;
        let mut layout = self.layout.clone();
        records.iter().try_for_each(|record| layout.apply(&record.edit)).ok()?;
        layout.check_cover().ok()?;
        let sum_of = |offset: u64| sum_in(&bytes, offset.checked_sub(self.len)?);
        let still_unsettled = self.unsettled.filter(|(offset, _)| *offset >= slot.manifest_len);
        let unsettled = still_unsettled.or_else(|| unsettled(&records, slot.manifest_len, sum_of));
        Some(Manifest { file, len, current, layout, unsettled, ..self.clone() })
    }

    /// Makes the records found at open durable. A valid record after the synced length may exist
    /// only in the page cache, and a torn one must not be taken for the next. So the tail is cut,
    /// rewritten and synced before CURRENT is updated: after a failed sync the system may consider
    /// lost pages clean.
    fn settle_tail(&mut self, file_len: u64, synced_len: u64, bytes: &[u8]) -> Result<()> {
        if file_len > self.len {
            self.file.set_len(self.len).map_err(|e| Error::io("truncate", &self.path, e))?;
        }
        let unsynced = usize::try_from(synced_len).ok().zip(usize::try_from(self.len).ok());
        if let Some(tail) = unsynced.and_then(|(from, to)| bytes.get(from..to)).filter(|tail| !tail.is_empty()) {
            self.file.write_at(tail, synced_len).map_err(|e| Error::io("write", &self.path, e))?;
        }
        if file_len > self.len || self.len > synced_len {
            self.file.sync_data().map_err(|e| Error::io("sync", &self.path, e))?;
            self.current.update(self.number, self.len)?;
        }
        Ok(())
    }

    /// True if another process changed CURRENT since this handle was opened read-only.
    pub fn has_gone_on(&self) -> Result<bool> {
        Ok(self.poll()? != self.current.seen())
    }

    /// Opens CURRENT again: a restore may have replaced the database.
    pub fn poll(&self) -> Result<SeenCurrent> {
        let current = Current::open(&*self.vfs, &self.dir, true)?;
        let missing = || Error::NotFound(format!("there is no database in {} any more", self.dir.display()));
        current.map(|current| current.seen()).ok_or_else(missing)
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn number(&self) -> FileNumber {
        self.number
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    /// Bytes that this handle wrote to manifests and CURRENT.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Writes and syncs an edit, which then survives power failure. After a failed sync the caller
    /// must not write on: the contents of the disk are unknown.
    pub fn commit(&mut self, edit: &Edit) -> Result<()> {
        let mut layout = self.layout.clone();
        layout.apply(edit).unwrap_or_else(|rule| panic!("the engine made an edit that breaks a rule: {rule}"));
        if self.current_is_behind {
            self.current.update(self.number, self.len)?;
            self.current_is_behind = false;
        }
        if self.is_older || self.len > REWRITE_BYTES_MIN.max(4 * self.rewritten_len) {
            return self.rewrite(layout);
        }
        let payload = edit.encode();
        let mut record = (payload.len() as u32).to_le_bytes().to_vec();
        record.extend_from_slice(&record_checksum(self.file_id, self.len, &payload).to_le_bytes());
        record.extend_from_slice(&payload);
        if let Err(e) = self.file.write_at(&record, self.len) {
            let error = Error::io("write", &self.path, e);
            self.take_back(&error)?;
            return Err(error);
        }
        self.file.sync_data().map_err(|e| in_doubt("sync", &self.path, e.to_string()))?;
        self.len += record.len() as u64;
        self.bytes_written += record.len() as u64;
        self.layout = layout;
        self.note_current()
    }

    /// Ensures, after a write without space, that the edit is not in force.
    fn take_back(&self, error: &Error) -> Result<()> {
        if error.is_disk_full() {
            let cut = self.file.set_len(self.len).and_then(|()| self.file.sync_data());
            cut.map_err(|e| in_doubt("truncate", &self.path, e.to_string()))?;
        }
        Ok(())
    }

    /// The edit is in force, so a full disk is no error. The update is retried before the next
    /// edit, since recovery accepts only one record after the recorded length.
    fn note_current(&mut self) -> Result<()> {
        let noted = self.current.update(self.number, self.len);
        self.current_is_behind = noted.is_err();
        match noted {
            Err(e) if e.is_disk_full() => Ok(()),
            other => other,
        }
    }

    fn rewrite(&mut self, mut layout: Layout) -> Result<()> {
        let number = layout.next_file;
        layout.next_file += 1;
        let file_id = self.runtime.random_u64();
        let (path, file, len) = write_manifest(&*self.vfs, &self.dir, number, file_id, &layout)?;
        self.vfs.sync_dir(&self.dir).map_err(|e| Error::io("sync", &self.dir, e))?;
        // Both slots, so that a damaged slot never leads to a removed manifest.
        self.current.update(number, len).map_err(|e| match e {
            Error::DiskFull { path, .. } => in_doubt("write", &path, "the disk is full".to_owned()),
            other => other,
        })?;
        let old = std::mem::replace(&mut self.path, path);
        self.file = file;
        self.file_id = file_id;
        self.number = number;
        self.len = len;
        self.rewritten_len = len;
        self.is_older = false;
        self.bytes_written += len;
        self.layout = layout;
        self.note_current()?;
        if self.current_is_behind {
            // The next open removes the old manifest.
            return Ok(());
        }
        if let Err(e) = self.vfs.remove(&old) {
            tracing::warn!(path = %old.display(), error = %e, "an old manifest could not be removed");
        }
        Ok(())
    }
}

/// The state in force is unknown. Never [`Error::DiskFull`], which promises the old state.
fn in_doubt(action: &'static str, path: &Path, reason: String) -> Error {
    Error::Io { action, path: path.to_owned(), source: std::io::Error::other(reason) }
}

fn write_manifest(
    vfs: &dyn Vfs,
    dir: &Path,
    number: FileNumber,
    file_id: u64,
    layout: &Layout,
) -> Result<(PathBuf, Arc<dyn File>, u64)> {
    let path = dir.join(manifest_name(number));
    let file = vfs.open(&path, OpenMode::CreateNew).map_err(|e| Error::io("create", &path, e))?;
    // The next attempt may use the same number.
    let made = fill_manifest(&*file, &path, file_id, layout).inspect_err(|_| {
        if let Err(e) = vfs.remove(&path) {
            tracing::warn!(path = %path.display(), error = %e, "a manifest that was not completed could not be removed");
        }
    });
    made.map(|len| (path, file, len))
}

fn fill_manifest(file: &dyn File, path: &Path, file_id: u64, layout: &Layout) -> Result<u64> {
    let mut bytes = FileHeader::new(FileKind::Manifest, file_id, [0, 0]).encode().to_vec();
    let payload = layout.to_edit().encode();
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&record_checksum(file_id, FILE_HEADER_LEN as u64, &payload).to_le_bytes());
    bytes.extend_from_slice(&payload);
    file.write_at(&bytes, 0).map_err(|e| Error::io("write", path, e))?;
    file.sync_data().map_err(|e| Error::io("sync", path, e))?;
    Ok(bytes.len() as u64)
}
