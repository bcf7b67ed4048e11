//! Databases that share a memory budget, a block cache and threads.

use super::{
    memory::Common,
    settings::{MEMORY_MAX, memtable_bytes_of},
    settings_check::{BACKGROUND_THREADS_MAX, MEMORY_MIN, OPEN_FILES_MIN, check_range},
};
use crate::{
    base::{Error, Result},
    platform::{OpenFiles, Runtime, SystemRuntime},
};
use std::{path::Path, sync::Arc};

/// Resources that databases share if they are opened with it: a memory budget, a block cache and
/// threads. See [`crate::Builder::shared_runtime`]. Cheap to clone.
///
/// An idle open database then needs some descriptors, little memory, and no thread. Threads serve
/// the databases in turn, so a busy one delays the others by at most one job. Each writer waits
/// only for flushes of its own database.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// # let place = tempfile::tempdir().unwrap();
/// let runtime = braiddb::SharedRuntime::builder().memory(64 << 20).background_threads(2).build()?;
/// let users: Vec<braiddb::Db> = (0..20)
///     .map(|user| braiddb::Db::builder().shared_runtime(&runtime).open(place.path().join(format!("{user}"))))
///     .collect::<braiddb::Result<_>>()?;
/// users[7].tree("mail")?.put(b"1", b"Hello")?;
/// assert_eq!(runtime.stats().databases, 20);
/// assert_eq!(runtime.stats().threads, 6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedRuntime(pub(in crate::db) Arc<Common>);

impl std::fmt::Debug for SharedRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedRuntime").field("memory", &self.0.memory()).finish_non_exhaustive()
    }
}

/// Builds a [`SharedRuntime`].
#[derive(Clone, Debug)]
pub struct SharedRuntimeBuilder {
    memory: usize,
    background_threads: usize,
    open_files_max: Option<usize>,
    runtime: Arc<dyn Runtime>,
}

/// The shared resources and their use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedRuntimeStats {
    /// Open databases, and states of followers.
    pub databases: usize,
    /// Number of threads.
    pub threads: usize,
    /// The budget, in bytes.
    pub memory: usize,
    /// Bytes of memtables, cache and indexes.
    pub memory_bytes: u64,
    /// Bytes of memtables, with pooled memory.
    pub memtable_bytes: u64,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Blocks found in the cache, or read in place.
    pub cache_hits: u64,
    /// Blocks read into the cache, or checked to be read in place.
    pub cache_misses: u64,
}

impl SharedRuntime {
    /// Returns a builder with default options.
    pub fn builder() -> SharedRuntimeBuilder {
        let runtime = Arc::new(SystemRuntime::new());
        SharedRuntimeBuilder { memory: 256 << 20, background_threads: 2, open_files_max: None, runtime }
    }

    /// Builds a runtime with a budget of `bytes`.
    pub fn with_memory(bytes: usize) -> Result<SharedRuntime> {
        SharedRuntime::builder().memory(bytes).build()
    }

    /// Returns the present use, in time proportional to the number of open databases.
    pub fn stats(&self) -> SharedRuntimeStats {
        let common = &self.0;
        let cache = common.cache.stats();
        SharedRuntimeStats {
            databases: common.databases().len(),
            threads: common.pool.threads(),
            memory: common.memory(),
            memory_bytes: common.memory_bytes(),
            memtable_bytes: common.memtable_bytes_taken(),
            cache_bytes: cache.usage_bytes,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
        }
    }
}

impl SharedRuntimeBuilder {
    /// Sets the memory for memtables, cache and indexes, in bytes; 256 MiB by default, at least 64
    /// KiB. A large value or a batch needs its own memory on top.
    pub fn memory(mut self, bytes: usize) -> SharedRuntimeBuilder {
        self.memory = bytes;
        self
    }

    /// Sets the number of merge threads; 2 by default, at most 1024. Two more threads flush, one
    /// prepares log segments, one removes files. Asynchronous commits start up to four that sync
    /// logs. With 0 there are none: the committing thread does the work.
    pub fn background_threads(mut self, threads: usize) -> SharedRuntimeBuilder {
        self.background_threads = threads;
        self
    }

    /// Sets the maximum of open tables, instead of [`crate::Builder::open_files_max`]. By default
    /// the databases share the budget of the process.
    pub fn open_files_max(mut self, files: usize) -> SharedRuntimeBuilder {
        self.open_files_max = Some(files);
        self
    }

    /// Sets the clock and the source of threads; each database keeps its own.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> SharedRuntimeBuilder {
        self.runtime = runtime;
        self
    }

    /// Starts the threads. Fails if the system cannot, or with `InvalidArgument` for an option out
    /// of range.
    pub fn build(self) -> Result<SharedRuntime> {
        check_range("memory", self.memory, MEMORY_MIN, MEMORY_MAX)?;
        check_range("background_threads", self.background_threads, 0, BACKGROUND_THREADS_MAX)?;
        if let Some(files) = self.open_files_max {
            check_range("open_files_max", files, OPEN_FILES_MIN, usize::MAX)?;
        }
        let memory = self.memory;
        let memtable_bytes = memtable_bytes_of(memory);
        let common = Common::new(memory, self.background_threads, &self.runtime, memtable_bytes, true);
        if let Some(max) = self.open_files_max {
            common.open_files.get_or_init(|| OpenFiles::new(max));
        }
        common.start().map_err(|e| Error::io("start threads for", Path::new("databases"), e))?;
        Ok(SharedRuntime(Arc::new(common)))
    }
}
