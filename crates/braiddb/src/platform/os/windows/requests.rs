//! Overlapped requests on Windows, and the events that signal their completion.
//!
//! Windows serializes I/O on handles opened without overlapped I/O. Each request needs its own
//! event. A file system and its files share a pool of events, so I/O creates and allocates nothing.
//! The pool belongs to no thread: threads that outlive the library keep nothing of it.
//!
//! **Invariant.** No function returns or unwinds while the system may write to memory of a request.
//! If the end of a request cannot be determined, the process aborts.

use crate::platform::os::aligned::Aligned;
use std::{
    io,
    ops::Range,
    os::windows::io::{AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle},
    ptr::{null, null_mut},
    sync::atomic::{AtomicPtr, Ordering},
};
use windows_sys::Win32::{
    Foundation::{ERROR_HANDLE_EOF, ERROR_IO_PENDING, GetLastError, HANDLE, STATUS_PENDING},
    Storage::FileSystem::{ReadFile, WriteFile},
    System::{
        IO::{GetOverlappedResult, OVERLAPPED, OVERLAPPED_0, OVERLAPPED_0_0},
        Threading::CreateEventW,
    },
};

/// One per concurrent request. More are created and closed again.
const EVENTS_KEPT: usize = 64;

/// Lengths have 32 bits.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// Maximum requests in flight of a batch.
pub const IN_FLIGHT_MAX: usize = 16;

/// Maximum bytes of a batched read: the length of a block.
pub const SLOT_BYTES: usize = 32 << 10;

/// Requests of a batch start at multiples, so that no two touch the same page.
pub const PIECE_BYTES: u64 = 64 << 10;

/// Offsets are signed, and the largest unsigned ones have special meanings.
pub const FILE_LEN_MAX: u64 = i64::MAX as u64;

#[derive(Debug)]
pub struct Events([AtomicPtr<core::ffi::c_void>; EVENTS_KEPT]);

#[derive(Debug)]
struct Event(OwnedHandle);

impl Events {
    pub fn new() -> Events {
        Events([const { AtomicPtr::new(null_mut()) }; EVENTS_KEPT])
    }

    fn take(&self) -> io::Result<Event> {
        for slot in &self.0 {
            if !slot.load(Ordering::Relaxed).is_null() {
                let handle = slot.swap(null_mut(), Ordering::Acquire);
                if !handle.is_null() {
                    // SAFETY: the pool owned this handle, and the swap removed it.
                    return Ok(Event(unsafe { OwnedHandle::from_raw_handle(handle) }));
                }
            }
        }
        // SAFETY: creates an unnamed manual-reset event without attributes, not signaled.
        let handle = unsafe { CreateEventW(null(), 1, 0, null()) };
        if handle.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just created, so not owned elsewhere.
        Ok(Event(unsafe { OwnedHandle::from_raw_handle(handle) }))
    }

    fn give(&self, event: Event) {
        let handle = event.0.as_raw_handle();
        let is_free = |slot: &&AtomicPtr<core::ffi::c_void>| {
            slot.load(Ordering::Relaxed).is_null()
                && slot.compare_exchange(null_mut(), handle, Ordering::Release, Ordering::Relaxed).is_ok()
        };
        if self.0.iter().find(is_free).is_some() {
            // The pool owns it now.
            std::mem::forget(event);
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        for slot in &mut self.0 {
            let handle = std::mem::replace(slot.get_mut(), null_mut());
            if !handle.is_null() {
                // SAFETY: the pool owns its handles.
                drop(unsafe { OwnedHandle::from_raw_handle(handle) });
            }
        }
    }
}

/// Fewer than `buf.len()` bytes only at the end of the file.
pub fn read(file: BorrowedHandle<'_>, events: &Events, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    if offset > FILE_LEN_MAX || buf.is_empty() {
        return Ok(0);
    }
    let mut request = Request::new(events.take()?);
    let mut done = 0;
    let result = loop {
        let len = (buf.len() - done).min(REQUEST_BYTES_MAX);
        let at = offset + done as u64;
        if len == 0 || at > FILE_LEN_MAX {
            break Ok(done);
        }
        // SAFETY: the memory is mutably borrowed until the request ends, in the next line.
        let started = unsafe { request.start_read(file, buf[done..].as_mut_ptr(), len, at) };
        match started.and_then(|()| request.wait(file)) {
            Ok(0) => break Ok(done),
            Ok(count) => done += count,
            Err(error) => break Err(error),
        }
    };
    events.give(request.event);
    result
}

/// Writes `buf` in one request unless it is very long.
pub fn write(file: BorrowedHandle<'_>, events: &Events, buf: &[u8], offset: u64) -> io::Result<()> {
    check_end(offset, buf.len())?;
    if buf.is_empty() {
        return Ok(());
    }
    let mut request = Request::new(events.take()?);
    let mut done = 0;
    let mut result = Ok(());
    while done < buf.len() && result.is_ok() {
        let len = (buf.len() - done).min(REQUEST_BYTES_MAX);
        // SAFETY: the memory is borrowed until the request ends, in the next line.
        let started = unsafe { request.start_write(file, buf[done..].as_ptr(), len, offset + done as u64) };
        result = started.and_then(|()| match request.wait(file)? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            count => {
                done += count;
                Ok(())
            }
        });
    }
    events.give(request.event);
    result
}

pub fn check_end(offset: u64, len: usize) -> io::Result<()> {
    match offset.checked_add(len as u64) {
        Some(end) if end <= FILE_LEN_MAX => Ok(()),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

#[derive(Debug, Default)]
pub struct Batch {
    requests: Vec<Box<Request>>,
    buffer: Vec<u8>,
    pub ranges: Vec<Range<u64>>,
    pieces: Vec<Piece>,
    /// One slot each. Allocated by the first use.
    slots: Option<Aligned>,
}

#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub file: BorrowedHandle<'a>,
    pub offset: u64,
    /// At most [`SLOT_BYTES`].
    pub len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    offset: u64,
    start: usize,
    len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

impl Batch {
    /// Reads [`Batch::ranges`] from one handle and writes them through another. `UnexpectedEof` if
    /// the file is shorter.
    pub fn copy_ranges(&mut self, from: BorrowedHandle<'_>, to: BorrowedHandle<'_>, events: &Events) -> io::Result<()> {
        self.prepare(events)?;
        let mut ranges = std::mem::take(&mut self.ranges);
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut copied = Ok(());
        let mut pieces = ranges.iter().flat_map(|range| pieces_of(range.clone())).peekable();
        while pieces.peek().is_some() && copied.is_ok() {
            self.pieces.clear();
            let mut start = 0;
            for (offset, len) in pieces.by_ref().take(IN_FLIGHT_MAX) {
                self.pieces.push(Piece { offset, start, len });
                start += len;
            }
            if buffer.len() < start {
                buffer.resize(start, 0);
            }
            // SAFETY: the pieces are disjoint, lie in the buffer, which is exclusively borrowed.
            copied = unsafe { self.transfer(from, Direction::Read, buffer.as_mut_ptr()) }
                // SAFETY: as above.
                .and_then(|()| unsafe { self.transfer(to, Direction::Write, buffer.as_mut_ptr()) });
        }
        drop(pieces);
        ranges.clear();
        (self.ranges, self.buffer) = (ranges, buffer);
        copied
    }

    pub fn write(&mut self, to: BorrowedHandle<'_>, events: &Events, bytes: &[u8], offset: u64) -> io::Result<()> {
        check_end(offset, bytes.len())?;
        self.prepare(events)?;
        let mut pieces = pieces_of(offset..offset + bytes.len() as u64).peekable();
        let mut written = Ok(());
        let mut start = 0;
        while pieces.peek().is_some() && written.is_ok() {
            self.pieces.clear();
            for (offset, len) in pieces.by_ref().take(IN_FLIGHT_MAX) {
                self.pieces.push(Piece { offset, start, len });
                start += len;
            }
            // SAFETY: the pieces lie in `bytes`, and writing only reads them.
            written = unsafe { self.transfer(to, Direction::Write, bytes.as_ptr().cast_mut()) };
        }
        written
    }

    /// Executes at most [`IN_FLIGHT_MAX`] reads together. Passes each result to `show`: short at
    /// the end of the file, empty after a failure.
    pub fn read_all(
        &mut self,
        events: &Events,
        wanted: &[Wanted<'_>],
        mut show: impl FnMut(usize, &[u8]),
    ) -> io::Result<()> {
        self.prepare(events)?;
        let slots = self.slots.get_or_insert_with(|| Aligned::new(IN_FLIGHT_MAX * SLOT_BYTES)).bytes_mut();
        let base = slots.as_mut_ptr();
        let mut started = [false; IN_FLIGHT_MAX];
        for (index, (request, want)) in self.requests.iter_mut().zip(wanted).enumerate() {
            let memory = base.wrapping_add(index * SLOT_BYTES);
            // SAFETY: a slot of its own, not accessed before the loop below has waited for the
            // read.
            started[index] =
                unsafe { request.start_read(want.file, memory, want.len.min(SLOT_BYTES), want.offset) }.is_ok();
        }
        let mut counts = [0; IN_FLIGHT_MAX];
        for (index, (request, want)) in self.requests.iter_mut().zip(wanted).enumerate() {
            if started[index] {
                counts[index] = request.wait(want.file).unwrap_or(0);
            }
        }
        for (index, _) in self.requests.iter().zip(wanted).enumerate() {
            show(index, &slots[index * SLOT_BYTES..][..counts[index]]);
        }
        Ok(())
    }

    fn prepare(&mut self, events: &Events) -> io::Result<()> {
        while self.requests.len() < IN_FLIGHT_MAX {
            self.requests.push(Box::new(Request::new(events.take()?)));
        }
        self.pieces.reserve(IN_FLIGHT_MAX);
        Ok(())
    }

    /// Starts a request for each piece and waits for all of them, even after a failure. Returns the
    /// first error.
    ///
    /// # Safety
    /// There must be at most as many pieces as requests, all within the memory at `base`. For reads
    /// they must be disjoint and exclusive until this returns.
    unsafe fn transfer(&mut self, file: BorrowedHandle<'_>, direction: Direction, base: *mut u8) -> io::Result<()> {
        let mut result = Ok(());
        let mut started = 0;
        for (request, piece) in self.requests.iter_mut().zip(&self.pieces) {
            let memory = base.wrapping_add(piece.start);
            // SAFETY: the caller's; the loop below waits for each started request.
            result = match direction {
                // SAFETY: as above.
                Direction::Read => unsafe { request.start_read(file, memory, piece.len, piece.offset) },
                // SAFETY: as above.
                Direction::Write => unsafe { request.start_write(file, memory, piece.len, piece.offset) },
            };
            if result.is_err() {
                break;
            }
            started += 1;
        }
        for (request, piece) in self.requests.iter_mut().zip(&self.pieces).take(started) {
            let ended = request.wait(file).and_then(|count| match direction {
                _ if count == piece.len => Ok(()),
                Direction::Read => Err(io::ErrorKind::UnexpectedEof.into()),
                Direction::Write => Err(io::ErrorKind::WriteZero.into()),
            });
            result = result.and(ended);
        }
        result
    }
}

/// Splits a range at multiples of [`PIECE_BYTES`].
fn pieces_of(range: Range<u64>) -> impl Iterator<Item = (u64, usize)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let end = range.end.min((at / PIECE_BYTES + 1) * PIECE_BYTES);
        let (offset, len) = (at, end.saturating_sub(at));
        at = end;
        (len > 0).then_some((offset, len as usize))
    })
}

/// The system writes to `overlapped` until the request ends.
struct Request {
    overlapped: OVERLAPPED,
    event: Event,
}

// SAFETY: an idle request is plain memory; one in flight is borrowed by the thread that waits for
// it.
unsafe impl Send for Request {}
// SAFETY: as above; `&self` gives no access.
unsafe impl Sync for Request {}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").finish_non_exhaustive()
    }
}

impl Request {
    fn new(event: Event) -> Request {
        Request { overlapped: OVERLAPPED::default(), event }
    }

    fn set_offset(&mut self, offset: u64) {
        let parts = OVERLAPPED_0_0 { Offset: offset as u32, OffsetHigh: (offset >> 32) as u32 };
        self.overlapped = OVERLAPPED {
            Anonymous: OVERLAPPED_0 { Anonymous: parts },
            hEvent: self.event.0.as_raw_handle(),
            ..OVERLAPPED::default()
        };
    }

    /// # Safety
    /// `memory` must have `len` writable bytes. [`Request::wait`] must follow before the memory or
    /// the request is used otherwise; the request must not move meanwhile.
    unsafe fn start_read(&mut self, file: BorrowedHandle<'_>, memory: *mut u8, len: usize, at: u64) -> io::Result<()> {
        self.set_offset(at);
        let len = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the caller's.
        let done = unsafe { ReadFile(handle_of(file), memory, len, null_mut(), &raw mut self.overlapped) };
        self.started(done != 0)
    }

    /// # Safety
    /// As for reading, but the memory is only read.
    unsafe fn start_write(
        &mut self,
        file: BorrowedHandle<'_>,
        memory: *const u8,
        len: usize,
        at: u64,
    ) -> io::Result<()> {
        self.set_offset(at);
        let len = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the caller's.
        let done = unsafe { WriteFile(handle_of(file), memory, len, null_mut(), &raw mut self.overlapped) };
        self.started(done != 0)
    }

    /// At the end of the file, a request ends at once without bytes.
    fn started(&mut self, is_done: bool) -> io::Result<()> {
        if is_done {
            return Ok(());
        }
        // SAFETY: reads this thread's last error.
        match unsafe { GetLastError() } {
            ERROR_IO_PENDING => Ok(()),
            ERROR_HANDLE_EOF => {
                (self.overlapped.Internal, self.overlapped.InternalHigh) = (0, 0);
                Ok(())
            }
            error => Err(error_of(error)),
        }
    }

    fn wait(&mut self, file: BorrowedHandle<'_>) -> io::Result<usize> {
        let mut count = 0;
        // SAFETY: both pointers are valid for the call.
        let ended = unsafe { GetOverlappedResult(handle_of(file), &raw const self.overlapped, &raw mut count, 1) };
        if ended != 0 {
            return Ok(count as usize);
        }
        // SAFETY: reads this thread's last error.
        let error = unsafe { GetLastError() };
        // SAFETY: a volatile read, since the system may be writing here.
        let status = unsafe { (&raw const self.overlapped.Internal).read_volatile() };
        if status == STATUS_PENDING as usize {
            // The wait failed while the system may still write to memory that will be reused.
            std::process::abort();
        }
        if error == ERROR_HANDLE_EOF { Ok(0) } else { Err(error_of(error)) }
    }
}

fn handle_of(file: BorrowedHandle<'_>) -> HANDLE {
    file.as_raw_handle()
}

pub fn error_of(code: u32) -> io::Error {
    io::Error::from_raw_os_error(code.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::{PIECE_BYTES, pieces_of};

    #[test]
    fn pieces_of_range_split_at_multiples() {
        let cut = |range| pieces_of(range).collect::<Vec<_>>();
        assert_eq!(cut(5..5), []);
        assert_eq!(cut(5..9), [(5, 4)]);
        assert_eq!(cut(0..PIECE_BYTES), [(0, PIECE_BYTES as usize)]);
        let second = (PIECE_BYTES, PIECE_BYTES as usize);
        assert_eq!(cut(PIECE_BYTES - 1..2 * PIECE_BYTES + 1), [(PIECE_BYTES - 1, 1), second, (2 * PIECE_BYTES, 1)]);
    }
}
