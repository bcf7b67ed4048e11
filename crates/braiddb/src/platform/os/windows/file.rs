//! An open file of Windows.
//!
//! - *Reads and writes* are overlapped requests with their offsets, through the system's cache.
//! - *A sync* writes what was written since the last one once more, through a second handle that was opened for write-through: the
//!   data is in the cache already, and the call returns when the device has it. Contiguous pieces are gathered, cut into requests
//!   that are in flight together, and awaited together. So a sync costs what was written, however long the file is and
//!   whatever others have written to the cache. [`DirtyRanges`] decides when all of the file is flushed instead
//!   (`FlushFileBuffers`): where its length changed, or what it holds was not all written through this handle.
//! - *Preallocation* reserves space, sets the length, and writes zeros: the system keeps for each file up to where it was written, moves
//!   that as it is written to further on, and would have to make that durable with each commit. Once zeros were written, a
//!   write changes nothing but its bytes.
//! - *Memory*: files are not mapped. The system refuses to cut, and older ones to remove or replace, a file that is, and a look at what
//!   cannot be read from the disk would raise an exception that cannot be told from others.
//!
//! **Threads.** Any thread may call anything. Syncs of one file come one after the other; what a sync and the writes beside it owe each
//! other is told at [`DirtyRanges`].

use super::super::dirty_ranges::{DirtyRanges, Plan};
use super::requests::{Batch, Events, FILE_LEN_MAX, check_end, error_of, read, write};
use crate::platform::{batch::SystemFile, vfs::File};
use parking_lot::Mutex;
use std::{
    fs, io,
    os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle},
    sync::{Arc, OnceLock},
};
use windows_sys::Win32::{
    Foundation::{
        ERROR_CALL_NOT_IMPLEMENTED, ERROR_INVALID_FUNCTION, ERROR_INVALID_PARAMETER, ERROR_NOT_SUPPORTED,
        GENERIC_WRITE, INVALID_HANDLE_VALUE,
    },
    Storage::FileSystem::{
        FILE_ALLOCATION_INFO, FILE_END_OF_FILE_INFO, FILE_FLAG_OVERLAPPED, FILE_FLAG_WRITE_THROUGH,
        FILE_INFO_BY_HANDLE_CLASS, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, FileAllocationInfo,
        FileEndOfFileInfo, FlushFileBuffers, GetFileSizeEx, ReOpenFile, SetFileInformationByHandle,
    },
};

/// Open files may be read, written, renamed, linked and removed by others, as on other systems.
pub const SHARE_ALL: u32 = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

/// How much is written at once where a file is filled with zeros.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// How many batches are kept for the next syncs. More are made while more syncs are under way.
const BATCHES_KEPT: usize = 4;

/// What the files of a file system share: all that I/O would otherwise allocate or create.
#[derive(Debug)]
pub struct Shared {
    pub events: Events,
    batches: Mutex<Vec<Box<Batch>>>,
    /// Whether each sync flushes all of the file and the device's cache.
    pub always_flush: bool,
}

impl Shared {
    pub fn new(always_flush: bool) -> Arc<Shared> {
        Arc::new(Shared { events: Events::new(), batches: Mutex::new(Vec::with_capacity(BATCHES_KEPT)), always_flush })
    }

    pub fn with_batch<R>(&self, work: impl FnOnce(&mut Batch) -> R) -> R {
        let kept = self.batches.lock().pop();
        let mut batch = kept.unwrap_or_default();
        let result = work(&mut batch);
        let mut batches = self.batches.lock();
        if batches.len() < BATCHES_KEPT {
            batches.push(batch);
        }
        result
    }
}

/// An open file.
#[derive(Debug)]
pub struct WindowsFile {
    file: fs::File,
    shared: Arc<Shared>,
    written: DirtyRanges,
    /// Held by a sync.
    syncing: Mutex<()>,
    /// The same file, opened for write-through by the first sync that needs it; `None` if it cannot be.
    write_through: OnceLock<Option<OwnedHandle>>,
}

impl WindowsFile {
    /// A file that was opened for overlapped I/O.
    pub fn new(file: fs::File, shared: Arc<Shared>) -> WindowsFile {
        let (written, write_through) = (DirtyRanges::new(), OnceLock::new());
        WindowsFile { file, shared, written, syncing: Mutex::new(()), write_through }
    }

    /// To be called before and after something is written to the file in another way than by this.
    pub fn note_other_write(&self) {
        self.written.note_length();
    }

    fn write_through(&self) -> Option<BorrowedHandle<'_>> {
        let open = || {
            let flags = FILE_FLAG_OVERLAPPED | FILE_FLAG_WRITE_THROUGH;
            // SAFETY: the handle is open as long as the file is borrowed.
            let handle = unsafe { ReOpenFile(self.file.as_raw_handle(), GENERIC_WRITE, SHARE_ALL, flags) };
            if handle == INVALID_HANDLE_VALUE || handle.is_null() {
                // The file may have been removed, or its file system not know this. Flushing does as well.
                tracing::debug!(error = %io::Error::last_os_error(), "a file could not be opened for write-through");
                return None;
            }
            // SAFETY: just opened, and owned by nobody else.
            Some(unsafe { OwnedHandle::from_raw_handle(handle) })
        };
        self.write_through.get_or_init(open).as_ref().map(|handle| handle.as_handle())
    }

    /// Carries out a plan, and notes how it went.
    fn sync_by(&self, plan: Plan, bytes: Option<(&[u8], u64)>) -> io::Result<()> {
        let mut flushed_len = None;
        let synced = match plan {
            Plan::Nothing => Ok(()),
            Plan::Flush => self.flush().map(|len| flushed_len = Some(len)),
            Plan::Ranges => self.write_again(bytes).map(|len| flushed_len = len),
        };
        self.written.end_sync(synced.is_ok(), flushed_len);
        synced
    }

    /// Has the system write all that it holds of the file; returns how long it was before.
    fn flush(&self) -> io::Result<u64> {
        let len = self.len()?;
        // SAFETY: the handle is open as long as the file is borrowed.
        check(unsafe { FlushFileBuffers(self.file.as_raw_handle()) })?;
        Ok(len)
    }

    /// Writes what is to be synced once more, through to the device: these bytes, or what the file holds. Returns the length if all of the file was
    /// flushed instead.
    fn write_again(&self, bytes: Option<(&[u8], u64)>) -> io::Result<Option<u64>> {
        let Some(to) = self.write_through() else { return self.flush().map(Some) };
        let events = &self.shared.events;
        let copied = self.shared.with_batch(|batch| match bytes {
            Some((bytes, offset)) => batch.write(to, events, bytes, offset),
            None => {
                batch.ranges.clear();
                self.written.ranges_to_sync(&mut batch.ranges);
                batch.copy_ranges(self.file.as_handle(), to, events)
            }
        });
        match copied {
            // Cut short meanwhile by somebody: what is left is flushed.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.flush().map(Some),
            other => other.map(|()| None),
        }
    }

    /// Reserves space, where the file system knows that. It must be longer than the file, which would be cut otherwise.
    fn reserve(&self, len: i64) -> io::Result<()> {
        let info = FILE_ALLOCATION_INFO { AllocationSize: len };
        match set_information(&self.file, FileAllocationInfo, &info) {
            Err(error) if is_unknown(&error) => Ok(()),
            other => other,
        }
    }

    fn set_end(&self, len: i64) -> io::Result<()> {
        set_information(&self.file, FileEndOfFileInfo, &FILE_END_OF_FILE_INFO { EndOfFile: len })
    }
}

impl File for WindowsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        read(self.file.as_handle(), &self.shared.events, buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        check_end(offset, buf.len())?;
        let range = offset..offset + buf.len() as u64;
        self.written.begin_write(range.clone());
        let written = write(self.file.as_handle(), &self.shared.events, buf, offset);
        self.written.end_write(range);
        written
    }

    fn len(&self) -> io::Result<u64> {
        let mut len = 0;
        // SAFETY: the handle is open as long as the file is borrowed, and the pointer valid for the call.
        check(unsafe { GetFileSizeEx(self.file.as_raw_handle(), &raw mut len) })?;
        u64::try_from(len).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let set = self.set_end(signed(len)?);
        self.written.note_length();
        set
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        let (signed_len, old_len) = (signed(len)?, self.len()?);
        if len <= old_len {
            return Ok(());
        }
        let made = self.reserve(signed_len).and_then(|()| self.set_end(signed_len));
        self.written.note_length();
        made?;
        let mut at = old_len;
        while at < len {
            let count = (len - at).min(ZEROS.len() as u64);
            self.write_at(&ZEROS[..count as usize], at)?;
            at += count;
        }
        Ok(())
    }

    fn system_file(&self) -> Option<SystemFile<'_>> {
        Some(SystemFile { handle: self.file.as_handle(), align: 1 })
    }

    fn sync_data(&self) -> io::Result<()> {
        let _syncing = self.syncing.lock();
        if self.shared.always_flush {
            self.written.note_length();
        }
        self.sync_by(self.written.begin_sync(), None)
    }

    fn sync_bytes(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        check_end(offset, bytes.len())?;
        let _syncing = self.syncing.lock();
        if self.shared.always_flush {
            self.written.note_length();
        }
        let plan = self.written.begin_sync_of(offset..offset + bytes.len() as u64);
        self.sync_by(plan, Some((bytes, offset)))
    }
}

/// Sets what a class of information says of a file.
pub fn set_information<T>(file: &fs::File, class: FILE_INFO_BY_HANDLE_CLASS, info: &T) -> io::Result<()> {
    let pointer = std::ptr::from_ref(info).cast();
    // SAFETY: the handle is open as long as the file is borrowed, and the system reads no more than the length says. Each caller
    // gives the structure of the class.
    check(unsafe { SetFileInformationByHandle(file.as_raw_handle(), class, pointer, size_of::<T>() as u32) })
}

/// Whether the file system, or this version of Windows, has no such call.
pub fn is_unknown(error: &io::Error) -> bool {
    let unknown = [ERROR_INVALID_PARAMETER, ERROR_INVALID_FUNCTION, ERROR_NOT_SUPPORTED, ERROR_CALL_NOT_IMPLEMENTED];
    unknown.iter().any(|code| error.raw_os_error() == error_of(*code).raw_os_error())
}

/// The last error, if a call has failed.
pub fn check(succeeded: i32) -> io::Result<()> {
    if succeeded == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn signed(len: u64) -> io::Result<i64> {
    match i64::try_from(len) {
        Ok(len) if len as u64 <= FILE_LEN_MAX => Ok(len),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}
