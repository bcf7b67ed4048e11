//! Builds, checks and drops an index of a tree with records.
//!
//! A rebuild adds entries that records lack, then removes entries without a record. INVARIANT: no
//! batch makes the index worse, so a killed rebuild can be repeated. The index list marks numbers
//! as exact only at the end.

use anyhow::Result;
use braiddb::{Db, Durability, MultiTree, Tree};
use serde::Serialize;
use serde_json::Value;

use super::{
    index::{IndexSpec, index_keys},
    index_store::{load_specs, store_specs},
};
use crate::{
    exit::{NOT_FOUND, failure},
    notation::show_name,
};

const BATCH_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IndexCheck {
    pub records: u64,
    pub entries: u64,
    pub missing: u64,
    pub stale: u64,
}

pub fn rebuild_index(db: &Db, tree_name: &str, spec: &IndexSpec, only_check: bool) -> Result<IndexCheck> {
    let tree = db.open_tree(tree_name)?;
    let index = if only_check { db.open_multi_tree(&spec.name)? } else { db.multi_tree(&spec.name)? };
    let mut check = IndexCheck::default();
    add_missing(db, &tree, &index, spec, only_check, &mut check)?;
    remove_stale(db, &tree, &index, spec, only_check, &mut check)?;
    if !only_check {
        db.sync()?;
    }
    Ok(check)
}

fn keys_of(spec: &IndexSpec, stored: &[u8]) -> Vec<String> {
    let Ok(record) = serde_json::from_slice::<Value>(stored) else { return Vec::new() };
    index_keys(std::slice::from_ref(spec), &record).into_iter().map(|(_, key)| key).collect()
}

fn add_missing(
    db: &Db,
    tree: &Tree,
    index: &MultiTree,
    spec: &IndexSpec,
    only_check: bool,
    check: &mut IndexCheck,
) -> Result<()> {
    let mut batch = db.batch();
    for item in tree.iter() {
        let (key, stored) = item?;
        check.records += 1;
        for text in keys_of(spec, &stored) {
            check.entries += 1;
            if index.contains_pair(text.as_bytes(), &key)? {
                continue;
            }
            check.missing += 1;
            if !only_check {
                batch.add(index, text.as_bytes(), &key);
            }
        }
        if batch.size_bytes() >= BATCH_BYTES {
            std::mem::replace(&mut batch, db.batch()).commit_with(Durability::Buffered)?;
        }
    }
    if !batch.is_empty() {
        batch.commit_with(Durability::Buffered)?;
    }
    Ok(())
}

fn remove_stale(
    db: &Db,
    tree: &Tree,
    index: &MultiTree,
    spec: &IndexSpec,
    only_check: bool,
    check: &mut IndexCheck,
) -> Result<()> {
    let mut batch = db.batch();
    for item in index.iter() {
        let (text, key) = item?;
        let made = tree.get(&key)?.map(|stored| keys_of(spec, &stored)).unwrap_or_default();
        if made.iter().any(|made| made.as_bytes() == &*text) {
            continue;
        }
        check.stale += 1;
        if !only_check {
            batch.delete_pair(index, &text, &key);
        }
        if batch.size_bytes() >= BATCH_BYTES {
            std::mem::replace(&mut batch, db.batch()).commit_with(Durability::Buffered)?;
        }
    }
    if !batch.is_empty() {
        batch.commit_with(Durability::Buffered)?;
    }
    Ok(())
}

/// Removes an index from the tree's list, then drops its tree. A kill must not leave a listed index
/// without tree.
pub fn drop_index(db: &Db, tree_name: &str, name: &str) -> Result<()> {
    let mut specs = load_specs(db, tree_name)?;
    let before = specs.len();
    specs.retain(|spec| spec.name != name);
    if specs.len() == before {
        let (tree, index) = (show_name(tree_name), show_name(name));
        return Err(failure(NOT_FOUND, format!("the tree {tree} has no index {index}; `braid index list` lists them")));
    }
    let mut batch = db.batch();
    store_specs(db, tree_name, &specs, &mut batch)?;
    batch.commit_with(Durability::Sync)?;
    match db.drop_tree(name) {
        Err(error) if error.is_not_found() => Ok(()),
        other => Ok(other?),
    }
}
