//! What the tests of the database share: small databases, and where they are.

use super::{Db, Durability, Settings};
use crate::{
    base::Result,
    codec::Compression,
    platform::{MemVfs, SystemRuntime, Vfs, fault_vfs::FaultVfs},
    table::KeyBlocks,
};
use std::{
    path::Path,
    sync::{Arc, mpsc},
    time::Duration,
};

/// The directory of the database.
pub const DIR: &str = "/db";

/// A file system in memory.
pub fn mem() -> Arc<dyn Vfs> {
    Arc::new(MemVfs::new())
}

/// A file system that fails where it is told to.
pub fn fault(vfs: &FaultVfs) -> Arc<dyn Vfs> {
    Arc::new(vfs.clone())
}

/// The settings of a small database, which does its work inline; tests say in what theirs differs.
pub fn small(vfs: &Arc<dyn Vfs>) -> Settings {
    Settings {
        memory: 4 << 20,
        durability: Durability::Buffered,
        compression: Compression::Lz4,
        create: true,
        read_only: false,
        background_threads: 0,
        memtable_bytes: Some(16 << 10),
        partition_bytes: Some(64 << 10),
        loose_runs: 4,
        fold_bytes_per_entry: 10,
        log_segment_bytes: 16 << 10,
        block_bytes: 512,
        blob_threshold: 256,
        blob_file_bytes: 16 << 10,
        key_blocks: KeyBlocks::Always,
        hash_index_after: 1,
        read_in_place: true,
        merge_functions: Vec::new(),
        reader_age_warn_ns: u64::MAX,
        reader_age_max_ns: u64::MAX,
        vfs: Arc::clone(vfs),
        runtime: Arc::new(SystemRuntime::new()),
    }
}

/// The files as a killed process leaves them: all that was written, synced or not.
pub fn killed(vfs: &FaultVfs) -> FaultVfs {
    FaultVfs::of_files(Path::new(DIR), &vfs.files())
}

pub fn open(settings: Settings) -> Result<Db> {
    Db::open_with(settings, Path::new(DIR))
}

/// Fails, rather than hang, if `body` does not end.
#[expect(clippy::disallowed_methods, reason = "tests of threads")]
pub fn bounded<R: Send + 'static>(what: &str, body: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(body()));
    receiver.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| panic!("{what} has hung or panicked"))
}
