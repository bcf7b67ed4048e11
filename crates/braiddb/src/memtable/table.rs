//! The memtable: its interface, counters and options. A commit that finds `bytes` above the
//! limit freezes it (takes it out of use for writes): `make_room` in `db/write/pipeline.rs`.

use super::{
    ChunkPool, MemtableScan,
    arena::Arena,
    filter::Filter,
    node::NodePtr,
    range_tombstones::RangeTombstones,
    tree::Tree,
    writer::{Inserted, TreeWriter},
};
use crate::{
    base::{Content, EntryKind, EntryRef, MAX_SEQUENCE, RangeTombstone, RangeTombstoneSet, SequenceNumber},
    codec::hash64,
    platform::pages::HUGE_PAGE_BYTES,
};
use parking_lot::{Mutex, MutexGuard};
use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

/// Memtables of at least this many huge pages use huge pages alone: smaller chunks cost a page
/// fault per small page, and the pool does not keep them.
const HUGE_CHUNKS_MIN: usize = 4;

#[derive(Clone, Debug)]
pub struct MemtableOptions {
    pub arena_chunk_bytes: usize,
    /// Spares a tree search for absent keys; allocated at once.
    pub filter_bytes: usize,
    pub chunk_pool: Option<Arc<ChunkPool>>,
}

impl MemtableOptions {
    pub fn for_capacity(bytes: usize) -> MemtableOptions {
        MemtableOptions {
            arena_chunk_bytes: if bytes >= HUGE_CHUNKS_MIN * HUGE_PAGE_BYTES {
                HUGE_PAGE_BYTES
            } else {
                (bytes / 8).max(1 << 10)
            },
            // A small entry takes about 150 bytes, so this is at least 16 bits a key.
            filter_bytes: (bytes / 64).clamp(64, 64 << 20),
            chunk_pool: None,
        }
    }

    pub fn is_of_huge_chunks(&self) -> bool {
        self.arena_chunk_bytes == HUGE_PAGE_BYTES
    }
}

impl Default for MemtableOptions {
    fn default() -> MemtableOptions {
        MemtableOptions::for_capacity(64 << 20)
    }
}

/// Recent writes in key order: all versions of all keys, and separately range tombstones.
///
/// Thread safety: one thread at a time writes, through [`Memtable::writer`]; any number of threads
/// read without waiting. A read at a snapshot must begin after (happens-before) all entries at or
/// below the snapshot have been inserted.
#[derive(Debug)]
pub struct Memtable {
    // Dropped before the writer, since it points into the writer's arena.
    tree: Tree,
    filter: Filter,
    tombstones: RangeTombstones,
    counters: Counters,
    writer: Mutex<TreeWriter>,
}

/// Stored by the writer alone, without read-modify-write.
#[derive(Debug)]
struct Counters {
    entries: AtomicUsize,
    keys: AtomicUsize,
    raw_bytes: AtomicUsize,
    arena_bytes: AtomicUsize,
    arena_bytes_used: AtomicUsize,
    min_sequence: AtomicU64,
    max_sequence: AtomicU64,
    earliest_expiry: AtomicU64,
}

#[derive(Debug)]
pub struct MemtableWriter<'a> {
    memtable: &'a Memtable,
    tree: MutexGuard<'a, TreeWriter>,
}

impl Memtable {
    pub fn new(options: MemtableOptions) -> Memtable {
        let filter = Filter::new(options.filter_bytes, options.chunk_pool.clone());
        // SAFETY: both are fields of the memtable, the tree before the writer, and used only
        // together.
        let (writer, tree) = unsafe { TreeWriter::new(Arena::new(options.arena_chunk_bytes, options.chunk_pool)) };
        let counters = Counters {
            entries: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
            raw_bytes: AtomicUsize::new(0),
            earliest_expiry: AtomicU64::new(u64::MAX),
            arena_bytes: AtomicUsize::new(writer.reserved_bytes()),
            arena_bytes_used: AtomicUsize::new(writer.used_bytes()),
            min_sequence: AtomicU64::new(MAX_SEQUENCE),
            max_sequence: AtomicU64::new(0),
        };
        Memtable { tree, filter, tombstones: RangeTombstones::default(), counters, writer: Mutex::new(writer) }
    }

    pub fn writer(&self) -> MemtableWriter<'_> {
        MemtableWriter { memtable: self, tree: self.writer.lock() }
    }

    pub fn get(&self, key: &[u8], snapshot: SequenceNumber) -> Option<EntryRef<'_>> {
        self.get_hashed(key, hash64(key), snapshot)
    }

    pub fn get_hashed(&self, key: &[u8], hash: u64, snapshot: SequenceNumber) -> Option<EntryRef<'_>> {
        if !self.filter.may_contain(hash) {
            return None;
        }
        let version = self.tree.newest(key)?.visible_at(snapshot)?;
        Some(version.entry())
    }

    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    #[inline]
    pub fn has_range_tombstones(&self) -> bool {
        self.tombstones.count() > 0
    }

    pub fn scan(self: &Arc<Self>) -> MemtableScan {
        MemtableScan::new(Arc::clone(self), None)
    }

    pub fn scan_from(self: &Arc<Self>, key: &[u8]) -> MemtableScan {
        MemtableScan::new(Arc::clone(self), Some(key))
    }

    /// Returns the number of keys from each bound to the next, the last `None`. Reads one key of
    /// most leaves.
    pub fn count_keys(&self, ends: &[Option<&[u8]>]) -> Vec<usize> {
        let (mut counts, mut at) = (vec![0; ends.len()], 0);
        let mut leaf = Some(self.tree.first_leaf());
        while let Some(node) = leaf.map(NodePtr::node) {
            leaf = node.after();
            let count = node.count();
            let order = node.order(count);
            let is_beyond =
                |at: usize, rank: usize| ends[at].is_some_and(|end| node.key(usize::from(order[rank])).key() >= end);
            let mut rank = 0;
            while rank < count {
                if !is_beyond(at, count - 1) {
                    counts[at] += count - rank;
                    break;
                }
                if is_beyond(at, rank) {
                    at += 1;
                } else {
                    counts[at] += 1;
                    rank += 1;
                }
            }
        }
        counts
    }

    /// Returns the number of keys from `start` to before `end`. Visits the leaves of the range.
    pub fn count_between(&self, start: &[u8], end: Option<&[u8]>) -> usize {
        let mut found = 0;
        self.visit_leaves(start, end, |_, count| found += count);
        found
    }

    /// Returns at most `max + 1` keys from `start` to before `end`, and the number of keys from each
    /// to the next one. The first key begins the range. Visits the leaves of the range.
    pub fn sample_between(&self, start: &[u8], end: Option<&[u8]>, max: usize) -> Vec<(Vec<u8>, usize)> {
        let (each, mut samples) = (self.count_between(start, end).div_ceil(max.max(1)), Vec::<(Vec<u8>, usize)>::new());
        self.visit_leaves(start, end, |first, count| match samples.last_mut() {
            Some((_, before)) if *before < each => *before += count,
            _ => samples.push((first.to_vec(), count)),
        });
        samples
    }

    /// Passes the first key in the range, and the number of keys in it, of each leaf that has any.
    fn visit_leaves(&self, start: &[u8], end: Option<&[u8]>, mut visit: impl FnMut(&[u8], usize)) {
        // Every later leaf is past the start.
        let (mut leaf, mut start) = (Some(self.tree.leaf_for(start)), Some(start));
        while let Some(node) = leaf.map(NodePtr::node) {
            let count = node.count();
            let order = node.order(count);
            let key = |rank: usize| node.key(usize::from(order[rank])).key();
            let is_before = |rank: &usize| start.is_some_and(|start| key(*rank) < start);
            let first = (0..count).find(|rank| !is_before(rank)).unwrap_or(count);
            let is_last = |end: &[u8]| count > 0 && key(count - 1) >= end;
            let upto = match end.filter(|end| is_last(end)) {
                Some(end) => (first..count).find(|rank| key(*rank) >= end).unwrap_or(count),
                None => count,
            };
            if first < upto {
                visit(key(first), upto - first);
            }
            (leaf, start) = (node.after().filter(|_| upto == count), None);
        }
    }

    pub fn range_tombstones(&self) -> Option<Arc<RangeTombstoneSet>> {
        self.tombstones.get()
    }

    /// Fast for point reads even between inserts of range tombstones.
    pub fn newest_covering(&self, key: &[u8], snapshot: SequenceNumber) -> SequenceNumber {
        self.tombstones.newest_covering(key, snapshot)
    }

    pub fn bytes(&self) -> usize {
        self.counters.arena_bytes.load(Relaxed) + self.filter.bytes() + self.tombstones.bytes()
    }

    pub fn bytes_used(&self) -> usize {
        self.counters.arena_bytes_used.load(Relaxed) + self.filter.bytes() + self.tombstones.bytes()
    }

    pub fn raw_bytes(&self) -> usize {
        self.counters.raw_bytes.load(Relaxed)
    }

    #[inline]
    pub fn entry_count(&self) -> usize {
        self.counters.entries.load(Relaxed)
    }

    pub fn key_count(&self) -> usize {
        self.counters.keys.load(Relaxed)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entry_count() == 0 && self.tombstones.count() == 0
    }

    pub fn min_sequence(&self) -> SequenceNumber {
        self.counters.min_sequence.load(Relaxed)
    }

    /// Microseconds since 1970; `u64::MAX` if no value expires.
    pub fn earliest_expiry(&self) -> u64 {
        self.counters.earliest_expiry.load(Relaxed)
    }

    pub fn max_sequence(&self) -> SequenceNumber {
        self.counters.max_sequence.load(Relaxed)
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }
}

impl Counters {
    #[cold]
    fn note_expiry(&self, value: &[u8]) {
        if let Some(Content { expires_us: Some(expires_us), .. }) = Content::of(EntryKind::Expiring, value) {
            self.earliest_expiry.fetch_min(expires_us, Relaxed);
        }
    }

    fn note_sequence(&self, sequence: SequenceNumber) {
        if sequence < self.min_sequence.load(Relaxed) {
            self.min_sequence.store(sequence, Relaxed);
        }
        if sequence > self.max_sequence.load(Relaxed) {
            self.max_sequence.store(sequence, Relaxed);
        }
    }
}

impl MemtableWriter<'_> {
    /// Inserts a version of a key. Readers at `sequence` or later see it at once.
    ///
    /// Preconditions: valid key length, a value below 4 GiB, and no version of the key with a
    /// higher sequence number. A second insert with the same number replaces the first.
    pub fn insert(&mut self, key: &[u8], sequence: SequenceNumber, kind: EntryKind, value: &[u8]) {
        let Memtable { tree, filter, counters, .. } = self.memtable;
        let entry = EntryRef { key, sequence, kind, value };
        let hash = hash64(key);
        filter.prefetch(hash);
        let inserted = self.tree.insert(tree, entry, || filter.insert(hash));
        if inserted == Inserted::Key {
            counters.keys.store(counters.keys.load(Relaxed) + 1, Relaxed);
        }
        if inserted != Inserted::Again {
            counters.entries.store(counters.entries.load(Relaxed) + 1, Relaxed);
            let raw_bytes = counters.raw_bytes.load(Relaxed) + key.len() + value.len();
            counters.raw_bytes.store(raw_bytes, Relaxed);
        }
        counters.arena_bytes.store(self.tree.reserved_bytes(), Relaxed);
        counters.arena_bytes_used.store(self.tree.used_bytes(), Relaxed);
        counters.note_sequence(sequence);
        if kind == EntryKind::Expiring {
            counters.note_expiry(value);
        }
    }

    pub fn insert_range_tombstone(&mut self, tombstone: RangeTombstone) {
        self.memtable.counters.note_sequence(tombstone.sequence);
        self.memtable.tombstones.insert(tombstone);
    }
}
