//! Makes a backup.
//!
//! In order: what killed processes have left is removed; an object says that a backup is begun; the image is taken; files that no
//! backup has are copied, each verified before; the description is put; what said "begun" goes. Killed anywhere, the process
//! leaves the earlier backups as they were. A backup that fails removes its objects.

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

/// How a backup is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupOptions {
    /// Every file is copied, also those that an earlier backup has: so damage to that one is not shared.
    pub full: bool,
}

impl Db {
    /// Adds a backup to those in the target, while reads and writes go on: the state at a moment during the call, as a
    /// [checkpoint](Db::checkpoint) has it. Only files that no backup there has are copied; each is read and its checksums are
    /// verified first, so that damage is noticed and not kept for data (`Corruption`). It is durable, as far as the target
    /// promises, when this returns.
    ///
    /// After an error the earlier backups are as they were, and the files of this one are removed. Files that cannot be removed, or that a
    /// killed process has left, go with the next backup. Two backups at once into the same target: the second gets `Locked`.
    ///
    /// Takes time linear in what is copied. See [`Backups`] for what may be done with them, and
    /// [`Builder::restore`](crate::Builder::restore).
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use braiddb::{Builder, DirectoryTarget, platform::MemVfs};
    ///
    /// # let vfs = std::sync::Arc::new(MemVfs::new());
    /// let target = DirectoryTarget::open_in(vfs.clone(), "/backups")?;
    /// let db = Builder::new().vfs(vfs.clone()).open("/music.db")?;
    /// let albums = db.tree("albums")?;
    /// albums.put(b"1", b"Ten")?;
    /// let first = db.backup(&target)?;
    /// albums.put(b"2", b"Vs.")?;
    /// let second = db.backup(&target)?;
    /// assert!(second.bytes_copied < second.bytes); // what the first one has was not copied again
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
        let _lock = target.lock()?;
        let inventory = Backups::new(target).sweep()?;
        let id = inventory.next_id();
        let work = Work { target, id, known: known_files(inventory, options) };
        let described = self.put_all(&work);
        if described.is_err() {
            remove_failed(target, id);
        }
        let description = described?;
        if let Err(e) = target.delete(&begun_name(id)) {
            // The description counts; the next backup sees to the rest.
            tracing::warn!(error = %e, "a backup is complete, but that it is could not be noted");
        }
        Ok(description.info())
    }

    /// Puts the objects of a backup in their order, up to its description.
    fn put_all(&self, work: &Work<'_>) -> Result<Description> {
        work.target.put(&begun_name(work.id))?.finish()?;
        let description = self.image().and_then(|image| work.copy(&image))?;
        let mut writer = work.target.put(&description_name(work.id))?;
        writer.write(&description.encode(self.random_id()))?;
        writer.finish()?;
        Ok(description)
    }
}

/// Removes the objects of a backup that failed. After an error here, the next backup removes the others.
fn remove_failed(target: &dyn BackupTarget, id: u64) {
    // The description goes before the files that it names, and the mark of an unfinished backup last.
    let kinds = [ObjectKind::Description(id), ObjectKind::File(id), ObjectKind::Begun(id)];
    let removed = target.list().and_then(|objects| {
        let of_kind = |kind| objects.iter().filter(move |object| ObjectKind::of(&object.name) == Some(kind));
        kinds.into_iter().flat_map(of_kind).try_for_each(|object| target.delete(&object.name))
    });
    if let Err(e) = removed {
        tracing::warn!(error = %e, "a backup failed, and some of its files stay until the next backup");
    }
}

/// What earlier backups have, as far as it is there.
fn known_files(inventory: Inventory, options: BackupOptions) -> BTreeMap<Identity, BackedUpFile> {
    if options.full {
        return BTreeMap::new();
    }
    let Inventory { backups, objects, .. } = inventory;
    let files = backups.into_values().flat_map(|description| description.files);
    let is_there = |file: &BackedUpFile| objects.get(&file.object_name()) == Some(&file.identity.len);
    files.filter(is_there).map(|file| (file.identity, file)).collect()
}

/// A backup on its way.
struct Work<'a> {
    target: &'a dyn BackupTarget,
    id: u64,
    known: BTreeMap<Identity, BackedUpFile>,
}

impl Work<'_> {
    fn copy(&self, image: &Image) -> Result<Description> {
        let mut layout = image.layout.clone();
        // Views can be made again of the runs, and each fold writes a new one: they would be copied with each backup.
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
                // Blob files that no backup has are referred to by such runs alone.
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

/// Opens a file of the image and tells what it is.
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
