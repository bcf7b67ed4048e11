//! What salvage says in the end.

use crate::base::SequenceNumber;
use std::path::PathBuf;

/// What was left of the manifest, which says which files count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestCondition {
    /// All of it.
    #[default]
    Whole,
    /// Some edits are missing: which runs counted is known in part.
    Partial,
    /// Nothing: every run that was found counts.
    Missing,
}

/// A tree of the new database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvagedTree {
    /// Its number.
    pub id: u32,
    /// Its name; a made-up one if it was lost.
    pub name: String,
    /// Whether its name and options were lost.
    pub is_name_lost: bool,
    /// Records; of a tree of many values, pairs.
    pub records: u64,
    /// The bytes of their keys and values.
    pub bytes: u64,
}

/// A key in a loss.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct LostKey {
    /// The tree's number.
    pub tree: u32,
    /// The tree's name, if it is known. Tree 0, which names the others, has none.
    pub name: Option<String>,
    /// The user's key; of a tree of many values, key and value as they are kept together.
    pub key: Vec<u8>,
}

/// What a loss means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossKind {
    /// Records that stood there are gone.
    Records,
    /// Deletes of ranges that stood there are gone.
    Deletes,
    /// The record's value is gone, and so is the record.
    Value,
    /// Commits of the log are gone: what they wrote is missing, and what they deleted or replaced is as it was before them.
    Commits,
    /// Records that can be read were left out, since a newer version may be among what is gone.
    Withheld,
    /// Such records were taken because the caller asked for them.
    Stale,
    /// Nothing is known to be gone, but records there may be wrong: deleted ones may be back, or older values.
    Uncertain,
}

/// Something that is gone, or may be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// What it means.
    pub kind: LossKind,
    /// The damaged file.
    pub path: PathBuf,
    /// Where in the file, if it is a place.
    pub offset: Option<u64>,
    /// How many bytes of the file, if that is known.
    pub bytes: Option<u64>,
    /// The first key that it may be about; `None`: from the first key of all.
    pub from: Option<LostKey>,
    /// The last key that it may be about; `None`: to the last key of all.
    pub to: Option<LostKey>,
    /// The first and the last commit that it may be about, if that is known.
    pub commits: Option<(SequenceNumber, SequenceNumber)>,
    /// How many records, or versions of records, if that is known.
    pub records: Option<u64>,
    /// What is wrong.
    pub detail: String,
}

/// What came out, and what did not.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SalvageReport {
    /// The last commit that is known of.
    pub sequence: SequenceNumber,
    /// The trees of the new database.
    pub trees: Vec<SalvagedTree>,
    /// All records of all trees.
    pub records: u64,
    /// The bytes of their keys and values.
    pub bytes: u64,
    /// What was left of the manifest.
    pub manifest: ManifestCondition,
    /// What is gone or may be wrong: the first ones, if there are very many.
    pub losses: Vec<Loss>,
    /// How many more losses there are.
    pub losses_left_out: u64,
    /// What was met that loses nothing: files that do not count, headers that were repaired.
    pub notes: Vec<String>,
    /// Files that were read.
    pub files: u64,
    /// The bytes that they have.
    pub file_bytes: u64,
}

impl SalvageReport {
    /// Whether all that the database held came out, and nothing else.
    pub fn is_complete(&self) -> bool {
        self.losses.is_empty() && self.losses_left_out == 0
    }
}
