//! The POSIX file system.
//!
//! Reads and writes are positional (`pread`, `pwrite`), so that threads share a descriptor.
//! Interrupted calls are repeated, short writes continued. Systems differ in:
//!
//! - *Preallocation*: `fallocate` on Linux, Android and FreeBSD, `F_PREALLOCATE` on Apple systems.
//!   Elsewhere, and on file systems that refuse it (ZFS, NFS before 4.2), zeros are written past
//!   the old end. Holes below it stay, since filling them could overwrite concurrent writes.
//! - *Sync*: `fdatasync`; on Apple systems `F_FULLFSYNC`, or `F_BARRIERFSYNC` on request. Never
//!   retried after a failure: the second call may succeed without the data.
//! - *Sync of a range*: on Linux a durable write of the same bytes (`RWF_DSYNC`), which writes only
//!   their pages. Elsewhere the whole file is synced.
//! - *Directory sync*: `fsync` of the directory. `EINVAL` means that the file system has none, and
//!   counts as success.
//! - *Lock*: `flock`. It belongs to the open file description, so two handles of one process
//!   exclude each other too. It ends with the process.

#![expect(clippy::disallowed_methods, reason = "this is the one place that opens files")]

use crate::platform::{
    batch::{BatchReads, IoReport, ReadRequest, SystemFile},
    vfs::{DirEntry, File, FileLock, OpenMode, Vfs},
};
use rustix::{
    fs::{FlockOperation, flock, statvfs},
    io::{Errno, retry_on_intr},
};
use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

/// Tries of a lock while only queries of its owner hold it, and the pause between them.
const LOCK_TRIES: u32 = 1000;
const LOCK_PAUSE: Duration = Duration::from_micros(100);

/// Fails with `WOULDBLOCK` if the lock has an owner. `lock_owner` holds a shared lock for an instant,
/// which must not refuse the open of a database.
fn lock_exclusively(file: &fs::File) -> Result<(), Errno> {
    for _ in 0..LOCK_TRIES {
        match retry_on_intr(|| flock(file, FlockOperation::NonBlockingLockExclusive)) {
            Err(Errno::WOULDBLOCK) => {}
            locked => return locked,
        }
        // Only an owner refuses a shared lock.
        retry_on_intr(|| flock(file, FlockOperation::NonBlockingLockShared))?;
        retry_on_intr(|| flock(file, FlockOperation::Unlock))?;
        thread::sleep(LOCK_PAUSE);
    }
    Err(Errno::WOULDBLOCK)
}

/// A lock file may hold anything.
const MAX_OWNER_LEN: u64 = 4096;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Files of a POSIX system.
#[derive(Clone, Copy, Debug, Default)]
pub struct PosixVfs {
    #[cfg(target_vendor = "apple")]
    by_barriers: bool,
    without_io_uring: bool,
}

impl PosixVfs {
    /// Creates the file system.
    pub fn new() -> PosixVfs {
        PosixVfs::default()
    }

    /// Like [`PosixVfs::new`], but syncs with `F_BARRIERFSYNC` instead of `F_FULLFSYNC`, which is
    /// much cheaper. The device may cache data, but persists everything before a sync before
    /// anything after it. A power failure may lose the last durable commits, as with
    /// `Durability::Buffered`, but the database recovers to the state after some commit. A system
    /// crash loses nothing.
    #[cfg(target_vendor = "apple")]
    pub fn with_barriers() -> PosixVfs {
        PosixVfs { by_barriers: true, ..PosixVfs::default() }
    }

    /// Enables io_uring for batched reads on Linux (default: true). Without it, several threads
    /// read.
    #[must_use]
    pub fn io_uring(mut self, io_uring: bool) -> PosixVfs {
        self.without_io_uring = !io_uring;
        self
    }
}

impl Vfs for PosixVfs {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = open(path, mode)?;
        #[cfg(target_vendor = "apple")]
        let file = PosixFile { by_barriers: self.by_barriers, ..file };
        Ok(Arc::new(file))
    }

    #[cfg(target_os = "linux")]
    fn open_unbuffered(&self, path: &Path, mode: OpenMode) -> io::Result<crate::platform::batch::Unbuffered> {
        super::unbuffered::open(path, mode)
    }

    #[cfg(target_os = "linux")]
    fn read_many(&self, requests: &mut [ReadRequest]) {
        if self.without_io_uring || super::uring::read(requests).is_err() {
            super::read_pool::read(requests);
        }
        // Too long or failed; this also finds their errors.
        requests.iter_mut().for_each(ReadRequest::read_alone);
    }

    #[cfg(not(target_os = "linux"))]
    fn read_many(&self, requests: &mut [ReadRequest]) {
        super::read_pool::read(requests);
        requests.iter_mut().for_each(ReadRequest::read_alone);
    }

    fn io_report(&self) -> IoReport {
        #[cfg(target_os = "linux")]
        let refused = match self.without_io_uring {
            true => Some("the program has switched it off".to_owned()),
            false => super::uring::refused(),
        };
        #[cfg(not(target_os = "linux"))]
        let refused = Some("it is Linux's".to_owned());
        let batches = if refused.is_some() { BatchReads::Threads } else { BatchReads::IoUring };
        IoReport { batches, io_uring_refused: refused, ..IoReport::default() }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let metadata = match fs::metadata(entry.path()) {
                // Removed after it was listed, or a dangling link.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            if metadata.is_file() {
                let name = entry.file_name().to_string_lossy().into_owned();
                entries.push(DirEntry { name, len: metadata.len() });
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
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        match fs::File::open(dir)?.sync_all() {
            Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
            other => other,
        }
    }

    fn lock(&self, path: &Path, owner: &str) -> io::Result<Result<Box<dyn FileLock>, String>> {
        // Do not truncate: the text may belong to the present owner.
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match lock_exclusively(&file) {
            Ok(()) => {
                // Write first, then truncate: the block exists even if the disk is full. The text
                // is only informative.
                let reported = file.write_all_at(owner.as_bytes(), 0).and_then(|()| file.set_len(owner.len() as u64));
                reported.or_else(|e| if e.kind() == io::ErrorKind::StorageFull { Ok(()) } else { Err(e) })?;
                Ok(Ok(Box::new(PosixLock { file, process: std::process::id() })))
            }
            Err(Errno::WOULDBLOCK) => {
                let mut text = Vec::new();
                file.take(MAX_OWNER_LEN).read_to_end(&mut text)?;
                Ok(Err(String::from_utf8_lossy(&text).into_owned()))
            }
            Err(e) => Err(e.into()),
        }
    }

    fn lock_owner(&self, path: &Path) -> io::Result<Option<String>> {
        let file = match fs::File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        match retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockShared)) {
            Ok(()) => {
                retry_on_intr(|| flock(&file, FlockOperation::Unlock))?;
                Ok(None)
            }
            Err(Errno::WOULDBLOCK) => {
                let mut text = Vec::new();
                file.take(MAX_OWNER_LEN).read_to_end(&mut text)?;
                Ok(Some(String::from_utf8_lossy(&text).into_owned()))
            }
            Err(_) => Ok(None),
        }
    }

    fn free_space(&self, path: &Path) -> io::Result<Option<u64>> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let status = retry_on_intr(|| statvfs(path))?;
        Ok(status.f_bavail.checked_mul(status.f_frsize))
    }

    fn total_space(&self, path: &Path) -> io::Result<Option<u64>> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let status = retry_on_intr(|| statvfs(path))?;
        Ok(status.f_blocks.checked_mul(status.f_frsize))
    }

    fn open_files_limit(&self) -> Option<u64> {
        Some(rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX))
    }
}

/// Unlocks before closing, because a process that is being started holds a copy of the descriptor
/// until its program begins.
#[derive(Debug)]
struct PosixLock {
    file: fs::File,
    /// A forked child must not release its parent's lock.
    process: u32,
}

impl FileLock for PosixLock {}

impl Drop for PosixLock {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // After a failure, the lock ends with the last copy.
            let _ = retry_on_intr(|| flock(&self.file, FlockOperation::Unlock));
        }
    }
}

pub(super) fn open(path: &Path, mode: OpenMode) -> io::Result<PosixFile> {
    let mut options = OpenOptions::new();
    options.read(true).write(mode != OpenMode::Read).create_new(mode == OpenMode::CreateNew);
    let file = options.open(path)?;
    if mode == OpenMode::Read && file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(PosixFile {
        file,
        #[cfg(target_vendor = "apple")]
        by_barriers: false,
    })
}

#[derive(Debug)]
pub(super) struct PosixFile {
    file: fs::File,
    #[cfg(target_vendor = "apple")]
    by_barriers: bool,
}

impl PosixFile {
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl File for PosixFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        // The system may return less than the trait promises.
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    #[cfg(target_os = "linux")]
    fn next_written(&self, offset: u64) -> io::Result<Option<u64>> {
        super::mapping::next_written(&self.file, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        if len == 0 || allocate(&self.file, len)? {
            return Ok(());
        }
        write_zeros(&self.file, len)
    }

    #[cfg(target_vendor = "apple")]
    fn sync_data(&self) -> io::Result<()> {
        super::apple::sync(&self.file, self.by_barriers)
    }

    #[cfg(not(target_vendor = "apple"))]
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn system_file(&self) -> Option<SystemFile<'_>> {
        Some(SystemFile { descriptor: self.descriptor(), align: 1 })
    }

    #[cfg(target_os = "linux")]
    fn sync_bytes(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        use rustix::io::{ReadWriteFlags, pwritev2};
        let again = || pwritev2(&self.file, &[io::IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC);
        match retry_on_intr(again) {
            Ok(len) if len == bytes.len() => Ok(()),
            // A partial write, or a system without the call: sync the file.
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => self.file.sync_data(),
            Err(e) => Err(e.into()),
        }
    }

    #[cfg(target_os = "linux")]
    fn start_write_back(&self, offset: u64, len: u64) {
        super::write_back::start(&self.file, offset, len);
    }

    #[cfg(target_os = "linux")]
    fn map_for_writing(&self, len: u64) -> io::Result<Option<Box<dyn crate::platform::vfs::WriteMapping>>> {
        let mapping = super::mapping::Mapping::new(&self.file, len)?;
        Ok(mapping.map(|mapping| Box::new(mapping) as Box<dyn crate::platform::vfs::WriteMapping>))
    }

    #[cfg(target_os = "linux")]
    fn map_for_reading(&self, len: u64) -> io::Result<Option<crate::platform::os::read_mapping::ReadMapping>> {
        Ok(super::mapping::ReadMap::new(&self.file, len)?.map(crate::platform::os::read_mapping::ReadMapping::of_map))
    }
}

/// False if the system cannot.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn allocate(file: &fs::File, len: u64) -> io::Result<bool> {
    use rustix::fs::{FallocateFlags, fallocate};
    if i64::try_from(len).is_err() {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, len)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(target_vendor = "apple")]
fn allocate(file: &fs::File, len: u64) -> io::Result<bool> {
    super::apple::allocate(file, len)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd", target_vendor = "apple")))]
fn allocate(_file: &fs::File, _len: u64) -> io::Result<bool> {
    Ok(false)
}

fn write_zeros(file: &fs::File, len: u64) -> io::Result<()> {
    let mut at = file.metadata()?.len();
    while at < len {
        let count = usize::try_from(len - at).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        file.write_all_at(&ZEROS[..count], at)?;
        at += count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_zeros_extends_file_and_keeps_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        write_zeros(&file, ZEROS.len() as u64 + 77).unwrap();
        write_zeros(&file, 10).unwrap();
        let mut bytes = Vec::new();
        fs::File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), ZEROS.len() + 77);
        assert_eq!(&bytes[..3], b"abc");
        assert!(bytes[3..].iter().all(|byte| *byte == 0));
    }

    /// A forked process has a copy too. It must neither keep the lock nor release its parent's.
    #[test]
    fn lock_with_copied_descriptor_ends_with_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let file = fs::File::create(&path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let (copy, of_child) = (file.try_clone().unwrap(), file.try_clone().unwrap());
        let process = std::process::id();
        let held = PosixLock { file, process };
        let vfs = PosixVfs::new();
        drop(PosixLock { file: of_child, process: process + 1 });
        assert!(vfs.lock(&path, "process 2").unwrap().is_err());
        drop(held);
        assert!(vfs.lock(&path, "process 2").unwrap().is_ok());
        drop(copy);
    }

    #[test]
    fn lock_held_excludes_other_process_until_drop() {
        use std::process::{Command, Stdio};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let vfs = PosixVfs::new();
        let held = vfs.lock(&path, "process 1").unwrap().unwrap();
        let flock = |path: &Path| {
            Command::new("flock")
                .args(["--nonblock", "--exclusive"])
                .arg(path)
                .arg("true")
                .stderr(Stdio::null())
                .status()
        };
        let Ok(status) = flock(&path) else { return eprintln!("skipped: this system has no flock command") };
        assert!(!status.success());
        drop(held);
        assert!(flock(&path).unwrap().success());
    }
}
