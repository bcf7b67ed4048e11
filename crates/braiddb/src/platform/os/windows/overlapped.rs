//! One overlapped operation of a pipe at a time, which may outlast the call that began it.
//!
//! INVARIANT: while an operation is pending, its structure and its buffer stay where they are, and
//! nobody else uses them. The drop cancels it and waits for its end.
//!
//! The system cancels an operation when the thread that began it ends.

use super::file::check;
use std::{
    cell::UnsafeCell,
    io,
    os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle},
    ptr::{null, null_mut},
    sync::Arc,
    time::Duration,
};
use windows_sys::Win32::{
    Foundation::{ERROR_IO_PENDING, HANDLE, WAIT_OBJECT_0, WAIT_TIMEOUT},
    Storage::FileSystem::{ReadFile, WriteFile},
    System::{
        IO::{CancelIoEx, GetOverlappedResult, OVERLAPPED},
        Pipes::ConnectNamedPipe,
        Threading::{CreateEventW, SetEvent, WaitForMultipleObjects},
    },
};

/// An event that stays set.
#[derive(Debug)]
pub struct Event(OwnedHandle);

impl Event {
    pub fn new() -> io::Result<Event> {
        // SAFETY: creates an unnamed manual-reset event without attributes, not signaled.
        let handle = unsafe { CreateEventW(null(), 1, 0, null()) };
        if handle.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just created, so not owned elsewhere.
        Ok(Event(unsafe { OwnedHandle::from_raw_handle(handle) }))
    }

    pub fn set(&self) {
        // SAFETY: the event is open.
        unsafe { SetEvent(self.0.as_raw_handle()) };
    }
}

/// Milliseconds of a wait, rounded up.
pub fn milliseconds(wait: Duration) -> u32 {
    u32::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX - 1).min(u32::MAX - 1)
}

pub struct Operation {
    pipe: Arc<OwnedHandle>,
    overlapped: Box<UnsafeCell<OVERLAPPED>>,
    buffer: Vec<u8>,
    /// Bytes of the buffer that the last operation moved.
    moved: usize,
    is_over: Event,
    is_pending: bool,
}

// SAFETY: the pointers in the structure are the system's business; any thread may wait for it.
unsafe impl Send for Operation {}

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operation").field("is_pending", &self.is_pending).finish_non_exhaustive()
    }
}

impl Operation {
    pub fn new(pipe: &Arc<OwnedHandle>) -> io::Result<Operation> {
        let (overlapped, is_over) = (Box::new(UnsafeCell::new(OVERLAPPED::default())), Event::new()?);
        Ok(Operation { pipe: Arc::clone(pipe), overlapped, buffer: Vec::new(), moved: 0, is_over, is_pending: false })
    }

    pub fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// The bytes of the last read.
    pub fn bytes(&self) -> &[u8] {
        assert!(!self.is_pending);
        &self.buffer[..self.moved]
    }

    pub fn connect(&mut self) -> io::Result<()> {
        // SAFETY: as `begin` requires.
        self.begin(|pipe, _, overlapped| unsafe { ConnectNamedPipe(pipe, overlapped) })
    }

    /// Reads up to `len` bytes. A read of none ends once there are bytes.
    pub fn read(&mut self, len: usize) -> io::Result<()> {
        assert!(!self.is_pending);
        self.buffer.clear();
        self.buffer.resize(len, 0);
        // SAFETY: as `begin` requires.
        self.begin(|pipe, buffer, overlapped| unsafe {
            ReadFile(pipe, buffer.as_mut_ptr(), buffer.len() as u32, null_mut(), overlapped)
        })
    }

    /// Writes a copy of the bytes.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        assert!(!self.is_pending);
        self.buffer.clear();
        self.buffer.extend_from_slice(bytes);
        // SAFETY: as `begin` requires.
        self.begin(|pipe, buffer, overlapped| unsafe {
            WriteFile(pipe, buffer.as_ptr(), buffer.len() as u32, null_mut(), overlapped)
        })
    }

    /// The bytes of the last write.
    pub fn bytes_given(&self) -> &[u8] {
        &self.buffer
    }

    /// `start` uses only these arguments.
    fn begin(&mut self, start: impl FnOnce(HANDLE, &mut Vec<u8>, *mut OVERLAPPED) -> i32) -> io::Result<()> {
        assert!(!self.is_pending);
        self.moved = 0;
        let overlapped = self.overlapped.get();
        // SAFETY: nothing is pending, so the structure is unused.
        unsafe { *overlapped = OVERLAPPED { hEvent: self.is_over.0.as_raw_handle(), ..OVERLAPPED::default() } };
        match check(start(self.pipe.as_raw_handle(), &mut self.buffer, overlapped)) {
            Err(e) if e.raw_os_error() != Some(ERROR_IO_PENDING as i32) => Err(e),
            _ => {
                self.is_pending = true;
                Ok(())
            }
        }
    }

    /// Waits until the pending operation completes, and returns the bytes moved. Returns `None`
    /// after `wait`, or once `stop` is set.
    pub fn end_within(&mut self, wait: Duration, stop: Option<&Event>) -> io::Result<Option<usize>> {
        let is_over = self.is_over.0.as_raw_handle();
        let events = [is_over, stop.map_or(is_over, |stop| stop.0.as_raw_handle())];
        let count = if stop.is_some() { 2 } else { 1 };
        // SAFETY: the events are open, and there are `count`.
        match unsafe { WaitForMultipleObjects(count, events.as_ptr(), 0, milliseconds(wait)) } {
            WAIT_OBJECT_0 => self.result(false).map(Some),
            WAIT_TIMEOUT => Ok(None),
            other if other == WAIT_OBJECT_0 + 1 => Ok(None),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Cancels the pending operation. Returns the bytes moved if it completed first.
    pub fn cancel(&mut self) -> io::Result<usize> {
        if !self.is_pending {
            return Ok(0);
        }
        // SAFETY: the pipe is open. An error means that it has ended.
        unsafe { CancelIoEx(self.pipe.as_raw_handle(), self.overlapped.get()) };
        self.result(true)
    }

    fn result(&mut self, waits: bool) -> io::Result<usize> {
        let mut moved = 0;
        let (pipe, overlapped) = (self.pipe.as_raw_handle(), self.overlapped.get());
        // SAFETY: the operation was begun with these.
        let ended = check(unsafe { GetOverlappedResult(pipe, overlapped, &raw mut moved, i32::from(waits)) });
        self.is_pending = false;
        self.moved = moved as usize;
        ended.map(|()| self.moved)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let _ = self.cancel();
    }
}
