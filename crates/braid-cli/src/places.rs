//! Places that a command line names: a database and what is made of it lie apart.
//!
//! A file or directory that a command writes never lies in the directory of a database: there it could take the place of one
//! of its files, and would be lost with it. Paths are compared after links are followed.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use anyhow::Result;

use crate::exit::{SYSTEM, failure, usage};

/// Symbolic links that are followed to a name that is free; Linux follows as many.
const LINKS_MAX: usize = 40;

/// Refuses a new directory or an output file inside a database, or in its place, and a directory with `db` in it.
pub fn check_apart(db: &Path, other: &Path, what: &str) -> Result<()> {
    let (shown_db, shown) = (db.display(), other.display());
    let (db, resolved) = (resolve(db), resolve(other));
    if db == resolved {
        return Err(usage(format!("{shown} is the database itself: name another place for {what}")));
    }
    if db.starts_with(&resolved) {
        return Err(usage(format!("the database {shown_db} lies in {shown}: name another place for {what}")));
    }
    if resolved.starts_with(&db) {
        return Err(usage(format!("{shown} lies in the database {shown_db}: name another place for {what}")));
    }
    check_outside_databases(other, what)
}

/// Refuses a new database in the directory of backups or of a log archive that it is made from.
pub fn check_separate(source: &Path, db: &Path) -> Result<()> {
    let (resolved_source, resolved) = (resolve(source), resolve(db));
    if resolved.starts_with(&resolved_source) {
        let (db, source) = (db.display(), source.display());
        return Err(usage(format!(
            "{db} lies in {source}, from which it is made: name another place for the new database"
        )));
    }
    Ok(())
}

/// Refuses an output inside the directory of any database, or in its place.
pub fn check_outside_databases(path: &Path, what: &str) -> Result<()> {
    let resolved = resolve(path);
    match resolved.ancestors().find(|folder| is_database(folder)) {
        None => Ok(()),
        Some(folder) if folder == resolved => {
            Err(usage(format!("{} is a database: name another place for {what}", path.display())))
        }
        Some(folder) => Err(usage(format!(
            "{} lies in the database {}: name another place for {what}",
            path.display(),
            folder.display()
        ))),
    }
}

/// Refuses a new directory inside the directory of a database, and one whose parent is missing: after a typing error, nothing is
/// made. Whether it is empty is for the engine to check.
pub fn check_new_directory(path: &Path, what: &str) -> Result<()> {
    if let Some(parent) = resolve(path).parent() {
        check_outside_databases(parent, what)?;
    }
    check_parent(path)
}

/// Does what makes a directory and fills it. If that fails and leaves nothing in the directory, and the directory was not there
/// before, it is removed.
pub fn making_directory<T>(path: &Path, make: impl FnOnce() -> Result<T>) -> Result<T> {
    let was_absent = fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let made = make();
    if was_absent && made.is_err() {
        let is_lock = |entry: &fs::DirEntry| entry.file_name() == "LOCK";
        let only = fs::read_dir(path).map(|entries| entries.flatten().collect::<Vec<_>>()).unwrap_or_default();
        if let [lock] = only.as_slice()
            && is_lock(lock)
        {
            let _ = fs::remove_file(lock.path());
        }
        // This fails where there is something in it.
        let _ = fs::remove_dir(path);
    }
    made
}

/// Refuses an output file inside a database. What is written through, such as a pipe, has no place.
pub fn check_output_file(path: &Path, what: &str) -> Result<()> {
    if path == Path::new("-") || fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        return Ok(());
    }
    check_outside_databases(path, what)
}

/// Refuses a directory that is to be made where its parent is missing.
pub fn check_parent(path: &Path) -> Result<()> {
    let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) else { return Ok(()) };
    match fs::metadata(parent) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => {
            let (path, parent) = (path.display(), parent.display());
            Err(usage(format!("cannot create {path}: {parent} is a file, no directory; name another place")))
        }
        // Some level above is a file.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            let file = parent.ancestors().find(|above| fs::metadata(above).is_ok_and(|metadata| !metadata.is_dir()));
            let (path, file) = (path.display(), file.unwrap_or(parent).display());
            Err(usage(format!("cannot create {path}: {file} is a file, no directory; name another place")))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failure(SYSTEM, format!("cannot read {}: {error}", parent.display())))
        }
        _ => Err(failure(
            SYSTEM,
            format!("cannot create {}: there is no directory {}; make that first", path.display(), parent.display()),
        )),
    }
}

/// Whether a directory holds a database, also a damaged one.
fn is_database(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let mut has = [false; 2];
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        has[0] |= name == "CURRENT";
        has[1] |= name.strip_prefix("MANIFEST-").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
        if has == [true; 2] {
            return true;
        }
    }
    false
}

/// The absolute path, with links followed, also of a name that is free.
fn resolve(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    let absolute = std::path::absolute(&path).unwrap_or(path);
    for ancestor in absolute.ancestors() {
        if let Ok(canonical) = ancestor.canonicalize() {
            let rest = absolute.strip_prefix(ancestor).unwrap_or(Path::new(""));
            return join_plainly(canonical, rest);
        }
    }
    absolute
}

/// Joins names that are free; `..` takes the last one away.
fn join_plainly(mut path: PathBuf, rest: &Path) -> PathBuf {
    for component in rest.components() {
        match component {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::resolve;
    #[cfg(unix)]
    use super::{check_apart, check_outside_databases};

    #[test]
    fn resolved_path_of_free_name_follows_dots_and_existing_parents() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        assert_eq!(resolve(&folder.path().join("a/../b/./c")), real.join("b").join("c"));
        assert_eq!(resolve(folder.path()), real);
    }

    #[cfg(unix)]
    #[test]
    fn dangling_link_into_database_is_inside_it() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("db");
        std::fs::create_dir(&db).unwrap();
        for name in ["CURRENT", "MANIFEST-000001"] {
            std::fs::write(db.join(name), "").unwrap();
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("db/new", &link).unwrap();
        assert!(check_outside_databases(&link, "the file").is_err());
        assert!(check_apart(&db, &link, "the file").is_err());
        check_apart(&db, &folder.path().join("other"), "the file").unwrap();
    }
}
