//! Files past the page cache, on Linux.
//!
//! # Reading
//!
//! A file that is opened with `O_DIRECT` is read by whole units of the device: offset, length and address are multiples of what
//! `statx` tells (since Linux 6.1), else of [`ALIGN_ASSUMED`], which holds for any device of today and is tried out when the file
//! is opened. What is asked for otherwise is read in whole units to aligned memory and copied from there (`aligned_io.rs`). The
//! last unit of a file mostly ends past its last byte: there the system reads less.
//!
//! # Writing
//!
//! Of a new file, the whole units of each longer write go to the device by `O_DIRECT` before the write returns: that is several times as fast as the way
//! through the cache, which copies them and finds memory for them.
//!
//! What is left (odd offsets and lengths, short writes, and all writes to files that were there before) goes through the cache,
//! and is dropped from it as it reaches the disk: what lies before that for which the
//! writing back begins, all whole pages with a sync, and the rest when the file is closed. The last page stays until then, or
//! each append would have to read it first. Reads by `O_DIRECT` see what other descriptors wrote: the system writes it back first; and writes by it drop what
//! the cache has of these bytes.

use super::super::aligned_io::{ALIGN_ASSUMED, ALIGN_MAX, Units, read_at, units_of, with_piece, write_at};
use super::vfs::PosixFile;
use crate::platform::{
    batch::{SystemFile, Unbuffered},
    vfs::{File, OpenMode},
};
use rustix::{
    fs::{Advice, AtFlags, OFlags, StatxFlags, fadvise, statx},
    io::Errno,
};
use std::{
    fs::OpenOptions,
    io,
    num::NonZeroU64,
    os::{
        fd::AsFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::Path,
    sync::Arc,
};

/// The least that a page has.
const PAGE_BYTES: u64 = 4096;

/// Opens a file as [`crate::platform::Vfs::open_unbuffered`] says.
pub(super) fn open(path: &Path, mode: OpenMode) -> io::Result<Unbuffered> {
    let buffered = super::vfs::open(path, mode)?;
    match mode {
        OpenMode::Read => {}
        OpenMode::ReadWrite => {
            return Ok(Unbuffered { file: Arc::new(WrittenFile { buffered, direct: None }), refused: None });
        }
        OpenMode::CreateNew => {
            let (direct, refused) = match open_direct(path, &buffered, mode) {
                Ok(direct) => (Some(direct), None),
                Err(because) => (None, Some(because)),
            };
            return Ok(Unbuffered { file: Arc::new(WrittenFile { buffered, direct }), refused });
        }
    }
    match open_direct(path, &buffered, mode) {
        Ok(file) => {
            // What was read or written of it through the cache before.
            drop_pages(&buffered, 0, None);
            Ok(Unbuffered { file: Arc::new(file), refused: None })
        }
        Err(because) => Ok(Unbuffered { file: Arc::new(buffered), refused: Some(because) }),
    }
}

/// The same file once more, past the cache; or why that cannot be.
fn open_direct(path: &Path, buffered: &PosixFile, mode: OpenMode) -> Result<DirectFile, String> {
    let told = alignment(buffered)?;
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
    let refused = |error: io::Error| format!("the system refuses O_DIRECT: {error}");
    let file = OpenOptions::new()
        .read(true)
        .write(mode == OpenMode::CreateNew)
        .custom_flags(direct)
        .open(path)
        .map_err(refused)?;
    let same = |a: &rustix::fs::Stat, b: &rustix::fs::Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
    match (rustix::fs::fstat(&file), rustix::fs::fstat(buffered.descriptor())) {
        (Ok(a), Ok(b)) if same(&a, &b) => {}
        _ => return Err("another file has taken its name meanwhile".to_owned()),
    }
    let file = DirectFile { file, align: told.unwrap_or(ALIGN_ASSUMED) };
    if told.is_none() && mode == OpenMode::Read {
        // Only by doing it can be told whether such reads are taken.
        let try_it = |piece: &mut [u8]| file.read_units(&mut piece[..ALIGN_ASSUMED as usize], 0);
        with_piece(try_it).map_err(|e| format!("the system refuses to read with O_DIRECT: {e}"))?;
    }
    Ok(file)
}

/// What reads are to be aligned to as the system tells it; `None` if it does not, and an error if there are no such reads.
fn alignment(file: &PosixFile) -> Result<Option<u32>, String> {
    let Ok(told) = statx(file.descriptor(), "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else { return Ok(None) };
    if told.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(None);
    }
    match told.stx_dio_mem_align.max(told.stx_dio_offset_align) {
        0 => Err("the file system has no O_DIRECT for this file".to_owned()),
        align if align.is_power_of_two() && align <= ALIGN_MAX => Ok(Some(align)),
        align => Err(format!("the file system wants reads aligned to {align} bytes")),
    }
}

/// Has the system drop what it has in its cache of these bytes, as far as it is on the disk. Only advice.
fn drop_pages(file: &PosixFile, from: u64, len: Option<NonZeroU64>) {
    let _ = fadvise(file.descriptor(), from, len, Advice::DontNeed);
}

/// A file that is read past the cache.
#[derive(Debug)]
struct DirectFile {
    file: std::fs::File,
    align: u32,
}

impl Units for DirectFile {
    fn align(&self) -> u32 {
        self.align
    }

    fn read_units(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < target.len() {
            match self.file.read_at(&mut target[done..], offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(count) => {
                    done += count;
                    // Less than whole units is the file's end: to go on there would not be aligned.
                    if !done.is_multiple_of(self.align as usize) {
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A read that begins at the end of a file that does not end with a unit.
                Err(e) if done > 0 && e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_units(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }
}

impl File for DirectFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        read_at(self, buf, offset)
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn preallocate(&self, _len: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn is_unbuffered(&self) -> bool {
        true
    }

    fn system_file(&self) -> Option<SystemFile<'_>> {
        Some(SystemFile { descriptor: self.file.as_fd(), align: self.align })
    }
}

/// What the system says of writes to a file that is open for reading.
fn read_only() -> io::Error {
    Errno::BADF.into()
}

/// A file whose longer writes go past the cache, if it is new; others go through it, and are dropped from it.
#[derive(Debug)]
struct WrittenFile {
    buffered: PosixFile,
    direct: Option<DirectFile>,
}

impl WrittenFile {
    /// Drops the whole pages before `end`.
    fn drop_before(&self, end: u64) {
        if let Some(len) = NonZeroU64::new(end - end % PAGE_BYTES) {
            drop_pages(&self.buffered, 0, Some(len));
        }
    }

    /// Drops the whole pages of a file all of which is on the disk.
    fn drop_synced(&self) {
        if let Ok(len) = self.buffered.len() {
            self.drop_before(len);
        }
    }
}

impl File for WrittenFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.buffered.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let by_units = self.direct.as_ref().and_then(|direct| Some((direct, units_of(direct, buf.len(), offset)?)));
        let Some((direct, units)) = by_units else { return self.buffered.write_at(buf, offset) };
        let (before, rest) = buf.split_at((units.start - offset) as usize);
        let (whole, after) = rest.split_at((units.end - units.start) as usize);
        if !before.is_empty() {
            self.buffered.write_at(before, offset)?;
        }
        match write_at(direct, whole, units.start) {
            // What a file system says that has no such writes, or wants them aligned to more than it told.
            Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.buffered.write_at(whole, units.start)?;
            }
            done => done?,
        }
        if after.is_empty() { Ok(()) } else { self.buffered.write_at(after, units.end) }
    }

    fn len(&self) -> io::Result<u64> {
        self.buffered.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.buffered.set_len(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.buffered.preallocate(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.buffered.sync_data()?;
        self.drop_synced();
        Ok(())
    }

    fn sync_bytes(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.buffered.sync_bytes(bytes, offset)
    }

    fn start_write_back(&self, offset: u64, len: u64) {
        self.buffered.start_write_back(offset, len);
        // What was begun before is on the disk by now, for the most part.
        self.drop_before(offset);
    }
}

impl Drop for WrittenFile {
    fn drop(&mut self) {
        drop_pages(&self.buffered, 0, None);
    }
}
