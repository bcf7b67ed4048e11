//! The list of readers in use, and the sequence number that new readers see.
//!
//! The commit leader publishes; readers load. A snapshot is taken under the list's lock, and so is the set that a
//! flush or merge keeps versions for: every snapshot taken later is at or above the number published by then.
//!
//! Readers stand in the order in which they came. So they are in order of their sequence numbers as well, and of the times
//! when they were taken, which never go back: a reader never counts as taken before what the list has been told of the clock.

use crate::base::{ReaderKind, SequenceNumber};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

/// What a reader has of the list: what it sees, and since when.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Its place in the list.
    id: u64,
    /// The last commit that it sees.
    pub sequence: SequenceNumber,
    /// When that was taken.
    pub taken_ns: u64,
    /// The same by the database's time, in microseconds since 1970: what had expired by then, it does not see.
    pub taken_us: u64,
}

/// A reader in the list.
#[derive(Debug)]
struct Reader {
    kind: ReaderKind,
    was_told_of: bool,
    /// How many handles it has.
    holds: usize,
    sequence: SequenceNumber,
    taken_ns: u64,
    taken_us: u64,
}

/// A reader, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub kind: ReaderKind,
    pub sequence: SequenceNumber,
    pub taken_ns: u64,
    /// Whether it may not read any more, and holds no versions.
    pub is_expired: bool,
}

/// What a look at the readers has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Those that have grown too old to be passed over in silence, each once.
    pub overstaying: Vec<Seen>,
    /// Those that have expired since the last look.
    pub expired: Vec<Seen>,
}

/// In memory that nothing else is in: each read at a snapshot loads it, and what commits and new readers write beside it would
/// have to be fetched each time.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone(AtomicU64);

#[derive(Debug, Default)]
struct Readers {
    by_id: BTreeMap<u64, Reader>,
    next_id: u64,
    /// The latest times that the list was told.
    now_ns: u64,
    now_us: u64,
}

/// Which readers are in use, and which of them have stayed for too long.
///
/// # Expiry
///
/// Readers older than a limit may be made to expire: they hold no versions from then on, though their handles are still
/// there. All that were taken before one moment, `expired_before_ns`, have expired; that moment only ever moves on. It is
/// moved under the list's lock, by [`SnapshotList::look`], and read without it. What orders it and the reads:
///
/// 1. A read **loads the read state first**, and then asks [`SnapshotList::is_expired`]. If its reader has not expired, it reads from
///    that state and no other. So does what it does next, without asking again; before it goes over to another state, it asks
///    again, after that was loaded.
/// 2. The moment is moved, and *then* the reader is left out of [`SnapshotList::strata`], both under the lock.
/// 3. Whoever drops versions takes the strata *before*, and publishes the state that lacks them *after*.
///
/// Suppose that a read finds a state that lacks what its reader was to see. Then the strata of that flush or merge were taken when
/// the reader was left out of them, so after the moment was moved (2, by the lock); the state was published after that (3),
/// and the read asked after it had loaded that state (1, by the state's pointer). So the moment's move happened before the read
/// asked, which then cannot have seen it where it was before: the read was refused. Conversely, a read that was not
/// refused has a state that lacks nothing it needs, and goes on in it however long it takes: a state never changes, and what it
/// refers to (memtables, runs, blob files) stays as long as it does, hold or no hold. That is how reads of now work anyhow,
/// which hold nothing.
#[derive(Debug, Default)]
pub struct SnapshotList {
    visible: AtomicU64,
    readers: Mutex<Readers>,
    expired_before_ns: Alone,
}

impl SnapshotList {
    /// A list without snapshots.
    pub fn new(visible: SequenceNumber) -> SnapshotList {
        SnapshotList { visible: AtomicU64::new(visible), ..SnapshotList::default() }
    }

    /// The newest published commit.
    #[inline]
    pub fn visible(&self) -> SequenceNumber {
        self.visible.load(Ordering::Acquire)
    }

    /// Lets readers see all commits up to `sequence`. Called by the commit leader only, with growing numbers.
    pub fn publish(&self, sequence: SequenceNumber) {
        self.visible.store(sequence, Ordering::Release);
    }

    /// Takes a snapshot of now. Each must be released.
    pub fn acquire(&self, kind: ReaderKind, now: impl FnOnce() -> (u64, u64)) -> Held {
        let mut readers = self.readers.lock();
        let sequence = self.visible();
        // After that: who sees a commit sees as expired what had expired for whoever made it.
        let (now_ns, now_us) = now();
        // Who was held up after looking at the clock has not been a reader meanwhile, and must not be born expired.
        let taken_ns = readers.now_ns.max(now_ns);
        readers.now_ns = taken_ns;
        // Nor must it see what jobs have let go of meanwhile, since it had expired.
        let taken_us = readers.now_us.max(now_us);
        readers.now_us = taken_us;
        let id = readers.next_id;
        readers.next_id += 1;
        readers.by_id.insert(id, Reader { kind, was_told_of: false, holds: 1, sequence, taken_ns, taken_us });
        Held { id, sequence, taken_ns, taken_us }
    }

    /// Takes another hold of a snapshot that is in use. It is the same reader, of the same age, and may have expired.
    pub fn acquire_again(&self, held: &Held) {
        if let Some(reader) = self.readers.lock().by_id.get_mut(&held.id) {
            reader.holds += 1;
        }
    }

    /// Gives a snapshot back.
    pub fn release(&self, held: &Held) {
        let mut readers = self.readers.lock();
        if let Some(reader) = readers.by_id.get_mut(&held.id) {
            reader.holds -= 1;
            if reader.holds == 0 {
                readers.by_id.remove(&held.id);
            }
        }
    }

    /// Whether a reader holds nothing any more. To be asked after the state was loaded that is read from.
    #[inline]
    pub fn is_expired(&self, held: &Held) -> bool {
        held.taken_ns < self.expired_before_ns.0.load(Ordering::Acquire)
    }

    /// What kind of reader has this.
    pub fn kind_of(&self, held: &Held) -> Option<ReaderKind> {
        self.readers.lock().by_id.get(&held.id).map(|reader| reader.kind)
    }

    /// What a flush or merge must keep: for each of these, ascending, the newest version at or below it. The last is
    /// what is visible now.
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

    /// The time by which no reader sees what had expired then, now or later: that of the one that was taken first, or now.
    pub fn expired_by(&self, now_us: u64) -> u64 {
        let mut readers = self.readers.lock();
        readers.now_us = readers.now_us.max(now_us);
        let now_us = readers.now_us;
        self.holding(&readers).next().map_or(now_us, |first| first.taken_us)
    }

    /// How many readers hold something, and the oldest of them.
    pub fn in_use(&self) -> (usize, Option<Seen>) {
        let readers = self.readers.lock();
        let mut holding = self.holding(&readers);
        let oldest = holding.next().map(|reader| reader.seen(false));
        (holding.count() + usize::from(oldest.is_some()), oldest)
    }

    /// Those taken at or before a moment: as many of the oldest that hold something, and then as many that have expired and
    /// whose handles are still there.
    pub fn oldest(&self, taken_before_ns: u64, count_max: usize) -> Vec<Seen> {
        let readers = self.readers.lock();
        let old = || self.holding(&readers).take_while(|reader| reader.taken_ns <= taken_before_ns);
        let expired = readers.by_id.values().take_while(|reader| self.has_expired(reader));
        let expired = expired.take(count_max).map(|reader| reader.seen(true));
        old().take(count_max).map(|reader| reader.seen(false)).chain(expired).collect()
    }

    /// Has readers expire that are older than `age_max_ns`, and says which have grown as old as `age_told_ns`, each once.
    pub fn look(&self, now_ns: u64, age_told_ns: u64, age_max_ns: u64) -> Looked {
        let mut readers = self.readers.lock();
        readers.now_ns = readers.now_ns.max(now_ns);
        let now_ns = readers.now_ns;
        let before = self.expired_before_ns.0.load(Ordering::Relaxed);
        let expired_before = before.max(now_ns.saturating_sub(age_max_ns));
        // Before the lock is given up, after which strata are taken that leave them out.
        self.expired_before_ns.0.store(expired_before, Ordering::Release);
        let mut looked = Looked::default();
        for reader in readers.by_id.values_mut() {
            let age_ns = now_ns.saturating_sub(reader.taken_ns);
            let is_expired = reader.taken_ns < expired_before;
            if !is_expired && age_ns < age_told_ns {
                break;
            }
            if is_expired && reader.taken_ns >= before {
                looked.expired.push(reader.seen(true));
            } else if !is_expired && !reader.was_told_of {
                reader.was_told_of = true;
                looked.overstaying.push(reader.seen(false));
            }
        }
        looked
    }

    fn has_expired(&self, reader: &Reader) -> bool {
        reader.taken_ns < self.expired_before_ns.0.load(Ordering::Relaxed)
    }

    /// Those that have not expired: the younger ones.
    fn holding<'a>(&'a self, readers: &'a Readers) -> impl Iterator<Item = &'a Reader> {
        readers.by_id.values().skip_while(|reader| self.has_expired(reader))
    }
}

impl Reader {
    fn seen(&self, is_expired: bool) -> Seen {
        Seen { kind: self.kind, sequence: self.sequence, taken_ns: self.taken_ns, is_expired }
    }
}
