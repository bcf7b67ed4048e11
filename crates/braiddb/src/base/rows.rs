//! Rows that a source of a scan has decoded ahead, in one batch.

use super::SequenceNumber;
use std::fmt;

/// Maximum rows in a batch. A row's index is its **lane**, in key order.
pub const ROW_LANES: usize = 32;

/// Key and value, adjacent in memory.
#[derive(Clone, Copy)]
struct Row {
    bytes: &'static [u8],
    key_len: usize,
}

impl Row {
    const EMPTY: Row = Row { bytes: b"", key_len: 0 };
}

/// Rows by lane, lent for at most its own lifetime.
///
/// INVARIANT: rows borrow from memory that the owning batch keeps in place until it calls
/// [`RowSlots::clear`].
pub struct RowSlots {
    rows: [Row; ROW_LANES],
    /// Set only for rows that are to be merged.
    sequences: [SequenceNumber; ROW_LANES],
}

impl Default for RowSlots {
    fn default() -> RowSlots {
        RowSlots { rows: [Row::EMPTY; ROW_LANES], sequences: [0; ROW_LANES] }
    }
}

impl fmt::Debug for RowSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowSlots").finish_non_exhaustive()
    }
}

impl RowSlots {
    /// Removes all rows.
    #[inline]
    pub fn clear(&mut self) {
        self.rows = [Row::EMPTY; ROW_LANES];
    }

    /// Stores a row: its bytes begin with the key.
    #[inline(always)]
    pub fn set(&mut self, lane: usize, bytes: &'static [u8], key_len: usize) {
        self.rows[lane % ROW_LANES] = Row { bytes, key_len };
    }

    /// Stores the sequence number of a row.
    #[inline(always)]
    pub fn set_sequence(&mut self, lane: usize, sequence: SequenceNumber) {
        self.sequences[lane % ROW_LANES] = sequence;
    }

    /// Returns key and value of a row.
    #[inline(always)]
    pub fn row(&self, lane: usize) -> Option<(&[u8], &[u8])> {
        let row = self.rows[lane % ROW_LANES];
        row.bytes.split_at_checked(row.key_len)
    }

    /// Returns the key of a row.
    #[inline(always)]
    pub fn key(&self, lane: usize) -> &[u8] {
        let row = &self.rows[lane % ROW_LANES];
        row.bytes.get(..row.key_len).unwrap_or_default()
    }

    /// Returns the address of a row's bytes.
    #[inline(always)]
    pub fn address(&self, lane: usize) -> usize {
        self.rows[lane % ROW_LANES].bytes.as_ptr().addr()
    }

    /// Returns the sequence number of a row.
    #[inline(always)]
    pub fn sequence(&self, lane: usize) -> SequenceNumber {
        self.sequences[lane % ROW_LANES]
    }

    /// Returns the lanes before the first row that `is_kept` rejects.
    #[inline]
    pub fn kept(&self, lanes: u32, is_forward: bool, is_kept: impl Fn(&[u8]) -> bool) -> u32 {
        if lanes == 0 || is_kept(self.key(near_lane(lanes, !is_forward))) {
            return lanes;
        }
        let mut rest = lanes;
        while rest != 0 {
            let lane = near_lane(rest, is_forward);
            if !is_kept(self.key(lane)) {
                break;
            }
            rest &= !(1 << lane);
        }
        lanes & !rest
    }
}

/// State of a source after the rows of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beyond {
    /// There may be more rows.
    #[default]
    More,
    /// The source has ended.
    End,
    /// This row must be processed individually.
    Row(usize),
    /// This row is past the end of the scan.
    Outside(usize),
}

/// Returns the first of some lanes in a direction.
#[inline(always)]
pub fn near_lane(lanes: u32, is_forward: bool) -> usize {
    (if is_forward { lanes.trailing_zeros() } else { 31 - (lanes | 1).leading_zeros() }) as usize % ROW_LANES
}
