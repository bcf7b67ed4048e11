//! Many reads at once by io_uring, on Linux.
//!
//! Whether the kernel has it for us is found out by doing: a ring is made, and something is read by it. Containers, seccomp
//! filters, `kernel.io_uring_disabled`, WSL and old kernels refuse one or the other with an error; then, and should it be refused later
//! on, it is not asked for again as long as the process lives, and others make the reads.
//!
//! A batch has a ring of its own while it is read; rings are kept for the next ones. The kernel writes to memory that belongs to the
//! ring, aligned for any device, and what was read is copied from there: so if the kernel stops to answer while reads are under way, ring and
//! memory are given up together, and no memory of others is ever written to late.
//!
//! A read that fails, or comes back short, is left to be made again in the usual way, which tells what is wrong.

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

/// How many reads are under way at once, and how long each may be: as long as blocks are.
const SLOTS: usize = 32;
const SLOT_BYTES: usize = 32 << 10;

/// How many rings are kept. Each takes a descriptor and the memory of the slots that were used.
const RINGS_KEPT: usize = 4;

/// How often the kernel may say that it cannot take more just now.
const TRIES_MAX: usize = 1000;

/// What is known of io_uring, for the whole process.
static STATE: Mutex<State> = Mutex::new(State { idle: Vec::new(), is_tried: false, refused: None });

struct State {
    idle: Vec<Ring>,
    is_tried: bool,
    /// Why it is not to be used.
    refused: Option<String>,
}

/// It is not to be had, at least now.
#[derive(Debug)]
pub(super) struct NotNow;

/// Why it is not to be used; `None` if it is. Tries it out if that was not done yet.
pub(super) fn refused() -> Option<String> {
    match take() {
        Ok(ring) => {
            keep(ring);
            None
        }
        Err(because) => Some(because),
    }
}

/// Makes those of the reads that are not made yet, can be made by the system and are not too long; leaves those that fail.
pub(super) fn read(requests: &mut [ReadRequest]) -> Result<(), NotNow> {
    let mut wanted: Vec<usize> = (0..requests.len()).filter(|&index| padded(&requests[index]).is_some()).collect();
    if wanted.len() < 2 {
        // One read gains nothing by it.
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

/// The bytes that are to be read for a request, of whole units; `None` if this is not the way to read them.
fn padded(request: &ReadRequest) -> Option<Range<u64>> {
    let align = u64::from(request.file.system_file()?.align);
    let end = request.offset.checked_add(request.bytes.len() as u64)?.checked_next_multiple_of(align)?;
    let start = request.offset - request.offset % align;
    let fits = request.result.is_none() && !request.bytes.is_empty() && end - start <= SLOT_BYTES as u64;
    (fits && i64::try_from(end).is_ok()).then_some(start..end)
}

/// A ring, or why there is none.
fn take() -> Result<Ring, String> {
    let mut state = STATE.lock();
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
            // What there is too little of just now may be there next time.
            if !is_short(&error) {
                tracing::info!(because, "io_uring is not to be had: threads read instead");
                state.refused = Some(because.clone());
            }
            Err(because)
        }
    }
}

fn keep(ring: Ring) {
    let mut state = STATE.lock();
    if state.idle.len() < RINGS_KEPT && state.refused.is_none() {
        state.idle.push(ring);
    }
}

/// The kernel does not answer as it did: nobody uses io_uring from now on.
fn give_up(ring: Ring, error: &io::Error) {
    // Reads may be under way to its memory.
    mem::forget(ring);
    let mut state = STATE.lock();
    if state.refused.is_none() {
        tracing::warn!(%error, "io_uring is refused of late: threads read instead");
        state.refused = Some(format!("io_uring_enter: {error}"));
    }
    // Nothing is under way in those.
    state.idle.clear();
}

/// Reads something that is there by a new ring.
fn try_out(mut ring: Ring) -> io::Result<Ring> {
    const WORD: &[u8] = b"braid";
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(WORD)?;
    // A pipe has no offsets: this says so.
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

/// A ring and the memory that it reads to. Between calls nothing is under way.
struct Ring {
    ring: IoUring,
    memory: Aligned,
}

impl Ring {
    fn new() -> io::Result<Ring> {
        Ok(Ring { ring: IoUring::new(SLOTS as u32)?, memory: Aligned::new(SLOTS * SLOT_BYTES) })
    }

    /// Makes the reads of these indexes, each of which [`padded`] has something for; at most [`SLOTS`]. After an error reads may be under way.
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

    /// Queues a read to a slot in which none is under way. The descriptor stays open until [`Ring::finish`] returns: then the kernel has it.
    fn begin(&mut self, slot: usize, descriptor: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<()> {
        let target = self.memory.bytes_mut()[slot * SLOT_BYTES..][..len.min(SLOT_BYTES)].as_mut_ptr();
        let file = types::Fd(descriptor.as_raw_fd());
        let read = opcode::Read::new(file, target, len as u32).offset(offset).build().user_data(slot as u64);
        // SAFETY: the target is memory of this ring, where nothing looks before the read has ended; who gives up the ring
        // before gives up the memory too. The descriptor is open now, and until the kernel has taken it.
        unsafe { self.ring.submission().push(&read) }.map_err(|_| io::Error::other("the ring is full"))
    }

    /// Hands all that is queued to the kernel, and waits for so many reads; shows which they were and what became of each.
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

/// Whether the kernel cannot take more just now.
fn is_busy(error: &io::Error) -> bool {
    let busy = [Errno::AGAIN, Errno::BUSY];
    busy.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
#[path = "tests/uring.rs"]
mod tests;
