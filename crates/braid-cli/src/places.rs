//! Checks the paths of a command line.
//!
//! INVARIANT: no file or directory that a command writes is inside a database directory, where it
//! could replace a database file. Paths are compared after links are resolved.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use anyhow::Result;

use crate::exit::{SYSTEM, failure, usage};

const LINKS_MAX: usize = 40;

/// Refuses an output that is the database, is inside it or inside another database, or contains it.
pub fn check_apart(db: &Path, other: &Path, what: &str) -> Result<()> {
    let (shown_db, shown) = (db.display(), other.display());
    let (db, resolved) = (resolve(db), resolve(other));
    if db == resolved {
        return Err(usage(format!("{shown} is the database itself: name another place for {what}")));
    }
    if db.starts_with(&resolved) {
        return Err(usage(format!("the database {shown_db} is inside {shown}: name another place for {what}")));
    }
    if resolved.starts_with(&db) {
        return Err(usage(format!("{shown} is inside the database {shown_db}: name another place for {what}")));
    }
    check_outside_databases(other, what)
}

pub fn check_separate(source: &Path, db: &Path) -> Result<()> {
    let (resolved_source, resolved) = (resolve(source), resolve(db));
    if resolved.starts_with(&resolved_source) {
        let (db, source) = (db.display(), source.display());
        return Err(usage(format!(
            "{db} is inside {source}, which it is restored from: name another place for the new database"
        )));
    }
    Ok(())
}

pub fn check_outside_databases(path: &Path, what: &str) -> Result<()> {
    let resolved = resolve(path);
    match resolved.ancestors().find(|folder| is_database(folder)) {
        None => Ok(()),
        Some(folder) if folder == resolved => {
            Err(usage(format!("{} is a database: name another place for {what}", path.display())))
        }
        Some(folder) => Err(usage(format!(
            "{} is inside the database {}: name another place for {what}",
            path.display(),
            folder.display()
        ))),
    }
}

/// Refuses a new directory inside a database, or with a missing parent.
pub fn check_new_directory(path: &Path, what: &str) -> Result<()> {
    if let Some(parent) = resolve(path).parent() {
        check_outside_databases(parent, what)?;
    }
    check_parent(path)
}

/// Runs `make`, which creates and fills a directory. After a failure, removes a new directory that
/// is empty or has only a lock file.
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
        let _ = fs::remove_dir(path);
    }
    made
}

/// Pipes and devices are always allowed.
pub fn check_output_file(path: &Path, what: &str) -> Result<()> {
    if path == Path::new("-") || fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        return Ok(());
    }
    check_outside_databases(path, what)
}

pub fn check_parent(path: &Path) -> Result<()> {
    let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) else { return Ok(()) };
    match fs::metadata(parent) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => {
            let (path, parent) = (path.display(), parent.display());
            Err(usage(format!("cannot create {path}: {parent} is a file, not a directory; name another place")))
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            let file = parent.ancestors().find(|above| fs::metadata(above).is_ok_and(|metadata| !metadata.is_dir()));
            let (path, file) = (path.display(), file.unwrap_or(parent).display());
            Err(usage(format!("cannot create {path}: {file} is a file, not a directory; name another place")))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failure(SYSTEM, format!("cannot read {}: {error}", parent.display())))
        }
        _ => Err(failure(
            SYSTEM,
            format!("cannot create {}: there is no directory {}; create it first", path.display(), parent.display()),
        )),
    }
}

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
