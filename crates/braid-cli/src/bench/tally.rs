//! Counts the results of a thread.

use super::rows::{Keys, is_of_row};

#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub found: u64,
    /// Sum of their numbers, different for different sets of rows.
    pub sum: u64,
    pub missed: u64,
    pub bytes: u64,
    /// Wrong rows: unknown keys, values of other rows, scans out of order.
    pub wrong: u64,
    pub wrong_row: Option<u64>,
    last_head: Option<u64>,
}

impl Tally {
    #[inline]
    pub fn saw_value(&mut self, row: u64, key_bytes: usize, value: &[u8]) {
        self.found += 1;
        self.sum = self.sum.wrapping_add(row);
        self.bytes += (key_bytes + value.len()) as u64;
        if !is_of_row(value, row) {
            self.note_wrong(row);
        }
    }

    #[inline]
    pub fn begin_scan(&mut self, head: u64) {
        self.last_head = head.checked_sub(1);
    }

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

    pub fn merge(&mut self, other: &Tally) {
        self.found += other.found;
        self.sum = self.sum.wrapping_add(other.sum);
        self.missed += other.missed;
        self.bytes += other.bytes;
        self.wrong += other.wrong;
        self.wrong_row = self.wrong_row.or(other.wrong_row);
    }
}
