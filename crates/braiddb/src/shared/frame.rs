//! Frames: the units of a connection between two processes.
//!
//! | field | |
//! |---|---|
//! | length of the payload | u32, little-endian, at most [`PAYLOAD_BYTES_MAX`] |
//! | checksum of the payload | u64, little-endian |
//! | payload | |
//!
//! A frame that breaks these rules ends its connection. Memory grows with the bytes that arrive,
//! not with the announced length.

use crate::codec::checksum;
use std::io::{self, Read, Write};

/// Maximum bytes of a payload; a commit above it is refused.
pub const PAYLOAD_BYTES_MAX: usize = 256 << 20;

const HEAD_BYTES: usize = 12;

/// Growth of the buffer, in bytes.
const STEP_BYTES: usize = 1 << 20;

/// Buffers above this many bytes are released after their frame.
const KEPT_BYTES: usize = 64 << 10;

/// Distinguishes the checksums of frames from those of files.
const SEED: u64 = 0x6272_6169_6466_726d;

#[derive(Debug)]
pub enum FrameError {
    /// The peer ended the connection.
    Ended,
    /// The caller ran out of time.
    Late,
    Malformed,
    /// The system reported another error.
    Broken,
}

/// Fills in the head of a frame from [`begin`]. `None` if the payload is too long.
pub fn finish(mut frame: Vec<u8>) -> Option<Vec<u8>> {
    let (head, payload) = frame.split_at_mut_checked(HEAD_BYTES)?;
    let len = u32::try_from(payload.len()).ok().filter(|len| *len as usize <= PAYLOAD_BYTES_MAX)?;
    head[..4].copy_from_slice(&len.to_le_bytes());
    head[4..].copy_from_slice(&checksum(SEED, 0, payload).to_le_bytes());
    Some(frame)
}

/// Returns an unfinished frame, to which the payload is appended.
pub fn begin() -> Vec<u8> {
    vec![0; HEAD_BYTES]
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Writes a frame. After an error the peer does not have all of it, unless a withdrawal of the stream fails.
pub fn write(stream: &mut impl Write, frame: &[u8], is_late: &mut dyn FnMut() -> bool) -> Result<(), FrameError> {
    let mut written = 0;
    while written < frame.len() {
        match stream.write(&frame[written..]) {
            Ok(0) => return Err(FrameError::Ended),
            Ok(len) => written += len,
            Err(e) if is_pause(&e) && !is_late() => {}
            Err(e) if is_pause(&e) => return Err(FrameError::Late),
            Err(_) => return Err(FrameError::Broken),
        }
    }
    Ok(())
}

/// Reads frames from one stream.
#[derive(Debug)]
pub struct FrameReader {
    buffer: Vec<u8>,
    filled: usize,
    /// Bytes of the frame returned last.
    taken: usize,
    /// Maximum pauses of the stream in a row within a frame.
    pauses_max: u32,
}

impl Default for FrameReader {
    fn default() -> FrameReader {
        FrameReader::with_pauses(u32::MAX)
    }
}

impl FrameReader {
    /// Makes a reader that gives up a frame in which the stream pauses this often in a row. Else a
    /// peer could leave half a frame in memory.
    pub fn with_pauses(pauses_max: u32) -> FrameReader {
        FrameReader { buffer: Vec::new(), filled: 0, taken: 0, pauses_max }
    }

    /// Returns the payload of the next frame. `is_late` is asked whenever nothing has arrived for
    /// a while.
    pub fn read(&mut self, stream: &mut impl Read, is_late: &mut dyn FnMut() -> bool) -> Result<&[u8], FrameError> {
        self.release_last();
        let mut pauses = 0;
        loop {
            let needed = self.needed()?;
            if self.filled >= needed && needed > HEAD_BYTES {
                break;
            }
            let room = needed.min(self.filled + STEP_BYTES).max(KEPT_BYTES.min(needed.max(4096)));
            if self.buffer.len() < room {
                self.buffer.resize(room, 0);
            }
            match stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Err(FrameError::Ended),
                Ok(len) => {
                    self.filled += len;
                    pauses = 0;
                }
                Err(e) if is_pause(&e) => {
                    pauses += u32::from(self.filled > 0);
                    if pauses >= self.pauses_max || is_late() {
                        return Err(FrameError::Late);
                    }
                }
                Err(_) => return Err(FrameError::Broken),
            }
        }
        self.taken = self.needed()?;
        let (head, payload) = self.buffer[..self.taken].split_at(HEAD_BYTES);
        match head[4..].first_chunk() {
            Some(sum) if u64::from_le_bytes(*sum) == checksum(SEED, 0, payload) => Ok(payload),
            _ => Err(FrameError::Malformed),
        }
    }

    fn release_last(&mut self) {
        self.buffer.copy_within(self.taken..self.filled, 0);
        self.filled -= self.taken;
        self.taken = 0;
        if self.buffer.len() > KEPT_BYTES {
            self.buffer.truncate(self.filled.max(KEPT_BYTES));
            self.buffer.shrink_to(KEPT_BYTES);
        }
    }

    /// Returns the bytes of the frame, or of its head until that is there.
    fn needed(&self) -> Result<usize, FrameError> {
        let Some(len) = self.buffer[..self.filled].first_chunk().filter(|_| self.filled >= HEAD_BYTES) else {
            return Ok(HEAD_BYTES);
        };
        let len = u32::from_le_bytes(*len) as usize;
        if len == 0 || len > PAYLOAD_BYTES_MAX {
            return Err(FrameError::Malformed);
        }
        Ok(HEAD_BYTES + len)
    }
}
