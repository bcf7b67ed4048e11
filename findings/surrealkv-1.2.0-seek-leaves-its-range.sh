#!/usr/bin/env bash
# SurrealKV 1.2.0 (crates.io): a seek of a bounded iterator can leave the range once rows are flushed.
# Seen with rustc 1.95.0.
#
# | `txn.range("m", "r")` of rows a, c, m, n, q, z, then | rows in the memtable | rows in a table file |
# |---|---|---|
# | `seek_first` | m, n, q | m, n, q |
# | `seek("a")` | m, n, q | a, c, m, n, q |
# | `seek("s")` | none | none |
#
# The documentation of `range`: the iterator is over the keys in the range, with the start, without
# the end. The lower bound holds for `seek_first` and for steps backward only. So a program is right
# until its first flush. The documentation of `LSMIterator::seek` asks for a key made by
# `encode_seek_key`; the crate has no such function, and user keys work.
#
# Needs cargo and a network. Fails if the crate behaves differently.
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
surrealkv = { version = "=1.2.0", default-features = false }
tokio = { version = "1", features = ["macros", "rt-multi-thread"] }

[workspace]
TOML
cat >src/main.rs <<'RUST'
use surrealkv::{CompactRangeOptions, LSMIterator, Options, Result, TreeBuilder};

fn rest(rows: &mut impl LSMIterator, mut is_row: bool) -> Result<String> {
    let mut keys = Vec::new();
    while is_row {
        keys.push(String::from_utf8_lossy(rows.key().user_key()).into_owned());
        is_row = rows.next()?;
    }
    Ok(keys.join(" "))
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = std::env::current_dir()?.join("db");
    let tree = TreeBuilder::with_options(Options::new().with_path(folder)).build()?;
    let mut txn = tree.begin()?;
    for key in ["a", "c", "m", "n", "q", "z"] {
        txn.set(key.as_bytes(), b"value")?;
    }
    txn.commit().await?;
    for is_flushed in [false, true] {
        if is_flushed {
            let options = CompactRangeOptions { target_level: Some(0), ..CompactRangeOptions::default() };
            tree.compact_range(None, None, &options)?;
        }
        let txn = tree.begin()?;
        let mut rows = txn.range(b"m".as_slice(), b"r".as_slice())?;
        let is_row = rows.seek_first()?;
        println!("flushed {is_flushed}, first: {}", rest(&mut rows, is_row)?);
        for key in ["a", "s"] {
            let is_row = rows.seek(key.as_bytes())?;
            println!("flushed {is_flushed}, {key}: {}", rest(&mut rows, is_row)?);
        }
    }
    tree.close().await
}
RUST
cargo build --quiet --release
rustc --version
seen=$(target/release/seen)
printf '%s\n' "$seen"
[[ $seen == 'flushed false, first: m n q
flushed false, a: m n q
flushed false, s: 
flushed true, first: m n q
flushed true, a: a c m n q
flushed true, s: ' ]]
sources=("${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/surrealkv-1.2.0/src)
[[ $(grep -rh encode_seek_key "${sources[0]}" | grep -c fn) == 0 ]]
echo "as described"
