//! Pops against a model, with all other writes between them: a pop begins at the bound that the
//! last one left, and a write beyond it must move the bound back.

use crate::{
    base::SequenceNumber,
    db::{
        Db, Durability, Snapshot, Tree,
        engine::key::KeyBuf,
        handles::{multi::tree::pair_key, tests::cursor::Random},
        tests_common::{mem, open, small},
    },
    platform::Vfs,
    txn::Side,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
type Row = Option<(Vec<u8>, Vec<u8>)>;

fn owned<K: AsRef<[u8]>, V: AsRef<[u8]>>(row: Option<(K, V)>) -> Row {
    row.map(|(key, value)| (key.as_ref().to_vec(), value.as_ref().to_vec()))
}

fn first(rows: &Rows) -> Row {
    owned(rows.first_key_value())
}

fn last(rows: &Rows) -> Row {
    owned(rows.last_key_value())
}

struct Queue {
    vfs: Arc<dyn Vfs>,
    db: Db,
    tree: Tree,
    rows: Rows,
    snapshots: Vec<(Snapshot, Rows)>,
    random: Random,
}

impl Queue {
    fn new(seed: u64) -> Queue {
        let vfs = mem();
        let db = open(small(&vfs)).unwrap();
        let tree = db.tree("jobs").unwrap();
        let random = Random(seed, |number| format!("{number:03}").into_bytes());
        Queue { vfs, db, tree, rows: Rows::new(), snapshots: Vec::new(), random }
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(300);
        (self.random.1)(number)
    }

    fn row(&mut self) -> (Vec<u8>, Vec<u8>) {
        (self.key(), self.random.value(true))
    }

    fn pop(&mut self) {
        if self.random.below(4) > 0 {
            let popped = owned(self.tree.pop_first().unwrap());
            assert_eq!(popped, first(&self.rows));
            self.rows.pop_first();
        } else {
            let popped = owned(self.tree.pop_last().unwrap());
            assert_eq!(popped, last(&self.rows));
            self.rows.pop_last();
        }
    }

    fn write(&mut self) {
        match self.random.below(12) {
            0..=2 => {
                let (key, value) = self.row();
                self.tree.put(&key, &value).unwrap();
                self.rows.insert(key, value);
            }
            3 => {
                let key = self.key();
                self.tree.delete(&key).unwrap();
                self.rows.remove(&key);
            }
            4 => {
                let (put, deleted) = (self.row(), self.key());
                let mut batch = self.db.batch();
                batch.put(&self.tree, &put.0, &put.1).delete(&self.tree, &deleted);
                batch.commit().unwrap();
                self.rows.insert(put.0, put.1);
                self.rows.remove(&deleted);
            }
            5 => {
                let (from, to) = (self.key(), self.key());
                self.tree.delete_range(from.as_slice()..to.as_slice()).unwrap();
                self.rows.retain(|key, _| *key < from || *key >= to);
            }
            6 => {
                let (key, value) = self.row();
                let is_exclusive = self.random.below(2) == 0;
                let tx = if is_exclusive { self.db.begin_exclusive() } else { self.db.begin() }.unwrap();
                tx.put(&self.tree, &key, &value).unwrap();
                let mut seen = self.rows.clone();
                seen.insert(key.clone(), value.clone());
                assert_eq!(owned(tx.first(&self.tree).unwrap()), first(&seen));
                assert_eq!(owned(tx.last(&self.tree).unwrap()), last(&seen));
                tx.commit().unwrap();
                self.rows = seen;
            }
            7 => {
                let (key, value) = self.row();
                self.tree.put_with(&key, &value, Durability::None).unwrap();
                self.rows.insert(key, value);
            }
            8 => {
                let loaded: Rows = (0..1 + self.random.below(5)).map(|_| self.row()).collect();
                self.tree.bulk_load(&loaded).unwrap();
                self.rows.extend(loaded);
            }
            9 => {
                self.db.drop_tree("jobs").unwrap();
                self.tree = self.db.tree("jobs").unwrap();
                self.rows.clear();
                self.snapshots.clear();
            }
            10 => self.db.flush().unwrap(),
            _ => self.db.compact().unwrap(),
        }
    }

    fn check(&mut self) {
        assert_eq!(owned(self.tree.first().unwrap()), first(&self.rows));
        assert_eq!(owned(self.tree.last().unwrap()), last(&self.rows));
        if self.random.below(20) == 0 {
            self.snapshots.push((self.db.snapshot(), self.rows.clone()));
        }
        if self.snapshots.len() > 3 {
            let at = self.random.below(3) as usize;
            let (snapshot, rows) = self.snapshots.swap_remove(at);
            assert_eq!(owned(snapshot.iter(&self.tree).next().transpose().unwrap()), first(&rows));
            assert_eq!(snapshot.iter(&self.tree).count(), rows.len());
        }
    }

    fn reopen(self) -> Queue {
        let Queue { vfs, db, tree, rows, snapshots, random } = self;
        drop((tree, snapshots));
        db.close().unwrap();
        let db = open(small(&vfs)).unwrap();
        let tree = db.tree("jobs").unwrap();
        Queue { vfs, db, tree, rows, snapshots: Vec::new(), random }
    }
}

#[test]
fn pops_between_all_kinds_of_writes_match_a_model() {
    for seed in 0..12 {
        let mut queue = Queue::new(seed);
        for step in 0..1200 {
            match queue.random.below(100) {
                0..60 => queue.pop(),
                // Few of the slow ones: a drop, a flush, a merge.
                60..99 => {
                    let before = queue.random.0;
                    queue.write();
                    if !before.is_multiple_of(5) {
                        let rows: Vec<_> = (0..3).map(|_| queue.row()).collect();
                        queue.tree.extend(&rows.iter().cloned().collect::<Rows>()).unwrap();
                        queue.rows.extend(rows);
                    }
                }
                _ => queue = queue.reopen(),
            }
            queue.check();
            assert_eq!(queue.tree.len().unwrap(), queue.rows.len() as u64, "seed {seed}, step {step}");
        }
        while !queue.rows.is_empty() {
            queue.pop();
        }
        assert!(queue.tree.pop_first().unwrap().is_none() && queue.tree.is_empty().unwrap());
    }
}

/// A pop passed the tombstones of all earlier ones: n pops cost n² steps.
#[test]
fn pop_begins_where_the_last_one_ended() {
    let queue = Queue::new(1);
    let Queue { db, tree, .. } = &queue;
    tree.extend((0..2000_u16).map(|number| (number.to_be_bytes(), "job"))).unwrap();
    let ends = &db.engine().commits.tree_ends;
    let bound = |side| ends.bound(tree.state().id, side, db.engine().readers.snapshots.visible());
    let internal = |key: &[u8]| Some(KeyBuf::new(tree.state().id, key).to_vec());
    assert_eq!(bound(Side::First), None);
    for number in 0..500_u16 {
        let (low, high) = (number.to_be_bytes(), (1999 - number).to_be_bytes());
        assert_eq!(tree.pop_first().unwrap().unwrap().0, low);
        assert_eq!(tree.pop_last().unwrap().unwrap().0, high);
        assert_eq!(bound(Side::First), internal(&[&low[..], &[0]].concat()));
        assert_eq!(bound(Side::Last), internal(&high));
    }
    let before = db.snapshot();
    tree.put([0, 7], "again").unwrap();
    tree.put([7, 255], "again").unwrap();
    assert_eq!(bound(Side::First), internal(&[0, 7]));
    assert_eq!(bound(Side::Last), internal(&[7, 255, 0]));
    assert_eq!(tree.pop_first().unwrap().unwrap().0, [0, 7]);
    assert_eq!(tree.pop_last().unwrap().unwrap().0, [7, 255]);
    assert_eq!(before.iter(tree).count(), 1000);
    assert_eq!(ends.bound(tree.state().id, Side::First, before.sequence()), None, "it has no key 7, but others");
}

/// Pushes go to both ends and between. A bound beyond a row would lose it.
#[test]
fn threads_that_pop_beside_pushes_take_each_row_once() {
    const PUSHES: u32 = 6000;
    let queue = Queue::new(1);
    let (tree, is_over) = (&queue.tree, AtomicBool::new(false));
    let key = |number: u32| [number.wrapping_mul(2_654_435_761).to_be_bytes(), number.to_be_bytes()].concat();
    let mut popped: Vec<Vec<u8>> = thread::scope(|scope| {
        let pop = |is_first: bool| {
            let is_over = &is_over;
            move || {
                let mut own = Vec::new();
                loop {
                    let was_over = is_over.load(Ordering::SeqCst);
                    let row = if is_first { tree.pop_first() } else { tree.pop_last() };
                    match row.unwrap() {
                        Some((key, _)) => own.push(key.to_vec()),
                        None if was_over => return own,
                        None => thread::yield_now(),
                    }
                }
            }
        };
        let poppers = [true, true, true, false].map(|is_first| scope.spawn(pop(is_first)));
        let pushers = [0, 1].map(|pusher| {
            scope.spawn(move || {
                (pusher * PUSHES / 2..(pusher + 1) * PUSHES / 2)
                    .for_each(|number| _ = tree.put(key(number), "job").unwrap())
            })
        });
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        is_over.store(true, Ordering::SeqCst);
        poppers.into_iter().flat_map(|popper| popper.join().unwrap()).collect()
    });
    assert_eq!(popped.len(), PUSHES as usize);
    popped.sort();
    assert_eq!(popped.into_iter().collect::<BTreeSet<_>>(), (0..PUSHES).map(key).collect());
}

/// Synced pops take turns for the commit only: their syncs are shared.
#[test]
fn pop_of_durable_database_is_synced() {
    let vfs = mem();
    let db = open(crate::db::Settings { durability: Durability::Sync, ..small(&vfs) }).unwrap();
    let tree = db.tree("jobs").unwrap();
    tree.put("1", "job").unwrap();
    let before = db.stats().syncs;
    assert!(tree.pop_first().unwrap().is_some());
    assert!(db.stats().syncs > before);
    let synced: SequenceNumber = db.stats().syncs;
    assert!(tree.pop_first().unwrap().is_none());
    assert_eq!(db.stats().syncs, synced, "nothing was popped");
}

type Pairs = BTreeSet<(Vec<u8>, Vec<u8>)>;

fn pair(row: Option<(crate::db::Key, crate::db::Value)>) -> Row {
    owned(row)
}

/// A pop of a multi-tree passed the tombstones of all earlier ones. Keys with zeros are escaped.
#[test]
fn pop_of_multi_tree_begins_where_the_last_one_ended() {
    let db = open(small(&mem())).unwrap();
    let tree = db.multi_tree("jobs").unwrap();
    let key = |number: u16| [0, (number / 10) as u8];
    let value = |number: u16| number.to_be_bytes();
    tree.extend((0..2000_u16).map(|number| (key(number), value(number)))).unwrap();
    let ends = &db.engine().commits.tree_ends;
    let bound = |side| ends.bound(tree.state().id, side, db.engine().readers.snapshots.visible());
    assert_eq!((bound(Side::First), bound(Side::Last)), (None, None));
    for number in 0..500_u16 {
        let (low, high) = (number, 1999 - number);
        assert_eq!(pair(tree.pop_first().unwrap()), Some((key(low).to_vec(), value(low).to_vec())));
        assert_eq!(pair(tree.pop_last().unwrap()), Some((key(high).to_vec(), value(high).to_vec())));
        let internal = |number| pair_key(tree.state().id, &key(number), &value(number)).to_vec();
        assert_eq!(bound(Side::First), Some([&internal(low)[..], &[0]].concat()));
        assert_eq!(bound(Side::Last), Some(internal(high)));
    }
    assert_eq!(tree.len().unwrap(), 1000);
    let before = db.snapshot();
    tree.add([0], "again").unwrap();
    assert_eq!(before.multi_tree(&tree).first().unwrap().unwrap().1, value(500));
    assert_eq!(tree.first().unwrap().unwrap().1, "again");
    assert_eq!(pair(tree.pop_first().unwrap()), Some((vec![0], b"again".to_vec())));
}

#[test]
fn pops_of_multi_tree_between_writes_match_a_model() {
    for seed in 0..6 {
        let vfs = mem();
        let mut db = open(small(&vfs)).unwrap();
        let mut tree = db.multi_tree("jobs").unwrap();
        let mut random = Random(seed, |number| vec![(number / 7) as u8, 0, (number % 7) as u8]);
        let mut pairs = Pairs::new();
        for step in 0..1500 {
            let (number, other) = (random.below(100), random.below(100));
            let (key, value) = ((random.1)(number), other.to_be_bytes().to_vec());
            match random.below(20) {
                0..=6 => assert_eq!(pair(tree.pop_first().unwrap()), pairs.pop_first()),
                7..=8 => assert_eq!(pair(tree.pop_last().unwrap()), pairs.pop_last()),
                9..=14 => {
                    tree.add(&key, &value).unwrap();
                    pairs.insert((key, value));
                }
                15 => {
                    tree.delete(&key).unwrap();
                    pairs.retain(|(of, _)| *of != key);
                }
                16 => {
                    tree.delete_pair(&key, &value).unwrap();
                    pairs.remove(&(key, value));
                }
                17 => {
                    let to = (random.1)(other);
                    tree.delete_range(key.as_slice()..to.as_slice()).unwrap();
                    pairs.retain(|(of, _)| *of < key || *of >= to);
                }
                18 => db.flush().unwrap(),
                _ if random.below(5) == 0 => {
                    drop(tree);
                    db.close().unwrap();
                    db = open(small(&vfs)).unwrap();
                    tree = db.multi_tree("jobs").unwrap();
                }
                _ => db.compact().unwrap(),
            }
            assert_eq!(pair(tree.first().unwrap()), pairs.first().cloned(), "seed {seed}, step {step}");
            assert_eq!(pair(tree.last().unwrap()), pairs.last().cloned(), "seed {seed}, step {step}");
        }
        assert_eq!(tree.iter().map(|row| pair(row.ok()).unwrap()).collect::<Pairs>(), pairs);
    }
}
