//! Keys, values and random choices computed from row numbers, so that no copy is needed to check
//! answers.
//!
//! A value begins with a stamp of row and version, then the version. Half of the other bytes are
//! random.

pub const KEY_LEN: usize = 16;
const SHORT_KEY_LEN: usize = 10;
const HEADER_LEN: usize = 12;
const POOL_LEN: usize = 1 << 20;

pub type Key = [u8; KEY_LEN];

/// A permutation of the 64-bit numbers (the finalizer of splitmix64).
pub fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// Ascending, in the form of db_bench: the number in big-endian, then ASCII zeros.
    Ascending,
    /// 16 random bytes: consecutive rows lie anywhere.
    Random,
    /// Sixteen rows share the first 8 bytes.
    Grouped,
    /// Sixteen rows share the first 8 of 10 bytes.
    GroupedShort,
}

pub const GROUP_LEN: u64 = 16;
pub const PREFIX_LEN: usize = 8;

impl KeyOrder {
    pub fn key(self, row: u64) -> Key {
        let (head, tail) = match self {
            KeyOrder::Ascending => (row, u64::from_be_bytes(*b"00000000")),
            KeyOrder::Random => (mix(row), mix(!row)),
            KeyOrder::Grouped => (mix(row / GROUP_LEN), mix(!row)),
            KeyOrder::GroupedShort => (mix(row / GROUP_LEN), (row % GROUP_LEN) << 48),
        };
        let mut key = [0; KEY_LEN];
        key[..8].copy_from_slice(&head.to_be_bytes());
        key[8..].copy_from_slice(&tail.to_be_bytes());
        key
    }

    pub fn key_len(self) -> usize {
        if self == KeyOrder::GroupedShort { SHORT_KEY_LEN } else { KEY_LEN }
    }
}

#[derive(Debug)]
pub struct Values {
    pool: Vec<u8>,
    len_min: usize,
    len_spread: u64,
}

impl Values {
    pub fn new(len_min: usize, len_spread: u64) -> Values {
        let mut pool = Vec::with_capacity(POOL_LEN + len_min);
        let mut state = 1;
        // 32 random bytes, then 32 equal ones: half compressible from any start.
        while pool.len() < POOL_LEN + len_min + len_spread as usize {
            for _ in 0..4 {
                state = mix(state);
                pool.extend_from_slice(&state.to_le_bytes());
            }
            pool.extend_from_slice(&[b'x'; 32]);
        }
        Values { pool, len_min, len_spread }
    }

    pub fn small() -> Values {
        Values::new(120, 8)
    }

    pub fn kilobyte() -> Values {
        Values::new(1024, 0)
    }

    pub fn value_len(&self, row: u64) -> usize {
        self.len_min + (mix(row) % (self.len_spread + 1)) as usize
    }

    pub fn fill(&self, row: u64, version: u32, out: &mut Vec<u8>) {
        let at = (mix(row ^ (u64::from(version) << 40)) % POOL_LEN as u64) as usize;
        out.clear();
        out.extend_from_slice(&self.pool[at..at + self.value_len(row)]);
        out[..8].copy_from_slice(&stamp(row, version).to_le_bytes());
        out[8..HEADER_LEN].copy_from_slice(&version.to_le_bytes());
    }

    pub fn user_bytes(&self, rows: u64) -> u64 {
        rows * (KEY_LEN as u64 + self.len_min as u64 + self.len_spread / 2)
    }
}

pub fn stamp(row: u64, version: u32) -> u64 {
    mix(row.rotate_left(17) ^ u64::from(version))
}

/// Returns true if the value is the row's, in the version that it contains.
pub fn is_of_row(value: &[u8], row: u64) -> bool {
    match (value.first_chunk::<8>(), value.get(8..HEADER_LEN).and_then(<[u8]>::first_chunk::<4>)) {
        (Some(found), Some(version)) => u64::from_le_bytes(*found) == stamp(row, u32::from_le_bytes(*version)),
        _ => false,
    }
}

/// A checksum over key head, stamp and value length, independent of the order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    pub count: u64,
    pub sum: u64,
}

impl Checksum {
    #[inline]
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        let head = key.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let stamp = value.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        self.count += 1;
        self.sum = self.sum.wrapping_add((head ^ stamp).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value.len() as u64);
    }

    pub fn expect(&mut self, order: KeyOrder, values: &Values, row: u64, version: u32) {
        let key = order.key(row);
        let head = key.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        self.count += 1;
        let term = (head ^ stamp(row, version)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ values.value_len(row) as u64;
        self.sum = self.sum.wrapping_add(term);
    }

    pub fn merge(&mut self, other: Checksum) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(mix(seed))
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The Zipfian distribution of YCSB (Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994).
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// A distribution over `0..items`, small numbers being frequent. O(items).
    pub fn new(items: u64, theta: f64) -> Zipf {
        let zeta_of = |n: u64| (1..=n).map(|i| (i as f64).powf(-theta)).sum::<f64>();
        let (zeta, zeta_two) = (zeta_of(items), zeta_of(2));
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - zeta_two / zeta);
        Zipf { items, theta, zeta, alpha: 1.0 / (1.0 - theta), eta }
    }

    pub fn next(&self, random: &mut Random) -> u64 {
        let u = random.fraction();
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5f64.powf(self.theta) {
            1
        } else {
            let rank = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
            (rank as u64).min(self.items - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_damaged_or_of_other_row_is_detected() {
        let values = Values::small();
        let mut value = Vec::new();
        values.fill(7, 3, &mut value);
        assert!((120..=128).contains(&value.len()));
        assert!(is_of_row(&value, 7));
        assert!(!is_of_row(&value, 8));
        value[8] ^= 1;
        assert!(!is_of_row(&value, 7));
    }

    #[test]
    fn checksum_of_reordered_rows_is_equal_and_of_other_version_differs() {
        let (values, order) = (Values::small(), KeyOrder::Random);
        let (mut forward, mut backward, mut expected, mut other) = Default::default();
        let mut value = Vec::new();
        for (sum, rows) in [(&mut forward, [1, 2, 3]), (&mut backward, [3, 2, 1])] {
            for row in rows {
                values.fill(row, 0, &mut value);
                Checksum::add(sum, &order.key(row), &value);
            }
        }
        for row in 1..=3 {
            Checksum::expect(&mut expected, order, &values, row, 0);
            Checksum::expect(&mut other, order, &values, row, u32::from(row == 2));
        }
        assert_eq!(forward, backward);
        assert_eq!(forward, expected);
        assert_ne!(forward, other);
    }

    #[test]
    fn zipf_of_1000_items_prefers_small_ranks() {
        let (zipf, mut random) = (Zipf::new(1000, 0.99), Random::new(1));
        let mut counts = vec![0u32; 1000];
        for _ in 0..100_000 {
            counts[zipf.next(&mut random) as usize] += 1;
        }
        assert!((10_000..16_000).contains(&counts[0]), "{}", counts[0]);
        assert!(counts[0] > counts[1] && counts[1] > counts[10] && counts[10] > counts[500]);
    }

    #[test]
    fn grouped_keys_of_sixteen_rows_share_prefix() {
        let prefix = |row| KeyOrder::Grouped.key(row)[..PREFIX_LEN].to_vec();
        assert_eq!(prefix(0), prefix(15));
        assert_ne!(prefix(15), prefix(16));
        let short: std::collections::BTreeSet<Vec<u8>> =
            (0..64).map(|row| KeyOrder::GroupedShort.key(row)[..KeyOrder::GroupedShort.key_len()].to_vec()).collect();
        assert_eq!(short.len(), 64);
        assert!(KeyOrder::Ascending.key(255) < KeyOrder::Ascending.key(256));
    }
}
