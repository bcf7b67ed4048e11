//! The progress record of an import: JSON in the tree `braid.import`, under `progress` + 0 + the
//! tree's name. Each batch stores it together with its records.

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

/// The tree that holds progress records, index lists and key notations.
pub const IMPORT_TREE: &str = "braid.import";

const PREFIX: &[u8] = b"progress\0";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub source: Identity,
    pub format: String,
    pub key: Option<String>,
    pub number_from: u64,
    pub indexes: Vec<IndexSpec>,
    #[serde(default, skip_serializing_if = "TableOptions::is_default")]
    pub table: TableOptions,
}

impl Plan {
    pub fn check_same(&self, now: &Plan) -> Result<()> {
        let differs = |what: String| Err(failure(INPUT, format!("cannot resume: {what}")));
        if !self.source.matches(&now.source) {
            return differs("the input is not the one that the import began with: give that one".to_owned());
        }
        if self.format != now.format {
            return differs(format!("the import began with --format {}: use the same", self.format));
        }
        if self.key != now.key {
            let key = self.key.as_deref().map_or("no --key".to_owned(), |key| format!("--key {key}"));
            return differs(format!("the import began with {key}: use the same"));
        }
        if self.number_from != now.number_from {
            return differs(format!("the import began with --number-from {}: use the same", self.number_from));
        }
        if self.table != now.table {
            return differs(
                "the import began with other --delimiter, --no-header, --fields or --types: use the same".to_owned(),
            );
        }
        if !same_indexes(&self.indexes, &now.indexes) {
            return differs("the import began with other indexes: use the same".to_owned());
        }
        Ok(())
    }
}

/// The state of an import. Counts include all runs of a resumed import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub plan: Plan,
    /// The tree's id, which detects a new tree with the same name. Absent in records of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_id: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    pub next_number: u64,
    pub next_offset: u64,
    /// Its line, from 1. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_line: Option<u64>,
    pub stored: u64,
    pub replaced: u64,
    pub skipped: u64,
    pub dirt: DirtTally,
    pub complete: bool,
}

impl Progress {
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

    pub fn stores_none(&self) -> bool {
        self.stored == 0 && self.skipped > 0
    }

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

    /// Returns the progress of the last import into this tree, even if it was renamed since.
    pub fn find(db: &Db, tree: &str) -> Result<Option<Progress>> {
        let Some(imports) = imports_tree(db)? else { return Ok(None) };
        let id = tree_id(db, tree)?;
        let is_of_tree = |progress: &Progress| progress.tree_id.is_some() && progress.tree_id == id;
        let under_name = Progress::load(&imports, tree)?;
        let is_empty = id.is_none() || db.open_tree(tree)?.first()?.is_none();
        let is_emptied = |progress: &Progress| is_of_tree(progress) && progress.stored > 0 && is_empty;
        if under_name.as_ref().is_some_and(is_emptied) {
            note!(
                "braid: the records that the earlier import stored in the tree {} are gone: the import begins with the first \
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
            "braid: the tree {} is not the one that the earlier import filled, which was dropped or renamed: the import \
             begins with the first record",
            show_name(tree)
        );
        Ok(None)
    }

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
