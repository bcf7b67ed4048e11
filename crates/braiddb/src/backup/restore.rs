//! Makes a database of a backup.

use super::{description::Description, store::Backups, target::BackupTarget};
use crate::{
    base::{Error, Result, SequenceNumber},
    db::{Db, NewDirectory, Settings},
};
use std::path::Path;

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The backup.
    pub backup: u64,
    /// The last commit in it.
    pub sequence: SequenceNumber,
    /// Files written.
    pub files: u64,
    /// Bytes written.
    pub bytes: u64,
}

/// Makes a database of a backup, or of the newest, in the directory `dir`. See [`crate::Builder::restore`].
pub fn restore(settings: Settings, target: &dyn BackupTarget, id: Option<u64>, dir: &Path) -> Result<Restored> {
    let backups = Backups::new(target);
    let description = backups.find(id)?;
    let mut new = NewDirectory::begin(&settings.vfs, &settings.runtime, dir)?;
    copy_files(&backups, &description, &mut new, dir)?;
    new.make_database(&description.layout)?;
    confirm(settings, dir, description.sequence)?;
    new.keep();
    let info = description.info();
    Ok(Restored { backup: info.id, sequence: info.sequence, files: info.files, bytes: info.bytes })
}

/// Writes the files of a backup, and syncs each.
fn copy_files(backups: &Backups<'_>, description: &Description, new: &mut NewDirectory, dir: &Path) -> Result<()> {
    for file in &description.files {
        let (name, mut at) = (file.file_name(), 0);
        let path = dir.join(&name);
        let copy = new.create(&name)?;
        backups.read(file, &mut |piece| {
            copy.write_at(piece, at).map_err(|e| Error::io("write", &path, e))?;
            at += piece.len() as u64;
            Ok(())
        })?;
        copy.sync_data().map_err(|e| Error::io("sync", &path, e))?;
    }
    Ok(())
}

/// Opens the database, without changing anything, and looks whether it is where it should be.
fn confirm(settings: Settings, dir: &Path, sequence: SequenceNumber) -> Result<()> {
    let settings = Settings { read_only: true, create: false, background_threads: 0, ..settings };
    let db = Db::open_with(settings, dir)?;
    let found = db.snapshot().sequence();
    db.close()?;
    if found != sequence {
        return Err(Error::BackupDamaged {
            path: dir.to_owned(),
            detail: format!("what was restored ends at commit {found}, not at {sequence}"),
        });
    }
    Ok(())
}
