//! Writes sorted rows directly into the runs of a load, without log and memtables.
//!
//! The runs store no sequence numbers: the manifest assigns the load's number to all of them
//! (`install.rs`), so nothing is visible before and nothing is rewritten. A run is half as large as
//! a partition may be, and contains its own view. Dropping a writer before the installation removes
//! its files.

use super::install::commit_runs;
use crate::{
    base::{Content, EntryKind, EntryRef, Error, FileNumber, Result, SequenceNumber, limits},
    codec::Compression,
    compaction::PART_BLOCKS_MAX,
    db::{
        engine::{catalog::TreeState, edits, root::Engine, settings::Durability, slow_commits::timer::CommitTimer},
        handles::expiry,
        maintenance::install,
        write::{full_disk, pending_blobs::PendingBlobs, update_scope},
    },
    platform::{BehindVfs, WriteBehind},
    table::{
        RunMeta, RunOptions, TableContext,
        blob::{BlobRef, Lane, visit_references},
    },
    version::FileSet,
    view::SortedRunWriter,
};
use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, SyncSender},
    },
    thread::JoinHandle,
};

/// Minimum bytes of a run that ends at a partition border; a smaller one continues and is shared.
const OWN_RUN_BYTES_MIN: u64 = 64 << 10;

/// Bytes of a load that stay in the page cache. More would evict other data.
const CACHED_BYTES: u64 = 64 << 20;

const BLOB_BYTES_UNSYNCED_MAX: u64 = 16 << 20;

const ROWS_BYTES: usize = 256 << 10;

const ROWS_WAITING_MAX: usize = 4;

#[derive(Debug, Default)]
pub struct LoadRows {
    bytes: Vec<u8>,
    lens: Vec<(u32, u32)>,
    ends: Vec<(usize, u64)>,
}

impl LoadRows {
    /// Adds a row whose internal key is the concatenation of `key`. Precondition: key and value are
    /// within the limits.
    pub fn push(&mut self, key: &[&[u8]], value: &[u8]) {
        let before = self.bytes.len();
        key.iter().for_each(|piece| self.bytes.extend_from_slice(piece));
        let key_len = self.bytes.len() - before;
        self.bytes.extend_from_slice(value);
        let len = |len: usize| u32::try_from(len).expect("within the limits");
        self.lens.push((len(key_len), len(value.len())));
    }

    pub fn push_until(&mut self, key: &[&[u8]], value: &[u8], expires_us: u64) {
        self.ends.push((self.lens.len(), expires_us));
        self.push(key, value);
    }

    /// Empty without rows.
    pub fn last_key(&self) -> &[u8] {
        let Some(&(key_len, value_len)) = self.lens.last() else { return &[] };
        let end = self.bytes.len() - value_len as usize;
        &self.bytes[end - key_len as usize..end]
    }

    pub fn len(&self) -> usize {
        self.lens.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.bytes.len() >= ROWS_BYTES
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], Option<u64>)> {
        let (mut rest, mut ends) = (self.bytes.as_slice(), self.ends.iter().peekable());
        self.lens.iter().enumerate().map(move |(row, &(key_len, value_len))| {
            let (key, after) = rest.split_at(key_len as usize);
            let (value, after) = after.split_at(value_len as usize);
            rest = after;
            (key, value, ends.next_if(|(at, _)| *at == row).map(|(_, expires_us)| *expires_us))
        })
    }
}

#[derive(Debug)]
struct Behind {
    thread: Arc<WriteBehind>,
    table: TableContext,
}

#[derive(Debug)]
pub struct LoadWriter {
    engine: Arc<Engine>,
    tree: Arc<TreeState>,
    options: RunOptions,
    blob_compression: Compression,
    blob_threshold: usize,
    expires_us: Option<u64>,
    run_bytes: u64,
    ends: std::vec::IntoIter<Vec<u8>>,
    end: Option<Vec<u8>>,
    run: Option<SortedRunWriter>,
    /// Writes runs in a background thread; `None` before the first run.
    behind: Option<Behind>,
    finished: Vec<RunMeta>,
    created: Vec<PathBuf>,
    blob_files: BTreeSet<FileNumber>,
    blob_bytes_unsynced: u64,
    user_bytes: u64,
    rows: u64,
    streams: Option<PendingBlobs>,
    is_in_force: bool,
}

/// The result of a bulk load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The number of records.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Bytes of their files, without blob files.
    pub file_bytes: u64,
    /// The number of the commit that made them visible.
    pub sequence: SequenceNumber,
}

impl LoadWriter {
    pub fn new(engine: &Arc<Engine>, tree: &Arc<TreeState>) -> Result<LoadWriter> {
        engine.health.check_writable()?;
        update_scope::check_outside(engine)?;
        tree.check()?;
        let settings = &engine.settings;
        let partitions = &engine.cell.state.load_full().version.partitions;
        let ends: Vec<Vec<u8>> = partitions.iter().filter_map(|p| p.layout.end.clone()).collect();
        let mut ends = ends.into_iter();
        let compression = tree.options.get().compression.unwrap_or(settings.compression);
        Ok(LoadWriter {
            engine: Arc::clone(engine),
            tree: Arc::clone(tree),
            options: RunOptions { is_unnumbered: true, compression, ..install::run_options(engine) },
            blob_compression: compression,
            blob_threshold: tree.options.get().blob_threshold.unwrap_or(settings.blob_threshold).max(1),
            expires_us: expiry::default_expiry(engine, tree),
            run_bytes: settings.partition_bytes() / 2,
            end: ends.next(),
            ends,
            run: None,
            behind: None,
            finished: Vec::new(),
            created: Vec::new(),
            blob_files: BTreeSet::new(),
            blob_bytes_unsynced: 0,
            user_bytes: 0,
            rows: 0,
            streams: None,
            is_in_force: false,
        })
    }

    pub fn of_entries(engine: &Arc<Engine>, tree: &Arc<TreeState>) -> Result<LoadWriter> {
        let mut writer = LoadWriter::new(engine, tree)?;
        writer.options.is_unnumbered = false;
        writer.expires_us = None;
        Ok(writer)
    }

    pub fn add_value(
        &mut self,
        key: &[u8],
        sequence: SequenceNumber,
        value: &[u8],
        expires_us: Option<u64>,
    ) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        let _inside = engine.health.enter()?;
        engine.health.check_writable()?;
        self.add_at(key, sequence, value, expires_us)
    }

    /// A large value is already in a blob file.
    pub fn add_placed(&mut self, key: &[u8], sequence: SequenceNumber, kind: EntryKind, value: &[u8]) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        let _inside = engine.health.enter()?;
        engine.health.check_writable()?;
        self.user_bytes += (key.len() + value.len()) as u64;
        self.rows += 1;
        let run = self.run_for(key)?;
        run.add(EntryRef { key, sequence, kind, value })?;
        let understood = visit_references(kind, value, |blob| run.add_blob_use(blob.file, blob.stored_len));
        understood.ok_or_else(|| engine.storage.blobs.misunderstood())
    }

    /// Keeps the blob files of a stream pending until the installation.
    pub fn keep_stream(&mut self, pending: PendingBlobs) {
        match &mut self.streams {
            Some(streams) => streams.absorb(pending),
            none => *none = Some(pending),
        }
    }

    pub fn end_run(&mut self) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        let _inside = engine.health.enter()?;
        self.finish_run()
    }

    pub fn absorb(&mut self, mut other: LoadWriter) -> Result<()> {
        self.end_run()?;
        other.end_run()?;
        other.settle()?;
        self.finished.append(&mut other.finished);
        self.created.append(&mut other.created);
        for file in std::mem::take(&mut other.blob_files) {
            if !self.blob_files.insert(file) {
                self.engine.storage.blobs.settle(&[file], None);
            }
        }
        self.blob_bytes_unsynced += other.blob_bytes_unsynced;
        self.user_bytes += other.user_bytes;
        self.rows += other.rows;
        if let Some(streams) = other.streams.take() {
            self.keep_stream(streams);
        }
        other.is_in_force = true;
        Ok(())
    }

    pub fn install_entries(mut self) -> Result<Loaded> {
        self.end_run()?;
        self.finished.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        if self.finished.windows(2).any(|pair| pair[0].largest >= pair[1].smallest) {
            return Err(Error::InvalidArgument("records are out of order".to_owned()));
        }
        let streams = self.streams.take();
        if let Some(streams) = &streams {
            streams.make_ready(&mut CommitTimer::begin(&self.engine), Durability::Sync)?;
        }
        let loaded = self.install()?;
        if let Some(streams) = streams {
            streams.committed(loaded.sequence);
        }
        Ok(loaded)
    }

    pub fn write(&mut self, rows: &LoadRows) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        let _inside = engine.health.enter()?;
        engine.health.check_writable()?;
        full_disk::refuse_on_full_disk(&engine)?;
        self.tree.check()?;
        rows.iter().try_for_each(|(key, value, end)| self.add_at(key, 0, value, end.or(self.expires_us)))
    }

    fn add_at(&mut self, key: &[u8], sequence: SequenceNumber, value: &[u8], expires_us: Option<u64>) -> Result<()> {
        self.user_bytes += (key.len() + value.len()) as u64;
        self.rows += 1;
        let (kind, blob) = match value.len() >= self.blob_threshold {
            true => (EntryKind::BlobRef, Some(self.write_blob(key, value)?)),
            false => (EntryKind::Value, None),
        };
        let mut reference = Vec::new();
        if let Some(blob) = &blob {
            blob.encode(&mut reference);
        }
        let stored = if blob.is_some() { reference.as_slice() } else { value };
        let mut room = Vec::new();
        let (kind, stored) = match expires_us {
            None => (kind, stored),
            expires_us => Content { kind, value: stored, expires_us }.entry(&mut room),
        };
        let run = self.run_for(key)?;
        run.add(EntryRef { key, sequence, kind, value: stored })?;
        if let Some(blob) = blob {
            run.add_blob_use(blob.file, blob.stored_len);
        }
        Ok(())
    }

    fn write_blob(&mut self, key: &[u8], value: &[u8]) -> Result<BlobRef> {
        let blob = self.engine.storage.blobs.write_to(Lane::Bulk, key, value, self.blob_compression)?;
        if !self.blob_files.insert(blob.file) {
            self.engine.storage.blobs.settle(&[blob.file], None);
        }
        self.blob_bytes_unsynced += blob.stored_len;
        if self.blob_bytes_unsynced >= BLOB_BYTES_UNSYNCED_MAX {
            self.sync_blobs()?;
        }
        Ok(blob)
    }

    fn sync_blobs(&mut self) -> Result<()> {
        self.blob_bytes_unsynced = 0;
        self.engine.storage.blobs.sync_bulk(&self.blob_files).inspect_err(|e| self.engine.poison(e))
    }

    fn run_for(&mut self, key: &[u8]) -> Result<&mut SortedRunWriter> {
        let mut is_past_end = false;
        while self.end.as_ref().is_some_and(|end| end.as_slice() <= key) {
            self.end = self.ends.next();
            is_past_end = true;
        }
        let is_full = |run: &SortedRunWriter| {
            let bytes = run.estimated_bytes();
            bytes >= self.run_bytes
                || run.block_count() >= PART_BLOCKS_MAX
                || (is_past_end && bytes >= OWN_RUN_BYTES_MIN.min(self.run_bytes))
        };
        // All versions of a key stay in one run.
        if self.run.as_ref().is_some_and(|run| is_full(run) && run.last_key() != key) {
            self.finish_run()?;
        }
        if self.run.is_none() {
            let number = self.engine.storage.new_file_number();
            let path = FileSet::run_path(&self.engine.dir, number);
            self.created.push(path.clone());
            let id = self.engine.settings.runtime.random_u64();
            self.start_behind()?;
            let table = self.behind.as_ref().map_or(&self.engine.storage.table, |behind| &behind.table);
            self.options.is_unbuffered = self.user_bytes >= CACHED_BYTES;
            self.run = Some(SortedRunWriter::create(table, &path, number, id, &self.options)?);
        }
        Ok(self.run.as_mut().expect("made just now"))
    }

    fn start_behind(&mut self) -> Result<()> {
        if self.behind.is_some() || self.engine.settings.background_threads == 0 {
            return Ok(());
        }
        let engine = &self.engine;
        let thread = WriteBehind::start(&*engine.settings.runtime);
        let thread = Arc::new(thread.map_err(|e| Error::io("start a thread for", &engine.dir, e))?);
        let vfs = Arc::new(BehindVfs::new(&engine.storage.table.vfs, &thread));
        self.behind = Some(Behind {
            thread,
            table: TableContext { vfs, deferred_close: Arc::default(), ..engine.storage.table.clone() },
        });
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        let done = self.behind.as_ref().map_or(Ok(()), |behind| behind.thread.settle());
        done.map_err(|e| Error::io("write a load into", &self.engine.dir, e))
    }

    fn finish_run(&mut self) -> Result<()> {
        if let Some(run) = self.run.take() {
            self.finished.push(run.finish()?);
        }
        Ok(())
    }

    /// Registers a file for removal unless the load is installed.
    pub fn adopt(&mut self, path: PathBuf) {
        self.created.push(path);
    }

    pub fn note_adopted(&mut self, run: RunMeta) {
        self.user_bytes += run.raw_bytes;
        self.rows += run.entries;
        self.finished.push(run);
    }

    pub fn install(mut self) -> Result<Loaded> {
        let engine = Arc::clone(&self.engine);
        let _inside = engine.health.enter()?;
        self.finish_run()?;
        let file_bytes = self.finished.iter().map(|run| run.file_bytes).sum();
        let mut loaded = Loaded { records: self.rows, bytes: self.user_bytes, file_bytes, sequence: 0 };
        if self.finished.is_empty() {
            loaded.sequence = engine.readers.snapshots.visible();
            return Ok(loaded);
        }
        self.sync_blobs()?;
        self.settle()?;
        let runs = std::mem::take(&mut self.finished);
        loaded.sequence = commit_runs(&engine, &self.tree, runs, self.user_bytes)?;
        self.is_in_force = true;
        Ok(loaded)
    }

    fn remove_files(&mut self) {
        self.run = None;
        self.behind = None;
        // After a failed edit the files may be in use; after a close another process may own them.
        let Ok(_inside) = self.engine.health.enter_past_closing() else { return };
        if !self.engine.health.has_failed() {
            install::remove_files(&self.engine, &self.created);
        }
    }
}

impl Drop for LoadWriter {
    fn drop(&mut self) {
        if !self.is_in_force {
            self.remove_files();
        }
        if self.blob_files.is_empty() {
            return;
        }
        // Installed runs count as references to these files.
        let files: Vec<FileNumber> = self.blob_files.iter().copied().collect();
        self.engine.storage.blobs.settle(&files, None);
        if !self.is_in_force {
            self.engine.storage.blobs.leave_bulk_file(&self.blob_files);
            edits::reclaim_blobs(&self.engine);
        }
    }
}

#[derive(Debug)]
struct Thread {
    rows_to: SyncSender<LoadRows>,
    done_from: mpsc::Receiver<Result<Box<LoadWriter>>>,
    handle: JoinHandle<()>,
}

impl Thread {
    fn start(mut writer: Box<LoadWriter>) -> Result<Thread> {
        let engine = Arc::clone(&writer.engine);
        let (rows_to, rows_from) = mpsc::sync_channel::<LoadRows>(ROWS_WAITING_MAX);
        let (done_to, done_from) = mpsc::sync_channel(1);
        let body = Box::new(move || {
            let done = rows_from.iter().try_for_each(|rows| writer.write(&rows));
            // A failed load is removed before it is reported.
            let _ = done_to.send(match done {
                Ok(()) => Ok(writer),
                Err(e) => {
                    drop(writer);
                    Err(e)
                }
            });
        });
        let handle = engine.settings.runtime.spawn("braiddb-load", body);
        let handle = handle.map_err(|e| Error::io("start a thread for", &engine.dir, e))?;
        Ok(Thread { rows_to, done_from, handle })
    }

    fn finish(self) -> Result<Box<LoadWriter>> {
        drop(self.rows_to);
        let outcome = self.done_from.recv();
        let panicked = || Error::ReadOnly { reason: "the thread that wrote the load panicked".to_owned() };
        if self.handle.join().is_err() {
            return Err(panicked());
        }
        outcome.map_err(|_| panicked())?
    }
}

/// Passes rows to a writer, in a thread of its own if the database has threads: input overlaps with
/// compression and writing. Dropping the sink discards the load.
#[derive(Debug)]
pub struct LoadSink {
    here: Option<Box<LoadWriter>>,
    there: Option<Thread>,
}

impl LoadSink {
    pub fn new(writer: LoadWriter) -> Result<LoadSink> {
        let has_threads = writer.engine.settings.background_threads > 0;
        let writer = Box::new(writer);
        match has_threads {
            true => Ok(LoadSink { here: None, there: Some(Thread::start(writer)?) }),
            false => Ok(LoadSink { here: Some(writer), there: None }),
        }
    }

    /// Unusable after an error.
    pub fn write(&mut self, rows: LoadRows) -> Result<()> {
        if let Some(writer) = &mut self.here {
            return writer.write(&rows);
        }
        match self.there.take() {
            Some(thread) if thread.rows_to.send(rows).is_ok() => {
                self.there = Some(thread);
                Ok(())
            }
            Some(thread) => thread.finish().map(|_| ()),
            None => Err(Error::InvalidArgument("the load has failed before: begin another".to_owned())),
        }
    }

    pub fn finish(mut self) -> Result<Box<LoadWriter>> {
        match (self.here.take(), self.there.take()) {
            (Some(writer), _) => Ok(writer),
            (None, Some(thread)) => thread.finish(),
            (None, None) => Err(Error::InvalidArgument("the load has failed before: begin another".to_owned())),
        }
    }
}

impl Drop for LoadSink {
    fn drop(&mut self) {
        if let Some(thread) = self.there.take() {
            drop(thread.finish());
        }
    }
}

pub fn check_lens(key_len: usize, value_len: usize) -> Result<()> {
    if key_len > limits::MAX_INTERNAL_KEY_LEN || value_len as u64 > limits::MAX_VALUE_LEN {
        let most = limits::MAX_VALUE_LEN;
        return Err(Error::InvalidArgument(format!(
            "a record of {key_len} + {value_len} bytes; a value has {most} at most"
        )));
    }
    Ok(())
}
