//! Closing a database.

#![expect(clippy::disallowed_methods, reason = "a test of how long things take")]

use crate::db::{
    Settings,
    tests_common::{mem, open, small},
};

#[test]
fn close_with_sleeping_workers_does_not_wait() {
    let start = std::time::Instant::now();
    for _ in 0..40 {
        let db = open(Settings { background_threads: 2, ..small(&mem()) }).unwrap();
        db.tree("t").unwrap().put(b"k", b"v").unwrap();
        db.close().unwrap();
    }
    let took = start.elapsed();
    assert!(took.as_millis() < 900, "{took:?}");
}
