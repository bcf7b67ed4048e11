//! Tests of the memtable, with key shapes and a model.

mod concurrent;
mod model;
mod parts;

use super::{Memtable, MemtableOptions};
use crate::base::{EntryKind, SequenceNumber};
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn mix(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

type Shape = fn(u64) -> Vec<u8>;

fn in_tree(tree: u32, user_key: &[u8]) -> Vec<u8> {
    [&tree.to_be_bytes(), user_key].concat()
}

fn hashed(number: u64) -> Vec<u8> {
    in_tree(1, &[mix(number).to_be_bytes(), number.to_be_bytes()].concat())
}

fn ascending(number: u64) -> Vec<u8> {
    in_tree(1, &number.to_be_bytes())
}

fn user(number: u64) -> Vec<u8> {
    in_tree(1, format!("user{number:08}").as_bytes())
}

fn trees(number: u64) -> Vec<u8> {
    let tree = [0, 1, 2, 7, 256, u32::MAX][(number % 6) as usize];
    let number = number / 6;
    if number == 0 { in_tree(tree, b"") } else { in_tree(tree, format!("{:05}", number * 37 % 10007).as_bytes()) }
}

fn extremes(number: u64) -> Vec<u8> {
    let digits = (0..number % 13).map(|i| [0x00, 0xff, 0x01, 0x80][(mix(number / 13) >> (2 * i) & 3) as usize]);
    in_tree(3, &digits.collect::<Vec<u8>>())
}

fn nested(number: u64) -> Vec<u8> {
    in_tree(1, &vec![b'a'; number as usize % 700])
}

/// So that heads tie with any prefix.
fn groups(number: u64) -> Vec<u8> {
    let group = mix(number % 5);
    in_tree(1, format!("{group:016x}/a/long/name/in/common/{:07}", number / 5 * 7919 % 1_000_003).as_bytes())
}

fn long(number: u64) -> Vec<u8> {
    let mut key = in_tree(1, &vec![b'k'; 2000 + (number % 3) as usize * 3000]);
    key.extend_from_slice(&mix(number).to_be_bytes());
    key
}

const SHAPES: &[(&str, Shape)] = &[
    ("hashed", hashed),
    ("ascending", ascending),
    ("user", user),
    ("trees", trees),
    ("extremes", extremes),
    ("nested", nested),
    ("groups", groups),
    ("long", long),
];

type Model = BTreeMap<(Vec<u8>, Reverse<SequenceNumber>), (EntryKind, Vec<u8>)>;

fn small() -> Memtable {
    Memtable::new(MemtableOptions { arena_chunk_bytes: 8 << 10, filter_bytes: 1 << 10, chunk_pool: None })
}

/// Makes a memtable and its model from `count` inserts of numbers below `range`.
fn filled(shape: Shape, seed: u64, count: u64, range: u64) -> (Arc<Memtable>, Model, SequenceNumber) {
    let mut chance = Chance(seed);
    let memtable = Arc::new(small());
    let mut model = Model::new();
    let mut sequence = 0;
    for i in 0..count {
        sequence += 1 + chance.below(2);
        let number = if seed.is_multiple_of(3) { i * range / count } else { chance.below(range) };
        let key = shape(number);
        let kind = if chance.below(5) == 0 { EntryKind::Tombstone } else { EntryKind::Value };
        let length = if kind == EntryKind::Value { chance.below(60) } else { 0 };
        let value: Vec<u8> = (0..length).map(|i| (sequence ^ i) as u8).collect();
        memtable.writer().insert(&key, sequence, kind, &value);
        model.insert((key, Reverse(sequence)), (kind, value));
    }
    (memtable, model, sequence)
}
