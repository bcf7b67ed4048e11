//! Garbage under write load, with and without a limit.

use crate::db::{
    Settings, Stats,
    engine::parts::garbage_limit::GarbageLimit,
    tests_common::{mem, open, small},
};
use std::collections::BTreeMap;

const ROWS: u64 = 6000;

fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn key(row: u64) -> Vec<u8> {
    format!("row{row:07}").into_bytes()
}

fn entries(stats: &Stats) -> u64 {
    let runs = stats.partitions.iter().flat_map(|partition| partition.runs.iter().chain(&partition.loose));
    runs.map(|run| (run.number, run.entries)).collect::<BTreeMap<_, _>>().values().sum()
}

/// Overwrites the data many times, with occasional deletes. Returns the maximum entries in runs
/// after the first fifth, in percent of the live entries, and the bytes written to runs and views.
fn overwritten(dead_percent: Option<u64>) -> (u64, u64) {
    let settings =
        Settings { memtable_bytes: Some(32 << 10), partition_bytes: Some(128 << 10), dead_percent, ..small(&mem()) };
    let db = open(settings).unwrap();
    let tree = db.tree("rows").unwrap();
    let mut rows: BTreeMap<u64, u64> = BTreeMap::new();
    let put = |rows: &mut BTreeMap<u64, u64>, row: u64, version: u64| {
        tree.put(key(row), [version.to_le_bytes(); 5].concat()).unwrap();
        rows.insert(row, version);
    };
    (0..ROWS).for_each(|row| put(&mut rows, mix(row) % ROWS, row));
    let mut most = 0;
    for version in 0..40_000 {
        let row = mix(version ^ 0xabcd) % ROWS;
        if version % 20 == 0 {
            tree.delete(key(row)).unwrap();
            rows.remove(&row);
        } else {
            put(&mut rows, row, version);
        }
        if version > 8000 && version % 100 == 0 {
            most = most.max(entries(&db.stats()) * 100 / rows.len() as u64);
        }
    }
    for (row, version) in &rows {
        let expected = [version.to_le_bytes(); 5].concat();
        assert_eq!(tree.get(key(*row)).unwrap().as_deref(), Some(&expected[..]), "row {row}");
    }
    assert_eq!(tree.iter().count(), rows.len());
    let stats = db.stats();
    (most, stats.run_bytes_written + stats.view_bytes_written)
}

#[test]
fn no_more_is_dead_than_asked_for_while_there_are_commits() {
    let (most, written) = overwritten(None);
    let (most_with_twenty, written_with_twenty) = overwritten(Some(20));
    let (most_with_ten, written_with_ten) = overwritten(Some(10));
    println!(
        "{most} {most_with_twenty} {most_with_ten} % of what there is; {written} {written_with_twenty} {written_with_ten} bytes written"
    );
    assert!(most > 145, "{most} % without a limit");
    assert!(most_with_twenty < 125, "{most_with_twenty} %");
    assert!(most_with_ten < 115, "{most_with_ten} %");
    assert!(written < written_with_twenty && written_with_twenty < written_with_ten);
}

#[test]
fn how_many_new_entries_supersede_others_is_learned() {
    let learned = GarbageLimit::default();
    assert_eq!(learned.per_mille(), 0);
    learned.learn(1000, 5000, 5000);
    assert_eq!(learned.per_mille(), 500, "a half of what was seen last, and a half of what was known before");
    learned.learn(1000, 5000, 6000);
    assert_eq!(learned.per_mille(), 250, "all were new keys");
    learned.learn(10, 5000, 5000);
    assert_eq!(learned.per_mille(), 250, "too few to tell");
    for _ in 0..20 {
        learned.learn(1000, 5000, 4000);
    }
    assert!((1990..=2000).contains(&learned.per_mille()), "tombstones count twice");
}
