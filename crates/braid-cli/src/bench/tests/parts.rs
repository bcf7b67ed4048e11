//! Tests of rows, the ledger, rate limits, latencies and argument parsing.

use std::collections::BTreeSet;

use crate::{
    bench::{
        arguments::parse_value_size,
        latencies::{Kind, Latencies},
        ledger::Ledger,
        pace::Pace,
        rows::{KeyOrder, Keys, ValueSize, Values, is_of_row},
    },
    random::Random,
};

#[test]
fn key_of_row_maps_back_to_row() {
    for order in [KeyOrder::Numbers, KeyOrder::Scattered] {
        for size in [8, 16, 100] {
            let keys = Keys { order, size };
            let mut key = keys.buffer();
            for row in (0..1000).chain([u64::MAX - 1, 1 << 40]) {
                keys.write(row, &mut key);
                assert_eq!(key.len(), size);
                assert_eq!(keys.head_of(&key), Some(keys.head(row)));
                assert_eq!(keys.row_of_head(keys.head(row)), row);
            }
            key.push(b'0');
            assert_eq!(keys.head_of(&key), None);
            assert_eq!(keys.head_of(b"short"), None);
        }
    }
    let scattered = Keys { order: KeyOrder::Scattered, size: 8 };
    assert!((0..20).any(|row| scattered.head(row) > scattered.head(row + 1)));
}

#[test]
fn value_of_any_size_matches_its_row() {
    for max in [0, 1, 7, 8, 100, 5000] {
        let values = Values::new(ValueSize { min: 0, max }, 0.5);
        let (mut value, mut sizes) = (Vec::new(), BTreeSet::new());
        for row in 0..500 {
            values.write(row, row * 3, &mut value);
            sizes.insert(value.len());
            assert!(is_of_row(&value, row));
            assert!(value.len() < 8 || !is_of_row(&value, row + 1));
        }
        assert!(sizes.iter().all(|size| *size <= max) && (max < 7 || sizes.len() > 6), "{sizes:?}");
    }
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let values = Values::new(ValueSize::fixed(100), 0.5);
    values.write(1, 1, &mut first);
    values.write(1, 2, &mut second);
    assert_ne!(first, second, "an overwrite would write the same");
}

#[test]
fn value_compresses_to_requested_share() {
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let values = Values::new(ValueSize::fixed(4000), share);
        let (mut value, mut packed_bytes) = (Vec::new(), 0);
        for row in 0..50 {
            values.write(row, row, &mut value);
            packed_bytes += zstd::encode_all(value.as_slice(), 3).unwrap().len();
        }
        let packed = packed_bytes as f64 / (50.0 * 4000.0);
        let left = 1.0 - share;
        assert!((left - 0.01..left + 0.08).contains(&packed), "{share}: {packed}");
    }
}

#[test]
fn ledger_after_random_changes_equals_set() {
    let (mut ledger, mut model, mut random) = (Ledger::default(), BTreeSet::new(), Random::of(1, 1));
    for step in 0..20_000 {
        let row = random.below(700);
        if random.below(3) > 0 {
            ledger.insert(row);
            model.insert(row);
        } else {
            ledger.remove(row);
            model.remove(&row);
        }
        if step % 50 == 0 {
            let at = random.below(800);
            assert_eq!(ledger.count(), model.len() as u64);
            assert_eq!(ledger.end(), model.last().map_or(0, |row| row + 1));
            assert_eq!(ledger.contains(at), model.contains(&at));
            assert!(ledger.from(at).eq(model.range(at..).copied()));
            assert!(ledger.before(at).eq(model.range(..at).rev().copied()));
        }
    }
    assert_eq!(ledger.before(u64::MAX).count(), model.len());
}

/// Time advances only by waiting; operations take no time.
#[test]
fn pace_of_single_operations_matches_rate() {
    for per_second in [0.5, 10.0, 999.0, 1_000_000.0] {
        let (mut pace, mut now_ns) = (Pace::new(per_second), 0);
        let operations = (per_second * 10.0) as u64;
        for _ in 0..operations {
            now_ns += pace.wait_ns(now_ns);
            assert_eq!(pace.wait_ns(now_ns), 0);
            pace.take(1, now_ns);
        }
        let seconds = (operations - 1) as f64 / per_second;
        assert!((now_ns as f64 / 1e9 - seconds).abs() < 1e-3 * seconds.max(1.0), "{per_second}: {now_ns}");
    }
}

#[test]
fn pace_of_batch_waits_for_all_its_rows() {
    let mut pace = Pace::new(1000.0);
    pace.take(500, 0);
    assert_eq!(pace.wait_ns(0), 500_000_000);
}

/// Only a tenth of a second of a pause is caught up: a full catch-up would cause a burst.
#[test]
fn pace_after_pause_catches_up_only_100_ms() {
    let mut pace = Pace::new(1000.0);
    pace.take(1, 0);
    let now_ns = 60_000_000_000;
    let mut at_once = 0;
    while pace.wait_ns(now_ns) == 0 {
        pace.take(1, now_ns);
        at_once += 1;
    }
    assert!((99..=102).contains(&at_once), "{at_once}");
}

#[test]
fn latencies_merge_by_kind() {
    let (mut all, mut other) = (Latencies::new(), Latencies::new());
    (1..=10_000).for_each(|us| all.record(Kind::Read, us * 1000));
    (1..=10).for_each(|_| other.record(Kind::Write, 5));
    other.record(Kind::Read, u64::MAX);
    all.merge(&other);
    let summaries = all.summaries();
    let [read, write] = summaries.as_slice() else { panic!("{summaries:?}") };
    assert_eq!((read.name, read.count, write.name, write.count), ("read", 10_001, "write", 10));
    for (found_ns, wanted_us) in
        [(read.p50, 5000.0), (read.p95, 9500.0), (read.p99, 9900.0), (read.p999, 9990.0), (write.p9999, 0.005)]
    {
        assert!((found_ns as f64 / wanted_us / 1000.0 - 1.0).abs() < 0.01, "{found_ns} for {wanted_us}");
    }
    assert!(read.max >= 3_600_000_000_000 && write.max == 5);
}

#[test]
fn value_size_parses_number_and_range() {
    assert_eq!(parse_value_size("100"), Ok(ValueSize::fixed(100)));
    assert_eq!(parse_value_size("0"), Ok(ValueSize::fixed(0)));
    assert_eq!(parse_value_size("10-4K"), Ok(ValueSize { min: 10, max: 4096 }));
    for text in ["", "-", "-5", "5-", "9-8", "2G", "many", "1-2-3"] {
        assert!(parse_value_size(text).is_err(), "{text}");
    }
}
