//! Versions, expiry times and lengths of values that are read or written in parts.

use crate::db::Db;
use std::{io::Read, time::Duration};

const LARGE: u64 = 2_500_000;

fn filled() -> (Db, crate::db::Tree) {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    tree.put("inline", "value").unwrap();
    tree.put("empty", "").unwrap();
    tree.put("blob", vec![7; 500_000]).unwrap();
    tree.put_stream("stream", std::io::repeat(7).take(LARGE)).unwrap();
    tree.put_with_ttl("expiring", "value", Duration::from_secs(1000)).unwrap();
    let mut pending = tree.write_stream("expiring stream", std::io::repeat(7).take(LARGE)).unwrap();
    assert_eq!(pending.len(), LARGE);
    pending = pending.with_ttl(Duration::from_secs(1000));
    let mut batch = db.batch();
    batch.put_stream(pending);
    batch.commit().unwrap();
    let append = db.merge_function("append").unwrap();
    tree.put("merged", "a").unwrap();
    tree.merge("merged", &append, "b").unwrap();
    (db, tree)
}

const KEYS: [&str; 7] = ["blob", "empty", "expiring", "expiring stream", "inline", "merged", "stream"];

#[test]
fn stream_reader_has_version_and_expiry_of_its_record() {
    let (db, tree) = filled();
    for round in 0..2 {
        for key in KEYS {
            let reader = tree.stream(key).unwrap().unwrap();
            let (value, version) = tree.get_versioned(key).unwrap().unwrap();
            assert_eq!(reader.version(), Some(version), "{key}");
            assert_eq!(reader.len(), value.len() as u64, "{key}");
            let (_, expires) = tree.get_with_expiry(key).unwrap().unwrap();
            assert_eq!(reader.expires(), expires, "{key}");
            assert_eq!(expires.is_some(), key.starts_with("expiring"), "{key} in round {round}");
        }
        db.flush().unwrap();
    }
}

#[test]
fn cursor_value_len_is_that_of_the_value() {
    let (db, tree) = filled();
    for _ in 0..2 {
        let mut cursor = tree.cursor();
        for key in KEYS {
            assert!(cursor.next().unwrap());
            assert_eq!(cursor.key(), key.as_bytes());
            let len = cursor.value_len().unwrap();
            assert_eq!(len, cursor.value().unwrap().len() as u64, "{key}");
            assert_eq!(len, cursor.value_len().unwrap(), "{key}");
        }
        assert!(!cursor.next().unwrap());
        db.flush().unwrap();
    }
}

#[test]
fn pending_stream_of_transaction_is_committed_or_conflicts() {
    let (db, tree) = filled();
    let write = || tree.write_stream("stream", std::io::repeat(8).take(LARGE)).unwrap();
    let pending = write();
    let transaction = db.begin().unwrap();
    let read = transaction.stream(&tree, "stream").unwrap().unwrap().version().unwrap();
    transaction.put_pending_stream(pending.with_ttl(Duration::from_secs(1000))).unwrap();
    // Its own write has no version yet.
    assert_eq!(transaction.stream(&tree, "stream").unwrap().unwrap().version(), None);
    let version = db.version_of(transaction.commit().unwrap());
    assert!(version > read);
    let reader = tree.stream("stream").unwrap().unwrap();
    assert_eq!(reader.version(), Some(version));
    let (_, expires) = tree.get_with_expiry("stream").unwrap().unwrap();
    assert!(expires.is_some());
    assert_eq!(reader.expires(), expires);

    let pending = write();
    let transaction = db.begin().unwrap();
    assert!(transaction.contains(&tree, "stream").unwrap());
    tree.put("stream", "meanwhile").unwrap();
    transaction.put_pending_stream(pending).unwrap();
    assert!(transaction.commit().unwrap_err().is_conflict());
    assert_eq!(tree.get("stream").unwrap().unwrap(), "meanwhile");

    let other = Db::in_memory().unwrap();
    assert!(other.begin().unwrap().put_pending_stream(write()).is_err());
}
