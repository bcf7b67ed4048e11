//! Change streams: wake-ups, syncs on request, and their end.

#![expect(clippy::disallowed_methods, reason = "tests of threads")]

use crate::held_syncs::{CountingWaker, DIR, HeldSyncs, bounded};
use braiddb::{
    Db, Durability, Error, Result, Tree,
    watch::{Change, ChangeSet, ChangeStream, WatchOptions},
};
use std::{
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
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

/// Streams of one tree, each with a prefix and a waker of its own, all pending.
fn prefixed(db: &Db, tree: &Tree, prefixes: impl Iterator<Item = Vec<u8>>) -> Vec<(ChangeStream, Arc<CountingWaker>)> {
    let stream = |prefix| {
        let options = WatchOptions::new().unsynced(true).tree(tree).prefix(prefix);
        let mut stream = db.watch(options).unwrap().into_stream().unwrap();
        let waker = Arc::new(CountingWaker::default());
        assert!(poll(&mut stream, &waker).is_pending());
        (stream, waker)
    };
    prefixes.map(stream).collect()
}

/// Returns the number of wake-ups of a thousand streams by three commits.
fn wake_ups_by_three_commits() -> usize {
    let (_vfs, db, tree) = open(1);
    let other = db.tree("other").unwrap();
    let mut streams = prefixed(&db, &tree, (0..1000_u16).map(|number| number.to_be_bytes().to_vec()));
    let mut longer = prefixed(&db, &tree, [vec![1, 44, 7]].into_iter());
    let mut all = prefixed(&db, &tree, [vec![]].into_iter());
    other.put([1, 44, 7], b"v").unwrap();
    tree.put([1, 44, 6], b"v").unwrap();
    streams[300].1.await_calls(1);
    all[0].1.await_calls(1);
    let (stream, waker) = &mut streams[300];
    assert_eq!(key_of(poll(stream, waker)), [1, 44, 6]);
    assert!(poll(stream, waker).is_pending());
    tree.put([1, 44, 7, 1], b"v").unwrap();
    streams[300].1.await_calls(2);
    longer[0].1.await_calls(1);
    let (stream, waker) = &mut longer[0];
    assert_eq!(key_of(poll(stream, waker)), [1, 44, 7, 1]);
    tree.delete_range([0, 10]..[0, 20]).unwrap();
    streams[10..20].iter().for_each(|(_, waker)| waker.await_calls(1));
    let (stream, waker) = &mut all[0];
    assert!(poll(stream, waker).is_ready());
    streams.iter().map(|(_, waker)| waker.calls()).sum()
}

/// Each commit woke all streams, and each of them read and decoded it: n streams cost n² for n
/// commits. A flush still wakes all, and may come between.
#[test]
fn commit_wakes_only_the_streams_of_its_keys() {
    let counts: Vec<usize> = std::iter::repeat_with(wake_ups_by_three_commits).take(5).collect();
    assert!(counts.contains(&12), "{counts:?}");
}

#[test]
fn stop_wakes_only_its_stream() {
    let (_vfs, db, tree) = open(1);
    let mut streams = prefixed(&db, &tree, (0..100_u8).map(|number| vec![number]));
    for stopped in [50, 0, 99] {
        streams[stopped].0.stopper().stop();
        streams[stopped].1.await_calls(1);
        let (stream, waker) = &mut streams[stopped];
        assert!(matches!(poll(stream, waker), Poll::Ready(None)));
        // An ended stream keeps no waker.
        waker.await_release();
        streams.iter_mut().for_each(|(stream, waker)| drop(poll(stream, waker)));
    }
    let calls: usize = streams.iter().map(|(_, waker)| waker.calls()).sum();
    // Three if no flush came between. Each stop woke all: 297.
    assert!((3..220).contains(&calls), "{calls} wake-ups by three stops");
    drop(streams);
    tree.put([7], b"v").unwrap();
}

/// A multi-tree escapes zero bytes of its keys.
#[test]
fn streams_of_multi_tree_are_woken_by_keys_with_zero_bytes() {
    let (_vfs, db, _tree) = open(1);
    let multi = db.multi_tree("multi").unwrap();
    for (prefix, key) in [(&b""[..], &b""[..]), (b"a", b"a"), (b"a", b"ab"), (b"a\0b", b"a\0b"), (b"a\0", b"a\0\0c")] {
        let options = WatchOptions::new().unsynced(true).multi_tree(&multi).prefix(prefix);
        let mut stream = db.watch(options).unwrap().into_stream().unwrap();
        let waker = Arc::new(CountingWaker::default());
        assert!(poll(&mut stream, &waker).is_pending());
        multi.add(key, b"value").unwrap();
        waker.await_calls(1);
        assert!(poll(&mut stream, &waker).is_ready(), "{prefix:?} {key:?}");
        multi.delete(key).unwrap();
        while poll(&mut stream, &waker).is_ready() {}
        multi.add(key, b"again").unwrap();
        waker.await_calls(2);
    }
}

/// A stream that no commit wakes must not fall behind until its log is gone.
#[test]
fn stream_of_other_keys_is_woken_after_a_megabyte_of_commits() {
    let (_vfs, db, tree) = open(1);
    let other = db.tree("other").unwrap();
    let mut streams = prefixed(&db, &tree, [vec![7]].into_iter());
    let (stream, waker) = &mut streams[0];
    let before = stream.token();
    for number in 0..1200_u16 {
        other.put(number.to_be_bytes(), vec![0; 1000]).unwrap();
    }
    waker.await_calls(1);
    assert!(poll(stream, waker).is_pending());
    assert_ne!(stream.token(), before);
}

/// Closes its stream and the database, once another thread's close has begun.
struct ClosingWaker(Mutex<Option<(ChangeStream, Db)>>, Arc<CountingWaker>);

impl Wake for ClosingWaker {
    fn wake(self: Arc<Self>) {
        if let Some((stream, db)) = self.0.lock().unwrap().take() {
            while db.tree("t").is_ok() {
                thread::yield_now();
            }
            drop(stream);
            db.close().unwrap();
            self.1.wake_by_ref();
        }
    }
}

/// The other close waited for the turn in which the waker ran, and the waker for the other close.
#[test]
fn waker_that_closes_stream_and_database_beside_another_close_returns() {
    let (vfs, db, tree) = open(1);
    let mut stream = db.watch(WatchOptions::new().unsynced(true)).unwrap().into_stream().unwrap();
    let closed = Arc::new(CountingWaker::default());
    let closing = Arc::new(ClosingWaker(Mutex::default(), Arc::clone(&closed)));
    let waker = Waker::from(Arc::clone(&closing));
    assert!(stream.poll_next_change(&mut Context::from_waker(&waker)).is_pending());
    *closing.0.lock().unwrap() = Some((stream, db.clone()));
    tree.put(b"k", b"v").unwrap();
    drop(tree);
    bounded(move || db.close()).unwrap();
    closed.await_calls(1);
    assert_eq!(vfs.open(1).tree("t").unwrap().get(b"k").unwrap().unwrap(), b"v");
}
