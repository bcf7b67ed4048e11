//! Mapped files on Linux.
//!
//! # Writing
//!
//! A mapped write costs a copy; for a short record, `pwrite` costs ten times as much. But if the
//! system has no space for a mapped page or cannot read it, it kills the process. So a file is
//! mapped only if all its blocks are allocated, on file systems that write in place (ext4, XFS).
//!
//! The map is advised as random access. Otherwise the page cache may use large folios, and syncing
//! a short record writes a whole one.
//!
//! # Reading
//!
//! Only files on local file systems are mapped. Elsewhere another machine may truncate the file,
//! and access past its end kills the process. (Overlays may have layers of any kind.)

use crate::platform::vfs::WriteMapping;
use rustix::{
    fs::{SeekFrom, fstat, fstatfs, seek},
    io::Errno,
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap},
    param::page_size,
    process::geteuid,
};
use std::{
    fs::File,
    io,
    ops::Range,
    ptr::{NonNull, null_mut},
    sync::atomic::{AtomicUsize, Ordering},
};

const EXT4: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
const F2FS: u64 = 0xf2f5_2010;
const TMPFS: u64 = 0x0102_1994;

/// Bytes of a cache line, and lines to prefetch: those of a short record.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;
#[cfg(target_arch = "x86_64")]
const PREFETCHED_LINES: usize = 4;

/// Minimum page size.
const PAGE_BYTES: usize = 4096;

/// Linux allows 65,530 maps per process, and the allocator needs some.
const MAPS_MAX: usize = 16 << 10;
static MAPS: AtomicUsize = AtomicUsize::new(0);

const PAGES_AT_ONCE: usize = 512;

const STAT_BLOCK_BYTES: u64 = 512;

/// Works on file systems that track pages written through maps.
pub(super) fn next_written(file: &File, offset: u64) -> io::Result<Option<u64>> {
    let kind = fstatfs(file)?.f_type as u64;
    if ![EXT4, XFS].contains(&kind) {
        return Ok(Some(offset));
    }
    match seek(file, SeekFrom::Data(offset)) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(_) => Ok(Some(offset)),
    }
}

#[derive(Debug)]
pub(super) struct Mapping {
    memory: *mut u8,
    len: usize,
}

// SAFETY: the mapping owns its memory, and writing takes `&mut self`.
unsafe impl Send for Mapping {}
// SAFETY: `&self` gives no access to the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `None` unless known to be safe.
    pub fn new(file: &File, len: u64) -> io::Result<Option<Mapping>> {
        let Some(len) = usize::try_from(len).ok().filter(|len| *len > 0) else { return Ok(None) };
        let system = fstatfs(file)?;
        let kind = system.f_type as u64;
        let status = fstat(file)?;
        let file_len = u64::try_from(status.st_size).unwrap_or(0);
        let allocated = u64::try_from(status.st_blocks).unwrap_or(0) * STAT_BLOCK_BYTES;
        if ![EXT4, XFS].contains(&kind) || file_len < len as u64 || allocated < file_len {
            return Ok(None);
        }
        // SAFETY: a new map, at an address of the system's choice.
        let memory = unsafe { mmap(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0) }?
            .cast::<u8>();
        let mapping = Mapping { memory, len };
        // SAFETY: the advice changes read-ahead, never the contents.
        unsafe { madvise(memory.cast(), len, Advice::Random) }?;
        Ok(Some(mapping))
    }
}

impl WriteMapping for Mapping {
    fn write(&mut self, bytes: &[u8], offset: u64) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.len), "a write of {} bytes at {offset}", bytes.len());
        // SAFETY: `start..end` lies in the mapping, which no other code in this process
        // writes to or borrows.
        unsafe { self.memory.add(start).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        // Prefetch the target of the next append.
        prefetch(self.memory.wrapping_add(start + bytes.len()));
    }
}

pub(in crate::platform::os) struct ReadMap {
    memory: NonNull<u8>,
    len: usize,
    /// True if this user owns the file. For other users' files, `mincore` reports all pages as
    /// present.
    is_ours: bool,
}

// SAFETY: the mapping owns its memory, which is only read.
unsafe impl Send for ReadMap {}
// SAFETY: as above.
unsafe impl Sync for ReadMap {}

impl ReadMap {
    /// `None` unless known to be safe and addresses have 64 bits.
    pub fn new(file: &File, len: u64) -> io::Result<Option<ReadMap>> {
        let has_room = cfg!(target_pointer_width = "64");
        let Some(len) = usize::try_from(len).ok().filter(|len| *len > 0 && has_room) else { return Ok(None) };
        let kind = fstatfs(file)?.f_type as u64;
        let status = fstat(file)?;
        let file_len = u64::try_from(status.st_size).unwrap_or(0);
        if ![EXT4, XFS, BTRFS, F2FS, TMPFS].contains(&kind) || file_len < len as u64 {
            return Ok(None);
        }
        if MAPS.fetch_add(1, Ordering::Relaxed) >= MAPS_MAX {
            MAPS.fetch_sub(1, Ordering::Relaxed);
            return Ok(None);
        }
        // SAFETY: a new map, at an address of the system's choice.
        let memory = unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) };
        let mapped =
            memory.map_err(io::Error::from).and_then(|m| NonNull::new(m.cast()).ok_or(io::ErrorKind::Other.into()));
        if mapped.is_err() {
            MAPS.fetch_sub(1, Ordering::Relaxed);
        }
        let memory = mapped?;
        Ok(Some(ReadMap { memory, len, is_ours: status.st_uid == geteuid().as_raw() }))
    }

    pub fn is_in_memory(&self, range: Range<usize>) -> bool {
        let Some((start, end)) = self.pages(range).filter(|_| self.is_ours) else { return false };
        let mut states = [0u8; PAGES_AT_ONCE];
        (start..end).step_by(PAGES_AT_ONCE * PAGE_BYTES).all(|at| {
            let len = (end - at).min(PAGES_AT_ONCE * PAGE_BYTES);
            let states = &mut states[..len.div_ceil(PAGE_BYTES)];
            // SAFETY: the pages lie in the map, and `states` has a byte for each, since pages have
            // at least 4 KiB.
            let reported =
                unsafe { libc::mincore(self.memory.as_ptr().add(at).cast(), len, states.as_mut_ptr().cast()) };
            // With larger pages, fewer bytes were written, and the last ones are zero.
            reported == 0 && states.iter().all(|state| state & 1 == 1)
        })
    }

    fn pages(&self, range: Range<usize>) -> Option<(usize, usize)> {
        let (start, end) = (range.start & !(page_size() - 1), range.end.min(self.len));
        (start < end).then_some((start, end))
    }

    pub fn populate(&self, range: Range<usize>) -> bool {
        let Some((start, end)) = self.pages(range) else { return false };
        // SAFETY: the pages lie in the map, and the advice keeps their contents. It fails with the
        // disk, and on kernels that do not support it.
        unsafe { madvise(self.memory.as_ptr().add(start).cast(), end - start, Advice::LinuxPopulateRead) }.is_ok()
    }

    /// Bytes that no longer change. Panics past the end.
    pub fn copy(&self, start: usize, buf: &mut [u8]) {
        assert!(start <= self.len && buf.len() <= self.len - start, "within the map");
        // SAFETY: they lie in the live map; `buf` does not overlap it.
        unsafe { std::ptr::copy_nonoverlapping(self.memory.as_ptr().add(start), buf.as_mut_ptr(), buf.len()) }
    }

    pub fn memory(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.memory, self.len)
    }
}

impl Drop for ReadMap {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; nothing borrows from it.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.len) };
        MAPS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The pointer need not be valid.
fn prefetch(pointer: *const u8) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..PREFETCHED_LINES {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no visible effect at any address; x86-64 always has SSE.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(pointer.wrapping_add(line * LINE_BYTES).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = pointer;
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; nothing borrows from it.
        let _ = unsafe { munmap(self.memory.cast(), self.len) };
    }
}
