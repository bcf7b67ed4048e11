//! A Bloom filter as LSM stores have one for each run: ten bits a key, six probes within one cache line.

/// Bits a key.
const BITS_PER_KEY: usize = 10;
/// Bits looked at.
const PROBES: usize = 6;

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line([u64; 8]);

/// Tells of most keys that are not in a run that they are not.
#[derive(Debug)]
pub(super) struct Filter {
    lines: Vec<Line>,
}

impl Filter {
    /// A filter for so many keys, without any yet.
    pub(super) fn new(keys: usize) -> Filter {
        Filter { lines: vec![Line::default(); (keys * BITS_PER_KEY).div_ceil(512).max(1)] }
    }

    /// Adds a key, by its hash.
    pub(super) fn add(&mut self, hash: u64) {
        let line = self.line(hash);
        for (word, bit) in probes(hash) {
            self.lines[line].0[word] |= bit;
        }
    }

    /// Whether the key of this hash may be there.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let line = &self.lines[self.line(hash)].0;
        probes(hash).all(|(word, bit)| line[word] & bit != 0)
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.lines.as_slice())
    }

    #[inline]
    fn line(&self, hash: u64) -> usize {
        (((hash & 0xffff_ffff) * self.lines.len() as u64) >> 32) as usize
    }
}

/// The bits of a hash within its line: which word, and a mask.
#[inline]
fn probes(hash: u64) -> impl Iterator<Item = (usize, u64)> {
    let mut state = (hash >> 32) as u32;
    (0..PROBES).map(move |_| {
        let bit = state >> 23;
        state = state.wrapping_mul(0x9e37_79b9);
        ((bit >> 6) as usize, 1 << (bit & 63))
    })
}
