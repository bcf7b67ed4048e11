//! Random operations on a database and on the reference model, under random options: every answer must be the same.
//!
//! A failing case is shrunk to few operations and printed with its options; the same `BRAIDDB_SEED` gives the same
//! cases.

mod common;

use braiddb::{Db, Durability, Iter, MultiTree, Result, Snapshot, Transaction, Tree, Update, Value};
use braiddb_sim::{
    Random, SimDisk, SimRuntime, mix,
    model::{At, Bounds, Bytes, Change, Model, MultiModel, TreeNumber, moment, prefix_bounds, short},
};
use common::{
    SmallOptions, append_of,
    coverage::Coverage,
    full_text, value,
    view::{View, check_stream},
    volume,
    writer::{Way, Writer},
};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner},
};
use std::{collections::VecDeque, ops::Bound, sync::Arc};

/// When the simulated clock begins, in microseconds since 1970.
const START_US: u64 = 1_577_836_800_000_000;

const HOUR_US: u64 = 3_600_000_000;

/// How many keys there are.
const KEYS: u8 = 44;

/// A key by number: empty, zeros, the highest, many alike, some that differ in trailing zeros, some long.
fn key(number: u8) -> Bytes {
    match number % KEYS {
        0 => Vec::new(),
        n @ 1..=2 => vec![0; usize::from(n)],
        n @ 3..=4 => vec![0xff; usize::from(n) - 2],
        n @ 5..=24 => format!("k{n:02}").into_bytes(),
        n @ 25..=29 => [&b"k10"[..], &[0, 0, 0, 0, 0][..usize::from(n) - 24]].concat(),
        n @ 30..=34 => [&[b'p'; 300][..], &[n]].concat(),
        n => format!("user/{:05}/album", u32::from(n) * 7).into_bytes(),
    }
}

/// A value by the number of its size.
fn sized_value(size: u8, tag: u64) -> Bytes {
    value([0, 1, 8, 60, 100, 300, 700, 2500, 6000][usize::from(size) % 9], tag)
}

#[derive(Clone, Debug)]
enum Write {
    Put {
        tree: usize,
        key: u8,
        size: u8,
    },
    Delete {
        tree: usize,
        key: u8,
    },
    Append {
        tree: usize,
        key: u8,
        len: u8,
    },
    /// A value that expires so many half hours after now; some of them have.
    PutUntil {
        tree: usize,
        key: u8,
        size: u8,
        after: i8,
    },
    /// A value from a reader.
    Stream {
        tree: usize,
        key: u8,
        size: u8,
    },
    /// More of it, from a reader.
    Extend {
        tree: usize,
        key: u8,
        size: u8,
    },
    DeleteRange {
        tree: usize,
        bounds: RangeOf,
    },
    Add {
        key: u8,
        value: u8,
    },
    Remove {
        key: u8,
        value: u8,
    },
}

#[derive(Clone, Debug)]
enum Step {
    Write(Write),
    RemoveAll {
        key: u8,
    },
    Batch {
        writes: Vec<Write>,
        sync: bool,
        way: Way,
    },
    /// Reads a key and writes it if it is as it was read, or is not.
    Conditional {
        tree: usize,
        key: u8,
        size: u8,
        what: u8,
    },
    /// Time passes.
    Pass {
        hours: u8,
    },
    /// A bulk load of these keys.
    Load {
        tree: usize,
        keys: Vec<u8>,
        size: u8,
    },
    /// Many keys in a row, so that memtables fill and partitions split.
    Fill {
        tree: usize,
        first: u16,
        count: u8,
        size: u8,
    },
    Get {
        tree: usize,
        keys: Vec<u8>,
    },
    Range {
        tree: usize,
        bounds: RangeOf,
        directions: u64,
    },
    Prefix {
        tree: usize,
        key: u8,
        len: u8,
        directions: u64,
    },
    Ends {
        tree: usize,
    },
    /// An iterator that stays open while other things happen.
    Hold {
        tree: usize,
        bounds: RangeOf,
    },
    Advance {
        which: u8,
        count: u8,
        directions: u64,
    },
    Snapshot,
    ReadSnapshot {
        which: u8,
        tree: usize,
        bounds: RangeOf,
        directions: u64,
    },
    DropSnapshot {
        which: u8,
    },
    Multi {
        bounds: RangeOf,
        key: u8,
        directions: u64,
    },
    /// Many pairs of one key in a row, so that it has a part of its own in memtables, runs and views.
    MultiFill {
        key: u8,
        first: u16,
        count: u8,
    },
    /// Seeks by value and steps, within a key.
    MultiSeek {
        key: u8,
        value: u8,
        steps: u64,
    },
    MultiSnapshot,
    ReadMultiSnapshot {
        which: u8,
        key: u8,
    },
    /// Pairs in a transaction, which are read before it ends.
    MultiTransaction {
        pairs: Vec<(u8, u8, u8)>,
        is_exclusive: bool,
        is_committed: bool,
    },
    Flush,
    Compact,
    Sync,
    DropTree {
        tree: usize,
    },
    Reopen {
        close: bool,
    },
    Verify,
}

/// Bounds by the numbers of keys; 0: included, 1: excluded, 2: unbounded.
#[derive(Clone, Debug)]
struct RangeOf {
    from: (u8, u8),
    to: (u8, u8),
}

impl RangeOf {
    fn bounds(&self) -> Bounds {
        let bound = |(kind, number)| match kind {
            0 => Bound::Included(key(number)),
            1 => Bound::Excluded(key(number)),
            _ => Bound::Unbounded,
        };
        (bound(self.from), bound(self.to))
    }
}

fn any_range() -> impl Strategy<Value = RangeOf> {
    ((0..3_u8, 0..KEYS), (0..3_u8, 0..KEYS)).prop_map(|(from, to)| RangeOf { from, to })
}

fn any_write() -> impl Strategy<Value = Write> {
    prop_oneof![
        6 => (0..2_usize, 0..KEYS, 0..9_u8).prop_map(|(tree, key, size)| Write::Put { tree, key, size }),
        2 => (0..2_usize, 0..KEYS).prop_map(|(tree, key)| Write::Delete { tree, key }),
        2 => (0..2_usize, 0..KEYS, 0..90_u8).prop_map(|(tree, key, len)| Write::Append { tree, key, len }),
        3 => (0..2_usize, 0..KEYS, 0..9_u8, -1..5_i8)
            .prop_map(|(tree, key, size, after)| Write::PutUntil { tree, key, size, after }),
        3 => (0..2_usize, 0..KEYS, 0..9_u8).prop_map(|(tree, key, size)| Write::Stream { tree, key, size }),
        3 => (0..2_usize, 0..KEYS, 0..9_u8).prop_map(|(tree, key, size)| Write::Extend { tree, key, size }),
        1 => (0..2_usize, any_range()).prop_map(|(tree, bounds)| Write::DeleteRange { tree, bounds }),
        1 => (0..8_u8, 0..6_u8).prop_map(|(key, value)| Write::Add { key, value }),
        1 => (0..8_u8, 0..6_u8).prop_map(|(key, value)| Write::Remove { key, value }),
    ]
}

fn any_way() -> impl Strategy<Value = Way> {
    prop_oneof![2 => Just(Way::Batch), 2 => Just(Way::Transaction), 1 => Just(Way::Exclusive)]
}

fn any_step() -> impl Strategy<Value = Step> {
    let tree = 0..2_usize;
    prop_oneof![
        10 => any_write().prop_map(Step::Write),
        1 => (0..8_u8).prop_map(|key| Step::RemoveAll { key }),
        4 => (vec(any_write(), 1..12), any::<bool>(), any_way())
            .prop_map(|(writes, sync, way)| Step::Batch { writes, sync, way }),
        3 => (tree.clone(), 0..KEYS, 0..9_u8, 0..6_u8)
            .prop_map(|(tree, key, size, what)| Step::Conditional { tree, key, size, what }),
        2 => (1..40_u8).prop_map(|hours| Step::Pass { hours: if hours > 30 { hours } else { 1 + hours % 3 } }),
        2 => (tree.clone(), 0..300_u16, 1..60_u8, 0..9_u8)
            .prop_map(|(tree, first, count, size)| Step::Fill { tree, first, count, size }),
        2 => (tree.clone(), vec(0..KEYS, 1..30), 0..9_u8).prop_map(|(tree, keys, size)| Step::Load { tree, keys, size }),
        3 => (tree.clone(), vec(0..KEYS, 1..20)).prop_map(|(tree, keys)| Step::Get { tree, keys }),
        4 => (tree.clone(), any_range(), any::<u64>())
            .prop_map(|(tree, bounds, directions)| Step::Range { tree, bounds, directions }),
        2 => (tree.clone(), 0..KEYS, 0..8_u8, any::<u64>())
            .prop_map(|(tree, key, len, directions)| Step::Prefix { tree, key, len, directions }),
        1 => tree.clone().prop_map(|tree| Step::Ends { tree }),
        1 => (tree.clone(), any_range()).prop_map(|(tree, bounds)| Step::Hold { tree, bounds }),
        2 => (any::<u8>(), 1..20_u8, any::<u64>())
            .prop_map(|(which, count, directions)| Step::Advance { which, count, directions }),
        2 => Just(Step::Snapshot),
        3 => (any::<u8>(), tree.clone(), any_range(), any::<u64>())
            .prop_map(|(which, tree, bounds, directions)| Step::ReadSnapshot { which, tree, bounds, directions }),
        1 => any::<u8>().prop_map(|which| Step::DropSnapshot { which }),
        1 => (any_range(), 0..8_u8, any::<u64>())
            .prop_map(|(bounds, key, directions)| Step::Multi { bounds, key, directions }),
        3 => any_multi_step(),
        3 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Sync),
        1 => tree.prop_map(|tree| Step::DropTree { tree }),
        2 => any::<bool>().prop_map(|close| Step::Reopen { close }),
        1 => Just(Step::Verify),
    ]
}

fn any_multi_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..8_u8, 0..400_u16, any::<u8>()).prop_map(|(key, first, count)| Step::MultiFill { key, first, count }),
        3 => (0..8_u8, 0..KEYS, any::<u64>()).prop_map(|(key, value, steps)| Step::MultiSeek { key, value, steps }),
        1 => Just(Step::MultiSnapshot),
        2 => (any::<u8>(), 0..8_u8).prop_map(|(which, key)| Step::ReadMultiSnapshot { which, key }),
        2 => (vec((0..8_u8, 0..8_u8, 0..6_u8), 1..12), any::<bool>(), any::<bool>()).prop_map(
            |(pairs, is_exclusive, is_committed)| Step::MultiTransaction { pairs, is_exclusive, is_committed }
        ),
    ]
}

macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

/// What a step gives: the engine's error, or a wrong answer, in words.
type Outcome<T = ()> = std::result::Result<T, String>;

trait Said<T> {
    fn said(self, what: &str) -> Outcome<T>;
}

impl<T> Said<T> for Result<T> {
    fn said(self, what: &str) -> Outcome<T> {
        self.map_err(|e| format!("{what}: {}", full_text(&e)))
    }
}

/// Takes entries from both ends, by the bits of `directions`, and compares each; `whole` demands that both end there.
fn drain<K, V>(
    iter: &mut impl DoubleEndedIterator<Item = Result<(K, V)>>,
    expected: &mut VecDeque<(Bytes, Bytes)>,
    mut directions: u64,
    count: usize,
    whole: bool,
) -> Outcome
where
    K: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    // All forwards, all backwards, or mixed.
    match directions % 4 {
        0 => directions = 0,
        1 => directions = u64::MAX,
        _ => {}
    }
    for step in 0..count {
        let back = directions >> (step % 64) & 1 == 1;
        let (found, wanted) =
            if back { (iter.next_back(), expected.pop_back()) } else { (iter.next(), expected.pop_front()) };
        let found = found.transpose().said("an iterator")?;
        let same = match (&found, &wanted) {
            (None, None) => true,
            (Some((key, value)), Some((k, v))) => key.as_ref() == k && value.as_ref() == v,
            _ => false,
        };
        ensure!(
            same,
            "step {step} of an iterator ({}) gave {:?} instead of {:?}",
            if back { "back" } else { "forth" },
            found.map(|(k, v)| (short(k.as_ref()), short(v.as_ref()))),
            wanted.map(|(k, v)| (short(&k), short(&v)))
        );
        if wanted.is_none() {
            break;
        }
    }
    if whole {
        for back in [true, false, true] {
            let more = if back { iter.next_back() } else { iter.next() };
            ensure!(more.is_none(), "an iterator goes on after its end");
        }
    }
    Ok(())
}

struct Held {
    iter: Iter,
    expected: VecDeque<(Bytes, Bytes)>,
    tree: TreeNumber,
}

/// Whether a batch cannot take a change after these: operands on a value of its own that expires, or may.
fn is_refused(before: &[Change], change: &Change) -> bool {
    let Change::Append(tree, key, _) = change else { return false };
    before.iter().any(|change| match change {
        Change::PutUntil(of, put, ..) | Change::Extend(of, put, _) => of == tree && put == key,
        _ => false,
    })
}

/// The database and the model of it.
struct World<'a> {
    coverage: &'a Coverage,
    disk: Arc<SimDisk>,
    options: SmallOptions,
    db: Option<Db>,
    trees: Vec<Tree>,
    /// The model's numbers of the trees: a dropped tree's number is never used again.
    numbers: [TreeNumber; 2],
    next_number: TreeNumber,
    multi: Option<MultiTree>,
    model: Model,
    multi_model: MultiModel,
    snapshots: Vec<(Snapshot, At, [TreeNumber; 2])>,
    multi_snapshots: Vec<(Snapshot, MultiModel)>,
    runtime: Arc<SimRuntime>,
    /// How much time has passed.
    hours: u64,
    held: Vec<Held>,
    tag: u64,
}

impl<'a> World<'a> {
    fn new(options: SmallOptions, coverage: &'a Coverage) -> Outcome<World<'a>> {
        let mut world = World {
            coverage,
            disk: SimDisk::without_journal(1),
            options,
            db: None,
            trees: Vec::new(),
            numbers: [0, 1],
            next_number: 2,
            multi: None,
            model: Model::new(),
            multi_model: MultiModel::default(),
            snapshots: Vec::new(),
            runtime: SimRuntime::new(1),
            hours: 0,
            multi_snapshots: Vec::new(),
            held: Vec::new(),
            tag: 0,
        };
        world.open()?;
        Ok(world)
    }

    fn open(&mut self) -> Outcome {
        self.runtime = SimRuntime::new(mix(self.tag, self.disk.next_session()));
        self.runtime.advance_us(self.hours * HOUR_US);
        let builder = self.options.builder_by(&self.disk, Arc::clone(&self.runtime));
        let db = builder.open(common::PATH).said("open")?;
        self.model.now_us = self.now_us();
        self.trees = vec![db.tree("left").said("tree")?, db.tree("right").said("tree")?];
        self.multi = Some(db.multi_tree("multi").said("multi_tree")?);
        self.db = Some(db);
        Ok(())
    }

    /// The time of the runtime's clock, but for less than half an hour that passes while things are done.
    fn now_us(&self) -> u64 {
        START_US + self.hours * HOUR_US
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("the database is open")
    }

    fn multi(&self) -> &MultiTree {
        self.multi.as_ref().expect("the database is open")
    }

    fn commit(&mut self, sequence: Result<u64>, changes: &[Change]) -> Outcome {
        let sequence = sequence.said("a write")?;
        let no_op = |change: &Change| match change {
            Change::DeleteRange(tree, bounds) => self.model.range(*tree, bounds, u64::MAX).is_empty(),
            _ => false,
        };
        if sequence == self.model.last_sequence() && changes.iter().all(no_op) {
            // Ranges that can hold no key make no commit.
            return Ok(());
        }
        ensure!(sequence > self.model.last_sequence(), "commit {sequence} after {}", self.model.last_sequence());
        self.model.commit(sequence, changes);
        Ok(())
    }

    /// The change of the model that a write makes; `None` for multi-trees, whose model is changed here.
    fn change_of(&mut self, write: &Write) -> Option<Change> {
        self.tag += 1;
        match write {
            Write::Put { tree, key: number, size } | Write::Stream { tree, key: number, size } => {
                Some(Change::Put(self.numbers[*tree], key(*number), sized_value(*size, self.tag)))
            }
            Write::PutUntil { tree, key: number, size, after } => {
                // Half an hour from when anything is read.
                let expires_us = self.now_us().saturating_add_signed(i64::from(*after) * HOUR_US as i64) + HOUR_US / 2;
                let value = sized_value(*size, self.tag);
                Some(Change::PutUntil(self.numbers[*tree], key(*number), value, expires_us))
            }
            Write::Delete { tree, key: number } => Some(Change::Delete(self.numbers[*tree], key(*number))),
            Write::Append { tree, key: number, len } => {
                Some(Change::Append(self.numbers[*tree], key(*number), value(usize::from(*len), self.tag)))
            }
            Write::Extend { tree, key: number, size } => {
                Some(Change::Extend(self.numbers[*tree], key(*number), sized_value(*size, self.tag)))
            }
            Write::DeleteRange { tree, bounds } => Some(Change::DeleteRange(self.numbers[*tree], bounds.bounds())),
            Write::Add { key: number, value } => {
                self.multi_model.add(&key(*number), &key(*value));
                None
            }
            Write::Remove { key: number, value } => {
                self.multi_model.remove(&key(*number), &key(*value));
                None
            }
        }
    }

    /// Loads these keys in their order, each once; a snapshot and an iterator of before must not see it.
    fn load(&mut self, tree: usize, numbers: &[u8], size: u8) -> Outcome {
        let keys: std::collections::BTreeSet<Bytes> = numbers.iter().map(|number| key(*number)).collect();
        let mut records = Vec::new();
        for key in keys {
            self.tag += 1;
            records.push((key, sized_value(size.wrapping_add(self.tag as u8 % 3), self.tag)));
        }
        let loaded = self.trees[tree].bulk_load(records.iter().map(|(key, value)| (key, value)));
        let number = self.numbers[tree];
        let changes: Vec<Change> = records.into_iter().map(|(key, value)| Change::Put(number, key, value)).collect();
        self.commit(loaded.map(|loaded| loaded.sequence), &changes)
    }

    fn write(&mut self, write: &Write) -> Outcome {
        let change = self.change_of(write);
        let result = match (&change, write) {
            (Some(Change::Put(_, key, value)), Write::Put { tree, .. }) => self.trees[*tree].put(key, value),
            (Some(Change::PutUntil(_, key, value, expires_us)), Write::PutUntil { tree, .. }) => {
                self.trees[*tree].put_until(key, value, moment(*expires_us))
            }
            (Some(Change::Put(_, key, value)), Write::Stream { tree, .. }) => {
                self.abandon(*tree, key, value)?;
                self.trees[*tree].put_stream(key, value.as_slice())
            }
            (Some(Change::Extend(_, key, more)), Write::Extend { tree, .. }) => {
                self.trees[*tree].append_stream(key, more.as_slice())
            }
            (Some(Change::Delete(_, key)), Write::Delete { tree, .. }) => self.trees[*tree].delete(key),
            (Some(Change::Append(_, key, more)), Write::Append { tree, .. }) => {
                self.trees[*tree].merge(key, &append_of(self.db()), more)
            }
            (Some(Change::DeleteRange(_, bounds)), Write::DeleteRange { tree, .. }) => {
                self.trees[*tree].delete_range(bounds.clone())
            }
            (_, Write::Add { key: number, value }) => {
                return self.multi().add(key(*number), key(*value)).said("add").map(drop);
            }
            (_, Write::Remove { key: number, value }) => {
                return self.multi().remove(key(*number), key(*value)).said("remove").map(drop);
            }
            _ => unreachable!("a write and its change are of one kind"),
        };
        self.commit(result, change.as_slice())
    }

    /// Begins a stream and gives it up, now and then.
    fn abandon(&self, tree: usize, key: &[u8], value: &[u8]) -> Outcome {
        if self.tag.is_multiple_of(3) {
            let pending = self.trees[tree].write_stream(key, value).said("write_stream")?;
            ensure!(pending.len() == value.len() as u64, "a stream of {} bytes", pending.len());
        }
        Ok(())
    }

    fn batch(&mut self, writes: &[Write], sync: bool, way: Way) -> Outcome {
        // A batch cannot append to a stream of its own.
        let appends = |write: &Write| matches!(write, Write::Append { .. } | Write::Extend { .. });
        let streams = way != Way::Batch || !writes.iter().any(appends);
        let mut writer = Writer::new(self.db(), &self.trees, way).said("begin")?;
        let mut changes = Vec::new();
        for write in writes {
            let mut change = self.change_of(write);
            if let (Some(Change::Extend(tree, key, more)), Way::Batch) = (&change, way) {
                // What a batch does: by the merge function.
                change = Some(Change::Append(*tree, key.clone(), more.clone()));
            }
            if change.as_ref().is_some_and(|change| is_refused(&changes, change)) {
                continue;
            }
            let done = match (&change, write) {
                (Some(Change::Put(_, key, value)), Write::Put { tree, .. }) => {
                    writer.put(&self.trees[*tree], key, value)
                }
                (Some(Change::PutUntil(_, key, value, expires_us)), Write::PutUntil { tree, .. }) => {
                    writer.put_until(&self.trees[*tree], key, value, *expires_us)
                }
                (Some(Change::Put(_, key, value)), Write::Stream { tree, .. }) if streams => {
                    writer.put_stream(&self.trees[*tree], key, value)
                }
                (Some(Change::Put(_, key, value)), Write::Stream { tree, .. }) => {
                    writer.put(&self.trees[*tree], key, value)
                }
                (Some(Change::Append(_, key, more) | Change::Extend(_, key, more)), Write::Extend { tree, .. }) => {
                    writer.append_stream(&self.trees[*tree], key, more)
                }
                (Some(Change::Delete(_, key)), Write::Delete { tree, .. }) => writer.delete(&self.trees[*tree], key),
                (Some(Change::Append(_, key, more)), Write::Append { tree, .. }) => {
                    writer.append(&self.trees[*tree], key, more)
                }
                (Some(Change::DeleteRange(_, bounds)), Write::DeleteRange { tree, .. }) => {
                    writer.delete_range(&self.trees[*tree], bounds.clone())
                }
                (_, Write::Add { key: number, value }) => writer.add(self.multi(), &key(*number), &key(*value)),
                (_, Write::Remove { key: number, value }) => writer.remove(self.multi(), &key(*number), &key(*value)),
                _ => unreachable!("a write and its change are of one kind"),
            };
            done.said("a write of a batch")?;
            changes.extend(change);
        }
        if let Writer::Transaction(_, transaction) = &writer {
            self.check_own(transaction, &changes)?;
        }
        let durability = if sync { Durability::Sync } else { Durability::Buffered };
        self.commit(writer.commit(durability), &changes)
    }

    /// What a transaction sees before it is committed, in both directions.
    fn check_own(&self, transaction: &Transaction, changes: &[Change]) -> Outcome {
        let mut model = self.model.clone();
        model.commit(u64::MAX, changes);
        for (tree, number) in self.trees.iter().zip(&self.numbers) {
            let expected = model.range(*number, &(Bound::Unbounded, Bound::Unbounded), u64::MAX);
            let mut forward = VecDeque::from(expected.clone());
            drain(&mut transaction.iter(tree), &mut forward, 0, usize::MAX, true)?;
            let mut mixed = VecDeque::from(expected);
            drain(&mut transaction.iter(tree), &mut mixed, self.tag, usize::MAX, true)?;
            for number_of_key in [5, 9, 12, 26] {
                let key = key(number_of_key);
                let found = transaction.stream(tree, &key).said("stream")?;
                check_stream(found, model.get(*number, &key, u64::MAX))
                    .map_err(|text| format!("a transaction's stream of {}: {text}", short(&key)))?;
            }
        }
        Ok(())
    }

    /// Writes of one key on a condition, which holds or does not.
    fn conditional(&mut self, tree: usize, number: u8, size: u8, what: u8) -> Outcome {
        self.tag += 1;
        let (handle, key, new) = (self.trees[tree].clone(), key(number), sized_value(size, self.tag));
        let expected = self.model.get(self.numbers[tree], &key, u64::MAX).map(<[u8]>::to_vec);
        let found = handle.get_versioned(&key).said("get_versioned")?;
        ensure!(found.as_ref().map(|found| &*found.0) == expected.as_deref(), "get_versioned of {}", short(&key));
        let (put, delete) = (
            Change::Put(self.numbers[tree], key.clone(), new.clone()),
            Change::Delete(self.numbers[tree], key.clone()),
        );
        let never = self.db().version_of(u64::MAX >> 2);
        let (result, change) = match (what, found.map(|found| found.1)) {
            (0, found) => (handle.put_if_absent(&key, &new), found.is_none().then_some(put)),
            (1, _) => (handle.compare_and_set(&key, expected.as_deref(), Some(&new)), Some(put)),
            (2, _) => (handle.compare_and_set(&key, Some(b"never there"), None), None),
            (3, Some(version)) => (handle.put_if_version(&key, &new, version), Some(put)),
            (4, Some(version)) => (handle.delete_if_version(&key, version), Some(delete)),
            (3 | 4, None) => (handle.put_if_version(&key, &new, never), None),
            _ => {
                let before = handle.fetch_update(&key, |_| Update::Put(new.clone())).said("fetch_update")?;
                ensure!(before.as_deref() == expected.as_deref(), "fetch_update of {}", short(&key));
                (handle.get_versioned(&key).map(|found| found.map(|found| found.1)), Some(put))
            }
        };
        let written = result.said("a write on a condition")?;
        ensure!(written.is_some() == change.is_some(), "condition {what} on {} gave {written:?}", short(&key));
        match (written, change) {
            (Some(version), Some(change)) => self.commit(Ok(version.sequence()), &[change]),
            _ => Ok(()),
        }
    }

    fn fill(&mut self, tree: usize, first: u16, count: u8, size: u8) -> Outcome {
        for number in 0..u16::from(count) {
            self.tag += 1;
            let key = format!("fill{:04}", first + number).into_bytes();
            // Large values in a row would make the case slow.
            let value = sized_value(size % 7, self.tag);
            let mut batch = self.db().batch();
            batch.put(&self.trees[tree], &key, &value);
            let result = self.db().write(batch, Durability::Buffered);
            self.commit(result, &[Change::Put(self.numbers[tree], key, value)])?;
        }
        Ok(())
    }

    fn check_get(&self, view: &View<'_>, tree: TreeNumber, at: impl Into<At>, keys: &[u8]) -> Outcome {
        let at = at.into();
        let keys: Vec<Bytes> = keys.iter().map(|number| key(*number)).collect();
        let many = view.multi_get(&keys).said("multi_get")?;
        ensure!(many.len() == keys.len(), "multi_get gave {} values for {} keys", many.len(), keys.len());
        for (key, found) in keys.iter().zip(many) {
            let expected = self.model.get(tree, key, at);
            ensure!(found.as_deref() == expected, "multi_get {}: {:?}", short(key), found.as_deref().map(short));
            let found = view.get(key).said("get")?;
            ensure!(
                found.as_deref() == expected,
                "get {} is {:?} instead of {:?}",
                short(key),
                found.as_deref().map(short),
                expected.map(short)
            );
            ensure!(view.contains(key).said("contains")? == expected.is_some(), "contains {}", short(key));
            check_stream(view.stream(key).said("stream")?, expected)
                .map_err(|text| format!("a stream of {}: {text}", short(key)))?;
        }
        Ok(())
    }

    fn check_range(
        &self,
        view: &View<'_>,
        tree: TreeNumber,
        at: impl Into<At>,
        bounds: &Bounds,
        directions: u64,
    ) -> Outcome {
        let mut expected = VecDeque::from(self.model.range(tree, bounds, at));
        let count = expected.len() + 1;
        drain(&mut view.range(bounds.clone()), &mut expected, directions, count, true)
            .map_err(|text| format!("{text}, in the range {bounds:?}"))
    }

    /// Everything, in every way.
    fn check_all(&self) -> Outcome {
        let everything = (Bound::Unbounded, Bound::Unbounded);
        let all_keys: Vec<u8> = (0..KEYS).collect();
        for (tree, number) in self.trees.iter().zip(self.numbers) {
            let view = View::Now(tree);
            self.check_get(&view, number, u64::MAX, &all_keys)?;
            for directions in [0, 1, 0x5a5a_1234_9876_fff2] {
                self.check_range(&view, number, u64::MAX, &everything, directions)?;
            }
            let mut expected = VecDeque::from(self.model.range(number, &everything, u64::MAX));
            let count = expected.len() + 1;
            drain(&mut view.iter(), &mut expected, 0, count, true)?;
        }
        for number in 1..8 {
            self.check_multi(&everything, number, 0)?;
        }
        self.check_multi(&everything, 0, 0)
    }

    /// The steps that concern multi-trees alone.
    fn step_of_multi(&mut self, step: &Step) -> Outcome {
        match step {
            Step::MultiFill { key: number, first, count } => {
                let mut batch = self.db().batch();
                for value in *first..first + u16::from(*count) {
                    let value = value.wrapping_mul(40503).to_be_bytes();
                    batch.add(self.multi(), key(*number), value);
                    self.multi_model.add(&key(*number), &value);
                }
                self.db().write(batch, Durability::Buffered).said("a batch of pairs").map(drop)
            }
            Step::MultiSeek { key: number, value, steps } => self.check_multi_seek(&key(*number), &key(*value), *steps),
            Step::MultiSnapshot => {
                self.multi_snapshots.push((self.db().snapshot(), self.multi_model.clone()));
                if self.multi_snapshots.len() > 3 {
                    self.multi_snapshots.remove(0);
                }
                Ok(())
            }
            Step::ReadMultiSnapshot { which, key: number } => {
                let which = usize::from(*which) % self.multi_snapshots.len().max(1);
                let Some((snapshot, model)) = self.multi_snapshots.get(which) else { return Ok(()) };
                let (one, multi) = (key(*number), self.multi());
                let expected = model.values(&one);
                let found = snapshot.count(multi, &one).said("a snapshot's count")?;
                ensure!(found == expected.len() as u64, "{found} values in a snapshot, not {}", expected.len());
                let mut expected: VecDeque<_> = expected.into_iter().map(|value| (one.clone(), value)).collect();
                let count = expected.len() + 1;
                drain(&mut snapshot.values(multi, &one), &mut expected, self.tag, count, true)
            }
            Step::MultiTransaction { pairs, is_exclusive, is_committed } => {
                self.multi_transaction(pairs, *is_exclusive, *is_committed)
            }
            other => unreachable!("{other:?} is done elsewhere"),
        }
    }

    fn check_multi_seek(&self, key: &[u8], value: &[u8], mut steps: u64) -> Outcome {
        let values = self.multi_model.values(key);
        let at = values.partition_point(|other| other.as_slice() < value);
        let mut cursor = self.multi().cursor();
        let before = cursor.seek_value_before(key, value).said("seek_value_before")?;
        let found = before.then(|| cursor.value().to_vec());
        ensure!(found.as_ref() == values[..at].last(), "{found:?} is before {} of {}", short(value), short(key));
        let is_there = cursor.seek_value(key, value).said("seek_value")?;
        let found = is_there.then(|| cursor.value().to_vec());
        ensure!(found.as_ref() == values.get(at), "{found:?} is at {} of {}", short(value), short(key));
        let mut at = at as i64;
        for _ in 0..12 {
            let by = if steps & 1 == 0 { 1 } else { -1 };
            at = (at + by).clamp(-1, values.len() as i64);
            steps >>= 1;
            let is_there = if by > 0 { cursor.next_value() } else { cursor.prev_value() }.said("a step by value")?;
            let found = is_there.then(|| cursor.value());
            let expected = usize::try_from(at).ok().and_then(|at| values.get(at));
            ensure!(found == expected.map(Vec::as_slice), "{found:?} instead of {expected:?} of {}", short(key));
        }
        let found = cursor.count_of(key).said("a cursor's count")?;
        ensure!(found == values.len() as u64, "{found} values of {} by a cursor", short(key));
        Ok(())
    }

    fn multi_transaction(&mut self, pairs: &[(u8, u8, u8)], is_exclusive: bool, is_committed: bool) -> Outcome {
        let begun = if is_exclusive { self.db().begin_exclusive() } else { self.db().begin() };
        let (tx, mut model) = (begun.said("begin")?, self.multi_model.clone());
        for (what, of, value) in pairs {
            let (of, value, multi) = (key(*of), key(*value), self.multi());
            match what {
                0 => tx.remove_all(multi, &of).said("remove_all").map(|()| model.remove_all(&of))?,
                1..4 => tx.remove(multi, &of, &value).said("remove").map(|()| model.remove(&of, &value))?,
                _ => tx.add(multi, &of, &value).said("add").map(|()| model.add(&of, &value))?,
            }
            let expected = model.values(&of);
            let found = tx.count(multi, &of).said("a transaction's count")?;
            ensure!(found == expected.len() as u64, "{found} values of {} in a transaction", short(&of));
            let found = tx.contains_value(multi, &of, &value).said("contains_value")?;
            ensure!(found == expected.contains(&value), "a transaction holds {} of {}", short(&value), short(&of));
            let mut expected: VecDeque<_> = expected.into_iter().map(|value| (of.clone(), value)).collect();
            let count = expected.len() + 1;
            drain(&mut tx.values(multi, &of), &mut expected, self.tag, count, true)?;
        }
        if is_committed {
            tx.commit().said("a transaction of pairs")?;
            self.multi_model = model;
        }
        Ok(())
    }

    fn check_multi(&self, bounds: &Bounds, number: u8, directions: u64) -> Outcome {
        let mut expected = VecDeque::from(self.multi_model.range(bounds));
        let count = expected.len() + 1;
        drain(&mut self.multi().range(bounds.clone()), &mut expected, directions, count, true)
            .map_err(|text| format!("{text}, in the multi-tree's range {bounds:?}"))?;
        let one = key(number);
        let of_key = (Bound::Included(one.clone()), Bound::Included(one.clone()));
        let mut expected = VecDeque::from(self.multi_model.range(&of_key));
        for (key, value) in &expected {
            ensure!(self.multi().contains(key, value).said("contains")?, "a value is missing from {}", short(key));
        }
        let found = self.multi().count(&one).said("count")?;
        ensure!(found == expected.len() as u64, "{found} values of {} instead of {}", short(&one), expected.len());
        let count = expected.len() + 1;
        drain(&mut self.multi().values(&one), &mut expected, directions, count, true)
            .map_err(|text| format!("{text}, in the values of {}", short(&one)))
    }

    fn step(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Write(write) => self.write(write)?,
            Step::RemoveAll { key: number } => {
                self.multi().remove_all(key(*number)).said("remove_all")?;
                self.multi_model.remove_all(&key(*number));
            }
            Step::Batch { writes, sync, way } => self.batch(writes, *sync, *way)?,
            Step::Fill { tree, first, count, size } => self.fill(*tree, *first, *count, *size)?,
            Step::Load { tree, keys, size } => self.load(*tree, keys, *size)?,
            Step::Conditional { tree, key, size, what } => self.conditional(*tree, *key, *size, *what)?,
            Step::Pass { hours } => {
                self.hours += u64::from(*hours);
                self.runtime.advance_us(u64::from(*hours) * HOUR_US);
                self.model.now_us = self.now_us();
            }
            Step::Get { tree, keys } => {
                self.check_get(&View::Now(&self.trees[*tree]), self.numbers[*tree], u64::MAX, keys)?;
            }
            Step::Range { tree, bounds, directions } => {
                let view = View::Now(&self.trees[*tree]);
                self.check_range(&view, self.numbers[*tree], u64::MAX, &bounds.bounds(), *directions)?;
            }
            Step::Prefix { tree, key: number, len, directions } => {
                let mut prefix = key(*number);
                prefix.truncate(usize::from(*len));
                let bounds = prefix_bounds(&prefix);
                let mut expected = VecDeque::from(self.model.range(self.numbers[*tree], &bounds, u64::MAX));
                let count = expected.len() + 1;
                drain(&mut View::Now(&self.trees[*tree]).prefix(&prefix), &mut expected, *directions, count, true)
                    .map_err(|text| format!("{text}, with the prefix {}", short(&prefix)))?;
            }
            Step::Ends { tree } => self.check_ends(*tree)?,
            Step::Verify => {
                let report = self.db().verify().said("verify")?;
                ensure!(report.problems.is_empty(), "verify found {:?}", report.problems);
            }
            _ => self.step_of_state(step)?,
        }
        Ok(())
    }

    fn check_ends(&self, tree: usize) -> Outcome {
        let all = self.model.range(self.numbers[tree], &(Bound::Unbounded, Bound::Unbounded), u64::MAX);
        let tree = &self.trees[tree];
        let plain = |(key, value): (braiddb::Key, Value)| (key.to_vec(), value.to_vec());
        ensure!(tree.first().said("first")?.map(plain).as_ref() == all.first(), "first");
        ensure!(tree.last().said("last")?.map(plain).as_ref() == all.last(), "last");
        Ok(())
    }

    /// The steps that concern snapshots, open iterators, and the database as a whole.
    fn step_of_state(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Hold { tree, bounds } => {
                let bounds = bounds.bounds();
                let expected = VecDeque::from(self.model.range(self.numbers[*tree], &bounds, u64::MAX));
                let iter = self.trees[*tree].range(bounds);
                self.held.push(Held { iter, expected, tree: self.numbers[*tree] });
            }
            Step::Advance { which, count, directions } => {
                if !self.held.is_empty() {
                    let which = usize::from(*which) % self.held.len();
                    let held = &mut self.held[which];
                    drain(&mut held.iter, &mut held.expected, *directions, usize::from(*count), false)
                        .map_err(|text| format!("{text}, in an iterator that was held"))?;
                }
            }
            Step::Snapshot => {
                let snapshot = self.db().snapshot();
                ensure!(
                    snapshot.sequence() >= self.model.last_sequence(),
                    "a snapshot at {} after commit {}",
                    snapshot.sequence(),
                    self.model.last_sequence()
                );
                let at = At { sequence: snapshot.sequence(), time_us: Some(self.now_us()) };
                self.snapshots.push((snapshot, at, self.numbers));
            }
            Step::ReadSnapshot { which, tree, bounds, directions } => {
                if let Some((snapshot, at, numbers)) =
                    self.snapshots.get(usize::from(*which) % self.snapshots.len().max(1))
                    && numbers[*tree] == self.numbers[*tree]
                {
                    let view = View::At(snapshot, &self.trees[*tree]);
                    self.check_range(&view, numbers[*tree], *at, &bounds.bounds(), *directions)
                        .and_then(|()| self.check_get(&view, numbers[*tree], *at, &[0, 5, 10, 20, 26, 31, 40]))
                        .map_err(|text| format!("{text}, in a snapshot at {at:?}"))?;
                }
            }
            Step::DropSnapshot { which } => {
                if !self.snapshots.is_empty() {
                    self.snapshots.remove(usize::from(*which) % self.snapshots.len());
                }
            }
            Step::Multi { bounds, key, directions } => self.check_multi(&bounds.bounds(), *key, *directions)?,
            Step::Flush => self.db().flush().said("flush")?,
            Step::Compact => self.db().compact().said("compact")?,
            Step::Sync => self.db().sync().said("sync")?,
            Step::DropTree { tree } => {
                let name = ["left", "right"][*tree];
                let dropped = self.numbers[*tree];
                self.held.retain(|held| held.tree != dropped);
                self.db().drop_tree(name).said("drop_tree")?;
                ensure!(self.db().open_tree(name).is_err_and(|e| e.is_not_found()), "a dropped tree can be opened");
                self.trees[*tree] = self.db().tree(name).said("tree")?;
                self.numbers[*tree] = self.next_number;
                self.next_number += 1;
            }
            Step::Reopen { close } => self.reopen(*close)?,
            _ => self.step_of_multi(step)?,
        }
        Ok(())
    }

    /// Notes what the engine has come to do, and that no job failed.
    fn note_coverage(&self) -> Outcome {
        let stats = self.db().stats();
        ensure!(stats.background_errors == 0, "{} background jobs failed", stats.background_errors);
        self.coverage.note(&stats);
        Ok(())
    }

    fn reopen(&mut self, close: bool) -> Outcome {
        self.note_coverage()?;
        self.held.clear();
        self.snapshots.clear();
        self.multi_snapshots.clear();
        self.trees.clear();
        self.multi = None;
        if let Some(db) = self.db.take()
            && close
        {
            db.close().said("close")?;
        }
        self.open()
    }
}

fn run_case(seed: u64, steps: &[Step], coverage: &Coverage) -> Outcome {
    let options = SmallOptions::random(&mut Random::new(seed));
    let mut world = World::new(options.clone(), coverage)?;
    let mut run = || {
        for (number, step) in steps.iter().enumerate() {
            world.step(step).map_err(|text| format!("step {number}, {step:?}: {text}"))?;
        }
        world.check_all().map_err(|text| format!("at the end: {text}"))?;
        world.step(&Step::Verify)?;
        world.reopen(seed.is_multiple_of(2))?;
        world.check_all().map_err(|text| format!("after reopening: {text}"))
    };
    run().map_err(|text| format!("{text}; options: {options:?}"))
}

/// A quarter of the cases, so that they run beside each other.
fn run_part(part: u64) {
    let seed = common::seed();
    let mut random = Random::new(seed ^ (part << 32));
    let rng_seed = random.bytes(32);
    let cases = u32::try_from(volume(2000).div_ceil(4)).expect("fewer than four billion cases");
    let config =
        ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 3000, ..ProptestConfig::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &rng_seed);
    let coverage = Coverage::default();
    let outcome = TestRunner::new_with_rng(config, rng)
        .run(&(any::<u64>(), vec(any_step(), 1..70)), |(seed, steps)| {
            run_case(seed, &steps, &coverage).map_err(TestCaseError::fail)
        });
    if let Err(failure) = outcome {
        panic!("BRAIDDB_SEED={seed}, part {part}: {failure}");
    }
    println!("{cases} cases: {coverage:?}");
    coverage.check(cases as usize);
    assert!(coverage.hash_indexes.get() > 0, "no view was searched often enough: {coverage:?}");
    assert!(coverage.blocks_in_place.get() > 0, "no block was read in place: {coverage:?}");
}

#[test]
fn random_operations_part_0() {
    run_part(0);
}

#[test]
fn random_operations_part_1() {
    run_part(1);
}

#[test]
fn random_operations_part_2() {
    run_part(2);
}

#[test]
fn random_operations_part_3() {
    run_part(3);
}
