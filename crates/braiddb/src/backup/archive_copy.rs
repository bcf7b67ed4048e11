//! Copies of a log archive in a target, such as a bucket.
//!
//! | object | |
//! |---|---|
//! | `LIFE-NUMBER-LAST.wal` | a segment up to its last record; `LAST`: the last commit in it or before it |
//! | `LIFE-NUMBER.blob` | a blob file |
//! | `LIFE-FIRST-LAST.gap` | the note of a gap |
//!
//! `LIFE` is the incarnation in 16 hexadecimal digits. Objects never change.
//!
//! **Order.** Notes of gaps, then blob files, then the segments in the order of the log.
//! INVARIANT: a copied segment implies its blob files, the notes of earlier gaps and the earlier
//! segments.

use super::{
    store::READ_BYTES,
    target::{BackupTarget, Object},
};
use crate::{
    base::{Error, FileNumber, Result, SequenceNumber},
    db::{archive_files, make_durably},
    platform::{OpenMode, SystemVfs, Vfs},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Copies of [log archives](crate::Builder::log_archive) in a target, which must hold no backups.
///
/// The database archives its log into a directory. [`copy`](Self::copy) adds the new files of the
/// directory to the target; a restore [`fetches`](Self::fetch) those that it needs.
#[derive(Debug)]
pub struct ArchiveCopies<'a> {
    target: &'a dyn BackupTarget,
    vfs: Arc<dyn Vfs>,
}

/// The result of [`ArchiveCopies::copy`] and [`ArchiveCopies::fetch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveCopy {
    /// Number of files that were copied.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// The last commit that the target has; `None` without segments.
    pub last: Option<SequenceNumber>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum CopyName {
    Segment { number: FileNumber, last: SequenceNumber },
    Blob { number: FileNumber },
    Gap { file: String },
}

impl CopyName {
    fn of(name: &str, life: u64) -> Option<CopyName> {
        let rest = name.strip_prefix(&format!("{life:016x}"))?.strip_prefix('-')?;
        let (stem, extension) = rest.rsplit_once('.')?;
        match extension {
            "wal" => {
                let (number, last) = stem.split_once('-')?;
                Some(CopyName::Segment { number: number.parse().ok()?, last: last.parse().ok()? })
            }
            "blob" => Some(CopyName::Blob { number: stem.parse().ok()? }),
            "gap" => Some(CopyName::Gap { file: rest.to_owned() }),
            _ => None,
        }
    }

    fn object_name(&self, life: u64) -> String {
        match self {
            CopyName::Segment { number, last } => format!("{life:016x}-{number:06}-{last}.wal"),
            CopyName::Blob { number } => format!("{life:016x}-{number:06}.blob"),
            CopyName::Gap { file } => format!("{life:016x}-{file}"),
        }
    }
}

impl<'a> ArchiveCopies<'a> {
    /// Creates a handle for a target. Reads nothing yet.
    pub fn new(target: &'a dyn BackupTarget) -> ArchiveCopies<'a> {
        ArchiveCopies { target, vfs: Arc::new(SystemVfs::new()) }
    }

    /// Replaces the file system of the directories.
    pub fn vfs(mut self, vfs: Arc<dyn Vfs>) -> ArchiveCopies<'a> {
        self.vfs = vfs;
        self
    }

    /// Copies the files of an [incarnation](crate::Db::incarnation) in the archive `dir` that the
    /// target lacks. Call [`Db::archive_now`](crate::Db::archive_now) first to include the latest
    /// commits. The database may be open.
    ///
    /// After an error, the next call goes on. Errors: `Locked` if another process copies;
    /// `AlreadyExists` if the target has another segment of a number: the directory of the database
    /// was copied by other means than a checkpoint, and both copies archive.
    pub fn copy(&self, dir: impl AsRef<Path>, incarnation: u64) -> Result<ArchiveCopy> {
        let dir = archive_files::directory_of(dir.as_ref(), incarnation);
        let _lock = self.target.lock()?;
        let mut copied = ArchiveCopy::default();
        let mut there = self.objects()?;
        let segments = archive_files::segments(&*self.vfs, &dir, 0)?;
        self.refuse_other_segments(&there, &segments, incarnation)?;
        for file in archive_files::gap_notes(&*self.vfs, &dir)? {
            let path = dir.join(&file);
            self.put(&mut there, &CopyName::Gap { file }.object_name(incarnation), &path, None, &mut copied)?;
        }
        for segment in segments {
            for number in &segment.blobs {
                let path = archive_files::blob_file(&dir, *number);
                let name = CopyName::Blob { number: *number }.object_name(incarnation);
                self.put(&mut there, &name, &path, None, &mut copied)?;
            }
            let path = archive_files::segment_file(&dir, segment.number);
            let name = CopyName::Segment { number: segment.number, last: segment.last }.object_name(incarnation);
            self.put(&mut there, &name, &path, Some(segment.used_len), &mut copied)?;
            copied.last = copied.last.max(Some(segment.last));
        }
        Ok(copied)
    }

    /// Copies the files that a restore of commits after `after` needs into the archive `dir`, for
    /// [`Builder::restore_to`](crate::Builder::restore_to). Give the commit of the backup. Files
    /// that are there already are kept, so that a stopped call can be repeated.
    ///
    /// Fails with `NotFound` if the target has no segments of the incarnation.
    pub fn fetch(&self, incarnation: u64, after: SequenceNumber, dir: impl AsRef<Path>) -> Result<ArchiveCopy> {
        let dir = archive_files::directory_of(dir.as_ref(), incarnation);
        let mut fetched = ArchiveCopy::default();
        let there = self.objects()?;
        let names = || there.keys().filter_map(|name| CopyName::of(name, incarnation));
        fetched.last =
            names().filter_map(|name| if let CopyName::Segment { last, .. } = name { Some(last) } else { None }).max();
        if fetched.last.is_none() {
            let place = self.target.path_of("");
            return Err(Error::NotFound(format!(
                "{} has no log archive of the database {incarnation:016x}: see `braid backup list --json` for the \
                 number of the database",
                place.display()
            )));
        }
        make_durably(&*self.vfs, &dir)?;
        for name in names() {
            match &name {
                CopyName::Gap { file } => self.get(&there, &name, incarnation, &dir.join(file), &mut fetched)?,
                CopyName::Segment { number, last } if *last >= after => {
                    let path = archive_files::segment_file(&dir, *number);
                    self.get(&there, &name, incarnation, &path, &mut fetched)?;
                    archive_files::lengthen(&*self.vfs, &path)?;
                }
                _ => {}
            }
        }
        let segments = archive_files::segments(&*self.vfs, &dir, after)?;
        let blobs: BTreeSet<FileNumber> = segments.iter().flat_map(|segment| segment.blobs.iter().copied()).collect();
        for number in blobs {
            let (name, path) = (CopyName::Blob { number }, archive_files::blob_file(&dir, number));
            // A missing one may be in the backup; otherwise the restore reports it.
            if there.contains_key(&name.object_name(incarnation)) {
                self.get(&there, &name, incarnation, &path, &mut fetched)?;
            }
        }
        self.vfs.sync_dir(&dir).map_err(|e| Error::output("sync", &dir, e))?;
        Ok(fetched)
    }

    fn objects(&self) -> Result<BTreeMap<String, u64>> {
        Ok(self.target.list()?.into_iter().map(|Object { name, len }| (name, len)).collect())
    }

    fn refuse_other_segments(
        &self,
        there: &BTreeMap<String, u64>,
        segments: &[archive_files::ArchivedSegment],
        life: u64,
    ) -> Result<()> {
        let ours: BTreeMap<FileNumber, SequenceNumber> = segments.iter().map(|s| (s.number, s.last)).collect();
        for name in there.keys() {
            let Some(CopyName::Segment { number, last }) = CopyName::of(name, life) else { continue };
            if ours.get(&number).is_some_and(|ours| *ours != last) {
                return Err(Error::AlreadyExists(format!(
                    "{} is another segment of the same database: a copy of its directory archives to the same place; \
                     use a checkpoint or a restore instead of the copy",
                    self.target.path_of(name).display()
                )));
            }
        }
        Ok(())
    }

    fn put(
        &self,
        there: &mut BTreeMap<String, u64>,
        name: &str,
        path: &Path,
        len: Option<u64>,
        copied: &mut ArchiveCopy,
    ) -> Result<()> {
        let file = self.vfs.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
        let whole = file.len().map_err(|e| Error::io("read", path, e))?;
        let len = len.unwrap_or(whole).min(whole);
        match there.get(name) {
            Some(found) if *found == len => return Ok(()),
            // The remainder of a killed process, in targets that show unfinished objects.
            Some(_) => self.target.delete(name)?,
            None => {}
        }
        let mut writer = self.target.put(name)?;
        let mut buffer = Vec::new();
        for at in (0..len).step_by(READ_BYTES) {
            buffer.resize(usize::try_from(len - at).unwrap_or(usize::MAX).min(READ_BYTES), 0);
            file.read_exact_at(&mut buffer, at).map_err(|e| Error::io("read", path, e))?;
            writer.write(&buffer)?;
        }
        writer.finish()?;
        there.insert(name.to_owned(), len);
        copied.files += 1;
        copied.bytes += len;
        Ok(())
    }

    /// Reads into a file with another name first, so that a file with the right one is complete.
    fn get(
        &self,
        there: &BTreeMap<String, u64>,
        name: &CopyName,
        life: u64,
        path: &Path,
        fetched: &mut ArchiveCopy,
    ) -> Result<()> {
        let name = name.object_name(life);
        let wanted = there.get(&name).copied().unwrap_or(0);
        if self.vfs.open(path, OpenMode::Read).and_then(|file| file.len()).is_ok_and(|len| len >= wanted) {
            return Ok(());
        }
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".part");
        let unfinished = PathBuf::from(unfinished);
        let _ = self.vfs.remove(&unfinished);
        let file =
            self.vfs.open(&unfinished, OpenMode::CreateNew).map_err(|e| Error::output("create", &unfinished, e))?;
        let (mut reader, mut buffer, mut at) = (self.target.get(&name)?, vec![0; READ_BYTES], 0);
        loop {
            let read = reader.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            file.write_at(&buffer[..read], at).map_err(|e| Error::output("write", &unfinished, e))?;
            at += read as u64;
        }
        if at != wanted {
            let detail = format!("it has {at} bytes of {wanted}");
            return Err(Error::BackupDamaged { path: self.target.path_of(&name), detail });
        }
        file.sync_data().map_err(|e| Error::output("sync", &unfinished, e))?;
        self.vfs.rename(&unfinished, path).map_err(|e| Error::output("rename", &unfinished, e))?;
        fetched.files += 1;
        fetched.bytes += at;
        Ok(())
    }
}
