//! Helpers of all batteries.

#![allow(dead_code, reason = "each battery uses a part")]

use braiddb::{
    Builder, Compression, Db, Error, Tree,
    merge::MergeFunctionHandle,
    options::Tuning,
    platform::{RateLimiter, Vfs},
};
use braiddb_sim::{
    Random, SimDisk, SimRuntime, mix,
    model::{Change, Contents, moment},
    numbered::FOLD_BYTES_PER_ENTRY,
};
use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc, Once,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

#[cfg(any(unix, windows))]
pub mod children;
pub mod coverage;
pub mod threads;
pub mod view;
pub mod workload;
pub mod writer;

pub const PATH: &str = "/data/test.db";

pub fn empty_disk(seed: u64) -> Arc<SimDisk> {
    let disk = SimDisk::new(seed);
    disk.create_dir_all(Path::new(PATH).parent().expect("a parent")).expect("a directory");
    disk.fork()
}

/// `BRAIDDB_SEED` or a fixed seed; printed.
pub fn seed() -> u64 {
    let seed = std::env::var("BRAIDDB_SEED").ok().map_or(20_260_101, |text| text.parse().expect("a number as seed"));
    println!("BRAIDDB_SEED={seed}");
    seed
}

/// `full` times `BRAIDDB_VOLUME`, by default 1 in release builds and 0.03 in debug builds.
pub fn volume(full: u64) -> u64 {
    let default = if cfg!(debug_assertions) { 0.03 } else { 1.0 };
    let factor = std::env::var("BRAIDDB_VOLUME").ok().map_or(default, |text| text.parse().expect("a factor as volume"));
    ((full as f64 * factor) as u64).max(1)
}

#[derive(Clone, Debug)]
pub struct SmallOptions {
    pub memtable_bytes: usize,
    pub partition_bytes: u64,
    pub loose_runs: usize,
    pub log_segment_bytes: u64,
    pub block_bytes: usize,
    pub blob_threshold: usize,
    pub blob_file_bytes: u64,
    pub compression: Compression,
    pub key_blocks: bool,
    pub map_log: bool,
    pub fold_bytes_per_entry: u64,
    pub hash_index_after: u64,
}

impl Default for SmallOptions {
    fn default() -> Self {
        SmallOptions {
            memtable_bytes: 16 << 10,
            partition_bytes: 64 << 10,
            loose_runs: 4,
            log_segment_bytes: 8 << 10,
            block_bytes: 512,
            blob_threshold: 1000,
            blob_file_bytes: 16 << 10,
            compression: Compression::Lz4,
            key_blocks: true,
            map_log: false,
            fold_bytes_per_entry: FOLD_BYTES_PER_ENTRY[0],
            hash_index_after: 1,
        }
    }
}

impl SmallOptions {
    pub fn random(random: &mut Random) -> SmallOptions {
        SmallOptions {
            memtable_bytes: 1 << (10 + random.below(7)),
            partition_bytes: 1 << (12 + random.below(7)),
            loose_runs: 2 + random.index(8),
            log_segment_bytes: 1 << (12 + random.below(5)),
            block_bytes: 1 << (7 + random.below(6)),
            blob_threshold: [64, 600, 2000, 1 << 20][random.index(4)],
            blob_file_bytes: 1 << (12 + random.below(6)),
            compression: [Compression::None, Compression::Lz4, Compression::Zstd][random.index(3)],
            key_blocks: random.chance(1, 2),
            map_log: random.chance(1, 2),
            fold_bytes_per_entry: FOLD_BYTES_PER_ENTRY[random.index(2)],
            hash_index_after: [1, 100, u64::MAX][random.index(3)],
        }
    }

    pub fn builder(&self, disk: &Arc<SimDisk>, seed: u64) -> Builder {
        self.builder_by(disk, SimRuntime::new(mix(seed, disk.next_session())))
    }

    pub fn builder_by(&self, disk: &Arc<SimDisk>, runtime: Arc<SimRuntime>) -> Builder {
        disk.set_mapping(self.map_log || disk.maps_files());
        let vfs: Arc<dyn Vfs> = disk.clone();
        let builder = match self.loose_runs % 4 {
            0 => Db::builder().create_parents(true).rate_limiter(Arc::new(RateLimiter::new(1 << 28))),
            1 => {
                let limiter = RateLimiter::by_latency(1 << 26, 1 << 28, Duration::from_micros(50));
                Db::builder().create_parents(true).rate_limiter(Arc::new(limiter))
            }
            _ => Db::builder().create_parents(true),
        };
        let tuning = Tuning::new()
            .memtable_bytes(self.memtable_bytes)
            .partition_bytes(self.partition_bytes)
            .unindexed_runs(self.loose_runs)
            .fold_bytes_per_entry(self.fold_bytes_per_entry)
            .hash_index_after(self.hash_index_after)
            .log_segment_bytes(self.log_segment_bytes)
            .block_bytes(self.block_bytes)
            .blob_file_bytes(self.blob_file_bytes)
            .key_blocks(self.key_blocks);
        builder
            .vfs(vfs)
            .runtime(runtime)
            .background_threads(0)
            .memory(4 << 20)
            .tuning(tuning)
            .blob_threshold(self.blob_threshold)
            .compression(self.compression)
            .open_files_max(if self.loose_runs.is_multiple_of(2) { 4 } else { 1000 })
    }

    pub fn open(&self, disk: &Arc<SimDisk>, seed: u64) -> braiddb::Result<Db> {
        self.builder(disk, seed).open(PATH)
    }
}

pub const TREES: [&str; 2] = ["zero", "one"];

pub fn open_trees(db: &Db) -> braiddb::Result<Vec<Tree>> {
    TREES.iter().map(|name| db.tree(name)).collect()
}

/// A missing tree counts as empty.
pub fn read_all(db: &Db) -> braiddb::Result<Contents> {
    let mut contents = Contents::new();
    for (number, name) in TREES.iter().enumerate() {
        let tree = match db.open_tree(name) {
            Err(e) if e.is_not_found() => continue,
            other => other?,
        };
        for entry in tree.iter() {
            let (key, value) = entry?;
            let twice = contents.insert((number as u32, key.to_vec()), value.to_vec());
            assert!(twice.is_none(), "a scan gave the key {key:?} twice");
        }
    }
    Ok(contents)
}

pub fn check_all_reads(db: &Db, expected: &Contents) -> braiddb::Result<()> {
    let found = read_all(db)?;
    assert!(found == *expected, "a scan: {}", braiddb_sim::model::difference(expected, &found));
    for (number, name) in TREES.iter().enumerate() {
        let tree = match db.open_tree(name) {
            Err(e) if e.is_not_found() => continue,
            other => other?,
        };
        let of_tree: Vec<_> = expected.iter().filter(|((of, _), _)| *of == number as u32).collect();
        let mut backwards = tree.iter().rev();
        for ((_, key), value) in of_tree.iter().rev() {
            let (found_key, found) = backwards.next().expect("a scan backwards ends too early")?;
            assert!(*found_key == **key && *found == ***value, "a scan backwards");
        }
        assert!(backwards.next().transpose()?.is_none(), "a backward scan returns too many rows");
        let mut keys: Vec<&[u8]> = of_tree.iter().map(|((_, key), _)| key.as_slice()).collect();
        keys.extend([&b"none"[..], b"", b"\xff\xff\xff"]);
        let many = tree.multi_get(&keys)?;
        for (key, found) in keys.iter().zip(many) {
            let expected = expected.get(&(number as u32, key.to_vec())).map(Vec::as_slice);
            assert!(found.as_deref() == expected, "multi_get of {}", braiddb_sim::model::short(key));
            assert!(tree.get(key)?.as_deref() == expected, "get of {}", braiddb_sim::model::short(key));
        }
    }
    Ok(())
}

pub fn batch_of(db: &Db, trees: &[Tree], changes: &[Change]) -> braiddb::Batch {
    let mut batch = db.batch();
    for change in changes {
        match change {
            Change::Put(tree, key, value) => batch.put(&trees[*tree as usize], key, value),
            Change::Delete(tree, key) => batch.delete(&trees[*tree as usize], key),
            Change::DeleteRange(tree, bounds) => batch.delete_range(&trees[*tree as usize], bounds.clone()),
            Change::Append(tree, key, more) | Change::Extend(tree, key, more) => {
                batch.merge(&trees[*tree as usize], key, &append_of(db), more)
            }
            Change::PutUntil(tree, key, value, expires_us) => {
                batch.put_until(&trees[*tree as usize], key, value, moment(*expires_us))
            }
        };
    }
    batch
}

pub fn append_of(db: &Db) -> MergeFunctionHandle {
    db.merge_function("append").expect("a built-in function")
}

pub fn value(len: usize, tag: u64) -> Vec<u8> {
    let mut bytes = Random::new(tag).bytes(len);
    bytes[len / 2..].fill(tag as u8);
    if let Some(first) = bytes.first_mut() {
        *first = tag as u8;
    }
    bytes
}

/// Adds `what` to the text of a panic.
pub fn explained<R>(what: impl Fn() -> String, body: impl FnOnce() -> R) -> R {
    quietly(body).unwrap_or_else(|text| panic!("{}: {text}", what()))
}

thread_local! {
    static QUIET: Cell<u32> = const { Cell::new(0) };
}

pub fn quietly<R>(body: impl FnOnce() -> R) -> Result<R, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.get() == 0 {
                loud(info);
            } else if let Some(place) = info.location() {
                PLACE.set(place.to_string());
            }
        }));
    });
    QUIET.set(QUIET.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(body));
    QUIET.set(QUIET.get() - 1);
    outcome.map_err(|cause| {
        let text = text_of(&*cause);
        if text.contains(" [at ") { text } else { format!("{text} [at {}]", PLACE.take()) }
    })
}

thread_local! {
    static PLACE: Cell<String> = const { Cell::new(String::new()) };
}

pub fn text_of(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without text".to_owned())
}

pub fn in_parallel(count: usize, body: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(count) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    body(index);
                }
            });
        }
    });
}

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub fn full_text(error: &Error) -> String {
    format!("{error} ({error:?})")
}
