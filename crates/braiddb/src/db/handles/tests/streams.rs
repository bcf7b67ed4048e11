//! Streams: round trips, and no data left of abandoned ones.

use crate::{
    base::{Content, EntryKind, Error},
    commit::RawBatch,
    db::{
        Db, Durability, Settings, Tree,
        read::reader_registry,
        tests_common::{DIR, fault, killed, mem, open, small},
        write::{pending_blobs::PendingBlobs, pipeline},
    },
    platform::{Vfs, fault_vfs::FaultVfs},
    read,
    table::blob::Pieces,
};
use std::{
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::Arc,
};

/// Incompressible bytes.
pub fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(next).collect()
}

pub struct Odd<'a> {
    bytes: &'a [u8],
    calls: usize,
    end: End,
}

pub enum End {
    Eof,
    Fail,
    Panic,
}

impl<'a> Odd<'a> {
    pub fn new(bytes: &'a [u8], end: End) -> Odd<'a> {
        Odd { bytes, calls: 0, end }
    }
}

impl Read for Odd<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.calls += 1;
        if self.calls.is_multiple_of(3) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = buf.len().min(self.bytes.len()).min(1 + self.calls * 7 % 301);
        if count == 0 {
            match self.end {
                End::Eof => {}
                End::Fail => return Err(io::Error::other("the line is dead")),
                End::Panic => panic!("as asked"),
            }
        }
        buf[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes = &self.bytes[count..];
        Ok(count)
    }
}

pub fn tree(db: &Db) -> Tree {
    db.tree("t").unwrap()
}

/// Piece lengths; empty if the value is inline.
pub fn pieces(db: &Db, tree: &Tree, key: &[u8]) -> Vec<u64> {
    let key = crate::db::engine::key::KeyBuf::of(tree.state(), key).unwrap();
    let state = db.engine().cell.state.load_full();
    let guard = crossbeam_epoch::pin();
    let entry = read::get(&state, &key, u64::MAX >> 2, &guard).unwrap().unwrap();
    let content = Content::of(entry.kind, entry.value).unwrap();
    match content.kind {
        EntryKind::Value => Vec::new(),
        _ => Pieces::of(&content).unwrap().list.iter().map(|piece| piece.len).collect(),
    }
}

pub fn blob_files(vfs: &Arc<dyn Vfs>) -> Vec<(String, u64)> {
    let all = vfs.list(Path::new(DIR)).unwrap();
    all.into_iter().filter(|e| e.name.ends_with(".blob")).map(|e| (e.name, e.len)).collect()
}

pub fn check(tree: &Tree, key: &[u8], expected: &[u8]) {
    assert_eq!(tree.get(key).unwrap().as_deref(), Some(expected));
    let mut reader = tree.stream(key).unwrap().unwrap();
    assert_eq!(reader.len(), expected.len() as u64);
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    assert!(all == expected);
    for at in [0, 1, expected.len() / 3, expected.len().saturating_sub(1), expected.len()] {
        let at = at.min(expected.len());
        assert_eq!(reader.seek(SeekFrom::Start(at as u64)).unwrap(), at as u64);
        let mut some = vec![0; (expected.len() - at).min(700)];
        reader.read_exact(&mut some).unwrap();
        assert!(some == expected[at..at + some.len()], "from {at}");
        let end = (at + 1000).min(expected.len());
        assert!(tree.read_range(key, at as u64..at as u64 + 1000).unwrap().unwrap() == expected[at..end]);
    }
    assert_eq!(reader.seek(SeekFrom::End(5)).unwrap(), expected.len() as u64 + 5);
    assert_eq!(reader.read(&mut [0; 4]).unwrap(), 0);
    assert!(reader.seek(SeekFrom::Current(-(expected.len() as i64) - 6)).is_err());
}

const LENGTHS: [usize; 12] = [0, 1, 255, 256, 257, 511, 512, 1000, 16_384, 16_385, 40_000, 90_000];

#[test]
fn streams_of_all_lengths_come_back_through_flush_merge_and_reopening() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let t = tree(&db);
    let mut expected = Vec::new();
    for (number, len) in LENGTHS.into_iter().enumerate() {
        let (key, value) = (format!("key{number}").into_bytes(), bytes(len, number as u64));
        t.put_stream(&key, Odd::new(&value, End::Eof)).unwrap();
        check(&t, &key, &value);
        expected.push((key, value));
    }
    assert_eq!(pieces(&db, &t, b"key2"), Vec::<u64>::new(), "below the threshold");
    assert_eq!(pieces(&db, &t, b"key3"), [256]);
    assert_eq!(pieces(&db, &t, b"key5"), [256, 255]);
    assert_eq!(pieces(&db, &t, b"key9")[62..], [256, 256, 1]);
    assert_eq!(pieces(&db, &t, b"key11")[63..66], [256, 1024, 1024]);
    let check_all = |db: &Db| {
        let t = tree(db);
        expected.iter().for_each(|(key, value)| check(&t, key, value));
        let rows: Vec<_> = t.iter().map(|row| row.unwrap()).collect();
        assert_eq!(rows.len(), expected.len());
        assert!(rows.iter().all(|(key, value)| expected.iter().any(|(k, v)| **key == **k && **value == **v)));
        let keys: Vec<&[u8]> = expected.iter().map(|(key, _)| key.as_slice()).collect();
        let many = t.multi_get(&keys).unwrap();
        assert!(many.iter().zip(&expected).all(|(found, (_, value))| found.as_deref() == Some(value.as_slice())));
        let report = db.verify().unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    };
    db.flush().unwrap();
    check_all(&db);
    db.compact().unwrap();
    check_all(&db);
    db.close().unwrap();
    let db = open(small(&vfs)).unwrap();
    check_all(&db);
}

#[test]
fn replayed_streams_come_back() {
    let faults = FaultVfs::new(Path::new(DIR));
    let db = open(small(&fault(&faults))).unwrap();
    let value = bytes(60_000, 1);
    tree(&db).put_stream(b"k", value.as_slice()).unwrap();
    tree(&db).append_stream(b"k", &value[..10]).unwrap();
    db.sync().unwrap();
    let after = killed(&faults);
    let again = open(small(&fault(&after))).unwrap();
    check(&tree(&again), b"k", &[&value, &value[..10]].concat());
    assert!(again.verify().unwrap().problems.is_empty());
}

/// Abandoned files are removed at open, and parts of shared files reclaimed.
#[test]
fn a_kill_in_the_middle_leaves_nothing_that_reclaim_does_not_find() {
    let faults = FaultVfs::new(Path::new(DIR));
    let db = open(small(&fault(&faults))).unwrap();
    let t = tree(&db);
    let mut alone = t.stream_writer(b"alone").unwrap();
    alone.write_all(&bytes(70_000, 1)).unwrap();
    let after = fault(&killed(&faults));
    assert!(blob_files(&after).len() > 4);
    let again = open(small(&after)).unwrap();
    assert_eq!(blob_files(&after), []);
    assert_eq!(tree(&again).get(b"alone").unwrap(), None);
    drop(alone);

    let value = bytes(20_000, 2);
    let (mut live, mut dead) = (t.stream_writer(b"live").unwrap(), t.stream_writer(b"dead").unwrap());
    for part in value.chunks(256) {
        live.write_all(part).unwrap();
        for _ in 0..3 {
            dead.write_all(part).unwrap();
        }
    }
    live.commit_with(Durability::Sync).unwrap();
    let after = fault(&killed(&faults));
    let again = open(small(&after)).unwrap();
    check(&tree(&again), b"live", &value);
    let before: u64 = blob_files(&after).iter().map(|(_, len)| len).sum();
    assert!(before > 65_000, "{before}");
    for round in 0..3_u8 {
        tree(&again).put(b"other", [round]).unwrap();
        again.compact().unwrap();
    }
    // Half of a live file is not worth moving, and one may be open.
    let left: u64 = blob_files(&after).iter().map(|(_, len)| len).sum();
    assert!(left < 2 * 26_000 + (16 << 10), "{left} bytes are left of {before}");
    check(&tree(&again), b"live", &value);
    assert_eq!(tree(&again).get(b"dead").unwrap(), None);
}

#[test]
fn read_of_damaged_piece_is_corruption() {
    let vfs = mem();
    let db = open(Settings { read_in_place: false, ..small(&vfs) }).unwrap();
    let t = tree(&db);
    t.put_stream(b"k", bytes(40_000, 1).as_slice()).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let (name, len) = blob_files(&vfs).remove(0);
    let file = vfs.open(&Path::new(DIR).join(name), crate::platform::OpenMode::ReadWrite).unwrap();
    file.write_at(&[0xee; 3], len - 3).unwrap();
    let db = open(Settings { read_in_place: false, ..small(&vfs) }).unwrap();
    let t = tree(&db);
    assert!(t.get(b"k").unwrap_err().is_corruption());
    assert!(t.read_range(b"k", 0..10).is_ok());
    let mut reader = t.stream(b"k").unwrap().unwrap();
    let error = io::copy(&mut reader, &mut io::sink()).unwrap_err();
    assert!(error.downcast::<Error>().unwrap().is_corruption());
    assert!(!db.verify().unwrap().problems.is_empty());
}

#[test]
fn readers_that_fail_or_panic_leave_nothing_behind() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let t = tree(&db);
    let value = bytes(50_000, 3);
    let failed = t.put_stream(b"k", Odd::new(&value, End::Fail)).unwrap_err();
    assert!(failed.is_aborted() && failed.to_string().contains("the line is dead"), "{failed}");
    let failed = t.put_stream(b"k", Odd::new(&value, End::Panic)).unwrap_err();
    assert!(failed.is_aborted() && failed.to_string().contains("as asked"), "{failed}");
    assert!(t.append_stream(b"k", Odd::new(&value, End::Panic)).unwrap_err().is_aborted());
    let tx = db.begin().unwrap();
    assert!(tx.put_stream(&t, b"k", Odd::new(&value, End::Fail)).unwrap_err().is_aborted());
    drop(tx);
    assert_eq!(t.get(b"k").unwrap(), None);
    assert_eq!(blob_files(&vfs), []);
    t.put_stream(b"k", Odd::new(&value, End::Eof)).unwrap();
    check(&t, b"k", &value);
}

#[test]
fn a_failed_writer_takes_nothing_more() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let t = tree(&db);
    let mut writer = t.stream_writer(b"k").unwrap();
    writer.write_all(b"begun").unwrap();
    assert!(writer.read_from(Odd::new(b"more", End::Fail)).is_err());
    assert!(writer.write_all(b"x").is_err());
    assert!(matches!(writer.commit(), Err(Error::InvalidArgument(_))));
    assert_eq!(t.get(b"k").unwrap(), None);
}

#[test]
fn abandoned_streams_give_their_space_back() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let t = tree(&db);
    let value = bytes(70_000, 5);
    let mut writer = t.stream_writer(b"k").unwrap();
    writer.write_all(&value).unwrap();
    assert!(blob_files(&vfs).iter().map(|(_, len)| len).sum::<u64>() > 60_000);
    drop(writer);
    assert_eq!(blob_files(&vfs), []);
    let tx = db.begin().unwrap();
    tx.put_stream(&t, b"k", value.as_slice()).unwrap();
    tx.rollback();
    drop(t.write_stream(b"k", value.as_slice()).unwrap());
    let mut batch = db.batch();
    batch.put_stream(t.write_stream(b"k", value.as_slice()).unwrap());
    drop(batch);
    assert_eq!(blob_files(&vfs), []);
    assert_eq!(t.get(b"k").unwrap(), None);
}

#[test]
fn one_stream_is_abandoned_while_another_goes_on() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let t = tree(&db);
    let value = bytes(3000, 5);
    let (mut one, mut other) = (t.stream_writer(b"1").unwrap(), t.stream_writer(b"2").unwrap());
    for part in value.chunks(100) {
        one.write_all(part).unwrap();
        other.write_all(part).unwrap();
    }
    drop(one);
    db.flush().unwrap();
    other.write_all(&value).unwrap();
    other.commit().unwrap();
    check(&t, b"2", &[value.as_slice(), &value].concat());
    db.compact().unwrap();
    check(&t, b"2", &[value.as_slice(), &value].concat());
    assert!(db.verify().unwrap().problems.is_empty());
}

#[test]
fn transactions_see_their_own_streams_and_others_do_not() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let t = tree(&db);
    let (first, second) = (bytes(20_000, 1), bytes(30_000, 2));
    t.put_stream(b"k", first.as_slice()).unwrap();
    let tx = db.begin().unwrap();
    tx.append_stream(&t, b"k", second.as_slice()).unwrap();
    let both = [first.as_slice(), &second].concat();
    assert_eq!(tx.get(&t, b"k").unwrap().as_deref(), Some(both.as_slice()));
    let mut reader = tx.stream(&t, b"k").unwrap().unwrap();
    assert_eq!(tx.read_range(&t, b"k", 19_999..20_001).unwrap().unwrap(), both[19_999..20_001]);
    check(&t, b"k", &first);
    let savepoint = tx.savepoint();
    tx.put_stream(&t, b"k", b"other".as_slice()).unwrap();
    tx.rollback_to(savepoint).unwrap();
    assert_eq!(tx.iter(&t).next().unwrap().unwrap().1, &both);
    tx.commit().unwrap();
    check(&t, b"k", &both);
    t.delete(b"k").unwrap();
    db.compact().unwrap();
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    assert!(all == both);
    drop(reader);
    db.compact().unwrap();
    let tx = db.begin().unwrap();
    assert!(tx.stream(&t, b"k").unwrap().is_none());
    t.put(b"k", b"now").unwrap();
    tx.put_stream(&t, b"l", b"x".as_slice()).unwrap();
    assert!(tx.commit().unwrap_err().is_conflict(), "the key was read by `stream`");
    let tx = db.begin().unwrap();
    tx.append_stream(&t, b"k", b"!".as_slice()).unwrap();
    t.put(b"k", b"then").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict(), "the key was read by `append_stream`");
    let tx = db.begin_exclusive().unwrap();
    tx.append_stream(&t, b"k", first.as_slice()).unwrap();
    tx.commit().unwrap();
    check(&t, b"k", &[b"then".as_slice(), &first].concat());
}

#[test]
fn batches_commit_streams_with_all_else() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let t = tree(&db);
    let value = bytes(20_000, 9);
    let mut batch = db.batch();
    batch.put(&t, b"z", b"name").put_stream(t.write_stream(b"k", value.as_slice()).unwrap());
    batch.put_stream(t.write_stream(b"short", b"x".as_slice()).unwrap());
    let again = batch.clone();
    batch.commit_with(Durability::Sync).unwrap();
    check(&t, b"k", &value);
    t.delete(b"k").unwrap();
    db.compact().unwrap();
    again.commit_with(Durability::Sync).unwrap();
    db.compact().unwrap();
    check(&t, b"k", &value);
    check(&t, b"short", b"x");
    let other_vfs = mem();
    let other = open(small(&other_vfs)).unwrap();
    let mut batch = other.batch();
    batch.put_stream(t.write_stream(b"k", value.as_slice()).unwrap());
    assert!(matches!(batch.commit_with(Durability::Sync), Err(Error::InvalidArgument(_))));
}

#[test]
fn a_dead_stream_gives_its_space_back() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let t = tree(&db);
    let value = bytes(100_000, 1);
    t.put_stream(b"k", value.as_slice()).unwrap();
    t.append_stream(b"k", value.as_slice()).unwrap();
    db.compact().unwrap();
    check(&t, b"k", &[value.as_slice(), &value].concat());
    let full: u64 = blob_files(&vfs).iter().map(|(_, len)| len).sum();
    assert!((200_000..260_000).contains(&full), "{full}");
    t.put(b"k", b"short").unwrap();
    db.compact().unwrap();
    let left: u64 = blob_files(&vfs).iter().map(|(_, len)| len).sum();
    assert!(left <= 16 << 10, "no more than the open file: {left}");
}

#[test]
fn readers_of_streams_expire() {
    let vfs = mem();
    let runtime = Arc::new(crate::platform::SystemRuntime::new());
    let db = open(Settings { reader_age_max_ns: 1, runtime, ..small(&vfs) }).unwrap();
    let t = tree(&db);
    t.put_stream(b"k", bytes(40_000, 1).as_slice()).unwrap();
    let mut reader = t.stream(b"k").unwrap().unwrap();
    let read = |_| {
        reader_registry::check(db.engine());
        reader.rewind().unwrap();
        io::copy(&mut reader, &mut io::sink()).err()
    };
    // Reader age uses a coarse clock.
    let expired = (0..1_000_000).find_map(read).unwrap();
    assert!(expired.downcast::<Error>().unwrap().is_reader_expired());
}

/// Short durable commits do not sync an unfinished stream.
#[test]
fn others_commits_leave_a_stream_alone() {
    use crate::platform::fault_vfs::Operation;
    let faults = FaultVfs::new(Path::new(DIR));
    let db = open(small(&fault(&faults))).unwrap();
    let t = tree(&db);
    db.sync().unwrap();
    let synced = || {
        let blob = |(operation, path): &&(Operation, std::path::PathBuf)| {
            *operation == Operation::Sync && path.extension().is_some_and(|e| e == "blob")
        };
        faults.journal().iter().filter(blob).count()
    };
    let mut writer = t.stream_writer(b"k").unwrap();
    writer.write_all(&bytes(70_000, 1)).unwrap();
    let mut batch = db.batch();
    batch.put(&t, b"small", b"x");
    batch.commit_with(Durability::Sync).unwrap();
    assert_eq!(synced(), 0);
    writer.commit_with(Durability::Buffered).unwrap();
    assert_eq!(synced(), 0);
    db.sync().unwrap();
    assert!(synced() >= 4, "{}", synced());
    let before = synced();
    t.stream_writer(b"l").unwrap().commit_with(Durability::Sync).unwrap();
    assert_eq!(synced(), before);
    let mut writer = t.stream_writer(b"k").unwrap();
    writer.write_all(&bytes(70_000, 1)).unwrap();
    writer.commit_with(Durability::Sync).unwrap();
    assert!(synced() > before);
}

#[test]
fn what_is_too_long_is_refused() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let t = tree(&db);
    let mut tail = t.stream_writer(b"k").unwrap();
    tail.write_all(&[0; 1000]).unwrap();
    let (tail, _written) = tail.into_pieces().into_tail().unwrap();
    let long = crate::table::blob::BlobRef {
        file: 1,
        offset: 64,
        len: crate::base::limits::MAX_VALUE_LEN - 999,
        stored_len: 1 << 20,
        compression: crate::codec::Compression::None,
        checksum: 0,
    };
    let base = crate::db::write::piece_writer::Base::Pieces(Pieces { list: vec![long] });
    let refused = tail.onto(Some(base), &mut PendingBlobs::new(db.engine())).unwrap_err();
    assert!(refused.to_string().contains("longer than 4294967295 bytes"), "{refused}");
}

/// Regression: an unreadable reference ended log replay, and writes once flushed.
#[test]
fn references_that_cannot_be_understood_are_no_end_of_the_log() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    let internal = [&tree.state().id.first_key()[..], b"k"].concat();
    let mut batch = RawBatch::default();
    batch.push(EntryKind::Stream, &[&internal], b"nonsense");
    pipeline::commit(db.engine(), batch.prepare().unwrap(), Durability::Sync).unwrap();
    tree.put(b"later", b"x").unwrap();
    drop((db, tree));
    let db = open(small(&vfs)).unwrap();
    let tree = db.open_tree("t").unwrap();
    for _ in 0..2 {
        assert!(tree.get(b"k").unwrap_err().is_corruption());
        assert_eq!(tree.get(b"later").unwrap().as_deref(), Some(&b"x"[..]));
        db.flush().unwrap();
        db.compact().unwrap();
    }
    tree.delete(b"k").unwrap();
    assert_eq!(tree.iter().count(), 1);
}

#[test]
fn a_stream_may_have_as_many_bytes_as_a_value() {
    let vfs = mem();
    let db = open(Settings { stream_len_max: 100_000, ..small(&vfs) }).unwrap();
    let tree = db.tree("t").unwrap();
    let longest = bytes(100_000, 3);
    tree.put_stream(b"k", &longest[..]).unwrap();
    tree.put_stream(b"l", &longest[..99_999]).unwrap();
    tree.append_stream(b"l", &longest[99_999..]).unwrap();
    for key in [b"k", b"l"] {
        assert!(tree.get(key).unwrap().as_deref() == Some(&longest[..]));
        assert!(matches!(tree.append_stream(key, &b"1"[..]), Err(Error::InvalidArgument(_))));
        tree.append_stream(key, &b""[..]).unwrap();
    }
    let longer = [&longest[..], b"1"].concat();
    assert!(matches!(tree.put_stream(b"m", &longer[..]), Err(Error::InvalidArgument(_))));
    assert!(!tree.contains(b"m").unwrap());
}
