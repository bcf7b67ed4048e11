//! Change streams: wake-ups, syncs on request, and their end.

#![expect(clippy::disallowed_methods, reason = "tests of threads")]

use crate::held_syncs::{CountingWaker, DIR, HeldSyncs, bounded};
use braiddb::{
    Db, Durability, Error, Result, Tree,
    watch::{Change, ChangeSet, ChangeStream, WatchOptions},
};
use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

fn open(background_threads: usize) -> (HeldSyncs, Db, Tree) {
    let vfs = HeldSyncs::new();
    let db = vfs.builder(background_threads).durability(Durability::Buffered).open(DIR).unwrap();
    let tree = db.tree("t").unwrap();
    db.sync().unwrap();
    (vfs, db, tree)
}

fn poll(stream: &mut ChangeStream, waker: &Arc<CountingWaker>) -> Poll<Option<Result<ChangeSet>>> {
    stream.poll_next_change(&mut Context::from_waker(&Waker::from(Arc::clone(waker))))
}

fn key_of(polled: Poll<Option<Result<ChangeSet>>>) -> Vec<u8> {
    match polled {
        Poll::Ready(Some(Ok(set))) => match &set.changes[..] {
            [Change::Put { key, .. }] => key.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Polls at each wake-up until the stream is ready.
fn next(stream: &mut ChangeStream) -> Option<Result<ChangeSet>> {
    let waker = Arc::new(CountingWaker::default());
    let mut calls = 0;
    loop {
        match poll(stream, &waker) {
            Poll::Ready(item) => return item,
            Poll::Pending => calls += 1,
        }
        waker.await_calls(calls);
        calls = waker.calls();
    }
}

#[test]
fn stream_without_changes_is_pending_and_never_woken() {
    let (_vfs, db, _tree) = open(1);
    let mut stream = db.watch(WatchOptions::new()).unwrap().into_stream().unwrap();
    let waker = Arc::new(CountingWaker::default());
    assert!(poll(&mut stream, &waker).is_pending() && poll(&mut stream, &waker).is_pending());
    for _ in 0..100 {
        db.snapshot().get(&db.tree("t").unwrap(), b"k").unwrap();
    }
    assert_eq!(waker.calls(), 0);
}

#[test]
fn stream_is_woken_by_a_commit_and_has_it_synced() {
    let (vfs, db, tree) = open(1);
    let mut stream = db.watch(WatchOptions::new()).unwrap().into_stream().unwrap();
    let waker = Arc::new(CountingWaker::default());
    assert!(poll(&mut stream, &waker).is_pending());
    vfs.hold();
    let before = vfs.syncs();
    tree.put(b"k", b"v").unwrap();
    waker.await_calls(1);
    assert!(poll(&mut stream, &waker).is_pending(), "the commit is not synced");
    vfs.await_syncs(before + 1);
    vfs.release();
    waker.await_calls(2);
    assert_eq!(key_of(poll(&mut stream, &waker)), b"k");
    let token = stream.token();
    tree.put(b"l", b"v").unwrap();
    drop(stream);
    let mut resumed = db.watch(WatchOptions::new().resume(token)).unwrap().into_stream().unwrap();
    assert_eq!(key_of(Poll::Ready(next(&mut resumed))), b"l");
}

#[test]
fn unsynced_stream_returns_commits_without_a_sync() {
    let (vfs, db, tree) = open(1);
    let mut stream = db.watch(WatchOptions::new().unsynced(true)).unwrap().into_stream().unwrap();
    let waker = Arc::new(CountingWaker::default());
    assert!(poll(&mut stream, &waker).is_pending());
    vfs.hold();
    tree.put(b"k", b"v").unwrap();
    waker.await_calls(1);
    assert_eq!(key_of(poll(&mut stream, &waker)), b"k");
    vfs.release();
}

#[test]
fn stopped_stream_ends() {
    let (_vfs, db, tree) = open(1);
    let mut stream = db.watch(WatchOptions::new()).unwrap().into_stream().unwrap();
    let waker = Arc::new(CountingWaker::default());
    assert!(poll(&mut stream, &waker).is_pending());
    stream.stopper().stop();
    waker.await_calls(1);
    tree.put(b"k", b"v").unwrap();
    assert!(matches!(poll(&mut stream, &waker), Poll::Ready(None)));
    assert!(matches!(poll(&mut stream, &waker), Poll::Ready(None)));
}

#[test]
fn closed_database_ends_streams_with_an_error() {
    let (_vfs, db, _tree) = open(1);
    let mut streams: Vec<_> = (0..10).map(|_| db.watch(WatchOptions::new()).unwrap().into_stream().unwrap()).collect();
    let waker = Arc::new(CountingWaker::default());
    assert!(streams.iter_mut().all(|stream| poll(stream, &waker).is_pending()));
    bounded(|| db.close()).unwrap();
    waker.await_calls(10);
    for stream in &mut streams {
        assert!(matches!(poll(stream, &waker), Poll::Ready(Some(Err(Error::Closed)))));
        assert!(matches!(poll(stream, &waker), Poll::Ready(None)));
    }
}

#[test]
fn failed_sync_ends_stream_with_its_error() {
    let (vfs, db, tree) = open(1);
    let mut stream = db.watch(WatchOptions::new()).unwrap().into_stream().unwrap();
    vfs.fail();
    tree.put(b"k", b"v").unwrap();
    let error = next(&mut stream).unwrap().unwrap_err();
    assert!(error.is_commit_unknown(), "{error}");
    assert!(next(&mut stream).is_none());
}

#[test]
fn stream_without_background_threads_is_refused() {
    let (_vfs, db, _tree) = open(0);
    let refused = db.watch(WatchOptions::new()).unwrap().into_stream();
    assert!(matches!(refused, Err(Error::InvalidArgument(_))));
}

#[test]
fn dropped_stream_releases_its_waker() {
    let (_vfs, db, tree) = open(1);
    let mut stream = db.watch(WatchOptions::new()).unwrap().into_stream().unwrap();
    let waker = Arc::new(CountingWaker::default());
    assert!(poll(&mut stream, &waker).is_pending());
    drop(stream);
    assert_eq!(Arc::strong_count(&waker), 1);
    tree.put(b"k", b"v").unwrap();
    assert_eq!(waker.calls(), 0);
}

/// Each poll moved the next sync by 5 ms, so 4,000 polls by 20 s.
#[test]
fn needless_polls_do_not_delay_syncs() {
    let (vfs, db, tree) = open(1);
    let mut stream = db.watch(WatchOptions::new()).unwrap().into_stream().unwrap();
    let waker = Arc::new(CountingWaker::default());
    vfs.hold();
    tree.put(b"k", b"v").unwrap();
    for _ in 0..4000 {
        assert!(poll(&mut stream, &waker).is_pending());
    }
    vfs.release();
    let began = Instant::now();
    assert_eq!(key_of(Poll::Ready(next(&mut stream))), b"k");
    tree.put(b"l", b"v").unwrap();
    assert_eq!(key_of(Poll::Ready(next(&mut stream))), b"l");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// Each wake-up that a race loses would stop a stream for ever.
#[test]
fn streams_beside_writers_see_each_commit_in_order() {
    let (_vfs, db, tree) = open(1);
    const COMMITS: u64 = 3000;
    let reader = |options: WatchOptions| {
        let mut stream = db.watch(options).unwrap().into_stream().unwrap();
        thread::spawn(move || {
            for number in 0..COMMITS {
                assert_eq!(key_of(Poll::Ready(next(&mut stream))), number.to_be_bytes());
            }
        })
    };
    let readers = [reader(WatchOptions::new()), reader(WatchOptions::new().unsynced(true))];
    for number in 0..COMMITS {
        tree.put(number.to_be_bytes(), b"v").unwrap();
        if number % 64 == 0 {
            thread::yield_now();
        }
    }
    bounded(|| readers.into_iter().for_each(|reader| reader.join().unwrap()));
}

#[cfg(feature = "futures")]
#[test]
fn change_stream_is_a_stream() {
    use futures_core::Stream;
    let (_vfs, db, tree) = open(1);
    let mut stream = std::pin::pin!(db.watch(WatchOptions::new().unsynced(true)).unwrap().into_stream().unwrap());
    tree.put(b"k", b"v").unwrap();
    let waker = Waker::from(Arc::new(CountingWaker::default()));
    assert_eq!(key_of(stream.as_mut().poll_next(&mut Context::from_waker(&waker))), b"k");
}
