//! Every bit of every file flipped, every file truncated at every length, every file lost.
//!
//! Each time the database gives the right answers, or `Corruption` with the damaged file and an
//! offset in it. Damage at the end of the log looks like a commit cut off by a crash, so the state
//! before the last commits is right too; these answers are counted.
//!
//! `BRAIDDB_VOLUME` scales the number of random bits; 1 means all.

use crate::common;

use braiddb::{Durability, Error, Result};
use braiddb_sim::{
    Random, SimDisk,
    model::{Change, Contents, apply},
};
use common::{Counter, PATH, SmallOptions, batch_of, check_all_reads, empty_disk, explained, full_text, in_parallel};
use common::{open_trees, quietly, read_all, value, volume};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

const SEED: u64 = 31;

fn options() -> SmallOptions {
    SmallOptions {
        memtable_bytes: 1 << 20,
        partition_bytes: 1 << 20,
        log_segment_bytes: 4 << 10,
        blob_file_bytes: 4 << 10,
        ..SmallOptions::default()
    }
}

/// A killed database and its contents after each commit in the log, with views, merged runs and
/// blobs.
fn database() -> (Arc<SimDisk>, Vec<Contents>) {
    let disk = empty_disk(SEED);
    let db = options().open(&disk, SEED).expect("open");
    let trees = open_trees(&db).expect("trees");
    let mut contents = Contents::new();
    let mut write = |changes: Vec<Change>| {
        batch_of(&db, &trees, &changes).commit_with(Durability::Sync).expect("write");
        apply(&mut contents, &changes);
        contents.clone()
    };
    let key = |n: u64| format!("key{n:03}").into_bytes();
    write((0..30).map(|n| Change::Put(0, key(n), value(40, n))).collect());
    write(vec![Change::Put(1, key(1), value(1200, 1)), Change::Put(1, key(2), value(1300, 2))]);
    db.flush().expect("flush");
    write((10..20).map(|n| Change::Put(0, key(n), value(50, n + 100))).collect());
    write(vec![Change::Delete(1, key(1)), Change::DeleteRange(0, bounds(&key(3), &key(6)))]);
    db.compact().expect("compact");
    for round in 0..5 {
        write((0..3).map(|n| Change::Put(1, key(100 + round + 10 * n), value(30, round * 100 + n + 200))).collect());
        db.flush().expect("flush");
    }
    let states = vec![
        write(vec![Change::Put(0, key(50), value(20, 50))]),
        write(vec![Change::Put(1, key(51), value(1100, 51)), Change::DeleteRange(0, bounds(&key(20), &key(22)))]),
        write(vec![Change::Delete(0, key(0))]),
    ];
    // The process dies here.
    let image = disk.fork();
    drop((trees, db));
    (image, states)
}

fn bounds(from: &[u8], to: &[u8]) -> braiddb_sim::model::Bounds {
    (std::ops::Bound::Included(from.to_vec()), std::ops::Bound::Excluded(to.to_vec()))
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip(u64),
    Cut(u64),
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Right,
    Corruption,
    /// The state before the last commits, from a damaged log.
    Shorter,
}

fn kind_of(path: &Path) -> String {
    match path.extension() {
        Some(extension) => extension.to_string_lossy().into_owned(),
        None => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-').to_owned()
        }
    }
}

fn read(disk: &Arc<SimDisk>, expected: &Contents) -> Result<Contents> {
    let db = options().open(disk, SEED + 1)?;
    let found = read_all(&db)?;
    if found == *expected {
        check_all_reads(&db, expected)?;
    }
    Ok(found)
}

fn try_damage(disk: &Arc<SimDisk>, states: &[Contents], path: &Path, len: u64, damage: Damage) -> Answer {
    let copy = disk.fork();
    match damage {
        Damage::Flip(bit) => copy.flip_bit(path, bit),
        Damage::Cut(len) => copy.truncate(path, len),
        Damage::Gone => copy.lose(path),
    }
    .expect("the file is there");
    let kind = kind_of(path);
    let expected = states.last().expect("there are states");
    match read(&copy, expected) {
        Ok(found) if found == *expected => Answer::Right,
        Ok(found) if (kind == "wal" || kind == "blob") && states.contains(&found) => Answer::Shorter,
        Ok(found) => panic!("a wrong answer: {}", braiddb_sim::model::difference(expected, &found)),
        Err(Error::Corruption(damage)) => {
            let (named, offset, detail) = (damage.path(), damage.offset(), damage.detail());
            assert!(kind != "view", "a damaged view must heal; instead: {detail}");
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let by_its_record = kind == "blob" && kind_of(named) == "wal" && detail.contains(&*name);
            assert!(named == path || by_its_record, "the error names {} ({detail})", named.display());
            assert!(offset <= len || by_its_record, "the error names byte {offset} of {len} ({detail})");
            Answer::Corruption
        }
        Err(e) => panic!("neither an answer nor Corruption: {}", full_text(&e)),
    }
}

type Table = Mutex<BTreeMap<(String, Answer), u64>>;

fn try_all(disk: &Arc<SimDisk>, states: &[Contents], cases: &[(PathBuf, u64, Damage)]) {
    let table = Table::default();
    let failures = Mutex::new(Vec::new());
    let failed = Counter::default();
    in_parallel(cases.len(), |index| {
        let (path, len, damage) = &cases[index];
        let what = || format!("{} of {} with {len} bytes", text_of(*damage), path.display());
        let outcome = quietly(|| explained(what, || try_damage(disk, states, path, *len, *damage)));
        match outcome {
            Ok(answer) => *table.lock().unwrap().entry((kind_of(path), answer)).or_default() += 1,
            Err(text) => {
                failed.add(1);
                let mut failures = failures.lock().unwrap();
                if failures.len() < 20 {
                    failures.push(text);
                }
            }
        }
    });
    for ((kind, answer), count) in table.lock().unwrap().iter() {
        println!("{kind:>10} {answer:?}: {count}");
    }
    let failures = failures.lock().unwrap();
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failed.get(), cases.len(), failures.join("\n"));
}

fn text_of(damage: Damage) -> String {
    match damage {
        Damage::Flip(bit) => format!("bit {} of byte {} flipped", bit % 8, bit / 8),
        Damage::Cut(to) => format!("cut to {to} bytes"),
        Damage::Gone => "loss".to_owned(),
    }
}

/// Lists files, except the lock file.
fn files(disk: &SimDisk) -> Vec<(PathBuf, u64)> {
    let lock = Path::new(PATH).join("LOCK");
    disk.files().into_iter().filter(|(path, _)| *path != lock).collect()
}

#[test]
fn database_without_damage_reads_right() {
    let (disk, states) = database();
    for (path, len) in files(&disk) {
        println!("{} {len}", path.display());
    }
    assert_eq!(read(&disk.fork(), &states[2]).unwrap(), states[2]);
    let kinds: std::collections::BTreeSet<String> = files(&disk).iter().map(|(path, _)| kind_of(path)).collect();
    for kind in ["wal", "run", "view", "blob", "MANIFEST", "CURRENT"] {
        assert!(kinds.contains(kind), "the database should have a {kind} file: {kinds:?}");
    }
}

#[test]
fn database_with_any_flipped_bit_heals_or_reports_it() {
    let seed = common::seed();
    let (disk, states) = database();
    let files = files(&disk);
    let bits: u64 = files.iter().map(|(_, len)| len * 8).sum();
    let wanted = volume(bits);
    let mut random = Random::new(seed);
    let mut cases = Vec::new();
    for (path, len) in files {
        for bit in 0..len * 8 {
            if random.chance(wanted, bits) {
                cases.push((path.clone(), len, Damage::Flip(bit)));
            }
        }
    }
    println!("{} of {bits} bits", cases.len());
    try_all(&disk, &states, &cases);
}

#[test]
fn database_with_any_truncation_heals_or_reports_it() {
    let seed = common::seed();
    let (disk, states) = database();
    let mut random = Random::new(seed);
    let share = volume(1000).min(1000);
    let mut cases = Vec::new();
    for (path, len) in files(&disk) {
        for to in 0..len {
            if to == 0 || to == len - 1 || random.chance(share, 1000) {
                cases.push((path.clone(), len, Damage::Cut(to)));
            }
        }
    }
    try_all(&disk, &states, &cases);
}

#[test]
fn database_with_any_lost_file_heals_or_reports_it() {
    let (disk, states) = database();
    let cases: Vec<_> = files(&disk).into_iter().map(|(path, len)| (path, len, Damage::Gone)).collect();
    try_all(&disk, &states, &cases);
}
