//! The Windows file system. `file.rs` implements open files, `unbuffered.rs` direct I/O.
//!
//! - *Names.* Other handles may remove, rename and link open files. Removal works as on POSIX: the
//!   name disappears at once, and open handles stay usable. Where that is unsupported (FAT, network
//!   shares, Windows before 10), the name lasts until the last handle closes, so the file is first
//!   renamed to a temporary name. A rename replaces an open file in the same two ways.
//! - *Other programs*, such as virus scanners, may open a file briefly without sharing it. Refused
//!   calls are retried for a moment.
//! - *Paths* may be long and have any characters. Listed names are lossy where they are not
//!   Unicode; files of a database never have such names.
//! - *Directory sync* does nothing: Windows cannot sync directories. NTFS and ReFS log name changes
//!   in order, and syncing a new file flushes that log up to its creation. The engine syncs each
//!   file before anything names it. Only removals may be lost, and the next open repeats them.
//! - *The lock* is `LockFileEx` on a byte far past the text, because it blocks other readers of its
//!   range. It belongs to the handle, so two handles of one process exclude each other too. It ends
//!   with the process, perhaps after a moment.
//! - *Lengths in listings* are queried per file: directory entries of open files may be outdated.

#![expect(clippy::disallowed_methods, reason = "this is the one place that opens files")]

use super::{
    file::{SHARE_ALL, Shared, WindowsFile, check, is_unknown, set_information},
    requests::error_of,
    unbuffered,
};
use crate::platform::{
    batch::{BatchReads, IoReport, ReadRequest, Unbuffered},
    vfs::{DirEntry, File, FileLock, OpenMode, Vfs},
};
use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Seek, Write},
    os::windows::{
        ffi::OsStrExt,
        fs::OpenOptionsExt,
        io::{AsRawHandle, RawHandle},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use windows_sys::Win32::{
    Foundation::{
        ERROR_ACCESS_DENIED, ERROR_ALREADY_EXISTS, ERROR_IO_PENDING, ERROR_LOCK_VIOLATION, ERROR_SHARING_VIOLATION,
    },
    Storage::FileSystem::{
        DELETE, FILE_ATTRIBUTE_DIRECTORY, FILE_ATTRIBUTE_REPARSE_POINT, FILE_DISPOSITION_FLAG_DELETE,
        FILE_DISPOSITION_FLAG_IGNORE_READONLY_ATTRIBUTE, FILE_DISPOSITION_FLAG_POSIX_SEMANTICS,
        FILE_DISPOSITION_INFO_EX, FILE_FLAG_DELETE_ON_CLOSE, FILE_FLAG_OPEN_REPARSE_POINT, FILE_FLAG_OVERLAPPED,
        FILE_RENAME_INFO, FileDispositionInfoEx, FileRenameInfo, GetDiskFreeSpaceExW, GetFileAttributesExW,
        GetFileExInfoStandard, LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx,
        SetFileInformationByHandle, WIN32_FILE_ATTRIBUTE_DATA,
    },
    System::IO::{OVERLAPPED, OVERLAPPED_0, OVERLAPPED_0_0},
};

/// A lock file may hold anything.
const MAX_OWNER_LEN: u64 = 4096;

/// Offset of the locked byte: past any text, and within signed offsets.
const LOCK_OFFSET: u64 = i64::MAX as u64 - 1;

/// Maximum retries of a call that another handle blocks. The waits add up to 275 ms.
const TRIES_MAX: u64 = 10;
/// First wait in milliseconds. Each later wait is longer by the same amount.
const WAIT_MS: u64 = 5;

/// Files on Windows.
#[derive(Clone, Debug)]
pub struct WindowsVfs {
    shared: Arc<Shared>,
}

impl WindowsVfs {
    /// Creates the file system. Durable commits are written through the system's cache to the
    /// device, with write-through requested.
    pub fn new() -> WindowsVfs {
        WindowsVfs { shared: Shared::new(false) }
    }

    /// Like [`WindowsVfs::new`], for devices whose cache ignores write-through: each sync flushes
    /// the whole file and the device's cache (`FlushFileBuffers`). Costs more, especially with
    /// other writers on the device.
    pub fn flushing_device_caches() -> WindowsVfs {
        WindowsVfs { shared: Shared::new(true) }
    }
}

impl Default for WindowsVfs {
    fn default() -> Self {
        WindowsVfs::new()
    }
}

impl Vfs for WindowsVfs {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = open_by(path, mode, FILE_FLAG_OVERLAPPED)?;
        Ok(Arc::new(WindowsFile::new(file, Arc::clone(&self.shared))))
    }

    fn open_unbuffered(&self, path: &Path, mode: OpenMode) -> io::Result<Unbuffered> {
        unbuffered::open(path, mode, &self.shared)
    }

    fn read_many(&self, requests: &mut [ReadRequest]) {
        unbuffered::read_many(&self.shared, requests);
        // Too long or failed; this also finds their errors.
        requests.iter_mut().for_each(ReadRequest::read_alone);
    }

    fn io_report(&self) -> IoReport {
        let io_uring_refused = Some("it is Linux's".to_owned());
        IoReport { batches: BatchReads::Overlapped, io_uring_refused, ..IoReport::default() }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let len = match len_of(&entry.path()) {
                // Removed after it was listed, or a dangling link.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                // Being removed, or access denied: the directory entry will do.
                Err(_) => entry.metadata().map(|metadata| metadata.is_file().then_some(metadata.len()))?,
                Ok(len) => len,
            };
            if let Some(len) = len {
                entries.push(DirEntry { name: entry.file_name().to_string_lossy().into_owned(), len });
            }
        }
        Ok(entries)
    }

    fn list_directories(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // If the metadata is unreadable, use the type in the listing.
            if fs::metadata(entry.path()).map_or_else(|_| entry.file_type().is_ok_and(|t| t.is_dir()), |m| m.is_dir()) {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(names)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let flags = FILE_DISPOSITION_FLAG_DELETE | FILE_DISPOSITION_FLAG_POSIX_SEMANTICS;
        match patiently(|| remove_by(path, flags | FILE_DISPOSITION_FLAG_IGNORE_READONLY_ATTRIBUTE)) {
            // Older versions do not know the last flag.
            Err(error) if is_unknown(&error) => {}
            other => return other,
        }
        match patiently(|| remove_by(path, flags)) {
            Err(error) if is_unknown(&error) => patiently(|| move_out_and_remove(path)),
            other => other,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match patiently(|| fs::rename(from, to)) {
            Err(error)
                if [ERROR_ACCESS_DENIED, ERROR_ALREADY_EXISTS].iter().any(|code| is_code(&error, *code))
                    && to.is_file() =>
            {
                // An open file that cannot be replaced. Not atomic, and need not be.
                self.remove(to)?;
                fs::rename(from, to)
            }
            other => other,
        }
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        patiently(|| fs::hard_link(from, to))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        if fs::metadata(dir)?.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    fn lock(&self, path: &Path, owner: &str) -> io::Result<Result<Box<dyn FileLock>, String>> {
        // Do not truncate: the text may belong to the present owner.
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).share_mode(SHARE_ALL);
        let mut file = patiently(|| options.open(path))?;
        if lock_now(file.as_raw_handle())? {
            file.set_len(0)?;
            file.write_all(owner.as_bytes())?;
            file.rewind()?;
            return Ok(Ok(Box::new(WindowsLock { _file: file })));
        }
        let mut text = Vec::new();
        file.take(MAX_OWNER_LEN).read_to_end(&mut text)?;
        Ok(Err(String::from_utf8_lossy(&text).into_owned()))
    }

    fn lock_owner(&self, path: &Path) -> io::Result<Option<String>> {
        let mut options = OpenOptions::new();
        options.read(true).share_mode(SHARE_ALL);
        let file = match options.open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        if lock_now(file.as_raw_handle())? {
            return Ok(None);
        }
        let mut text = Vec::new();
        file.take(MAX_OWNER_LEN).read_to_end(&mut text)?;
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    fn free_space(&self, path: &Path) -> io::Result<Option<u64>> {
        let path = std::path::absolute(path)?;
        let mut first_error = None;
        // The query works on directories only.
        for dir in path.ancestors() {
            match space_of(dir) {
                Ok((free, _)) => return Ok(Some(free)),
                Err(error) => _ = first_error.get_or_insert(error),
            }
        }
        Err(first_error.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
    }

    fn total_space(&self, path: &Path) -> io::Result<Option<u64>> {
        let path = std::path::absolute(path)?;
        Ok(path.ancestors().find_map(|dir| space_of(dir).ok()).map(|(_, total)| total))
    }
}

pub(super) fn open_by(path: &Path, mode: OpenMode, flags: u32) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.read(true).write(mode != OpenMode::Read).create_new(mode == OpenMode::CreateNew);
    options.share_mode(SHARE_ALL).custom_flags(flags);
    match patiently(|| options.open(path)) {
        Err(error) if is_code(&error, ERROR_ACCESS_DENIED) && path.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        opened => opened,
    }
}

#[derive(Debug)]
struct WindowsLock {
    _file: fs::File,
}

impl FileLock for WindowsLock {}

fn lock_now(file: RawHandle) -> io::Result<bool> {
    let parts = OVERLAPPED_0_0 { Offset: LOCK_OFFSET as u32, OffsetHigh: (LOCK_OFFSET >> 32) as u32 };
    let mut place = OVERLAPPED { Anonymous: OVERLAPPED_0 { Anonymous: parts }, ..OVERLAPPED::default() };
    // SAFETY: the handle is not overlapped, so the call has ended when it returns.
    let locked =
        unsafe { LockFileEx(file, LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &raw mut place) };
    match check(locked) {
        Err(error) if is_code(&error, ERROR_LOCK_VIOLATION) || is_code(&error, ERROR_IO_PENDING) => Ok(false),
        other => other.map(|()| true),
    }
}

fn remove_by(path: &Path, flags: u32) -> io::Result<()> {
    let file = open_to_remove(path, 0)?;
    set_information(&file, FileDispositionInfoEx, &FILE_DISPOSITION_INFO_EX { Flags: flags })
}

/// The file is removed with its last handle. If the rename fails, the name stays until then.
fn move_out_and_remove(path: &Path) -> io::Result<()> {
    // From here on the file disappears even if the process dies.
    let file = open_to_remove(path, FILE_FLAG_DELETE_ON_CLOSE)?;
    // By the same handle: deletion removes the name that this handle knows.
    if let Err(error) = rename_by(&file, &name_beside(path)) {
        tracing::debug!(path = %path.display(), %error, "a file could not be moved out of the way before it is removed");
    }
    drop(file);
    Ok(())
}

fn rename_by(file: &fs::File, to: &Path) -> io::Result<()> {
    let name: Vec<u16> = std::path::absolute(to)?.as_os_str().encode_wide().collect();
    let name_at = std::mem::offset_of!(FILE_RENAME_INFO, FileName);
    let bytes = name_at + size_of_val(&name[..]);
    let mut info = vec![0u64; (bytes + 2).max(size_of::<FILE_RENAME_INFO>()).div_ceil(8)];
    let pointer: *mut FILE_RENAME_INFO = info.as_mut_ptr().cast();
    // SAFETY: the memory is aligned and has room for the structure, the name behind it and a zero.
    unsafe {
        (*pointer).FileNameLength = size_of_val(&name[..]) as u32;
        let target = pointer.cast::<u8>().add(name_at).cast::<u16>();
        std::ptr::copy_nonoverlapping(name.as_ptr(), target, name.len());
    }
    // SAFETY: the file is borrowed, so its handle is open, and the memory has this length.
    check(unsafe {
        SetFileInformationByHandle(file.as_raw_handle(), FileRenameInfo, pointer.cast(), (bytes + 2) as u32)
    })
}

fn open_to_remove(path: &Path, flags: u32) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.access_mode(DELETE).share_mode(SHARE_ALL).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT | flags);
    options.open(path)
}

fn name_beside(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!("removed-{}-{number}.tmp", std::process::id()))
}

/// `None` for other entries.
fn len_of(path: &Path) -> io::Result<Option<u64>> {
    let mut wide: Vec<u16> = path.as_os_str().encode_wide().collect();
    wide.push(0);
    let mut reported = WIN32_FILE_ATTRIBUTE_DATA::default();
    // SAFETY: the text ends with a zero, and the system writes only the structure.
    let asked = unsafe { GetFileAttributesExW(wide.as_ptr(), GetFileExInfoStandard, (&raw mut reported).cast()) };
    if asked == 0 || reported.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT != 0 {
        return fs::metadata(path).map(|metadata| metadata.is_file().then_some(metadata.len()));
    }
    let len = u64::from(reported.nFileSizeHigh) << 32 | u64::from(reported.nFileSizeLow);
    Ok((reported.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY == 0).then_some(len))
}

/// Bytes that this user may still write, and the user's total.
fn space_of(dir: &Path) -> io::Result<(u64, u64)> {
    let mut wide: Vec<u16> = dir.as_os_str().encode_wide().collect();
    if wide.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // Network shares must be named by their root, with a backslash.
    if !wide.ends_with(&[u16::from(b'\\')]) {
        wide.push(u16::from(b'\\'));
    }
    wide.push(0);
    let (mut available, mut total) = (0, 0);
    // SAFETY: the text ends with a zero, and the pointers are valid for the call.
    let reported =
        unsafe { GetDiskFreeSpaceExW(wide.as_ptr(), &raw mut available, &raw mut total, std::ptr::null_mut()) };
    check(reported).map(|()| (available, total))
}

/// Retries while another handle blocks the call.
fn patiently<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut tries = 0;
    loop {
        match call() {
            Err(error) if tries < TRIES_MAX && is_code(&error, ERROR_SHARING_VIOLATION) => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(WAIT_MS * tries));
            }
            other => return other,
        }
    }
}

fn is_code(error: &io::Error, code: u32) -> bool {
    error.raw_os_error() == error_of(code).raw_os_error()
}
