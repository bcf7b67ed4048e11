//! Verifies an open database, or a directory whether it opens or not.

use super::{
    checker::{Checker, OpenBlob},
    files::{Files, RunJob, ViewJob},
    log::{check_current, check_log, check_manifest},
    report::{VerifyOptions, VerifyReport},
};
use crate::{
    base::{Error, FileNumber, Result},
    db::{
        engine::{memory::Common, root::Engine, settings::Settings},
        files::names::numbered,
        maintenance::io_throttle::table_context,
    },
    memtable::Memtable,
    platform::Runtime,
    read::ReadState,
    table::{RunMeta, TableContext, blob::BlobFile},
    version::{CURRENT_NAME, Current, FileSet, Layout, PartitionLayout},
    view::Bounds,
    wal::LogBounds,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Maximum number of attempts while a writer changes CURRENT during verification.
const TRIES: usize = 6;

const THREADS_MAX: usize = 4;

/// Verifies the database in a directory. It need not open, and another process may have it open.
/// `opens` tries a read-only open for the report.
pub fn verify_path(
    settings: Settings,
    dir: &Path,
    options: &VerifyOptions,
    opens: &dyn Fn(Settings) -> bool,
) -> Result<VerifyReport> {
    let settings = Common::of(Settings { read_only: true, create: false, ..settings });
    let names = settings.vfs.list(dir).map_err(|e| Error::io("list", dir, e))?;
    if !names.iter().any(|entry| entry.name == CURRENT_NAME || numbered(&entry.name).is_some()) {
        return Err(Error::NotFound(format!("there is no database in {}", dir.display())));
    }
    let seen = || Current::open(&*settings.vfs, dir, true).ok().flatten().map(|current| current.seen());
    let mut tries = 1;
    loop {
        let before = seen();
        let report = OnDisk::new(&settings, dir, options).verify(opens)?;
        // Otherwise a writer removed or recycled files meanwhile: try again.
        if report.is_sound() || tries == TRIES || before == seen() {
            return Ok(report);
        }
        tries += 1;
    }
}

struct OnDisk<'a> {
    settings: &'a Settings,
    dir: &'a Path,
    table: TableContext,
    checker: Arc<Checker>,
}

impl<'a> OnDisk<'a> {
    fn new(settings: &'a Settings, dir: &'a Path, options: &VerifyOptions) -> OnDisk<'a> {
        let table = table_context(settings);
        let (blob_table, blob_dir) = (table.clone(), dir.to_owned());
        let open_blob: OpenBlob = Box::new(move |number| BlobFile::open(&blob_table, &blob_dir, number).map(Arc::new));
        let checker = Checker::new(dir, with_threads(options, settings), open_blob);
        OnDisk { settings, dir, table, checker }
    }

    fn verify(&self, opens: &dyn Fn(Settings) -> bool) -> Result<VerifyReport> {
        let vfs = &*self.settings.vfs;
        let names = vfs.list(self.dir).map_err(|e| Error::io("list", self.dir, e))?;
        let present: BTreeSet<String> = names.into_iter().map(|entry| entry.name).collect();
        let slot = check_current(&self.checker, vfs)?;
        // Without CURRENT, use the valid part of the newest manifest.
        let manifests = present.iter().filter_map(|name| numbered(name)).filter(|(_, kind)| *kind == "manifest");
        let newest = manifests.map(|(number, _)| (number, 0)).max();
        let manifest = slot.map(|slot| (slot.manifest, slot.manifest_len)).or(newest);
        let layout = match manifest {
            Some((number, len)) => check_manifest(&self.checker, vfs, number, len)?,
            None => None,
        };
        let (runs, views) = match &layout {
            Some(layout) => jobs_of(layout, &present),
            None => (unlisted_runs(&present), Vec::new()),
        };
        let files = check_files(&self.checker, &self.table, runs, views, &self.settings.runtime);
        drop(files);
        let bounds = match &layout {
            Some(layout) => bounds_of(layout),
            None => LogBounds { oldest_segment: oldest_of(&present), ..LogBounds::default() },
        };
        check_log(&self.checker, vfs, &*self.settings.runtime, &bounds, layout.is_some());
        if layout.is_none() {
            self.checker
                .note("the manifest is not whole: files were checked by what they say of themselves".to_owned());
        }
        Ok(self.checker.finish(opens(self.settings.clone())))
    }
}

fn bounds_of(layout: &Layout) -> LogBounds {
    LogBounds {
        oldest_segment: (layout.oldest_segment > 0).then_some(layout.oldest_segment),
        durable_lsn: layout.durable_lsn,
        flushed: layout.flushed,
        end_lsn: None,
    }
}

fn oldest_of(present: &BTreeSet<String>) -> Option<FileNumber> {
    present.iter().filter_map(|name| numbered(name)).filter(|(_, kind)| *kind == "wal").map(|(number, _)| number).min()
}

fn unlisted_runs(present: &BTreeSet<String>) -> Vec<RunJob> {
    let runs = present.iter().filter_map(|name| numbered(name)).filter(|(_, kind)| *kind == "run");
    runs.map(|(number, _)| RunJob { number, meta: None, handle: None, is_missing: false }).collect()
}

fn jobs_of(layout: &Layout, present: &BTreeSet<String>) -> (Vec<RunJob>, Vec<ViewJob>) {
    let lacks =
        |path: &Path| path.file_name().and_then(|name| name.to_str()).is_none_or(|name| !present.contains(name));
    let here = Path::new("");
    let run = |(number, meta): (&FileNumber, &RunMeta)| RunJob {
        number: *number,
        meta: Some(meta.clone()),
        handle: None,
        is_missing: lacks(&FileSet::run_path(here, *number)),
    };
    let view = |partition: &PartitionLayout| {
        let meta = partition.view.clone()?;
        let is_missing = lacks(&FileSet::view_path(here, meta.number));
        let bounds = Bounds { start: partition.start.clone(), end: partition.end.clone() };
        Some(ViewJob { meta, runs: partition.runs.clone(), bounds, view: None, is_missing })
    };
    (layout.runs.iter().map(run).collect(), layout.partitions.values().filter_map(view).collect())
}

fn with_threads(options: &VerifyOptions, settings: &Settings) -> VerifyOptions {
    let threads = if options.threads == 0 { settings.background_threads.min(THREADS_MAX) } else { options.threads };
    VerifyOptions { threads, ..options.clone() }
}

/// Checks runs in parallel, then views, which need the runs.
fn check_files(
    checker: &Arc<Checker>,
    table: &TableContext,
    runs: Vec<RunJob>,
    views: Vec<ViewJob>,
    runtime: &Arc<dyn Runtime>,
) -> Arc<Files> {
    let of_runs = runs.iter().filter_map(|job| job.meta.as_ref());
    let of_values = of_runs.clone().flat_map(|meta| &meta.blob_uses).map(|blob_use| blob_use.bytes);
    let bytes: u64 = of_runs.clone().map(|meta| meta.file_bytes).sum::<u64>() + of_values.sum::<u64>();
    checker.expect_bytes(bytes + views.iter().map(|job| job.meta.file_bytes).sum::<u64>());
    let threads = checker.threads().min(runs.len());
    let files = Arc::new(Files {
        checker: Arc::clone(checker),
        table: table.clone(),
        runs,
        views,
        sound: Default::default(),
        next: AtomicUsize::new(0),
    });
    let mut helpers = Vec::new();
    for _ in 1..threads {
        let files = Arc::clone(&files);
        match runtime.spawn("braiddb-verify", Box::new(move || files.check_runs())) {
            Ok(helper) => helpers.push(helper),
            // Fewer threads only take longer.
            Err(error) => tracing::debug!(%error, "a thread that verifies could not be started"),
        }
    }
    files.check_runs();
    for helper in helpers {
        if helper.join().is_err() {
            checker.error(&Error::corruption(&checker.dir, 0, "a thread that verified has panicked"), &checker.dir);
        }
    }
    files.views.iter().for_each(|job| files.check_view(job));
    files
}

/// Reads every file and checks every checksum. Commits wait only while the log's end is
/// checked.
pub fn verify_open(engine: &Arc<Engine>, options: &VerifyOptions) -> Result<VerifyReport> {
    engine.health.check_open()?;
    let owner = Arc::clone(engine);
    let open_blob: OpenBlob = Box::new(move |number| owner.storage.blobs.file(number));
    let checker = Checker::new(&engine.dir, with_threads(options, &engine.settings), open_blob);
    let state = engine.cell.state.load_full();
    let vfs = &*engine.storage.table.vfs;
    {
        let disk = engine.storage.disk.lock();
        check_current(&checker, vfs)?;
        let (number, len) = (disk.manifest.number(), disk.manifest.len());
        check_manifest(&checker, vfs, number, len)?;
    }
    let (runs, views) = jobs(engine, &state)?;
    drop(check_files(&checker, &engine.storage.table, runs, views, &engine.settings.runtime));
    state.memtables().for_each(|memtable| check_memtable(&checker, memtable));
    verify_log(engine, &checker)?;
    // For a read-only handle, the log check above already lists a torn record, but not a
    // complete record whose value is missing.
    let is_listed = engine.log.wal.is_none() && checker.has_torn_tail();
    if let Some(note) = engine.counters.log_tail_note.lock().clone().filter(|_| !is_listed) {
        checker.note(format!("when the database was opened: {note}"));
    }
    let given_up = |why: &String| format!("a damaged partition is not merged any more: {why}");
    engine.maintenance.work.lock().failed.values().map(given_up).for_each(|note| checker.note(note));
    // A new owner of the directory may have changed files during the check.
    engine.health.check_open()?;
    Ok(checker.finish(true))
}

fn jobs(engine: &Engine, state: &ReadState) -> Result<(Vec<RunJob>, Vec<ViewJob>)> {
    let names = engine.storage.table.vfs.list(&engine.dir).map_err(|e| Error::io("list", &engine.dir, e))?;
    let present: BTreeSet<String> = names.into_iter().map(|entry| entry.name).collect();
    // Beside a writer, a missing file is no problem: this state may still pin it.
    let lacks = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        engine.log.wal.is_some() && !present.contains(name)
    };
    let (mut runs, mut views) = (BTreeMap::new(), Vec::new());
    for partition in &state.version.partitions {
        for handle in partition.all_runs() {
            let (number, meta) = (handle.run().meta().number, handle.run().meta().clone());
            let is_missing = lacks(&FileSet::run_path(Path::new(""), number));
            let (meta, handle) = (Some(meta), Some(Arc::clone(handle)));
            runs.insert(number, RunJob { number, meta, handle, is_missing });
        }
        if let Some(meta) = partition.layout.view.clone() {
            let is_missing = lacks(&FileSet::view_path(Path::new(""), meta.number));
            let (runs, view) = (partition.layout.runs.clone(), partition.view.clone());
            views.push(ViewJob { meta, runs, bounds: partition.bounds(), view, is_missing });
        }
    }
    Ok((runs.into_values().collect(), views))
}

fn verify_log(engine: &Engine, checker: &Checker) -> Result<()> {
    let (vfs, runtime) = (&*engine.storage.table.vfs, &*engine.settings.runtime);
    let Some(wal) = &engine.log.wal else {
        let (bounds, manifest) = {
            let disk = engine.storage.disk.lock();
            (bounds_of(disk.manifest.layout()), disk.manifest.clone())
        };
        // Beside a writer that has moved on, check the memtables instead of the log.
        if !manifest.has_gone_on().unwrap_or(true) {
            check_log(checker, vfs, runtime, &bounds, false);
        }
        return Ok(());
    };
    // Commits wait, so that no record is read half written. If segments are released meanwhile,
    // start again from the new beginning.
    let _write = engine.commits.write.lock();
    loop {
        let oldest_segment = wal.segments().first().map(|segment| segment.number);
        let flushed = engine.storage.flushed.load(Ordering::Acquire);
        let bounds = LogBounds { oldest_segment, durable_lsn: 0, flushed, end_lsn: Some(wal.end_lsn()) };
        let attempt = Checker::new(&engine.dir, VerifyOptions::default(), Box::new(|_| Err(Error::Closed)));
        check_log(&attempt, vfs, runtime, &bounds, false);
        if wal.segments().first().map(|segment| segment.number) == oldest_segment {
            checker.take(&attempt);
            return Ok(());
        }
    }
}

fn check_memtable(checker: &Checker, memtable: &Arc<Memtable>) {
    let mut scan = memtable.scan();
    while scan.advance() {
        checker.entry(&scan.entry(), &checker.dir, 0);
    }
}
