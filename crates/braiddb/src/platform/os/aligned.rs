//! Memory that begins where devices want it to.

/// What it is aligned to: good for any device and file system known.
pub const ALIGNED_TO: usize = 64 << 10;

/// Bytes that begin at a multiple of 64 KiB, for reads and writes past the system's cache.
#[derive(Debug)]
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
}

impl Aligned {
    /// So many bytes, of zeros.
    pub fn new(len: usize) -> Aligned {
        let memory = vec![0; len + ALIGNED_TO];
        // It moves with its owner, but the bytes stay where they are.
        let start = memory.as_ptr().align_offset(ALIGNED_TO).min(ALIGNED_TO);
        Aligned { memory, start }
    }

    /// All of them.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.memory.len() - (ALIGNED_TO - self.start)]
    }

    /// All of them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let end = self.memory.len() - (ALIGNED_TO - self.start);
        &mut self.memory[self.start..end]
    }
}
