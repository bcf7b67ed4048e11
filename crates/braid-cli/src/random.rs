//! Numbers that look random and come out the same everywhere: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of a seed and of the number of a thing: streams of different things are unrelated.
    pub fn of(seed: u64, thing: u64) -> Random {
        let mut random = Random { state: seed ^ thing.wrapping_mul(0xd6e8_feb8_6659_fd93) };
        let mixed = random.next();
        random.state ^= mixed;
        random
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// A number from 0 up to, and not with, 1.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True this many times in 10,000.
    pub fn chance(&mut self, of_ten_thousand: u64) -> bool {
        self.below(10_000) < of_ten_thousand
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// A number below `end` that is small far more often than large: the share of numbers below `n` is
    /// `(n / end) ^ 0.4`, so that of 200,000 discs the first artist has some 1,500, and most artists have one.
    pub fn skewed_below(&mut self, end: u64) -> u64 {
        ((end as f64 * self.fraction().powf(2.5)) as u64).min(end - 1)
    }
}
