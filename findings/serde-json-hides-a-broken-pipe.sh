#!/usr/bin/env bash
# The I/O error of a failed write cannot be found in the error chain of serde_json.
#
# Seen with `serde_json` 1.0.154 and `anyhow` 1.0.100 (crates.io). A program writes JSON to a pipe whose
# reader has ended, and asks for the cause to end quietly, as `yes | head` does:
#
#   | written with                 | `io::Error` in the chain of `source()` | `io_error_kind()` |
#   |------------------------------|----------------------------------------|-------------------|
#   | `write!`                     | yes, BrokenPipe                        | -                 |
#   | `serde_json::to_writer`      | no: `source()` is `None`               | BrokenPipe        |
#
# `serde_json::Error::source()` returns the source of the I/O error, not the I/O error. So the usual
# search of a chain (`error.chain().find_map(downcast_ref::<io::Error>)`) misses it, and the program
# reports a broken pipe as a failure. `io_error_kind()` of the error, or its conversion into
# `io::Error`, has the kind.
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
anyhow = "=1.0.100"
serde_json = "=1.0.154"

[workspace]
TOML
cat >src/main.rs <<'RUST'
use std::io::{self, Write};

/// A pipe without a reader.
struct Ended;

impl Write for Ended {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn found(error: &anyhow::Error) -> Option<io::ErrorKind> {
    error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind)
}

fn main() {
    let plain = anyhow::Error::from(write!(Ended, "1").unwrap_err());
    println!("write!: {:?}", found(&plain));
    let json = serde_json::to_writer(Ended, &1).unwrap_err();
    println!("to_writer: kind {:?}, in the chain {:?}", json.io_error_kind(), found(&json.into()));
}
RUST
seen=$(cargo run --quiet)
printf '%s\n' "$seen"
[[ $seen == 'write!: Some(BrokenPipe)
to_writer: kind Some(BrokenPipe), in the chain None' ]]
echo "as described"
