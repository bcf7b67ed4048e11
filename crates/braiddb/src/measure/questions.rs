//! What is asked, and what to do with the answers: add them up, or compare each with the rows that must be there.

use super::data::{self, Key};
use crate::base::{EntryKind, EntryRef};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Gets of random rows.
    GetHit,
    /// Gets of keys that are not there.
    GetMiss,
    /// Gets of random rows, each chosen by what the one before found.
    GetChained,
    /// Seeks to random rows, one row each.
    SeekHit,
    /// Seeks to keys that are not there, one row each.
    SeekMiss,
    /// Seeks to keys that are not there, 50 rows each.
    SeekFifty,
    /// All rows in order.
    Scan,
    /// All rows from the last one back.
    ScanBack,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 8] = [
        Operation::GetHit,
        Operation::GetMiss,
        Operation::GetChained,
        Operation::SeekHit,
        Operation::SeekMiss,
        Operation::SeekFifty,
        Operation::Scan,
        Operation::ScanBack,
    ];

    /// Its name in the figures.
    pub fn name(self) -> &'static str {
        match self {
            Operation::GetHit => "get hit",
            Operation::GetMiss => "get miss",
            Operation::GetChained => "get, chained",
            Operation::SeekHit => "seek+1 hit",
            Operation::SeekMiss => "seek+1 miss",
            Operation::SeekFifty => "seek+50",
            Operation::Scan => "scan, a row",
            Operation::ScanBack => "reverse, a row",
        }
    }

    /// Rows read from each seek.
    pub(super) fn seek_len(self) -> usize {
        if self == Operation::SeekFifty { 50 } else { 1 }
    }
}

/// The keys asked for.
#[derive(Clone)]
pub(super) struct Questions {
    pub(super) operation: Operation,
    pub(super) keys: Vec<Key>,
    /// How long a chain of gets is.
    pub(super) chain_len: u64,
    rows: u64,
}

impl Questions {
    /// Questions about so many rows; a tenth of the operations where each reads 50 rows.
    pub(super) fn new(operation: Operation, rows: u64, operations: u64) -> Questions {
        let salt = (operation as u64 + 1) << 40;
        let keys = |count: u64, first: u64| -> Vec<Key> {
            (0..count).map(|number| data::key(first + scale(data::mix(number ^ salt), rows))).collect()
        };
        let (hits, misses) = (0, rows);
        let keys = match operation {
            Operation::GetHit | Operation::SeekHit => keys(operations, hits),
            Operation::GetMiss | Operation::SeekMiss => keys(operations, misses),
            Operation::SeekFifty => keys(operations.div_ceil(10), misses),
            Operation::GetChained | Operation::Scan | Operation::ScanBack => Vec::new(),
        };
        Questions { operation, keys, chain_len: operations, rows }
    }

    /// Some of the questions, each by itself: gets where they are chained. A scan is one question.
    pub(super) fn singly(&self, most: usize) -> Vec<Questions> {
        let keys = match self.operation {
            Operation::GetChained => Questions::new(Operation::GetHit, self.rows, most as u64).keys,
            Operation::Scan | Operation::ScanBack => return vec![self.clone()],
            _ => self.keys.clone(),
        };
        let operation = if self.operation == Operation::GetChained { Operation::GetHit } else { self.operation };
        keys.into_iter().take(most).map(|key| Questions { operation, keys: vec![key], ..*self }).collect()
    }

    /// The row that a chain of gets goes to next, after it found a value that begins with `found`.
    #[inline]
    pub(super) fn chained(&self, found: u64, number: usize) -> u64 {
        scale((found ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15), self.rows)
    }
}

/// A number below `bound` from a random one.
#[inline]
fn scale(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// The first word of a value; 0 where there is none.
#[inline]
pub(super) fn head_of(answer: Option<EntryRef<'_>>) -> u64 {
    word(answer.and_then(|entry| entry.value.first_chunk()))
}

#[inline]
fn word(bytes: Option<&[u8; 8]>) -> u64 {
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Looks at answers.
pub(super) trait Visit {
    /// Answer `step` to question `number`; a scan ends with an answer that is none.
    fn visit(&mut self, number: usize, step: usize, answer: Option<EntryRef<'_>>);
}

/// Adds up answers: the last bytes of the key and the first of the value of each, which are as good as random.
#[derive(Debug, Default)]
pub(super) struct Sum(pub(super) u64);

impl Visit for Sum {
    #[inline]
    fn visit(&mut self, number: usize, step: usize, answer: Option<EntryRef<'_>>) {
        let key = word(answer.and_then(|entry| entry.key.last_chunk()));
        let term = key ^ head_of(answer).rotate_left(20) ^ (number + step) as u64;
        self.0 = self.0.wrapping_add(term.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

/// Compares each answer, whole, with the row that must be there.
pub(super) struct Check<'a> {
    truth: &'a [(Key, u64)],
    questions: &'a Questions,
    /// What the answer before began with.
    found: u64,
    /// Question and step of the first wrong answer.
    pub(super) wrong: Option<(usize, usize)>,
    pub(super) sum: Sum,
}

impl<'a> Check<'a> {
    /// Nothing seen yet. `truth` has all keys in order, each with its row.
    pub(super) fn new(truth: &'a [(Key, u64)], questions: &'a Questions) -> Check<'a> {
        Check { truth, questions, found: 0, wrong: None, sum: Sum::default() }
    }

    /// The row that must be the answer, if there is one.
    fn expected(&self, number: usize, step: usize) -> Option<u64> {
        let rank = || self.truth.partition_point(|(key, _)| *key < self.questions.keys[number]);
        let at = match self.questions.operation {
            Operation::GetHit | Operation::GetMiss => {
                let (key, row) = self.truth.get(rank())?;
                return (*key == self.questions.keys[number]).then_some(*row);
            }
            Operation::GetChained => return Some(self.questions.chained(self.found, number)),
            Operation::SeekHit | Operation::SeekMiss | Operation::SeekFifty => rank() + step,
            Operation::Scan => step,
            Operation::ScanBack => self.truth.len().wrapping_sub(1 + step),
        };
        self.truth.get(at).map(|(_, row)| *row)
    }
}

impl Visit for Check<'_> {
    fn visit(&mut self, number: usize, step: usize, answer: Option<EntryRef<'_>>) {
        let expected = self.expected(number, step).map(|row| (data::key(row), data::value(row), row + 1));
        let expected = expected.as_ref().map(|(key, value, sequence)| EntryRef {
            key,
            sequence: *sequence,
            kind: EntryKind::Value,
            value,
        });
        if answer != expected {
            self.wrong.get_or_insert((number, step));
        }
        self.found = head_of(answer);
        self.sum.visit(number, step, answer);
    }
}
