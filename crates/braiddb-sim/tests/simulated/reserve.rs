//! The disk reserve on a full disk: deletes, a compaction and an open use it, puts are refused
//! until it is whole again. A crash loses nothing.

use crate::common;

use braiddb::{Db, Durability, Error, NoSpace};
use braiddb_sim::{
    CrashPolicy, Random, SimDisk,
    model::{Change, Contents, apply},
};
use common::{PATH, SmallOptions, batch_of, check_all_reads, empty_disk, explained, full_text, in_parallel, volume};
use common::{open_trees, read_all, value};
use parking_lot::Mutex;
use std::{
    ops::{Bound, Range},
    sync::Arc,
};

/// Factor by which crashes are denser while runs are written again.
const REWRITES_SHARE: usize = 12;

/// Consecutive refusals that mean a full disk.
const REFUSALS: u32 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filling {
    /// Merges keep up: no partition is larger than the reserve.
    Merged,
    /// One partition holds everything in runs of ascending keys. Like a resumable import, each
    /// commit also overwrites a note in a second tree.
    Unmerged,
    /// Like `Unmerged`, but each run covers all keys.
    Overlapping,
}

impl Filling {
    /// Too few bytes to merge half of one large partition at once.
    fn reserve(self) -> u64 {
        match self {
            Filling::Merged => 192 << 10,
            Filling::Unmerged => 96 << 10,
            // Too few for a third of the data, enough for a third of several runs.
            Filling::Overlapping => 112 << 10,
        }
    }

    fn capacity(self) -> u64 {
        match self {
            Filling::Merged | Filling::Unmerged => 640 << 10,
            Filling::Overlapping => 768 << 10,
        }
    }

    /// Number of rows to delete, from the first key on.
    fn rows_to_delete(self, rows: usize) -> usize {
        if self == Filling::Overlapping { rows / 3 * 2 } else { rows / 2 }
    }

    /// Fewer commits make fewer states to compare with.
    fn rows_of_commit(self) -> u64 {
        if self == Filling::Overlapping { 4 } else { 1 }
    }

    fn options(self) -> SmallOptions {
        let options = SmallOptions { memtable_bytes: 16 << 10, partition_bytes: 32 << 10, ..SmallOptions::default() };
        match self {
            Filling::Merged => options,
            Filling::Unmerged => SmallOptions { partition_bytes: 4 << 20, loose_runs: 400, ..options },
            Filling::Overlapping => {
                SmallOptions { memtable_bytes: 64 << 10, partition_bytes: 4 << 20, loose_runs: 400, ..options }
            }
        }
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

impl Filling {
    fn key(self, number: u64) -> Vec<u8> {
        // The factor is prime, so keys are unique.
        key(if self == Filling::Overlapping { number * 61_813 % 100_000 } else { number })
    }
}

fn open(disk: &Arc<SimDisk>, filling: Filling, seed: u64) -> braiddb::Result<Db> {
    filling.options().builder(disk, seed).disk_reserve(filling.reserve()).open(PATH)
}

struct World {
    filling: Filling,
    disk: Arc<SimDisk>,
    db: Db,
    contents: Contents,
    past: Vec<(usize, Contents)>,
    next: u64,
}

impl World {
    fn commit(&mut self, change: Change) -> Result<(), Error> {
        self.commit_all(&[change])
    }

    fn commit_all(&mut self, changes: &[Change]) -> Result<(), Error> {
        let trees = open_trees(&self.db)?;
        batch_of(&self.db, &trees, changes).commit_with(Durability::Sync)?;
        apply(&mut self.contents, changes);
        self.past.push((self.disk.operations(), self.contents.clone()));
        Ok(())
    }

    fn fill(&mut self, random: &mut Random) -> u64 {
        let (mut refused, mut stored) = (0, 0);
        while refused < REFUSALS {
            let rows = self.filling.rows_of_commit();
            let mut put =
                |number| Change::Put(0, self.filling.key(number), value(100 + random.index(700), random.next_u64()));
            let mut changes: Vec<Change> = (self.next..self.next + rows).map(&mut put).collect();
            if self.filling == Filling::Unmerged {
                changes.push(Change::Put(1, b"note".to_vec(), key(self.next)));
            }
            match self.commit_all(&changes) {
                Ok(()) => {
                    (refused, stored) = (0, stored + rows);
                    self.next += rows;
                }
                Err(e) if e.is_disk_full() => {
                    refused += 1;
                    let _ = self.db.flush();
                }
                Err(e) => panic!("put: {}", full_text(&e)),
            }
        }
        stored
    }

    fn make_room(&mut self) {
        let keys: Vec<Vec<u8>> =
            self.contents.keys().filter(|(tree, _)| *tree == 0).map(|(_, key)| key.clone()).collect();
        let end = keys[self.filling.rows_to_delete(keys.len())].clone();
        let range = (Bound::Included(keys[0].clone()), Bound::Excluded(end));
        self.commit(Change::DeleteRange(0, range)).unwrap_or_else(|e| panic!("delete range: {}", full_text(&e)));
        self.db.compact().unwrap_or_else(|e| panic!("compact: {}", full_text(&e)));
    }

    fn is_whole(&self) -> bool {
        let stats = self.db.stats();
        stats.disk_reserve_bytes == stats.disk_reserve_bytes_whole && stats.disk_reserve_bytes > 0
    }
}

fn full_world(filling: Filling, seed: u64) -> World {
    let disk = empty_disk(seed);
    disk.set_capacity(Some(filling.capacity()));
    let db = open(&disk, filling, 1).unwrap_or_else(|e| panic!("open: {}", full_text(&e)));
    open_trees(&db).unwrap();
    db.sync().unwrap();
    let past = vec![(disk.operations(), Contents::new())];
    let mut world = World { filling, disk, db, contents: Contents::new(), past, next: 0 };
    assert!(world.is_whole(), "a new database has its reserve");
    let stored = world.fill(&mut Random::new(seed));
    assert!(stored > 300, "only {stored} puts on {} bytes", filling.capacity());
    world
}

/// Deletes rows in four rounds on a full disk; odd rounds reopen the database there.
fn delete_on_full_disk(filling: Filling, seed: u64) {
    let mut world = full_world(filling, seed);
    let mut random = Random::new(seed ^ 1);
    for round in 0..4 {
        if round % 2 == 1 {
            let World { filling, disk, db, contents, past, next } = world;
            db.close().unwrap_or_else(|e| panic!("close: {}", full_text(&e)));
            let db =
                open(&disk, filling, 2 + round).unwrap_or_else(|e| panic!("open on the full disk: {}", full_text(&e)));
            world = World { filling, disk, db, contents, past, next };
        }
        check_all_reads(&world.db, &world.contents).unwrap();
        world.make_room();
        check_all_reads(&world.db, &world.contents).unwrap();
        assert!(world.is_whole(), "the reserve is whole after the compaction of round {round}");
        assert!(world.fill(&mut random) > 50, "writes resume after round {round}");
    }
}

#[test]
fn delete_range_and_compact_on_full_disk_give_space_back() {
    let seed = common::seed();
    in_parallel(volume(20).max(2) as usize, |index| {
        let seed = seed + index as u64;
        explained(|| format!("seed {seed}"), || delete_on_full_disk(Filling::Merged, seed));
    });
}

/// The story: an import in key order outran the merges, and one partition held all of a small
/// volume. Its merge needed space for all new runs, so `compact` failed even after a delete of
/// half.
#[test]
fn compact_of_one_large_partition_on_full_disk_gives_space_back() {
    let seed = common::seed();
    in_parallel(volume(20).max(2) as usize, |index| {
        let seed = seed + index as u64;
        explained(|| format!("seed {seed}"), || delete_on_full_disk(Filling::Unmerged, seed));
    });
}

#[test]
fn writes_with_reserve_in_use_are_refused_unless_they_delete() {
    let mut world = full_world(Filling::Merged, 7);
    let mut deleted = 0;
    while world.is_whole() {
        let first = world.contents.keys().next().unwrap().1.clone();
        world.commit(Change::Delete(0, first)).unwrap_or_else(|e| panic!("delete: {}", full_text(&e)));
        deleted += 1;
        assert!(deleted < 10_000, "the reserve was never used");
    }
    let put = world.commit(Change::Put(0, key(99_999), vec![1])).unwrap_err();
    assert!(matches!(put, Error::DiskFull { reason: NoSpace::Reserved, .. }), "{}", full_text(&put));
    let trees = open_trees(&world.db).unwrap();
    let (tree, one) = (&trees[0], world.contents.keys().next().unwrap().1.clone());
    assert!(world.db.tree("another").unwrap_err().is_disk_full(), "a new tree is a put");
    let mut mixed = world.db.batch();
    mixed.put(tree, b"new", b"value").delete(tree, &one);
    assert!(mixed.commit_with(Durability::Sync).unwrap_err().is_disk_full());
    let large = tree.put(b"large", vec![7; 5000]).unwrap_err();
    assert!(large.is_disk_full(), "{}", full_text(&large));
    assert!(tree.get(&one).unwrap().is_some(), "a batch with a put deletes nothing");
    let mut deletes = world.db.batch();
    deletes.delete(tree, &one).delete_range(tree, key(20)..key(40));
    deletes.commit_with(Durability::Sync).unwrap();
    world.db.drop_tree(common::TREES[1]).unwrap();
    assert!(tree.get(&one).unwrap().is_none());
    world.disk.set_capacity(Some(4 * Filling::Merged.capacity()));
    world.db.flush().unwrap();
    tree.put(b"new", b"value").unwrap();
    assert!(world.is_whole());
}

/// Records between which operations of the disk runs are written again one by one.
#[derive(Clone)]
struct Rewrites {
    disk: Arc<SimDisk>,
    at: Arc<Mutex<Vec<usize>>>,
}

impl Rewrites {
    fn of(disk: &Arc<SimDisk>) -> Rewrites {
        Rewrites { disk: Arc::clone(disk), at: Arc::default() }
    }

    fn note(&self) {
        self.at.lock().push(self.disk.operations());
    }

    fn ranges(&self) -> Vec<Range<usize>> {
        self.at.lock().chunks_exact(2).map(|ends| ends[0]..ends[1]).collect()
    }
}

impl tracing::Subscriber for Rewrites {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.name() == "rewrite_run"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &tracing::span::Id) {
        self.note();
    }

    fn exit(&self, _: &tracing::span::Id) {
        self.note();
    }
}

/// Crashes while the reserve is released, used and refilled. The next open is on the full disk too.
/// Returns the number of crashes while runs were written again.
fn crash_on_full_disk(filling: Filling, seed: u64, share: usize) -> usize {
    let mut world = full_world(filling, seed);
    let from = world.disk.operations();
    let rewrites = Rewrites::of(&world.disk);
    tracing::subscriber::with_default(rewrites.clone(), || world.make_room());
    world.fill(&mut Random::new(seed ^ 2));
    let (to, rewrites) = (world.disk.operations(), rewrites.ranges());
    let mut inside = 0;
    for at in from..=to {
        // An image at the first operation has none of the rewrite's.
        let is_inside = rewrites.iter().any(|rewrite| rewrite.start < at && at < rewrite.end);
        let share = if is_inside { share.div_ceil(REWRITES_SHARE) } else { share };
        if at % share != seed as usize % share {
            continue;
        }
        inside += usize::from(is_inside);
        let policy = [CrashPolicy::KeepAll, CrashPolicy::LoseAllUnsynced, CrashPolicy::Random(at as u64)][at % 3];
        explained(|| format!("seed {seed}, crash at {at}, {policy:?}"), || open_after_crash(&world, at, policy));
    }
    inside
}

fn open_after_crash(world: &World, at: usize, policy: CrashPolicy) {
    let image = world.disk.crash_image(at, policy);
    let filling = world.filling;
    image.set_capacity(Some(filling.capacity().max(image.used_bytes())));
    let db = match open(&image, filling, 90) {
        Err(e) if e.is_disk_full() => {
            image.set_capacity(None);
            open(&image, filling, 91).unwrap_or_else(|e| panic!("open with space: {}", full_text(&e)))
        }
        opened => opened.unwrap_or_else(|e| panic!("open: {}", full_text(&e))),
    };
    let found = read_all(&db).unwrap_or_else(|e| panic!("read: {}", full_text(&e)));
    let acknowledged = world.past.iter().rposition(|(operations, _)| *operations <= at).unwrap_or(0);
    let possible = world.past.iter().skip(acknowledged).take(2);
    assert!(
        possible.map(|(_, contents)| contents).any(|contents| *contents == found),
        "neither the last acknowledged state nor the next"
    );
    let past = vec![(0, found.clone())];
    let mut after = World { filling, disk: image, db, contents: found, past, next: 50_000 };
    if after.is_whole() && after.contents.len() > 10 {
        after.make_room();
        check_all_reads(&after.db, &after.contents).unwrap();
    }
    after.disk.set_capacity(None);
    after.db.compact().unwrap_or_else(|e| panic!("compact with space: {}", full_text(&e)));
    after.commit(Change::Put(0, key(60_000), vec![1])).unwrap_or_else(|e| panic!("put: {}", full_text(&e)));
    assert!(after.is_whole(), "the reserve is refilled when there is space");
}

#[test]
fn crashes_with_reserve_in_use_lose_nothing() {
    let seed = common::seed();
    let share = if cfg!(debug_assertions) { 97 } else { 5 };
    in_parallel(volume(10).max(2) as usize, |index| {
        crash_on_full_disk(Filling::Merged, seed + index as u64, share);
    });
}

/// The story: after a fast fill in random order all runs of one large partition covered all keys.
/// No merge of a part freed any of them, so `compact` failed after a delete. Here the merge of all
/// that is left needs more than the reserve, so only writing runs again one by one succeeds.
#[test]
fn compact_of_overlapping_runs_on_full_disk_gives_space_back() {
    let seed = common::seed();
    in_parallel(volume(20).max(2) as usize, |index| {
        let seed = seed + index as u64;
        explained(|| format!("seed {seed}"), || delete_on_full_disk(Filling::Overlapping, seed));
    });
}

/// Crashes while runs are written again one by one.
#[test]
fn crashes_while_overlapping_runs_are_rewritten_lose_nothing() {
    let seed = common::seed() ^ 5;
    let share = if cfg!(debug_assertions) { 97 } else { 5 };
    in_parallel(volume(10).max(2) as usize, |index| {
        let inside = crash_on_full_disk(Filling::Overlapping, seed + index as u64, share);
        assert!(inside >= 5, "seed {seed} and {index}: only {inside} crashes while runs were written again");
    });
}

/// Crashes between and within the parts of a merge installed in parts.
#[test]
fn crashes_while_large_partition_is_merged_in_parts_lose_nothing() {
    let seed = common::seed() ^ 3;
    let share = if cfg!(debug_assertions) { 97 } else { 5 };
    in_parallel(volume(10).max(2) as usize, |index| {
        crash_on_full_disk(Filling::Unmerged, seed + index as u64, share);
    });
}
