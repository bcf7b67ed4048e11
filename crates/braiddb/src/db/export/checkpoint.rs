//! Images: database states made only of immutable files.
//!
//! A flush puts all commits up to one, and none after it, into runs: memtables are frozen between
//! commits and flushed in order. So no log is needed. Blob files in use are sealed. The image pins
//! its files through the [`ReadState`], while writers, flushes and merges go on. The mutable files
//! (log, manifest, CURRENT) are never linked: a copy gets its own manifest.

use crate::{
    base::{FileNumber, Result, SequenceNumber},
    db::{
        engine::{events::event::Event, root::Engine},
        handles::database::Db,
        maintenance::flush,
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

#[derive(Debug)]
pub struct Image {
    /// Without log and incarnation.
    pub layout: Layout,
    /// All commits up to this one are included, and none after it.
    pub sequence: SequenceNumber,
    /// Wall clock time in microseconds since 1970; no included commit is later.
    pub taken_us: u64,
    engine: Arc<Engine>,
    state: Arc<ReadState>,
}

#[derive(Clone, Debug)]
pub struct ImageFile {
    pub kind: ImageFileKind,
    pub number: FileNumber,
    pub name: String,
    pub path: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImageFileKind {
    Run,
    Blob,
    /// Can be rebuilt from its runs.
    View,
}

impl Db {
    /// Creates an independent copy of the latest state in the directory `dir`, while reads and
    /// writes go on. Returns the sequence number of the last commit in it. The copy has all commits
    /// up to this one, at least those before the call, and no others. It is durable on return.
    ///
    /// Files are shared by hard links, which cost no space and little time, or copied to another
    /// file system. Memtables are flushed first. Snapshots are not copied. Records get other
    /// [versions](crate::Version).
    ///
    /// Creates `dir`; `AlreadyExists` if it is not empty. An error removes everything. A killed
    /// process leaves a directory that does not open; [`crate::Builder::remove_unfinished`] removes
    /// it. Returns `ReadOnly` for a read-only database.
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

    /// Runs a backup between its two events.
    pub(crate) fn note_backup<R>(&self, work: impl FnOnce() -> Result<R>, id: impl FnOnce(&R) -> u64) -> Result<R> {
        let engine = self.engine();
        engine.events.emit(|| Event::BackupBegin);
        let began_ns = engine.now_ns();
        let done = work();
        let id = done.as_ref().ok().map(id);
        engine.events.emit(|| Event::BackupEnd { id, took: engine.time_since(began_ns) });
        done
    }

    pub(crate) fn random_id(&self) -> u64 {
        self.engine().settings.runtime.random_u64()
    }

    pub(crate) fn image(&self) -> Result<Image> {
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        let image = loop {
            let flushed = flush::committed(engine)?;
            match take_image(engine, flushed)? {
                Some(image) => break image,
                // A bulk load was installed after commits that are not flushed yet.
                None => continue,
            }
        };
        // Last, because an earlier seal would start new files that the flush refers to.
        engine.storage.blobs.seal(&image.blobs())?;
        Ok(image)
    }
}

/// Takes an image whose runs have all commits up to `flushed`. `None` if a load has a run above
/// `flushed`: then the runs are not the state at one commit.
pub(in crate::db) fn take_image(engine: &Arc<Engine>, flushed: SequenceNumber) -> Result<Option<Image>> {
    // Under this lock no edit is installed, so layout and read state match.
    let disk = engine.storage.disk.lock();
    engine.health.check_writable()?;
    let state = engine.cell.state.load_full();
    let mut layout = disk.manifest.layout().clone();
    drop(disk);
    // Numbers between the flushed one and `flushed` were never used.
    let sequence = layout.flushed.max(flushed);
    if layout.runs.values().any(|run| run.max_sequence > sequence) {
        return Ok(None);
    }
    (layout.flushed, layout.last_sequence) = (sequence, sequence);
    layout.next_file = layout.next_file.max(engine.storage.next_file.load(Ordering::Relaxed));
    leave_out_damaged_views(&mut layout, &state.version);
    let taken_us = engine.settings.runtime.unix_time_us();
    Ok(Some(Image { layout, sequence, taken_us, engine: Arc::clone(engine), state }))
}

fn leave_out_damaged_views(layout: &mut Layout, version: &Version) {
    let in_use: BTreeMap<u64, bool> = version.partitions.iter().map(|p| (p.id, p.view.is_some())).collect();
    for (id, partition) in &mut layout.partitions {
        if !in_use.get(id).copied().unwrap_or(false) {
            partition.view = None;
        }
    }
}

impl Image {
    fn blobs(&self) -> BTreeSet<FileNumber> {
        self.layout.runs.values().flat_map(|meta| &meta.blob_uses).map(|blob_use| blob_use.file).collect()
    }

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

    /// Verifies a run of the image, and its values in the given blob files. Takes time linear in
    /// both.
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
                    verified = self.engine.storage.blobs.verify(blob);
                }
            });
            verified?;
            understood.ok_or_else(|| self.engine.storage.blobs.misunderstood())?;
        }
        Ok(())
    }

    pub fn incarnation(&self) -> u64 {
        self.engine.log.incarnation
    }

    /// Fails once the database is closed: the next opener may remove the files.
    pub fn check_open(&self) -> Result<()> {
        self.engine.health.check_open()
    }

    pub fn vfs(&self) -> &Arc<dyn Vfs> {
        &self.engine.settings.vfs
    }
}
