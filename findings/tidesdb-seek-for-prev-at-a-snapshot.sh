#!/usr/bin/env bash
# TidesDB 10.2.1 (crate tidesdb 1.0.0): at a snapshot, `seek_for_prev(key)` passes over `key` itself if a
# later commit has overwritten it and the rows are flushed. Seen with rustc 1.95.0.
#
# | at a snapshot with a, b, c; b was overwritten after it | rows in the memtable | rows in a table file |
# |---|---|---|
# | `get("b")` | the old value | the old value |
# | `seek("b")` | b | b |
# | `seek_for_prev("b")` | b | a |
# | `seek_for_prev("bb")` | b | b |
#
# The documentation of `seek_for_prev`: the last key at or before `key`. Without it, random models of
# gets, scans, savepoints, range deletes and snapshots found no difference.
#
# Needs cargo, a C compiler, cmake and a network. Fails if the library behaves differently.
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
tidesdb = "=1.0.0"

[workspace]
TOML
cat >src/main.rs <<'RUST'
use tidesdb::{ColumnFamilyConfig, Config, Iterator, LogLevel, TIDESDB_VERSION, TidesDB};

fn at(rows: &Iterator<'_>) -> String {
    if rows.is_valid() { String::from_utf8(rows.key().unwrap()).unwrap() } else { "none".to_owned() }
}

fn main() {
    let folder = std::env::current_dir().unwrap().join("db");
    let db = TidesDB::open(Config::new(folder).log_level(LogLevel::Error)).unwrap();
    db.create_column_family("rows", ColumnFamilyConfig::default()).unwrap();
    let family = db.get_column_family("rows").unwrap();
    let put = |key: &str, value: &str| {
        let mut txn = db.begin_transaction().unwrap();
        txn.put(&family, key.as_bytes(), value.as_bytes()).unwrap();
        txn.commit().unwrap();
    };
    for key in ["a", "b", "c"] {
        put(key, "old");
    }
    let snapshot = db.snapshot().unwrap();
    put("b", "new");
    println!("TidesDB {TIDESDB_VERSION}");
    for is_flushed in [false, true] {
        if is_flushed {
            db.flush_memtable().unwrap();
            while db.is_flushing() {
                std::thread::yield_now();
            }
        }
        let txn = db.begin_transaction_at_snapshot(&snapshot).unwrap();
        let mut rows = txn.new_iterator(&family).unwrap();
        rows.seek(b"b").unwrap();
        let forward = at(&rows);
        rows.seek_for_prev(b"b").unwrap();
        let backward = at(&rows);
        rows.seek_for_prev(b"bb").unwrap();
        let after = at(&rows);
        let value = String::from_utf8(txn.get(&family, b"b").unwrap()).unwrap();
        println!("flushed {is_flushed}: get {value}, seek {forward}, seek_for_prev {backward}, of bb {after}");
    }
}
RUST
cargo build --quiet --release
rustc --version
seen=$(target/release/seen)
printf '%s\n' "$seen"
[[ ${seen#*$'\n'} == 'flushed false: get old, seek b, seek_for_prev b, of bb b
flushed true: get old, seek b, seek_for_prev a, of bb b' ]]
echo "as described"
