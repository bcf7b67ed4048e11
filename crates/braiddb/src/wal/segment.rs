//! Segment files: made, recycled, listed.
//!
//! A new file is preallocated and synced, and its directory entry is synced, before its header is written; the header
//! is synced before anything names the segment. So a header that is found in a file of the wrong length means that the
//! file was cut, and a seal that names no valid segment means that the segment was lost.

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

/// Zeros are written in pieces of this length.
const ZEROS_LEN: usize = 256 << 10;

/// A segment's file.
#[derive(Debug)]
struct Opened {
    file: Arc<dyn File>,
    /// Whether it is open for writing, too.
    is_writable: bool,
}

/// A segment in use. `last_sequence` and `end_lsn` are written by the appender only and read by anybody.
#[derive(Debug)]
pub struct Segment {
    pub header: SegmentHeader,
    /// The link that the first record carries.
    pub first_link: Link,
    pub path: PathBuf,
    opened: RwLock<Opened>,
    /// The last sequence number in it, or before it while it holds no group.
    last_sequence: AtomicU64,
    /// Where its records end; `u64::MAX` while it is the last segment.
    end_lsn: AtomicU64,
    /// The mapping of the file while nobody writes through it: kept for whoever does so next.
    mapping: Mutex<Option<Box<dyn WriteMapping>>>,
    /// How many read it: see [`super::retention`].
    pub readers: AtomicUsize,
    /// Whether all of the file was written to before this life of it: then a sync has data to write and no more.
    pub is_written: bool,
}

impl Segment {
    /// A segment whose header has been read or written.
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

    /// The same, of a file that is open for reading only.
    pub fn of_file_to_read(mut self) -> Segment {
        self.opened.get_mut().is_writable = false;
        self
    }

    /// The file; for reading only, once it rests.
    pub fn file(&self) -> Arc<dyn File> {
        Arc::clone(&self.opened.read().file)
    }

    /// The file, open for writing. Fails if it has to be opened for that, and cannot be.
    pub fn file_to_write(&self, vfs: &dyn Vfs) -> io::Result<Arc<dyn File>> {
        let opened = self.opened.read();
        if opened.is_writable { Ok(Arc::clone(&opened.file)) } else { vfs.open(&self.path, OpenMode::ReadWrite) }
    }

    /// For when it is only read any more, if at all: then its file need neither be mapped nor stay open. It is opened for reading, which
    /// takes a descriptor while there are some to spare ([`crate::platform::BudgetedVfs`]). Where that fails, all stays as it is.
    pub fn open_to_rest(&self, vfs: &dyn Vfs) -> Option<Arc<dyn File>> {
        let opened = vfs.open(&self.path, OpenMode::Read);
        let told = |error: &io::Error| {
            tracing::debug!(path = %self.path.display(), %error, "a log segment stays open for writing");
        };
        opened.inspect_err(told).ok()
    }

    /// Goes on with the file that [`Segment::open_to_rest`] has opened; gives what is not needed any more, for letting go of it takes a while.
    pub fn rest(&self, file: Arc<dyn File>) -> (Arc<dyn File>, Option<Box<dyn WriteMapping>>) {
        let before = std::mem::replace(&mut *self.opened.write(), Opened { file, is_writable: false });
        (before.file, self.take_mapping())
    }

    /// Takes the mapping out, if one was kept.
    pub fn take_mapping(&self) -> Option<Box<dyn WriteMapping>> {
        self.mapping.lock().take()
    }

    /// Keeps the mapping: the pages that it has are dear to come by, and so is undoing it.
    pub fn keep_mapping(&self, mapping: Option<Box<dyn WriteMapping>>) {
        *self.mapping.lock() = mapping;
    }

    /// The last sequence number in it or before it.
    pub fn last_sequence(&self) -> SequenceNumber {
        self.last_sequence.load(Ordering::Acquire)
    }

    /// Records that a group was appended.
    pub fn set_last_sequence(&self, sequence: SequenceNumber) {
        self.last_sequence.store(sequence, Ordering::Release);
    }

    /// Where its records end; `u64::MAX` while it is the last segment.
    pub fn end_lsn(&self) -> Lsn {
        self.end_lsn.load(Ordering::Acquire)
    }

    /// Records that nothing more will be appended.
    pub fn close(&self, end_lsn: Lsn) {
        self.end_lsn.store(end_lsn, Ordering::Release);
    }

    /// What others may know of it.
    pub fn info(&self) -> SegmentInfo {
        SegmentInfo {
            number: self.header.number,
            epoch: self.header.epoch,
            start_lsn: self.header.start_lsn,
            len: self.header.len,
            last_sequence: self.last_sequence(),
        }
    }

    /// The file, open for writing, without its contents, when the log is synced up to `durable_lsn`.
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

/// What is known of a segment from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The number in its file's name.
    pub number: FileNumber,
    /// Its epoch.
    pub epoch: Epoch,
    /// The LSN of its first byte.
    pub start_lsn: Lsn,
    /// Its length in bytes.
    pub len: u64,
    /// The last sequence number in it, or before it if it holds no group.
    pub last_sequence: SequenceNumber,
}

/// A segment that will not be written to any more, as long as it is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedSegment {
    /// The number in its file's name.
    pub number: FileNumber,
    /// The identity of this life of the file.
    pub file_id: FileId,
    /// Its file.
    pub path: PathBuf,
    /// Where its records end.
    pub end_lsn: Lsn,
    /// The bytes up to there.
    pub used_len: u64,
    /// Its length.
    pub len: u64,
    /// The last sequence number in it, or before it.
    pub last_sequence: SequenceNumber,
}

/// How the log goes on: the epoch and position of the first segment, and what was there before. Comes from
/// [`WalStart::new_log`] or from a recovery whose segments have been synced.
#[derive(Debug)]
pub struct WalStart {
    pub(super) epoch: Epoch,
    pub(super) start_lsn: Lsn,
    pub(super) previous_end_lsn: Lsn,
    pub(super) previous_link: Link,
    pub(super) previous_epoch: Epoch,
    pub(super) previous_sequence: SequenceNumber,
    pub(super) older: Vec<Arc<Segment>>,
    /// What stands before those and is kept all the same.
    pub(super) retained: VecDeque<Arc<Segment>>,
    /// The last sequence number before all that is held.
    pub(super) floor: SequenceNumber,
    /// How much is retained.
    pub(super) retention: RetentionLimit,
}

impl WalStart {
    /// The start of a log in an empty directory.
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
    /// Whether what it held may not be on disk yet: the first sync of what it will hold would write all of that.
    pub is_dirty: bool,
    /// Whether all of it was written to, or nearly all.
    pub is_written: bool,
    /// Whether it holds zeros alone, because it was never a segment.
    pub is_zeroed: bool,
    /// The mapping of the file, if it has one already.
    pub mapping: Option<Box<dyn WriteMapping>>,
}

/// Why a segment could not be made.
#[derive(Debug)]
pub struct MakeError {
    pub error: Error,
    /// Whether a sync failed, so that nothing may be tried again.
    pub sync_failed: bool,
}

impl Spare {
    /// Makes a file of `len` bytes whose space and name survive a crash, and has zeros written to it if asked to.
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

    /// Makes a segment of the file: writes and syncs the header, and nothing else. What the file held before need not
    /// reach the disk any more.
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

    /// Removes the file.
    pub fn remove(&self, context: &WalContext) {
        remove_segment(context, &self.path);
    }
}

/// Removes a segment's file. One that stays is found and listed by the next recovery, so a failure is only told.
pub fn remove_segment(context: &WalContext, path: &Path) {
    if let Err(error) = context.vfs.remove(path) {
        tracing::warn!(path = %path.display(), %error, "a log segment that is not needed could not be removed");
    }
}

/// Writes zeros over all of a file.
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
