//! Watching the log through a follower, beside a writer that releases and reuses segments.

use crate::{
    base::Error,
    codec::Compression,
    db::{
        Db, Follower, Settings, WatchOptions,
        tests_common::{DIR, mem, open, small},
    },
};
use std::path::Path;

fn settings() -> Settings {
    Settings { compression: Compression::None, log_segment_bytes: 4 << 10, ..small(&mem()) }
}

/// Writes more than the log holds, so that segments are reused.
fn write_much(db: &Db, from: u64) {
    let tree = db.tree("t").unwrap();
    for number in from..from + 300 {
        tree.put(number.to_be_bytes(), [7; 200]).unwrap();
    }
    db.flush().unwrap();
}

/// A follower's state read the log by its older manifest, whose segments were gone. That was
/// reported as corruption.
#[test]
fn watch_of_follower_state_without_log_is_too_old() {
    let settings = settings();
    let owner = open(settings.clone()).unwrap();
    write_much(&owner, 0);
    owner.tree("t").unwrap().put("a", "1").unwrap();
    let follower = Follower::open_with(settings, Path::new(DIR), None).unwrap();
    let db = follower.db();
    let seen = db.snapshot().sequence();
    for round in 1..6 {
        write_much(&owner, round * 1000);
        for options in [WatchOptions::new(), WatchOptions::new().after(seen)] {
            let error = db.watch(options).map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::WatchTooOld { .. }), "round {round}: {error:?}");
        }
    }
    follower.refresh().unwrap();
    follower.db().watch(WatchOptions::new()).unwrap();
}

/// The writer reused a segment's file between two reads, and the watcher found no valid record in
/// it.
#[test]
fn watch_of_reused_segment_is_too_old() {
    let settings = settings();
    let owner = open(settings.clone()).unwrap();
    write_much(&owner, 0);
    let after = owner.snapshot().sequence();
    owner.tree("t").unwrap().put("a", "1").unwrap();
    owner.sync().unwrap();
    let follower = Follower::open_with(settings, Path::new(DIR), None).unwrap();
    let mut watcher = follower.db().watch(WatchOptions::new().unsynced(true).after(after)).unwrap();
    // It has the segment open, but has read nothing of it.
    (1..6).for_each(|round| write_much(&owner, round * 1000));
    let error = watcher.try_next().unwrap_err();
    assert!(matches!(error, Error::WatchTooOld { .. }), "{error:?}");
}
