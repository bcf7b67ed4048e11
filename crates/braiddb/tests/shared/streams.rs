//! Streams of members. Several handles in one process act as several processes.

use super::handles::{builder, open};
use braiddb::{Builder, Durability, Error, TreeOptions, shared::SharedDb};
use std::{
    fs,
    io::{self, Read, Write},
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Bytes of a long value, which takes several parts and pieces.
const LONG: usize = 5_000_000;

fn value(seed: usize, len: usize) -> Vec<u8> {
    // Compression gains nothing.
    let mixed = |at: usize| (at as u64 + ((seed as u64) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..len).map(|at| ((mixed(at) ^ mixed(at) >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 56) as u8).collect()
}

/// Bytes of the blob files.
fn blob_bytes(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let blobs = files.filter(|file| file.file_name().to_string_lossy().ends_with(".blob"));
    // A file may be removed meanwhile.
    blobs.map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum()
}

fn read_all(db: &SharedDb, key: &str) -> Option<Vec<u8>> {
    let mut stream = db.tree("t").unwrap().stream(key).unwrap()?;
    let mut value = Vec::new();
    stream.read_to_end(&mut value).unwrap();
    assert_eq!(value.len() as u64, stream.len());
    Some(value)
}

#[test]
fn value_written_in_parts_is_read_by_all_processes() {
    let dir = tempfile::tempdir().unwrap();
    let handles = [open(dir.path()), open(dir.path()), open(dir.path())];
    let lens = [0, 1, 1000, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 700_000, LONG];
    for (at, db) in handles.iter().enumerate() {
        let tree = db.tree("t").unwrap();
        for len in lens {
            let (key, value) = (format!("{at} {len}"), value(at + len, len));
            tree.put_stream(&key, &*value).unwrap();
            assert_eq!(tree.get(&key).unwrap().unwrap(), value, "{key}");
            let mut writer = tree.stream_writer("w").unwrap();
            for part in value.chunks(60_000) {
                writer.write_all(part).unwrap();
            }
            assert_eq!((writer.len(), writer.is_empty()), (len as u64, len == 0));
            writer.commit_with(if len == LONG { Durability::Sync } else { Durability::Buffered }).unwrap();
            for other in &handles {
                other.refresh().unwrap();
                assert_eq!(read_all(other, &key).unwrap(), value, "{key}");
                assert_eq!(read_all(other, "w").unwrap(), value, "{key}");
            }
            let part = tree.read_range(&key, 5..9).unwrap().unwrap();
            assert_eq!(part, value.get(5..9).unwrap_or_default());
        }
    }
    let mut whole = handles[2].tree("t").unwrap().stream_writer("readers").unwrap();
    [&b"one"[..], b"", b"two"].iter().for_each(|part| whole.read_from(*part).unwrap());
    whole.read_from(io::repeat(7).take(600_000)).unwrap();
    assert_eq!(whole.len(), 600_006);
    whole.commit().unwrap();
    assert_eq!(read_all(&handles[2], "readers").unwrap()[..9], *b"onetwo\x07\x07\x07");
    assert!(handles[0].state().unwrap().verify().unwrap().is_sound());
    handles.into_iter().for_each(|db| db.close().unwrap());
    let db = Builder::new().open(dir.path()).unwrap();
    assert_eq!(db.tree("t").unwrap().get(format!("1 {LONG}")).unwrap().unwrap(), value(1 + LONG, LONG));
}

#[test]
fn streams_of_transaction_commit_with_its_other_writes() {
    let dir = tempfile::tempdir().unwrap();
    let handles = [open(dir.path()), open(dir.path())];
    let short_lived = TreeOptions::new().ttl(Duration::from_secs(3600));
    for db in &handles {
        let (tree, expiring) = (db.tree("t").unwrap(), db.tree_with("expiring", short_lived).unwrap());
        for is_exclusive in [false, true] {
            let tx = if is_exclusive { db.begin_exclusive() } else { db.begin() }.unwrap();
            let (one, two) = (value(1, LONG), value(2, LONG));
            tx.put_stream(&tree, "one", &*one).unwrap();
            tx.put_stream(&tree, "two", &*one).unwrap();
            tx.put_stream(&tree, "two", &*two).unwrap();
            tx.put_stream(&tree, "short", &b"short"[..]).unwrap();
            tx.put_stream(&expiring, "one", &*one).unwrap();
            let savepoint = tx.savepoint();
            tx.put_stream(&tree, "undone", &*one).unwrap();
            tx.rollback_to(savepoint).unwrap();
            let own = tree.in_transaction(&tx).unwrap();
            tx.put(&own, "k", "v").unwrap();
            // The transaction reads its own streams, whole and in parts.
            assert_eq!(tx.get(&own, "two").unwrap().unwrap(), two);
            assert_eq!(tx.read_range(&own, "one", 3_000_000..3_000_009).unwrap().unwrap(), one[3_000_000..3_000_009]);
            assert_eq!(tx.get(&own, "undone").unwrap(), None);
            assert_eq!(tree.get("one").unwrap(), None);
            tx.commit().unwrap();
            for other in &handles {
                other.refresh().unwrap();
                assert_eq!(read_all(other, "one").unwrap(), one);
                assert_eq!(read_all(other, "two").unwrap(), two);
                assert_eq!(read_all(other, "short").unwrap(), b"short");
                assert_eq!(read_all(other, "undone"), None);
                let state = other.state().unwrap();
                let (found, expires) =
                    state.open_tree("expiring").unwrap().get_with_expiry("one").unwrap().expect("it has not expired");
                assert!(found == one && expires.is_some());
            }
            let tx = db.begin().unwrap();
            tx.put_stream(&tree, "one", &*two).unwrap();
            drop(tx);
            assert_eq!(read_all(db, "one").unwrap(), one);
            tree.delete_range(..).unwrap();
            expiring.delete_range(..).unwrap();
        }
    }
}

/// What a member wrote in vain stayed in the owner's blob files.
#[test]
fn abandoned_streams_leave_no_garbage() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, member) = (open(dir.path()), open(dir.path()));
    let tree = member.tree("t").unwrap();
    tree.put("k", "v").unwrap();
    let long = value(3, 4 * LONG);
    for _ in 0..2 {
        let mut dropped = tree.stream_writer("dropped").unwrap();
        dropped.write_all(&long).unwrap();
        let tx = member.begin().unwrap();
        tx.put_stream(&tree, "dropped, too", &*long).unwrap();
        assert!(blob_bytes(dir.path()) > 7 * LONG as u64, "no stream is in a blob file yet");
        drop((dropped, tx));
        let failing = tree.put_stream("failed", (&*long).chain(Failing));
        assert!(failing.as_ref().is_err_and(Error::is_aborted), "{failing:?}");
    }
    let began = Instant::now();
    while blob_bytes(dir.path()) > LONG as u64 {
        assert!(began.elapsed() < Duration::from_secs(30), "{} bytes stay", blob_bytes(dir.path()));
        owner.tree("t").unwrap().put("k", "v").unwrap();
        owner.state().unwrap().flush().unwrap();
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(tree.iter().unwrap().count(), 1);
}

struct Failing;

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the end"))
    }
}

/// The owner has the stream's files, and its next one removes them.
#[test]
fn stream_whose_owner_ended_is_a_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, member, other) = (open(dir.path()), open(dir.path()), open(dir.path()));
    let tree = member.tree("t").unwrap();
    let long = value(4, LONG);
    let mut cut = tree.stream_writer("cut").unwrap();
    cut.write_all(&long).unwrap();
    let ended = tree.stream_writer("ended").and_then(|mut writer| writer.read_from(&*long).map(|()| writer)).unwrap();
    let mut waiting = tree.stream_writer("waiting").unwrap();
    waiting.write_all(b"short").unwrap();
    let tx = member.begin().unwrap();
    tx.put_stream(&tree, "transaction", &*long).unwrap();
    owner.close().unwrap();
    other.tree("t").unwrap().put("k", "v").unwrap();
    let refused = cut.write_all(&long).unwrap_err();
    let refused = refused.downcast::<Error>().unwrap();
    assert!(refused.is_conflict(), "{refused}");
    assert!(cut.commit().is_err());
    assert!(ended.commit().unwrap_err().is_conflict());
    let refused = tx.commit().unwrap_err();
    assert!(refused.is_conflict(), "{refused}");
    // One that sent nothing yet goes to the next owner, perhaps this process.
    waiting.write_all(&long).unwrap();
    waiting.commit().unwrap();
    member.refresh().unwrap();
    assert_eq!(tree.get("waiting").unwrap().unwrap(), [b"short", &*long].concat());
    assert_eq!(tree.iter().unwrap().count(), 2);
}

/// Each part waits for the owner, and each wait ends at the timeout.
#[test]
fn streams_are_limited_in_time_and_number() {
    let dir = tempfile::tempdir().unwrap();
    let (_owner, member) = (open(dir.path()), open(dir.path()));
    let others: Vec<_> = (0..5).map(|_| open(dir.path())).collect();
    let impatient = builder().shared_timeout(Duration::from_secs(1)).open_shared(dir.path()).unwrap();
    let long = value(5, 300_000);
    let mut writers = Vec::new();
    for db in others.iter().chain([&member]) {
        for _ in 0..13 {
            let mut writer = db.tree("t").unwrap().stream_writer("k").unwrap();
            match writer.write_all(&long) {
                Ok(()) => writers.push(writer),
                Err(e) => assert!(matches!(e.downcast::<Error>(), Ok(Error::TooBusy { .. }))),
            }
        }
    }
    assert_eq!(writers.len(), 64, "a stream takes memory of the owner");
    drop(writers);
    let tx = member.begin_exclusive().unwrap();
    let began = Instant::now();
    let refused = impatient.tree("t").unwrap().put_stream("k", &*long).unwrap_err();
    assert!(matches!(refused, Error::ExclusiveOpen { .. }), "{refused}");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    drop(tx);
    impatient.tree("t").unwrap().put_stream("k", &*long).unwrap();
}
