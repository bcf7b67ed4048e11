//! Calls that open, verify, restore, load or salvage a database, with the options of a builder.

use super::Builder;
use crate::{
    backup::{self, BackupTarget, Restored},
    base::{Error, Result},
    db::{self, Db, Follower, RestorePoint, VerifyOptions, VerifyReport},
    dump::{self, LoadOptions, LoadReport},
    platform::MemVfs,
    salvage::{self, SalvageOptions, SalvageReport},
    shared::SharedDb,
};
use std::{path::Path, sync::Arc, time::Duration};

impl Db {
    /// Opens the database in the directory `path`, and creates it if absent: see
    /// [`Builder::create`].
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Builder::new().open(path)
    }

    /// Creates a database in memory, which ends with its last handle.
    pub fn in_memory() -> Result<Db> {
        Builder::new().open_in_memory()
    }

    /// Opens the latest state of a database for reading: see [`Builder::open_read_only`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Db> {
        Builder::new().open_read_only(path)
    }

    /// Reads a database while another process writes it: see [`Builder::open_follower`].
    pub fn open_follower(path: impl AsRef<Path>) -> Result<Follower> {
        Builder::new().open_follower(path)
    }

    /// Copies everything readable of a damaged database to a new one: see [`Builder::salvage`].
    pub fn salvage(from: impl AsRef<Path>, to: impl AsRef<Path>, options: SalvageOptions<'_>) -> Result<SalvageReport> {
        Builder::new().salvage(from, to, options)
    }

    /// Verifies a database: reads every file in use, checks every checksum, and lists each damaged
    /// unit once.
    ///
    /// The database need not open: a damaged or missing CURRENT, manifest or run is listed too.
    ///
    /// Writes nothing and takes no lock, so another process may have the database open. Returns
    /// `NotFound` if the directory has no file of a database. Time is linear in the files.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("braiddb-doc-verify-{}", std::process::id()));
    /// # braiddb::Db::open(&dir)?.close()?;
    /// let report = braiddb::Db::verify_path(&dir)?;
    /// assert!(report.is_sound(), "{:?}", report.problems);
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub fn verify_path(path: impl AsRef<Path>) -> Result<VerifyReport> {
        Builder::new().verify_path(path, &VerifyOptions::default())
    }

    /// Returns a builder, to set options.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// Opens the database in the directory `path`.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        Db::open_with(self.settings, path.as_ref())
    }

    /// Opens the database in the directory `path` together with other processes, which open it in
    /// the same way: see [`SharedDb`].
    ///
    /// Waits at most [`Builder::shared_timeout`]. Fails with [`Error::NoOwner`] if a process has
    /// the database open in another way, and with [`Error::Unsupported`] on WebAssembly.
    pub fn open_shared(self, path: impl AsRef<Path>) -> Result<SharedDb> {
        SharedDb::open(self.settings, self.sharing, path.as_ref())
    }

    /// Restores the backup `id`, or the newest one in the target, to the directory `dir`, which is
    /// created with its parents.
    ///
    /// Compares every checksum, opens the result once for reading, and returns when it is on disk.
    /// The result is a new database: its records have [versions](crate::Version) that no other
    /// database has. Time is linear in the backup. [`Db::backup`] has an example.
    ///
    /// Errors: `AlreadyExists` if `dir` is not empty; `BackupDamaged` if the backup has changed;
    /// `NotFound` if it does not exist. After an error `dir` is empty. If the process is killed,
    /// the directory does not open, and [`Builder::remove_unfinished`] removes the files.
    pub fn restore(self, target: &dyn BackupTarget, id: Option<u64>, dir: impl AsRef<Path>) -> Result<Restored> {
        backup::restore(self.settings, target, id, dir.as_ref()).map_err(Error::of_output)
    }

    /// Restores a commit or a moment: from the newest backup at or before that point, and from the
    /// [log archive](Builder::log_archive) `archive` up to exactly that point.
    ///
    /// A version is a sequence number of the database that the newest backup was taken of.
    ///
    /// Errors, besides those of [`Builder::restore`]: `ArchiveGap` if the archive lacks commits
    /// before that point; `BackupDamaged` if the archive is damaged; `InvalidArgument` with the
    /// last commit if the archive ends before the point. For a moment, the archive must have a
    /// later commit.
    ///
    /// Time is linear in the backup and the archive after it; memory is that of an open database.
    pub fn restore_to(
        self,
        target: &dyn BackupTarget,
        archive: impl AsRef<Path>,
        point: RestorePoint,
        dir: impl AsRef<Path>,
    ) -> Result<Restored> {
        backup::restore_to(self.settings, target, archive.as_ref(), point, dir.as_ref()).map_err(Error::of_output)
    }

    /// Loads a [dump](crate::Snapshot::dump) into a new database in the directory `dir`, with the
    /// options of this builder.
    ///
    /// Records keep their commit numbers, expiry times and merge operands; merge functions need not
    /// be registered. The result is a new database: its records have [versions](crate::Version)
    /// that no other database has.
    ///
    /// The dump is read once from front to back in bounded memory, so a pipe will do. It is
    /// checked, and the result is opened once for reading. Time is linear in the dump.
    ///
    /// **All or nothing**: the directory becomes a database when the whole dump is on disk. After
    /// an error it is empty. If the process is killed or the machine stops, it does not open, and
    /// [`Builder::remove_unfinished`] removes the files.
    ///
    /// Errors: `AlreadyExists` if `dir` is not empty; `DumpDamaged`, with the offset, if the dump
    /// has changed or is cut short; `InvalidArgument` if the input is not a dump; `Unsupported` for
    /// a dump of a newer version. [`Db::dump`] has an example.
    pub fn load(
        self,
        dir: impl AsRef<Path>,
        input: &mut dyn std::io::Read,
        options: LoadOptions<'_>,
    ) -> Result<LoadReport> {
        dump::load(self.settings, dir.as_ref(), input, options).map_err(Error::of_output)
    }

    /// Copies everything readable of the damaged database in `from` to a new database in `to`: each
    /// record whose newest version is in an intact part of a file.
    ///
    /// Losses are listed with file, tree, keys and commits, as far as known. `docs/salvage.md` has
    /// the rules for a damaged manifest.
    ///
    /// `from` is only read, without a lock file, so it may be on a read-only medium. `to` becomes a
    /// database when all is on disk, with versions that no other database has. Memory is bounded by
    /// [`Builder::memory`] plus some blocks for each overlapping run. Time is linear in the files.
    ///
    /// Errors: `NotFound` if `from` has no file of a database; `Locked` if another process visibly
    /// has it open for writing; `AlreadyExists` if `to` is not empty; `InvalidArgument` if one is
    /// inside the other; `Unsupported` for files of a newer version; `Io` and `DiskFull` of `to`.
    /// After an error `to` is empty.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use braiddb::{Builder, salvage::SalvageOptions};
    ///
    /// # let vfs = std::sync::Arc::new(braiddb::platform::MemVfs::new());
    /// let options = || Builder::new().vfs(vfs.clone());
    /// let db = options().open("/damaged.db")?;
    /// db.tree("albums")?.put(b"1", b"Ten")?;
    /// db.close()?;
    /// # use braiddb::platform::{OpenMode, Vfs};
    /// # vfs.remove(std::path::Path::new("/damaged.db/CURRENT")).unwrap();
    ///
    /// let report = options().salvage("/damaged.db", "/new.db", SalvageOptions::default())?;
    /// for loss in &report.losses {
    ///     println!("{}: {}", loss.path.display(), loss.detail);
    /// }
    /// let albums = options().open("/new.db")?.open_tree("albums")?;
    /// assert_eq!(albums.get(b"1")?.as_deref(), Some(&b"Ten"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn salvage(
        self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        options: SalvageOptions<'_>,
    ) -> Result<SalvageReport> {
        salvage::salvage(self.settings, from.as_ref(), to.as_ref(), options).map_err(Error::of_output)
    }

    /// Removes the files of a killed load, restore, salvage or checkpoint from `dir`, so that it
    /// can be repeated there.
    ///
    /// Returns whether there were any. A database, and a directory without the mark of an
    /// unfinished operation, are left alone.
    ///
    /// Returns `Locked` if the operation still runs, and `AlreadyExists` if the directory holds a
    /// file that is not the engine's.
    pub fn remove_unfinished(&self, dir: impl AsRef<Path>) -> Result<bool> {
        db::remove_unfinished(&*self.settings.vfs, &*self.settings.runtime, dir.as_ref())
    }

    /// Opens the latest state of the database in `path` for reading.
    ///
    /// Writes nothing and takes no lock: another process may have the database open and go on
    /// writing. Log records not in runs yet are read into memory. Returns `NotFound` if there is no
    /// database, and never fails because of a writer.
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Db> {
        self.read_only(true).open(path)
    }

    /// Verifies a database, whether it opens or not: see [`Db::verify_path`].
    pub fn verify_path(self, path: impl AsRef<Path>, options: &VerifyOptions) -> Result<VerifyReport> {
        db::verify_path(self.settings, path.as_ref(), options)
    }

    /// Reads a database while another process writes it: see [`Follower`].
    ///
    /// Writes nothing and takes no lock.
    pub fn open_follower(self, path: impl AsRef<Path>) -> Result<Follower> {
        let every = self.refresh_every;
        if every == Some(Duration::ZERO) {
            let detail = "refresh_every is 0: set the time between two refreshes, or None for never";
            return Err(Error::InvalidArgument(detail.to_owned()));
        }
        Follower::open_with(self.settings, path.as_ref(), every)
    }

    /// Creates a database in memory, which ends with its last handle.
    pub fn open_in_memory(mut self) -> Result<Db> {
        self.settings.vfs = Arc::new(MemVfs::mapped(".run"));
        Db::open_with(self.settings, Path::new("/memory"))
    }
}
