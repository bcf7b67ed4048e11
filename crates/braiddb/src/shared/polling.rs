//! Polls a connection for some microseconds before it blocks.
//!
//! A round trip between two processes has two wake-ups, which take longer than a buffered commit. A
//! reader that polls needs none. It only pays if the peer replies at once, so a reader that polled in
//! vain a few times blocks at once, and polls again now and then.

use crate::platform::{LocalStream, Runtime};
use std::{
    hint,
    io::{self, Read},
    time::Duration,
};

/// Maximum time of polling.
const POLL_NS: u64 = 40_000;

/// Spins between two polls: each poll is a system call.
const SPINS: u32 = 8;

/// Times that a reader may poll in vain, in a row.
const MISSES_MAX: u32 = 3;

/// Reads without polling after that.
const READS_SKIPPED: u32 = 64;

/// Whether the next read polls.
#[derive(Debug)]
pub struct Polling {
    has_processors: bool,
    misses: u32,
    skipped: u32,
}

impl Polling {
    pub fn new(runtime: &dyn Runtime) -> Polling {
        Polling { has_processors: runtime.shared_processors() != Some(1), misses: 0, skipped: 0 }
    }

    fn begin(&mut self) -> bool {
        if self.misses >= MISSES_MAX {
            self.skipped += 1;
            if self.skipped <= READS_SKIPPED {
                return false;
            }
            self.skipped = 0;
        }
        self.has_processors
    }

    fn end(&mut self, has_arrived: bool) {
        self.misses = if has_arrived { 0 } else { self.misses.saturating_add(1) };
    }
}

/// Reads a connection. A read returns `WouldBlock` after `pause`.
#[derive(Debug)]
pub struct PollingReader<'a> {
    pub stream: &'a LocalStream,
    pub runtime: &'a dyn Runtime,
    /// `None` for bytes that are not expected soon. Only the first read may poll.
    pub polling: Option<&'a mut Polling>,
    pub pause: Duration,
}

impl Read for PollingReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(read) = arrived(self.stream, buffer) {
            return read;
        }
        if let Some(polling) = self.polling.take()
            && polling.begin()
        {
            let began_ns = self.runtime.monotonic_ns();
            loop {
                (0..SPINS).for_each(|_| hint::spin_loop());
                let read = arrived(self.stream, buffer);
                let is_late = self.runtime.monotonic_ns().saturating_sub(began_ns) >= POLL_NS;
                if read.is_some() || is_late {
                    polling.end(read.is_some());
                    if let Some(read) = read {
                        return read;
                    }
                    break;
                }
            }
        }
        if self.stream.wait_readable(self.pause)? {
            return self.stream.try_read(buffer);
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Returns `None` if nothing has arrived.
fn arrived(stream: &LocalStream, buffer: &mut [u8]) -> Option<io::Result<usize>> {
    match stream.try_read(buffer) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
        read => Some(read),
    }
}
