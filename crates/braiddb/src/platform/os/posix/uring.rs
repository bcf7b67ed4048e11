//! Batched reads by io_uring, on Linux.
//!
//! A trial read finds out whether the kernel permits it. Containers, seccomp filters,
//! `kernel.io_uring_disabled`, WSL and old kernels refuse. After a refusal, the process does not
//! try again.
//!
//! Each batch uses its own ring from a pool. The kernel writes only to aligned memory of the ring,
//! and the results are copied. If the kernel stops answering during reads, ring and memory are
//! leaked together, so late writes never hit other memory.
//!
//! A forked child does not use its parent's rings: both would take each other's results.
//!
//! A failed or short read is left to the caller, who repeats it the usual way and finds its error.

use super::per_process::PerProcess;
use crate::platform::{batch::ReadRequest, os::aligned::Aligned};
use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::{
    io::{self, Write},
    mem,
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

/// Concurrent reads, and bytes of each: the length of a block.
const SLOTS: usize = 32;
const SLOT_BYTES: usize = 32 << 10;

/// Each ring takes a descriptor and the memory of its used slots.
const RINGS_KEPT: usize = 4;

/// Maximum retries while the kernel is busy.
const TRIES_MAX: usize = 1000;

static STATE: PerProcess<Mutex<State>> = PerProcess::new();

fn state() -> &'static Mutex<State> {
    STATE.get(Mutex::default)
}

#[derive(Default)]
struct State {
    idle: Vec<Ring>,
    is_tried: bool,
    refused: Option<String>,
}

/// io_uring is unavailable, at least now.
#[derive(Debug)]
pub(super) struct NotNow;

/// `None` if io_uring works. Tries it out the first time.
pub(super) fn refused() -> Option<String> {
    match take() {
        Ok(ring) => {
            keep(ring);
            None
        }
        Err(because) => Some(because),
    }
}

/// Leaves out reads that failed, are too long or have no system file.
pub(super) fn read(requests: &mut [ReadRequest]) -> Result<(), NotNow> {
    let mut wanted: Vec<usize> = (0..requests.len()).filter(|&index| padded(&requests[index]).is_some()).collect();
    if wanted.len() < 2 {
        return Ok(());
    }
    let mut ring = take().map_err(|_| NotNow)?;
    while !wanted.is_empty() {
        let group: Vec<usize> = wanted.drain(..wanted.len().min(SLOTS)).collect();
        if let Err(error) = ring.read_group(requests, &group) {
            give_up(ring, &error);
            return Err(NotNow);
        }
    }
    keep(ring);
    Ok(())
}

/// `None` if io_uring cannot read the request.
fn padded(request: &ReadRequest) -> Option<Range<u64>> {
    let align = u64::from(request.file.system_file()?.align);
    let end = request.offset.checked_add(request.bytes.len() as u64)?.checked_next_multiple_of(align)?;
    let start = request.offset - request.offset % align;
    let fits = request.result.is_none() && !request.bytes.is_empty() && end - start <= SLOT_BYTES as u64;
    (fits && i64::try_from(end).is_ok()).then_some(start..end)
}

fn take() -> Result<Ring, String> {
    let mut state = state().lock();
    if let Some(because) = &state.refused {
        return Err(because.clone());
    }
    if let Some(ring) = state.idle.pop() {
        return Ok(ring);
    }
    let made = Ring::new().map_err(|error| (error, "io_uring_setup"));
    let made = match made {
        Ok(ring) if !state.is_tried => try_out(ring).map_err(|error| (error, "a read by io_uring")),
        made => made,
    };
    let is_short = |error: &io::Error| {
        let of_now = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN];
        of_now.iter().any(|short| error.raw_os_error() == Some(short.raw_os_error()))
    };
    match made {
        Ok(ring) => {
            state.is_tried = true;
            Ok(ring)
        }
        Err((error, what)) => {
            let because = format!("{what}: {error}");
            // A shortage may end before the next call.
            if !is_short(&error) {
                tracing::info!(because, "io_uring is not to be had: threads read instead");
                state.refused = Some(because.clone());
            }
            Err(because)
        }
    }
}

fn keep(ring: Ring) {
    let mut state = state().lock();
    if state.idle.len() < RINGS_KEPT && state.refused.is_none() {
        state.idle.push(ring);
    }
}

/// Stops using io_uring in this process.
fn give_up(ring: Ring, error: &io::Error) {
    // Reads into its memory may still be running.
    mem::forget(ring);
    let mut state = state().lock();
    if state.refused.is_none() {
        tracing::warn!(%error, "io_uring is refused of late: threads read instead");
        state.refused = Some(format!("io_uring_enter: {error}"));
    }
    state.idle.clear();
}

fn try_out(mut ring: Ring) -> io::Result<Ring> {
    const WORD: &[u8] = b"braid";
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(WORD)?;
    // A pipe has no offsets; the maximum means "none".
    ring.begin(0, reader.as_fd(), u64::MAX, WORD.len())?;
    let mut count = Err(io::ErrorKind::UnexpectedEof.into());
    match ring.finish(1, |_, result| count = result) {
        Ok(()) => {}
        Err(error) => {
            mem::forget(ring);
            return Err(error);
        }
    }
    if count? == WORD.len() && &ring.memory.bytes()[..WORD.len()] == WORD {
        return Ok(ring);
    }
    Err(io::Error::other("something else was read than was there"))
}

/// INVARIANT: between calls no read is running.
struct Ring {
    ring: IoUring,
    memory: Aligned,
}

impl Ring {
    fn new() -> io::Result<Ring> {
        Ok(Ring { ring: IoUring::new(SLOTS as u32)?, memory: Aligned::new(SLOTS * SLOT_BYTES) })
    }

    /// Executes at most [`SLOTS`] reads, each accepted by [`padded`]. After an error, reads may
    /// still be running.
    fn read_group(&mut self, requests: &mut [ReadRequest], group: &[usize]) -> io::Result<()> {
        let mut begun = 0;
        for (slot, &index) in group.iter().enumerate() {
            if let (Some(file), Some(range)) = (requests[index].file.system_file(), padded(&requests[index])) {
                self.begin(slot, file.descriptor, range.start, (range.end - range.start) as usize)?;
                begun += 1;
            }
        }
        let mut counts = [0; SLOTS];
        self.finish(begun, |slot, result| counts[slot] = result.unwrap_or(0))?;
        for (slot, &index) in group.iter().enumerate() {
            let request = &mut requests[index];
            let Some(range) = padded(request) else { continue };
            let skipped = (request.offset - range.start) as usize;
            let end = skipped + request.bytes.len();
            if counts[slot] >= end {
                let start = slot * SLOT_BYTES;
                request.bytes.copy_from_slice(&self.memory.bytes()[start + skipped..start + end]);
                request.result = Some(Ok(()));
            }
        }
        Ok(())
    }

    /// `slot` is idle. The descriptor must stay open until [`Ring::finish`] returns.
    fn begin(&mut self, slot: usize, descriptor: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<()> {
        let target = self.memory.bytes_mut()[slot * SLOT_BYTES..][..len.min(SLOT_BYTES)].as_mut_ptr();
        let file = types::Fd(descriptor.as_raw_fd());
        let read = opcode::Read::new(file, target, len as u32).offset(offset).build().user_data(slot as u64);
        // SAFETY: the target is the ring's memory, not accessed before the read ends; a ring that
        // is given up leaks it. The descriptor is open until the kernel has taken the request.
        unsafe { self.ring.submission().push(&read) }.map_err(|_| io::Error::other("the ring is full"))
    }

    /// Submits the queued reads and waits for `left` of them.
    fn finish(&mut self, mut left: usize, mut ended: impl FnMut(usize, io::Result<usize>)) -> io::Result<()> {
        let mut tries = 0;
        while left > 0 {
            match self.ring.submit_and_wait(left) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if is_busy(&e) && tries < TRIES_MAX => {
                    tries += 1;
                    std::thread::yield_now();
                }
                Err(e) => return Err(e),
            }
            for entry in self.ring.completion() {
                let result = entry.result();
                let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.saturating_neg()));
                let slot = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
                if slot < SLOTS {
                    ended(slot, result);
                    left = left.saturating_sub(1);
                }
            }
        }
        Ok(())
    }
}

fn is_busy(error: &io::Error) -> bool {
    let busy = [Errno::AGAIN, Errno::BUSY];
    busy.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
#[path = "tests/uring.rs"]
mod tests;
