//! The index list of each tree: in the tree `braid.import` under `indexes` + 0 + the tree's name.
//!
//! Each entry stores the tree's id, so that indexes follow a renamed tree and no new tree inherits
//! them. Entries of earlier versions have no id.

use anyhow::{Context, Result};
use braiddb::{Batch, Db, Tree};
use serde::{Deserialize, Serialize};

use super::{
    index::{IndexSpec, Indexes},
    progress::IMPORT_TREE,
};
use crate::{
    exit::{CORRUPTION, failure, usage},
    output::note,
};

const PREFIX: &[u8] = b"indexes\0";

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredSpec {
    name: String,
    field: String,
    #[serde(default)]
    lower: bool,
    #[serde(default)]
    exact: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unfinished: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tree_id: Option<u32>,
}

impl StoredSpec {
    fn of(spec: &IndexSpec, tree_id: u32) -> StoredSpec {
        let IndexSpec { name, field, lower, exact, unfinished } = spec.clone();
        StoredSpec { name, field, lower, exact, unfinished, tree_id: Some(tree_id) }
    }

    fn into_spec(self) -> IndexSpec {
        let StoredSpec { name, field, lower, exact, unfinished, tree_id: _ } = self;
        IndexSpec { name, field, lower, exact, unfinished }
    }
}

pub fn tree_id(db: &Db, name: &str) -> Result<Option<u32>> {
    Ok(db.tree_info(name)?.map(|tree| tree.id))
}

pub fn imports_tree(db: &Db) -> Result<Option<Tree>> {
    match db.open_tree(IMPORT_TREE) {
        Ok(imports) => Ok(Some(imports)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn specs_key(tree: &str) -> Vec<u8> {
    [PREFIX, tree.as_bytes()].concat()
}

fn decode(tree: &str, json: &[u8]) -> Result<Vec<StoredSpec>> {
    serde_json::from_slice(json).map_err(|error| {
        failure(CORRUPTION, format!("the list of indexes of {tree} in the tree {IMPORT_TREE} is damaged: {error}"))
    })
}

fn all_lists(imports: &Tree) -> Result<Vec<(String, Vec<StoredSpec>)>> {
    let mut lists = Vec::new();
    for item in imports.prefix(PREFIX) {
        let (key, json) = item?;
        let name = String::from_utf8_lossy(key.strip_prefix(PREFIX).unwrap_or_default()).into_owned();
        let specs = decode(&name, &json)?;
        lists.push((name, specs));
    }
    Ok(lists)
}

pub(super) fn load_specs(db: &Db, tree: &str) -> Result<Vec<IndexSpec>> {
    let Some(imports) = imports_tree(db)? else { return Ok(Vec::new()) };
    let id = tree_id(db, tree)?;
    let own = match imports.get(specs_key(tree))? {
        Some(json) => decode(tree, &json)?,
        None => Vec::new(),
    };
    let own: Vec<StoredSpec> = own.into_iter().filter(|spec| spec.tree_id.is_none() || spec.tree_id == id).collect();
    if !own.is_empty() || id.is_none() {
        return Ok(own.into_iter().map(StoredSpec::into_spec).collect());
    }
    let renamed = all_lists(&imports)?.into_iter().flat_map(|(_, specs)| specs).filter(|spec| spec.tree_id == id);
    Ok(renamed.map(StoredSpec::into_spec).collect())
}

pub fn all_indexes(db: &Db) -> Result<Vec<(String, Vec<IndexSpec>)>> {
    let mut found = Vec::new();
    for tree in db.trees()?.into_iter().filter(|tree| !tree.multi && tree.name != IMPORT_TREE) {
        let specs = load_specs(db, &tree.name)?;
        if !specs.is_empty() {
            found.push((tree.name, specs));
        }
    }
    Ok(found)
}

/// Replaces all earlier lists of the tree.
pub fn store_specs(db: &Db, tree: &str, specs: &[IndexSpec], batch: &mut Batch) -> Result<()> {
    let imports = db.tree(IMPORT_TREE)?;
    let id = tree_id(db, tree)?.with_context(|| format!("there is no tree named {tree}"))?;
    for (name, list) in all_lists(&imports)? {
        if name != tree && list.iter().any(|spec| spec.tree_id == Some(id)) {
            batch.delete(&imports, specs_key(&name));
        }
    }
    if specs.is_empty() {
        batch.delete(&imports, specs_key(tree));
        return Ok(());
    }
    let stored: Vec<StoredSpec> = specs.iter().map(|spec| StoredSpec::of(spec, id)).collect();
    batch.put(&imports, specs_key(tree), serde_json::to_vec(&stored)?);
    Ok(())
}

pub struct Declaration {
    pub specs: Vec<IndexSpec>,
    pub added: usize,
}

impl Declaration {
    pub(super) fn check(db: &Db, tree: &str, wanted: &[IndexSpec]) -> Result<Declaration> {
        let mut specs = load_specs(db, tree)?;
        let before = specs.len();
        for spec in wanted {
            match specs.iter().find(|known| known.name == spec.name) {
                Some(known) if known.is_like(spec) => {}
                Some(known) => {
                    return Err(usage(format!(
                        "the index {} exists already, as {}: choose another name",
                        known.name,
                        known.written()
                    )));
                }
                None => {
                    check_name(db, tree, spec)?;
                    specs.push(spec.clone());
                }
            }
        }
        let added = specs.len() - before;
        Ok(Declaration { specs, added })
    }

    pub fn refuse_if_it_would_lack_records(&self, db: &Db, tree: &str) -> Result<()> {
        if self.added == 0 || tree_id(db, tree)?.is_none() || db.open_tree(tree)?.first()?.is_none() {
            return Ok(());
        }
        let new = self.specs.last().map(IndexSpec::written).unwrap_or_default();
        Err(usage(format!(
            "the tree {tree} has records, which a new index would lack: add it with `braid index add DB {tree} {new}`"
        )))
    }

    pub fn establish(&self, db: &Db, tree: &str, batch: &mut Batch) -> Result<Indexes> {
        let indexes = Indexes::open(db, self.specs.clone())?;
        if self.added > 0 {
            store_specs(db, tree, &self.specs, batch)?;
        }
        Ok(indexes)
    }
}

fn check_name(db: &Db, tree: &str, spec: &IndexSpec) -> Result<()> {
    let name = &spec.name;
    if name == tree || name == IMPORT_TREE {
        return Err(usage(format!("an index cannot have the name of the tree {name}: choose another name")));
    }
    if let Some(imports) = imports_tree(db)? {
        for (other, specs) in all_lists(&imports)? {
            let is_live = |spec: &StoredSpec| spec.name == *name && owner_lives(db, &other, spec).unwrap_or(true);
            if specs.iter().any(is_live) {
                let (field, lower) = (&spec.field, if spec.lower { ":lower" } else { "" });
                return Err(usage(format!(
                    "the index {name} belongs to the tree {other}: choose another name for each index of the tree {tree} \
                     with --index, such as --index {tree}_{name}={field}{lower}"
                )));
            }
        }
    }
    let Some(existing) = db.tree_info(name)? else { return Ok(()) };
    if !existing.multi {
        return Err(usage(format!("{name} is a tree with one value per key: choose an index name that no tree has")));
    }
    if db.open_multi_tree(name)?.iter().next().transpose()?.is_some() {
        return Err(usage(format!(
            "{name} is a tree with entries, but not an index: choose an index name that no tree has"
        )));
    }
    note!("braid: the index {name} uses the empty tree of that name");
    Ok(())
}

fn owner_lives(db: &Db, name: &str, spec: &StoredSpec) -> Result<bool> {
    Ok(match spec.tree_id {
        None => tree_id(db, name)?.is_some(),
        Some(id) => db.trees()?.iter().any(|tree| tree.id == id),
    })
}
