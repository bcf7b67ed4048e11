//! A version names one write, across crashes.
//!
//! The story: an unsynced commit's version was handed out as an `ETag`. A power failure removed the
//! commit, and the next commit got the same number and version. So a conditional write with the
//! lost version changed a record that its caller had never seen.
//!
//! Each write stores a unique value. Lives of a database end with a clean close, a kill or a power
//! failure at a random operation. No version may name two values, and a surviving value keeps its
//! version.

use crate::common;

use braiddb::{Db, Durability, Tree, Version};
use braiddb_sim::{CrashPolicy, Random, SimDisk, mix};
use common::{Counter, PATH, SmallOptions, empty_disk, explained, full_text, in_parallel, volume};
use std::{collections::BTreeMap, sync::Arc};

const LIVES: usize = 5;
const KEYS: u64 = 6;

/// Version of each value, and the disk operation since which it is known.
type HandedOut = BTreeMap<u64, (Version, usize)>;

struct World {
    options: SmallOptions,
    seed: u64,
    disk: Arc<SimDisk>,
    values: u64,
    handed_out: HandedOut,
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

impl World {
    fn open(&mut self) -> (Db, Tree) {
        self.seed = mix(self.seed, 7);
        let builder = self.options.builder(&self.disk, self.seed);
        let db = builder.open(PATH).unwrap_or_else(|e| panic!("open: {}", full_text(&e)));
        let tree = db.tree("zero").expect("a tree");
        (db, tree)
    }

    fn hand_out(&mut self, value: u64, version: Version) {
        let other = self.handed_out.iter().find(|(other, (known, _))| **other != value && *known == version);
        assert!(other.is_none(), "value {value} has the version {version} of another: {other:?}");
        let known = *self.handed_out.entry(value).or_insert((version, self.disk.operations()));
        assert_eq!(known.0, version, "value {value} has another version than before");
    }

    fn read_all(&mut self, tree: &Tree) {
        for key in 0..KEYS {
            if let Some((value, version)) = tree.get_versioned(key.to_le_bytes()).expect("a read") {
                self.hand_out(number(&value), version);
            }
        }
    }

    fn check_conflicts(&self, tree: &Tree) {
        for key in 0..KEYS {
            let key = key.to_le_bytes();
            let present = tree.get(key).expect("a read").map(|value| number(&value));
            for (value, (version, _)) in self.handed_out.iter().filter(|(value, _)| Some(**value) != present) {
                let done = tree.delete_if_version(key, *version).expect("a conditional write");
                assert!(done.is_none(), "the version {version} of value {value} passed for that of {present:?}");
            }
        }
    }

    fn step(&mut self, db: &mut Db, tree: &mut Tree, random: &mut Random) {
        match random.below(24) {
            0 => db.flush().expect("flush"),
            1 => db.compact().expect("compact"),
            2 => {
                db.clone().close().expect("close");
                (*db, *tree) = self.open();
                self.read_all(tree);
            }
            _ => {
                let key = random.below(KEYS).to_le_bytes();
                self.values += 1;
                let (mut batch, value) = (db.batch(), self.values);
                batch.put(tree, key, value.to_le_bytes());
                let durability = match random.below(12) {
                    0 => Durability::Sync,
                    1 => Durability::None,
                    _ => Durability::Buffered,
                };
                let commit = batch.commit_with(durability).expect("a write");
                let (_, version) = tree.get_versioned(key).expect("a read").expect("the value");
                assert_eq!(version, db.version_of(commit));
                self.hand_out(value, version);
            }
        }
    }

    fn live(&mut self, random: &mut Random) {
        let from = self.disk.operations();
        let (mut db, mut tree) = self.open();
        self.read_all(&tree);
        self.check_conflicts(&tree);
        for _ in 0..random.below(40) {
            self.step(&mut db, &mut tree, random);
        }
        self.check_conflicts(&tree);
        let to = self.disk.operations();
        let moment = if random.chance(1, 3) { to } else { from + random.index(to - from + 1) };
        let policies = CrashPolicy::some(3, random.next_u64());
        let image = self.disk.crash_image(moment, policies[random.index(policies.len())]);
        self.handed_out.retain(|_, (_, operation)| *operation <= moment);
        drop((db, tree));
        self.disk = image;
        self.handed_out.values_mut().for_each(|(_, operation)| *operation = 0);
    }
}

#[test]
fn version_across_crashes_names_one_value() {
    let seed = common::seed();
    let lost = Counter::default();
    in_parallel(volume(400).max(20) as usize, |index| {
        let random = &mut Random::new(mix(seed, index as u64));
        let options = SmallOptions::random(random);
        explained(
            || format!("seed {seed}, world {index}, {options:?}"),
            || {
                let disk = empty_disk(seed + index as u64);
                let options = options.clone();
                let mut world =
                    World { options, seed: mix(seed, index as u64), disk, values: 0, handed_out: HandedOut::new() };
                for _ in 0..LIVES {
                    world.live(random);
                }
                let (_db, tree) = world.open();
                let is_there = |value: &u64| {
                    let mut values = (0..KEYS).filter_map(|key| tree.get(key.to_le_bytes()).expect("a read"));
                    values.any(|found| number(&found) == *value)
                };
                lost.add(u64::from(!world.handed_out.keys().next_back().is_none_or(is_there)));
            },
        );
    });
    assert!(lost.get() > 0, "no crash removed a commit whose version was handed out");
}

fn put_buffered(db: &Db, tree: &Tree) -> Version {
    let mut batch = db.batch();
    batch.put(tree, "a", "2");
    db.version_of(batch.commit_with(Durability::Buffered).expect("a write"))
}

/// The story: an open after a power failure drew a new tag but did not store it, as nothing was
/// committed before the close. After the clean close the next open drew none, and the lost commit's
/// version was reused.
#[test]
fn version_after_power_failure_and_idle_open_is_not_that_of_lost_commit() {
    let options = SmallOptions::default();
    let disk = empty_disk(6);
    let db = options.open(&disk, 1).expect("open");
    let tree = db.tree("zero").expect("a tree");
    tree.put("a", "1").expect("a write");
    db.sync().expect("a sync");
    let lost = put_buffered(&db, &tree);
    let image = disk.crash_image(disk.operations(), CrashPolicy::LoseAllUnsynced);
    drop((tree, db));
    options.open(&image, 2).expect("open").close().expect("close");
    let db = options.open(&image, 3).expect("open");
    let tree = db.tree("zero").expect("a tree");
    let versions: Vec<Version> = (0..4).map(|_| put_buffered(&db, &tree)).collect();
    assert!(versions.iter().all(|version| *version != lost), "{lost} is among {versions:?}");
}

/// After a clean close versions keep their tag, and the next open stores nothing.
#[test]
fn version_after_clean_close_keeps_its_life_and_after_kill_gets_new_one() {
    let options = SmallOptions::default();
    let disk = empty_disk(5);
    let first_half = |version: Version| version.etag()[..17].to_owned();
    let life_of_next = |disk: &Arc<SimDisk>, seed, is_closed: bool| {
        let db = options.open(disk, seed).expect("open");
        let tree = db.tree("zero").expect("a tree");
        let before = db.snapshot().sequence();
        let commit = tree.put("a", "1").expect("a write");
        let life = first_half(db.version_of(commit));
        if is_closed {
            drop(tree);
            db.close().expect("close");
            (life, commit - before, disk.clone())
        } else {
            (life, commit - before, disk.fork())
        }
    };
    let (first, _, disk) = life_of_next(&disk, 1, true);
    let (second, commits, disk) = life_of_next(&disk, 2, false);
    assert_eq!((&second, commits), (&first, 1), "a clean close was mistaken for a crash");
    let (third, commits, disk) = life_of_next(&disk, 3, true);
    assert_ne!(third, second, "after a kill the life must change");
    assert_eq!(commits, 2, "an own commit stores the tag");
    let (fourth, commits, _) = life_of_next(&disk, 4, true);
    assert_eq!((fourth, commits), (third, 1));
}
