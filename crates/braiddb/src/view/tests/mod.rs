//! Compares views with a sorted list.

mod damage;
mod exact;
mod first_blocks;
mod folding;
mod reading;
mod seek_cost;

use super::*;
use crate::base::{Cursor, EntryKind, EntryRef, RangeTombstone, RangeTombstoneSet, SequenceNumber};
use crate::cache::BlockCache;
use crate::codec::Compression;
use crate::platform::{MemVfs, Vfs};
use crate::table::{KeyBlocks, Run, RunOptions, TableContext};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next_u64() % limit as u64) as usize
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Hashed,
    /// Decimal numbers after a shared prefix, in three trees.
    Numbered,
    /// A few bytes of {0, 1, 255}: keys are prefixes of others and end in zeros.
    Hostile,
    /// Up to 65 kB, with early or late differences.
    Long,
    Few,
}

impl Shape {
    pub(super) const ALL: [Shape; 5] = [Shape::Hashed, Shape::Numbered, Shape::Hostile, Shape::Long, Shape::Few];

    pub(super) fn key(self, random: &mut Random) -> Vec<u8> {
        match self {
            Shape::Hashed => [&[0, 0, 0, 7], &random.next_u64().to_be_bytes()[..]].concat(),
            Shape::Numbered => {
                let tree = [0, 0, 1, random.below(3) as u8];
                [&tree[..], format!("a shared prefix/item{:05}", random.below(3000)).as_bytes()].concat()
            }
            Shape::Hostile => {
                let mut key = if random.one_in(3) { vec![9; random.below(3) * 140] } else { Vec::new() };
                key.extend((0..random.below(9)).map(|_| [0, 0, 1, 0xff][random.below(4)]));
                key
            }
            Shape::Long => {
                let mut key = vec![3; [0, 8, 300, 64_000][random.below(4)]];
                key.extend(random.next_u64().to_be_bytes()[..1 + random.below(8)].iter());
                key.resize(key.len() + [0, 1, 900][random.below(3)], 0);
                key
            }
            Shape::Few => vec![0, 0, 0, 1, random.below(5) as u8],
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) key: Vec<u8>,
    pub(super) sequence: SequenceNumber,
    pub(super) kind: EntryKind,
    pub(super) value: Vec<u8>,
}

impl Owned {
    fn of(entry: EntryRef<'_>) -> Owned {
        let EntryRef { key, sequence, kind, value } = entry;
        Owned { key: key.to_vec(), sequence, kind, value: value.to_vec() }
    }

    fn borrow(&self) -> EntryRef<'_> {
        EntryRef { key: &self.key, sequence: self.sequence, kind: self.kind, value: &self.value }
    }
}

pub(super) struct World {
    pub(super) ctx: TableContext,
    pub(super) random: Random,
    pub(super) runs: Vec<Arc<Run>>,
    pub(super) entries: Vec<Owned>,
    tombstones: Vec<RangeTombstone>,
    covering: RangeTombstoneSet,
    pub(super) sequence: SequenceNumber,
    files: u64,
    pub(super) block_bytes: usize,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let vfs = Arc::new(MemVfs::new());
        vfs.create_dir_all(Path::new("/db")).unwrap();
        World {
            ctx: TableContext::new(vfs, BlockCache::new(16 << 20)),
            random: Random::new(seed),
            runs: Vec::new(),
            entries: Vec::new(),
            tombstones: Vec::new(),
            covering: RangeTombstoneSet::default(),
            sequence: 0,
            files: seed * 1000,
            block_bytes: 512,
        }
    }

    pub(super) fn new_file(&mut self, kind: &str) -> (PathBuf, u64) {
        self.files += 1;
        (PathBuf::from(format!("/db/{:06}.{kind}", self.files)), self.files)
    }

    /// `tombstones`: number of range tombstones.
    pub(super) fn add_run(&mut self, shape: Shape, count: usize, tombstones: usize) {
        let mut entries = Vec::new();
        for _ in 0..count {
            self.sequence += 1;
            let mut key = shape.key(&mut self.random);
            if self.random.one_in(4) && !self.entries.is_empty() {
                key = self.entries[self.random.below(self.entries.len())].key.clone();
            }
            entries.push(self.new_entry(key));
        }
        let mut deletes = Vec::new();
        for _ in 0..tombstones {
            self.sequence += 1;
            let mut borders = [shape.key(&mut self.random), shape.key(&mut self.random)];
            borders.sort();
            let [start, end] = borders;
            deletes.push(RangeTombstone { start, end, sequence: self.sequence });
        }
        self.write_run(entries, deletes);
    }

    pub(super) fn new_entry(&mut self, key: Vec<u8>) -> Owned {
        let kinds = [EntryKind::Value, EntryKind::Value, EntryKind::Value, EntryKind::Tombstone, EntryKind::BlobRef];
        let kind = kinds[self.random.below(kinds.len())];
        let length = if kind == EntryKind::Tombstone { 0 } else { self.random.below(30) };
        Owned { key, sequence: self.sequence, kind, value: vec![self.sequence as u8; length] }
    }

    pub(super) fn write_run(&mut self, mut entries: Vec<Owned>, deletes: Vec<RangeTombstone>) {
        entries.sort_by(|a, b| a.key.cmp(&b.key).then(b.sequence.cmp(&a.sequence)));
        let (path, number) = self.new_file("run");
        let options = RunOptions {
            compression: Compression::None,
            block_bytes: self.block_bytes,
            key_blocks: if self.random.one_in(2) { KeyBlocks::Always } else { KeyBlocks::Never },
            write_bytes: 1 << (6 + number % 12),
            ..RunOptions::default()
        };
        let file_id = self.random.next_u64();
        let mut writer = SortedRunWriter::create(&self.ctx, &path, number, file_id, &options).unwrap();
        for delete in deletes.iter().filter(|t| t.start < t.end) {
            writer.add_range_tombstone(delete.clone());
        }
        for entry in &entries {
            writer.add(entry.borrow()).unwrap();
        }
        let meta = writer.finish().unwrap();
        self.runs.push(Run::open(&self.ctx, &path, &meta).unwrap());
        self.entries.extend(entries);
        self.entries.sort_by(|a, b| a.key.cmp(&b.key).then(b.sequence.cmp(&a.sequence)));
        self.tombstones.extend(deletes);
        self.covering = RangeTombstoneSet::new(self.tombstones.clone());
    }

    pub(super) fn build(&mut self, bounds: &Bounds) -> Arc<View> {
        let (path, number) = self.new_file("view");
        let file_id = self.random.next_u64();
        let meta = build_view(&self.ctx, &path, number, file_id, &self.runs, bounds).unwrap();
        View::open(&self.ctx, &path, &meta).unwrap()
    }

    fn is_covered(&self, entry: &Owned) -> bool {
        self.covering.covering(&entry.key).first().is_some_and(|&newest| newest > entry.sequence)
    }

    pub(super) fn marked(&self, bounds: &Bounds) -> Vec<(&Owned, bool)> {
        let mut last: Option<&[u8]> = None;
        let mut out = Vec::new();
        for entry in &self.entries {
            let is_within = entry.key >= bounds.start && bounds.end.as_ref().is_none_or(|end| entry.key < *end);
            if is_within {
                out.push((entry, last == Some(&entry.key) || self.is_covered(entry)));
                last = Some(&entry.key);
            }
        }
        out
    }

    pub(super) fn shown(&self, bounds: &Bounds, snapshot: SequenceNumber) -> Vec<&Owned> {
        let sees_all = snapshot >= self.max_sequence();
        let mut out: Vec<&Owned> = Vec::new();
        for (entry, _) in self.marked(bounds) {
            if entry.sequence <= snapshot && out.last().is_none_or(|last| last.key != entry.key) {
                out.push(entry);
            }
        }
        out.retain(|entry| !(sees_all && self.is_covered(entry)));
        out
    }

    pub(super) fn max_sequence(&self) -> SequenceNumber {
        let entries = self.entries.iter().map(|e| e.sequence);
        let deletes = self.tombstones.iter().filter(|t| t.start < t.end).map(|t| t.sequence);
        entries.chain(deletes).max().unwrap_or(0)
    }

    pub(super) fn check(&mut self, view: &Arc<View>, bounds: &Bounds) {
        view.verify().unwrap();
        view.verify_against(&self.runs, bounds).unwrap();
        let marked = self.marked(bounds);
        assert_eq!(view.meta().entries, marked.len() as u64);
        assert_eq!(view.meta().stale, marked.iter().filter(|(_, stale)| *stale).count() as u64);
        assert_eq!(view.meta().max_sequence, self.max_sequence());
        let live = marked.iter().filter(|(entry, stale)| !stale && entry.kind == EntryKind::Tombstone);
        assert_eq!(view.meta().tombstones, live.count() as u64);
        let expected: Vec<(Owned, bool)> = marked.into_iter().map(|(entry, stale)| (entry.clone(), stale)).collect();
        self.check_scan(view, &expected);
        self.check_rank(view, &expected);
        let most = self.sequence as usize + 1;
        for snapshot in
            [0, self.random.below(most) as u64, self.random.below(most) as u64, self.sequence, u64::MAX >> 2]
        {
            let shown: Vec<Owned> = self.shown(bounds, snapshot).into_iter().cloned().collect();
            self.check_gets(view, snapshot, &shown);
            self.check_cursor(view, snapshot, &shown);
        }
        assert!(view.make_hash_index(&self.runs, &|| false).unwrap());
        for snapshot in [self.random.below(most) as u64, self.max_sequence(), u64::MAX >> 2] {
            let shown: Vec<Owned> = self.shown(bounds, snapshot).into_iter().cloned().collect();
            self.check_gets(view, snapshot, &shown);
        }
    }

    fn check_scan(&self, view: &Arc<View>, expected: &[(Owned, bool)]) {
        let guard = crossbeam_epoch::pin();
        let mut scan = ViewScan::new(view.clone(), &self.runs);
        let mut last: Option<&Owned> = None;
        for (entry, stale) in expected {
            let found = scan.next().unwrap().unwrap();
            let read = self.runs[usize::from(found.run)].read(found.position, &guard).unwrap();
            assert_eq!(Owned::of(read), *entry);
            assert_eq!(found.stale, *stale);
            assert_eq!(found.tombstone, entry.kind == EntryKind::Tombstone);
            assert_eq!(found.resolve, entry.kind.needs_resolving());
            assert_eq!(found.same_key, last.is_some_and(|last| last.key == entry.key));
            last = Some(entry);
        }
        assert_eq!(scan.next().unwrap(), None);
    }

    fn check_rank(&self, view: &Arc<View>, expected: &[(Owned, bool)]) {
        let mut longest = 0;
        let mut start = 0;
        for i in 0..expected.len() {
            if expected[i].0.key != expected[start].0.key {
                start = i;
            }
            longest = longest.max(i - start + 1);
        }
        for (i, (entry, _)) in expected.iter().enumerate().step_by(7) {
            let rank = view.rank(&self.runs, &entry.key).unwrap();
            assert!(rank <= i as u64 && i as u64 <= rank + 32 + longest as u64, "{rank} for {i}");
        }
        let points = view.split_points(&self.runs, 5).unwrap();
        assert!(points.len() <= 4 && points.is_sorted());
        let mut last = 0;
        for point in &points {
            let at = expected.partition_point(|(entry, _)| entry.key < *point);
            assert!(at > last && at < expected.len());
            assert!(at - last <= expected.len() / 5 + 64 + longest);
            last = at;
        }
    }

    fn queries(&mut self, shown: &[Owned]) -> Vec<Vec<u8>> {
        let mut queries = vec![Vec::new(), vec![0], vec![0xff; 9], vec![9; 500]];
        for _ in 0..40 {
            let mut key = match self.entries.len() {
                0 => vec![1],
                n => self.entries[self.random.below(n)].key.clone(),
            };
            match self.random.below(5) {
                0 => key.push(0),
                1 => _ = key.pop(),
                2 => {
                    if let Some(last) = key.last_mut() {
                        *last = last.wrapping_add(1);
                    }
                }
                3 => {
                    let at = self.random.below(key.len() + 1);
                    key.truncate(at);
                }
                _ => {}
            }
            queries.push(key);
        }
        queries.extend(shown.first().map(|e| e.key.clone()));
        queries.extend(shown.last().map(|e| e.key.clone()));
        queries
    }

    fn check_gets(&mut self, view: &Arc<View>, snapshot: SequenceNumber, shown: &[Owned]) {
        let guard = crossbeam_epoch::pin();
        let mut keys: Vec<Vec<u8>> = self.entries.iter().step_by(3).map(|e| e.key.clone()).collect();
        keys.extend(self.queries(shown));
        for key in keys {
            let found = view.get(&self.runs, &key, snapshot, &guard).unwrap().map(Owned::of);
            let expected = shown.binary_search_by(|e| e.key.cmp(&key)).ok().map(|at| shown[at].clone());
            assert_eq!(found, expected, "{key:?} at {snapshot}");
        }
    }

    fn check_cursor(&mut self, view: &Arc<View>, snapshot: SequenceNumber, shown: &[Owned]) {
        let mut cursor = ViewCursor::new(view.clone(), self.runs.clone().into(), snapshot);
        assert!(!cursor.valid());
        cursor.seek_first().unwrap();
        for entry in shown {
            assert_eq!(Owned::of(cursor.entry()), *entry);
            cursor.next().unwrap();
        }
        assert!(!cursor.valid());
        cursor.seek_last().unwrap();
        for entry in shown.iter().rev() {
            assert_eq!(Owned::of(cursor.entry()), *entry);
            cursor.prev().unwrap();
        }
        assert!(!cursor.valid());
        for query in self.queries(shown) {
            let from = shown.partition_point(|e| e.key < query);
            let mut at = if self.random.one_in(2) {
                cursor.seek(&query).unwrap();
                Some(from)
            } else {
                cursor.seek_before(&query).unwrap();
                from.checked_sub(1)
            };
            for _ in 0..self.random.below(100) {
                let expected = at.and_then(|at| shown.get(at));
                assert_eq!(
                    cursor.valid().then(|| Owned::of(cursor.entry())).as_ref(),
                    expected,
                    "{query:?} {snapshot}"
                );
                if expected.is_none() {
                    break;
                }
                if self.random.one_in(3) {
                    cursor.prev().unwrap();
                    at = at.and_then(|at| at.checked_sub(1));
                } else {
                    cursor.next().unwrap();
                    at = at.map(|at| at + 1);
                }
            }
        }
    }
}
