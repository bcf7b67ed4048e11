//! A full scan does not evict frequently read blocks from the cache.

use braiddb::{Db, Durability, Tree, options::Tuning};

const ROWS: u32 = 150_000;

/// Frequently read keys, each in its own block: half of the cache, plus index pages.
const HOT: u32 = 800;

/// Maximum loss of hits by a scan, in percent.
const LOST_PERCENT: u64 = 5;

fn key(row: u32) -> [u8; 8] {
    u64::from(row).to_be_bytes()
}

/// Incompressible bytes.
fn value(row: u32) -> [u8; 100] {
    let mut state = u64::from(row);
    std::array::from_fn(|_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    })
}

/// An in-memory database twice as large as its cache. Tables are read through the cache.
fn database(row_at: impl Fn(u32) -> u32) -> (Db, Tree) {
    let builder = Db::builder()
        .background_threads(0)
        .memory(8 << 20)
        .tuning(Tuning::new().memtable_bytes(512 << 10))
        .read_in_place(false);
    let db = builder.open_in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    for from in (0..ROWS).step_by(500) {
        let mut batch = db.batch();
        for row in (from..from + 500).map(&row_at) {
            batch.put(&tree, key(row), value(row));
        }
        batch.commit_with(Durability::Buffered).unwrap();
    }
    db.flush().unwrap();
    (db, tree)
}

fn counted(db: &Db, work: impl FnOnce()) -> (u64, u64) {
    let before = db.stats();
    work();
    let after = db.stats();
    (after.cache_hits - before.cache_hits, after.cache_misses - before.cache_misses)
}

fn read_hot(db: &Db, tree: &Tree) -> (u64, u64) {
    counted(db, || {
        for row in (0..HOT).map(|i| i * (ROWS / HOT)) {
            assert_eq!(tree.get(key(row)).unwrap().as_deref(), Some(&value(row)[..]));
        }
    })
}

fn scan_beside_hot_set(db: &Db, tree: &Tree) {
    assert_eq!(tree.iter().count() as u32, ROWS);
    let stats = db.stats();
    let bytes: u64 = stats.partitions.iter().flat_map(|p| p.runs.iter().chain(&p.loose)).map(|run| run.bytes).sum();
    assert!(stats.cache_bytes > 6 << 20 && bytes > 2 * stats.cache_bytes, "{stats:?}");
    let warming: Vec<_> = (0..3).map(|_| read_hot(db, tree)).collect();
    assert!(warming[0].1 > u64::from(HOT) / 4, "the hot set was cached before its first read: {warming:?}");
    let (hits, misses) = read_hot(db, tree);
    assert_eq!(misses, 0, "the hot set fits into the cache: {warming:?}");
    let check = |when: &str| {
        let (left, missed) = read_hot(db, tree);
        println!("{when}: {left} of {hits} hits, {missed} misses");
        assert!((hits - left) * 100 < hits * LOST_PERCENT, "{when}, {left} of {hits} hits are left");
    };
    for _ in 0..3 {
        let (_, misses) = counted(db, || assert_eq!(tree.iter().count() as u32, ROWS));
        assert!(misses > 2 * u64::from(HOT), "the scan reads little: {misses} units");
        check("after a scan");
    }
    let mut scan = tree.iter();
    while scan.by_ref().take(ROWS as usize / 10).count() > 0 {
        check("beside a scan");
    }
}

/// One test for both cases: reads of another thread would keep evicted units in memory longer.
#[test]
fn hot_set_beside_scans_stays_cached() {
    let (db, tree) = database(|at| at);
    db.compact().unwrap();
    scan_beside_hot_set(&db, &tree);
    // A view of several runs, and unindexed runs: each five hundred rows are spread over all.
    let (db, tree) = database(|at| at % 500 * (ROWS / 500) + at / 500);
    let partition = &db.stats().partitions[0];
    assert!(partition.runs.len() > 2 && partition.loose.len() > 1, "{partition:?}");
    scan_beside_hot_set(&db, &tree);
}

/// In-memory tables take no cache space if they may be read in place.
#[test]
fn in_memory_tables_are_read_in_place() {
    for in_place in [true, false] {
        let builder =
            Db::builder().background_threads(0).memory(8 << 20).tuning(Tuning::new().memtable_bytes(512 << 10));
        let db = builder.read_in_place(in_place).open_in_memory().unwrap();
        let tree = db.tree("t").unwrap();
        for row in 0..20_000 {
            tree.put(key(row), value(row)).unwrap();
        }
        db.flush().unwrap();
        assert_eq!(tree.iter().count(), 20_000);
        let stats = db.stats();
        assert_eq!(stats.blocks_in_place > 0, in_place, "{stats:?}");
    }
}
