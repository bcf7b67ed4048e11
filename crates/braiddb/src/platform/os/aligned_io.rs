//! Reads and writes of any offset and length in files that need aligned direct I/O.
//!
//! Unaligned requests are copied through up to [`KEPT_MAX`] pooled buffers of [`PIECE_BYTES`].

use super::aligned::{ALIGNED_TO, Aligned};
use parking_lot::Mutex;
use std::{io, ops::Range};

/// Alignment if the system reports none. Holds for all current devices.
pub(super) const ALIGN_ASSUMED: u32 = 4096;
/// Files that need more use buffered I/O.
pub(super) const ALIGN_MAX: u32 = ALIGNED_TO as u32;

/// Length of a pooled buffer, and the maximum number in the pool.
pub(super) const PIECE_BYTES: usize = 256 << 10;
pub(super) const KEPT_MAX: usize = 32;

/// Minimum length of a direct write. Shorter ones do not pay for the device access.
const DIRECT_WRITE_MIN: u64 = 64 << 10;

/// Minimum page size.
const PAGE_BYTES: u64 = 4096;

pub(super) static KEPT: Mutex<Vec<Aligned>> = Mutex::new(Vec::new());

pub(super) fn with_piece<R>(use_it: impl FnOnce(&mut [u8]) -> R) -> R {
    let kept = KEPT.lock().pop();
    let mut piece = kept.unwrap_or_else(|| Aligned::new(PIECE_BYTES));
    let result = use_it(piece.bytes_mut());
    let mut kept = KEPT.lock();
    if kept.len() < KEPT_MAX {
        kept.push(piece);
    }
    result
}

pub(super) trait Units {
    /// Returns the power of two that divides offset, length and address; at most [`ALIGN_MAX`].
    fn align(&self) -> u32;

    /// Reads from an aligned offset to aligned memory. A short read means the end of the file.
    fn read_units(&self, target: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes whole units from aligned memory to an aligned offset.
    fn write_units(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

pub(super) fn read_at(file: &impl Units, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    // No file reaches offsets beyond `i64::MAX`.
    if buf.is_empty() || i64::try_from(offset.saturating_add(buf.len() as u64 + u64::from(ALIGN_MAX))).is_err() {
        return Ok(0);
    }
    if is_aligned(file, buf, offset) {
        return file.read_units(buf, offset);
    }
    with_piece(|piece| {
        let mut done = 0;
        while done < buf.len() {
            match read_part(file, &mut buf[done..], offset + done as u64, piece)? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    })
}

fn read_part(file: &impl Units, buf: &mut [u8], offset: u64, piece: &mut [u8]) -> io::Result<usize> {
    let before = (offset % u64::from(file.align())) as usize;
    let wanted = buf.len().min(piece.len() - before);
    let units = (before + wanted).next_multiple_of(file.align() as usize);
    let read = file.read_units(&mut piece[..units], offset - before as u64)?;
    let count = read.saturating_sub(before).min(wanted);
    buf[..count].copy_from_slice(&piece[before..before + count]);
    Ok(count)
}

/// Copies them if the memory is not aligned.
pub(super) fn write_at(file: &impl Units, bytes: &[u8], offset: u64) -> io::Result<()> {
    if is_aligned(file, bytes, offset) {
        return file.write_units(bytes, offset);
    }
    with_piece(|piece| {
        for (chunk, offset) in bytes.chunks(piece.len()).zip((offset..).step_by(piece.len())) {
            piece[..chunk.len()].copy_from_slice(chunk);
            file.write_units(&piece[..chunk.len()], offset)?;
        }
        Ok(())
    })
}

fn is_aligned(file: &impl Units, buf: &[u8], offset: u64) -> bool {
    let (align, start) = (u64::from(file.align()), buf.as_ptr().addr() as u64);
    (start | buf.len() as u64 | offset).is_multiple_of(align)
}

/// The whole units of a write, if long enough for a direct write.
pub(super) fn units_of(file: &impl Units, len: usize, offset: u64) -> Option<Range<u64>> {
    let unit = u64::from(file.align()).max(PAGE_BYTES);
    let end = offset.checked_add(len as u64)?;
    let units = offset.checked_next_multiple_of(unit)?..end - end % unit;
    (i64::try_from(end).is_ok() && units.end >= units.start.saturating_add(DIRECT_WRITE_MIN)).then_some(units)
}

#[cfg(test)]
#[path = "tests/unbuffered.rs"]
mod tests;
