//! The progress record: where an import of a tree stands.
//!
//! It is JSON in the tree `braid.import`, under `progress` + 0 + the tree's name, and is written in the batch of the
//! records it speaks of.

use anyhow::Result;
use braiddb::{Batch, Db, Tree};
use serde::{Deserialize, Serialize};

use super::{
    index::IndexSpec,
    index_store::{imports_tree, tree_id},
    table::TableOptions,
};
use crate::{
    dirt::DirtTally,
    exit::{CORRUPTION, INPUT, failure},
    input::Identity,
    notation::show_name,
    output::note,
};

/// The tree that holds what imports know: progress records and the indexes of each tree.
pub const IMPORT_TREE: &str = "braid.import";

const PREFIX: &[u8] = b"progress\0";

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
    /// How rows are read.
    #[serde(default, skip_serializing_if = "TableOptions::is_default")]
    pub table: TableOptions,
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
        if self.table != now.table {
            return differs("it was begun with other --delimiter, --no-header, --fields or --types".to_owned());
        }
        if !same_indexes(&self.indexes, &now.indexes) {
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
    /// The number of the tree. Another tree that gets the name later has not had these records. Imports by earlier
    /// versions did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_id: Option<u32>,
    /// The names of the columns, for rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// The number of the next record.
    pub next_number: u64,
    /// Where it begins, in bytes of decompressed input.
    pub next_offset: u64,
    /// Its line, counted from 1. Imports by earlier versions did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_line: Option<u64>,
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
            tree_id: None,
            columns: Vec::new(),
            next_offset: 0,
            next_line: Some(1),
            stored: 0,
            replaced: 0,
            skipped: 0,
            dirt: DirtTally::default(),
            complete: false,
        }
    }

    /// Whether the input has records, and none of them can be stored.
    pub fn stores_none(&self) -> bool {
        self.stored == 0 && self.skipped > 0
    }

    /// The stored record for a tree.
    pub fn load(imports: &Tree, tree: &str) -> Result<Option<Progress>> {
        let Some(json) = imports.get(progress_key(tree))? else { return Ok(None) };
        let mut progress: Progress = serde_json::from_slice(&json).map_err(|error| {
            failure(CORRUPTION, format!("the progress record of {tree} in {IMPORT_TREE} is damaged: {error}"))
        })?;
        if progress.next_line.is_none() {
            progress.dirt.renumber(progress.plan.number_from);
            progress.next_line = (progress.next_offset == 0).then_some(1);
        }
        Ok(Some(progress))
    }

    /// Where the last import into this very tree stands, also if the tree had another name then.
    pub fn find(db: &Db, tree: &str) -> Result<Option<Progress>> {
        let Some(imports) = imports_tree(db)? else { return Ok(None) };
        let id = tree_id(db, tree)?;
        let is_of_tree = |progress: &Progress| progress.tree_id.is_some() && progress.tree_id == id;
        let under_name = Progress::load(&imports, tree)?;
        let is_empty = id.is_none() || db.open_tree(tree)?.first()?.is_none();
        let is_emptied = |progress: &Progress| is_of_tree(progress) && progress.stored > 0 && is_empty;
        if under_name.as_ref().is_some_and(is_emptied) {
            note!(
                "braid: the records that the earlier import has stored in the tree {} are gone: the import begins with the first \
                 record",
                show_name(tree)
            );
            return Ok(None);
        }
        if let Some(progress) = under_name.as_ref().filter(|progress| is_of_tree(progress)) {
            return Ok(Some(progress.clone()));
        }
        for item in imports.prefix(PREFIX) {
            let (key, _) = item?;
            let name = String::from_utf8_lossy(key.strip_prefix(PREFIX).unwrap_or_default()).into_owned();
            if let Some(progress) =
                Progress::load(&imports, &name)?.filter(is_of_tree).filter(|found| !is_emptied(found))
            {
                return Ok(Some(progress));
            }
        }
        let Some(progress) = under_name else { return Ok(None) };
        if progress.tree_id.is_none() && (progress.stored == 0 || !is_empty) {
            return Ok(Some(progress));
        }
        note!(
            "braid: the tree {} is not the one that the earlier import has filled, which was dropped or renamed: the \
             import begins with the first record",
            show_name(tree)
        );
        Ok(None)
    }

    /// Adds the record to a batch.
    pub fn store(&self, imports: &Tree, tree: &str, batch: &mut Batch) -> Result<()> {
        batch.put(imports, progress_key(tree), serde_json::to_vec(self)?);
        Ok(())
    }
}

fn progress_key(tree: &str) -> Vec<u8> {
    [PREFIX, tree.as_bytes()].concat()
}

fn same_indexes(one: &[IndexSpec], other: &[IndexSpec]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.is_like(other))
}
