//! A database with every feature, made from a seed, and a model of it.

use crate::{
    base::{SequenceNumber, TreeId, internal_key},
    codec::Compression,
    db::{Db, MultiTree, Settings, Tree, tests_common::small},
    platform::{Vfs, fault_vfs::FaultVfs},
    table::KeyBlocks,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

pub const DIR: &str = "/db";

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub fn bytes(&mut self, len: u64) -> Vec<u8> {
        let is_plain = self.below(2) == 0;
        (0..len).map(|at| if is_plain { b'a' + (at % 7) as u8 } else { self.next() as u8 }).collect()
    }
}

pub type State = Option<(Vec<u8>, Option<SystemTime>)>;

pub type History = BTreeMap<Vec<u8>, Vec<(SequenceNumber, State)>>;

pub struct Sample {
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    pub history: History,
}

pub fn name_of(tree: u32) -> String {
    format!("tree {tree}")
}

struct Maker {
    db: Db,
    random: Random,
    history: History,
    trees: Vec<(u32, Tree)>,
    multi: (u32, MultiTree),
    functions: Vec<crate::db::MergeFunctionHandle>,
}

pub fn settings(vfs: &FaultVfs, seed: u64) -> Settings {
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let mut random = Random(seed ^ 0x5e77);
    Settings {
        memtable_bytes: Some([6 << 10, 16 << 10, 200 << 10][random.below(3) as usize]),
        partition_bytes: Some([24 << 10, 64 << 10][random.below(2) as usize]),
        compression: [Compression::None, Compression::Lz4, Compression::Lz4][random.below(3) as usize],
        log_segment_bytes: [8 << 10, 32 << 10][random.below(2) as usize],
        key_blocks: [KeyBlocks::Never, KeyBlocks::Always][random.below(2) as usize],
        block_bytes: [512, 4096][random.below(2) as usize],
        log_retention_bytes: [None, Some(64 << 10)][random.below(2) as usize],
        ..small(&vfs)
    }
}

pub fn open(vfs: &FaultVfs, seed: u64) -> Db {
    Db::open_with(settings(vfs, seed), Path::new(DIR)).unwrap()
}

pub fn make(seed: u64, rounds: u64) -> Sample {
    let vfs = FaultVfs::new(Path::new(DIR));
    let mut maker = Maker::new(open(&vfs, seed), seed);
    for round in 0..rounds {
        for _ in 0..20 + maker.random.below(60) {
            maker.write();
        }
        match maker.random.below(8) {
            0 | 1 => maker.db.flush().unwrap(),
            2 => maker.db.compact().unwrap(),
            3 => maker.load(),
            4 if round > 0 => {
                let (random, history) = (maker.random.next(), std::mem::take(&mut maker.history));
                let Maker { db, trees, multi, functions, .. } = maker;
                drop((trees, multi, functions));
                db.close().unwrap();
                maker = Maker::new(open(&vfs, seed), random);
                maker.history = history;
            }
            _ => {}
        }
    }
    let files = vfs.files();
    Sample { files, history: maker.history }
}

impl Maker {
    fn new(db: Db, random: u64) -> Maker {
        let trees = (1..=4).map(|number| (number, db.tree(&name_of(number)).unwrap())).collect();
        let multi = (5, db.multi_tree(&name_of(5)).unwrap());
        let functions = ["add", "append"].map(|name| db.merge_function(name).unwrap()).into();
        Maker { db, random: Random(random), history: History::new(), trees, multi, functions }
    }

    fn key(&mut self, tree: u32) -> Vec<u8> {
        let number = self.random.below(if tree == 1 { 400 } else { 60 });
        format!("key {number:04}").into_bytes()
    }

    fn note(&mut self, tree: u32, key: &[u8], sequence: SequenceNumber, state: State) {
        let mut internal = Vec::new();
        internal_key(TreeId(tree), key, &mut internal);
        self.history.entry(internal).or_default().push((sequence, state));
    }

    fn note_key(&mut self, tree: u32, key: &[u8], sequence: SequenceNumber) {
        let found = self.trees[tree as usize - 1].1.get_with_expiry(key).unwrap();
        self.note(tree, key, sequence, found.map(|(value, expires)| (value.to_vec(), expires)));
    }

    fn write(&mut self) {
        let at = self.random.below(4) as usize;
        let (number, tree) = self.trees[at].clone();
        let key = self.key(number);
        let sequence = match (number, self.random.below(20)) {
            (_, 0) => {
                let from = self.random.below(60);
                let (from, to) = (format!("key {from:04}"), format!("key {:04}", from + 1 + self.random.below(12)));
                let sequence = tree.delete_range(from.as_bytes()..to.as_bytes()).unwrap();
                let keys: Vec<Vec<u8>> = self.history.keys().cloned().collect();
                for internal in keys.iter().filter(|key| key.starts_with(&number.to_be_bytes())) {
                    let key = &internal[4..];
                    if (from.as_bytes()..to.as_bytes()).contains(&key) {
                        self.note(number, key, sequence, None);
                    }
                }
                return;
            }
            (_, 1..=3) => tree.delete(&key).unwrap(),
            (2, 4..=8) => {
                let len = 300 + self.random.below(3000);
                tree.put(&key, self.random.bytes(len)).unwrap()
            }
            (2, 9) => {
                let len = 4000 + self.random.below(8000);
                let value = self.random.bytes(len);
                tree.put_stream(&key, value.as_slice()).unwrap()
            }
            (3, 4..=12) => {
                let ttl = Duration::from_secs(100_000 + self.random.below(100_000));
                tree.put_with_ttl(&key, self.random.bytes(30), ttl).unwrap()
            }
            (4, 4..=16) => {
                let function = self.functions[self.random.below(2) as usize].clone();
                let key = [&key[..], function.name().as_bytes()].concat();
                let sequence = tree.merge(&key, &function, self.random.below(100).to_le_bytes()).unwrap();
                self.note_key(number, &key, sequence);
                return;
            }
            (4, _) => {
                let key = [&key[..], b"append"].concat();
                let sequence = tree.put(&key, b"base").unwrap();
                self.note_key(number, &key, sequence);
                return;
            }
            _ if self.random.below(3) == 0 => return self.pair(),
            _ => {
                let len = self.random.below(120);
                tree.put(&key, self.random.bytes(len)).unwrap()
            }
        };
        self.note_key(number, &key, sequence);
    }

    fn pair(&mut self) {
        let (number, tree) = self.multi.clone();
        let (key, value) = (self.key(number), self.random.below(8).to_string().into_bytes());
        // A zero byte forces escaping.
        let key = [&key[..], &[0, 7]].concat();
        let pair = [&key[..key.len() - 2], &[0, 0xff, 7, 0, 1], &value].concat();
        match self.random.below(4) {
            0 => {
                let sequence = tree.delete_pair(&key, &value).unwrap();
                self.note(number, &pair, sequence, None);
            }
            _ => {
                let sequence = tree.add(&key, &value).unwrap();
                self.note(number, &pair, sequence, Some((Vec::new(), None)));
            }
        }
    }

    fn load(&mut self) {
        let (number, tree) = self.trees[0].clone();
        let from = self.random.below(300);
        let records: Vec<(Vec<u8>, Vec<u8>)> =
            (from..from + 50).map(|key| (format!("key {key:04} loaded").into_bytes(), self.random.bytes(40))).collect();
        let loaded = tree.bulk_load(records.iter().map(|(key, value)| (key, value))).unwrap();
        for (key, value) in records {
            self.note(number, &key, loaded.sequence, Some((value, None)));
        }
    }
}
