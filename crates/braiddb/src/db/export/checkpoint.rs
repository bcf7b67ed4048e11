//! States of the database that stand in files alone, and directories made of them.
//!
//! What is in memory is flushed first. So all commits up to one of them, the state's own, are in runs, and none after it: memtables are
//! frozen between commits and flushed in their order. The layout then says all there is, and no log is needed beside it. Runs and
//! views never change. The blob files that runs refer to are sealed: what comes next is written to others. What a state was
//! published with is kept by it (see [`ReadState`]); so while the image holds the state, none of its files goes, and writers, flushes and
//! merges go on.
//!
//! The files that do change (log, manifest, CURRENT) are never linked: the directory gets a manifest of its own.

use crate::{
    base::{FileNumber, Result, SequenceNumber},
    db::{
        engine::root::Engine,
        handles::database::Db,
        open::new_directory::{NewDirectory, Operation},
    },
    platform::Vfs,
    read::ReadState,
    table::{
        Position,
        blob::{blob_path, visit_references},
    },
    version::{FileSet, Layout, Version},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

/// A state of the database that stands in files which never change.
#[derive(Debug)]
pub struct Image {
    /// All that a manifest has to say of it, but for the log and the incarnation.
    pub layout: Layout,
    /// Every commit up to this one, and none after it.
    pub sequence: SequenceNumber,
    /// The wall clock's time when it was taken, in microseconds since 1970: no commit in it is later.
    pub taken_us: u64,
    engine: Arc<Engine>,
    /// Keeps the files, and has them open.
    state: Arc<ReadState>,
}

/// A file of an image.
#[derive(Clone, Debug)]
pub struct ImageFile {
    /// What it is.
    pub kind: ImageFileKind,
    /// The number in its name.
    pub number: FileNumber,
    /// Its name in the directory.
    pub name: String,
    /// Where it stands.
    pub path: PathBuf,
}

/// What the file of an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImageFileKind {
    /// Entries in order.
    Run,
    /// Large values.
    Blob,
    /// The order of the entries of some runs; it can be made again from them.
    View,
}

impl Db {
    /// Makes a database of its own in the directory `dir`, as this one is at a moment during the call, while reads and writes go on;
    /// returns the sequence number of the last commit in it. That is the last one before the call or a later one: all commits up
    /// to it are there, whole, and no other. It is on the disk when this returns.
    ///
    /// Files are shared by hard links, which costs no space and little time; on another file system they are copied. What is in
    /// memory is flushed first. Open snapshots are not in it. Its records have other [versions](crate::Version) than here.
    ///
    /// `dir` is created; `AlreadyExists` if there is something in it. After an error nothing is left in it, unless the process
    /// is killed: then it does not open, and [`crate::Builder::remove_unfinished`] removes it. A database that was opened for reading only gives `ReadOnly`.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let albums = db.tree("albums")?;
    /// albums.put(b"1", b"Ten")?;
    /// let last = db.checkpoint("/monday")?; // in the file system of the database: here, in memory
    /// assert!(last >= 1);
    /// assert!(db.checkpoint("/monday").unwrap_err().to_string().contains("not empty"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<SequenceNumber> {
        let dir = dir.as_ref();
        let (vfs, runtime) = (&self.engine().settings.vfs, &self.engine().settings.runtime);
        let mut new = NewDirectory::begin(vfs, runtime, dir)?;
        new.mark_unfinished(Operation::Checkpoint)?;
        let image = self.image()?;
        for file in image.files(true) {
            new.link_or_copy(&file.path, &file.name, &|| image.check_open())?;
        }
        new.make_database(&image.layout)?;
        new.mark_finished()?;
        new.keep();
        Ok(image.sequence)
    }

    /// A random number, for a file's identity.
    pub(crate) fn random_id(&self) -> u64 {
        self.engine().settings.runtime.random_u64()
    }

    /// A state of now or a little later, in files that stay as long as it is held.
    pub(crate) fn image(&self) -> Result<Image> {
        let engine = self.engine();
        let _inside = engine.enter()?;
        let image = loop {
            let flushed = engine.flush_what_is_there()?;
            match engine.take_image(flushed)? {
                Some(image) => break image,
                // A bulk load came meanwhile, after commits that are not flushed yet.
                None => continue,
            }
        };
        // Only now: a flush after it would refer to the files that would have been begun instead.
        engine.blobs.seal(&image.blobs())?;
        Ok(image)
    }
}

impl Engine {
    /// The present state of the files. All commits up to `flushed` are in runs; `None` if there are runs of later ones, which past the log
    /// come before what was committed earlier: as a state after one commit, that cannot be told.
    pub(in crate::db) fn take_image(self: &Arc<Engine>, flushed: SequenceNumber) -> Result<Option<Image>> {
        // No edit is put into force meanwhile, and none failed half way: so layout and state are of each other.
        let disk = self.disk.lock();
        self.check_writable()?;
        let state = self.state.load_full();
        let mut layout = disk.manifest.layout().clone();
        drop(disk);
        // Numbers between what is flushed and the last commit before were used by nobody.
        let sequence = layout.flushed.max(flushed);
        if layout.runs.values().any(|run| run.max_sequence > sequence) {
            return Ok(None);
        }
        (layout.flushed, layout.last_sequence) = (sequence, sequence);
        layout.next_file = layout.next_file.max(self.next_file.load(Ordering::Relaxed));
        leave_out_damaged_views(&mut layout, &state.version);
        let taken_us = self.settings.runtime.unix_time_us();
        Ok(Some(Image { layout, sequence, taken_us, engine: Arc::clone(self), state }))
    }
}

/// Views that are not in use are not sure to be there.
fn leave_out_damaged_views(layout: &mut Layout, version: &Version) {
    let in_use: BTreeMap<u64, bool> = version.partitions.iter().map(|p| (p.id, p.view.is_some())).collect();
    for (id, partition) in &mut layout.partitions {
        if !in_use.get(id).copied().unwrap_or(false) {
            partition.view = None;
        }
    }
}

impl Image {
    /// The blob files that its runs refer to.
    fn blobs(&self) -> BTreeSet<FileNumber> {
        self.layout.runs.values().flat_map(|meta| &meta.blob_uses).map(|blob_use| blob_use.file).collect()
    }

    /// Its files, with or without views.
    pub fn files(&self, with_views: bool) -> Vec<ImageFile> {
        let dir = &self.engine.dir;
        let file = |kind, number, path: PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            ImageFile { kind, number, name, path }
        };
        let runs = self.layout.runs.keys().map(|&n| file(ImageFileKind::Run, n, FileSet::run_path(dir, n)));
        let blobs = self.blobs().into_iter().map(|n| file(ImageFileKind::Blob, n, blob_path(dir, n)));
        let views = self.layout.partitions.values().filter_map(|p| p.view.as_ref()).filter(|_| with_views);
        let views = views.map(|v| file(ImageFileKind::View, v.number, FileSet::view_path(dir, v.number)));
        runs.chain(blobs).chain(views).collect()
    }

    /// Reads a run of the image and checks every checksum, also of the values that it refers to in these blob files: so no damage
    /// is taken for data. Takes time linear in them.
    pub fn verify_run(&self, number: FileNumber, blobs: &BTreeSet<FileNumber>) -> Result<()> {
        let mut runs = self.state.version.partitions.iter().flat_map(|partition| partition.all_runs());
        let handle = runs.find(|handle| handle.run().meta().number == number);
        let run = handle.unwrap_or_else(|| unreachable!("layout and state are of each other")).run();
        run.verify()?;
        if run.meta().blob_uses.iter().all(|blob_use| !blobs.contains(&blob_use.file)) {
            return Ok(());
        }
        let mut scan = run.scan(Position::default());
        while scan.next()? {
            let (entry, mut verified) = (scan.entry(), Ok(()));
            let understood = visit_references(entry.kind, entry.value, |blob| {
                if verified.is_ok() && blobs.contains(&blob.file) {
                    verified = self.engine.blobs.verify(blob);
                }
            });
            verified?;
            understood.ok_or_else(|| self.engine.blobs.misunderstood())?;
        }
        Ok(())
    }

    /// The random number of the life that the database is in.
    pub fn incarnation(&self) -> u64 {
        self.engine.incarnation
    }

    /// Fails once the database is closed: whoever opened it meanwhile may remove the files.
    pub fn check_open(&self) -> Result<()> {
        self.engine.check_open()
    }

    /// The file system that its files are in.
    pub fn vfs(&self) -> &Arc<dyn Vfs> {
        &self.engine.settings.vfs
    }
}
