//! The window: which keys the latest commits have written.
//!
//! Commits are noted here while transactions are open, and for a while after: the leader of a commit group notes each commit
//! before it is published, and checks the group's own transactions against all noted before them. So a check costs what
//! was written meanwhile, and nobody pays for it who has no transactions.
//!
//! What is noted stands in pieces. The leader adds to the last one; whoever looks ahead has that one closed, and goes through
//! the closed ones without holding anybody up. When there are too many bytes of them, the oldest go.
//!
//! # Concurrency
//!
//! The window is opened and closed only by who holds the right to write, so that the leader knows which without a look at what
//! others change. A transaction joins before it takes its snapshot: it counts itself in, and then sees whether the window is
//! open; the leader who closes it does so first, and then sees whether anybody has counted himself in. One of them sees the
//! other, as all four steps have one order (`SeqCst`).

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

/// After so many commit groups without transactions the window is closed.
const IDLE_GROUPS_MAX: u32 = 4096;

/// A piece is closed at this size.
const PIECE_BYTES: usize = 32 << 10;

/// Less than so many bytes are left for the leader to look through, and make no piece of their own.
const LOOK_AHEAD_BYTES: usize = 2 << 10;

/// Marks the key length of a range.
const RANGE: u32 = 1 << 31;

/// What became of what was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    /// None of it was written.
    #[default]
    Unchanged,
    /// Some of it was.
    Changed,
    /// That is not known any more.
    TooOld,
}

/// Keys that some commits in a row have written: for each commit its number (u64) and the length of what follows (u32), then
/// its keys, each after its length (u32); of a range, marked in the length, the end follows likewise.
#[derive(Clone, Debug, Default)]
struct Piece {
    last: SequenceNumber,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Pieces {
    /// All commits after this one, and up to the last, are noted.
    from: SequenceNumber,
    closed: VecDeque<Arc<Piece>>,
    /// Bytes of those.
    closed_bytes: usize,
    open: Piece,
}

/// The keys that the latest commits have written.
#[derive(Debug)]
pub struct Window {
    /// Transactions that count on it.
    users: AtomicUsize,
    is_open: AtomicBool,
    /// Commit groups since it was last seen to have users, by the leader.
    idle_groups: AtomicUsize,
    pieces: Mutex<Pieces>,
    bytes_max: usize,
}

impl Window {
    /// A closed window that will keep about so many bytes.
    pub fn new(bytes_max: usize) -> Window {
        Window {
            users: AtomicUsize::new(0),
            is_open: AtomicBool::new(false),
            idle_groups: AtomicUsize::new(0),
            pieces: Mutex::default(),
            bytes_max,
        }
    }

    /// Joins; each must leave. `false` if the window has to be opened for that, by whoever gets the right to write.
    pub fn join(&self) -> bool {
        self.users.fetch_add(1, Ordering::SeqCst);
        self.is_open.load(Ordering::SeqCst)
    }

    /// One that joined goes.
    pub fn leave(&self) {
        self.users.fetch_sub(1, Ordering::Release);
    }

    /// Begins to note commits after `last`, unless that was begun already. The caller has the right to write.
    pub fn open(&self, last: SequenceNumber) {
        if !self.is_open() {
            *self.pieces.lock() = Pieces { from: last, open: Piece { last, ..Piece::default() }, ..Pieces::default() };
            self.is_open.store(true, Ordering::SeqCst);
        }
    }

    /// Whether all commits after this one are noted.
    pub fn reaches(&self, upto: SequenceNumber) -> bool {
        let pieces = self.pieces.lock();
        self.is_open() && upto >= pieces.from
    }

    /// Whether commits are noted. For who has the right to write.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Closes the window if it has had no users for long. Called by the leader once a group.
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
            // It was not noticed to be closed, or else whoever joined waits for the right to write and opens it again.
            self.is_open.store(true, Ordering::SeqCst);
            return;
        }
        *self.pieces.lock() = Pieces::default();
    }

    /// Notes what a commit writes. Called by the leader, with growing numbers, while the window is open.
    pub fn note(&self, sequence: SequenceNumber, batch: &[u8]) {
        let mut pieces = self.pieces.lock();
        let pieces = &mut *pieces;
        // Whoever has looked at a number does not look at it again.
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

    /// Whether a commit after `upto` has written what was read. For the leader.
    pub fn look(&self, reads: &ReadSet, upto: SequenceNumber) -> Validation {
        let pieces = self.pieces.lock();
        if !self.is_open() || upto < pieces.from {
            return Validation::TooOld;
        }
        let later = pieces.later(upto).any(|piece| piece.writes(reads, upto)) || pieces.open.writes(reads, upto);
        if later { Validation::Changed } else { Validation::Unchanged }
    }

    /// The same for who has no right to write, and the last commit that was looked at.
    pub fn look_ahead(&self, reads: &ReadSet, upto: SequenceNumber) -> (Validation, SequenceNumber) {
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

    /// The closed pieces that hold a commit after `upto`.
    fn later(&self, upto: SequenceNumber) -> impl Iterator<Item = &Arc<Piece>> {
        self.closed.range(self.closed.partition_point(|piece| piece.last <= upto)..)
    }
}

impl Piece {
    /// Whether a commit after `upto` writes what was read.
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

/// Whether one of a commit's keys was read.
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

/// Splits off what stands after its length. The bytes are the window's own.
fn take(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (len, rest) = bytes.split_at(size_of::<u32>());
    let len = len.first_chunk().map_or(0, |len| u32::from_le_bytes(*len) & !RANGE);
    rest.split_at(len as usize)
}
