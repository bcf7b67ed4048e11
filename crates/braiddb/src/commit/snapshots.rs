//! The list of active readers and which of them have expired, and the visible sequence number.
//!
//! The holder of the lock `write` publishes; readers load. Snapshots, and the strata for a flush or
//! merge, are taken under the list's lock: later snapshots are at or above the number published by
//! then. Readers are listed in order of arrival, so also of sequence numbers and times.

use crate::base::{ReaderKind, SequenceNumber};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
};

/// Readers for which the list keeps memory. Above that, it shrinks when three quarters are empty.
const CAPACITY_KEPT: usize = 64;

#[derive(Clone, Copy, Debug)]
pub struct Held {
    id: u64,
    pub sequence: SequenceNumber,
    pub taken_ns: u64,
    /// Microseconds since 1970: values expired by then are invisible.
    pub taken_us: u64,
}

#[derive(Debug)]
struct Reader {
    id: u64,
    kind: ReaderKind,
    is_reported: bool,
    /// Zero: released, until it can be removed.
    holds: usize,
    sequence: SequenceNumber,
    taken_ns: u64,
    taken_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub kind: ReaderKind,
    pub sequence: SequenceNumber,
    pub taken_ns: u64,
    /// Refuses reads, and pins no versions.
    pub is_expired: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct AgedReaders {
    pub overstaying: Vec<Seen>,
    pub expired: Vec<Seen>,
}

/// A number on its own cache lines: every read at a snapshot loads it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone(AtomicU64);

#[derive(Debug, Default)]
struct Readers {
    /// By id. The first and the last are not released.
    list: VecDeque<Reader>,
    released: usize,
    next_id: u64,
    now_ns: u64,
    now_us: u64,
}

/// Active and expired readers.
///
/// # Expiry
///
/// An expired reader pins no versions, though its handles still exist. All readers taken before
/// `expired_before_ns` have expired; that moment only increases. [`SnapshotList::check_ages`] moves
/// it under the list's lock; reads load it without.
///
/// INVARIANT E: a read that is not refused has a state with every version that it needs. The order:
///
/// 1. A read **loads the read state first**, then calls [`SnapshotList::is_expired`]. If not
///    expired, it reads from that state without another check. Before it moves to another state, it
///    loads that state and checks again.
/// 2. `check_ages` moves the moment, *then* [`SnapshotList::strata`] leaves the reader out; both
///    under the lock.
/// 3. A flush or merge takes the strata *before* it drops versions, and publishes the new state
///    *after*.
///
/// Suppose a read loads a state that lacks a version it needs. The strata of that flush or merge
/// were taken without the reader, so after the moment was moved (2). The state was published after
/// that (3), and the read checked after loading it (1), so it was refused. An accepted read may
/// continue for any time: a state never changes, and pins its memtables, runs and blob files.
#[derive(Debug, Default)]
pub struct SnapshotList {
    visible: AtomicU64,
    readers: Mutex<Readers>,
    expired_before_ns: Alone,
}

impl SnapshotList {
    pub fn new(visible: SequenceNumber) -> SnapshotList {
        SnapshotList { visible: AtomicU64::new(visible), ..SnapshotList::default() }
    }

    #[inline]
    pub fn visible(&self) -> SequenceNumber {
        self.visible.load(Ordering::Acquire)
    }

    /// Called under the lock `write`, with increasing numbers.
    pub fn publish(&self, sequence: SequenceNumber) {
        self.visible.store(sequence, Ordering::Release);
    }

    /// Each must be released.
    pub fn acquire(&self, kind: ReaderKind, now: impl FnOnce() -> (u64, u64)) -> Held {
        let mut readers = self.readers.lock();
        let sequence = self.visible();
        // Read the clock afterwards: a reader sees values as expired if the commit's writer did.
        let (now_ns, now_us) = now();
        // Another thread may have seen a later time: the new reader must not be born expired.
        let taken_ns = readers.now_ns.max(now_ns);
        readers.now_ns = taken_ns;
        // It must not see values that jobs have already dropped as expired.
        let taken_us = readers.now_us.max(now_us);
        readers.now_us = taken_us;
        let id = readers.next_id;
        readers.next_id += 1;
        readers.list.push_back(Reader { id, kind, is_reported: false, holds: 1, sequence, taken_ns, taken_us });
        Held { id, sequence, taken_ns, taken_us }
    }

    pub fn acquire_again(&self, held: &Held) {
        if let Some(reader) = self.readers.lock().find(held) {
            reader.holds += 1;
        }
    }

    pub fn release(&self, held: &Held) {
        let mut readers = self.readers.lock();
        if let Some(reader) = readers.find(held) {
            reader.holds -= 1;
            if reader.holds == 0 {
                readers.remove_released();
            }
        }
    }

    /// Call it after loading the read state.
    #[inline]
    pub fn is_expired(&self, held: &Held) -> bool {
        held.taken_ns < self.expired_before_ns.0.load(Ordering::Acquire)
    }

    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.readers.lock().list.capacity()
    }

    pub fn kind_of(&self, held: &Held) -> Option<ReaderKind> {
        self.readers.lock().find(held).map(|reader| reader.kind)
    }

    /// Sequence numbers, ascending, at which flushes and merges keep the newest version. The last
    /// is the visible one.
    pub fn strata(&self) -> Vec<SequenceNumber> {
        let readers = self.readers.lock();
        let visible = self.visible();
        let mut strata: Vec<SequenceNumber> = Vec::new();
        let held = self.holding(&readers).map(|reader| reader.sequence);
        for sequence in held.chain([visible]) {
            if strata.last() != Some(&sequence) {
                strata.push(sequence);
            }
        }
        strata
    }

    /// Returns the time up to which expired values are invisible to all readers, now and later.
    pub fn expired_by(&self, now_us: u64) -> u64 {
        let mut readers = self.readers.lock();
        readers.now_us = readers.now_us.max(now_us);
        let now_us = readers.now_us;
        self.holding(&readers).next().map_or(now_us, |first| first.taken_us)
    }

    pub fn in_use(&self) -> (usize, Option<Seen>) {
        let readers = self.readers.lock();
        let mut holding = self.holding(&readers);
        let oldest = holding.next().map(|reader| reader.seen(false));
        (holding.count() + usize::from(oldest.is_some()), oldest)
    }

    /// Readers taken at or before a moment, oldest first: up to `count_max` that pin versions, then
    /// as many expired ones.
    pub fn oldest(&self, taken_before_ns: u64, count_max: usize) -> Vec<Seen> {
        let readers = self.readers.lock();
        let old = || self.holding(&readers).take_while(|reader| reader.taken_ns <= taken_before_ns);
        let expired = readers.held().take_while(|reader| self.has_expired(reader));
        let expired = expired.take(count_max).map(|reader| reader.seen(true));
        old().take(count_max).map(|reader| reader.seen(false)).chain(expired).collect()
    }

    /// Expires readers older than `age_max_ns`; returns those that reached `age_warn_ns`, once
    /// each.
    pub fn check_ages(&self, now_ns: u64, age_warn_ns: u64, age_max_ns: u64) -> AgedReaders {
        let mut readers = self.readers.lock();
        readers.now_ns = readers.now_ns.max(now_ns);
        let now_ns = readers.now_ns;
        let before = self.expired_before_ns.0.load(Ordering::Relaxed);
        let expired_before = before.max(now_ns.saturating_sub(age_max_ns));
        // Before the lock is released: later strata leave these readers out.
        self.expired_before_ns.0.store(expired_before, Ordering::Release);
        let mut looked = AgedReaders::default();
        for reader in readers.list.iter_mut().filter(|reader| reader.holds > 0) {
            let age_ns = now_ns.saturating_sub(reader.taken_ns);
            let is_expired = reader.taken_ns < expired_before;
            if !is_expired && age_ns < age_warn_ns {
                break;
            }
            if is_expired && reader.taken_ns >= before {
                looked.expired.push(reader.seen(true));
            } else if !is_expired && !reader.is_reported {
                reader.is_reported = true;
                looked.overstaying.push(reader.seen(false));
            }
        }
        looked
    }

    fn has_expired(&self, reader: &Reader) -> bool {
        reader.taken_ns < self.expired_before_ns.0.load(Ordering::Relaxed)
    }

    fn holding<'a>(&'a self, readers: &'a Readers) -> impl Iterator<Item = &'a Reader> {
        readers.held().skip_while(|reader| self.has_expired(reader))
    }
}

impl Readers {
    fn find(&mut self, held: &Held) -> Option<&mut Reader> {
        // Mostly the last one.
        let at = match self.list.back() {
            Some(last) if last.id == held.id => self.list.len() - 1,
            _ => self.list.binary_search_by_key(&held.id, |reader| reader.id).ok()?,
        };
        self.list.get_mut(at).filter(|reader| reader.holds > 0)
    }

    /// Removes released readers at both ends, and all if more than half are released. Amortized
    /// constant time.
    fn remove_released(&mut self) {
        self.released += 1;
        while self.list.back().is_some_and(|reader| reader.holds == 0) {
            self.list.pop_back();
            self.released -= 1;
        }
        while self.list.front().is_some_and(|reader| reader.holds == 0) {
            self.list.pop_front();
            self.released -= 1;
        }
        if self.released * 2 > self.list.len() {
            self.list.retain(|reader| reader.holds > 0);
            self.released = 0;
        }
        let (len, capacity) = (self.list.len(), self.list.capacity());
        if capacity > CAPACITY_KEPT && len < capacity / 4 {
            self.list.shrink_to((2 * len).max(CAPACITY_KEPT));
        }
    }

    fn held(&self) -> impl Iterator<Item = &Reader> {
        self.list.iter().filter(|reader| reader.holds > 0)
    }
}

impl Reader {
    fn seen(&self, is_expired: bool) -> Seen {
        Seen { kind: self.kind, sequence: self.sequence, taken_ns: self.taken_ns, is_expired }
    }
}
