//! The conflict window: keys written by recent commits.
//!
//! Commits are noted while transactions are open, and for a while after. The leader of a commit
//! group notes each commit before it is published, and validates the group's transactions against
//! all noted commits. So validation costs in proportion to the recent writes, nothing without
//! transactions.
//!
//! The leader appends to the last piece. A check ahead of the commit closes that piece and reads
//! the closed ones without blocking the leader. The oldest pieces are dropped above a size.
//!
//! # Concurrency
//!
//! Only the holder of the write lock opens and closes the window, so the leader knows its state
//! without shared loads. A transaction joins before it takes its snapshot: it increments `users`,
//! then loads `is_open`. The leader that closes the window stores `is_open`, then loads `users`.
//! All four are `SeqCst`, so one of the two sees the other.

use super::ReadSet;
use crate::{
    base::{EntryKind, SequenceNumber},
    commit::decode_group,
};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    mem::size_of,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// The window closes after this many commit groups without transactions.
const IDLE_GROUPS_MAX: u32 = 4096;

/// Size at which a piece is closed.
const PIECE_BYTES: usize = 32 << 10;

/// Open pieces below this many bytes are left for the leader to check.
const LOOK_AHEAD_BYTES: usize = 2 << 10;

/// Flag in the key length of a range.
const RANGE: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    #[default]
    Unchanged,
    Changed,
    TooOld,
}

/// Keys written by consecutive commits. For each commit: its number (u64), the length of its keys
/// (u32), and its keys, each after its length (u32). A range has [`RANGE`] in the length, and its
/// end follows.
#[derive(Clone, Debug, Default)]
struct Piece {
    last: SequenceNumber,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Pieces {
    from: SequenceNumber,
    closed: VecDeque<Arc<Piece>>,
    closed_bytes: usize,
    open: Piece,
}

#[derive(Debug)]
pub struct Window {
    users: AtomicUsize,
    is_open: AtomicBool,
    idle_groups: AtomicUsize,
    pieces: Mutex<Pieces>,
    bytes_max: usize,
}

impl Window {
    pub fn new(bytes_max: usize) -> Window {
        Window {
            users: AtomicUsize::new(0),
            is_open: AtomicBool::new(false),
            idle_groups: AtomicUsize::new(0),
            pieces: Mutex::default(),
            bytes_max,
        }
    }

    /// False: the window must be opened, under the write lock. Each caller must leave.
    pub fn join(&self) -> bool {
        self.users.fetch_add(1, Ordering::SeqCst);
        self.is_open.load(Ordering::SeqCst)
    }

    pub fn leave(&self) {
        self.users.fetch_sub(1, Ordering::Release);
    }

    /// Notes commits after `last` from now on. Needs the write lock.
    pub fn open(&self, last: SequenceNumber) {
        if !self.is_open() {
            *self.pieces.lock() = Pieces { from: last, open: Piece { last, ..Piece::default() }, ..Pieces::default() };
            self.is_open.store(true, Ordering::SeqCst);
        }
    }

    #[cfg(test)]
    pub fn reaches(&self, upto: SequenceNumber) -> bool {
        let pieces = self.pieces.lock();
        self.is_open() && upto >= pieces.from
    }

    /// Needs the write lock.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Closes the window after a long time without users. Called by the leader once a group.
    pub fn close_if_idle(&self) {
        if self.users.load(Ordering::Relaxed) > 0 {
            self.idle_groups.store(0, Ordering::Relaxed);
            return;
        }
        let idle_groups = self.idle_groups.load(Ordering::Relaxed) + 1;
        self.idle_groups.store(idle_groups, Ordering::Relaxed);
        if idle_groups < IDLE_GROUPS_MAX as usize {
            return;
        }
        self.idle_groups.store(0, Ordering::Relaxed);
        self.is_open.store(false, Ordering::SeqCst);
        if self.users.load(Ordering::SeqCst) > 0 {
            // The new user did not notice the closing, or waits for the write lock to open the
            // window.
            self.is_open.store(true, Ordering::SeqCst);
            return;
        }
        *self.pieces.lock() = Pieces::default();
    }

    /// Called by the leader with increasing numbers, while the window is open.
    pub fn note(&self, sequence: SequenceNumber, batch: &[u8]) {
        let mut pieces = self.pieces.lock();
        let pieces = &mut *pieces;
        assert!(sequence > pieces.open.last, "the numbers that are noted grow");
        let bytes = &mut pieces.open.bytes;
        bytes.extend_from_slice(&sequence.to_le_bytes());
        let len_at = bytes.len();
        bytes.extend_from_slice(&[0; size_of::<u32>()]);
        decode_group(batch, |_, operation| {
            let is_range = operation.kind == EntryKind::RangeDelete;
            put(bytes, operation.key, if is_range { RANGE } else { 0 });
            if is_range {
                put(bytes, operation.value, 0);
            }
        });
        let start = len_at + size_of::<u32>();
        let len = (bytes.len() - start) as u32;
        bytes[len_at..start].copy_from_slice(&len.to_le_bytes());
        pieces.open.last = sequence;
        if pieces.open.bytes.len() >= PIECE_BYTES {
            pieces.close_open();
        }
        while pieces.closed_bytes > self.bytes_max
            && let Some(oldest) = pieces.closed.pop_front()
        {
            pieces.closed_bytes -= oldest.bytes.len();
            pieces.from = oldest.last;
        }
    }

    /// Validates reads against commits after `upto`. Called by the leader.
    pub fn check(&self, reads: &ReadSet, upto: SequenceNumber) -> Validation {
        let pieces = self.pieces.lock();
        if !self.is_open() || upto < pieces.from {
            return Validation::TooOld;
        }
        let later = pieces.later(upto).any(|piece| piece.writes(reads, upto)) || pieces.open.writes(reads, upto);
        if later { Validation::Changed } else { Validation::Unchanged }
    }

    /// Validates without the write lock; also returns the last commit checked.
    pub fn precheck(&self, reads: &ReadSet, upto: SequenceNumber) -> (Validation, SequenceNumber) {
        let mut pieces = self.pieces.lock();
        if !self.is_open() || upto < pieces.from {
            return (Validation::TooOld, upto);
        }
        if pieces.open.bytes.len() >= LOOK_AHEAD_BYTES {
            pieces.close_open();
        }
        let last = pieces.closed.back().map_or(upto, |piece| piece.last.max(upto));
        let later: Vec<Arc<Piece>> = pieces.later(upto).cloned().collect();
        drop(pieces);
        let is_changed = later.iter().any(|piece| piece.writes(reads, upto));
        (if is_changed { Validation::Changed } else { Validation::Unchanged }, last)
    }
}

fn put(bytes: &mut Vec<u8>, key: &[u8], mark: u32) {
    bytes.extend_from_slice(&(key.len() as u32 | mark).to_le_bytes());
    bytes.extend_from_slice(key);
}

impl Pieces {
    fn close_open(&mut self) {
        let last = self.open.last;
        let closed = std::mem::replace(&mut self.open, Piece { last, bytes: Vec::new() });
        self.closed_bytes += closed.bytes.len();
        self.closed.push_back(Arc::new(closed));
    }

    fn later(&self, upto: SequenceNumber) -> impl Iterator<Item = &Arc<Piece>> {
        self.closed.range(self.closed.partition_point(|piece| piece.last <= upto)..)
    }
}

impl Piece {
    fn writes(&self, reads: &ReadSet, upto: SequenceNumber) -> bool {
        let mut rest = self.bytes.as_slice();
        while let Some((sequence, after)) = rest.split_first_chunk() {
            let (keys, after) = take(after);
            rest = after;
            if SequenceNumber::from_le_bytes(*sequence) > upto && is_read(reads, keys) {
                return true;
            }
        }
        false
    }
}

fn is_read(reads: &ReadSet, mut keys: &[u8]) -> bool {
    while let Some(len) = keys.first_chunk() {
        let is_range = u32::from_le_bytes(*len) & RANGE != 0;
        let (key, after) = take(keys);
        keys = after;
        let was_read = if is_range {
            let (end, after) = take(keys);
            keys = after;
            reads.meets(key, end)
        } else {
            reads.has_key(key)
        };
        if was_read {
            return true;
        }
    }
    false
}

fn take(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (len, rest) = bytes.split_at(size_of::<u32>());
    let len = len.first_chunk().map_or(0, |len| u32::from_le_bytes(*len) & !RANGE);
    rest.split_at(len as usize)
}
