//! What an append and a durable commit cost. Not run by default: `cargo test --release measure_the_log -- --ignored
//! --nocapture`.

use super::*;
use crate::platform::{OpenMode, PosixVfs, Runtime};

const RECORD_LEN: usize = 150;

/// Runs `body` `count` times and tells nanoseconds a time: the mean and the median.
fn time(what: &str, count: u64, mut body: impl FnMut(u64)) {
    let runtime = SystemRuntime::new();
    let mut each: Vec<u64> = (1..=count)
        .map(|i| {
            let start = runtime.monotonic_ns();
            body(i);
            runtime.monotonic_ns() - start
        })
        .collect();
    let mean = each.iter().sum::<u64>() / count;
    each.sort_unstable();
    println!("{what}: mean {mean} ns, median {} ns, 99 % {} ns", each[each.len() / 2], each[each.len() * 99 / 100]);
}

#[test]
#[ignore = "measures, and tests nothing"]
fn measure_the_log() {
    let dir = tempfile::tempdir_in(std::env::var("MEASURE_DIR").unwrap_or_else(|_| ".".to_owned())).unwrap();
    let vfs = Arc::new(PosixVfs::new());
    let next_number = AtomicU64::new(1);
    let context = WalContext {
        vfs: vfs.clone(),
        dir: dir.path().to_owned(),
        runtime: Arc::new(SystemRuntime::new()),
        next_file_number: Arc::new(move || next_number.fetch_add(1, Ordering::Relaxed)),
        pre_sync: None,
    };
    let wal = Wal::create(context, WalOptions::default(), WalStart::new_log()).unwrap();
    let payload = [7; RECORD_LEN];
    let mut sequence = 0;
    let mut append = || {
        sequence += 1;
        wal.append(&group(sequence), &payload).unwrap()
    };

    let bare = vfs.open(&dir.path().join("bare"), OpenMode::CreateNew).unwrap();
    bare.preallocate(16 << 20).unwrap();
    bare.sync_data().unwrap();
    let record = [7; RECORD_LEN + 64];
    for _round in 0..2 {
        time("pwrite", 40_000, |i| bare.write_at(&record, (i - 1) % 70_000 * 216).unwrap());
        time("append", 40_000, |_| drop(append()));
        wal.sync(wal.end_lsn()).unwrap();
        bare.sync_data().unwrap();
        time("pwrite + fdatasync", 500, |i| {
            bare.write_at(&record, (i - 1) * 216).unwrap();
            bare.sync_data().unwrap();
        });
        time("append + sync", 500, |_| drop(wal.sync(append()).unwrap()));
    }
    println!("{:?}", wal.stats());
}
