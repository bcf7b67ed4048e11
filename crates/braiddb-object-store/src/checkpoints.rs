//! Checkpoints: a database publishes its state for new nodes, which install the newest one.
//!
//! A checkpoint is a backup: files that an earlier one has are not uploaded again, and files are
//! deleted with the last checkpoint that uses them. An installation first downloads the objects into
//! `PATH.download`, several at a time; a file gets its name when it is complete, so a repeated call
//! goes on after a kill. Then it restores from there. This compares every checksum, and the new
//! directory opens only once it is complete (`RESTORING`).
//!
//! Processes that own a database one after another, such as instances with a partition each, claim
//! it first, and publish with the epoch of their claim: see `ownership.rs`.

use crate::ownership::{self, Owned};
use braiddb::{
    Builder, Db, Error, Result,
    backup::{BackupInfo, BackupTarget, Backups, DirectoryTarget, Object, Retention},
    platform::{OpenMode, Runtime, SystemRuntime, SystemTime, SystemVfs, UNIX_EPOCH, Vfs},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Threads that download objects.
const DOWNLOADS: usize = 4;

const COPY_BYTES: usize = 1 << 20;

/// A published or installed checkpoint. Its commit is `sequence`; the log after it can be replayed
/// from a copied archive ([`braiddb::backup::ArchiveCopies`]).
pub type CheckpointInfo = BackupInfo;

/// Checkpoints of a database in a target. They are backups, and share a target with them.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    target: Arc<dyn BackupTarget>,
    retention: Retention,
    vfs: Arc<dyn Vfs>,
    runtime: Arc<dyn Runtime>,
}

impl Checkpoints {
    /// Creates a handle for a target, which may also be a
    /// [directory](braiddb::backup::DirectoryTarget). Keeps the 2 newest checkpoints.
    pub fn new(target: impl BackupTarget + 'static) -> Checkpoints {
        let (vfs, runtime) = (Arc::new(SystemVfs::new()), Arc::new(SystemRuntime::new()));
        Checkpoints { target: Arc::new(target), retention: Retention::new().keep(2), vfs, runtime }
    }

    /// Sets the checkpoints to keep. A checkpoint that is deleted during its installation fails it.
    pub fn retention(mut self, retention: Retention) -> Checkpoints {
        self.retention = retention;
        self
    }

    /// Replaces the file system of installations.
    pub fn vfs(mut self, vfs: Arc<dyn Vfs>) -> Checkpoints {
        self.vfs = vfs;
        self
    }

    /// Publishes the latest state, then deletes older checkpoints of this database as the retention
    /// says. Only new files are uploaded. A failed deletion is logged, and repeated by the next call.
    pub fn publish(&self, db: &Db) -> Result<CheckpointInfo> {
        let info = db.backup(&*self.target)?;
        if let Err(e) = Backups::new(&*self.target).retain_one(info.incarnation, self.retention, self.now()) {
            tracing::warn!(error = %e, "old checkpoints could not be deleted");
        }
        Ok(info)
    }

    /// Makes the caller the owner: from now on [`Checkpoints::publish_as`] succeeds with the returned
    /// epoch only, until the next claim. The target must hold checkpoints of one database, also of
    /// its copies in other processes. `owner` is for people. Errors: `Locked` while another process
    /// publishes or claims.
    pub fn claim(&self, owner: &str) -> Result<u64> {
        ownership::claim(&*self.target, owner)
    }

    /// [`Checkpoints::publish`] by the owner; `None` if there was a later claim. The retention applies
    /// to the checkpoints of all owners together.
    ///
    /// `taken` runs once the published state is fixed: no later commit is in it. `is_cancelled`
    /// stops the publication with `Closed`, unless it is visible already.
    pub fn publish_as(
        &self,
        epoch: u64,
        db: &Db,
        taken: &(dyn Fn() + Sync),
        is_cancelled: &AtomicBool,
    ) -> Result<Option<CheckpointInfo>> {
        let owned = Owned::new(&*self.target, epoch, taken, is_cancelled);
        let info = match db.backup(&owned) {
            Err(_) if owned.is_superseded() => return Ok(None),
            other => other?,
        };
        if let Err(e) = self.delete_older(&owned) {
            tracing::warn!(error = %e, "old checkpoints could not be deleted");
        }
        Ok(Some(info))
    }

    fn delete_older(&self, owned: &Owned<'_>) -> Result<()> {
        let backups = Backups::new(owned);
        let (sound, damaged) = backups.list_sound()?;
        let Retention { keep, keep_for, .. } = self.retention;
        let keep = keep.unwrap_or(if keep_for.is_none() { usize::MAX } else { 0 }).max(1);
        let now = self.now();
        let is_young = |info: &CheckpointInfo| {
            let age = now.duration_since(info.taken).unwrap_or_default();
            keep_for.is_some_and(|keep_for| age <= keep_for)
        };
        let old = sound.iter().rev().skip(keep).filter(|info| !is_young(info));
        old.map(|info| info.id).try_for_each(|id| backups.delete(id))?;
        // While a description is damaged no file is deleted.
        damaged.into_iter().next().map_or(Ok(()), Err)
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.runtime.unix_time_us())
    }

    /// Returns the newest checkpoint. Passes over damaged descriptions, and logs them; returns the
    /// error of one if no description is sound.
    pub fn newest(&self) -> Result<Option<CheckpointInfo>> {
        let (mut sound, damaged) = Backups::new(&*self.target).list_sound()?;
        for error in &damaged {
            tracing::warn!(%error, "a checkpoint is damaged: delete it, since no file is deleted until then");
        }
        match (sound.pop(), damaged.into_iter().next()) {
            (None, Some(error)) => Err(error),
            (newest, _) => Ok(newest),
        }
    }

    /// Installs the newest checkpoint as a new database in the directory `path`, which must be new
    /// or empty. Every checksum is compared. Needs space for two copies.
    ///
    /// After an error or a kill the directory does not open, and a repeated call uses the files in
    /// `PATH.download` that are complete. A success removes them; the empty directory stays.
    ///
    /// Errors: those of [`Builder::restore`]; `NotFound` if there is no checkpoint; `Locked` if
    /// another process installs there.
    pub fn install_newest(&self, path: impl AsRef<Path>) -> Result<CheckpointInfo> {
        let info = self.newest()?.ok_or_else(|| {
            Error::NotFound(format!("there is no checkpoint in {}", self.target.path_of("").display()))
        })?;
        self.install(info.id, path)?;
        Ok(info)
    }

    /// [`Checkpoints::install_newest`] of a given checkpoint, `NotFound` if it does not exist.
    pub fn install(&self, id: u64, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let backups = Backups::new(&*self.target);
        let downloads = download_directory(path);
        let local = DirectoryTarget::open_in(Arc::clone(&self.vfs), &downloads)?;
        let lock = local.lock()?;
        let builder = || Builder::new().vfs(Arc::clone(&self.vfs));
        // The marker shows that this or another restore was killed; it does not run any more.
        builder().remove_unfinished(path)?;
        self.download(&backups.objects_of(id)?, &local, &downloads)?;
        let restored = builder().restore(&local, Some(id), path);
        if restored.as_ref().err().is_none_or(Error::is_corruption) {
            // A damaged download must not stay: a repeated call would use it again.
            let removed = self.remove_all(&local, |_| true);
            removed.unwrap_or_else(|e| tracing::warn!(error = %e, "downloaded files could not be removed"));
        }
        drop(lock);
        restored.map(drop)
    }

    /// Makes the directory have exactly these objects.
    fn download(&self, objects: &[Object], local: &DirectoryTarget, dir: &Path) -> Result<()> {
        let wanted: BTreeMap<&str, u64> = objects.iter().map(|object| (object.name.as_str(), object.len)).collect();
        self.remove_all(local, |object| wanted.get(object.name.as_str()) != Some(&object.len))?;
        let there: BTreeSet<String> = local.list()?.into_iter().map(|object| object.name).collect();
        let missing: Vec<&Object> = objects.iter().filter(|object| !there.contains(&object.name)).collect();
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || {
            while let Some(object) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                if failed.lock().is_ok_and(|failed| failed.is_some()) {
                    return;
                }
                if let Err(e) = self.download_one(object, dir) {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                }
            }
        };
        std::thread::scope(|scope| {
            (1..DOWNLOADS.min(missing.len())).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn download_one(&self, object: &Object, dir: &Path) -> Result<()> {
        let path = dir.join(&object.name);
        let part = dir.join(format!("{}.part", object.name));
        let file = self.vfs.open(&part, OpenMode::CreateNew).map_err(|e| Error::io("create", &part, e))?;
        let (mut reader, mut buffer, mut at) = (self.target.get(&object.name)?, vec![0; COPY_BYTES], 0);
        loop {
            let read = reader.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            file.write_at(&buffer[..read], at).map_err(|e| Error::io("write", &part, e))?;
            at += read as u64;
        }
        // The restore verifies the contents.
        file.sync_data().map_err(|e| Error::io("sync", &part, e))?;
        self.vfs.rename(&part, &path).map_err(|e| Error::io("rename", &part, e))
    }

    fn remove_all(&self, local: &DirectoryTarget, is_unwanted: impl Fn(&Object) -> bool) -> Result<()> {
        let objects = local.list()?;
        objects.iter().filter(|object| is_unwanted(object)).try_for_each(|object| local.delete(&object.name))
    }
}

fn download_directory(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".download");
    PathBuf::from(name)
}
