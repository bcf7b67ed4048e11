//! Requests to Windows that are in flight, and the events that tell of their ends.
//!
//! Files are opened for overlapped I/O, so that many threads read one handle at once: Windows serialises all I/O on a handle
//! that was opened without. Each request then needs an event of its own. Events are made once and kept in a pool that a file
//! system and its files share: no I/O makes one, or allocates. The pool is no thread's: nothing of it is left behind in threads
//! that live on when the library is unloaded.
//!
//! **Invariant.** No function here returns, or unwinds, while the system may still write to memory that a request named. Where
//! it cannot be found out whether a request has ended, the process is aborted.

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

/// How many events are kept: one for each thread that may be reading or writing at the same moment. More are made and closed.
const EVENTS_KEPT: usize = 64;

/// The most bytes of one request; lengths have 32 bits.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// How many requests of a batch are in flight at once.
pub const IN_FLIGHT_MAX: usize = 16;

/// The most bytes of a read that is made with others: as long as blocks are.
pub const SLOT_BYTES: usize = 32 << 10;

/// The bytes of a request in a batch. Requests begin at multiples of this, so that no two touch one page.
pub const PIECE_BYTES: u64 = 64 << 10;

/// The longest file: offsets are signed, and the system gives the largest unsigned ones meanings of their own.
pub const FILE_LEN_MAX: u64 = i64::MAX as u64;

/// Events that no request uses just now.
#[derive(Debug)]
pub struct Events([AtomicPtr<core::ffi::c_void>; EVENTS_KEPT]);

/// An event that is reset by hand.
#[derive(Debug)]
struct Event(OwnedHandle);

impl Events {
    /// An empty pool.
    pub fn new() -> Events {
        Events([const { AtomicPtr::new(null_mut()) }; EVENTS_KEPT])
    }

    fn take(&self) -> io::Result<Event> {
        for slot in &self.0 {
            if !slot.load(Ordering::Relaxed).is_null() {
                let handle = slot.swap(null_mut(), Ordering::Acquire);
                if !handle.is_null() {
                    // SAFETY: the pool owned this handle, and the swap has taken it out.
                    return Ok(Event(unsafe { OwnedHandle::from_raw_handle(handle) }));
                }
            }
        }
        // SAFETY: no attributes and no name; a new event, to be reset by hand, not set.
        let handle = unsafe { CreateEventW(null(), 1, 0, null()) };
        if handle.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and owned by nobody else.
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
                // SAFETY: the pool owns what it holds.
                drop(unsafe { OwnedHandle::from_raw_handle(handle) });
            }
        }
    }
}

/// Reads up to `buf.len()` bytes; fewer only at the file's end.
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
        // SAFETY: the memory is borrowed mutably until the request has ended, in the next line.
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

/// Writes all of `buf`, in one request if it is not very long.
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
        // SAFETY: the memory is borrowed until the request has ended, in the next line.
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

/// `FileTooLarge` if `len` bytes at `offset` reach past the longest file.
pub fn check_end(offset: u64, len: usize) -> io::Result<()> {
    match offset.checked_add(len as u64) {
        Some(end) if end <= FILE_LEN_MAX => Ok(()),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// Requests of one commit, or of one lookup of many keys, in flight together; and the memory that they need, used again for the next.
#[derive(Debug, Default)]
pub struct Batch {
    requests: Vec<Box<Request>>,
    buffer: Vec<u8>,
    /// The ranges to be written.
    pub ranges: Vec<Range<u64>>,
    pieces: Vec<Piece>,
    /// Where reads of several files go: a slot for each, aligned for any device. Made by the first.
    slots: Option<Aligned>,
}

/// A read of a file, of whole units, to a slot.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub file: BorrowedHandle<'a>,
    pub offset: u64,
    /// At most [`SLOT_BYTES`].
    pub len: usize,
}

/// A part of a range that one request transfers.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Where in the file.
    offset: u64,
    /// Where in the buffer.
    start: usize,
    len: usize,
}

/// Which way a batch transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

impl Batch {
    /// Reads the bytes of [`Batch::ranges`] from one handle, and writes them through another. They must be there:
    /// `UnexpectedEof`.
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
            // SAFETY: the pieces lie within the buffer, apart from each other, and nobody else has it.
            copied = unsafe { self.transfer(from, Direction::Read, buffer.as_mut_ptr()) }
                // SAFETY: as above.
                .and_then(|()| unsafe { self.transfer(to, Direction::Write, buffer.as_mut_ptr()) });
        }
        drop(pieces);
        ranges.clear();
        (self.ranges, self.buffer) = (ranges, buffer);
        copied
    }

    /// Writes bytes, in several requests if they are many.
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
            // SAFETY: the pieces lie within the bytes, which requests that write only read.
            written = unsafe { self.transfer(to, Direction::Write, bytes.as_ptr().cast_mut()) };
        }
        written
    }

    /// Makes reads of several files, at most [`IN_FLIGHT_MAX`], all in flight at once. Then it shows for each what was read, which is less
    /// than was wanted at a file's end, and nothing if it failed.
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
            // SAFETY: a slot of its own, within memory that nobody else looks at before the loop below has waited for it.
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

    /// Makes the requests, the first time.
    fn prepare(&mut self, events: &Events) -> io::Result<()> {
        while self.requests.len() < IN_FLIGHT_MAX {
            self.requests.push(Box::new(Request::new(events.take()?)));
        }
        self.pieces.reserve(IN_FLIGHT_MAX);
        Ok(())
    }

    /// Starts a request for each piece, and waits for all of them, also when one has failed: the first error is told.
    ///
    /// # Safety
    /// There are no more pieces than requests, and each lies in the memory at `base`; when reading, apart from the others, and nobody else uses
    /// it meanwhile.
    unsafe fn transfer(&mut self, file: BorrowedHandle<'_>, direction: Direction, base: *mut u8) -> io::Result<()> {
        let mut result = Ok(());
        let mut started = 0;
        for (request, piece) in self.requests.iter_mut().zip(&self.pieces) {
            let memory = base.wrapping_add(piece.start);
            // SAFETY: the caller's; the loop below waits for what is started here.
            result = match direction {
                // SAFETY: as said.
                Direction::Read => unsafe { request.start_read(file, memory, piece.len, piece.offset) },
                // SAFETY: as said.
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

/// Cuts a range where offsets are multiples of [`PIECE_BYTES`].
fn pieces_of(range: Range<u64>) -> impl Iterator<Item = (u64, usize)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let end = range.end.min((at / PIECE_BYTES + 1) * PIECE_BYTES);
        let (offset, len) = (at, end.saturating_sub(at));
        at = end;
        (len > 0).then_some((offset, len as usize))
    })
}

/// A request: the system writes to `overlapped` until it has ended.
struct Request {
    overlapped: OVERLAPPED,
    event: Event,
}

// SAFETY: a request that is not in flight is plain memory; in flight, it is borrowed by who waits for it.
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
    /// `memory` has `len` bytes that may be written to; [`Request::wait`] follows before anything else is done with it or
    /// the request, which is not moved meanwhile.
    unsafe fn start_read(&mut self, file: BorrowedHandle<'_>, memory: *mut u8, len: usize, at: u64) -> io::Result<()> {
        self.set_offset(at);
        let len = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the caller's.
        let done = unsafe { ReadFile(handle_of(file), memory, len, null_mut(), &raw mut self.overlapped) };
        self.started(done != 0)
    }

    /// # Safety
    /// As for reading; the memory is only read.
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

    /// What a start has come to. At the file's end a request ends at once, with nothing transferred.
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

    /// Waits until the request has ended; how many bytes it has transferred.
    fn wait(&mut self, file: BorrowedHandle<'_>) -> io::Result<usize> {
        let mut count = 0;
        // SAFETY: both pointers are valid for the call.
        let ended = unsafe { GetOverlappedResult(handle_of(file), &raw const self.overlapped, &raw mut count, 1) };
        if ended != 0 {
            return Ok(count as usize);
        }
        // SAFETY: reads this thread's last error.
        let error = unsafe { GetLastError() };
        // SAFETY: the system may be writing here, so that it is read as it is in memory.
        let status = unsafe { (&raw const self.overlapped.Internal).read_volatile() };
        if status == STATUS_PENDING as usize {
            // It could not be waited for, and memory that will be used otherwise may still be written to.
            std::process::abort();
        }
        if error == ERROR_HANDLE_EOF { Ok(0) } else { Err(error_of(error)) }
    }
}

fn handle_of(file: BorrowedHandle<'_>) -> HANDLE {
    file.as_raw_handle()
}

/// The error as the standard library has it.
pub fn error_of(code: u32) -> io::Error {
    io::Error::from_raw_os_error(code.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::{PIECE_BYTES, pieces_of};

    #[test]
    fn ranges_are_cut_at_multiples() {
        let cut = |range| pieces_of(range).collect::<Vec<_>>();
        assert_eq!(cut(5..5), []);
        assert_eq!(cut(5..9), [(5, 4)]);
        assert_eq!(cut(0..PIECE_BYTES), [(0, PIECE_BYTES as usize)]);
        let second = (PIECE_BYTES, PIECE_BYTES as usize);
        assert_eq!(cut(PIECE_BYTES - 1..2 * PIECE_BYTES + 1), [(PIECE_BYTES - 1, 1), second, (2 * PIECE_BYTES, 1)]);
    }
}
