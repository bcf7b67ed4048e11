#!/usr/bin/env bash
# A program that orders a byte slice and a literal stops compiling when it links the crate `bytes`.
#
# Seen with `bytes` 1.12.2 (crates.io) and rustc 1.95.0. `key` is a `&[u8]`:
#
#   | expression      | without `bytes` | with `use bytes as _;`                    |
#   |-----------------|-----------------|-------------------------------------------|
#   | key < b"2"      | compiles        | E0277: can't compare `[u8]` and `[u8; 1]` |
#   | key == b"2"     | compiles        | compiles                                  |
#   | key < &b"2"[..] | compiles        | compiles                                  |
#
# Slices are ordered only beside slices. While that is the only implementation of `PartialOrd` for
# `[u8]`, the compiler converts the array reference to a slice. `bytes` adds `PartialOrd<Bytes>` and
# `PartialOrd<BytesMut>` for `[u8]`; then it has a choice and converts nothing. Nothing of `bytes`
# need be used.
#
# Needs cargo and a network. Fails if the crate or the compiler behaves differently.
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

[features]
with-bytes = ["dep:bytes"]

[dependencies]
bytes = { version = "=1.12.2", optional = true }

[workspace]
TOML

# Prints whether an expression compiles, without and with the crate.
try() {
    local seen=() features
    cat >src/main.rs <<RUST
#[cfg(feature = "with-bytes")]
use bytes as _;

fn main() {
    let key: &[u8] = std::env::args().next().unwrap_or_default().leak().as_bytes();
    println!("{}", $1);
}
RUST
    for features in "" with-bytes; do
        if cargo check --quiet --features "$features" 2>errors; then
            seen+=(compiles)
        else
            seen+=("$(grep -o 'error\[E[0-9]*\]' errors | sort -u | tr '\n' ' ')")
        fi
    done
    printf '%s: %s, %s\n' "$1" "${seen[0]}" "${seen[1]% }"
}

rustc --version
seen=$(try 'key < b"2"' && try 'key == b"2"' && try 'key < &b"2"[..]')
printf '%s\n' "$seen"
[[ $seen == 'key < b"2": compiles, error[E0277]
key == b"2": compiles, compiles
key < &b"2"[..]: compiles, compiles' ]]
echo "as described"
