//! Many databases in one process, with one memory budget, one block cache and one set of threads.

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

/// What databases of one process share, if they are opened with it ([`crate::Builder::shared_runtime`]): a memory budget, a block cache and threads.
///
/// An open database that is idle then costs some descriptors and little memory, and no thread. Threads go from one database to the
/// next, so that a busy one keeps no other waiting for longer than a piece of work takes; what is not used by one is there for the
/// others; and each writer waits for flushes of its own database alone. It lasts as long as a database that was opened with it, or a handle of it. Cheap to clone.
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
    /// Without what is inside: see [`Db`](crate::Db).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedRuntime").field("memory", &self.0.memory()).finish_non_exhaustive()
    }
}

/// Makes a [`SharedRuntime`].
#[derive(Clone, Debug)]
pub struct SharedRuntimeBuilder {
    memory: usize,
    background_threads: usize,
    open_files_max: Option<usize>,
    runtime: Arc<dyn Runtime>,
}

/// What databases share, and how much of it is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedRuntimeStats {
    /// Databases that are open with it, and states of followers.
    pub databases: usize,
    /// Its threads: those for merges, two that flush, one for logs and one that removes files.
    pub threads: usize,
    /// The budget, in bytes.
    pub memory: usize,
    /// Bytes of memtables, cache and indexes of all databases.
    pub memory_bytes: u64,
    /// Bytes of those that memtables take, and what is kept for the next ones.
    pub memtable_bytes: u64,
    /// Bytes of those that the block cache takes.
    pub cache_bytes: u64,
    /// Blocks that were found in the cache, or read in place.
    pub cache_hits: u64,
    /// Blocks that were read into the cache, or checked to be read in place.
    pub cache_misses: u64,
}

impl SharedRuntime {
    /// For other than the default options.
    pub fn builder() -> SharedRuntimeBuilder {
        let runtime = Arc::new(SystemRuntime::new());
        SharedRuntimeBuilder { memory: 256 << 20, background_threads: 2, open_files_max: None, runtime }
    }

    /// One with so much memory, in bytes, and otherwise the defaults.
    pub fn with_memory(bytes: usize) -> Result<SharedRuntime> {
        SharedRuntime::builder().memory(bytes).build()
    }

    /// What is in use now. Takes time in proportion to how many databases are open.
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
    /// Memory for memtables, cache and index of all databases together, in bytes; 256 MiB by default. What a single operation needs for
    /// itself (a large value, a batch) comes on top. At least 64 KiB.
    pub fn memory(mut self, bytes: usize) -> SharedRuntimeBuilder {
        self.memory = bytes;
        self
    }

    /// Threads for merges; 2 by default. Two more flush, and one has log segments ready. With 0 there are none, and the committing thread
    /// does all that itself. 1024 at most.
    pub fn background_threads(mut self, threads: usize) -> SharedRuntimeBuilder {
        self.background_threads = threads;
        self
    }

    /// How many tables of all databases together may have a descriptor at once: see [`crate::Builder::open_files_max`], which does not count then.
    /// By default those databases have a part in the budget of the process.
    pub fn open_files_max(mut self, files: usize) -> SharedRuntimeBuilder {
        self.open_files_max = Some(files);
        self
    }

    /// The clock and threads of this; the system's own by default. The databases have those that they are opened with.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> SharedRuntimeBuilder {
        self.runtime = runtime;
        self
    }

    /// Starts the threads. Fails if the system has none to give, and with `InvalidArgument` for an option out of its range.
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
