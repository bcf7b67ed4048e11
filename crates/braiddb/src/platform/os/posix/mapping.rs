//! Files written and read through memory, on Linux.
//!
//! # Writing
//!
//! A write to a mapped page costs a copy; `pwrite` costs a system call, ten times as much for a short record. But a mapped
//! write cannot fail: where the system finds no space for the page, or cannot read it, it kills the process. So a file is
//! mapped only where each of its blocks is allocated, on file systems that never move a block to write it (ext4, XFS).
//!
//! The pages are advised to be used at random: without that, the page cache may hold them in large folios, and syncing a
//! short record then writes all of one.
//!
//! # Reading
//!
//! A map is made of files on file systems of this machine alone: elsewhere a file may be cut short by somebody who knows
//! nothing of us, and a look at what is gone kills the process. (An overlay may have layers of any kind.)

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

/// Magic numbers that `fstatfs` tells.
const EXT4: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
const F2FS: u64 = 0xf2f5_2010;
const TMPFS: u64 = 0x0102_1994;

/// A cache line, and how many are asked for: those of a short record.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;
#[cfg(target_arch = "x86_64")]
const PREFETCHED_LINES: usize = 4;

/// The least that a system's page has.
const PAGE_BYTES: usize = 4096;

/// The most maps for reading: systems have a limit (65,530 on Linux), and the allocator needs some.
const MAPS_MAX: usize = 16 << 10;
/// How many there are.
static MAPS: AtomicUsize = AtomicUsize::new(0);

/// How many pages the system is asked about at once: those of a huge page.
const PAGES_AT_ONCE: usize = 512;

/// The unit of a file's allocated space as `fstat` tells it.
const STAT_BLOCK_BYTES: u64 = 512;

/// Where something may have been written, from `offset` on. Asked only of file systems that know of each page that was written through a map.
pub(super) fn next_written(file: &File, offset: u64) -> io::Result<Option<u64>> {
    let kind = fstatfs(file)?.f_type as u64;
    if ![EXT4, XFS].contains(&kind) {
        return Ok(Some(offset));
    }
    match seek(file, SeekFrom::Data(offset)) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        // Reading from there finds out.
        Err(_) => Ok(Some(offset)),
    }
}

/// A shared mapping of a file's first bytes, for writing.
#[derive(Debug)]
pub(super) struct Mapping {
    memory: *mut u8,
    len: usize,
}

// SAFETY: the memory belongs to the mapping alone, and writing takes `&mut self`.
unsafe impl Send for Mapping {}
// SAFETY: `&self` gives no access to the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes; `None` where that is not known to be safe.
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
        // SAFETY: a new map, at a place of the system's choice.
        let memory = unsafe { mmap(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0) }?
            .cast::<u8>();
        let mapping = Mapping { memory, len };
        // SAFETY: this advice changes what is read ahead, never what the pages hold.
        unsafe { madvise(memory.cast(), len, Advice::Random) }?;
        Ok(Some(mapping))
    }
}

impl WriteMapping for Mapping {
    fn write(&mut self, bytes: &[u8], offset: u64) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.len), "a write of {} bytes at {offset}", bytes.len());
        // SAFETY: `start..end` lies within the mapping, which nobody else in this process writes to or borrows.
        unsafe { self.memory.add(start).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        // Who writes on from here finds what he needs in the cache.
        prefetch(self.memory.wrapping_add(start + bytes.len()));
    }
}

/// A shared mapping of a file's first bytes, for reading.
pub(in crate::platform::os) struct ReadMap {
    memory: NonNull<u8>,
    len: usize,
    /// Whether the system tells us which of its pages are in memory: of files of others it says so of all.
    is_ours: bool,
}

// SAFETY: the memory belongs to the mapping alone and is only read.
unsafe impl Send for ReadMap {}
// SAFETY: as above.
unsafe impl Sync for ReadMap {}

impl ReadMap {
    /// Maps the first `len` bytes; `None` where that is not known to be safe, or addresses are short.
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
        // SAFETY: a new map, at a place of the system's choice.
        let memory = unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) };
        let mapped =
            memory.map_err(io::Error::from).and_then(|m| NonNull::new(m.cast()).ok_or(io::ErrorKind::Other.into()));
        if mapped.is_err() {
            MAPS.fetch_sub(1, Ordering::Relaxed);
        }
        let memory = mapped?;
        Ok(Some(ReadMap { memory, len, is_ours: status.st_uid == geteuid().as_raw() }))
    }

    /// Whether all pages that hold these bytes are in memory, as far as that can be told.
    pub fn is_in_memory(&self, range: Range<usize>) -> bool {
        let Some((start, end)) = self.pages(range).filter(|_| self.is_ours) else { return false };
        let mut states = [0u8; PAGES_AT_ONCE];
        (start..end).step_by(PAGES_AT_ONCE * PAGE_BYTES).all(|at| {
            let len = (end - at).min(PAGES_AT_ONCE * PAGE_BYTES);
            let states = &mut states[..len.div_ceil(PAGE_BYTES)];
            // SAFETY: the pages lie in the map, and there is a byte for each: the system's are no smaller.
            let told = unsafe { libc::mincore(self.memory.as_ptr().add(at).cast(), len, states.as_mut_ptr().cast()) };
            // Where pages are larger, fewer bytes were written; the others are zero.
            told == 0 && states.iter().all(|state| state & 1 == 1)
        })
    }

    /// The pages that hold these bytes, if there are any.
    fn pages(&self, range: Range<usize>) -> Option<(usize, usize)> {
        let (start, end) = (range.start & !(page_size() - 1), range.end.min(self.len));
        (start < end).then_some((start, end))
    }

    /// Has the system read what it has not in memory of the pages that hold these bytes, and map them; whether it did.
    pub fn populate(&self, range: Range<usize>) -> bool {
        let Some((start, end)) = self.pages(range) else { return false };
        // SAFETY: the pages lie in the map, and the advice changes nothing that they hold. It fails where the disk does, and
        // where the system does not know it.
        unsafe { madvise(self.memory.as_ptr().add(start).cast(), end - start, Advice::LinuxPopulateRead) }.is_ok()
    }

    /// Copies bytes that nobody writes to any more, from `start` on. Panics if there are not so many.
    pub fn copy(&self, start: usize, buf: &mut [u8]) {
        assert!(start <= self.len && buf.len() <= self.len - start, "within the map");
        // SAFETY: they lie in the map, which is there while this is; `buf` is another's.
        unsafe { std::ptr::copy_nonoverlapping(self.memory.as_ptr().add(start), buf.as_mut_ptr(), buf.len()) }
    }

    /// Where the bytes are.
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

/// Asks for a few cache lines, to be written soon. The pointer need not be valid.
fn prefetch(pointer: *const u8) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..PREFETCHED_LINES {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program can see, whatever the address; SSE is in every x86-64.
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
