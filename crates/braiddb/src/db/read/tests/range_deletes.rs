//! Reads among many range deletes.

#![expect(clippy::disallowed_methods, reason = "a test of how long things take")]

use crate::db::{
    Settings,
    tests_common::{mem, open, small},
};

/// Each read after a range delete rebuilt the memtable's set of them.
#[test]
fn reads_between_range_deletes_take_linear_time() {
    let settings =
        Settings { memory: 256 << 20, memtable_bytes: Some(64 << 20), log_segment_bytes: 1 << 20, ..small(&mem()) };
    let db = open(settings).unwrap();
    let tree = db.tree("t").unwrap();
    let start = std::time::Instant::now();
    for i in 0..30_000u32 {
        let key = i.wrapping_mul(0x9e37_79b9);
        tree.put(key.to_be_bytes(), b"v").unwrap();
        tree.delete_range(key.to_be_bytes()..=key.to_be_bytes()).unwrap();
        assert!(tree.get(key.to_be_bytes()).unwrap().is_none());
    }
    let took = start.elapsed();
    assert!(took.as_secs() < 8, "30,000 range deletes and reads took {took:?}");
}
