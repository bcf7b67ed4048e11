//! The report of a salvage.

use crate::base::SequenceNumber;
use std::path::PathBuf;

/// Condition of the manifest, which lists the valid files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestCondition {
    /// Intact.
    #[default]
    Whole,
    /// Some edits are lost: the list of valid runs is incomplete.
    Partial,
    /// Unreadable: every run found counts.
    Missing,
}

/// A tree of the new database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvagedTree {
    /// Its number.
    pub id: u32,
    /// Its name, or a generated one if it was lost.
    pub name: String,
    /// Whether its name and options were lost.
    pub is_name_lost: bool,
    /// Number of records; pairs in a multi-tree.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// A key in a loss.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct LostKey {
    /// The tree's number.
    pub tree: u32,
    /// The tree's name, if known. Tree 0, the catalog, has none.
    pub name: Option<String>,
    /// The user's key; in a multi-tree the encoded pair of key and value.
    pub key: Vec<u8>,
}

/// The meaning of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossKind {
    /// Records are lost.
    Records,
    /// Range deletes are lost.
    Deletes,
    /// A record is lost because its value is.
    Value,
    /// Commits of the log are lost: their writes and deletes are missing.
    Commits,
    /// Readable records were left out, because a newer version may be lost.
    Withheld,
    /// Records were kept at the caller's request although a newer version may be lost.
    Stale,
    /// No known loss, but records may be wrong: deleted ones or old values may have returned.
    Uncertain,
}

/// A known or possible loss.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// Its meaning.
    pub kind: LossKind,
    /// The damaged file.
    pub path: PathBuf,
    /// Byte offset in the file, if known.
    pub offset: Option<u64>,
    /// Number of damaged bytes, if known.
    pub bytes: Option<u64>,
    /// The first key that may be affected; `None`: no lower bound.
    pub from: Option<LostKey>,
    /// The last key that may be affected; `None`: no upper bound.
    pub to: Option<LostKey>,
    /// The first and last commit that may be affected, if known.
    pub commits: Option<(SequenceNumber, SequenceNumber)>,
    /// Number of records or versions, if known.
    pub records: Option<u64>,
    /// Description of the damage.
    pub detail: String,
}

/// Result of a salvage.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SalvageReport {
    /// The last known commit.
    pub sequence: SequenceNumber,
    /// The trees of the new database.
    pub trees: Vec<SalvagedTree>,
    /// Records of all trees.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Condition of the old manifest.
    pub manifest: ManifestCondition,
    /// Losses, up to 10,000.
    pub losses: Vec<Loss>,
    /// Number of further losses.
    pub losses_left_out: u64,
    /// Harmless findings: files that do not count, repaired headers.
    pub notes: Vec<String>,
    /// Files read.
    pub files: u64,
    /// Bytes of those files.
    pub file_bytes: u64,
}

impl SalvageReport {
    /// Returns whether the new database has all data of the old one and nothing else.
    pub fn is_complete(&self) -> bool {
        self.losses.is_empty() && self.losses_left_out == 0
    }
}
