//! Rows of a batch: what a source of a scan has decoded ahead.

use super::SequenceNumber;
use std::fmt;

/// How many rows a batch has room for: one lane each, in the order of their keys.
pub const ROW_LANES: usize = 32;

/// Key and value, one right after the other.
#[derive(Clone, Copy)]
struct Row {
    bytes: &'static [u8],
    key_len: usize,
}

impl Row {
    const EMPTY: Row = Row { bytes: b"", key_len: 0 };
}

/// Rows by lane. It lends them no longer than itself.
///
/// Invariant: rows borrow from memory that the batch which has these slots keeps where it is until it calls
/// [`RowSlots::clear`].
pub struct RowSlots {
    rows: [Row; ROW_LANES],
    /// Of rows that are to be merged alone.
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
    /// Forgets all rows.
    #[inline]
    pub fn clear(&mut self) {
        self.rows = [Row::EMPTY; ROW_LANES];
    }

    /// Puts in a row: its bytes, which begin with the key.
    #[inline(always)]
    pub fn set(&mut self, lane: usize, bytes: &'static [u8], key_len: usize) {
        self.rows[lane % ROW_LANES] = Row { bytes, key_len };
    }

    /// Puts in the commit that wrote a row.
    #[inline(always)]
    pub fn set_sequence(&mut self, lane: usize, sequence: SequenceNumber) {
        self.sequences[lane % ROW_LANES] = sequence;
    }

    /// Key and value of a row.
    #[inline(always)]
    pub fn row(&self, lane: usize) -> Option<(&[u8], &[u8])> {
        let row = self.rows[lane % ROW_LANES];
        row.bytes.split_at_checked(row.key_len)
    }

    /// The key of a row.
    #[inline(always)]
    pub fn key(&self, lane: usize) -> &[u8] {
        let row = &self.rows[lane % ROW_LANES];
        row.bytes.get(..row.key_len).unwrap_or_default()
    }

    /// The address of a row's bytes.
    #[inline(always)]
    pub fn address(&self, lane: usize) -> usize {
        self.rows[lane % ROW_LANES].bytes.as_ptr().addr()
    }

    /// The commit that wrote a row.
    #[inline(always)]
    pub fn sequence(&self, lane: usize) -> SequenceNumber {
        self.sequences[lane % ROW_LANES]
    }

    /// Of `lanes`, those that come first in a direction and are to be kept, as far as there is none between that is not.
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

/// What a source has after the rows of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beyond {
    /// Perhaps more.
    #[default]
    More,
    /// Nothing.
    End,
    /// At this lane, a row that must be looked at by itself.
    Row(usize),
    /// At this lane, a row past all that are wanted of any source.
    Outside(usize),
}

/// The first of some lanes in a direction.
#[inline(always)]
pub fn near_lane(lanes: u32, is_forward: bool) -> usize {
    (if is_forward { lanes.trailing_zeros() } else { 31 - (lanes | 1).leading_zeros() }) as usize % ROW_LANES
}
