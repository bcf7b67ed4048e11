//! Free-running threads, in memory and on the real file system, with background threads.
//!
//! Each writer does numbered steps (`braiddb_sim::numbered`). A reader that finds a writer's last
//! step in a snapshot knows all its rows and compares them by every kind of read. All writers also
//! write shared pairs of keys, which must be equal in every snapshot.
//!
//! A seed reproduces the writes, not the schedule.

mod common;

use braiddb::{Db, Durability, Iter, Snapshot, Tree};
use braiddb_sim::{
    Random,
    model::{Bytes, Change, Contents, prefix_bounds, short},
    numbered::{self, Step, TREES, Writer},
};
use common::{
    Counter,
    threads::{Place, bounded, compare, ok},
    volume,
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

/// Steps of each writer in memory and on disk, times `BRAIDDB_VOLUME`.
const STEPS: [u64; 2] = [3_000, 2_000];

const WRITERS: u64 = 4;
const READERS: u64 = 3;

const SHARED: u64 = 12;

type Rows = Vec<(Bytes, Bytes)>;

#[derive(Default)]
struct Seen {
    gets: Counter,
    snapshots: Counter,
    rows: Counter,
    iterators: Counter,
    reread: Counter,
}

struct World {
    seed: u64,
    db: Db,
    trees: Vec<Tree>,
    writing: AtomicUsize,
    failed: AtomicBool,
    acknowledged: Vec<AtomicU64>,
    /// Sequence number and changes to the shared pairs of each commit.
    shared: Mutex<Vec<(u64, Vec<Change>)>>,
    /// Sequence number and shared pairs of each snapshot.
    samples: Mutex<Vec<(u64, Rows)>>,
    seen: Seen,
}

impl World {
    fn new(seed: u64, db: Db) -> World {
        let trees = TREES.iter().map(|name| ok(db.tree(name))).collect();
        World {
            seed,
            db,
            trees,
            writing: AtomicUsize::new(WRITERS as usize),
            failed: AtomicBool::new(false),
            acknowledged: (0..WRITERS).map(|_| AtomicU64::new(0)).collect(),
            shared: Mutex::default(),
            samples: Mutex::default(),
            seen: Seen::default(),
        }
    }

    fn goes_on(&self) -> bool {
        self.writing.load(Ordering::Acquire) > 0 && !self.failed.load(Ordering::Relaxed)
    }

    fn writer(&self, writer: u64) -> Writer {
        Writer { seed: self.seed, writer, drops: false }
    }

    fn write(&self, writer: u64, steps: u64) {
        let steps_of = self.writer(writer);
        let mut random = Random::new(self.seed ^ (100 + writer));
        for number in 1..=steps {
            if self.failed.load(Ordering::Relaxed) {
                break;
            }
            let Step::Write { changes, sync } = steps_of.step(number) else { unreachable!("no drops") };
            let mut batch = common::batch_of(&self.db, &self.trees, &changes);
            let mut shared = Vec::new();
            if random.chance(1, 20) {
                shared.push(Change::DeleteRange(0, prefix_bounds(b"shared/")));
            }
            let value = [&number.to_be_bytes()[..], &[writer as u8], &random.bytes(20)].concat();
            for _ in 0..random.below(3) {
                let key = format!("shared/{:02}", random.below(SHARED)).into_bytes();
                shared.push(if random.chance(1, 5) {
                    Change::Delete(0, key)
                } else {
                    Change::Put(0, key, value.clone())
                });
            }
            for change in &shared {
                for tree in &self.trees[..2] {
                    match change {
                        Change::Put(_, key, value) => batch.put(tree, key, value),
                        Change::Delete(_, key) => batch.delete(tree, key),
                        Change::DeleteRange(_, bounds) => batch.delete_range(tree, bounds.clone()),
                        Change::Append(..) | Change::Extend(..) | Change::PutUntil(..) => {
                            unreachable!("not in this battery")
                        }
                    };
                }
            }
            // Few syncs: a slow disk would spend all time on them.
            let durability = if sync && number.is_multiple_of(4) { Durability::Sync } else { Durability::Buffered };
            let sequence = ok(batch.commit_with(durability));
            self.shared.lock().push((sequence, shared));
            self.acknowledged[writer as usize].store(number, Ordering::Release);
        }
        self.writing.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Reports a panic to the other threads.
struct Failing<'a>(&'a World);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Ordering::Relaxed);
        }
    }
}

struct Held {
    snapshot: Snapshot,
    expected: Vec<Arc<Contents>>,
    shared: Vec<(Bytes, Bytes)>,
}

/// An open iterator and its remaining rows, in key order.
struct Way {
    iter: Iter,
    rows: std::collections::VecDeque<(Bytes, Bytes)>,
}

struct Reader<'a> {
    world: &'a World,
    random: Random,
    /// Last seen step and contents of each writer.
    writers: Vec<(u64, Arc<Contents>)>,
    newest: HashMap<(usize, Bytes), u64>,
    held: Vec<Held>,
    ways: Vec<Way>,
}

impl<'a> Reader<'a> {
    fn new(world: &'a World, number: u64) -> Reader<'a> {
        Reader {
            world,
            random: Random::new(world.seed ^ (200 + number)),
            writers: (0..WRITERS).map(|_| (0, Arc::default())).collect(),
            newest: HashMap::new(),
            held: Vec::new(),
            ways: Vec::new(),
        }
    }

    fn run(&mut self) {
        while self.world.goes_on() {
            match self.random.below(10) {
                0..=3 => self.get_now(),
                4 => self.take_snapshot(),
                5 => self.begin_way(),
                6 => self.read_again(),
                7 => self.multi_get_now(),
                _ => self.go_on_ways(),
            }
        }
        self.read_again();
        while !self.ways.is_empty() {
            self.go_on_ways();
        }
    }

    fn any_key(&mut self) -> (usize, Bytes) {
        let writer = self.random.below(WRITERS);
        let tree = [0, 1, numbered::own_tree(writer) as usize][self.random.index(3)];
        let key = format!("{writer}/{:02}/{:02}", self.random.below(24), self.random.below(32));
        (tree, key.into_bytes())
    }

    fn get_now(&mut self) {
        for _ in 0..20 {
            let (tree, key) = self.any_key();
            let value = ok(self.world.trees[tree].get(&key));
            self.world.seen.gets.add(1);
            if let Some(value) = value {
                self.note_newest(tree, key, numbered::number_of(&value));
            }
        }
        let writer = self.random.below(WRITERS);
        let acknowledged = self.world.acknowledged[writer as usize].load(Ordering::Acquire);
        if acknowledged > 0 {
            let key = numbered::last_key(writer);
            let value = ok(self.world.trees[0].get(&key)).expect("the key of the last step is never deleted");
            let number = numbered::number_of(&value);
            assert!(number >= acknowledged, "step {acknowledged} was acknowledged, a later get shows step {number}");
            self.note_newest(0, key, number);
        }
    }

    fn note_newest(&mut self, tree: usize, key: Bytes, number: u64) {
        let newest = self.newest.entry((tree, key.clone())).or_default();
        assert!(*newest <= number, "{tree}/{}: step {number} after step {newest} was seen", short(&key));
        *newest = number;
    }

    fn multi_get_now(&mut self) {
        let mut keys: Vec<Bytes> = (0..WRITERS).map(numbered::last_key).collect();
        keys.extend((0..SHARED).map(|n| format!("shared/{n:02}").into_bytes()));
        let values = ok(self.world.trees[0].multi_get(&keys));
        let last: Vec<u64> =
            values[..WRITERS as usize].iter().map(|v| v.as_ref().map_or(0, |v| numbered::number_of(v))).collect();
        for value in values[WRITERS as usize..].iter().flatten() {
            let number = numbered::number_of(value);
            assert!(number <= last[usize::from(value[8])], "multi_get shows more than one moment");
        }
    }

    fn expected(&mut self, last: impl Fn(u64) -> u64) -> Vec<Arc<Contents>> {
        for writer in 0..WRITERS {
            let number = last(writer);
            let (done, contents) = &mut self.writers[writer as usize];
            assert!(*done <= number, "a snapshot taken later shows writer {writer} at {number}, one before at {done}");
            let steps = self.world.writer(writer);
            if *done < number {
                let contents = Arc::make_mut(contents);
                for step in *done + 1..=number {
                    steps.step(step).apply(contents);
                }
                *done = number;
            }
        }
        self.writers.iter().map(|(_, contents)| Arc::clone(contents)).collect()
    }

    fn take_snapshot(&mut self) {
        let before: Vec<u64> = self.world.acknowledged.iter().map(|a| a.load(Ordering::Acquire)).collect();
        let snapshot = self.world.db.snapshot();
        let tree = &self.world.trees[0];
        let last =
            |writer| ok(snapshot.get(tree, numbered::last_key(writer))).map_or(0, |value| numbered::number_of(&value));
        for writer in 0..WRITERS {
            let (number, acknowledged) = (last(writer), before[writer as usize]);
            assert!(number >= acknowledged, "a snapshot at {number} after step {acknowledged} was acknowledged");
        }
        let expected = self.expected(last);
        let shared = check_pairs(&self.world.trees, &snapshot);
        self.world.seen.snapshots.add(1);
        self.world.samples.lock().push((snapshot.sequence(), shared.clone()));
        let held = Held { snapshot, expected, shared };
        self.check_snapshot(&held);
        self.held.push(held);
        if self.held.len() > 4 {
            let index = self.random.index(self.held.len());
            self.held.swap_remove(index);
        }
    }

    fn read_again(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let index = self.random.index(self.held.len());
        let held = self.held.swap_remove(index);
        self.check_snapshot(&held);
        assert!(check_pairs(&self.world.trees, &held.snapshot) == held.shared, "shared pairs read again");
        self.world.seen.reread.add(1);
        if self.random.chance(3, 4) {
            self.held.push(held);
        }
    }

    fn check_snapshot(&mut self, held: &Held) {
        let writer = self.random.index(WRITERS as usize);
        let tree = [0, 1, numbered::own_tree(writer as u64) as usize][self.random.index(3)];
        let handle = &self.world.trees[tree];
        let group = format!("{writer}/{:02}", self.random.below(24)).into_bytes();
        let prefix = if self.random.chance(1, 3) { numbered::prefix(writer as u64) } else { group };
        let expected = rows_of(&held.expected[writer], tree, &prefix);
        let what = || format!("tree {tree}, keys {}*, snapshot {}", short(&prefix), held.snapshot.sequence());
        match self.random.below(5) {
            0 => compare(held.snapshot.prefix(handle, &prefix), &expected, || format!("{} forwards", what())),
            1 => {
                let rows = held.snapshot.prefix(handle, &prefix).rev();
                let expected: Vec<_> = expected.iter().rev().cloned().collect();
                compare(rows, &expected, || format!("{} backwards", what()));
            }
            2 => self.check_points(held, tree, &expected),
            3 => self.check_both_ends(held.snapshot.prefix(handle, &prefix), &expected),
            _ => {
                let (from, to) = (self.random.index(expected.len() + 1), self.random.index(expected.len() + 1));
                let (from, to) = (from.min(to), from.max(to));
                if let (Some(first), Some(last)) = (expected.get(from), expected.get(to)) {
                    let bounds = (Bound::Excluded(first.0.clone()), Bound::Included(last.0.clone()));
                    let part = if from < to { &expected[from + 1..=to] } else { &[] };
                    compare(held.snapshot.range(handle, bounds), part, || format!("{} a part", what()));
                }
            }
        }
        self.world.seen.rows.add(expected.len() as u64);
    }

    fn check_points(&mut self, held: &Held, tree: usize, expected: &[(Bytes, Bytes)]) {
        let handle = &self.world.trees[tree];
        let mut keys: Vec<Bytes> = expected.iter().map(|(key, _)| key.clone()).collect();
        keys.extend(expected.iter().map(|(key, _)| [&key[..], b"~"].concat()));
        let values = ok(held.snapshot.multi_get(handle, &keys));
        for (index, value) in values.iter().enumerate() {
            let expected = expected.get(index).map(|(_, value)| value.as_slice());
            assert!(value.as_deref() == expected, "multi_get of {tree}/{} in a snapshot", short(&keys[index]));
        }
        let absent = self.any_key();
        let of_writer = usize::from(absent.1[0] - b'0');
        let expected = held.expected[of_writer].get(&(absent.0 as u32, absent.1.clone()));
        let found = ok(held.snapshot.get(&self.world.trees[absent.0], &absent.1));
        assert!(found.as_deref() == expected.map(Vec::as_slice), "get of {} in a snapshot", short(&absent.1));
        assert_eq!(ok(held.snapshot.contains(&self.world.trees[absent.0], &absent.1)), expected.is_some());
    }

    fn check_both_ends(&mut self, mut rows: Iter, expected: &[(Bytes, Bytes)]) {
        let (mut from, mut to) = (0, expected.len());
        while from < to {
            let (row, expected) = if self.random.chance(1, 2) {
                from += 1;
                (rows.next(), &expected[from - 1])
            } else {
                to -= 1;
                (rows.next_back(), &expected[to])
            };
            let (key, value) = ok(row.expect("iteration from both ends: a row is missing"));
            assert!(
                *key == *expected.0 && *value == *expected.1,
                "iteration from both ends: wrong row for {}",
                short(&expected.0)
            );
        }
        assert!(rows.next().is_none() && rows.next_back().is_none(), "iteration from both ends: an extra row");
    }

    fn begin_way(&mut self) {
        if self.ways.len() >= 4 {
            return;
        }
        self.world.seen.iterators.add(1);
        if let Some(held) = self.held.first()
            && self.random.chance(1, 3)
        {
            let mut rows: Vec<_> = held.expected.iter().flat_map(|contents| rows_of(contents, 0, b"")).collect();
            rows.extend(held.shared.iter().cloned());
            rows.sort();
            self.ways.push(Way { iter: held.snapshot.iter(&self.world.trees[0]), rows: rows.into() });
            return;
        }
        let writer = self.random.below(WRITERS);
        let mut iter = self.world.trees[0].prefix(numbered::prefix(writer));
        let Some(first) = iter.next() else { return };
        let (key, value) = ok(first);
        assert_eq!(*key, *numbered::last_key(writer), "the first key of the writer");
        let number = numbered::number_of(&value);
        let others: Vec<u64> = self.writers.iter().map(|(done, _)| *done).collect();
        let expected = self.expected(|of| if of == writer { number } else { others[of as usize] });
        let mut rows: std::collections::VecDeque<_> =
            rows_of(&expected[writer as usize], 0, &numbered::prefix(writer)).into();
        rows.pop_front();
        self.ways.push(Way { iter, rows });
    }

    fn go_on_ways(&mut self) {
        let random = &mut self.random;
        self.ways.retain_mut(|way| {
            for _ in 0..1 + random.below(60) {
                let (row, expected) = if random.chance(7, 8) {
                    (way.iter.next(), way.rows.pop_front())
                } else {
                    (way.iter.next_back(), way.rows.pop_back())
                };
                match (row, expected) {
                    (None, None) => return false,
                    (Some(row), Some(expected)) => {
                        let (key, value) = ok(row);
                        assert!(
                            *key == *expected.0,
                            "an old iterator shows {} instead of {}",
                            short(&key),
                            short(&expected.0)
                        );
                        assert!(*value == *expected.1, "an old iterator: the value of {}", short(&key));
                    }
                    (row, expected) => panic!("an old iterator shows {:?} instead of {expected:?}", row.map(ok)),
                }
            }
            true
        });
    }
}

fn rows_of(contents: &Contents, tree: usize, prefix: &[u8]) -> Vec<(Bytes, Bytes)> {
    let from = (tree as u32, prefix.to_vec());
    let rows = contents.range(from..).take_while(|((of, key), _)| *of == tree as u32 && key.starts_with(prefix));
    rows.map(|((_, key), value)| (key.clone(), value.clone())).collect()
}

fn check_pairs(trees: &[Tree], snapshot: &Snapshot) -> Vec<(Bytes, Bytes)> {
    let read = |tree| -> Vec<(Bytes, Bytes)> {
        snapshot.prefix(tree, b"shared/").map(ok).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    };
    let (left, right) = (read(&trees[0]), read(&trees[1]));
    assert!(left == right, "shared pairs differ in snapshot {}: {left:?} and {right:?}", snapshot.sequence());
    left
}

/// Each snapshot shows the shared pairs after all commits up to its own number, and none later.
fn check_order(world: &World) {
    let (mut commits, mut samples) = (world.shared.lock().clone(), world.samples.lock().clone());
    let last = world.db.snapshot();
    samples.push((last.sequence(), check_pairs(&world.trees, &last)));
    commits.sort_by_key(|(sequence, _)| *sequence);
    samples.sort_by_key(|(sequence, _)| *sequence);
    assert!(commits.is_sorted_by(|a, b| a.0 < b.0), "two commits have one sequence number");
    let (mut contents, mut commits) = (Contents::new(), commits.iter().peekable());
    for (at, found) in samples {
        while let Some((_, changes)) = commits.next_if(|(sequence, _)| *sequence <= at) {
            braiddb_sim::model::apply(&mut contents, changes);
        }
        assert!(rows_of(&contents, 0, b"shared/") == found, "the shared pairs in a snapshot at {at}");
    }
}

fn maintain(world: &World) {
    let mut random = Random::new(world.seed ^ 300);
    let mut number = 0;
    while world.goes_on() {
        number += 1;
        match random.below(12) {
            0..=3 => ok(world.db.flush()),
            4 => ok(world.db.compact()),
            5..=6 => ok(world.db.sync()),
            7 => {
                let report = ok(world.db.verify());
                assert!(report.problems.is_empty(), "verify: {:?}", report.problems);
            }
            8 => {
                let stats = world.db.stats();
                assert_eq!(stats.failure, None);
                assert_eq!(stats.damaged_partitions, Vec::<String>::new());
                ok(world.trees[0].len_estimate());
            }
            _ => come_and_go(world, number),
        }
    }
}

fn come_and_go(world: &World, number: u64) {
    let name = format!("temporary-{}", number % 3);
    let tree = ok(world.db.tree(&name));
    assert!(ok(tree.first()).is_none(), "a new tree is empty");
    let mut batch = world.db.batch();
    for key in 0..50_u64 {
        batch.put(&tree, key.to_be_bytes(), vec![number as u8; 40]);
    }
    ok(batch.commit_with(Durability::Buffered));
    ok(tree.delete_range(20_u64.to_be_bytes()..30_u64.to_be_bytes()));
    assert_eq!(tree.iter().map(ok).count(), 40);
    let other = format!("{name}-renamed");
    ok(world.db.rename_tree(&name, &other));
    assert!(world.db.open_tree(&name).is_err_and(|e| e.is_not_found()));
    let on_its_way = tree.iter();
    ok(world.db.drop_tree(&other));
    assert!(tree.get(0_u64.to_be_bytes()).is_err_and(|e| e.is_not_found()));
    assert!(tree.put(b"a", b"b").is_err_and(|e| e.is_not_found()));
    assert_eq!(on_its_way.map(ok).count(), 40);
}

fn stress(place: &Place, seed: u64, steps: u64) {
    let world = World::new(seed, place.open());
    std::thread::scope(|scope| {
        let world = &world;
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let _failing = Failing(world);
                world.write(writer, steps);
            });
        }
        for number in 0..READERS {
            scope.spawn(move || {
                let _failing = Failing(world);
                Reader::new(world, number).run();
            });
        }
        scope.spawn(move || {
            let _failing = Failing(world);
            maintain(world);
        });
    });
    let (seen, stats) = (&world.seen, world.db.stats());
    println!(
        "{} commits, {} flushes, {} merges ({} of unindexed runs), {} folds, {} partitions; {} gets, {} snapshots, {} rows, {} slow iterators, {} snapshots read again",
        stats.commits,
        stats.flushes,
        stats.merges,
        stats.loose_merges,
        stats.folds,
        stats.partitions.len(),
        seen.gets.get(),
        seen.snapshots.get(),
        seen.rows.get(),
        seen.iterators.get(),
        seen.reread.get()
    );
    assert_eq!(stats.snapshots, 0, "a snapshot was leaked");
    check_end(&world, &world.db, &world.trees, steps);
    check_order(&world);
    let World { db, trees, .. } = world;
    drop(trees);
    ok(db.close());
    let world = World::new(seed, place.open());
    check_end(&world, &world.db, &world.trees, steps);
}

fn check_end(world: &World, db: &Db, trees: &[Tree], steps: u64) {
    check_pairs(trees, &db.snapshot());
    for writer in 0..WRITERS {
        let mut expected = Contents::new();
        (1..=steps).for_each(|number| world.writer(writer).step(number).apply(&mut expected));
        let prefix = numbered::prefix(writer);
        for (number, tree) in trees.iter().enumerate() {
            compare(tree.prefix(&prefix), &rows_of(&expected, number, &prefix), || {
                format!("in the end, tree {number}")
            });
        }
    }
    let report = ok(db.verify());
    assert!(report.problems.is_empty(), "verify in the end: {:?}", report.problems);
}

#[test]
fn readers_beside_writers_in_memory_see_exact_states() {
    let seed = common::seed();
    bounded(move || stress(&Place::memory(seed), seed, volume(STEPS[0])));
}

#[test]
fn readers_beside_writers_on_disk_see_exact_states() {
    let seed = common::seed();
    bounded(move || stress(&Place::disk(seed + 2), seed + 1, volume(STEPS[1])));
}

#[test]
fn readers_beside_writers_with_direct_io_see_exact_states() {
    let seed = common::seed();
    bounded(move || stress(&Place::direct(seed + 4), seed + 3, volume(STEPS[1])));
}
