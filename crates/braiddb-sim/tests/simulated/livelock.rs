//! Background work ends.
//!
//! The story: a split left a partition larger than twice `partition_bytes` whole, because of a
//! large value or key at its end. Every merge of its runs was cut at twice `partition_bytes`, so a
//! merge of the two newest unindexed runs gave two again, forever. A merge of all runs counted all
//! garbage in the oldest, so the next fold led to a full merge again, forever.

use crate::common;

use braiddb::{Compression, platform::MemVfs};
use common::{SmallOptions, empty_disk, threads::ok};
use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

fn comes_to_an_end(fold_bytes_per_entry: u64, holds: bool) {
    let (done, is_done) = mpsc::channel();
    std::thread::Builder::new()
        .spawn(move || {
            let options = SmallOptions {
                memtable_bytes: 8192,
                partition_bytes: 4096,
                loose_runs: 2,
                fold_bytes_per_entry,
                blob_threshold: 1 << 20,
                compression: Compression::None,
                ..SmallOptions::default()
            };
            let db = ok(options.builder(&empty_disk(1), 1).vfs(Arc::new(MemVfs::new())).open(common::PATH));
            let tree = ok(db.tree("t"));
            ok(tree.put(b"x", b""));
            for _ in 0..3 {
                ok(tree.put(b"a", vec![1; 300_000]));
                ok(db.flush());
            }
            let mut held = Vec::new();
            for round in 0..6 {
                for key in b'b'..b'f' {
                    ok(tree.put([key], vec![round; 2500]));
                }
                if holds {
                    held.push(db.snapshot());
                }
                ok(db.flush());
            }
            ok(db.compact());
            let _ = done.send(());
        })
        .expect("a thread");
    is_done.recv_timeout(Duration::from_secs(20)).expect("background work comes to an end");
}

#[test]
fn merges_of_unindexed_runs_with_large_partition_end() {
    comes_to_an_end(10_000, false);
}

#[test]
fn folds_and_merges_with_large_partition_end() {
    comes_to_an_end(10, true);
}
