//! Direct I/O on Windows, and batched reads.
//!
//! **Reading.** With `FILE_FLAG_NO_BUFFERING`, offset, length and address must be multiples of the
//! sector size that the volume reports, or of [`ALIGN_ASSUMED`] if larger. Other reads are copied
//! through aligned memory (`aligned_io.rs`). A read past the end of the file is short.
//!
//! **Writing.** For a new file, the whole units of each longer write bypass the cache. Everything
//! else (unaligned ends, short writes, writes to existing files) is buffered. The system keeps both
//! ways coherent: it writes back and drops cached bytes of direct reads and writes. It may keep
//! other cached bytes, which are never read.
//!
//! **Batched reads** are overlapped requests in flight together, into slots from which they are
//! copied. A failed or short read is left to the caller, who repeats it the usual way.

use super::super::aligned_io::{ALIGN_ASSUMED, ALIGN_MAX, Units, read_at, units_of, write_at};
use super::{
    file::{Shared, WindowsFile, check},
    requests::{IN_FLIGHT_MAX, SLOT_BYTES, Wanted, read, write},
    vfs::open_by,
};
use crate::platform::{
    batch::{ReadRequest, SystemFile, Unbuffered},
    vfs::{File, OpenMode},
};
use std::{
    fs, io,
    ops::Range,
    os::windows::io::{AsHandle, AsRawHandle},
    path::Path,
    sync::Arc,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_NO_BUFFERING, FILE_FLAG_OVERLAPPED, FILE_STORAGE_INFO, FileStorageInfo, GetFileInformationByHandleEx,
};

pub(super) fn open(path: &Path, mode: OpenMode, shared: &Arc<Shared>) -> io::Result<Unbuffered> {
    let buffered = WindowsFile::new(open_by(path, mode, FILE_FLAG_OVERLAPPED)?, Arc::clone(shared));
    if mode == OpenMode::ReadWrite {
        return Ok(Unbuffered { file: Arc::new(buffered), refused: None });
    }
    let again = if mode == OpenMode::CreateNew { OpenMode::ReadWrite } else { mode };
    let (direct, refused) = match open_direct(path, again, shared) {
        Ok(direct) => (Some(direct), None),
        Err(because) => (None, Some(because)),
    };
    let file: Arc<dyn File> = match (mode, direct) {
        (OpenMode::Read, Some(direct)) => Arc::new(direct),
        (OpenMode::CreateNew, Some(direct)) => Arc::new(WrittenFile { buffered, direct }),
        _ => Arc::new(buffered),
    };
    Ok(Unbuffered { file, refused })
}

/// Opens the file again for direct I/O, or returns the reason for a refusal.
fn open_direct(path: &Path, mode: OpenMode, shared: &Arc<Shared>) -> Result<DirectFile, String> {
    let file = open_by(path, mode, FILE_FLAG_OVERLAPPED | FILE_FLAG_NO_BUFFERING)
        .map_err(|error| format!("the system refuses FILE_FLAG_NO_BUFFERING: {error}"))?;
    let align = alignment(&file)?;
    Ok(DirectFile { file, align, shared: Arc::clone(shared) })
}

fn alignment(file: &fs::File) -> Result<u32, String> {
    let mut reported = FILE_STORAGE_INFO::default();
    let (handle, len) = (file.as_raw_handle(), size_of::<FILE_STORAGE_INFO>() as u32);
    // SAFETY: the file is borrowed, so its handle is open, and the system writes at most `len`
    // bytes.
    let asked = unsafe { GetFileInformationByHandleEx(handle, FileStorageInfo, (&raw mut reported).cast(), len) };
    match check(asked) {
        Err(_) => Ok(ALIGN_ASSUMED),
        Ok(()) => {
            match reported.LogicalBytesPerSector.max(reported.PhysicalBytesPerSectorForPerformance).max(ALIGN_ASSUMED) {
                align if align.is_power_of_two() && align <= ALIGN_MAX => Ok(align),
                align => Err(format!("the volume wants reads aligned to {align} bytes")),
            }
        }
    }
}

#[derive(Debug)]
struct DirectFile {
    file: fs::File,
    align: u32,
    shared: Arc<Shared>,
}

impl Units for DirectFile {
    fn align(&self) -> u32 {
        self.align
    }

    fn read_units(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        debug_assert!(
            (target.as_ptr().addr() as u64 | target.len() as u64 | offset).is_multiple_of(u64::from(self.align))
        );
        read(self.file.as_handle(), &self.shared.events, target, offset)
    }

    fn write_units(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        debug_assert!(
            (bytes.as_ptr().addr() as u64 | bytes.len() as u64 | offset).is_multiple_of(u64::from(self.align))
        );
        write(self.file.as_handle(), &self.shared.events, bytes, offset)
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

    /// Succeeds: nothing is written through this file.
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn is_unbuffered(&self) -> bool {
        true
    }

    fn system_file(&self) -> Option<SystemFile<'_>> {
        Some(SystemFile { handle: self.file.as_handle(), align: self.align })
    }
}

fn read_only() -> io::Error {
    io::ErrorKind::PermissionDenied.into()
}

#[derive(Debug)]
struct WrittenFile {
    buffered: WindowsFile,
    direct: DirectFile,
}

impl File for WrittenFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.buffered.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let Some(units) = units_of(&self.direct, buf.len(), offset) else { return self.buffered.write_at(buf, offset) };
        let (before, rest) = buf.split_at((units.start - offset) as usize);
        let (whole, after) = rest.split_at((units.end - units.start) as usize);
        if !before.is_empty() {
            self.buffered.write_at(before, offset)?;
        }
        let written = write_at(&self.direct, whole, units.start);
        // The next sync must flush the device's cache and the length.
        self.buffered.note_other_write();
        written?;
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
        self.buffered.sync_data()
    }

    fn sync_bytes(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.buffered.sync_bytes(bytes, offset)
    }
}

/// Executes the reads together if there are several. Leaves out failed and too long ones.
pub(super) fn read_many(shared: &Shared, requests: &mut [ReadRequest]) {
    let mut indexes: Vec<usize> = (0..requests.len()).filter(|&index| padded(&requests[index]).is_some()).collect();
    if indexes.len() < 2 {
        return;
    }
    shared.with_batch(|batch| {
        while !indexes.is_empty() {
            let group: Vec<usize> = indexes.drain(..indexes.len().min(IN_FLIGHT_MAX)).collect();
            let files: Vec<Arc<dyn File>> = group.iter().map(|&index| Arc::clone(&requests[index].file)).collect();
            let wanted = group.iter().zip(&files).filter_map(|(&index, file)| {
                let (file, range) = (file.system_file()?, padded(&requests[index])?);
                Some(Wanted { file: file.handle, offset: range.start, len: (range.end - range.start) as usize })
            });
            let wanted: Vec<Wanted<'_>> = wanted.collect();
            if wanted.len() < group.len() {
                return;
            }
            let made = batch.read_all(&shared.events, &wanted, |slot, bytes| {
                let request = &mut requests[group[slot]];
                let skipped = (request.offset - wanted[slot].offset) as usize;
                if let Some(found) = bytes.get(skipped..skipped + request.bytes.len()) {
                    request.bytes.copy_from_slice(found);
                    request.result = Some(Ok(()));
                }
            });
            if made.is_err() {
                // No events left. Single reads need fewer.
                return;
            }
        }
    });
}

/// `None` if it cannot be batched.
fn padded(request: &ReadRequest) -> Option<Range<u64>> {
    let align = u64::from(request.file.system_file()?.align);
    let end = request.offset.checked_add(request.bytes.len() as u64)?.checked_next_multiple_of(align)?;
    let start = request.offset - request.offset % align;
    let fits = request.result.is_none() && !request.bytes.is_empty() && end - start <= SLOT_BYTES as u64;
    (fits && i64::try_from(end).is_ok()).then_some(start..end)
}
