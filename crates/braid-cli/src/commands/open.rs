//! Opening databases and trees for a command.

use std::path::Path;

use anyhow::Result;
use braiddb::{Builder, Db, Durability, MultiTree, Tree};

use crate::{
    arguments::{DurabilityArgument, KeyArguments, OpenArguments, ReadArguments},
    exit::{NOT_FOUND, failure},
    import::stored_key_notation,
    notation::KeyNotation,
};

impl From<DurabilityArgument> for Durability {
    fn from(argument: DurabilityArgument) -> Durability {
        match argument {
            DurabilityArgument::Sync => Durability::Sync,
            DurabilityArgument::Buffered => Durability::Buffered,
        }
    }
}

fn builder(arguments: &OpenArguments) -> Builder {
    match arguments.memory {
        Some(bytes) => Db::builder().memory(usize::try_from(bytes).unwrap_or(usize::MAX)),
        None => Db::builder(),
    }
}

/// Opens an existing database to read from it.
pub fn open_for_reading(path: &Path, arguments: &ReadArguments) -> Result<Db> {
    if !path.exists() {
        return Err(failure(NOT_FOUND, format!("there is no database in {}", path.display())));
    }
    Ok(builder(&arguments.open).create(false).read_only(arguments.read_only).open(path)?)
}

/// Opens a database to write to it.
pub fn open_for_writing(path: &Path, arguments: &OpenArguments, create: bool) -> Result<Db> {
    Ok(builder(arguments).create(create).open(path)?)
}

/// A tree of either kind.
pub enum NamedTree {
    /// One value to a key.
    Plain(Tree),
    /// Many values to a key.
    Multi(MultiTree),
}

impl NamedTree {
    /// The existing tree of that name.
    pub fn open(db: &Db, name: &str) -> Result<NamedTree> {
        match NamedTree::find(db, name)? {
            Some(tree) => Ok(tree),
            None => Err(failure(NOT_FOUND, format!("there is no tree named {name}; `braid trees` lists them"))),
        }
    }

    /// The tree of that name, if there is one.
    pub fn find(db: &Db, name: &str) -> Result<Option<NamedTree>> {
        match db.trees()?.iter().find(|tree| tree.name == name) {
            None => Ok(None),
            Some(tree) if tree.multi => Ok(Some(NamedTree::Multi(db.open_multi_tree(name)?))),
            Some(_) => Ok(Some(NamedTree::Plain(db.open_tree(name)?))),
        }
    }
}

/// How the keys of a tree are written: as asked, or as the import that filled it made them.
pub fn key_notation(db: &Db, tree: &str, arguments: KeyArguments) -> Result<KeyNotation> {
    match arguments.keys {
        Some(notation) => Ok(notation),
        None => stored_key_notation(db, tree),
    }
}
