//! Numbered steps: each follows from seed, writer and number. Seed and last number determine all
//! rows of a writer, so any reader can check them exactly.
//!
//! Writers share two trees, where each has keys that begin with its own number, and have a third
//! tree each. Every write sets [`last_key`] to its number; it sorts before the writer's other keys.

use crate::{
    model::{Bytes, Change, Contents, TreeNumber, apply, prefix_bounds},
    random::{Random, mix},
};
use braiddb::{Builder, Db, options::Tuning};

/// Two shared trees, and one for each of four writers.
pub const TREES: [&str; 6] = ["left", "right", "own-0", "own-1", "own-2", "own-3"];

/// Groups of keys, deleted as ranges.
const GROUPS: u64 = 24;

/// Keys of a group.
const SLOTS: u64 = 32;

/// Returns the tree that belongs to a writer.
pub fn own_tree(writer: u64) -> TreeNumber {
    2 + writer as TreeNumber
}

/// Returns the key, in tree 0, of the last write's number.
pub fn last_key(writer: u64) -> Bytes {
    format!("{writer}/!last").into_bytes()
}

/// Returns the prefix of a writer's keys.
pub fn prefix(writer: u64) -> Bytes {
    format!("{writer}/").into_bytes()
}

/// Returns the number of a value's write.
pub fn number_of(value: &[u8]) -> u64 {
    u64::from_be_bytes(*value.first_chunk().expect("a value begins with its number"))
}

/// Values of [`Tuning::fold_bytes_per_entry`]: the default, which always folds in a small
/// database, and one that first merges unindexed runs.
pub const FOLD_BYTES_PER_ENTRY: [u64; 2] = [10, 10_000];

/// A database so small that steps flush, fold, merge, split and change log segments all the time.
/// Every other pair of seeds merges unindexed runs; every third seed has few open files.
pub fn builder(seed: u64) -> Builder {
    let tuning = Tuning::new()
        .memtable_bytes(16 << 10)
        .partition_bytes(48 << 10)
        .unindexed_runs(4)
        .fold_bytes_per_entry(FOLD_BYTES_PER_ENTRY[(seed / 2 % 2) as usize])
        .hash_index_after(1)
        .log_segment_bytes(8 << 10)
        .block_bytes(512)
        .blob_file_bytes(32 << 10);
    Db::builder()
        .create_parents(true)
        .memory(4 << 20)
        .tuning(tuning)
        .blob_threshold(1000)
        .open_files_max(if seed.is_multiple_of(3) { 4 } else { 1000 })
}

/// One step of a writer.
#[derive(Clone, Debug)]
pub enum Step {
    /// One batch.
    Write {
        /// The changes of the batch.
        changes: Vec<Change>,
        /// Commits durably.
        sync: bool,
    },
    /// Drops a tree; the next write recreates it.
    DropTree(TreeNumber),
}

impl Step {
    /// Applies the step to contents.
    pub fn apply(&self, contents: &mut Contents) {
        match self {
            Step::Write { changes, .. } => apply(contents, changes),
            Step::DropTree(tree) => contents.retain(|(of, _), _| of != tree),
        }
    }
}

/// A writer of numbered steps.
#[derive(Clone, Debug)]
pub struct Writer {
    /// The seed of all steps.
    pub seed: u64,
    /// 0 to 3.
    pub writer: u64,
    /// Sometimes drops its own tree.
    pub drops: bool,
}

impl Writer {
    /// Returns a step; numbers begin with 1.
    pub fn step(&self, number: u64) -> Step {
        let mut random = Random::new(mix(mix(self.seed, self.writer), number));
        if self.drops && random.chance(1, 250) {
            return Step::DropTree(own_tree(self.writer));
        }
        let mut changes = Vec::new();
        if random.chance(1, 25) {
            let group = random.below(GROUPS);
            for tree in 0..2 {
                let bounds = prefix_bounds(format!("{}/{group:02}/", self.writer).as_bytes());
                changes.push(Change::DeleteRange(tree, bounds));
            }
        } else if random.chance(1, 500) {
            let digit = random.below(2);
            let tree = self.any_tree(&mut random);
            changes.push(Change::DeleteRange(tree, prefix_bounds(format!("{}/{digit}", self.writer).as_bytes())));
        }
        for _ in 0..1 + random.below(10) {
            let (tree, key) = (self.any_tree(&mut random), self.any_key(&mut random, number));
            if random.chance(1, 7) {
                changes.push(Change::Delete(tree, key));
            } else {
                changes.push(Change::Put(tree, key, any_value(&mut random, number)));
            }
        }
        changes.push(Change::Put(0, last_key(self.writer), number.to_be_bytes().to_vec()));
        Step::Write { changes, sync: random.chance(1, 10) }
    }

    fn any_tree(&self, random: &mut Random) -> TreeNumber {
        [0, 0, 1, own_tree(self.writer)][random.index(4)]
    }

    /// Half of the keys come from a slowly changing group: a hot spot.
    fn any_key(&self, random: &mut Random, number: u64) -> Bytes {
        let group = if random.chance(1, 2) { (number / 64) % GROUPS } else { random.below(GROUPS) };
        format!("{}/{group:02}/{:02}", self.writer, random.below(SLOTS)).into_bytes()
    }
}

fn any_value(random: &mut Random, number: u64) -> Bytes {
    let len = match random.below(30) {
        0 => 1000 + random.below(3000),
        1..=3 => 300,
        _ => random.below(60),
    };
    let mut value = number.to_be_bytes().to_vec();
    value.extend(random.bytes(len as usize / 2));
    value.resize(8 + len as usize, number as u8);
    value
}
