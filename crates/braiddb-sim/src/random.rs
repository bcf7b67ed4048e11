//! Seeded randomness: splitmix64 (Steele, Lea and Flood, OOPSLA '14).

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates the stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        finish(self.state)
    }

    /// Returns a number below `bound` (not zero).
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "the bound must not be zero");
        // The bias is below 2^-32.
        self.next_u64() % bound
    }

    /// Returns an index below `len` (not zero).
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns true `part` times in `whole`.
    pub fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// Returns `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next_u64().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn finish(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Hashes two numbers.
pub fn mix(a: u64, b: u64) -> u64 {
    finish(a.wrapping_mul(GOLDEN) ^ b.wrapping_add(GOLDEN))
}
