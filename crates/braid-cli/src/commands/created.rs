//! Removes a database that a failed command has created and not filled.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use braiddb::{
    Builder,
    platform::{SystemVfs, Vfs as _},
};

use crate::import::IMPORT_TREE;

const LOCK_NAME: &str = "LOCK";

struct Created {
    path: PathBuf,
    is_new_directory: bool,
}

static CREATED: Mutex<Option<Created>> = Mutex::new(None);

pub struct NewPlace {
    is_new_directory: bool,
    is_empty: bool,
}

impl NewPlace {
    pub fn of(path: &Path) -> NewPlace {
        let is_new_directory = fs::symlink_metadata(path).is_err();
        let is_empty = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        NewPlace { is_new_directory, is_empty: is_empty || is_new_directory }
    }

    pub fn note_created(self, path: &Path) {
        if self.is_empty {
            let created = Created { path: path.to_owned(), is_new_directory: self.is_new_directory };
            *CREATED.lock().unwrap_or_else(PoisonError::into_inner) = Some(created);
        }
    }
}

/// Removes the recorded database if it has no trees and no process has it open. Ignores errors.
pub fn remove_if_empty() {
    let Some(created) = CREATED.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    let is_open = SystemVfs::new().lock_owner(&created.path.join(LOCK_NAME)).is_ok_and(|owner| owner.is_some());
    if is_open || !is_without_trees(&created.path) {
        return;
    }
    let Ok(entries) = fs::read_dir(&created.path) else { return };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    // CURRENT first, so that no partial database is left; the lock last.
    files.sort_by_key(|path| (!path.ends_with("CURRENT"), path.ends_with(LOCK_NAME)));
    for file in files {
        if fs::remove_file(file).is_err() {
            return;
        }
    }
    if created.is_new_directory {
        let _ = fs::remove_dir(&created.path);
    }
}

/// A directory without CURRENT comes from a failed creation.
fn is_without_trees(path: &Path) -> bool {
    if !path.join("CURRENT").exists() {
        return true;
    }
    let trees = Builder::new().create(false).open_read_only(path).and_then(|db| db.trees());
    trees.is_ok_and(|trees| trees.iter().all(|tree| tree.name == IMPORT_TREE))
}
