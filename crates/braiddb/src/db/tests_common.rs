//! Small databases and file systems for tests.

use super::{Db, Durability, Settings, Tree};
use crate::{
    base::{EntryKind, Result},
    codec::{Base, Compression, Operand, encode_operands},
    platform::{MemVfs, Runtime, SystemRuntime, Vfs, fault_vfs::FaultVfs},
    table::KeyBlocks,
};
use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

pub const DIR: &str = "/db";

pub const SECOND_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub struct Clock {
    now_ns: AtomicU64,
    wall_ahead_us: AtomicI64,
    system: SystemRuntime,
}

impl Clock {
    pub fn new() -> Arc<Clock> {
        Arc::new(Clock {
            now_ns: AtomicU64::new(1000 * SECOND_NS),
            wall_ahead_us: AtomicI64::new(0),
            system: SystemRuntime::new(),
        })
    }

    pub fn advance(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Ordering::SeqCst);
    }

    pub fn set_wall(&self, ahead_us: i64) {
        self.wall_ahead_us.store(ahead_us, Ordering::SeqCst);
    }
}

impl Runtime for Clock {
    fn unix_time_us(&self) -> u64 {
        (self.monotonic_ns() / 1000).saturating_add_signed(self.wall_ahead_us.load(Ordering::SeqCst))
    }
    fn monotonic_ns(&self) -> u64 {
        self.now_ns.load(Ordering::SeqCst)
    }
    fn random_u64(&self) -> u64 {
        self.system.random_u64()
    }
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        self.system.spawn(name, body)
    }
    fn sleep_us(&self, micros: u64) {
        self.advance(micros * 1000);
    }
    fn process_name(&self) -> String {
        self.system.process_name()
    }
}

pub fn mem() -> Arc<dyn Vfs> {
    Arc::new(MemVfs::new())
}

/// Maps runs, so that they are read in place.
pub fn mapped() -> Arc<dyn Vfs> {
    Arc::new(MemVfs::mapped(".run"))
}

/// A file system with injected failures.
pub fn fault(vfs: &FaultVfs) -> Arc<dyn Vfs> {
    Arc::new(vfs.clone())
}

/// Settings of a small database that works inline.
pub fn small(vfs: &Arc<dyn Vfs>) -> Settings {
    Settings {
        memory: 4 << 20,
        durability: Durability::Buffered,
        compression: Compression::Lz4,
        create: true,
        create_parents: true,
        read_only: false,
        background_threads: 0,
        memtable_bytes: Some(16 << 10),
        partition_bytes: Some(64 << 10),
        loose_runs: 4,
        fold_bytes_per_entry: 10,
        dead_percent: None,
        listener: None,
        log_segment_bytes: 16 << 10,
        block_bytes: 512,
        blob_threshold: 256,
        blob_file_bytes: 16 << 10,
        stream_len_max: u64::MAX >> 32,
        key_blocks: KeyBlocks::Always,
        hash_index_after: 1,
        read_in_place: true,
        direct_io: false,
        merge_functions: Vec::new(),
        shared: None,
        log_retention_bytes: None,
        log_retention_age_us: None,
        reader_age_warn_ns: u64::MAX,
        reader_age_max_ns: u64::MAX,
        exclusive_wait_ns: 30 * SECOND_NS,
        slow_commit_ns: u64::MAX,
        log_archive: None,
        open_files_max: None,
        rate_limiter: None,
        scrub_bytes_per_second: 0,
        open_files: None,
        disk_reserve: None,
        volume_bytes: None,
        is_restoring: false,
        vfs: Arc::clone(vfs),
        runtime: Arc::new(SystemRuntime::new()),
    }
}

/// Returns 1,000 bytes that do not compress.
pub fn noise(seed: u32) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..1_000).map(|_| next()).collect()
}

/// The files after a kill of the process: all writes, synced or not.
pub fn killed(vfs: &FaultVfs) -> FaultVfs {
    FaultVfs::of_files(Path::new(DIR), &vfs.files())
}

pub fn open(settings: Settings) -> Result<Db> {
    Db::open_with(settings, Path::new(DIR))
}

/// Panics instead of hanging if `body` does not end.
#[expect(clippy::disallowed_methods, reason = "tests of threads")]
pub fn bounded<R: Send + 'static>(what: &str, body: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(body()));
    receiver.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| panic!("{what} has hung or panicked"))
}

impl Tree {
    /// Writes an unchecked operand, as earlier versions could.
    pub fn merge_unchecked(&self, key: &[u8], function: u64, operand: &[u8]) {
        let operand = Operand { function, bytes: operand };
        let value = encode_operands(Base::Beneath, 0, std::iter::once(operand));
        self.write(EntryKind::Merge, key, &value).unwrap();
    }
}
