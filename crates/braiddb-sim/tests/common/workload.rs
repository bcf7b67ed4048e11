//! Workloads of the crash and fault batteries: steps, changes, and promises.

use super::{
    PATH, SmallOptions, batch_of, check_all_reads,
    coverage::Coverage,
    empty_disk, full_text, open_trees, read_all, value,
    writer::{Way, Writer},
};
use braiddb::{Db, Durability, Error, Result, Tree, bulk::TableBuilder, platform::Vfs};
use braiddb_sim::{
    CrashPolicy, Random, SimDisk, SimRuntime,
    model::{Bytes, Change, Contents, FAR_US, History, apply},
    numbered::FOLD_BYTES_PER_ENTRY,
};
use std::{ops::Bound, path::Path, sync::Arc};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    PutSync,
    PutBuffered,
    /// Puts to both trees without WAL.
    PutUnlogged,
    /// One batch to both trees, with a range delete and a large value.
    Batch,
    /// Exclusive at odd places.
    Transaction,
    Append,
    /// Values that expire far in the future or have expired.
    Expiring,
    Delete,
    DeleteRange,
    BigValueSync,
    BigValueBuffered,
    /// A value from a reader, durable at odd places, after a dropped one.
    Stream,
    /// Appends to a stream, to a value in a blob, and to a missing key.
    Extend,
    /// A bulk load over old and new keys, with a large value.
    Load,
    /// Ingests two tables; exports the other tree.
    Ingest,
    /// Deletes all keys outside a range.
    Clip,
    /// A conditional put that fails, then one that succeeds.
    Conditional,
    Flush,
    Compact,
    Sync,
    Reopen,
}

pub const ALPHABET: [Step; 21] = [
    Step::PutSync,
    Step::PutBuffered,
    Step::PutUnlogged,
    Step::Batch,
    Step::Transaction,
    Step::Append,
    Step::Expiring,
    Step::Delete,
    Step::DeleteRange,
    Step::BigValueSync,
    Step::BigValueBuffered,
    Step::Stream,
    Step::Extend,
    Step::Load,
    Step::Ingest,
    Step::Clip,
    Step::Conditional,
    Step::Flush,
    Step::Compact,
    Step::Sync,
    Step::Reopen,
];

pub const SEED: u64 = 77;

pub fn key(number: u64) -> Vec<u8> {
    format!("key{number}").into_bytes()
}

impl Step {
    /// The commit of the step, if any. Its place `at` in the workload varies keys and values.
    pub fn commit(self, at: u64) -> Option<(Vec<Change>, Durability)> {
        let (slot, tag) = (at % 6, at * 16 + 100);
        let put = |tree, len| Change::Put(tree, key(slot), value(len, tag));
        Some(match self {
            Step::PutSync => (vec![put(0, 50)], Durability::Sync),
            Step::PutBuffered => (vec![put(0, 50)], Durability::Buffered),
            Step::PutUnlogged => (vec![put(0, 70), put(1, 1300)], Durability::None),
            Step::Batch | Step::Transaction => {
                let gone = (Bound::Included(key(1)), Bound::Excluded(key(3)));
                let changes = vec![
                    Change::DeleteRange(0, gone),
                    put(0, 700),
                    put(1, 1200),
                    Change::Put(1, key(slot + 1), value(10, tag + 1)),
                    Change::Delete(1, key(0)),
                ];
                (changes, Durability::Sync)
            }
            Step::Append => {
                // Two operands on one key make one entry. The third is for a value in a blob, or
                // for none.
                let append = |tree, slot, len, tag| Change::Append(tree, key(slot), value(len, tag));
                let changes =
                    vec![append(0, slot, 20, tag), append(0, slot, 9, tag + 1), append(1, slot + 1, 30, tag + 2)];
                (changes, if at.is_multiple_of(2) { Durability::Sync } else { Durability::Buffered })
            }
            Step::Expiring => {
                let until = |tree, slot, len, us| Change::PutUntil(tree, key(slot), value(len, tag), us);
                let changes =
                    vec![until(0, slot, 60, FAR_US), until(1, slot + 1, 1300, FAR_US), until(0, slot + 2, 20, 1)];
                (changes, if at.is_multiple_of(2) { Durability::Sync } else { Durability::Buffered })
            }
            Step::Delete => (vec![Change::Delete(0, key(slot))], Durability::Sync),
            Step::DeleteRange => {
                let bounds = (Bound::Included(key(slot)), Bound::Included(key(slot + 1)));
                (vec![Change::DeleteRange(0, bounds)], Durability::Buffered)
            }
            Step::BigValueSync => (vec![put(1, 3000)], Durability::Sync),
            Step::BigValueBuffered => (vec![put(1, 3000)], Durability::Buffered),
            Step::Stream => {
                let durability = if at.is_multiple_of(2) { Durability::Buffered } else { Durability::Sync };
                (vec![put(1, 2500), put(0, 20)], durability)
            }
            Step::Extend => {
                let durability = if at.is_multiple_of(2) { Durability::Sync } else { Durability::Buffered };
                let more = |tree, slot, len| Change::Extend(tree, key(slot), value(len, tag + 3));
                (vec![more(1, slot, 40), more(1, slot.saturating_sub(1), 400), more(0, slot, 900)], durability)
            }
            Step::Load => {
                let load = |slot, len| Change::Put(0, key(slot), value(len, tag + slot));
                (vec![load(slot % 3, 60), load(3, 1300), load(slot % 3 + 4, 90), load(9, 10)], Durability::Sync)
            }
            Step::Ingest => {
                let load = |slot, len| Change::Put(0, key(slot), value(len, tag + slot));
                (vec![load(slot % 3, 70), load(3, 1100), load(slot % 3 + 5, 40), load(9, 20)], Durability::Sync)
            }
            Step::Clip => {
                let gone = |from, to| Change::DeleteRange(0, (from, to));
                let before = gone(Bound::Unbounded, Bound::Excluded(key(slot)));
                (vec![before, gone(Bound::Excluded(key(slot + 3)), Bound::Unbounded)], Durability::Sync)
            }
            Step::Conditional => (vec![put(0, [50, 1500][at as usize % 2])], Durability::Sync),
            Step::Flush | Step::Compact | Step::Sync | Step::Reopen => return None,
        })
    }

    pub fn write(
        self,
        (disk, db, trees): (&Arc<SimDisk>, &Db, &[Tree]),
        changes: &[Change],
        durability: Durability,
        at: u64,
    ) -> Result<u64> {
        match self {
            Step::Load => return load(&trees[0], changes),
            Step::Ingest => return ingest(disk, trees, changes),
            Step::Clip => return trees[0].clip(key(at % 6)..=key(at % 6 + 3)),
            Step::Conditional => return put_on_condition(&trees[0], changes),
            _ => {}
        }
        let way = match self {
            Step::Transaction if at.is_multiple_of(2) => Way::Transaction,
            Step::Transaction => Way::Exclusive,
            Step::Stream => {
                drop(trees[1].write_stream(key(at % 6), value(1500, at).as_slice())?);
                Way::Batch
            }
            Step::Extend => Way::Transaction,
            _ => Way::Batch,
        };
        let mut writer = Writer::new(db, trees, way)?;
        if matches!(self, Step::Stream | Step::Extend) {
            for change in changes {
                match change {
                    Change::Put(tree, key, value) => writer.put_stream(&trees[*tree as usize], key, value)?,
                    Change::Extend(tree, key, more) => writer.append_stream(&trees[*tree as usize], key, more)?,
                    other => unreachable!("{other:?} is no stream"),
                }
            }
            return writer.commit_by(durability, at);
        }
        changes.iter().try_for_each(|change| writer.change(trees, change))?;
        writer.commit_by(durability, at)
    }
}

fn records(changes: &[Change]) -> impl Iterator<Item = (&Bytes, &Bytes)> {
    changes.iter().map(|change| match change {
        Change::Put(_, key, value) => (key, value),
        other => unreachable!("{other:?} is no record"),
    })
}

fn load(tree: &Tree, changes: &[Change]) -> Result<u64> {
    Ok(tree.bulk_load(records(changes))?.sequence)
}

fn ingest(disk: &Arc<SimDisk>, trees: &[Tree], changes: &[Change]) -> Result<u64> {
    let dir = Path::new(PATH).parent().expect("a parent");
    let remove = |path: &Path| _ = disk.remove(path);
    let names = ["first.table", "second.table"].map(|name| dir.join(name));
    names.iter().chain([&dir.join("000001.table")]).for_each(|path| remove(path));
    match trees[1].export_tables(.., dir) {
        Ok(exported) => {
            let records_exported: u64 = exported.iter().map(|table| table.records).sum();
            exported.iter().for_each(|table| remove(&table.path));
            let there = trees[1].iter().try_fold(0, |count, row| row.map(|_| count + 1))?;
            assert_eq!(records_exported, there, "number of exported records");
        }
        // A table cannot hold this record. The refused export must leave no table.
        Err(Error::InvalidArgument(reason)) if reason.contains("above a value that expires") => {
            let is_table = |path: &Path| path.extension().is_some_and(|extension| extension == "table");
            assert!(!disk.files().iter().any(|(path, _)| is_table(path)), "a refused export left a table");
        }
        Err(error) => return Err(error),
    }
    let spec = trees[0].table_spec()?;
    for (half, path) in changes.chunks(changes.len().div_ceil(2)).zip(&names) {
        let vfs: Arc<dyn Vfs> = disk.clone();
        let mut table = TableBuilder::create_in(vfs, SimRuntime::new(disk.next_session()), path, &spec)?;
        records(half).try_for_each(|(key, value)| table.add(key, value))?;
        table.finish()?;
    }
    let taken_in = trees[0].ingest(&names);
    names.iter().for_each(|path| remove(path));
    Ok(taken_in?.sequence)
}

fn put_on_condition(tree: &Tree, changes: &[Change]) -> Result<u64> {
    let (key, value) = records(changes).next().expect("one record");
    let wrong = tree.compare_exchange(key, Some(b"never there"), Some(b"wrong"))?;
    assert!(wrong.is_none(), "a failed condition must not write");
    let done = match tree.get_versioned(key)? {
        Some((_, version)) => tree.put_if_version(key, value, version)?,
        None => tree.put_if_absent(key, value)?,
    };
    Ok(done.expect("no other writer exists").sequence())
}

/// A closed database with its contents and options.
#[derive(Clone)]
pub struct Start {
    pub options: SmallOptions,
    pub disk: Arc<SimDisk>,
    pub contents: Contents,
}

impl Start {
    pub fn empty() -> Start {
        let options = SmallOptions {
            memtable_bytes: 4 << 10,
            log_segment_bytes: 4 << 10,
            blob_file_bytes: 4 << 10,
            ..SmallOptions::default()
        };
        Start { options, disk: empty_disk(SEED), contents: Contents::new() }
    }

    pub fn small() -> Start {
        let mut start = Start::empty();
        start.contents = fill(&start);
        start.disk = start.disk.fork();
        start
    }

    /// Has a view and an unindexed run of deletes, so that a merge of unindexed runs follows the
    /// next flush.
    pub fn loose() -> Start {
        let with = |start: &Start, steps: &[(Step, u64)], fold_bytes_per_entry: u64| {
            let options = SmallOptions { loose_runs: 2, fold_bytes_per_entry, ..start.options.clone() };
            let mut run = Run::start(&Start { options, ..start.clone() });
            steps.iter().for_each(|(step, at)| run.step(*step, *at));
            run.close();
            let coverage = (run.coverage.folds.get(), run.coverage.loose_merges.get());
            (Start { options: run.options, contents: run.history.latest().clone(), disk: run.disk.fork() }, coverage)
        };
        let (folded, coverage) = with(&Start::small(), &[(Step::Flush, 0)], FOLD_BYTES_PER_ENTRY[0]);
        assert_eq!(coverage, (1, 0), "(folds, merges of unindexed runs)");
        let steps = [(Step::Delete, 1), (Step::Flush, 0), (Step::BigValueSync, 2)];
        let (start, coverage) = with(&folded, &steps, FOLD_BYTES_PER_ENTRY[1]);
        assert_eq!(coverage, (0, 0), "the merge is left to the workloads");
        start
    }
}

fn fill(start: &Start) -> Contents {
    let db = start.options.open(&start.disk, SEED).expect("open");
    let trees = open_trees(&db).expect("trees");
    let mut changes: Vec<Change> = (0..4).map(|n| Change::Put(0, key(n), value(100, n))).collect();
    changes.push(Change::Put(1, key(0), value(1500, 5)));
    batch_of(&db, &trees, &changes).commit_with(Durability::Sync).expect("write");
    db.flush().expect("flush");
    let later = [Change::Put(0, key(1), value(30, 6)), Change::Put(1, key(2), value(30, 7)), Change::Delete(0, key(3))];
    batch_of(&db, &trees, &later).commit_with(Durability::Sync).expect("write");
    let mut contents = Contents::new();
    apply(&mut contents, &changes);
    apply(&mut contents, &later);
    contents
}

pub struct Run {
    pub options: SmallOptions,
    pub disk: Arc<SimDisk>,
    pub db: Option<(Db, Vec<Tree>)>,
    pub history: History,
    pub coverage: Coverage,
}

impl Run {
    pub fn new(start: &Start) -> Run {
        Run {
            options: start.options.clone(),
            disk: start.disk.fork(),
            db: None,
            history: History::new(start.contents.clone()),
            coverage: Coverage::default(),
        }
    }

    pub fn start(start: &Start) -> Run {
        let mut run = Run::new(start);
        run.open().expect("open");
        run
    }

    pub fn open(&mut self) -> Result<()> {
        let db = self.options.open(&self.disk, SEED)?;
        let trees = open_trees(&db)?;
        self.db = Some((db, trees));
        Ok(())
    }

    pub fn close(&mut self) {
        if let Some((db, _)) = self.db.take() {
            self.coverage.note(&db.stats());
        }
    }

    pub fn loose_merges(&self) -> u64 {
        let open = self.db.as_ref().map_or(0, |(db, _)| db.stats().loose_merges);
        self.coverage.loose_merges.get() + open
    }

    pub fn promise(&mut self) {
        self.history.promise(self.disk.operations());
    }

    pub fn step(&mut self, step: Step, at: u64) {
        if let Some((changes, durability)) = step.commit(at) {
            let (db, trees) = self.db.as_ref().expect("the database is open");
            self.history.submit(self.disk.operations(), changes.clone());
            step.write((&self.disk, db, trees), &changes, durability, at).expect("write");
            if durability == Durability::Sync {
                self.promise();
            }
            return;
        }
        if step == Step::Reopen {
            let (db, trees) = self.db.take().expect("the database is open");
            drop(trees);
            self.coverage.note(&db.stats());
            db.close().expect("close");
            self.promise();
            self.open().expect("open");
        } else {
            let (db, _) = self.db.as_ref().expect("the database is open");
            maintain(db, step).unwrap_or_else(|e| panic!("{step:?}: {}", full_text(&e)));
            self.promise();
        }
    }
}

pub fn maintain(db: &Db, step: Step) -> Result<()> {
    match step {
        Step::Flush => db.flush(),
        Step::Compact => db.compact(),
        Step::Sync => db.sync(),
        other => unreachable!("{other:?} commits or closes"),
    }
}

/// Recovers a crash image and judges its contents. Then commits once more, and loses all unsynced
/// operations or reopens cleanly: nothing may be missing.
pub fn recover(
    options: &SmallOptions,
    image: &Arc<SimDisk>,
    judge: impl FnOnce(&Contents) -> std::result::Result<usize, String>,
) -> usize {
    let db = options.open(image, SEED + 1).unwrap_or_else(|e| panic!("open after the crash: {}", full_text(&e)));
    let mut contents = read_all(&db).unwrap_or_else(|e| panic!("reading after the crash: {}", full_text(&e)));
    let count = judge(&contents).unwrap_or_else(|text| panic!("{text}; log tail: {:?}", db.stats().log_tail_note));
    let before = db.snapshot().sequence();
    let trees = open_trees(&db).expect("trees after the crash");
    let one_more =
        vec![Change::Put(0, b"more".to_vec(), value(40, 9)), Change::Put(1, b"more".to_vec(), value(1400, 9))];
    let sequence = batch_of(&db, &trees, &one_more).commit_with(Durability::Sync).expect("one more commit");
    assert!(sequence > before, "commit {sequence} after a snapshot at {before}");
    apply(&mut contents, &one_more);
    drop(trees);
    let next = if image.operations().is_multiple_of(2) {
        let next = image.crash_image(image.operations(), CrashPolicy::LoseAllUnsynced);
        drop(db);
        next
    } else {
        db.close().expect("close");
        image.clone()
    };
    let db = options.open(&next, SEED + 2).unwrap_or_else(|e| panic!("open once more: {}", full_text(&e)));
    check_all_reads(&db, &contents).unwrap_or_else(|e| panic!("reading once more: {}", full_text(&e)));
    count
}

/// Crashes the recovery of an image after about `crashes` of its operations (all if `None`),
/// `depth` levels deep. Each image must recover to the same state. Returns the number of images.
pub fn check_recovery(
    options: &SmallOptions,
    image: &Arc<SimDisk>,
    state: &Contents,
    random: &mut Random,
    depth: u32,
    crashes: Option<u64>,
) -> u64 {
    let db = options.open(image, SEED).unwrap_or_else(|e| panic!("open: {}", full_text(&e)));
    let operations = image.operations();
    drop(db);
    let mut images = 0;
    for at in 0..=operations {
        if crashes.is_some_and(|crashes| !random.chance(crashes, operations as u64 + 1)) {
            continue;
        }
        let policies = CrashPolicy::some(3, random.next_u64());
        let policy = policies[random.index(policies.len())];
        images += 1;
        super::explained(
            || format!("then a crash in recovery after operation {at} of {operations}, {policy:?}"),
            || {
                recover(options, &image.crash_image(at, policy), |found| {
                    if found == state {
                        Ok(0)
                    } else {
                        let difference = braiddb_sim::model::difference(state, found);
                        Err(format!("the second recovery differs from the first: {difference}"))
                    }
                });
                if depth > 1 {
                    let image = image.crash_image(at, policy);
                    images += check_recovery(options, &image, state, random, depth - 1, crashes);
                }
            },
        );
    }
    images
}
