//! Opening databases and trees for a command.
//!
//! Opening for writing takes the lock and begins a segment of the log, at the cost of what is retained of that, and without a log archive lets go of what that
//! lacks. So a command that only reads opens the database read-only, which takes no writing and no lock: it reads what has been committed by then,
//! whatever happens meanwhile.

use std::{collections::BTreeMap, fs, io, path::Path};

use anyhow::{Context, Result};
use braiddb::{Builder, Db, Durability, MultiTree, Tree};

use super::created::NewPlace;
use crate::{
    arguments::{DurabilityArgument, KeyArguments, OpenArguments, ReadArguments},
    exit::{self, NOT_FOUND, failure, usage},
    import::stored_key_notation,
    notation::{KeyNotation, show_name},
    output::note,
    places::check_new_directory,
};

impl From<DurabilityArgument> for Durability {
    fn from(argument: DurabilityArgument) -> Durability {
        match argument {
            DurabilityArgument::Sync => Durability::Sync,
            DurabilityArgument::Buffered => Durability::Buffered,
            DurabilityArgument::None => Durability::None,
        }
    }
}

/// A database's options.
pub fn builder(arguments: &OpenArguments) -> Builder {
    match arguments.memory {
        Some(bytes) => Db::builder().memory(usize::try_from(bytes).unwrap_or(usize::MAX)),
        None => Db::builder(),
    }
}

/// Opens an existing database to read from it, as it is now, and changes nothing.
pub fn open_for_reading(path: &Path, arguments: &ReadArguments) -> Result<Db> {
    check_directory(path)?;
    Ok(builder(&arguments.open).create(false).read_only(true).open(path)?)
}

/// Opens an existing database to read from it, and has it keep so much of its log from now on.
pub fn open_keeping_log(path: &Path, arguments: &ReadArguments, bytes: u64) -> Result<Db> {
    check_directory(path)?;
    Ok(builder(&arguments.open).create(false).log_retention(bytes).open(path)?)
}

/// Opens an existing database to write to it.
pub fn open_for_writing(path: &Path, arguments: &OpenArguments) -> Result<Db> {
    check_directory(path)?;
    Ok(builder(arguments).create(false).open(path)?)
}

/// Opens a database to write to it, and creates it if that is asked; its parent must be there.
pub fn open_or_create(path: &Path, arguments: &OpenArguments, create: bool) -> Result<Db> {
    if create {
        return create_database(path, arguments);
    }
    open_for_writing(path, arguments).map_err(|error| match exit::code_of(&error) {
        NOT_FOUND => {
            let advice = format!("`braid create {}` makes one, and so does --create with this command", path.display());
            failure(NOT_FOUND, format!("{error:#}; {advice}"))
        }
        _ => error,
    })
}

/// Opens a database, or creates it; its parent must be there. One that it creates is removed if the command fails and stores nothing.
pub fn create_database(path: &Path, arguments: &OpenArguments) -> Result<Db> {
    if path.is_file() {
        check_directory(path)?;
    }
    if path.join("CURRENT").exists() {
        return Ok(builder(arguments).create(true).open(path)?);
    }
    check_new_directory(path, "the new database")?;
    let place = NewPlace::of(path);
    let opened = builder(arguments).create(true).open(path);
    // Another process that holds the lock has created it, or is about to.
    if !matches!(opened, Err(braiddb::Error::Locked { .. })) {
        place.note_created(path);
    }
    Ok(opened?)
}

/// Opens an existing database with a log archive.
pub fn open_archiving(path: &Path, archive: &Path, arguments: &OpenArguments) -> Result<Db> {
    check_directory(path)?;
    Ok(builder(arguments).create(false).log_archive(archive).open(path)?)
}

/// Fails if there is no directory of this name.
pub fn check_directory(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(usage(format!("{} is not a database, which would be a directory", path.display()))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Err(failure(NOT_FOUND, format!("there is no database in {}", path.display())))
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
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
            None => {
                Err(failure(NOT_FOUND, format!("there is no tree named {}; `braid trees` lists them", show_name(name))))
            }
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

/// How the keys of all trees of a database are written, where damage is reported: all as text if that cannot be read.
#[derive(Default)]
pub struct Notations(BTreeMap<u32, KeyNotation>);

impl Notations {
    /// Opens the database to read it.
    pub fn of(path: &Path, arguments: &ReadArguments) -> Notations {
        open_for_reading(path, arguments).map(|db| Notations::of_db(&db)).unwrap_or_default()
    }

    /// Those of an open database.
    pub fn of_db(db: &Db) -> Notations {
        let trees = db.trees().unwrap_or_default();
        let notation = |name: &str| stored_key_notation(db, name).unwrap_or_default();
        Notations(trees.into_iter().map(|tree| (tree.id, notation(&tree.name))).collect())
    }

    /// That of a tree, by its number.
    pub fn of_tree(&self, id: u32) -> KeyNotation {
        self.0.get(&id).copied().unwrap_or_default()
    }
}

/// For `--force`: removes what a killed load or restore left in the directory, and nothing else.
pub fn remove_unfinished(builder: &Builder, dir: &Path) -> Result<()> {
    if builder.remove_unfinished(dir)? {
        note!("removed what an unfinished operation left in {}", dir.display());
    }
    Ok(())
}
