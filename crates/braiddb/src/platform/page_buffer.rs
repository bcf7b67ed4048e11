//! Bytes that are gathered, in memory of the system's own pages.
//!
//! Threads that flush and merge gather what they read and write in buffers of 64 KiB to some megabytes, and give them back with each run. From the
//! global allocator those would come out of a heap for each thread, which keeps what small pieces that live on stand behind: tens of
//! megabytes that nothing lives in (see [`super::pages`]).

use super::pages::Zeroed;
use std::ops::{Deref, DerefMut};

/// Has at least so much room, if any.
const ROOM_MIN: usize = 64 << 10;

/// Bytes that grow at their end.
#[derive(Debug, Default)]
pub struct PageBuffer {
    /// What is past `len` may be anything.
    memory: Option<Zeroed<u8>>,
    len: usize,
}

impl PageBuffer {
    /// Nothing; takes no memory.
    pub fn new() -> PageBuffer {
        PageBuffer::default()
    }

    /// Appends these bytes.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.reserve(end);
        if let Some(memory) = &mut self.memory {
            memory[self.len..end].copy_from_slice(bytes);
        }
        self.len = end;
    }

    /// Ends after so many bytes; those that were not there before are zero.
    pub fn resize(&mut self, len: usize) {
        self.reserve(len);
        if let Some(memory) = self.memory.as_mut().filter(|_| len > self.len) {
            memory[self.len..len].fill(0);
        }
        self.len = len;
    }

    /// Ends after so many bytes; those that were not there before may be anything.
    pub fn set_len(&mut self, len: usize) {
        self.reserve(len);
        self.len = len;
    }

    /// Takes away the first bytes, of which there are so many.
    pub fn remove_front(&mut self, count: usize) {
        self.copy_within(count.., 0);
        self.len -= count;
    }

    /// Holds nothing, and keeps no more memory than that.
    pub fn clear(&mut self, room_max: usize) {
        self.len = 0;
        self.shrink_to(room_max);
    }

    /// Keeps no more memory than that, or what it needs.
    pub fn shrink_to(&mut self, room_max: usize) {
        if self.room() > room_max.max(self.len).max(ROOM_MIN) {
            self.change_room(room_max.max(self.len));
        }
    }

    fn room(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.len())
    }

    #[inline]
    fn reserve(&mut self, len: usize) {
        if len > self.room() {
            self.change_room(len.max(2 * self.room()));
        }
    }

    #[cold]
    fn change_room(&mut self, room: usize) {
        let mut memory = Zeroed::new(room.max(ROOM_MIN));
        memory[..self.len].copy_from_slice(self);
        self.memory = Some(memory);
    }
}

impl Deref for PageBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[..self.len])
    }
}

impl DerefMut for PageBuffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], |memory| &mut memory[..self.len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_a_vector_would() {
        let (mut buffer, mut expected) = (PageBuffer::new(), Vec::new());
        let mut state = 1u32;
        for round in 0..4000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = (state >> 8) as usize;
            match number % 7 {
                0..4 => {
                    let bytes = vec![round as u8; number % 5000];
                    buffer.extend_from_slice(&bytes);
                    expected.extend_from_slice(&bytes);
                }
                4 => {
                    let len = expected.len() + number % 3000;
                    buffer.resize(len);
                    expected.resize(len, 0);
                }
                5 => {
                    let count = number % (expected.len() + 1);
                    buffer.remove_front(count);
                    expected.drain(..count);
                }
                _ if number.is_multiple_of(5) => {
                    buffer.clear(100_000);
                    expected.clear();
                    assert!(buffer.room() <= 100_000);
                }
                _ => {
                    let len = number % (expected.len() + 1);
                    buffer.resize(len);
                    expected.truncate(len);
                    buffer.shrink_to(0);
                    assert!(buffer.room() <= len.max(ROOM_MIN));
                }
            }
            assert!(buffer[..] == expected[..], "after {round} changes");
        }
        assert!(expected.is_empty() || buffer.room() >= expected.len());
    }
}
