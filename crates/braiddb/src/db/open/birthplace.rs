//! Decides where a database may be created.
//!
//! The directory must be absent or empty; missing parents are created only with
//! [`crate::Builder::create_parents`]. All checks precede any change, so a refused open leaves
//! nothing behind. If two processes create at once, the lock decides. A directory with an engine
//! file is not new: it is a database or an interrupted creation.

use crate::{
    base::{Error, Result},
    codec::{FILE_HEADER_LEN, FileKind},
    db::{
        engine::settings::Settings,
        files::{
            names::{LOCK_NAME, RESTORING_NAME, SYNC_FAILED_NAME, numbered},
            reserve::RESERVE_NAME,
        },
    },
    platform::{DirEntry, OpenMode, Vfs},
    version::CURRENT_NAME,
};
use std::{
    io,
    path::{Component, Path, PathBuf},
};

/// A directory that file systems create at their root.
const LOST_AND_FOUND: &str = "lost+found";

const BACKUP_SUFFIX: &str = ".backup";

/// Length of an incarnation directory's name, in hexadecimal digits.
const LIFE_NAME_LEN: usize = 16;

/// Levels above a new directory to check for archives and databases; an archive keeps its files one
/// level down.
const ANCESTORS_LOOKED_AT: usize = 2;

/// Fails where no database can be opened or created. Changes nothing.
pub fn check(settings: &Settings, dir: &Path) -> Result<()> {
    if dir.as_os_str().is_empty() {
        return Err(Error::InvalidArgument("the path of the database is empty: name a directory".to_owned()));
    }
    let vfs = &*settings.vfs;
    if let Some(archive) = &settings.log_archive {
        check_archive(settings, archive, dir)?;
    }
    match vfs.list(dir) {
        Ok(entries) if holds_database(&entries) => Ok(()),
        Ok(entries) if entries.iter().any(|entry| is_of_engine(&entry.name)) => match holds_backups(&entries) {
            true => Err(refused(dir, "it holds backups")),
            false if settings.create => check_surroundings(vfs, dir),
            false => Ok(()),
        },
        Ok(_) if !settings.create => Err(absent(dir)),
        Err(e) if !settings.create && is_absent(&e) => Err(absent(dir)),
        Ok(entries) => check_empty(vfs, dir, &entries).and_then(|()| check_surroundings(vfs, dir)),
        Err(e) if is_absent(&e) => check_parent(settings, dir).and_then(|()| check_surroundings(vfs, dir)),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Err(Error::InvalidArgument(format!(
            "{} is a file, or lies below one, and a database is a directory: name another path",
            dir.display()
        ))),
        Err(e) => Err(Error::io("list", dir, e)),
    }
}

fn absent(dir: &Path) -> Error {
    Error::NotFound(format!("there is no database in {}", dir.display()))
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn is_of_engine(name: &str) -> bool {
    [CURRENT_NAME, RESERVE_NAME, RESTORING_NAME, SYNC_FAILED_NAME].contains(&name) || numbered(name).is_some()
}

fn holds_backups(entries: &[DirEntry]) -> bool {
    let is_number = |stem: &str| !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit());
    entries.iter().any(|entry| entry.name.strip_suffix(BACKUP_SUFFIX).is_some_and(is_number))
}

fn holds_database(entries: &[DirEntry]) -> bool {
    entries.iter().any(|entry| entry.name == CURRENT_NAME)
}

fn refused(dir: &Path, why: &str) -> Error {
    Error::AlreadyExists(format!(
        "no database is created in {}: {why}; name a directory that is empty or does not exist yet",
        dir.display()
    ))
}

/// Returns whether a new database may lie beside an entry: the lock, hidden files, and
/// `lost+found`.
fn may_be_beside(name: &str) -> bool {
    name == LOCK_NAME || name == LOST_AND_FOUND || name.starts_with('.')
}

fn check_empty(vfs: &dyn Vfs, dir: &Path, entries: &[DirEntry]) -> Result<()> {
    if holds_backups(entries) {
        return Err(refused(dir, "it holds backups"));
    }
    let directories = vfs.list_directories(dir).map_err(|e| Error::io("list", dir, e))?;
    if is_log_archive(vfs, dir, &directories) {
        return Err(refused(dir, "it is a log archive"));
    }
    let mut names = entries.iter().map(|entry| entry.name.as_str()).chain(directories.iter().map(String::as_str));
    match names.find(|name| !may_be_beside(name)) {
        Some(name) => Err(refused(dir, &format!("it is not empty, there is {name}"))),
        None => Ok(()),
    }
}

fn is_log_archive(vfs: &dyn Vfs, dir: &Path, directories: &[String]) -> bool {
    let is_life = |name: &&String| name.len() == LIFE_NAME_LEN && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let holds_log = |name: &String| {
        let entries = vfs.list(&dir.join(name)).unwrap_or_default();
        entries.iter().any(|entry| matches!(numbered(&entry.name), Some((_, "wal" | "blob"))))
    };
    directories.iter().filter(is_life).any(holds_log)
}

/// Returns the parent: the current directory for a bare name, none for a root.
fn parent_of(dir: &Path) -> Option<&Path> {
    dir.parent().map(or_current)
}

fn or_current(dir: &Path) -> &Path {
    if dir.as_os_str().is_empty() { Path::new(".") } else { dir }
}

fn check_parent(settings: &Settings, dir: &Path) -> Result<()> {
    let Some(parent) = parent_of(dir).filter(|_| !settings.create_parents) else { return Ok(()) };
    match settings.vfs.list(parent) {
        Err(e) if is_absent(&e) => Err(Error::NotFound(format!(
            "there is no directory {}, in which {} would be created: create it, or open with Builder::create_parents",
            parent.display(),
            dir.file_name().unwrap_or_default().display()
        ))),
        // Creating the directory reports any other error.
        _ => Ok(()),
    }
}

/// Refuses a new directory inside backups, a log archive or another database, whose tools would
/// take its files for theirs.
fn check_surroundings(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let above = dir.ancestors().skip(1).take(ANCESTORS_LOOKED_AT).map(or_current);
    for (level, above) in above.enumerate() {
        let Ok(entries) = vfs.list(above) else { continue };
        let is_archive = || is_log_archive(vfs, above, &vfs.list_directories(above).unwrap_or_default());
        let what = match level {
            _ if holds_backups(&entries) => "backups",
            0 if holds_database(&entries) => "another database",
            _ if is_archive() => "a log archive",
            _ => continue,
        };
        return Err(refused(dir, &format!("{} holds {what}", above.display())));
    }
    Ok(())
}

/// Refuses a log archive inside any database or below a missing directory.
fn check_archive(settings: &Settings, archive: &Path, dir: &Path) -> Result<()> {
    let vfs = &*settings.vfs;
    let owns = |place: &Path| vfs.list(place).is_ok_and(|entries| holds_database(&entries));
    let is_inside = cleaned(archive).starts_with(cleaned(dir));
    if archive.as_os_str().is_empty()
        || is_inside
        || archive.ancestors().take(ANCESTORS_LOOKED_AT).map(or_current).any(owns)
    {
        return Err(Error::InvalidArgument(format!(
            "the log archive {:?} would lie in the directory of a database: name one outside of it",
            archive.display().to_string()
        )));
    }
    match vfs.list(archive) {
        Err(e) if is_absent(&e) => check_parent(settings, archive),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Err(Error::InvalidArgument(format!(
            "the log archive {} is a file, or lies below one: name a directory",
            archive.display()
        ))),
        Err(e) => Err(Error::io("list", archive, e)),
        Ok(_) => Ok(()),
    }
}

/// Refuses a new backup target inside the directory of a database, because backups there are lost
/// together with the database. Changes nothing.
pub fn check_target(vfs: &dyn Vfs, target: &Path) -> Result<()> {
    let is_current = |dir: &Path| {
        let mut magic = [0; FILE_HEADER_LEN];
        let read = vfs.open(&dir.join(CURRENT_NAME), OpenMode::Read).and_then(|file| file.read_at(&mut magic, 0));
        read.is_ok_and(|len| FileKind::of_magic(&magic[..len]) == Some(FileKind::Current))
    };
    match target.ancestors().map(or_current).find(|dir| is_current(dir)) {
        Some(database) => Err(Error::InvalidArgument(format!(
            "the backup target {} would lie in the directory of the database {}, and would be lost with it: name a \
             directory outside of it, best on another disk",
            target.display(),
            database.display()
        ))),
        None => Ok(()),
    }
}

/// Fails where a load, restore, salvage or checkpoint must not create a database. Changes nothing.
/// [`super::new_directory`] checks that the directory is empty.
pub fn check_new(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    match vfs.list(dir) {
        Ok(entries) if holds_backups(&entries) => return Err(refused(dir, "it holds backups")),
        Ok(_) if is_log_archive(vfs, dir, &vfs.list_directories(dir).unwrap_or_default()) => {
            return Err(refused(dir, "it is a log archive"));
        }
        _ => {}
    }
    check_surroundings(vfs, dir)
}

/// Removes `.` and `..` from a path without reading the file system.
fn cleaned(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if clean.file_name().is_some() => _ = clean.pop(),
            other => clean.push(other),
        }
    }
    clean
}
