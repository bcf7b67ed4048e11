//! The kinds of reads, with their operations and expected answers.

use crate::{
    data::{Checksum, Key, KeyOrder, Random, Values},
    engines::Reader,
};
use anyhow::Result;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    GetHit,
    GetMiss,
    /// Each key depends on the answer before.
    GetChained,
    SeekHit,
    SeekMiss,
    SeekFifty,
    Scan,
    ScanBack,
}

const SEEK_LEN: u64 = 50;
const ORDER: KeyOrder = KeyOrder::Random;

impl Part {
    pub const ALL: [Part; 8] = [
        Part::GetHit,
        Part::GetMiss,
        Part::GetChained,
        Part::SeekHit,
        Part::SeekMiss,
        Part::SeekFifty,
        Part::Scan,
        Part::ScanBack,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Part::GetHit => "get, hit",
            Part::GetMiss => "get, miss",
            Part::GetChained => "get, key depends on the last answer",
            Part::SeekHit => "seek to a row, and it",
            Part::SeekMiss => "seek between rows, and one row",
            Part::SeekFifty => "seek between rows, and 50 rows",
            Part::Scan => "scan, a row",
            Part::ScanBack => "reverse scan, a row",
        }
    }

    /// Maximum fraction of LMDB's time.
    pub fn bar(self) -> Option<f64> {
        match self {
            Part::GetHit => Some(0.40),
            Part::GetMiss => Some(0.20),
            Part::GetChained => Some(0.65),
            Part::SeekHit => Some(0.45),
            Part::SeekMiss => None,
            Part::SeekFifty => Some(0.90),
            Part::Scan => Some(0.65),
            Part::ScanBack => Some(0.75),
        }
    }

    fn seek_len(self) -> u64 {
        if self == Part::SeekFifty { SEEK_LEN } else { 1 }
    }

    /// Empty if the keys depend on the answers.
    pub fn keys(self, n: u64, operations: u64) -> Vec<Key> {
        let mut random = Random::new(150 + self as u64);
        let mut keys = |count: u64, first: u64| (0..count).map(|_| ORDER.key(first + random.below(n))).collect();
        match self {
            Part::GetHit | Part::SeekHit => keys(operations, 0),
            Part::GetMiss | Part::SeekMiss => keys(operations, n),
            Part::SeekFifty => keys(operations.div_ceil(10), n),
            Part::GetChained | Part::Scan | Part::ScanBack => Vec::new(),
        }
    }

    /// Returns the number of operations, or of rows in scans.
    pub fn ask(
        self,
        reader: &mut dyn Reader,
        keys: &[Key],
        (n, operations): (u64, u64),
        seen: &mut Checksum,
    ) -> Result<u64> {
        match self {
            Part::GetHit | Part::GetMiss => {
                for key in keys {
                    reader.get(key, &mut |value| seen.add(key, value))?;
                }
                Ok(keys.len() as u64)
            }
            Part::GetChained => {
                let mut found = 0;
                for number in 0..operations {
                    let key = ORDER.key(chained(found, number, n));
                    found = 0;
                    reader.get(&key, &mut |value| {
                        found = head(value);
                        seen.add(&key, value);
                    })?;
                }
                Ok(operations)
            }
            Part::SeekHit | Part::SeekMiss | Part::SeekFifty => {
                for key in keys {
                    let mut left = self.seek_len();
                    reader.scan(key, &mut |key, value| {
                        seen.add(key, value);
                        left -= 1;
                        left > 0
                    })?;
                }
                Ok(keys.len() as u64)
            }
            Part::Scan | Part::ScanBack => {
                let mut visit = |key: &[u8], value: &[u8]| {
                    seen.add(key, value);
                    true
                };
                match self {
                    Part::Scan => reader.scan(b"", &mut visit)?,
                    _ => reader.scan_back(&mut visit)?,
                }
                Ok(n)
            }
        }
    }

    /// `sorted` has all keys in order with their rows.
    pub fn expected(self, sorted: &[(Key, u64)], values: &Values, keys: &[Key], operations: u64) -> Checksum {
        let mut expected = Checksum::default();
        let mut expect = |row: u64| expected.expect(ORDER, values, row, 0);
        let rank = |key: &Key| sorted.partition_point(|(other, _)| other < key);
        match self {
            Part::GetHit | Part::SeekHit | Part::SeekMiss | Part::SeekFifty => {
                for key in keys {
                    sorted[rank(key)..].iter().take(self.seek_len() as usize).for_each(|(_, row)| expect(*row));
                }
            }
            Part::GetMiss => {}
            Part::GetChained => {
                let mut found = 0;
                for number in 0..operations {
                    let row = chained(found, number, sorted.len() as u64);
                    found = crate::data::stamp(row, 0);
                    expect(row);
                }
            }
            Part::Scan | Part::ScanBack => sorted.iter().for_each(|(_, row)| expect(*row)),
        }
        expected
    }
}

#[inline]
fn chained(found: u64, number: u64, n: u64) -> u64 {
    let random = (found ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((u128::from(random) * u128::from(n)) >> 64) as u64
}

#[inline]
fn head(value: &[u8]) -> u64 {
    value.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Nanoseconds per operation, one figure per round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartFigure {
    pub part: String,
    pub braiddb_ns: Vec<f64>,
    pub lmdb_ns: Vec<f64>,
    pub ratio: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bar: Option<f64>,
}

impl PartFigure {
    pub fn is_met(&self) -> Option<bool> {
        self.bar.map(|bar| self.ratio <= bar)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartsRow {
    pub n: u64,
    pub operations: u64,
    pub view_runs: u64,
    pub view_bytes_per_key: f64,
    pub figures: Vec<PartFigure>,
}
