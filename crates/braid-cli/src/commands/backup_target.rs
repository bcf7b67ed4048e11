//! The place of backups: a directory, or `s3://BUCKET/PREFIX` with the feature `s3`.

use std::{fs, io, path::Path, sync::Arc};

use anyhow::Result;
use braiddb::{
    backup::{BackupTarget, DirectoryTarget},
    platform::SystemVfs,
};

use crate::{
    exit::{NOT_FOUND, failure, usage},
    places::{check_apart, check_parent, check_separate, making_directory},
};

const S3: &str = "s3://";

/// Returns the URL of a place that is no directory.
fn url_of(target: &Path) -> Option<&str> {
    target.to_str().filter(|text| text.starts_with(S3))
}

/// Opens a place that has backups.
pub fn existing(target: &Path) -> Result<Box<dyn BackupTarget>> {
    let opened: Box<dyn BackupTarget> = match url_of(target) {
        Some(url) => open_url(url)?,
        None => Box::new(existing_directory(target)?),
    };
    let is_description = |name: &str| name.strip_suffix(".backup").is_some_and(|number| number.parse::<u64>().is_ok());
    if !opened.list()?.iter().any(|object| is_description(&object.name)) {
        let advice = "create one with `braid backup create`";
        return Err(failure(NOT_FOUND, format!("there is no backup in {}; {advice}", target.display())));
    }
    Ok(opened)
}

fn existing_directory(target: &Path) -> Result<DirectoryTarget> {
    let shown = target.display();
    match fs::metadata(target) {
        Ok(metadata) if !metadata.is_dir() => {
            return Err(usage(format!("{shown} is not a directory: give the directory with the backups")));
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(failure(
                NOT_FOUND,
                format!("there is no directory {shown}: give the directory with the backups"),
            ));
        }
        _ => {}
    }
    Ok(DirectoryTarget::existing_in(Arc::new(SystemVfs::new()), target)?)
}

/// Refuses a place for the backups of `db` that a command must not write.
pub fn check_new(db: &Path, target: &Path) -> Result<()> {
    if url_of(target).is_some() {
        return Ok(());
    }
    check_apart(db, target, "the backups")?;
    check_parent(target)
}

/// Refuses a new database inside the directory of its backups.
pub fn check_source(target: &Path, db: &Path) -> Result<()> {
    if url_of(target).is_some() { Ok(()) } else { check_separate(target, db) }
}

/// Opens a place for `make`. Removes a directory that was created for it if it fails.
pub fn making<T>(target: &Path, make: impl FnOnce(Box<dyn BackupTarget>) -> Result<T>) -> Result<T> {
    match url_of(target) {
        Some(url) => make(open_url(url)?),
        None => making_directory(target, || make(Box::new(DirectoryTarget::open(target)?))),
    }
}

#[cfg(feature = "s3")]
fn open_url(url: &str) -> Result<Box<dyn BackupTarget>> {
    use braiddb_object_store::{S3, TargetOptions};
    Ok(Box::new(S3::parse(url)?.open(TargetOptions::new())?))
}

#[cfg(not(feature = "s3"))]
fn open_url(url: &str) -> Result<Box<dyn BackupTarget>> {
    Err(usage(format!("this `braid` cannot reach {url}: build it with the feature s3, or give a directory")))
}
