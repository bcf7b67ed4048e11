//! The state of a follower: reads the writer's manifest and log, and makes the next database.

use super::log::Log;
use crate::{
    base::{Error, FileNumber, Result},
    db::{
        engine::{parts::storage::DiskState, root::Engine, settings::Settings, stats::Counters},
        files::{blob_store::BlobStore, names::numbered, reserve::Reserve},
        handles::database::{Db, Shared},
        open::opening::{self, Parts, highest, known_functions, load_catalog, time_floor},
    },
    platform::OpenMode,
    read::{Garbage, ReadState},
    table::TableContext,
    version::{CURRENT_NAME, FileSet, Layout, Manifest, Version},
};
use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Weak, atomic::AtomicU64},
};

pub(super) struct Following {
    pub(super) manifest: Manifest,
    pub(super) files: FileSet,
    pub(super) version: Arc<Version>,
    pub(super) log: Log,
    pub(super) has_news: bool,
    pub(super) superseded: Vec<(u64, Weak<Shared>)>,
    /// The newest manifest without a state of its own; the next try reads on after it.
    pub(super) unused: Option<Manifest>,
}

pub(super) struct Made {
    pub(super) db: Option<Db>,
    pub(super) records: u64,
    pub(super) manifest_read: bool,
}

impl Following {
    /// `known` keeps the manifest and open files of a failed try, so that the next one reads only
    /// the additions.
    pub(super) fn begin(
        settings: &Settings,
        dir: &Path,
        table: &TableContext,
        known: &mut Option<(Manifest, FileSet)>,
    ) -> Result<(Following, Db)> {
        let before = known.take();
        let manifest = open_manifest(settings, dir, before.as_ref().map(|(manifest, _)| manifest))?;
        let is_same = |old: &Manifest| old.layout().incarnation == manifest.layout().incarnation;
        let mut files = match before {
            Some((old, files)) if is_same(&old) => files,
            _ => FileSet::new(dir, table),
        };
        files.forget_unused(manifest.layout());
        let version = files.version(manifest.layout(), None);
        *known = Some((manifest.clone(), files.clone()));
        let version = Arc::new(version?);
        let blobs = BlobStore::beside_writer(dir, table, None, manifest.layout(), &BTreeSet::new(), &BTreeSet::new())?;
        let log = Log::read(settings, dir, &manifest, &blobs)?;
        blobs.open_all(&log.blob_files)?;
        let mut following =
            Following { manifest, files, version, log, has_news: true, superseded: Vec::new(), unused: None };
        following.check_views()?;
        let db = following.state(settings, dir, table, blobs)?;
        Ok((following, db))
    }

    /// Makes the next state, if there is news. Unchanged after an error, apart from opened files.
    pub(super) fn advance(
        &mut self,
        settings: &Settings,
        dir: &Path,
        table: &TableContext,
        before: &Db,
    ) -> Result<Made> {
        // The user may have closed it.
        self.has_news |= before.engine().health.check_open().is_err();
        let before = &before.engine().storage.blobs;
        if !self.manifest.has_gone_on()? {
            // The log may continue elsewhere before CURRENT is updated.
            if self.log.follow(settings, dir, &self.manifest, before)? {
                let records = self.log.unshown;
                let db = if self.has_news || records > 0 {
                    let blobs = self.blobs(dir, table, before, self.manifest.layout())?;
                    blobs.open_all(&self.log.blob_files)?;
                    Some(self.state(settings, dir, table, blobs)?)
                } else {
                    None
                };
                return Ok(Made { db, records, manifest_read: false });
            }
        }
        self.has_news = true;
        let manifest = open_manifest(settings, dir, Some(self.unused.as_ref().unwrap_or(&self.manifest)))?;
        self.unused = Some(manifest.clone());
        let (old, new) = (self.manifest.layout(), manifest.layout());
        let is_same_log = (old.flushed, old.epoch, old.incarnation) == (new.flushed, new.epoch, new.incarnation);
        let is_same = old.incarnation == new.incarnation;
        if !is_same {
            // Restored or recreated: equal file numbers mean other files.
            (self.files, self.version) = (FileSet::new(dir, table), Arc::default());
        }
        self.files.forget_unused(new);
        let version = Arc::new(self.files.version(new, Some(&self.version))?);
        let kept = self.log.blob_files.iter().copied().filter(|_| is_same).collect();
        let before = Some(before).filter(|_| is_same);
        let blobs = BlobStore::beside_writer(dir, table, before, new, &kept, &blobs_of_new_runs(old, new))?;
        if !is_same_log || !self.log.follow(settings, dir, &manifest, &blobs)? {
            self.log = Log::read(settings, dir, &manifest, &blobs)?;
        }
        // Opened last: files of a log that is no longer followed may be gone.
        blobs.open_all(&self.log.blob_files)?;
        (self.manifest, self.version, self.unused) = (manifest, version, None);
        self.check_views()?;
        let records = self.log.unshown;
        let db = self.state(settings, dir, table, blobs)?;
        Ok(Made { db: Some(db), records, manifest_read: true })
    }

    fn blobs(&self, dir: &Path, table: &TableContext, before: &BlobStore, layout: &Layout) -> Result<BlobStore> {
        BlobStore::beside_writer(dir, table, Some(before), layout, &self.log.blob_files, &BTreeSet::new())
    }

    /// A damaged view only makes reads slow. Fails if a newer manifest may have replaced it.
    fn check_views(&self) -> Result<()> {
        match self.files.damaged_views().iter().next() {
            Some((number, reason)) if self.manifest.has_gone_on()? => {
                Err(Error::corruption(FileSet::view_path(Path::new(""), *number), 0, reason.clone()))
            }
            _ => Ok(()),
        }
    }

    fn state(&mut self, settings: &Settings, dir: &Path, table: &TableContext, blobs: BlobStore) -> Result<Db> {
        let mut memtables = self.log.memtables.clone();
        let active = memtables.pop().unwrap_or_else(|| Engine::new_memtable(settings, 0));
        memtables.reverse();
        let version = Arc::clone(&self.version);
        let state = ReadState { active, frozen: memtables, version, garbage: Arc::new(Garbage::default()) };
        let functions = Arc::new(known_functions(settings)?);
        // A load has a number too, and everything before it was read.
        let loaded = self.manifest.layout().runs.values().map(|run| run.max_sequence).max();
        self.log.last_sequence = self.log.last_sequence.max(loaded.unwrap_or_default());
        let last_sequence = self.log.last_sequence;
        let layout = self.manifest.layout();
        let (catalog, _, versions) =
            load_catalog(settings, &state, last_sequence, (dir, layout.incarnation), &functions)?;
        let engine = opening::assemble(Parts {
            reserve: Reserve::open(&settings.vfs, &settings.runtime, dir, OpenMode::Read),
            settings: settings.clone(),
            dir: dir.to_owned(),
            lock: None,
            table: table.clone(),
            state,
            last_sequence,
            floor_us: time_floor(layout, self.log.last_commit_us),
            disk: DiskState { manifest: self.manifest.clone(), files: self.files.clone() },
            wal: None,
            blobs,
            archiver: None,
            catalog,
            versions,
            has_unstored_tag: false,
            functions,
            next_file: Arc::new(AtomicU64::new(layout.next_file)),
            counters: Counters::after_recovery(self.log.unshown, self.log.tail_note.clone()),
            leftovers: Vec::new(),
        });
        engine.share_memory(&self.files);
        (self.has_news, self.log.unshown) = (false, 0);
        Ok(Db::of_core(engine))
    }
}

/// Returns the blob files of new runs; only these may have grown.
fn blobs_of_new_runs(old: &Layout, new: &Layout) -> BTreeSet<FileNumber> {
    let runs = new.runs.iter().filter(|(number, _)| !old.runs.contains_key(number));
    runs.flat_map(|(_, meta)| &meta.blob_uses).map(|blob_use| blob_use.file).collect()
}

fn open_manifest(settings: &Settings, dir: &Path, known: Option<&Manifest>) -> Result<Manifest> {
    let found = match known {
        Some(known) => known.reopen()?,
        None => Manifest::open(&settings.vfs, &settings.runtime, dir, true)?,
    };
    if let Some(manifest) = found {
        return Ok(manifest);
    }
    let names = settings.vfs.list(dir).unwrap_or_default();
    if highest(&names) > 0 && names.iter().any(|e| numbered(&e.name).is_some_and(|(_, kind)| kind != "manifest")) {
        let detail = "it is missing, but there are files of a database: this is a damaged database, or half a copy";
        return Err(Error::corruption(dir.join(CURRENT_NAME), 0, detail));
    }
    Err(Error::NotFound(format!("there is no database in {}", dir.display())))
}
