//! Aligned memory for direct I/O.

/// Bytes, sufficient for all known devices and file systems.
pub const ALIGNED_TO: usize = 64 << 10;

/// Aligned to 64 KiB.
#[derive(Debug)]
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
}

impl Aligned {
    pub fn new(len: usize) -> Aligned {
        let memory = vec![0; len + ALIGNED_TO];
        let start = memory.as_ptr().align_offset(ALIGNED_TO).min(ALIGNED_TO);
        Aligned { memory, start }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.memory.len() - (ALIGNED_TO - self.start)]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let end = self.memory.len() - (ALIGNED_TO - self.start);
        &mut self.memory[self.start..end]
    }
}
