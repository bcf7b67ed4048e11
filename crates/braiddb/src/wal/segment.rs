//! Creates, recycles and lists segment files.
//!
//! A new file is preallocated and synced, with its directory entry, before its header is written.
//! The header is synced before a seal names the segment. So a header in a file of the wrong length
//! means that the file was cut, and a seal that names no valid segment, that the segment was lost.

use super::{
    context::WalContext,
    format::{Epoch, Link, Lsn, SEGMENT_HEADER_LEN, SegmentHeader, segment_path},
    retention::RetentionLimit,
};
use crate::{
    base::{Error, FileId, FileNumber, SequenceNumber},
    platform::{File, OpenMode, Vfs, WriteMapping},
};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

const ZEROS_LEN: usize = 256 << 10;

#[derive(Debug)]
struct Opened {
    file: Arc<dyn File>,
    is_writable: bool,
}

/// A segment in use. Only the appender writes `last_sequence` and `end_lsn`; any thread reads them.
#[derive(Debug)]
pub struct Segment {
    pub header: SegmentHeader,
    pub first_link: Link,
    pub path: PathBuf,
    opened: RwLock<Opened>,
    last_sequence: AtomicU64,
    /// `u64::MAX` for the last segment.
    end_lsn: AtomicU64,
    /// Kept for the next writer.
    mapping: Mutex<Option<Box<dyn WriteMapping>>>,
    pub readers: AtomicUsize,
    /// All written before its current use: a sync writes no metadata.
    pub is_written: bool,
}

impl Segment {
    pub fn new(header: SegmentHeader, first_link: Link, path: PathBuf, file: Arc<dyn File>) -> Segment {
        let last_sequence = AtomicU64::new(header.previous_sequence);
        let end_lsn = AtomicU64::new(u64::MAX);
        Segment {
            header,
            first_link,
            path,
            opened: RwLock::new(Opened { file, is_writable: true }),
            last_sequence,
            end_lsn,
            mapping: Mutex::default(),
            readers: AtomicUsize::new(0),
            is_written: false,
        }
    }

    pub fn of_file_to_read(mut self) -> Segment {
        self.opened.get_mut().is_writable = false;
        self
    }

    pub fn file(&self) -> Arc<dyn File> {
        Arc::clone(&self.opened.read().file)
    }

    pub fn file_to_write(&self, vfs: &dyn Vfs) -> io::Result<Arc<dyn File>> {
        let opened = self.opened.read();
        if opened.is_writable { Ok(Arc::clone(&opened.file)) } else { vfs.open(&self.path, OpenMode::ReadWrite) }
    }

    /// Opens the file of a finished segment for reading only; `None` on failure. It then counts
    /// against the descriptor budget ([`crate::platform::BudgetedVfs`]).
    pub fn open_to_rest(&self, vfs: &dyn Vfs) -> Option<Arc<dyn File>> {
        let opened = vfs.open(&self.path, OpenMode::Read);
        let reported = |error: &io::Error| {
            tracing::debug!(path = %self.path.display(), %error, "a log segment stays open for writing");
        };
        opened.inspect_err(reported).ok()
    }

    /// Returns the old file and mapping: drop them outside of locks, since it is slow.
    pub fn rest(&self, file: Arc<dyn File>) -> (Arc<dyn File>, Option<Box<dyn WriteMapping>>) {
        let before = std::mem::replace(&mut *self.opened.write(), Opened { file, is_writable: false });
        (before.file, self.take_mapping())
    }

    pub fn take_mapping(&self) -> Option<Box<dyn WriteMapping>> {
        self.mapping.lock().take()
    }

    /// Creating and unmapping its pages is slow.
    pub fn keep_mapping(&self, mapping: Option<Box<dyn WriteMapping>>) {
        *self.mapping.lock() = mapping;
    }

    pub fn last_sequence(&self) -> SequenceNumber {
        self.last_sequence.load(Ordering::Acquire)
    }

    pub fn set_last_sequence(&self, sequence: SequenceNumber) {
        self.last_sequence.store(sequence, Ordering::Release);
    }

    pub fn end_lsn(&self) -> Lsn {
        self.end_lsn.load(Ordering::Acquire)
    }

    pub fn close(&self, end_lsn: Lsn) {
        self.end_lsn.store(end_lsn, Ordering::Release);
    }

    pub fn info(&self) -> SegmentInfo {
        SegmentInfo {
            number: self.header.number,
            epoch: self.header.epoch,
            start_lsn: self.header.start_lsn,
            len: self.header.len,
            last_sequence: self.last_sequence(),
        }
    }

    /// The file is open for writing, and the log is synced up to `durable_lsn`.
    pub fn to_spare(&self, file: Arc<dyn File>, durable_lsn: Lsn) -> Spare {
        Spare {
            number: self.header.number,
            len: self.header.len,
            path: self.path.clone(),
            file,
            is_dirty: self.end_lsn() > durable_lsn,
            is_written: self.is_written || self.end_lsn() != u64::MAX,
            is_zeroed: false,
            mapping: self.take_mapping(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    pub number: FileNumber,
    pub epoch: Epoch,
    pub start_lsn: Lsn,
    pub len: u64,
    pub last_sequence: SequenceNumber,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedSegment {
    pub number: FileNumber,
    /// Identity of the current use of the file.
    pub file_id: FileId,
    pub path: PathBuf,
    pub end_lsn: Lsn,
    pub used_len: u64,
    pub len: u64,
    pub last_sequence: SequenceNumber,
}

/// Start of the log, from a recovery that synced its segments.
#[derive(Debug)]
pub struct WalStart {
    pub(super) epoch: Epoch,
    pub(super) start_lsn: Lsn,
    pub(super) previous_end_lsn: Lsn,
    pub(super) previous_link: Link,
    pub(super) previous_epoch: Epoch,
    pub(super) previous_sequence: SequenceNumber,
    pub(super) older: Vec<Arc<Segment>>,
    pub(super) retained: VecDeque<Arc<Segment>>,
    pub(super) floor: SequenceNumber,
    pub(super) retention: RetentionLimit,
}

impl WalStart {
    #[cfg(test)]
    pub fn new_log() -> WalStart {
        WalStart {
            epoch: 1,
            start_lsn: 0,
            previous_end_lsn: 0,
            previous_link: 0,
            previous_epoch: 0,
            previous_sequence: 0,
            older: Vec::new(),
            retained: VecDeque::new(),
            floor: 0,
            retention: RetentionLimit::default(),
        }
    }
}

/// A file of the right length whose contents do not matter.
#[derive(Debug)]
pub struct Spare {
    pub number: FileNumber,
    pub len: u64,
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    /// The old contents may not be on disk: the next sync would write them too.
    pub is_dirty: bool,
    pub is_written: bool,
    /// The file was never a segment.
    pub is_zeroed: bool,
    pub mapping: Option<Box<dyn WriteMapping>>,
}

#[derive(Debug)]
pub struct MakeError {
    pub error: Error,
    pub sync_failed: bool,
}

impl Spare {
    /// Creates a file whose space and name survive a crash. Fills it with zeros if `is_written`.
    pub fn create(context: &WalContext, len: u64, is_written: bool) -> std::result::Result<Spare, MakeError> {
        let number = (context.next_file_number)();
        let path = segment_path(&context.dir, number);
        let file = context.vfs.open(&path, OpenMode::CreateNew).map_err(|e| failed("create", &path, e))?;
        let spare = Spare { number, len, path, file, is_dirty: false, is_written, is_zeroed: true, mapping: None };
        let made = spare
            .file
            .preallocate(len)
            .and_then(|()| if is_written { write_zeros(&*spare.file, len) } else { Ok(()) })
            .map_err(|e| failed("extend", &spare.path, e))
            .and_then(|()| spare.file.sync_data().map_err(|e| sync_failed(&spare.path, e)))
            .and_then(|()| context.vfs.sync_dir(&context.dir).map_err(|e| sync_failed(&context.dir, e)));
        match made {
            Ok(()) => Ok(spare),
            Err(error) => {
                spare.remove(context);
                Err(error)
            }
        }
    }

    /// Writes and syncs only the header: old contents need not reach the disk.
    pub fn begin(self, context: &WalContext, header: SegmentHeader) -> std::result::Result<Arc<Segment>, MakeError> {
        debug_assert!(header.number == self.number && header.len == self.len && self.len >= SEGMENT_HEADER_LEN);
        let header = SegmentHeader { is_zeroed: self.is_zeroed, ..header };
        let (bytes, first_link) = header.encode();
        let written = self
            .file
            .write_at(&bytes, 0)
            .map_err(|e| failed("write", &self.path, e))
            .and_then(|()| self.file.sync_bytes(&bytes, 0).map_err(|e| sync_failed(&self.path, e)));
        match written {
            Ok(()) => {
                let segment = Segment::new(header, first_link, self.path, self.file);
                segment.keep_mapping(self.mapping);
                Ok(Arc::new(Segment { is_written: self.is_written, ..segment }))
            }
            Err(error) => {
                self.remove(context);
                Err(error)
            }
        }
    }

    pub fn remove(&self, context: &WalContext) {
        remove_segment(context, &self.path);
    }
}

/// Logs a failure: the next recovery finds the file.
pub fn remove_segment(context: &WalContext, path: &Path) {
    if let Err(error) = context.vfs.remove(path) {
        tracing::warn!(path = %path.display(), %error, "a log segment that is not needed could not be removed");
    }
}

fn write_zeros(file: &dyn File, len: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS_LEN.min(len as usize)];
    (0..len).step_by(ZEROS_LEN).try_for_each(|at| file.write_at(&zeros[..zeros.len().min((len - at) as usize)], at))
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> MakeError {
    MakeError { error: Error::io(action, path, source), sync_failed: false }
}

pub fn sync_failed(path: &Path, source: io::Error) -> MakeError {
    MakeError { error: Error::io("sync", path, source), sync_failed: true }
}
