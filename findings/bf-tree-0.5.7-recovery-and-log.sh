#!/usr/bin/env bash
# Four surprises of Bf-Tree 0.5.7 (crates.io) with valid input. Seen with rustc 1.95.0.
#
# | | call | result |
# |---|---|---|
# | 1 | random puts and deletes, `new_from_cpr_snapshot` in the middle | some deleted keys are found again |
# | 2 | `new_from_cpr_snapshot`, some puts, drop, the same recovery again | `SnapshotFileInvalid("snapshot file size mismatch")` |
# | 3 | the first `insert` with a log flushed each hour, then drop | returns at once; the log is empty |
# | 4 | two inserts with `enable_write_ahead_log_default` | a log of 1 GiB, which each flush writes whole |
#
# 1: seen with 14 of 60 seeds, and with none without the recovery. One thread; the tree recovers
# from a copy that nothing else uses. 2: a recovered tree writes its pages into the snapshot; the
# README does not ask for a copy. 3: later inserts wait for a flush; the first has number 0, which
# counts as flushed from the start. 4: the documentation of `segment_size` says "Default: 1MB".
#
# Needs cargo, a network and 2 GiB of disk. Fails if the crate behaves differently.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export CARGO_TARGET_DIR=$work/target

mkdir src
cat >Cargo.toml <<'TOML'
[package]
name = "seen"
version = "0.1.0"
edition = "2024"

[dependencies]
bf-tree = "=0.5.7"

[workspace]
TOML
cat >src/main.rs <<'RUST'
use bf_tree::{BfTree, Config, ConfigError, LeafInsertResult, LeafReadResult, WalConfig};
use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

const CACHE: usize = 1 << 16;
const KEYS: u64 = 5000;
const OPERATIONS: u64 = 6000;
const CHECK_EVERY: u64 = 200;
const SEEDS: u64 = 60;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(number: u64) -> Vec<u8> {
    format!("k{number:06}").into_bytes()
}

fn put(tree: &BfTree, key: &[u8], value: &[u8]) {
    assert_eq!(tree.insert(key, value), LeafInsertResult::Success);
}

fn new(folder: &Path) -> BfTree {
    let mut config = Config::new(folder.join("pages"), CACHE);
    config.use_snapshot(true);
    BfTree::with_config(config, None).unwrap()
}

fn recovered(snapshot: &Path) -> Result<BfTree, ConfigError> {
    BfTree::new_from_cpr_snapshot(snapshot, true, None, Some(CACHE), None)
}

/// Deleted keys that are found, and other keys with a wrong answer.
fn wrong(tree: &BfTree, map: &Map) -> (usize, usize) {
    let (mut value, mut deleted, mut other) = ([0; 2048], 0, 0);
    for key in (0..KEYS).map(key) {
        match (tree.read(&key, &mut value), map.get(&key)) {
            (LeafReadResult::Found(_), None) => deleted += 1,
            (LeafReadResult::Found(len), Some(right)) if &value[..len as usize] == right => {}
            (LeafReadResult::NotFound | LeafReadResult::Deleted, None) => {}
            _ => other += 1,
        }
    }
    (deleted, other)
}

/// Deleted keys found, and other wrong answers, at the first check that finds some.
fn run(folder: &Path, seed: u64, recover: bool) -> (usize, usize) {
    fs::create_dir_all(folder).unwrap();
    let mut state = seed;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    let (mut tree, mut map) = (new(folder), Map::new());
    for operation in 1..=OPERATIONS {
        let key = key(below(KEYS));
        if below(4) == 0 {
            tree.delete(&key);
            map.remove(&key);
        } else {
            let len = if below(10) == 0 { below(1000) } else { below(60) };
            let value = vec![operation as u8; len as usize + 1];
            put(&tree, &key, &value);
            map.insert(key, value);
        }
        if recover && operation == OPERATIONS / 2 {
            tree.cpr_snapshot(folder.join("snapshot"));
            drop(tree);
            fs::copy(folder.join("snapshot"), folder.join("copy")).unwrap();
            tree = recovered(&folder.join("copy")).unwrap();
        }
        if operation % CHECK_EVERY == 0 && wrong(&tree, &map) != (0, 0) {
            return wrong(&tree, &map);
        }
    }
    (0, 0)
}

fn main() {
    let folder = std::env::current_dir().unwrap();
    for recover in [false, true] {
        let runs: Vec<_> =
            (0..SEEDS).map(|seed| run(&folder.join(format!("{recover}{seed}")), seed, recover)).collect();
        eprintln!("deleted keys found, other wrong answers, by seed: {runs:?}");
        let deleted: usize = runs.iter().map(|run| run.0).sum();
        println!("1: recovery {recover}, deleted keys found: {}", deleted > 0);
    }

    let (snapshot, small) = (folder.join("snapshot"), folder.join("small"));
    let tree = new(&small);
    (0..KEYS).for_each(|number| put(&tree, &key(number), &[1; 100]));
    tree.cpr_snapshot(&snapshot);
    drop(tree);
    let tree = recovered(&snapshot).unwrap();
    (KEYS..2 * KEYS).for_each(|number| put(&tree, &key(number), &[2; 100]));
    drop(tree);
    println!("2: {:?}", recovered(&snapshot).err());

    let mut wal = WalConfig::new(folder.join("hourly.log"));
    wal.flush_interval(Duration::from_secs(3600)).segment_size(1 << 20);
    let mut config = Config::new(folder.join("hourly"), CACHE);
    config.enable_write_ahead_log(Arc::new(wal));
    let tree = BfTree::with_config(config, None).unwrap();
    put(&tree, b"key", b"value");
    drop(tree);
    println!("3: {} bytes", fs::metadata(folder.join("hourly.log")).unwrap().len());

    let mut config = Config::new(folder.join("default"), CACHE);
    config.enable_write_ahead_log_default();
    let tree = BfTree::with_config(config, None).unwrap();
    put(&tree, b"key", b"value");
    put(&tree, b"key2", b"value");
    println!("4: {} bytes", fs::metadata(folder.join("wal.log")).unwrap().len());
}
RUST
cargo build --quiet --release
rustc --version
seen=$(target/release/seen)
printf '%s\n' "$seen"
[[ $seen == '1: recovery false, deleted keys found: false
1: recovery true, deleted keys found: true
2: Some(SnapshotFileInvalid("snapshot file size mismatch"))
3: 0 bytes
4: 1073741824 bytes' ]]
echo "as described"
