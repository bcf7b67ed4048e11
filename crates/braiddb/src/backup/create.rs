//! Makes a backup.
//!
//! Order: sweep leftovers of killed processes; put the `begun` marker; take the image; verify and
//! copy files that no backup has; put the description; delete the marker. A kill at any point
//! leaves the earlier backups intact.

use super::{
    description::{BackedUpFile, Description, Identity, ObjectKind, begun_name, description_name},
    store::{BackupInfo, Backups, Inventory, READ_BYTES},
    target::BackupTarget,
};
use crate::{
    base::{Error, FileNumber, Result},
    codec::{Checksummer, FILE_HEADER_LEN, FileHeader, FileKind},
    db::{Db, Image, ImageFile, ImageFileKind},
    platform::{File, OpenMode},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Options of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupOptions {
    /// Copies every file, so that this backup shares no damage with an earlier one.
    pub full: bool,
}

impl BackupOptions {
    /// Returns the default options: files that an earlier backup has are not copied again.
    pub fn new() -> BackupOptions {
        BackupOptions::default()
    }

    /// If true, copies every file.
    pub fn full(mut self, full: bool) -> BackupOptions {
        self.full = full;
        self
    }
}

impl Db {
    /// Adds a backup of the latest state to the target, while reads and writes go on. Its contents
    /// are those of a [checkpoint](Db::checkpoint).
    ///
    /// Copies only files that no backup in the target has, and verifies their checksums first:
    /// damage returns `Corruption` and is not copied. The backup is as durable as the target
    /// promises.
    ///
    /// After an error the earlier backups are unchanged; the next backup removes the remaining
    /// files. A concurrent backup into the same target returns `Locked`.
    ///
    /// Takes time linear in the copied bytes. See [`Backups`] to list, verify and delete backups,
    /// and [`Builder::restore`](crate::Builder::restore).
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use braiddb::{Builder, backup::DirectoryTarget, platform::MemVfs};
    ///
    /// # let vfs = std::sync::Arc::new(MemVfs::new());
    /// let target = DirectoryTarget::open_in(vfs.clone(), "/backups")?;
    /// let db = Builder::new().vfs(vfs.clone()).open("/music.db")?;
    /// let albums = db.tree("albums")?;
    /// albums.put(b"1", b"Ten")?;
    /// let first = db.backup(&target)?;
    /// albums.put(b"2", b"Vs.")?;
    /// let second = db.backup(&target)?;
    /// assert!(second.bytes_copied < second.bytes); // files of the first one are not copied again
    ///
    /// let options = || Builder::new().vfs(vfs.clone());
    /// options().restore(&target, Some(first.id), "/restored.db")?;
    /// let restored = options().open("/restored.db")?.open_tree("albums")?;
    /// assert_eq!(restored.get(b"1")?.as_deref(), Some(&b"Ten"[..]));
    /// assert_eq!(restored.get(b"2")?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn backup(&self, target: &dyn BackupTarget) -> Result<BackupInfo> {
        self.backup_with(target, BackupOptions::default())
    }

    /// [`Db::backup`] with options.
    pub fn backup_with(&self, target: &dyn BackupTarget, options: BackupOptions) -> Result<BackupInfo> {
        self.note_backup(|| self.add_backup(target, options), |info| info.id)
    }

    fn add_backup(&self, target: &dyn BackupTarget, options: BackupOptions) -> Result<BackupInfo> {
        let lock = target.lock()?;
        let inventory = Backups::new(target).sweep()?;
        let id = lock.reserve(inventory.next_id())?;
        let work = Work { target, id, known: known_files(inventory, options) };
        let described = self.put_all(&work);
        if described.is_err() {
            remove_failed(target, id);
        }
        let description = described?;
        if let Err(e) = target.delete(&begun_name(id)) {
            // The description makes the backup valid; the next sweep deletes the marker.
            tracing::warn!(error = %e, "a backup is complete, but that it is could not be noted");
        }
        Ok(description.info())
    }

    fn put_all(&self, work: &Work<'_>) -> Result<Description> {
        work.target.put(&begun_name(work.id))?.finish()?;
        let description = self.image().and_then(|image| work.copy(&image))?;
        work.target.publish(&description_name(work.id), &description.encode(self.random_id()))?;
        Ok(description)
    }
}

/// Removes a failed backup. After an error here the next backup does.
fn remove_failed(target: &dyn BackupTarget, id: u64) {
    // The description goes first. The list of the files is made afterwards: a next holder of the
    // lock that still sees the description may use its files, and the list then fails.
    let description = match target.delete(&description_name(id)) {
        Err(Error::NotFound(_)) => Ok(()),
        other => other,
    };
    let removed = description.and_then(|()| target.list()).and_then(|objects| {
        let of_kind = |kind| objects.iter().filter(move |object| ObjectKind::of(&object.name) == Some(kind));
        let kinds = [ObjectKind::File(id), ObjectKind::Begun(id)];
        kinds.into_iter().flat_map(of_kind).try_for_each(|object| target.delete(&object.name))
    });
    if let Err(e) = removed {
        tracing::warn!(error = %e, "a backup failed, and some of its files stay until the next backup");
    }
}

fn known_files(inventory: Inventory, options: BackupOptions) -> BTreeMap<Identity, BackedUpFile> {
    if options.full {
        return BTreeMap::new();
    }
    let Inventory { backups, objects, .. } = inventory;
    let files = backups.into_values().flat_map(|description| description.files);
    let is_there = |file: &BackedUpFile| objects.get(&file.object_name()) == Some(&file.identity.len);
    files.filter(is_there).map(|file| (file.identity, file)).collect()
}

struct Work<'a> {
    target: &'a dyn BackupTarget,
    id: u64,
    known: BTreeMap<Identity, BackedUpFile>,
}

impl Work<'_> {
    fn copy(&self, image: &Image) -> Result<Description> {
        let mut layout = image.layout.clone();
        // Each fold writes a new view, so every backup would copy it. Views can be rebuilt.
        layout.partitions.values_mut().for_each(|partition| partition.view = None);
        let (mut files, mut new) = (Vec::new(), Vec::new());
        for file in image.files(false) {
            let (source, identity) = identify(image, &file)?;
            match self.known.get(&identity) {
                Some(known) => files.push(known.clone()),
                None => new.push((file, source, identity)),
            }
        }
        let blobs: BTreeSet<FileNumber> =
            new.iter().filter(|(file, ..)| file.kind == ImageFileKind::Blob).map(|(file, ..)| file.number).collect();
        for (file, source, identity) in new {
            image.check_open()?;
            if file.kind == ImageFileKind::Run {
                // Only these runs refer to blob files that no backup has.
                image.verify_run(file.number, &blobs)?;
            }
            files.push(self.copy_file(image, &file, &*source, identity)?);
        }
        files.sort_by_key(|file| file.identity);
        Ok(Description {
            id: self.id,
            taken_us: image.taken_us,
            sequence: image.sequence,
            incarnation: image.incarnation(),
            layout,
            files,
        })
    }

    fn copy_file(
        &self,
        image: &Image,
        file: &ImageFile,
        source: &dyn File,
        identity: Identity,
    ) -> Result<BackedUpFile> {
        let mut copied = BackedUpFile { identity, checksum: 0, put_by: self.id };
        let mut writer = self.target.put(&copied.object_name())?;
        let (mut buffer, mut sum) = (Vec::new(), Checksummer::new());
        for at in (0..identity.len).step_by(READ_BYTES) {
            image.check_open()?;
            buffer.resize(usize::try_from(identity.len - at).unwrap_or(usize::MAX).min(READ_BYTES), 0);
            source.read_exact_at(&mut buffer, at).map_err(|e| Error::io("read", &file.path, e))?;
            sum.add(&buffer);
            writer.write(&buffer)?;
        }
        writer.finish()?;
        copied.checksum = sum.finish();
        Ok(copied)
    }
}

fn identify(image: &Image, file: &ImageFile) -> Result<(Arc<dyn File>, Identity)> {
    let source = image.vfs().open(&file.path, OpenMode::Read).map_err(|e| Error::io("open", &file.path, e))?;
    let len = source.len().map_err(|e| Error::io("read", &file.path, e))?;
    let mut header = [0; FILE_HEADER_LEN];
    let read = source.read_at(&mut header, 0).map_err(|e| Error::io("read", &file.path, e))?;
    let kind = match file.kind {
        ImageFileKind::Run => FileKind::Run,
        ImageFileKind::Blob => FileKind::Blob,
        ImageFileKind::View => FileKind::View,
    };
    let FileHeader { file_id, .. } = FileHeader::decode(kind, &header[..read], &file.path, 0)?;
    Ok((source, Identity { kind: file.kind, number: file.number, file_id, len }))
}
