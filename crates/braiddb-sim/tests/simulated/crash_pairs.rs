//! Crashes of a database with many values per key: recovery finds a prefix of the commits, in pairs
//! and in counts.
//!
//! The model holds a pair as one key: key length, key, value. To remove all values of a key is to
//! delete a prefix.

use crate::common;

use braiddb::{Db, Durability, MultiTree, Result};
use braiddb_sim::{
    CrashPolicy, Random, SimDisk,
    model::{Bytes, Change, Contents, History, prefix_bounds},
};
use common::{Counter, SmallOptions, empty_disk, explained, full_text, in_parallel, volume};
use std::{collections::BTreeMap, sync::Arc};

const IMAGES_A_WORKLOAD: u64 = 25;

const KEYS: [&[u8]; 5] = [b"", b"\0", b"k", b"k\0", b"longer key"];

fn pair(key: &[u8], value: &[u8]) -> Bytes {
    [&[key.len() as u8], key, value].concat()
}

fn read(db: &Db) -> Result<Contents> {
    let tree = match db.open_multi_tree("pairs") {
        Err(e) if e.is_not_found() => return Ok(Contents::new()),
        other => other?,
    };
    let (mut contents, mut counts) = (Contents::new(), BTreeMap::new());
    let mut cursor = tree.cursor();
    while cursor.next()? {
        let (key, value) = cursor.pair();
        contents.insert((0, pair(key, value)), Vec::new());
        *counts.entry(key.to_vec()).or_insert(0_u64) += 1;
    }
    for key in KEYS {
        assert_eq!(tree.count_values(key)?, counts.get(key).copied().unwrap_or(0), "the count of {key:?}");
    }
    Ok(contents)
}

fn commit(db: &Db, tree: &MultiTree, disk: &SimDisk, history: &mut History, random: &mut Random) -> Result<()> {
    let writes: Vec<(u64, &[u8], [u8; 2])> = (0..1 + random.below(20))
        .map(|_| (random.below(24), KEYS[random.index(KEYS.len())], (random.below(400) as u16).to_be_bytes()))
        .collect();
    let changes = writes.iter().map(|(what, key, value)| match what {
        0 => Change::DeleteRange(0, prefix_bounds(&pair(key, b""))),
        1..8 => Change::Delete(0, pair(key, value)),
        _ => Change::Put(0, pair(key, value), Vec::new()),
    });
    history.submit(disk.operations(), changes.collect());
    let durability = if random.below(3) == 0 { Durability::Sync } else { Durability::Buffered };
    if random.below(2) == 0 {
        let mut batch = db.batch();
        for (what, key, value) in writes {
            match what {
                0 => batch.delete(tree, key),
                1..8 => batch.delete_pair(tree, key, value),
                _ => batch.add(tree, key, value),
            };
        }
        batch.commit_with(durability)?;
    } else {
        let tx = db.begin()?;
        let view = tx.multi_tree(tree);
        for (what, key, value) in writes {
            match what {
                0 => view.delete(key)?,
                1..8 => view.delete_pair(key, value)?,
                _ => view.add(key, value)?,
            }
        }
        tx.commit_with(durability)?;
    }
    if durability == Durability::Sync {
        history.promise(disk.operations());
    }
    Ok(())
}

fn workload(options: &SmallOptions, disk: &Arc<SimDisk>, random: &mut Random) -> Result<History> {
    let mut history = History::new(Contents::new());
    let db = options.open(disk, 1)?;
    let tree = db.multi_tree("pairs")?;
    for _ in 0..10 + random.below(60) {
        match random.below(20) {
            0 => db.compact()?,
            1 => db.flush()?,
            _ => commit(&db, &tree, disk, &mut history, random)?,
        }
    }
    Ok(history)
}

#[test]
fn pairs_after_crash_anywhere_are_prefix_of_commits() {
    let seed = common::seed();
    let (images, kept) = (Counter::default(), Counter::default());
    let workloads = volume(5_000).div_ceil(IMAGES_A_WORKLOAD) as usize;
    in_parallel(workloads, |index| {
        let random = &mut Random::new(seed + index as u64);
        let options = SmallOptions::random(random);
        let disk = empty_disk(seed);
        let history = workload(&options, &disk, random).unwrap_or_else(|e| panic!("{}", full_text(&e)));
        for _ in 0..IMAGES_A_WORKLOAD {
            let moment = random.index(disk.operations() + 1);
            let policies = CrashPolicy::some(12, random.next_u64());
            let policy = policies[random.index(policies.len())];
            explained(
                || format!("seed {seed}, workload {index}, {options:?}, crash after operation {moment}, {policy:?}"),
                || {
                    images.add(1);
                    let image = disk.crash_image(moment, policy);
                    let db = options.open(&image, 2).unwrap_or_else(|e| panic!("open: {}", full_text(&e)));
                    let found = read(&db).unwrap_or_else(|e| panic!("reading: {}", full_text(&e)));
                    let count = history.judge(moment, &found).unwrap_or_else(|text| panic!("{text}"));
                    kept.add(count as u64);
                },
            );
        }
    });
    println!("{} images of {workloads} workloads, {} commits kept in them", images.get(), kept.get());
    assert!(kept.get() > images.get(), "too few commits survived");
}
