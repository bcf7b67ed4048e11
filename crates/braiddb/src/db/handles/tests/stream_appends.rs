//! Appends to streams, and pieces moved during reads and appends.

use super::streams::{blob_files, bytes, check, pieces, tree};
use crate::{
    base::{EntryKind, Error},
    codec::Compression,
    commit::RawBatch,
    db::{
        Db, Durability, Settings,
        handles::streams::reader,
        tests_common::{DIR, bounded, mem, open, small},
        write::{pending_blobs::PendingBlobs, pipeline},
    },
};
use std::{
    io::{Read, Write},
    path::Path,
};

#[test]
fn appends_make_what_they_should_of_every_kind_of_value() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let t = tree(&db);
    for (number, before) in
        [None, Some(0), Some(10), Some(250), Some(300), Some(5000), Some(40_000)].into_iter().enumerate()
    {
        for (other, more) in [0, 1, 20, 255, 300, 3000, 30_000].into_iter().enumerate() {
            for streamed in [false, true] {
                let key = format!("{number} {other} {streamed}").into_bytes();
                let mut expected = Vec::new();
                if let Some(len) = before {
                    expected = bytes(len, number as u64);
                    let put = if streamed { t.put_stream(&key, expected.as_slice()) } else { t.put(&key, &expected) };
                    put.unwrap();
                }
                let more = bytes(more, other as u64 + 100);
                t.append_stream(&key, more.as_slice()).unwrap();
                expected.extend(more);
                check(&t, &key, &expected);
            }
        }
    }
    t.append_stream(b"short", b"ab".as_slice()).unwrap();
    t.append_stream(b"short", b"cd".as_slice()).unwrap();
    assert_eq!(pieces(&db, &t, b"short"), Vec::<u64>::new());
    db.compact().unwrap();
    assert_eq!(t.get(b"short").unwrap().as_deref(), Some(&b"abcd"[..]));
    assert!(db.verify().unwrap().problems.is_empty());
}

#[test]
fn short_appends_are_joined() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let t = tree(&db);
    let mut expected = Vec::new();
    let before = db.stats().blob_bytes_written;
    for number in 0..1500_u64 {
        let more = bytes(20, number);
        t.append_stream(b"k", more.as_slice()).unwrap();
        expected.extend(more);
        let list = pieces(&db, &t, b"k");
        let is_long = |pair: &[u64]| pair[0] + pair[1] > 4 * 256;
        assert!(list.windows(2).all(|pair| is_long(pair) || pair[0] > 2 * pair[1]), "{list:?}");
    }
    check(&t, b"k", &expected);
    assert!(pieces(&db, &t, b"k").len() <= 2 * 30_000 / 1024 + 12, "{:?}", pieces(&db, &t, b"k"));
    let written = db.stats().blob_bytes_written - before;
    assert!(written < 14 * 30_000 + 1500 * 100, "{written} bytes");
    let mut expected = Vec::new();
    for len in (1..256_usize).rev() {
        let more = bytes(len, len as u64);
        t.append_stream(b"l", more.as_slice()).unwrap();
        expected.extend(more);
    }
    check(&t, b"l", &expected);
    assert!(pieces(&db, &t, b"l").len() < 2 * 32_640 / 1024 + 12, "{:?}", pieces(&db, &t, b"l"));
}

#[test]
fn a_stream_may_be_merged_into() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let t = tree(&db);
    let append = db.merge_function("append").unwrap();
    let value = bytes(5000, 1);
    t.put_stream(b"k", value.as_slice()).unwrap();
    t.merge(b"k", &append, b"end").unwrap();
    let mut expected = [value.as_slice(), b"end"].concat();
    check(&t, b"k", &expected);
    db.compact().unwrap();
    check(&t, b"k", &expected);
    t.append_stream(b"k", b"!".as_slice()).unwrap();
    expected.push(b'!');
    check(&t, b"k", &expected);
    let tx = db.begin().unwrap();
    tx.put_stream(&t, b"k", value.as_slice()).unwrap();
    tx.merge(&t, b"k", &append, b"end").unwrap();
    tx.append_stream(&t, b"k", b"?".as_slice()).unwrap();
    expected.pop();
    expected.push(b'?');
    assert_eq!(tx.get(&t, b"k").unwrap().as_deref(), Some(expected.as_slice()));
    tx.commit().unwrap();
    check(&t, b"k", &expected);
    let mut batch = db.batch();
    batch.put_stream(t.write_stream(b"k", value.as_slice()).unwrap()).merge(&t, b"k", &append, b"end");
    assert!(matches!(batch.commit_with(Durability::Buffered), Err(Error::InvalidArgument(_))));
    check(&t, b"k", &expected);
}

#[test]
fn a_slow_reader_goes_on_while_its_pieces_are_moved() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let t = tree(&db);
    let value = bytes(60_000, 1);
    // Each file holds pieces of both streams.
    let (mut one, mut other) = (t.stream_writer(b"1").unwrap(), t.stream_writer(b"2").unwrap());
    for part in value.chunks(256) {
        one.write_all(part).unwrap();
        other.write_all(part).unwrap();
        other.write_all(part).unwrap();
    }
    one.commit().unwrap();
    other.commit().unwrap();
    db.flush().unwrap();
    t.delete(b"2").unwrap();
    let mut reader = t.stream(b"1").unwrap().unwrap();
    let mut all = vec![0; 10];
    reader.read_exact(&mut all).unwrap();
    let before = blob_files(&vfs);
    db.compact().unwrap();
    t.put(b"3", b"x").unwrap();
    db.compact().unwrap();
    let mut some = vec![0; 2000];
    reader.read_exact(&mut some).unwrap();
    all.extend(some);
    let moved = blob_files(&vfs);
    let stayed = before.iter().filter(|file| moved.contains(file)).count();
    assert!(stayed < before.len() / 2, "{before:?} became {moved:?}");
    for part in 0..6 {
        let mut some = vec![0; 5000];
        reader.read_exact(&mut some).unwrap();
        all.extend(some);
        t.put(b"4", [part; 300]).unwrap();
        db.compact().unwrap();
    }
    reader.read_to_end(&mut all).unwrap();
    assert!(all == value);
    check(&t, b"1", &value);
    let sum: u64 = blob_files(&vfs).iter().map(|(_, len)| len).sum();
    assert!(sum < 120_000, "{sum}");
}

#[test]
fn what_was_let_go_of_cannot_be_kept_any_more() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let t = tree(&db);
    let value = bytes(20_000, 1);
    t.put_stream(b"k", value.as_slice()).unwrap();
    db.flush().unwrap();
    let key = crate::db::engine::key::KeyBuf::of(t.state(), b"k").unwrap();
    let find = || match reader::find_value(db.engine(), &key, None).unwrap().unwrap().base {
        crate::db::write::piece_writer::Base::Pieces(pieces) => pieces,
        other => panic!("{other:?}"),
    };
    let old = find();
    let mut kept = PendingBlobs::new(db.engine());
    assert!(kept.pin(&old));
    t.put_stream(b"k", &value[..19_000]).unwrap();
    db.compact().unwrap();
    let first = blob_files(&vfs);
    assert!(old.list.iter().all(|piece| first.iter().any(|(name, _)| *name == format!("{:06}.blob", piece.file))));
    drop(kept);
    t.put(b"l", b"x").unwrap();
    db.compact().unwrap();
    assert!(!PendingBlobs::new(db.engine()).pin(&old), "it was let go of");
    assert!(PendingBlobs::new(db.engine()).pin(&find()));
}

/// Damage, which the append must not retry forever.
#[test]
fn an_append_to_a_stream_without_its_file_is_refused() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    tree(&db).put_stream(b"k", bytes(5000, 1).as_slice()).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let (name, _) = blob_files(&vfs).remove(0);
    vfs.remove(&Path::new(DIR).join(name)).unwrap();
    let db = open(small(&vfs)).unwrap();
    let refused = bounded("an append", move || tree(&db).append_stream(b"k", &b"more"[..]).unwrap_err());
    assert!(refused.is_corruption() && refused.to_string().contains("missing"), "{refused}");
}

#[test]
fn shared_pieces_are_moved_once() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let t = tree(&db);
    let value = bytes(30_000, 1);
    let (mut one, mut other) = (t.stream_writer(b"1").unwrap(), t.stream_writer(b"2").unwrap());
    for part in value.chunks(256) {
        one.write_all(part).unwrap();
        other.write_all(&bytes(12 * part.len(), 1000 + other.len())).unwrap();
    }
    one.commit().unwrap();
    other.commit().unwrap();
    t.delete(b"2").unwrap();
    let mut snapshots = Vec::new();
    let mut expected = value.clone();
    for number in 0..2_u8 {
        snapshots.push((db.snapshot(), expected.clone()));
        t.append_stream(b"1", [number; 300].as_slice()).unwrap();
        expected.extend([number; 300]);
    }
    db.compact().unwrap();
    for round in 0..3_u8 {
        t.put(b"3", [round]).unwrap();
        db.compact().unwrap();
    }
    let left: u64 = blob_files(&vfs).iter().map(|(_, len)| len).sum();
    assert!(left < 70_000, "{left}");
    for (snapshot, expected) in &snapshots {
        assert!(snapshot.get(&t, b"1").unwrap().unwrap() == expected);
    }
    check(&t, b"1", &expected);
}

#[test]
fn appends_of_many_threads_lose_nothing_while_files_are_moved() {
    const THREADS: u8 = 3;
    const APPENDS: u16 = 60;
    /// Writer, number, length, bytes.
    fn chunk(writer: u8, number: u16) -> Vec<u8> {
        let len = (u32::from(number) * 97 % 700 + 1) as u16;
        let mut chunk = vec![writer];
        chunk.extend(number.to_le_bytes());
        chunk.extend(len.to_le_bytes());
        chunk.extend(bytes(usize::from(len), u64::from(writer) << 16 | u64::from(number)));
        chunk
    }
    fn counts(value: &[u8]) -> [u16; THREADS as usize] {
        let mut counts = [0; THREADS as usize];
        let mut rest = value;
        while let [writer, low, high, ..] = rest {
            let number = u16::from_le_bytes([*low, *high]);
            let expected = chunk(*writer, number);
            assert!(rest.starts_with(&expected), "chunk {number} of {writer}");
            assert_eq!(number, counts[usize::from(*writer)], "of writer {writer}");
            counts[usize::from(*writer)] += 1;
            rest = &rest[expected.len()..];
        }
        counts
    }
    let vfs = mem();
    let db = open(Settings { background_threads: 2, ..small(&vfs) }).unwrap();
    let t = tree(&db);
    let done = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for writer in 0..THREADS {
            let (t, done) = (&t, &done);
            scope.spawn(move || {
                for number in 0..APPENDS {
                    t.append_stream(b"k", chunk(writer, number).as_slice()).unwrap();
                    t.put_stream(b"other", bytes(2000, u64::from(number)).as_slice()).unwrap();
                }
                done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            });
        }
        let mut before = [0; THREADS as usize];
        while done.load(std::sync::atomic::Ordering::SeqCst) < usize::from(THREADS) {
            if let Some(mut reader) = t.stream(b"k").unwrap() {
                let mut value = Vec::new();
                reader.read_to_end(&mut value).unwrap();
                let now = counts(&value);
                assert!(now.iter().zip(before).all(|(now, before)| *now >= before));
                before = now;
            }
            db.compact().unwrap();
        }
    });
    assert_eq!(counts(&t.get(b"k").unwrap().unwrap()), [APPENDS; THREADS as usize]);
    db.compact().unwrap();
    assert!(db.verify().unwrap().problems.is_empty());
    db.close().unwrap();
    let db = open(small(&vfs)).unwrap();
    assert_eq!(counts(&tree(&db).get(b"k").unwrap().unwrap()), [APPENDS; THREADS as usize]);
}

/// Regression: an empty piece in a list made the list, and the rest of the log, unreadable.
#[test]
fn a_stream_is_appended_to_an_empty_value_in_a_blob_file() {
    let vfs = mem();
    let settings = || Settings { blob_threshold: 0, ..small(&vfs) };
    let db = open(settings()).unwrap();
    let (tree, other) = (db.tree("t").unwrap(), db.tree("other").unwrap());
    tree.put(b"k", b"").unwrap();
    tree.put_stream(b"l", &b""[..]).unwrap();
    // Earlier builds wrote empty values to blob files.
    let internal = [&tree.state().id.first_key()[..], b"m"].concat();
    let empty = db.engine().storage.blobs.write(&internal, b"", Compression::None).unwrap();
    let mut reference = Vec::new();
    empty.encode(&mut reference);
    let mut batch = RawBatch::default();
    batch.push(EntryKind::BlobRef, &[&internal], &reference);
    let sequence = pipeline::commit(db.engine(), batch.prepare().unwrap(), Durability::Buffered).unwrap();
    db.engine().storage.blobs.settle(&[empty.file], Some(sequence));
    let long = bytes(200 << 10, 1);
    for key in [b"k", b"l", b"m"] {
        assert_eq!(tree.get(key).unwrap().as_deref(), Some(&b""[..]));
        tree.append_stream(key, &long[..]).unwrap();
        db.update(|tx| tx.append_stream(&tree, key, &b"end"[..])).unwrap();
        assert_eq!(tree.get(key).unwrap().unwrap().len(), long.len() + 3);
    }
    other.put(b"later", b"x").unwrap();
    for is_flushed in [false, true] {
        if is_flushed {
            db.flush().unwrap();
        }
        let db = Db::open_with(Settings { read_only: true, ..settings() }, Path::new(DIR)).unwrap();
        let tree = db.open_tree("t").unwrap();
        assert_eq!(tree.read_range(b"m", 0..1 << 30).unwrap().unwrap(), [&long[..], b"end"].concat());
        assert_eq!(db.open_tree("other").unwrap().get(b"later").unwrap().as_deref(), Some(&b"x"[..]));
    }
    assert!(db.verify().unwrap().problems.is_empty());
}
