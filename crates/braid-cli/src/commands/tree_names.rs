//! `braid drop-tree`, `braid rename-tree`.

use std::path::PathBuf;

use anyhow::Result;
use braiddb::{Db, Durability};
use clap::Args;
use serde_json::json;

use super::open::open_for_writing;
use crate::{
    arguments::OpenArguments,
    exit::{NOT_FOUND, OK, failure, usage},
    import::{IMPORT_TREE, IndexSpec, Indexes, all_indexes, store_specs},
    notation::{parse_name, show_name},
    output::{note, print_line},
};

/// `braid drop-tree`
#[derive(Debug, Args)]
pub struct DropTreeArguments {
    /// The database
    pub db: PathBuf,
    /// The trees; the indexes of a tree are dropped with it
    #[arg(value_name = "TREE", required = true, value_parser = parse_name)]
    pub trees: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid rename-tree`
#[derive(Debug, Args)]
pub struct RenameTreeArguments {
    /// The database
    pub db: PathBuf,
    /// The tree
    #[arg(value_parser = parse_name)]
    pub tree: String,
    /// Its new name; must be unused
    #[arg(value_parser = parse_name)]
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

fn no_such_tree(name: &str) -> anyhow::Error {
    failure(NOT_FOUND, format!("there is no tree named {}; `braid trees` lists them", show_name(name)))
}

fn is_there(db: &Db, name: &str) -> Result<bool> {
    Ok(db.tree_info(name)?.is_some())
}

pub fn refuse_own_tree(name: &str) -> Result<()> {
    match name == IMPORT_TREE {
        true => Err(usage(format!("the tree {IMPORT_TREE} is reserved: `braid` keeps its imports and indexes in it"))),
        false => Ok(()),
    }
}

/// Returns the tree that an index belongs to.
pub fn owner_of_index(db: &Db, name: &str) -> Result<Option<String>> {
    let has = |specs: &[IndexSpec]| specs.iter().any(|spec| spec.name == name);
    Ok(all_indexes(db)?.into_iter().find(|(_, specs)| has(specs)).map(|(tree, _)| tree))
}

/// Returns the reason to keep an index when it is named like a tree.
pub fn is_index_of(name: &str, owner: &str) -> String {
    format!("{} is an index of the tree {}: drop it with `braid index drop`", show_name(name), show_name(owner))
}

/// Drops all trees and their indexes, or none.
pub fn drop_tree(arguments: &DropTreeArguments) -> Result<u8> {
    let db = open_for_writing(&arguments.db, &arguments.open)?;
    let mut dropped: Vec<String> = Vec::new();
    for name in &arguments.trees {
        refuse_own_tree(name)?;
        if !is_there(&db, name)? {
            return Err(no_such_tree(name));
        }
        if let Some(owner) = owner_of_index(&db, name)?.filter(|owner| !arguments.trees.contains(owner)) {
            return Err(usage(is_index_of(name, &owner)));
        }
        let indexes = Indexes::stored_specs(&db, name)?.into_iter().map(|spec| spec.name);
        for tree in std::iter::once(name.clone()).chain(indexes) {
            if is_there(&db, &tree)? && !dropped.contains(&tree) {
                dropped.push(tree);
            }
        }
    }
    db.drop_trees(&dropped)?;
    db.close()?;
    if arguments.json {
        print_line(json!({"dropped": dropped}))?;
        return Ok(OK);
    }
    for name in dropped.iter().filter(|name| !arguments.trees.contains(name)) {
        note!("the index {} was dropped with its tree", show_name(name));
    }
    Ok(OK)
}

/// Renames a tree. Imports and indexes refer to its id, so they follow.
pub fn rename_tree(arguments: &RenameTreeArguments) -> Result<u8> {
    let (from, to) = (arguments.tree.as_str(), arguments.name.as_str());
    refuse_own_tree(from)?;
    refuse_own_tree(to)?;
    let db = open_for_writing(&arguments.db, &arguments.open)?;
    if !is_there(&db, from)? {
        return Err(no_such_tree(from));
    }
    if let Some(owner) = owner_of_index(&db, from)? {
        return Err(usage(format!(
            "{} is an index of the tree {}: drop the index and add it under its new name, with `braid index`",
            show_name(from),
            show_name(&owner)
        )));
    }
    // Moves an index list stored by tree name (earlier versions) to the tree's id.
    let specs = Indexes::stored_specs(&db, from)?;
    if !specs.is_empty() {
        let mut batch = db.batch();
        store_specs(&db, from, &specs, &mut batch)?;
        batch.commit_with(Durability::Sync)?;
    }
    db.rename_tree(from, to)?;
    db.close()?;
    if arguments.json {
        print_line(json!({"from": from, "to": to}))?;
    }
    Ok(OK)
}
