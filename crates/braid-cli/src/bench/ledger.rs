//! The rows that must exist: one bit per row.

#[derive(Clone, Debug, Default)]
pub struct Ledger {
    words: Vec<u64>,
    count: u64,
}

/// Upper bound of row numbers read from a database.
pub const ROWS_MAX: u64 = 1 << 40;

impl Ledger {
    pub fn insert(&mut self, row: u64) {
        let index = (row / 64) as usize;
        if index >= self.words.len() {
            self.words.resize(index + 1, 0);
        }
        let bit = 1 << (row % 64);
        self.count += u64::from(self.words[index] & bit == 0);
        self.words[index] |= bit;
    }

    pub fn remove(&mut self, row: u64) {
        if let Some(word) = self.words.get_mut((row / 64) as usize) {
            let bit = 1 << (row % 64);
            self.count -= u64::from(*word & bit != 0);
            *word &= !bit;
        }
    }

    pub fn contains(&self, row: u64) -> bool {
        self.words.get((row / 64) as usize).is_some_and(|word| word & (1 << (row % 64)) != 0)
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn end(&self) -> u64 {
        let last = self.words.iter().rposition(|word| *word != 0);
        last.map_or(0, |index| index as u64 * 64 + 64 - u64::from(self.words[index].leading_zeros()))
    }

    pub fn from(&self, row: u64) -> impl Iterator<Item = u64> {
        let first = (row / 64) as usize;
        let words = self.words.iter().enumerate().skip(first);
        words.flat_map(move |(index, word)| {
            let word = if index == first { word & (u64::MAX << (row % 64)) } else { *word };
            ones(word).map(move |bit| index as u64 * 64 + bit)
        })
    }

    pub fn before(&self, end: u64) -> impl Iterator<Item = u64> {
        let words = self.words.iter().enumerate().take(end.div_ceil(64) as usize).rev();
        words.flat_map(move |(index, word)| {
            let bits = end - index as u64 * 64;
            let word = if bits < 64 { word & ((1 << bits) - 1) } else { *word };
            ones(word.reverse_bits()).map(move |bit| index as u64 * 64 + 63 - bit)
        })
    }
}

fn ones(word: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(word), |word| Some(word & word.wrapping_sub(1)))
        .take_while(|word| *word != 0)
        .map(|word| u64::from(word.trailing_zeros()))
}
