//! Numbered steps: what a writer does, by seed, writer and number.
//!
//! Whoever knows a writer's seed and how far it has come knows everything that it has left in the database, without
//! having seen it work. So a process that was killed, or a reader that looks in at any moment, is judged exactly.
//!
//! Writers share two trees, where each keeps to keys that begin with its own number, and have a third one each. Every
//! write, a drop of a tree aside, also sets the key [`last_key`] to its number, which comes before all other keys of
//! that writer.

use crate::{
    model::{Bytes, Change, Contents, TreeNumber, apply, prefix_bounds},
    random::{Random, mix},
};
use braiddb::{Builder, Db};

/// The trees by number: two shared ones, and one for each of four writers.
pub const TREES: [&str; 6] = ["left", "right", "own-0", "own-1", "own-2", "own-3"];

/// Keys of a tree come in so many groups, which are deleted as ranges.
const GROUPS: u64 = 24;

/// Keys of a group.
const SLOTS: u64 = 32;

/// The tree that belongs to a writer.
pub fn own_tree(writer: u64) -> TreeNumber {
    2 + writer as TreeNumber
}

/// The key of the tree 0 that holds the number of the writer's last write.
pub fn last_key(writer: u64) -> Bytes {
    format!("{writer}/!last").into_bytes()
}

/// What all of a writer's keys begin with.
pub fn prefix(writer: u64) -> Bytes {
    format!("{writer}/").into_bytes()
}

/// The number of the write that a value comes from.
pub fn number_of(value: &[u8]) -> u64 {
    u64::from_be_bytes(*value.first_chunk().expect("a value begins with its number"))
}

/// Choices for [`Builder::fold_bytes_per_entry`]: the default, which in a small database has loose runs always folded, and
/// one that has them merged among themselves first.
pub const FOLD_BYTES_PER_ENTRY: [u64; 2] = [10, 10_000];

/// A database so small that steps flush, fold, merge, split and change log segments all the time. Loose runs are merged
/// among themselves with every other pair of seeds; with every third seed tables are closed and opened all the time.
pub fn builder(seed: u64) -> Builder {
    Db::builder()
        .create_parents(true)
        .memory(4 << 20)
        .memtable_bytes(16 << 10)
        .partition_bytes(48 << 10)
        .loose_runs(4)
        .fold_bytes_per_entry(FOLD_BYTES_PER_ENTRY[(seed / 2 % 2) as usize])
        .hash_index_after(1)
        .log_segment_bytes(8 << 10)
        .block_bytes(512)
        .blob_threshold(1000)
        .blob_file_bytes(32 << 10)
        .open_files_max(if seed.is_multiple_of(3) { 4 } else { 1000 })
}

/// What a writer does at once.
#[derive(Clone, Debug)]
pub enum Step {
    /// One batch.
    Write {
        /// What is in it.
        changes: Vec<Change>,
        /// Whether it is written durably.
        sync: bool,
    },
    /// Drops a tree, which the next write to it creates anew.
    DropTree(TreeNumber),
}

impl Step {
    /// Carries the step out on contents.
    pub fn apply(&self, contents: &mut Contents) {
        match self {
            Step::Write { changes, .. } => apply(contents, changes),
            Step::DropTree(tree) => contents.retain(|(of, _), _| of != tree),
        }
    }
}

/// The steps of a writer.
#[derive(Clone, Debug)]
pub struct Writer {
    /// What everything follows from.
    pub seed: u64,
    /// 0 to 3.
    pub writer: u64,
    /// Whether it drops its own tree now and then.
    pub drops: bool,
}

impl Writer {
    /// Its step of this number. Numbers begin with 1.
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

    /// Half of the keys are of a group that changes slowly, so that there is something hot.
    fn any_key(&self, random: &mut Random, number: u64) -> Bytes {
        let group = if random.chance(1, 2) { (number / 64) % GROUPS } else { random.below(GROUPS) };
        format!("{}/{group:02}/{:02}", self.writer, random.below(SLOTS)).into_bytes()
    }
}

/// Begins with the number; half noise, half repetition; one in thirty is beyond the blob threshold.
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
