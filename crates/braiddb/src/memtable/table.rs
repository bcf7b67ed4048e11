//! The memtable.

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

/// A memtable of so many huge pages or more is made of nothing else: smaller chunks are neither huge pages, each of whose
/// small ones the system would have to give one by one, nor kept for the next memtable.
const HUGE_CHUNKS_MIN: usize = 4;

/// How a memtable takes its memory.
#[derive(Clone, Debug)]
pub struct MemtableOptions {
    /// The size of the arena's chunks; the first ones are smaller.
    pub arena_chunk_bytes: usize,
    /// The size of the filter that keeps reads of absent keys out of the tree. It is taken at once.
    pub filter_bytes: usize,
    /// Where large chunks come from and go to.
    pub chunk_pool: Option<Arc<ChunkPool>>,
}

impl MemtableOptions {
    /// Options for a memtable that will be frozen at about so many bytes.
    pub fn for_capacity(bytes: usize) -> MemtableOptions {
        MemtableOptions {
            arena_chunk_bytes: if bytes >= HUGE_CHUNKS_MIN * HUGE_PAGE_BYTES {
                HUGE_PAGE_BYTES
            } else {
                (bytes / 8).max(1 << 10)
            },
            // A small entry takes about 150 bytes with its index, so this is 16 bits a key or more.
            filter_bytes: (bytes / 64).clamp(64, 64 << 20),
            chunk_pool: None,
        }
    }

    /// Whether it is made of chunks such as a [`ChunkPool`] has.
    pub fn is_of_huge_chunks(&self) -> bool {
        self.arena_chunk_bytes == HUGE_PAGE_BYTES
    }
}

impl Default for MemtableOptions {
    fn default() -> MemtableOptions {
        MemtableOptions::for_capacity(64 << 20)
    }
}

/// Recent writes in order: all versions of all keys written since it was made, and range tombstones apart from them.
///
/// Thread safety: one thread at a time writes, through [`Memtable::writer`]; any number of threads read meanwhile and
/// never wait for it. A read at a snapshot must begin after everything at or below that snapshot has been inserted,
/// ordered by the way in which the reader learned the snapshot. What is inserted during a read is beyond its
/// snapshot and not seen.
#[derive(Debug)]
pub struct Memtable {
    // Dropped before the writer, whose arena it points into.
    tree: Tree,
    filter: Filter,
    tombstones: RangeTombstones,
    counters: Counters,
    writer: Mutex<TreeWriter>,
}

/// Stored by the one writer, so that no read-modify-write is needed.
#[derive(Debug)]
struct Counters {
    entries: AtomicUsize,
    raw_bytes: AtomicUsize,
    arena_bytes: AtomicUsize,
    arena_bytes_used: AtomicUsize,
    min_sequence: AtomicU64,
    max_sequence: AtomicU64,
    earliest_expiry: AtomicU64,
}

/// The right to write to a memtable, held for a group of writes. Others wait for it; readers do not.
#[derive(Debug)]
pub struct MemtableWriter<'a> {
    memtable: &'a Memtable,
    tree: MutexGuard<'a, TreeWriter>,
}

impl Memtable {
    /// An empty memtable.
    pub fn new(options: MemtableOptions) -> Memtable {
        let filter = Filter::new(options.filter_bytes, options.chunk_pool.clone());
        // SAFETY: both are fields of the memtable, the tree in front of the writer, and only meet each other.
        let (writer, tree) = unsafe { TreeWriter::new(Arena::new(options.arena_chunk_bytes, options.chunk_pool)) };
        let counters = Counters {
            entries: AtomicUsize::new(0),
            raw_bytes: AtomicUsize::new(0),
            earliest_expiry: AtomicU64::new(u64::MAX),
            arena_bytes: AtomicUsize::new(writer.reserved_bytes()),
            arena_bytes_used: AtomicUsize::new(writer.used_bytes()),
            min_sequence: AtomicU64::new(MAX_SEQUENCE),
            max_sequence: AtomicU64::new(0),
        };
        Memtable { tree, filter, tombstones: RangeTombstones::default(), counters, writer: Mutex::new(writer) }
    }

    /// Begins to write.
    pub fn writer(&self) -> MemtableWriter<'_> {
        MemtableWriter { memtable: self, tree: self.writer.lock() }
    }

    /// The newest version of `key` at or below `snapshot`, tombstones included.
    pub fn get(&self, key: &[u8], snapshot: SequenceNumber) -> Option<EntryRef<'_>> {
        self.get_hashed(key, hash64(key), snapshot)
    }

    /// [`Memtable::get`] for who has the key's [`hash64`].
    pub fn get_hashed(&self, key: &[u8], hash: u64, snapshot: SequenceNumber) -> Option<EntryRef<'_>> {
        if !self.filter.may_contain(hash) {
            return None;
        }
        let version = self.tree.newest(key)?.visible_at(snapshot)?;
        Some(version.entry())
    }

    /// Whether there may be a version of a key with this [`hash64`].
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// Whether it holds range tombstones.
    #[inline]
    pub fn has_range_tombstones(&self) -> bool {
        self.tombstones.count() > 0
    }

    /// All entries, in order of key and, for each key, newest first.
    pub fn scan(self: &Arc<Self>) -> MemtableScan {
        MemtableScan::new(Arc::clone(self), None)
    }

    /// The entries of [`Memtable::scan`] whose key is `key` or greater.
    pub fn scan_from(self: &Arc<Self>, key: &[u8]) -> MemtableScan {
        MemtableScan::new(Arc::clone(self), Some(key))
    }

    /// How many keys lie before each of these bounds and not before the one in front of it; the last is `None`. Of most
    /// leaves one key is read.
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

    /// The range tombstones as one set, which is made anew after an insert; `None` if there are none, which costs one load.
    pub fn range_tombstones(&self) -> Option<Arc<RangeTombstoneSet>> {
        self.tombstones.get()
    }

    /// The newest range tombstone at or below `snapshot` that covers `key`; 0 if there is none. For point reads: inserts of
    /// range tombstones in between cost little.
    pub fn newest_covering(&self, key: &[u8], snapshot: SequenceNumber) -> SequenceNumber {
        self.tombstones.newest_covering(key, snapshot)
    }

    /// Bytes of memory taken: arena chunks, filter and range tombstones.
    pub fn bytes(&self) -> usize {
        self.counters.arena_bytes.load(Relaxed) + self.filter.bytes() + self.tombstones.bytes()
    }

    /// Bytes of those that are in use: what is taken grows by the chunk.
    pub fn bytes_used(&self) -> usize {
        self.counters.arena_bytes_used.load(Relaxed) + self.filter.bytes() + self.tombstones.bytes()
    }

    /// Bytes of the keys and values in it.
    pub fn raw_bytes(&self) -> usize {
        self.counters.raw_bytes.load(Relaxed)
    }

    /// How many entries it holds, counting versions and not range tombstones.
    #[inline]
    pub fn entry_count(&self) -> usize {
        self.counters.entries.load(Relaxed)
    }

    /// Whether it holds neither entries nor range tombstones.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entry_count() == 0 && self.tombstones.count() == 0
    }

    /// The least sequence number of entries and range tombstones; [`MAX_SEQUENCE`] if it is empty.
    pub fn min_sequence(&self) -> SequenceNumber {
        self.counters.min_sequence.load(Relaxed)
    }

    /// When the first of its values expires, in microseconds since 1970; `u64::MAX` if none does.
    pub fn earliest_expiry(&self) -> u64 {
        self.counters.earliest_expiry.load(Relaxed)
    }

    /// The greatest sequence number of entries and range tombstones; 0 if it is empty.
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
    /// Inserts a version of a key. It is visible to readers at `sequence` or later at once.
    ///
    /// Preconditions: the key is no longer than an internal key may be, the value shorter than 4 GiB, and `sequence` not
    /// below that of any version of the key. A second insert with the same sequence number replaces the first for
    /// readers; its memory stays taken.
    pub fn insert(&mut self, key: &[u8], sequence: SequenceNumber, kind: EntryKind, value: &[u8]) {
        let Memtable { tree, filter, counters, .. } = self.memtable;
        let entry = EntryRef { key, sequence, kind, value };
        let hash = hash64(key);
        filter.prefetch(hash);
        let inserted = self.tree.insert(tree, entry, || filter.insert(hash));
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

    /// Adds a range tombstone.
    pub fn insert_range_tombstone(&mut self, tombstone: RangeTombstone) {
        self.memtable.counters.note_sequence(tombstone.sequence);
        self.memtable.tombstones.insert(tombstone);
    }
}
