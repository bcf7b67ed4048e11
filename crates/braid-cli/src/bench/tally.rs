//! What a thread met.

use super::rows::{Keys, is_of_row};

/// Counts of what was written and read. Sums do not depend on the order.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Rows that were read.
    pub found: u64,
    /// The sum of their numbers: two sets of rows are hardly taken for each other.
    pub sum: u64,
    /// Keys that were asked for by name and were not there.
    pub missed: u64,
    /// Bytes of keys and values written and read.
    pub bytes: u64,
    /// Rows that were not what they should be: foreign keys, values of other rows, scans out of order.
    pub wrong: u64,
    /// The row of the first of them, as well as it can be told.
    pub wrong_row: Option<u64>,
    /// The head of the last key of the scan under way.
    last_head: Option<u64>,
}

impl Tally {
    /// Notes the value of a row that was asked for by its key.
    #[inline]
    pub fn saw_value(&mut self, row: u64, key_bytes: usize, value: &[u8]) {
        self.found += 1;
        self.sum = self.sum.wrapping_add(row);
        self.bytes += (key_bytes + value.len()) as u64;
        if !is_of_row(value, row) {
            self.note_wrong(row);
        }
    }

    /// Begins a scan of keys whose heads are this or greater.
    #[inline]
    pub fn begin_scan(&mut self, head: u64) {
        self.last_head = head.checked_sub(1);
    }

    /// Notes the next row of a scan.
    #[inline]
    pub fn saw_row(&mut self, keys: Keys, reverse: bool, key: &[u8], value: &[u8]) {
        let Some(head) = keys.head_of(key) else {
            self.found += 1;
            return self.note_wrong(0);
        };
        let row = keys.row_of_head(head);
        self.saw_value(row, key.len(), value);
        let in_order = self.last_head.is_none_or(|last| if reverse { head < last } else { head > last });
        self.last_head = Some(head);
        if !in_order {
            self.note_wrong(row);
        }
    }

    #[cold]
    fn note_wrong(&mut self, row: u64) {
        self.wrong += 1;
        self.wrong_row.get_or_insert(row);
    }

    /// Adds what another thread met.
    pub fn merge(&mut self, other: &Tally) {
        self.found += other.found;
        self.sum = self.sum.wrapping_add(other.sum);
        self.missed += other.missed;
        self.bytes += other.bytes;
        self.wrong += other.wrong;
        self.wrong_row = self.wrong_row.or(other.wrong_row);
    }
}
