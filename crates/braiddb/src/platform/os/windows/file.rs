//! An open file on Windows.
//!
//! - *Reads and writes* are overlapped requests through the system's cache.
//! - *A sync* writes the dirty ranges again through a write-through handle, in pieces that are in
//!   flight together. So it costs what was written, whatever other data is dirty. [`DirtyRanges`]
//!   decides when to flush the whole file instead (`FlushFileBuffers`).
//! - *Preallocation* reserves space, sets the length and writes zeros. Without the zeros, each
//!   commit would move the end of the written part that Windows records for each file, and have to
//!   make it durable.
//! - *Files are not mapped.* Windows refuses to truncate mapped files, and older versions to remove
//!   or replace them. A failed page read would raise an exception.
//!
//! **Threads.** Any thread may call any method. Syncs of a file run one at a time; [`DirtyRanges`]
//! orders them with concurrent writes.

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

/// Other handles may read, write, rename, link and remove open files, as on other systems.
pub const SHARE_ALL: u32 = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

const BATCHES_KEPT: usize = 4;

/// So that I/O neither allocates nor creates events.
#[derive(Debug)]
pub struct Shared {
    pub events: Events,
    batches: Mutex<Vec<Box<Batch>>>,
    /// Each sync flushes the whole file and the device's cache.
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

#[derive(Debug)]
pub struct WindowsFile {
    file: fs::File,
    shared: Arc<Shared>,
    written: DirtyRanges,
    syncing: Mutex<()>,
    /// Handle opened by the first sync that needs it; `None` if that failed.
    write_through: OnceLock<Option<OwnedHandle>>,
}

impl WindowsFile {
    pub fn new(file: fs::File, shared: Arc<Shared>) -> WindowsFile {
        let (written, write_through) = (DirtyRanges::new(), OnceLock::new());
        WindowsFile { file, shared, written, syncing: Mutex::new(()), write_through }
    }

    /// Must follow each write that bypasses this handle.
    pub fn note_other_write(&self) {
        self.written.note_length();
    }

    fn write_through(&self) -> Option<BorrowedHandle<'_>> {
        let open = || {
            let flags = FILE_FLAG_OVERLAPPED | FILE_FLAG_WRITE_THROUGH;
            // SAFETY: the file is borrowed, so its handle is open.
            let handle = unsafe { ReOpenFile(self.file.as_raw_handle(), GENERIC_WRITE, SHARE_ALL, flags) };
            if handle == INVALID_HANDLE_VALUE || handle.is_null() {
                // The file may be removed, or the file system may not support this. Flush instead.
                tracing::debug!(error = %io::Error::last_os_error(), "a file could not be opened for write-through");
                return None;
            }
            // SAFETY: just opened, so not owned elsewhere.
            Some(unsafe { OwnedHandle::from_raw_handle(handle) })
        };
        self.write_through.get_or_init(open).as_ref().map(|handle| handle.as_handle())
    }

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

    /// Returns the length before the flush.
    fn flush(&self) -> io::Result<u64> {
        let len = self.len()?;
        // SAFETY: the file is borrowed, so its handle is open.
        check(unsafe { FlushFileBuffers(self.file.as_raw_handle()) })?;
        Ok(len)
    }

    /// Writes `bytes`, or the dirty ranges, through to the device. Returns the length if it flushed
    /// instead.
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
            // Another thread truncated the file: flush the remainder.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.flush().map(Some),
            other => other.map(|()| None),
        }
    }

    /// Reserves space where supported. `len` must exceed the file's length, or the file is
    /// truncated.
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
        // SAFETY: the file is borrowed, so its handle is open, and the pointer is valid for the
        // call.
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

pub fn set_information<T>(file: &fs::File, class: FILE_INFO_BY_HANDLE_CLASS, info: &T) -> io::Result<()> {
    let pointer = std::ptr::from_ref(info).cast();
    // SAFETY: the file is borrowed, so its handle is open, and the system reads at most the given
    // length. Each caller passes the structure of the class.
    check(unsafe { SetFileInformationByHandle(file.as_raw_handle(), class, pointer, size_of::<T>() as u32) })
}

pub fn is_unknown(error: &io::Error) -> bool {
    let unknown = [ERROR_INVALID_PARAMETER, ERROR_INVALID_FUNCTION, ERROR_NOT_SUPPORTED, ERROR_CALL_NOT_IMPLEMENTED];
    unknown.iter().any(|code| error.raw_os_error() == error_of(*code).raw_os_error())
}

pub fn check(succeeded: i32) -> io::Result<()> {
    if succeeded == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn signed(len: u64) -> io::Result<i64> {
    match i64::try_from(len) {
        Ok(len) if len as u64 <= FILE_LEN_MAX => Ok(len),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}
