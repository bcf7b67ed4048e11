//! Read-ahead of blocks for direct I/O.
//!
//! Without the page cache's read-ahead, a scan would wait for the device at each block. So a
//! missing block right after the last ones read brings the next ones in the same read: two at
//! first, then twice as many each time, up to [`AHEAD_MAX`].
//!
//! A run has one state; readers of several places overwrite it and then read less ahead.

use std::sync::atomic::{AtomicU32, Ordering};

/// Maximum blocks read ahead: with blocks of 4 KiB, 128 KiB at once.
const AHEAD_MAX: u16 = 31;
const AHEAD_FIRST: u16 = 2;

/// Thread-safe; a lost update only loses a read-ahead.
#[derive(Debug)]
pub(super) struct Sequence {
    /// Upper half: the next sequential block. Lower half: the number of blocks last read ahead.
    last: AtomicU32,
}

impl Default for Sequence {
    fn default() -> Sequence {
        Sequence { last: AtomicU32::new(u32::MAX << 16) }
    }
}

impl Sequence {
    /// Call for a missing block. Returns the last block to read with it, below `end`.
    pub fn note(&self, block: u16, end: u16) -> u16 {
        let last = self.last.load(Ordering::Relaxed);
        let (next, ahead) = ((last >> 16) as u16, last as u16);
        let ahead = if next == block { (ahead * 2).clamp(AHEAD_FIRST, AHEAD_MAX) } else { 0 };
        let until = block.saturating_add(ahead).min(end.saturating_sub(1)).max(block);
        self.last.store(u32::from(until.saturating_add(1)) << 16 | u32::from(ahead), Ordering::Relaxed);
        until
    }
}

#[cfg(test)]
mod tests {
    use super::Sequence;

    #[test]
    fn note_of_sequential_blocks_grows_read_ahead() {
        let sequence = Sequence::default();
        let (mut block, mut reads) = (10, Vec::new());
        while block < 100 {
            let until = sequence.note(block, 100);
            reads.push(until - block);
            block = until + 1;
        }
        assert_eq!(reads, [0, 2, 4, 8, 16, 31, 22]);
        assert_eq!(sequence.note(50, 100), 50, "elsewhere, it begins anew");
        assert_eq!(sequence.note(51, 100), 53);
        assert_eq!(sequence.note(20, 100), 20);
        assert_eq!(sequence.note(20, 100), 20, "nor is the same again the next");
    }

    #[test]
    fn note_near_end_stops_at_last_block() {
        let sequence = Sequence::default();
        assert_eq!(sequence.note(u16::MAX - 1, u16::MAX), u16::MAX - 1);
        assert_eq!(sequence.note(0, 1), 0);
        assert_eq!(sequence.note(1, 2), 1);
        assert_eq!(sequence.note(7, 0), 7, "an end that cannot be does no harm");
    }
}
