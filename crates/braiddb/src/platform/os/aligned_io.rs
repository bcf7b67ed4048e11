//! Reads and writes of any place and length in files that know whole units alone: those past the system's cache.
//!
//! What is not aligned goes through aligned memory that is kept for the next read: at most [`KEPT_MAX`] pieces of [`PIECE_BYTES`], so that
//! nothing takes memory anew unless more threads than that read at once.

use super::aligned::{ALIGNED_TO, Aligned};
use parking_lot::Mutex;
use std::{io, ops::Range};

/// What reads are aligned to where the system does not tell: it holds for any device of today.
pub(super) const ALIGN_ASSUMED: u32 = 4096;
/// Where the system wants more than this, files are read through the cache.
pub(super) const ALIGN_MAX: u32 = ALIGNED_TO as u32;

/// How much is read at once through aligned memory, and how many pieces of that are kept.
pub(super) const PIECE_BYTES: usize = 256 << 10;
pub(super) const KEPT_MAX: usize = 32;

/// Shorter writes are not worth a wait for the device.
const DIRECT_WRITE_MIN: u64 = 64 << 10;

/// The least that a page has.
const PAGE_BYTES: u64 = 4096;

/// Memory that waits for the next read. Whoever reads takes a piece out, so none is used twice.
pub(super) static KEPT: Mutex<Vec<Aligned>> = Mutex::new(Vec::new());

/// Lends a piece of aligned memory.
pub(super) fn with_piece<R>(use_it: impl FnOnce(&mut [u8]) -> R) -> R {
    let kept = KEPT.lock().pop();
    let mut piece = kept.unwrap_or_else(|| Aligned::new(PIECE_BYTES));
    let result = use_it(piece.bytes_mut());
    let mut kept = KEPT.lock();
    if kept.len() < KEPT_MAX {
        // Takes no memory: it has had that room since the first time so many were out.
        kept.push(piece);
    }
    result
}

/// A file that is read and written by whole units.
pub(super) trait Units {
    /// Of what power of two offset, length and address are to be multiples; at most [`ALIGN_MAX`].
    fn align(&self) -> u32;

    /// Reads to aligned memory, from an aligned place; less than all of it is not followed by anything.
    fn read_units(&self, target: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of some units from aligned memory to an aligned place.
    fn write_units(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

/// Reads as [`crate::platform::File::read_at`] says.
pub(super) fn read_at(file: &impl Units, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    // The system has no names for places past this; no file has them.
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

/// Reads a part, as much of it as lies in a piece, through aligned memory.
fn read_part(file: &impl Units, buf: &mut [u8], offset: u64, piece: &mut [u8]) -> io::Result<usize> {
    let before = (offset % u64::from(file.align())) as usize;
    let wanted = buf.len().min(piece.len() - before);
    let units = (before + wanted).next_multiple_of(file.align() as usize);
    let read = file.read_units(&mut piece[..units], offset - before as u64)?;
    let count = read.saturating_sub(before).min(wanted);
    buf[..count].copy_from_slice(&piece[before..before + count]);
    Ok(count)
}

/// Writes whole units, from aligned memory or by way of such.
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

/// Where the whole units of a write stand, if they are worth a wait for the device.
pub(super) fn units_of(file: &impl Units, len: usize, offset: u64) -> Option<Range<u64>> {
    let unit = u64::from(file.align()).max(PAGE_BYTES);
    let end = offset.checked_add(len as u64)?;
    let units = offset.checked_next_multiple_of(unit)?..end - end % unit;
    (i64::try_from(end).is_ok() && units.end >= units.start.saturating_add(DIRECT_WRITE_MIN)).then_some(units)
}

#[cfg(test)]
#[path = "tests/unbuffered.rs"]
mod tests;
