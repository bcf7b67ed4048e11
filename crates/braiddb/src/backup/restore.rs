//! Makes a database from a backup.

use super::{
    description::Description,
    store::{Backups, READ_BYTES},
    target::BackupTarget,
};
use crate::{
    base::{Error, FileNumber, Result, SequenceNumber},
    db::{Db, ImageFileKind, LogArchive, NewDirectory, Operation, RestorePoint, Settings},
    platform::{OpenMode, moment_of},
};
use std::{collections::BTreeSet, path::Path};

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The id of the backup.
    pub backup: u64,
    /// The last commit in the database.
    pub sequence: SequenceNumber,
    /// Number of commits that came from the log archive.
    pub replayed: u64,
    /// Number of files written from the backup.
    pub files: u64,
    /// Bytes of those files.
    pub bytes: u64,
}

/// See [`crate::Builder::restore`]. By default the newest backup.
pub fn restore(settings: Settings, target: &dyn BackupTarget, id: Option<u64>, dir: &Path) -> Result<Restored> {
    let backups = Backups::new(target);
    let description = backups.find(id)?;
    let mut new = NewDirectory::begin(&settings.vfs, &settings.runtime, dir)?;
    new.mark_unfinished(Operation::Restore)?;
    copy_files(&backups, &description, &mut new, dir)?;
    new.make_database(&description.layout)?;
    confirm(settings, dir, description.sequence)?;
    new.mark_finished()?;
    new.keep();
    let info = description.info();
    Ok(Restored { backup: info.id, sequence: info.sequence, replayed: 0, files: info.files, bytes: info.bytes })
}

/// See [`crate::Builder::restore_to`].
pub fn restore_to(
    settings: Settings,
    target: &dyn BackupTarget,
    archive_dir: &Path,
    point: RestorePoint,
    dir: &Path,
) -> Result<Restored> {
    let backups = Backups::new(target);
    let description = newest_before(&backups, point)?;
    let archive = LogArchive::new(&settings.vfs, archive_dir, description.incarnation);
    // A first walk finds errors before anything is written; `replay` walks again.
    let mut blobs = BTreeSet::new();
    let last = archive.walk(description.sequence, point, &mut |_, batches| collect_blobs(batches, &mut blobs))?;
    let mut new = NewDirectory::begin(&settings.vfs, &settings.runtime, dir)?;
    new.mark_unfinished(Operation::Restore)?;
    copy_files(&backups, &description, &mut new, dir)?;
    let has = |number: &FileNumber| {
        description.files.iter().any(|f| f.identity.kind == ImageFileKind::Blob && f.identity.number == *number)
    };
    for number in blobs.iter().filter(|number| !has(number)) {
        copy_blob(&settings, &archive, *number, &mut new, dir)?;
    }
    new.make_database(&description.layout)?;
    new.unlock();
    let replayed = replay(&settings, &archive, description.sequence, point, dir).and_then(|replayed| {
        confirm(settings.clone(), dir, last)?;
        new.mark_finished()?;
        Ok(replayed)
    });
    match replayed {
        Ok(replayed) => {
            new.keep();
            let info = description.info();
            Ok(Restored { backup: info.id, sequence: last, replayed, files: info.files, bytes: info.bytes })
        }
        Err(e) => {
            new.answer_for_all()?;
            Err(e)
        }
    }
}

fn newest_before(backups: &Backups<'_>, point: RestorePoint) -> Result<Description> {
    // Damaged backups are skipped: an older one plus the archive has the same data.
    let mut all = backups.inventory()?.backups;
    let life = all.values().next_back().map(|newest| newest.incarnation);
    let is_before = |backup: &Description| match point {
        RestorePoint::Version(version) => backup.sequence <= version && Some(backup.incarnation) == life,
        RestorePoint::Time(time) => moment_of(backup.taken_us) <= time,
        RestorePoint::Latest => true,
    };
    let oldest = all.values().next().map(|oldest| oldest.sequence);
    all.retain(|_, backup| is_before(backup));
    all.pop_last().map(|(_, backup)| backup).ok_or_else(|| {
        Error::NotFound(match oldest {
            Some(oldest) => format!(
                "there is no backup of that point or before, the oldest is of commit {oldest}: see `braid backup list`"
            ),
            None => "there is no backup to begin with: see `braid backup list`".to_owned(),
        })
    })
}

fn collect_blobs(batches: &[&[u8]], blobs: &mut BTreeSet<FileNumber>) -> Result<()> {
    batches.iter().for_each(|batch| blobs.extend(LogArchive::blobs_of(batch)));
    Ok(())
}

/// A hard link would let the new database change the archive's file.
fn copy_blob(
    settings: &Settings,
    archive: &LogArchive,
    number: FileNumber,
    new: &mut NewDirectory,
    dir: &Path,
) -> Result<()> {
    let from = archive.blob_path(number);
    let missing = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Error::BackupDamaged { path: from.clone(), detail: "it is missing from the log archive".to_owned() }
        }
        _ => Error::io("open", &from, e),
    };
    let source = settings.vfs.open(&from, OpenMode::Read).map_err(missing)?;
    let len = source.len().map_err(|e| Error::io("read", &from, e))?;
    let name = from.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (copy, path) = (new.create(&name)?, dir.join(&name));
    let mut buffer = Vec::new();
    for at in (0..len).step_by(READ_BYTES) {
        buffer.resize(usize::try_from(len - at).unwrap_or(usize::MAX).min(READ_BYTES), 0);
        source.read_exact_at(&mut buffer, at).map_err(|e| Error::io("read", &from, e))?;
        copy.write_at(&buffer, at).map_err(|e| Error::output("write", &path, e))?;
    }
    copy.sync_data().map_err(|e| Error::output("sync", &path, e))
}

fn replay(
    settings: &Settings,
    archive: &LogArchive,
    from: SequenceNumber,
    point: RestorePoint,
    dir: &Path,
) -> Result<u64> {
    let settings =
        Settings { is_restoring: true, create: false, read_only: false, log_archive: None, ..settings.clone() };
    let db = Db::open_with(settings, dir)?;
    let mut replayed = 0;
    archive.walk(from, point, &mut |first, batches| {
        replayed += batches.len() as u64;
        db.apply_logged(first, batches)
    })?;
    db.flush()?;
    db.release_held_blobs();
    // Values in the archive's blob files were not verified yet.
    let problem = db.verify()?.problems.into_iter().next();
    db.close()?;
    problem.map_or(Ok(replayed), |problem| Err(problem.into()))
}

fn copy_files(backups: &Backups<'_>, description: &Description, new: &mut NewDirectory, dir: &Path) -> Result<()> {
    for file in &description.files {
        let (name, mut at) = (file.file_name(), 0);
        let path = dir.join(&name);
        let copy = new.create(&name)?;
        backups.read(file, &mut |piece| {
            copy.write_at(piece, at).map_err(|e| Error::output("write", &path, e))?;
            at += piece.len() as u64;
            Ok(())
        })?;
        copy.sync_data().map_err(|e| Error::output("sync", &path, e))?;
    }
    Ok(())
}

fn confirm(settings: Settings, dir: &Path, sequence: SequenceNumber) -> Result<()> {
    let settings = Settings { is_restoring: true, read_only: true, create: false, background_threads: 0, ..settings };
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
