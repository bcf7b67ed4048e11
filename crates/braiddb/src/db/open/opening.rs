//! Opening a database.
//!
//! Order: take the lock; read CURRENT and the manifest; open runs and views while replaying the log
//! above the flushed commits; sync the replayed segments; begin a new epoch and segment and name it
//! in the manifest; remove unreferenced files. INVARIANT: a crash at any step changes nothing that
//! the next open can observe.
//!
//! Creation completes with the first log segment. An earlier crash leaves files that are removed,
//! but a directory with logs, runs, views or blobs and no CURRENT is damaged.

use super::{
    archive, birthplace,
    new_directory::{make_durably, unfinished},
    preopen::{FilesAhead, Opened},
    replay::{Replayed, replay},
    wal_retention as log_kept,
};
use crate::{
    base::{Cursor, Error, Result, SequenceNumber, TreeId, split_internal_key},
    codec::{Compression, MergeFunctions},
    db::{
        engine::{
            catalog::{Catalog, DroppedTree, SESSION_TAG, TreeState, catalog_key},
            clock::Clock,
            events::queue::Events,
            memory::{Common, TenantQuota},
            parts::{
                archiver::Archiver,
                commits::CommitPipeline,
                health::Health,
                limited_work::LimitedWork,
                log_state::LogState,
                maintenance::Maintenance,
                readers::Readers,
                state_cell::StateCell,
                storage::{DiskState, Storage},
                sync_waits::SyncWaits,
            },
            root::Engine,
            settings::Settings,
            stats::Counters,
            wal_notify::Watches,
        },
        files::{
            blob_store::BlobStore,
            cut_tails,
            names::{LOCK_NAME, SYNC_FAILED_NAME, damaged_view, leave_marker, numbered},
            reserve::Reserve,
        },
        maintenance::{background, io_throttle::table_context, log_archive, log_trim},
        record::version_tags::{VERSION_TAGS, VersionTags},
        write::full_disk::{self, open_with_reserve},
    },
    platform::{DirEntry, FileLock, OpenMode},
    read::{Garbage, ReadState, ScanCursor},
    table::{
        TableContext,
        blob::{BlobWriter, BlobWriterContext},
    },
    version::{CURRENT_NAME, Change, Edit, FileSet, Layout, Manifest},
    wal::{self, RecoveryOutcome, RetentionLimit, Wal, WalContext, WalOptions},
};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Maximum spare log segments under load: the size of two memtables.
const LOG_SPARES_MAX: usize = 4;

/// Returns the minimum for the database's time: that of the last edit, or of a later commit.
pub(in crate::db) fn time_floor(layout: &Layout, last_commit_us: u64) -> u64 {
    // Commits record wall clock time.
    let committed_us = last_commit_us.saturating_add(layout.time_ahead_us);
    if last_commit_us == 0 { layout.time_us } else { layout.time_us.max(committed_us) }
}

/// Returns the highest number in a file name; 0 if there is none.
pub(in crate::db) fn highest(names: &[DirEntry]) -> u64 {
    names.iter().filter_map(|e| numbered(&e.name)).map(|(number, _)| number).max().unwrap_or(0)
}

pub struct Parts {
    pub settings: Settings,
    pub dir: PathBuf,
    pub lock: Option<Box<dyn FileLock>>,
    pub table: TableContext,
    pub state: ReadState,
    pub last_sequence: SequenceNumber,
    /// Minimum of the database's time.
    pub floor_us: u64,
    pub disk: DiskState,
    pub wal: Option<Wal>,
    pub blobs: BlobStore,
    pub archiver: Option<Archiver>,
    pub catalog: Catalog,
    pub versions: VersionTags,
    pub has_unstored_tag: bool,
    pub functions: Arc<MergeFunctions>,
    pub next_file: Arc<AtomicU64>,
    pub counters: Counters,
    pub leftovers: Vec<PathBuf>,
    pub reserve: Reserve,
}

/// Opens or creates the database in `dir` for writing. See
/// [`crate::db::export::follower::Follower`] for read-only opens.
///
/// Also returns a changed retention limit, to be stored in the catalog once background threads
/// can free memtables for that commit. If a full disk has no space for the next log segment,
/// part of the reserve is used.
pub fn open(settings: Settings, dir: &Path) -> Result<(Arc<Engine>, Option<RetentionLimit>)> {
    settings.check()?;
    birthplace::check(&settings, dir)?;
    open_with_reserve(&settings, dir, || try_open(settings.clone(), dir))
}

fn try_open(settings: Settings, dir: &Path) -> Result<(Arc<Engine>, Option<RetentionLimit>)> {
    let settings = Common::of(settings);
    let lock = take_lock(&settings, dir)?;
    let settings = settings.for_volume(dir);
    let names = settings.vfs.list(dir).map_err(|e| Error::io("list", dir, e))?;
    let manifest = open_manifest(&settings, dir)?;
    let next_file = Arc::new(AtomicU64::new(manifest.layout().next_file.max(highest(&names).saturating_add(1))));
    let table = table_context(&settings);
    let functions = Arc::new(known_functions(&settings)?);
    let helper = (settings.background_threads > 0).then_some(&*settings.runtime);
    let ahead = helper.and_then(|runtime| FilesAhead::start(runtime, dir, &table, manifest.layout()));
    let opened = match &ahead {
        Some(_) => None,
        None => Some(Opened::now(dir, &table, manifest.layout()).checked()?),
    };
    let blobs = open_blobs(&settings, dir, &table, &next_file, &names);
    let replayed = replay(&settings, dir, manifest.layout(), &blobs, &functions, true);
    let Opened { mut files, version } =
        opened.or_else(|| Some(ahead?.finish())).expect("they are opened ahead or were before");
    let (version, replayed) = (version?, replayed?);
    let mut state = first_state(&settings, &replayed, Arc::new(version));
    let last_sequence = replayed.last_sequence.max(manifest.layout().last_sequence);
    let (catalog, remembered, mut versions) = loop {
        match load_catalog(&settings, &state, last_sequence, (dir, manifest.layout().incarnation), &functions) {
            Err(e) => heal_at_open(e, &mut files, &mut state, manifest.layout())?,
            Ok(loaded) => break loaded,
        }
    };
    let mut disk = DiskState { manifest, files };
    let floor_us = time_floor(disk.manifest.layout(), replayed.last_commit_us);
    let Replayed { records, mut outcome, ahead, .. } = replayed;
    let (retention, is_new_retention) = log_kept::limits(&settings, remembered);
    let floor = outcome.retain(retention, |segments| log_kept::hold_blobs(&blobs, segments))?;
    if retention.is_on() {
        blobs.hold_above(floor);
    }
    next_file.fetch_max(outcome.highest_file_number.saturating_add(1), Ordering::Relaxed);
    let tail_note = outcome.tail_note.clone();
    keep_cut_tail(&settings, dir, &outcome);
    let has_unstored_tag = draw_tag(&settings, &outcome, last_sequence, &mut versions);
    let leftovers = outcome.unneeded.iter().map(|&number| wal::segment_path(dir, number)).collect();
    let wal = begin_epoch(&settings, dir, &mut disk, outcome, last_sequence, &next_file, &blobs)?;
    let archiver = archive::archiver(&settings, disk.manifest.layout().incarnation)?;
    let engine = Arc::new(assemble(Parts {
        leftovers,
        reserve: Reserve::open(&settings.vfs, &settings.runtime, dir, OpenMode::ReadWrite),
        archiver,
        settings,
        dir: dir.to_owned(),
        lock: Some(lock),
        table,
        state,
        last_sequence,
        floor_us,
        disk,
        wal: Some(wal),
        blobs,
        catalog,
        versions,
        has_unstored_tag,
        functions,
        next_file,
        counters: Counters::after_recovery(records, tail_note),
    }));
    engine.enter_common();
    settle_after_open(&engine)?;
    drop(ahead);
    Ok((engine, is_new_retention.then_some(retention)))
}

pub fn assemble(parts: Parts) -> Engine {
    let Parts { mut settings, dir, lock, table, state, last_sequence, floor_us, disk, .. } = parts;
    // Only its thread holds the listener, and drops it after the last event.
    let events = Events::new(settings.listener.take(), &*settings.runtime);
    let layout = disk.manifest.layout();
    let (incarnation, flushed, time_ahead_us) = (layout.incarnation, layout.flushed, layout.time_ahead_us);
    let window_bytes = settings.window_bytes();
    Engine {
        dir,
        clock: Clock::new(&*settings.runtime, floor_us, time_ahead_us),
        tenant: TenantQuota::new(Arc::clone(settings.common())),
        catalog: parts.catalog,
        functions: parts.functions,
        counters: parts.counters,
        health: Health::new(settings.read_only, lock),
        cell: StateCell::new(state),
        readers: Readers::new(last_sequence),
        commits: CommitPipeline::new(
            last_sequence,
            window_bytes,
            parts.versions,
            parts.has_unstored_tag,
            settings.slow_commit_ns,
        ),
        log: LogState {
            wal: parts.wal,
            archiver: parts.archiver,
            watches: Watches::default(),
            sync_waits: SyncWaits::default(),
            incarnation,
        },
        storage: Storage {
            disk: Mutex::new(disk),
            next_file: parts.next_file,
            limited: LimitedWork::new(&settings, &table),
            table,
            blobs: parts.blobs,
            held_blobs: Mutex::default(),
            reserve: parts.reserve,
            flushed: AtomicU64::new(flushed),
            leftovers: Mutex::new(parts.leftovers),
        },
        maintenance: Maintenance::new(background::UPCALLS),
        events,
        settings,
    }
}

fn settle_after_open(engine: &Engine) -> Result<()> {
    if engine.settings.is_restoring {
        *engine.storage.held_blobs.lock() = engine.storage.blobs.pin_all();
    }
    log_archive::at_open(engine)?;
    let disk = engine.storage.disk.lock();
    find_orphans(engine, disk.manifest.layout(), disk.manifest.number())?;
    // Removing a large file can take over a millisecond: background threads, if any, do it
    // later.
    if engine.settings.background_threads == 0 {
        log_trim::remove_leftovers(engine)?;
    }
    engine.share_memory(&disk.files);
    drop(disk);
    engine.measure_pressure(&engine.cell.state.load());
    full_disk::keep_reserve(engine);
    Ok(())
}

/// Lists unreferenced runs, views and manifests, and removes unreferenced blobs.
fn find_orphans(engine: &Engine, layout: &Layout, manifest: u64) -> Result<()> {
    let vfs = &engine.storage.table.vfs;
    let views: Vec<u64> = layout.partitions.values().filter_map(|p| p.view.as_ref().map(|v| v.number)).collect();
    for entry in vfs.list(&engine.dir).map_err(|e| Error::io("list", &engine.dir, e))? {
        let orphan = match numbered(&entry.name) {
            Some((number, "run")) => !layout.runs.contains_key(&number),
            Some((number, "view")) => !views.contains(&number),
            Some((number, "manifest")) => number != manifest,
            _ => false,
        };
        if orphan {
            engine.storage.leftovers.lock().push(engine.dir.join(&entry.name));
        }
    }
    // Blobs whose commit did not survive are neither referenced nor pending.
    drop(engine.storage.blobs.release_unused(layout));
    Ok(())
}

fn take_lock(settings: &Settings, dir: &Path) -> Result<Box<dyn FileLock>> {
    let vfs = &settings.vfs;
    make_durably(&**vfs, dir)?;
    let path = dir.join(LOCK_NAME);
    match vfs.lock(&path, &settings.runtime.process_name()).map_err(|e| Error::io("lock", &path, e))? {
        Ok(lock) => Ok(lock),
        Err(owner) if owner == settings.runtime.process_name() => {
            Err(Error::Locked { path: dir.to_owned(), owner: format!("this process ({owner})") })
        }
        Err(owner) => Err(Error::Locked { path: dir.to_owned(), owner }),
    }
}

pub(in crate::db) fn refuse_unfinished(settings: &Settings, dir: &Path, names: &[DirEntry]) -> Result<()> {
    if !settings.is_restoring
        && let Some(reason) = unfinished(&*settings.vfs, dir, names)
    {
        return Err(Error::NotFound(format!("there is no database in {}: {reason}", dir.display())));
    }
    Ok(())
}

fn open_manifest(settings: &Settings, dir: &Path) -> Result<Manifest> {
    let (vfs, runtime) = (&settings.vfs, &settings.runtime);
    let names = vfs.list(dir).map_err(|e| Error::io("list", dir, e))?;
    refuse_unfinished(settings, dir, &names)?;
    let data = names.iter().find(|e| matches!(numbered(&e.name), Some((_, kind)) if kind != "manifest"));
    match Manifest::open(vfs, runtime, dir, false) {
        Ok(Some(manifest)) => return Ok(manifest),
        Ok(None) => {
            if let Some(data) = data {
                let detail =
                    format!("it is missing, but there is {}: this is a damaged database, not a new one", data.name);
                return Err(Error::corruption(dir.join(CURRENT_NAME), 0, detail));
            }
        }
        Err(e) if e.is_corruption() && data.is_none() && names.iter().all(|n| n.name != LOCK_NAME || n.len < 4096) => {
            tracing::warn!(error = %e, "the creation of the database was cut short; it begins anew");
        }
        Err(e) => return Err(e),
    }
    if !settings.create {
        return Err(Error::NotFound(format!("there is no database in {}", dir.display())));
    }
    create_manifest(settings, dir, &names.into_iter().map(|e| e.name).collect::<Vec<_>>())
}

fn create_manifest(settings: &Settings, dir: &Path, leftovers: &[String]) -> Result<Manifest> {
    for name in leftovers.iter().filter(|n| *n == CURRENT_NAME || numbered(n).is_some()) {
        let path = dir.join(name);
        settings.vfs.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
    }
    // The directory must survive a power failure before its contents are promised to.
    if let Some(parent) = dir.parent() {
        settings.vfs.sync_dir(parent).map_err(|e| Error::io("sync", parent, e))?;
    }
    let mut layout = Layout { next_file: 1, incarnation: settings.runtime.random_u64(), ..Layout::default() };
    let whole = Change::NewPartition { id: 0, start: Vec::new(), end: None };
    layout.apply(&Edit::new(vec![whole])).unwrap_or_else(|rule| unreachable!("an empty layout: {rule}"));
    Manifest::create(&settings.vfs, &settings.runtime, dir, layout)
}

fn number_source(next_file: &Arc<AtomicU64>) -> Arc<dyn Fn() -> u64 + Send + Sync> {
    let next_file = Arc::clone(next_file);
    Arc::new(move || next_file.fetch_add(1, Ordering::Relaxed))
}

fn open_blobs(
    settings: &Settings,
    dir: &Path,
    table: &TableContext,
    next_file: &Arc<AtomicU64>,
    names: &[DirEntry],
) -> BlobStore {
    let writer = Arc::new(BlobWriter::new(BlobWriterContext {
        vfs: Arc::clone(&table.vfs),
        dir: dir.to_owned(),
        runtime: Arc::clone(&settings.runtime),
        next_file_number: number_source(next_file),
        file_len: settings.blob_file_bytes,
        recent_writes: Arc::clone(&table.recent_writes),
        sync_failed: {
            let (vfs, dir) = (Arc::clone(&table.vfs), dir.to_owned());
            Arc::new(move || leave_marker(&*vfs, &dir))
        },
    }));
    let known = names.iter().filter_map(|e| numbered(&e.name)).filter(|(_, kind)| *kind == "blob").map(|(n, _)| n);
    BlobStore::new(dir, table, Some(writer), known)
}

fn first_state(settings: &Settings, replayed: &Replayed, version: Arc<crate::version::Version>) -> ReadState {
    let mut memtables = replayed.memtables.clone();
    // The last memtable takes writes; the others wait for their flush.
    let active = memtables.pop().unwrap_or_else(|| Engine::new_memtable(settings, 0));
    memtables.reverse();
    ReadState { active, frozen: memtables, version, garbage: Arc::new(Garbage::default()) }
}

/// Returns the merge functions. Fails if the application reuses a name.
pub(in crate::db) fn known_functions(settings: &Settings) -> Result<MergeFunctions> {
    let functions = MergeFunctions::built_in();
    let own = &settings.merge_functions;
    for (index, (name, _)) in own.iter().enumerate() {
        if functions.number(name).is_some() || own[..index].iter().any(|(other, _)| other == name) {
            return Err(Error::InvalidArgument(format!(
                "there is a merge function {name:?} already: give it another name"
            )));
        }
    }
    Ok(functions)
}

/// Sets aside the damaged view that `error` names; reads then use its runs' own views. Returns any
/// other error.
fn heal_at_open(error: Error, files: &mut FileSet, state: &mut ReadState, layout: &Layout) -> Result<()> {
    let Some(number) = damaged_view(&error).filter(|number| !files.damaged_views().contains_key(number)) else {
        return Err(error);
    };
    tracing::warn!(number, %error, "a view is damaged and will be rebuilt");
    files.set_view_damaged(number, error.to_string());
    state.version = Arc::new(files.version(layout, Some(&state.version))?);
    Ok(())
}

pub(in crate::db) fn load_catalog(
    settings: &Settings,
    state: &ReadState,
    last_sequence: SequenceNumber,
    (dir, incarnation): (&Path, u64),
    functions: &MergeFunctions,
) -> Result<(Catalog, Option<RetentionLimit>, VersionTags)> {
    let mut versions = VersionTags::new(incarnation);
    let (mut retention, mut dropped) = (None, BTreeMap::new());
    let mut trees = Vec::new();
    let (mut next_id, mut named_until) = (1, 0);
    let mut cursor = ScanCursor::new(state, last_sequence, TreeId::CATALOG);
    cursor.seek(&TreeId::CATALOG.first_key())?;
    while cursor.valid() {
        let entry = cursor.entry();
        let Some((TreeId::CATALOG, [tag, name @ ..])) = split_internal_key(entry.key) else { break };
        let bad = || {
            Error::corruption(
                dir,
                0,
                format!("the catalog entry of {:?} cannot be understood", name.escape_ascii().to_string()),
            )
        };
        match tag {
            b'n' => {
                let tree = TreeState::decode(name, entry.value).ok_or_else(bad)?;
                trees.push(TreeState { home: incarnation, ..tree });
                named_until = named_until.max(entry.sequence);
            }
            b'i' => next_id = u32::from_le_bytes(entry.value.try_into().map_err(|_| bad())?),
            b'f' => {
                let number = u64::from_le_bytes(entry.value.try_into().map_err(|_| bad())?);
                let name = String::from_utf8(name.to_vec()).map_err(|_| bad())?;
                let own = settings.merge_functions.iter().find(|(known, _)| *known == name);
                functions.add(number, &name, own.map(|(_, function)| Arc::clone(function)));
            }
            b'd' => {
                dropped.extend([DroppedTree::decode(entry.value, entry.sequence).ok_or_else(bad)?]);
                named_until = named_until.max(entry.sequence);
            }
            &VERSION_TAGS => versions.decode(entry.value).ok_or_else(bad)?,
            &SESSION_TAG => break,
            b'r' => retention = Some(log_kept::decode(entry.value).ok_or_else(bad)?),
            _ => {}
        }
        cursor.next()?;
    }
    let named_until = AtomicU64::new(named_until);
    let catalog = Catalog { dropped: RwLock::new(dropped), named_until, ..Catalog::new(trees, next_id) };
    Ok((catalog, retention, versions))
}

/// Copies a torn or damaged tail before the open cuts it off the log.
fn keep_cut_tail(settings: &Settings, dir: &Path, outcome: &RecoveryOutcome) {
    if let Some(tail) = &outcome.cut_tail {
        let kept = cut_tails::keep(&*settings.vfs, dir, tail);
        tracing::warn!("{tail}; what was cut is kept in the file {kept}");
    }
}

/// Draws a version tag for later commits, unless the log was closed cleanly. Returns whether it
/// did.
fn draw_tag(
    settings: &Settings,
    outcome: &RecoveryOutcome,
    last_sequence: SequenceNumber,
    versions: &mut VersionTags,
) -> bool {
    let is_needed = !outcome.is_closed_cleanly && !settings.is_restoring;
    if is_needed {
        versions.begin(last_sequence + 1, &*settings.runtime);
    }
    is_needed
}

/// Makes the replayed log durable and begins a new epoch.
fn begin_epoch(
    settings: &Settings,
    dir: &Path,
    disk: &mut DiskState,
    outcome: RecoveryOutcome,
    last_sequence: SequenceNumber,
    next_file: &Arc<AtomicU64>,
    blobs: &BlobStore,
) -> Result<Wal> {
    let vfs = &settings.vfs;
    let marker = dir.join(SYNC_FAILED_NAME);
    let rewrite = vfs.open(&marker, OpenMode::Read).is_ok();
    // Blobs first: in the new epoch, everything replayed counts as durable.
    blobs.sync_replayed(rewrite)?;
    let start = outcome.sync_replayed(rewrite)?;
    let context = WalContext {
        vfs: Arc::clone(vfs),
        dir: dir.to_owned(),
        runtime: Arc::clone(&settings.runtime),
        next_file_number: number_source(next_file),
        pre_sync: blobs.sync_hook(),
    };
    let segment_len = settings.log_segment_bytes();
    // The archive identifies segments by number, so it forbids recycling their files.
    let spares_max = if settings.log_archive.is_some() { 0 } else { LOG_SPARES_MAX };
    let mut options = WalOptions { segment_len, spares_max, ..Default::default() };
    if settings.compression == Compression::None {
        options.compress_at_len = usize::MAX;
    }
    let wal = Wal::create(context, options, start)?;
    let changes = vec![
        Change::Epoch(u64::from(wal.epoch())),
        Change::NextFile(next_file.load(Ordering::Relaxed)),
        Change::LastSequence(last_sequence),
        Change::Log { oldest_segment: wal.oldest_segment(), durable_lsn: wal.durable_lsn() },
    ];
    disk.manifest.commit(&Edit::new(changes))?;
    next_file.fetch_max(disk.manifest.layout().next_file, Ordering::Relaxed);
    if rewrite {
        vfs.remove(&marker).map_err(|e| Error::io("remove", &marker, e))?;
    }
    Ok(wal)
}

pub fn application_cursor_key() -> Vec<u8> {
    catalog_key(b'c', b"")
}
