//! Direct I/O on Linux.
//!
//! # Reading
//!
//! `O_DIRECT` reads need an aligned offset, length and address, as `statx` reports (since Linux
//! 6.1). Without a report, [`ALIGN_ASSUMED`] is tried when the file is opened. Other reads are
//! copied through aligned memory (`aligned_io.rs`). A read past the end of the file is short.
//!
//! # Writing
//!
//! For a new file, the whole units of each longer write use `O_DIRECT`, several times as fast as
//! the page cache.
//!
//! Everything else (unaligned ends, short writes, writes to existing files) is buffered and dropped
//! from the page cache when it reaches the disk: earlier data when write-back starts, whole pages
//! at a sync, the last page at the close. Until then it stays, or each append would read it first.
//! The kernel keeps both ways coherent: direct reads first write back dirty pages, and direct
//! writes drop cached ones.

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

const PAGE_BYTES: u64 = 4096;

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
            drop_pages(&buffered, 0, None);
            Ok(Unbuffered { file: Arc::new(file), refused: None })
        }
        Err(because) => Ok(Unbuffered { file: Arc::new(buffered), refused: Some(because) }),
    }
}

/// Opens the file again with `O_DIRECT`, or returns the reason for a refusal.
fn open_direct(path: &Path, buffered: &PosixFile, mode: OpenMode) -> Result<DirectFile, String> {
    let reported = alignment(buffered)?;
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
    let file = DirectFile { file, align: reported.unwrap_or(ALIGN_ASSUMED) };
    if reported.is_none() && mode == OpenMode::Read {
        // Only a trial shows whether such reads work.
        let try_it = |piece: &mut [u8]| file.read_units(&mut piece[..ALIGN_ASSUMED as usize], 0);
        with_piece(try_it).map_err(|e| format!("the system refuses to read with O_DIRECT: {e}"))?;
    }
    Ok(file)
}

/// `None` without a report. Fails without direct I/O.
fn alignment(file: &PosixFile) -> Result<Option<u32>, String> {
    let Ok(reported) = statx(file.descriptor(), "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else { return Ok(None) };
    if reported.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(None);
    }
    match reported.stx_dio_mem_align.max(reported.stx_dio_offset_align) {
        0 => Err("the file system has no O_DIRECT for this file".to_owned()),
        align if align.is_power_of_two() && align <= ALIGN_MAX => Ok(Some(align)),
        align => Err(format!("the file system wants reads aligned to {align} bytes")),
    }
}

fn drop_pages(file: &PosixFile, from: u64, len: Option<NonZeroU64>) {
    let _ = fadvise(file.descriptor(), from, len, Advice::DontNeed);
}

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
                    // A partial unit is the end of the file. Continuing would be unaligned.
                    if !done.is_multiple_of(self.align as usize) {
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
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

fn read_only() -> io::Error {
    Errno::BADF.into()
}

/// Direct writes (if new and long) and buffered writes that leave the page cache.
#[derive(Debug)]
struct WrittenFile {
    buffered: PosixFile,
    direct: Option<DirectFile>,
}

impl WrittenFile {
    fn drop_before(&self, end: u64) {
        if let Some(len) = NonZeroU64::new(end - end % PAGE_BYTES) {
            drop_pages(&self.buffered, 0, Some(len));
        }
    }

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
            // EINVAL: no `O_DIRECT` writes, or a stricter alignment than reported.
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
        // Earlier write-backs have mostly finished.
        self.drop_before(offset);
    }
}

impl Drop for WrittenFile {
    fn drop(&mut self) {
        drop_pages(&self.buffered, 0, None);
    }
}
