//! Opens databases and trees for a command.
//!
//! Opening for writing takes the lock, starts a log segment (which may push older ones out of the
//! retained log), and without a log archive drops segments that were not archived. So commands that
//! only read open read-only, without a lock.

use std::{collections::BTreeMap, fs, io, path::Path, time::Instant};

use anyhow::{Context, Result};
#[cfg(any(feature = "shell", feature = "top"))]
use braiddb::Follower;
use braiddb::{Builder, Db, Durability, MultiTree, Tree};

use super::created::NewPlace;
use crate::{
    arguments::{DurabilityArgument, KeyArguments, OpenArguments, ReadArguments},
    exit::{self, NOT_FOUND, failure, usage},
    import::stored_key_notation,
    logging,
    notation::{KeyNotation, show_name},
    output::note,
    places::check_new_directory,
    typed,
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

pub fn builder(arguments: &OpenArguments) -> Builder {
    logging::with_events(match arguments.memory {
        Some(bytes) => Db::builder().memory(usize::try_from(bytes).unwrap_or(usize::MAX)),
        None => Db::builder(),
    })
}

const FOR_READING: &str = "for reading";
const FOR_WRITING: &str = "for writing";

/// Opens a database, and logs it.
fn open(builder: Builder, path: &Path, access: &str) -> braiddb::Result<Db> {
    let begun = Instant::now();
    let db = builder.open(path)?;
    logging::note_opened(path, access, &db, begun);
    Ok(db)
}

/// Opens a database for reading that shows the commits of its owner.
#[cfg(any(feature = "shell", feature = "top"))]
pub fn open_follower(path: &Path, arguments: &OpenArguments) -> Result<Follower> {
    check_directory(path)?;
    let begun = Instant::now();
    let follower = builder(arguments).open_follower(path)?;
    logging::note_opened(path, FOR_READING, &follower.db(), begun);
    Ok(follower)
}

pub fn open_for_reading(path: &Path, arguments: &ReadArguments) -> Result<Db> {
    check_directory(path)?;
    Ok(open(builder(&arguments.open).create(false).read_only(true), path, FOR_READING)?)
}

pub fn open_keeping_log(path: &Path, arguments: &ReadArguments, bytes: u64) -> Result<Db> {
    check_directory(path)?;
    Ok(open(builder(&arguments.open).create(false).log_retention(bytes), path, FOR_WRITING)?)
}

pub fn open_for_writing(path: &Path, arguments: &OpenArguments) -> Result<Db> {
    check_directory(path)?;
    Ok(open(builder(arguments).create(false), path, FOR_WRITING)?)
}

pub fn open_or_create(path: &Path, arguments: &OpenArguments, create: bool) -> Result<Db> {
    if create {
        return create_database(path, arguments);
    }
    open_for_writing(path, arguments).map_err(|error| match exit::code_of(&error) {
        NOT_FOUND => {
            let advice = format!("create one with `braid create {}`, or add --create to this command", path.display());
            failure(NOT_FOUND, format!("{}; {advice}", exit::text_of(&error)))
        }
        _ => error,
    })
}

/// Opens or creates a database; its parent must exist. A new database without contents is removed
/// if the command fails.
pub fn create_database(path: &Path, arguments: &OpenArguments) -> Result<Db> {
    if path.is_file() {
        check_directory(path)?;
    }
    if path.join("CURRENT").exists() {
        return Ok(open(builder(arguments).create(true), path, FOR_WRITING)?);
    }
    check_new_directory(path, "the new database")?;
    let place = NewPlace::of(path);
    let opened = open(builder(arguments).create(true), path, FOR_WRITING);
    // With `Locked`, another process is creating the database.
    if !matches!(opened, Err(braiddb::Error::Locked { .. })) {
        place.note_created(path);
    }
    Ok(opened?)
}

pub fn open_archiving(path: &Path, archive: &Path, arguments: &OpenArguments) -> Result<Db> {
    check_directory(path)?;
    Ok(open(builder(arguments).create(false).log_archive(archive), path, FOR_WRITING)?)
}

pub fn check_directory(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(usage(format!("{} is a file, not a database: a database is a directory", path.display()))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            let shown = path.display();
            Err(failure(NOT_FOUND, format!("there is no database in {shown}: the directory does not exist")))
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

pub enum NamedTree {
    Plain(Tree),
    Multi(MultiTree),
}

impl NamedTree {
    pub fn open(db: &Db, name: &str) -> Result<NamedTree> {
        match NamedTree::find(db, name)? {
            Some(tree) => Ok(tree),
            None => {
                Err(failure(NOT_FOUND, format!("there is no tree named {}; `braid trees` lists them", show_name(name))))
            }
        }
    }

    pub fn find(db: &Db, name: &str) -> Result<Option<NamedTree>> {
        match db.tree_info(name)? {
            None => Ok(None),
            Some(tree) if tree.multi => Ok(Some(NamedTree::Multi(db.open_multi_tree(name)?))),
            Some(_) => Ok(Some(NamedTree::Plain(db.open_tree(name)?))),
        }
    }
}

pub fn key_notation(db: &Db, tree: &str, arguments: KeyArguments) -> Result<KeyNotation> {
    match arguments.keys {
        Some(notation) => Ok(notation),
        None if typed::has_tuple_keys(typed::codec_of(db, tree)?) => Ok(KeyNotation::Tuple),
        None => stored_key_notation(db, tree),
    }
}

#[derive(Default)]
pub struct Notations(BTreeMap<u32, KeyNotation>);

impl Notations {
    pub fn of(path: &Path, arguments: &ReadArguments) -> Notations {
        open_for_reading(path, arguments).map(|db| Notations::of_db(&db)).unwrap_or_default()
    }

    pub fn of_db(db: &Db) -> Notations {
        let trees = db.trees().unwrap_or_default();
        let notation = |name: &str| stored_key_notation(db, name).unwrap_or_default();
        Notations(trees.into_iter().map(|tree| (tree.id, notation(&tree.name))).collect())
    }

    pub fn of_tree(&self, id: u32) -> KeyNotation {
        self.0.get(&id).copied().unwrap_or_default()
    }
}

pub fn remove_unfinished(builder: &Builder, dir: &Path) -> Result<()> {
    if builder.remove_unfinished(dir)? {
        note!("removed the files of an unfinished operation in {}", dir.display());
    }
    Ok(())
}
