//! Tables built without the database, by any process, and ingested whole.
//!
//! A table is a run file without sequence numbers (`docs/internals/format.md`) that contains its
//! own view. Entries are values (kind 1) or expiring values (kind 5). Expiry is in the database's
//! time, so `export_tables` and `ingest` of one database keep it to the microsecond.

use super::{
    bulk::disorder,
    writer::{LoadWriter, Loaded, check_lens},
};
use crate::{
    base::{Content, EntryKind, EntryRef, Error, Result, TreeId},
    cache::BlockCache,
    codec::Compression,
    compaction::PART_BLOCKS_MAX,
    db::{
        engine::{key::check_key, tree_options::micros},
        handles::{expiry::since_1970, tree::Tree},
    },
    platform::{OpenMode, Runtime, SystemTime, Vfs},
    table::{Run, RunMeta, RunOptions, TableContext},
    version::FileSet,
    view::SortedRunWriter,
};
use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

/// Maximum bytes of a value: a table has no blob files.
const VALUE_LEN_MAX: usize = 8 << 20;

const TABLE_BYTES_MAX: u64 = 1 << 30;

const COPY_BYTES: usize = 1 << 20;

/// The properties of a tree that a table builder needs: number, compression and TTL. Its text can
/// be passed to another process.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// let db = braiddb::Db::in_memory()?;
/// let text = db.tree("albums")?.table_spec()?.to_string();
/// let spec: braiddb::bulk::TableSpec = text.parse()?;
/// assert_eq!(spec.to_string(), text);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSpec {
    tree: TreeId,
    compression: Compression,
    block_bytes: usize,
    ttl_us: Option<u64>,
}

impl fmt::Display for TableSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TableSpec { tree, compression, block_bytes, ttl_us } = self;
        match ttl_us {
            None => write!(f, "braid-table-1:{}:{}:{block_bytes}", tree.0, *compression as u8),
            Some(ttl_us) => write!(f, "braid-table-2:{}:{}:{block_bytes}:{ttl_us}", tree.0, *compression as u8),
        }
    }
}

impl FromStr for TableSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<TableSpec> {
        let bad = || Error::InvalidArgument(format!("{text:?} is no table spec: take what Tree::table_spec gives"));
        let parts: Vec<&str> = text.split(':').collect();
        let (tree, compression, block_bytes, ttl_us) = match parts[..] {
            ["braid-table-1", tree, compression, block_bytes] => (tree, compression, block_bytes, None),
            ["braid-table-2", tree, compression, block_bytes, ttl_us] => {
                (tree, compression, block_bytes, Some(ttl_us.parse().map_err(|_| bad())?))
            }
            _ => return Err(bad()),
        };
        Ok(TableSpec {
            tree: TreeId(tree.parse().map_err(|_| bad())?),
            compression: compression.parse().ok().and_then(Compression::from_byte).ok_or_else(bad)?,
            block_bytes: block_bytes.parse().map_err(|_| bad())?,
            ttl_us,
        })
    }
}

/// Properties of a finished table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// The path.
    pub path: PathBuf,
    /// The number of records.
    pub records: u64,
    /// The file's length in bytes.
    pub file_bytes: u64,
    /// The first key.
    pub first_key: Vec<u8>,
    /// The last key.
    pub last_key: Vec<u8>,
}

/// Builds a table of sorted records. Needs no database, some megabytes of memory, and about 5 bytes
/// more per record.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let db = braiddb::Db::open(dir.path().join("db"))?;
/// let squares = db.tree("squares")?;
/// let spec = squares.table_spec()?;
/// // The table may be built in another process.
/// let path = dir.path().join("squares.table");
/// let mut table = braiddb::bulk::TableBuilder::create(&path, &spec)?;
/// for number in 0..1000u32 {
///     table.add(number.to_be_bytes(), (number * number).to_le_bytes())?;
/// }
/// assert_eq!(table.finish()?.records, 1000);
/// // Then:
/// squares.ingest([&path])?;
/// assert_eq!(squares.get(30u32.to_be_bytes())?.as_deref(), Some(&900u32.to_le_bytes()[..]));
/// # Ok(())
/// # }
/// ```
pub struct TableBuilder {
    path: PathBuf,
    vfs: Arc<dyn Vfs>,
    tree: [u8; 4],
    run: Option<SortedRunWriter>,
    key: Vec<u8>,
    expires_us: Option<u64>,
    runtime: Arc<dyn Runtime>,
    records: u64,
    is_finished: bool,
}

impl std::fmt::Debug for TableBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableBuilder").finish_non_exhaustive()
    }
}

impl TableBuilder {
    /// Creates a table in a new file, which must not exist.
    pub fn create(path: impl AsRef<Path>, spec: &TableSpec) -> Result<TableBuilder> {
        TableBuilder::create_in(
            Arc::new(crate::platform::SystemVfs::new()),
            Arc::new(crate::platform::SystemRuntime::new()),
            path.as_ref(),
            spec,
        )
    }

    /// Creates a table in any file system.
    pub fn create_in(
        vfs: Arc<dyn Vfs>,
        runtime: Arc<dyn Runtime>,
        path: &Path,
        spec: &TableSpec,
    ) -> Result<TableBuilder> {
        spec.compression.check()?;
        let id = runtime.random_u64();
        let expires_us = spec.ttl_us.map(|ttl_us| runtime.unix_time_us().saturating_add(ttl_us));
        let context =
            TableContext { runtime: Arc::clone(&runtime), ..TableContext::new(Arc::clone(&vfs), BlockCache::new(0)) };
        let options = RunOptions {
            compression: spec.compression,
            block_bytes: spec.block_bytes,
            is_unnumbered: true,
            ..RunOptions::default()
        };
        Ok(TableBuilder {
            run: Some(SortedRunWriter::create(&context, path, 0, id, &options)?),
            path: path.to_owned(),
            vfs,
            tree: spec.tree.first_key(),
            key: Vec::new(),
            expires_us,
            runtime,
            records: 0,
            is_finished: false,
        })
    }

    /// Adds a record. If its key is not greater than all earlier keys, `InvalidArgument` names the
    /// record. Any error makes the table unusable. With a [`crate::TreeOptions::ttl`] the value
    /// expires that long after the table was created.
    pub fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add_with_end(key.as_ref(), value.as_ref(), self.expires_us)
    }

    /// Adds a record whose value expires after `ttl` from now: see [`Tree::put_with_ttl`].
    pub fn add_with_ttl(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> Result<()> {
        let expires_us = self.runtime.unix_time_us().saturating_add(micros(ttl));
        self.add_with_end(key.as_ref(), value.as_ref(), Some(expires_us))
    }

    /// Adds a record whose value expires at `expires` by the wall clock: see [`Tree::put_until`]. A
    /// database whose time is ahead of it, because its clock was set back, expires the value that
    /// much earlier.
    pub fn add_until(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: SystemTime) -> Result<()> {
        self.add_with_end(key.as_ref(), value.as_ref(), Some(since_1970(expires)))
    }

    /// `expires_us` is in the database's time.
    pub(in crate::db) fn add_with_end(&mut self, key: &[u8], value: &[u8], expires_us: Option<u64>) -> Result<()> {
        self.try_add(key, value, expires_us).inspect_err(|_| self.run = None)
    }

    fn try_add(&mut self, key: &[u8], value: &[u8], expires_us: Option<u64>) -> Result<()> {
        check_key(key)?;
        check_lens(key.len(), value.len())?;
        if value.len() > VALUE_LEN_MAX {
            return Err(Error::InvalidArgument(format!(
                "a value of {} bytes; in a table it has {VALUE_LEN_MAX} at most: load it with bulk_load",
                value.len()
            )));
        }
        let run = self.run.as_mut().ok_or_else(over)?;
        let last = run.last_key().get(self.tree.len()..);
        if last.is_some_and(|last| last >= key) {
            return Err(disorder(self.records + 1, key, last.unwrap_or_default()));
        }
        self.key.clear();
        self.key.extend_from_slice(&self.tree);
        self.key.extend_from_slice(key);
        let mut room = Vec::new();
        let (kind, value) = Content { kind: EntryKind::Value, value, expires_us }.entry(&mut room);
        run.add(EntryRef { key: &self.key, sequence: 0, kind, value })?;
        self.records += 1;
        Ok(())
    }

    /// Estimates the table's length in bytes.
    pub fn estimated_bytes(&self) -> u64 {
        self.run.as_ref().map_or(0, SortedRunWriter::estimated_bytes)
    }

    /// Returns whether the table has its intended size. It can take half as much again.
    pub fn is_full(&self) -> bool {
        self.estimated_bytes() >= TABLE_BYTES_MAX
            || self.run.as_ref().is_some_and(|run| run.block_count() >= PART_BLOCKS_MAX)
    }

    /// Completes the table and makes it durable under its name.
    pub fn finish(mut self) -> Result<TableInfo> {
        let run = self.run.take().ok_or_else(over)?;
        if self.records == 0 {
            return Err(Error::InvalidArgument("a table without records".to_owned()));
        }
        let meta = run.finish()?;
        if let Some(dir) = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            self.vfs.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
        }
        self.is_finished = true;
        Ok(TableInfo {
            path: self.path.clone(),
            records: meta.entries,
            file_bytes: meta.file_bytes,
            first_key: meta.smallest[self.tree.len()..].to_vec(),
            last_key: meta.largest[self.tree.len()..].to_vec(),
        })
    }
}

fn over() -> Error {
    Error::InvalidArgument("the table has failed before: begin another".to_owned())
}

impl Drop for TableBuilder {
    fn drop(&mut self) {
        self.run = None;
        if !self.is_finished
            && let Err(error) = self.vfs.remove(&self.path)
        {
            tracing::debug!(path = %self.path.display(), %error, "an unfinished table could not be removed");
        }
    }
}

struct Incoming {
    path: PathBuf,
    meta: RunMeta,
}

impl Tree {
    /// Returns the properties that a table builder needs.
    pub fn table_spec(&self) -> Result<TableSpec> {
        let state = self.state();
        state.check()?;
        let settings = &self.db().engine().settings;
        Ok(TableSpec {
            tree: state.id,
            compression: state.options.get().compression.unwrap_or(settings.compression),
            block_bytes: settings.block_bytes,
            ttl_us: state.options.ttl_us(),
        })
    }

    /// Ingests tables that [`TableBuilder`] made for this tree by one durable commit, as if their
    /// records were put now. Tables may come in any order, but must not overlap.
    ///
    /// Records keep the expiry times of the tables; others do not expire, whatever the tree's
    /// [`crate::TreeOptions::ttl`]. An expired record hides older versions.
    ///
    /// A table becomes a hard link to the file, or a copy where that is impossible. The file may be
    /// removed afterwards, but **must not be changed**. Costs a few reads per table: header, footer
    /// and index are checked now, records when they are read ([`crate::Db::verify`] reads all).
    ///
    /// Errors: `InvalidArgument` for a file that is no table of this tree, and for overlapping
    /// tables; `Corruption` for a damaged or truncated one; `Unsupported` for one from a newer
    /// version.
    pub fn ingest<P: AsRef<Path>>(&self, paths: impl IntoIterator<Item = P>) -> Result<Loaded> {
        let engine = self.db().engine();
        let mut writer = LoadWriter::new(engine, self.state())?;
        let mut tables = Vec::new();
        for path in paths {
            let path = path.as_ref().to_owned();
            let meta = table_meta(&engine.storage.table, &path, self.state().id)?;
            tables.push(Incoming { path, meta });
        }
        tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
        if let Some([a, b]) = tables.windows(2).find(|pair| pair[0].meta.largest >= pair[1].meta.smallest) {
            return Err(Error::InvalidArgument(format!(
                "the tables {} and {} overlap: take them in one after the other",
                a.path.display(),
                b.path.display()
            )));
        }
        for table in tables {
            let inside = engine.health.enter()?;
            engine.health.check_writable()?;
            let number = engine.storage.new_file_number();
            let to = FileSet::run_path(&engine.dir, number);
            writer.adopt(to.clone());
            take_in(&*engine.settings.vfs, &table.path, &to)?;
            // The file may have changed since the first read.
            let meta = table_meta(&engine.storage.table, &to, self.state().id)?;
            if (RunMeta { number: 0, ..meta.clone() }) != (RunMeta { number: 0, ..table.meta }) {
                return Err(Error::InvalidArgument(format!(
                    "the table {} was changed meanwhile",
                    table.path.display()
                )));
            }
            drop(inside);
            writer.note_adopted(RunMeta { number, ..meta });
        }
        writer.install()
    }
}

fn table_meta(context: &TableContext, path: &Path, tree: TreeId) -> Result<RunMeta> {
    let no_table = |what: &str| {
        Error::InvalidArgument(format!(
            "{} {what}: give ingest what TableBuilder has made for this tree",
            path.display()
        ))
    };
    let meta = Run::read_unnumbered_meta(context, path, 0)?;
    let meta = meta.ok_or_else(|| no_table("is no table, but a run of a database"))?;
    let prefix = tree.first_key();
    if !meta.smallest.starts_with(&prefix) || !meta.largest.starts_with(&prefix) {
        return Err(no_table("was made for another tree"));
    }
    if meta.entries == 0
        || meta.view_bytes == 0
        || meta.tombstones > 0
        || !meta.blob_uses.is_empty()
        || meta.smallest > meta.largest
    {
        return Err(no_table("is no table that can be taken in"));
    }
    Ok(meta)
}

fn take_in(vfs: &dyn Vfs, from: &Path, to: &Path) -> Result<()> {
    if vfs.hard_link(from, to).is_ok() {
        // Its builder may not have synced it.
        let synced = vfs.open(to, OpenMode::ReadWrite).and_then(|file| file.sync_data());
        return match synced {
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                vfs.remove(to).map_err(|e| Error::io("remove", to, e))?;
                copy(vfs, from, to)
            }
            synced => synced.map_err(|e| Error::io("sync", to, e)),
        };
    }
    copy(vfs, from, to)
}

fn copy(vfs: &dyn Vfs, from: &Path, to: &Path) -> Result<()> {
    let source = vfs.open(from, OpenMode::Read).map_err(|e| Error::io("open", from, e))?;
    let len = source.len().map_err(|e| Error::io("read the length of", from, e))?;
    let target = vfs.open(to, OpenMode::CreateNew).map_err(|e| Error::io("create", to, e))?;
    let mut buffer = Vec::new();
    for at in (0..len).step_by(COPY_BYTES) {
        buffer.resize((len - at).min(COPY_BYTES as u64) as usize, 0);
        source.read_exact_at(&mut buffer, at).map_err(|e| Error::io("read", from, e))?;
        target.write_at(&buffer, at).map_err(|e| Error::io("write", to, e))?;
    }
    target.sync_data().map_err(|e| Error::io("sync", to, e))
}
