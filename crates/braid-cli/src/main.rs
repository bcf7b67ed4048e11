//! The `braid` command.
#![expect(dead_code)]
mod dirt;
mod freedb;

fn main() {}
