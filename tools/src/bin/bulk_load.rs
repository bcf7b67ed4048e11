//! Speed of loading: sorted, unsorted, in batches, and as ingested tables.
//!
//! ```text
//! cargo run --release -p tools --bin bulk_load -- RECORDS [TABLES [MEMORY_MIB [DIR]]]
//! ```
//!
//! Records have 16-byte keys and half compressible 100-byte values.

use braiddb::{
    Db, Durability, Tree,
    bulk::{BulkOptions, TableBuilder},
};
use std::{env, fs, path::Path, time::Instant};

const VALUE_LEN: usize = 100;

fn value(number: u64) -> [u8; VALUE_LEN] {
    let mut value = [b'v'; VALUE_LEN];
    let mut state = number;
    for chunk in value[..VALUE_LEN / 2].chunks_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
    value
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key-____--------";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// A permutation of the numbers below 2^bits.
fn scattered(number: u64, bits: u32) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & ((1 << bits) - 1)
}

/// Returns the peak memory in MiB; 0 except on Linux.
fn memory_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) >> 10
}

fn report(what: &str, records: u64, began: Instant, db: &Db) {
    let (seconds, stats) = (began.elapsed().as_secs_f64(), db.stats());
    let written = stats.run_bytes_written + stats.view_bytes_written + stats.log_bytes_written;
    println!(
        "{what:16} {seconds:8.3} s {:12.0} records/s  written {:6.1} MB, {:.2} per user byte; partitions {}; memory so far {} MiB",
        records as f64 / seconds,
        written as f64 / 1e6,
        written as f64 / stats.user_bytes_written.max(1) as f64,
        stats.partitions.len(),
        memory_mib()
    );
}

fn check(tree: &Tree, records: u64) -> braiddb::Result<()> {
    for number in (0..records).step_by((records / 1000).max(1) as usize) {
        assert_eq!(tree.get(key(number))?.as_deref(), Some(&value(number)[..]), "record {number}");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse::<u64>());
    let (records, tables, memory) = (number(1_000_000)?, number(100)?.max(1), number(256)?);
    let root = arguments.next().map_or_else(|| env::temp_dir().join("braid-bulk-load"), Into::into);
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root)?;
    let open = |name: &str| Db::builder().memory((memory << 20) as usize).open(root.join(name));

    let db = open("sorted")?;
    let tree = db.tree("t")?;
    let began = Instant::now();
    tree.bulk_load((0..records).map(|n| (key(n), value(n))))?;
    report("sorted load", records, began, &db);
    check(&tree, records)?;
    drop(tree);
    db.close()?;

    let db = open("unsorted")?;
    let tree = db.tree("t")?;
    let bits = 64 - records.leading_zeros();
    let any_order = (0..1u64 << bits).map(|n| scattered(n, bits)).filter(|n| *n < records);
    let began = Instant::now();
    let (mut sorted_s, mut spilled) = (None, 0);
    let mut progress = |progress: braiddb::bulk::BulkProgress| {
        spilled = progress.spilled_bytes;
        if progress.records_written > 0 {
            sorted_s.get_or_insert(began.elapsed().as_secs_f64());
        }
    };
    let options = BulkOptions::new().progress(&mut progress);
    tree.bulk_load_unsorted(any_order.map(|n| (key(n), value(n))), options)?;
    report("unsorted load", records, began, &db);
    println!("{:16} {:8.3} s  spilled {:6.1} MB", "  (sorting)", sorted_s.unwrap_or(0.0), spilled as f64 / 1e6);
    check(&tree, records)?;
    drop(tree);
    db.close()?;

    let db = open("batches")?;
    let tree = db.tree("t")?;
    let began = Instant::now();
    for first in (0..records).step_by(1000) {
        let mut batch = db.batch();
        (first..records.min(first + 1000)).for_each(|n| _ = batch.put(&tree, key(n), value(n)));
        batch.commit_with(Durability::Buffered)?;
    }
    db.flush()?;
    report("sorted batches", records, began, &db);
    drop(tree);
    db.close()?;

    let db = open("ingest")?;
    let tree = db.tree("t")?;
    let paths = build(&tree, records, tables, &root)?;
    let began = Instant::now();
    tree.ingest(&paths)?;
    report(&format!("{} tables", paths.len()), records, began, &db);
    check(&tree, records)?;
    drop(tree);
    db.close()?;
    fs::remove_dir_all(&root)?;
    Ok(())
}

fn build(
    tree: &Tree,
    records: u64,
    tables: u64,
    root: &Path,
) -> Result<Vec<std::path::PathBuf>, Box<dyn std::error::Error>> {
    let (spec, each) = (tree.table_spec()?, records.div_ceil(tables));
    let began = Instant::now();
    let mut paths = Vec::new();
    for first in (0..records).step_by(each as usize) {
        let path = root.join(format!("{first}.table"));
        let mut table = TableBuilder::create(&path, &spec)?;
        (first..records.min(first + each)).try_for_each(|n| table.add(key(n), value(n)))?;
        table.finish()?;
        paths.push(path);
    }
    println!("{:16} {:8.3} s", "(tables built)", began.elapsed().as_secs_f64());
    Ok(paths)
}
