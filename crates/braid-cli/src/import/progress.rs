//! The progress record: where an import of a tree stands.
//!
//! It is JSON in the tree `braid.import`, under `progress` + 0 + the tree's name, and is written in the batch of the
//! records it speaks of.

use anyhow::Result;
use braiddb::{Batch, Tree};
use serde::{Deserialize, Serialize};

use super::index::IndexSpec;
use crate::{
    dirt::DirtTally,
    exit::{CORRUPTION, INPUT, failure},
    input::Identity,
};

/// The tree that holds what imports know: progress records and the indexes of each tree.
pub const IMPORT_TREE: &str = "braid.import";

/// What must be the same for an import to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The input.
    pub source: Identity,
    /// Its format.
    pub format: String,
    /// The key, as given.
    pub key: Option<String>,
    /// The number of the first record.
    pub number_from: u64,
    /// The tree's indexes.
    pub indexes: Vec<IndexSpec>,
}

impl Plan {
    /// Refuses to go on with another plan, and says what differs.
    pub fn check_same(&self, now: &Plan) -> Result<()> {
        let differs = |what: String| Err(failure(INPUT, format!("cannot resume: {what}")));
        if !self.source.matches(&now.source) {
            return differs("the input is not the one that the import was begun with".to_owned());
        }
        if self.format != now.format {
            return differs(format!("it was begun with --format {}", self.format));
        }
        if self.key != now.key {
            let key = self.key.as_deref().map_or("no --key".to_owned(), |key| format!("--key {key}"));
            return differs(format!("it was begun with {key}"));
        }
        if self.number_from != now.number_from {
            return differs(format!("it was begun with --number-from {}", self.number_from));
        }
        if self.indexes != now.indexes {
            return differs("it was begun with other indexes".to_owned());
        }
        Ok(())
    }
}

/// Where an import stands. All counts are of the whole import, resumed or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What is imported.
    pub plan: Plan,
    /// The names of the columns, for rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// The number of the next record.
    pub next_number: u64,
    /// Where it begins, in bytes of decompressed input.
    pub next_offset: u64,
    /// Records stored.
    pub stored: u64,
    /// Of them, those that took the place of an older one.
    pub replaced: u64,
    /// Records that could not be stored.
    pub skipped: u64,
    /// What was wrong.
    pub dirt: DirtTally,
    /// Whether the input's end was reached.
    pub complete: bool,
}

impl Progress {
    /// The beginning of an import.
    pub fn begin(plan: Plan) -> Progress {
        Progress {
            next_number: plan.number_from,
            plan,
            columns: Vec::new(),
            next_offset: 0,
            stored: 0,
            replaced: 0,
            skipped: 0,
            dirt: DirtTally::default(),
            complete: false,
        }
    }

    /// The stored record for a tree.
    pub fn load(imports: &Tree, tree: &str) -> Result<Option<Progress>> {
        let Some(json) = imports.get(progress_key(tree))? else { return Ok(None) };
        serde_json::from_slice(&json).map(Some).map_err(|error| {
            failure(CORRUPTION, format!("the progress record of {tree} in {IMPORT_TREE} is damaged: {error}"))
        })
    }

    /// Adds the record to a batch.
    pub fn store(&self, imports: &Tree, tree: &str, batch: &mut Batch) -> Result<()> {
        batch.put(imports, progress_key(tree), serde_json::to_vec(self)?);
        Ok(())
    }
}

fn progress_key(tree: &str) -> Vec<u8> {
    [b"progress\0", tree.as_bytes()].concat()
}
