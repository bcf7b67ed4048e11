//! Each event, from the database that causes it, and the delivery.

#![expect(clippy::disallowed_methods, reason = "tests of threads")]

use super::{
    event::{Event, MergeKind},
    queue::{Events, Listener},
};
use crate::{
    codec::Compression,
    db::{
        Db, Settings,
        tests_common::{self, DIR, bounded, fault, mem, open, small},
    },
    platform::{
        OpenMode, RateLimiter, SystemRuntime, Vfs,
        fault_vfs::{FaultVfs, Operation},
    },
};
use std::{
    io,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    time::Duration,
};

fn listener(sender: Sender<Event>) -> Option<Listener> {
    Some(Listener(Arc::new(move |event: &Event| _ = sender.send(event.clone()))))
}

/// Opens a database with a listener.
fn listening(settings: Settings) -> (Db, Receiver<Event>) {
    let (sender, events) = mpsc::channel();
    (tests_common::open(Settings { listener: listener(sender), ..settings }).unwrap(), events)
}

/// Closes the database and returns its events.
fn all(db: Db, events: Receiver<Event>) -> Vec<Event> {
    _ = db.close();
    bounded("delivery", move || events.into_iter().collect())
}

fn put(db: &Db, keys: std::ops::Range<u32>) {
    let tree = db.tree("t").unwrap();
    for key in keys {
        tree.put(key.to_be_bytes(), [7; 40]).unwrap();
    }
}

fn count(events: &[Event], is: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| is(event)).count()
}

#[test]
fn flushes_and_merges_are_reported_as_pairs() {
    let (db, events) = listening(Settings { compression: Compression::None, ..small(&mem()) });
    put(&db, 0..4_000);
    db.compact().unwrap();
    let events = all(db, events);
    let flushes: Vec<_> = events.iter().filter(|e| matches!(e, Event::FlushBegin | Event::FlushEnd { .. })).collect();
    assert!(flushes.len() > 4);
    for pair in flushes.chunks(2) {
        assert!(matches!(pair, [Event::FlushBegin, Event::FlushEnd { is_done: true, .. }]), "{pair:?}");
    }
    let merges: Vec<_> =
        events.iter().filter(|e| matches!(e, Event::MergeBegin { .. } | Event::MergeEnd { .. })).collect();
    for pair in merges.chunks(2) {
        let [Event::MergeBegin { partition, kind }, Event::MergeEnd { partition: ended, kind: of, is_done, .. }] = pair
        else {
            panic!("{pair:?}")
        };
        assert!(partition == ended && kind == of && *is_done, "{pair:?}");
    }
    let kinds = |kind| count(&events, |e| matches!(e, Event::MergeBegin { kind: of, .. } if *of == kind));
    assert!(kinds(MergeKind::Runs) > 0 && kinds(MergeKind::Split) > 0, "{merges:?}");
}

#[test]
fn throttle_begins_with_many_unindexed_runs_and_ends_after_merges() {
    let settings = Settings { loose_runs: 400, partition_bytes: Some(1 << 30), ..small(&mem()) };
    let (db, events) = listening(settings);
    for round in 0..24 {
        put(&db, round..200 + round);
        db.flush().unwrap();
    }
    db.compact().unwrap();
    let events = all(db, events);
    let throttles: Vec<_> = events.iter().filter(|e| matches!(e, Event::ThrottleBegin | Event::ThrottleEnd)).collect();
    assert!(matches!(throttles[..], [Event::ThrottleBegin, Event::ThrottleEnd]), "{throttles:?}");
}

#[test]
fn stalls_are_reported_while_flushes_are_slow() {
    let limiter = Some(Arc::new(RateLimiter::new(200_000)));
    let (db, events) = listening(Settings {
        background_threads: 1,
        rate_limiter: limiter,
        compression: Compression::None,
        ..small(&mem())
    });
    let stalled = bounded("a stall", move || {
        let mut key = 0;
        while db.stats().stalls == 0 {
            put(&db, key..key + 100);
            key += 100;
        }
        db
    });
    let events = all(stalled, events);
    let stalls: Vec<_> = events.iter().filter(|e| matches!(e, Event::StallBegin | Event::StallEnd { .. })).collect();
    assert!(stalls.len() >= 2);
    for pair in stalls.chunks(2) {
        assert!(matches!(pair, [Event::StallBegin, Event::StallEnd { .. }]), "{pair:?}");
    }
}

#[test]
fn failed_flush_is_reported_with_its_error_and_the_failure() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let (db, events) = listening(small(&fault(&vfs)));
    put(&db, 0..50);
    vfs.fail(Operation::Create, 0, u32::MAX, io::ErrorKind::PermissionDenied);
    db.flush().unwrap_err();
    let failure = db.stats().failure.expect("the database has failed");
    vfs.heal();
    let events = all(db, events);
    assert_eq!(count(&events, |e| matches!(e, Event::FlushEnd { is_done: false, .. })), 1, "{events:?}");
    assert_eq!(count(&events, |e| matches!(e, Event::BackgroundError { error } if *error == failure)), 1, "{events:?}");
    assert_eq!(count(&events, |e| matches!(e, Event::Failed { reason } if *reason == failure)), 1, "{events:?}");
}

#[test]
fn full_disk_reports_use_and_refill_of_reserve() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let (db, events) = listening(Settings { disk_reserve: Some(64 << 10), ..small(&fault(&vfs)) });
    put(&db, 0..50);
    vfs.fail(Operation::Create, 0, 3, io::ErrorKind::StorageFull);
    while vfs.failures_to_come() > 0 {
        _ = db.flush();
    }
    while db.tree("t").unwrap().put(b"k", b"v").is_err() {}
    db.compact().unwrap();
    let events = all(db, events);
    let of_reserve: Vec<_> =
        events.iter().filter(|e| matches!(e, Event::ReserveUsed | Event::ReserveRefilled)).collect();
    assert!(matches!(of_reserve[..], [Event::ReserveUsed, Event::ReserveRefilled]), "{of_reserve:?} of {events:?}");
}

#[test]
fn damage_is_reported_by_reads_and_by_scrubber() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let settings =
        || Settings { partition_bytes: Some(1 << 30), scrub_bytes_per_second: 1 << 30, ..small(&fault(&vfs)) };
    let db = open(settings()).unwrap();
    // Overlapping runs have a view of their own.
    let keys = (0..4_000_u32).map(|i| i.wrapping_mul(0x9e37_79b9).to_be_bytes());
    let tree = db.tree("t").unwrap();
    keys.clone().for_each(|key| _ = tree.put(key, [7; 40]).unwrap());
    drop(tree);
    db.close().unwrap();
    let damage = |extension: &str, from: u64| {
        let files = vfs.files();
        let path = files.keys().rfind(|path| path.extension().is_some_and(|e| e == extension)).unwrap();
        let file = vfs.open(path, OpenMode::ReadWrite).unwrap();
        for offset in (from..file.len().unwrap()).step_by(64) {
            file.write_at(&[0x55], offset).unwrap();
        }
        path.clone()
    };
    // An open would heal the view without an event.
    let (db, events) = listening(settings());
    damage("view", 64);
    let tree = db.tree("t").unwrap();
    for key in keys {
        assert!(tree.get(key).unwrap().is_some());
    }
    db.flush().unwrap();
    let run = damage("run", 300);
    crate::db::maintenance::scrub::whole_pass_for_tests(db.engine());
    drop(tree);
    let events = all(db, events);
    assert!(count(&events, |e| matches!(e, Event::DamageFound { path, offset } if *path == run && *offset > 0)) > 0);
    assert_eq!(
        count(&events, |e| matches!(e, Event::ViewDamaged { file_number } if *file_number > 0)),
        1,
        "{events:?}"
    );
}

#[test]
fn old_readers_are_reported_when_they_overstay_and_expire() {
    for (warn, max) in [(1, u64::MAX), (u64::MAX, 1)] {
        let (db, events) = listening(Settings { reader_age_warn_ns: warn, reader_age_max_ns: max, ..small(&mem()) });
        put(&db, 0..10);
        let snapshot = db.snapshot();
        let sequence = snapshot.sequence();
        bounded("time passes", || std::thread::sleep(Duration::from_millis(20)));
        db.flush().unwrap();
        drop(snapshot);
        let events = all(db, events);
        let overstays = |e: &Event| matches!(e, Event::ReaderOverstays { sequence: of, .. } if *of == sequence);
        let expired = |e: &Event| matches!(e, Event::ReaderExpired { sequence: of, .. } if *of == sequence);
        assert_eq!(count(&events, overstays), usize::from(warn == 1), "{events:?}");
        assert_eq!(count(&events, expired), usize::from(max == 1), "{events:?}");
    }
}

#[test]
fn panic_of_listener_ends_only_its_call() {
    let (sender, events) = mpsc::channel();
    let mut is_first = true;
    let first = parking_lot::Mutex::new(move || std::mem::take(&mut is_first));
    let panics = move |event: &Event| {
        assert!(!(first.lock())(), "the first event");
        _ = sender.send(event.clone());
    };
    let settings = Settings { listener: Some(Listener(Arc::new(panics))), ..small(&mem()) };
    let db = tests_common::open(settings).unwrap();
    put(&db, 0..50);
    db.flush().unwrap();
    db.sync().unwrap();
    assert!(matches!(all(db, events)[..], [Event::FlushEnd { is_done: true, .. }, ..]));
}

#[test]
fn listener_may_call_and_close_the_database() {
    let cell: Arc<parking_lot::Mutex<Option<Db>>> = Arc::default();
    let (sender, done) = mpsc::channel();
    let held = Arc::clone(&cell);
    let closes = move |event: &Event| {
        let db = if matches!(event, Event::FlushEnd { .. }) { held.lock().take() } else { None };
        if let Some(db) = db {
            put(&db, 50..60);
            db.flush().unwrap();
            _ = sender.send(db.close());
        }
    };
    let settings = Settings { background_threads: 1, listener: Some(Listener(Arc::new(closes))), ..small(&mem()) };
    let db = tests_common::open(settings).unwrap();
    *cell.lock() = Some(db.clone());
    put(&db, 0..50);
    db.flush().unwrap();
    assert!(done.recv_timeout(Duration::from_secs(60)).unwrap().is_ok());
}

#[test]
fn slow_listener_gets_the_number_of_lost_events() {
    let (sender, events) = mpsc::sync_channel(0);
    let slow: Listener = Listener(Arc::new(move |event: &Event| _ = sender.send(event.clone())));
    let queue = Events::new(Some(slow), &SystemRuntime::new());
    const SENT: u64 = 5_000;
    (0..SENT).for_each(|_| queue.emit(|| Event::FlushBegin));
    drop(queue);
    let (mut seen, mut lost) = (0, 0);
    for event in bounded("delivery", move || events.into_iter().collect::<Vec<_>>()) {
        match event {
            Event::Lost { count } => lost += count,
            _ => seen += 1,
        }
    }
    assert!(lost > 0 && seen >= 1_024, "{seen} seen, {lost} lost");
    assert_eq!(seen + lost, SENT);
}
