use super::{BLOB_CHUNK_LEN, BlobFile, BlobRef, BlobValue, BlobWriter, BlobWriterContext, Lane, ScanItem, blob_path};
use crate::{
    base::{Error, FileNumber, limits},
    cache::BlockCache,
    codec::{Compression, FILE_HEADER_LEN},
    platform::{
        OpenMode, Runtime, SystemRuntime, Vfs,
        fault_vfs::{FaultVfs, Operation},
    },
    table::TableContext,
};
use std::{
    io::ErrorKind,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

const DIR: &str = "/db";

fn new_vfs() -> FaultVfs {
    FaultVfs::new(Path::new(DIR))
}

fn writer(vfs: &FaultVfs, file_len: u64) -> BlobWriter {
    let next = AtomicU64::new(1);
    BlobWriter::new(BlobWriterContext {
        vfs: Arc::new(vfs.clone()),
        dir: DIR.into(),
        runtime: Arc::new(SystemRuntime::new()),
        next_file_number: Arc::new(move || next.fetch_add(1, Ordering::Relaxed)),
        file_len,
        recent_writes: Arc::default(),
        sync_failed: Arc::new(|| {}),
    })
}

fn context(vfs: FaultVfs) -> TableContext {
    TableContext::new(Arc::new(vfs), BlockCache::new(1 << 20))
}

fn open(vfs: &FaultVfs, number: FileNumber) -> BlobFile {
    BlobFile::open(&context(vfs.clone()), Path::new(DIR), number).unwrap()
}

fn value_of(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    (0..len)
        .map(|at| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if (at / BLOB_CHUNK_LEN).is_multiple_of(2) { (at / 100) as u8 } else { (state >> 56) as u8 }
        })
        .collect()
}

fn key_of(seed: u64) -> Vec<u8> {
    format!("{:>width$}", seed, width = 4 + seed as usize % 40).into_bytes()
}

fn scan(file: &BlobFile) -> Vec<ScanItem> {
    let mut items = Vec::new();
    file.scan(&mut |item| {
        items.push(item);
        Ok(())
    })
    .unwrap();
    items
}

#[test]
fn values_of_all_lengths_round_trip() {
    let vfs = new_vfs();
    let writer = writer(&vfs, 1 << 30);
    let chunk = BLOB_CHUNK_LEN;
    let lengths = [0, 1, 7, 8, 1000, chunk - 1, chunk, chunk + 1, 3 * chunk, 5 * chunk + 17, 20 * chunk];
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        for (seed, len) in lengths.into_iter().enumerate() {
            let value = value_of(seed as u64, len);
            let reference = writer.append(&key_of(seed as u64), &value, compression).unwrap();
            assert_eq!(reference.len, len as u64);
            if compression == Compression::None {
                assert!(reference.stored_len >= len as u64 && reference.compression == Compression::None);
            } else if len > 1000 {
                assert!(reference.stored_len < len as u64 && reference.compression == compression);
            }
            let file = open(&vfs, reference.file);
            assert!(file.read(&reference).unwrap().into_vec() == value);
            assert_eq!(file.read_key(&reference).unwrap(), key_of(seed as u64));
            assert!(file.exists_and_complete(&reference).unwrap());
            for (from, end) in [(0, 0), (0, 1), (len / 2, len), (chunk - 1, chunk + 1), (len, len + 9), (3, 4 * chunk)]
            {
                let part = file.read_range(&reference, from as u64..end as u64).unwrap();
                assert!(part == value[from.min(len)..end.min(len)], "{from}..{end} of {len}");
            }
            let mut encoded = Vec::new();
            reference.encode(&mut encoded);
            assert!(encoded.len() < 32);
            assert_eq!(BlobRef::decode(&encoded), Some(reference));
            for cut in 0..encoded.len() {
                assert_eq!(BlobRef::decode(&encoded[..cut]), None);
            }
            encoded.push(0);
            assert_eq!(BlobRef::decode(&encoded), None);
        }
    }
    assert_eq!(writer.stats().values, 33);
    let items = scan(&open(&vfs, 1));
    assert_eq!(items.len(), 33);
    assert!(items.iter().all(|item| matches!(item, ScanItem::Record { .. })));
}

#[test]
fn append_to_full_file_begins_another() {
    let vfs = new_vfs();
    let writer = writer(&vfs, 4096);
    let references: Vec<_> =
        (0..30).map(|seed| writer.append(&key_of(seed), &value_of(seed, 1000), Compression::None).unwrap()).collect();
    assert_eq!(references.last().unwrap().file, 10);
    assert_eq!(writer.open_files().len(), 10);
    writer.sync().unwrap();
    assert_eq!(writer.open_files(), [10]);
    assert_eq!(writer.roll(Lane::Values), Some(10));
    let large = writer.append(b"key", &value_of(1, 9000), Compression::None).unwrap();
    assert_eq!((large.file, large.offset), (11, FILE_HEADER_LEN as u64));
    assert_eq!(open(&vfs, 11).read(&large).unwrap().into_vec(), value_of(1, 9000));
    for (seed, reference) in references.iter().enumerate() {
        assert_eq!(open(&vfs, reference.file).read(reference).unwrap().into_vec(), value_of(seed as u64, 1000));
    }
}

#[test]
fn read_after_flipped_bit_or_truncation_fails() {
    let vfs = new_vfs();
    let writer = writer(&vfs, 1 << 20);
    let values: Vec<_> = (0..4).map(|seed| value_of(seed, 100 + seed as usize * 50)).collect();
    let references: Vec<_> = (0..)
        .zip(&values)
        .map(|(seed, value)| {
            writer.append(&key_of(seed), value, if seed % 2 == 0 { Compression::Lz4 } else { Compression::None })
        })
        .collect::<Result<_, _>>()
        .unwrap();
    let path = blob_path(Path::new(DIR), 1);
    let files = vfs.files();
    let len = files[&path].len();
    let check = |damaged: &[u8], range: Option<usize>| {
        let mut files = files.clone();
        files.insert(path.clone(), damaged.to_vec());
        let vfs = FaultVfs::of_files(Path::new(DIR), &files);
        let file = match BlobFile::open(&context(vfs), Path::new(DIR), 1) {
            Ok(file) => file,
            Err(error) => {
                assert!(error.is_corruption());
                return;
            }
        };
        for (reference, value) in references.iter().zip(&values) {
            let within = range
                .is_some_and(|at| (reference.offset..reference.offset + reference.stored_len).contains(&(at as u64)));
            match file.read(reference) {
                Ok(read) => assert!(*read == **value && !within),
                Err(error) => assert!(error.is_corruption() && (within || range.is_none())),
            }
            assert_eq!(file.exists_and_complete(reference).unwrap(), file.read(reference).is_ok());
        }
        let found = scan(&file).iter().filter(|item| matches!(item, ScanItem::Record { .. })).count();
        assert!(found >= 3 || range.is_none());
    };
    for bit in FILE_HEADER_LEN * 8..len * 8 {
        let mut damaged = files[&path].clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        check(&damaged, Some(bit / 8));
    }
    for cut in 0..len {
        check(&files[&path][..cut], None);
    }
}

#[test]
fn read_of_wrong_reference_fails() {
    let vfs = new_vfs();
    let writer = writer(&vfs, 1 << 20);
    let good = writer.append(b"key", &value_of(1, 500), Compression::None).unwrap();
    let other = writer.append(b"key", &value_of(2, 500), Compression::None).unwrap();
    let file = open(&vfs, 1);
    let wrong = [
        BlobRef { file: 2, ..good },
        BlobRef { offset: other.offset, ..good },
        BlobRef { offset: u64::MAX - 7, ..good },
        BlobRef { offset: good.offset + 8, ..good },
        BlobRef { len: limits::MAX_VALUE_LEN, ..good },
        BlobRef { stored_len: u64::MAX, ..good },
        BlobRef { stored_len: 1, ..good },
        BlobRef { checksum: 0, ..good },
        BlobRef { compression: Compression::Lz4, ..good },
    ];
    for reference in wrong {
        assert!(file.read(&reference).unwrap_err().is_corruption(), "{reference:?}");
        assert!(!file.exists_and_complete(&reference).unwrap());
    }
}

#[test]
fn append_after_full_disk_leaves_hole_and_succeeds() {
    for written in [0, 20, 60, 400, 1000] {
        let vfs = new_vfs();
        let writer = writer(&vfs, 1 << 20);
        let first = writer.append(b"a", &value_of(1, 300), Compression::None).unwrap();
        vfs.fail_written(Operation::Write, 0, 1, ErrorKind::StorageFull, written);
        assert!(writer.append(b"b", &value_of(2, 700), Compression::None).unwrap_err().is_disk_full());
        let third = writer.append(b"c", &value_of(3, 300), Compression::None).unwrap();
        writer.sync().unwrap();
        let file = open(&vfs, 1);
        assert_eq!(file.read(&third).unwrap().into_vec(), value_of(3, 300));
        let items = scan(&file);
        assert_eq!(items.len(), 3, "{items:?}");
        assert_eq!(items[0], ScanItem::Record { reference: first, key: b"a".to_vec() });
        match &items[1] {
            ScanItem::Hole { range } => {
                assert!(written < 40);
                assert_eq!(*range, (first.offset + first.stored_len).next_multiple_of(8)..third.offset);
            }
            ScanItem::Broken { reference } => assert!((40..61).contains(&written) && reference.len == 700),
            ScanItem::Record { reference, .. } => {
                assert_eq!(file.exists_and_complete(reference).unwrap(), written == 1000);
            }
        }
        assert_eq!(items[2], ScanItem::Record { reference: third, key: b"c".to_vec() });
    }
    // A file that cannot be created.
    for operation in [Operation::Create, Operation::Write] {
        let vfs = new_vfs();
        let writer = writer(&vfs, 1 << 20);
        vfs.fail(operation, 0, 1, ErrorKind::StorageFull);
        assert!(writer.append(b"a", b"value", Compression::None).unwrap_err().is_disk_full());
        let reference = writer.append(b"a", b"value", Compression::None).unwrap();
        assert_eq!(reference.file, 2);
        assert_eq!(vfs.files().len(), 1);
    }
}

#[test]
fn append_after_failed_sync_fails() {
    for operation in [Operation::Sync, Operation::SyncDir] {
        let vfs = new_vfs();
        let writer = writer(&vfs, 1 << 20);
        writer.sync().unwrap();
        let reference = writer.append(b"a", b"value", Compression::None).unwrap();
        vfs.fail(operation, 0, 1, ErrorKind::Other);
        assert!(writer.sync().is_err());
        let before = vfs.journal().len();
        assert!(matches!(writer.sync(), Err(Error::ReadOnly { .. })));
        assert!(matches!(writer.append(b"b", b"", Compression::None), Err(Error::ReadOnly { .. })));
        assert_eq!(vfs.journal().len(), before);
        assert_eq!(open(&vfs, 1).read(&reference).unwrap().into_vec(), b"value");
    }
}

#[test]
fn sync_without_new_values_does_nothing() {
    let vfs = new_vfs();
    let writer = writer(&vfs, 1 << 20);
    let syncs = || vfs.journal().iter().filter(|(o, _)| matches!(o, Operation::Sync | Operation::SyncDir)).count();
    writer.append(b"a", b"value", Compression::None).unwrap();
    writer.sync().unwrap();
    assert_eq!(syncs(), 2);
    writer.sync().unwrap();
    assert_eq!(syncs(), 2);
    writer.append(b"a", b"value", Compression::None).unwrap();
    writer.sync().unwrap();
    assert_eq!(syncs(), 3);
}

#[test]
fn synced_values_among_holes_survive_crash() {
    let vfs = new_vfs();
    let writer = writer(&vfs, 2000);
    let mut synced = Vec::new();
    for seed in 0..40 {
        let value = value_of(seed, 10 + seed as usize * 13);
        let reference = writer.append(&key_of(seed), &value, Compression::Lz4).unwrap();
        if seed < 25 {
            synced.push((reference, value));
        }
        if seed == 24 {
            writer.sync().unwrap();
        }
    }
    for seed in 0..60u64 {
        let mut state = seed;
        let crashed = vfs.crashed(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 63 == 1
        });
        for (reference, value) in &synced {
            assert_eq!(open(&crashed, reference.file).read(reference).unwrap().into_vec(), *value);
        }
        for number in 1..=synced.last().unwrap().0.file {
            let items = scan(&open(&crashed, number));
            let of_file = synced.iter().filter(|(reference, _)| reference.file == number);
            for (reference, _) in of_file {
                assert!(items.iter().any(|i| matches!(i, ScanItem::Record { reference: r, .. } if r == reference)));
            }
        }
    }
}

#[test]
fn concurrent_appends_and_syncs_keep_all_values() {
    let vfs = new_vfs();
    let writer = Arc::new(writer(&vfs, 20_000));
    let synced = Arc::new(Mutex::new(Vec::new()));
    let runtime = SystemRuntime::new();
    let threads: Vec<_> = (0..8u64)
        .map(|thread| {
            let (writer, synced) = (writer.clone(), synced.clone());
            let body = move || {
                for round in 0..60 {
                    let seed = thread * 1000 + round;
                    let value = value_of(seed, (seed % 900) as usize);
                    let reference = writer.append(&key_of(seed), &value, Compression::None).unwrap();
                    if round % 4 == 0 {
                        writer.sync().unwrap();
                        synced.lock().unwrap().push((seed, reference));
                    }
                }
            };
            runtime.spawn("blobs", Box::new(body)).unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let crashed = vfs.crashed(|| false);
    for (seed, reference) in synced.lock().unwrap().iter() {
        let value = value_of(*seed, (seed % 900) as usize);
        assert_eq!(open(&crashed, reference.file).read(reference).unwrap().into_vec(), value);
    }
    writer.sync().unwrap();
    assert_eq!(writer.open_files().len(), 1);
    let records: usize = (1..=writer.stats().files).map(|number| scan(&open(&vfs, number)).len()).sum();
    assert_eq!(records, 480);
}

#[test]
fn obsolete_file_after_last_handle_is_removed() {
    let vfs = new_vfs();
    let writer = writer(&vfs, 1 << 20);
    let reference = writer.append(b"a", b"value", Compression::None).unwrap();
    drop(open(&vfs, 1));
    let file = Arc::new(open(&vfs, 1));
    let other = file.clone();
    file.mark_obsolete();
    drop(file);
    assert_eq!(other.read(&reference).unwrap().into_vec(), b"value");
    drop(other);
    assert!(vfs.list(Path::new(DIR)).unwrap().is_empty());
}

#[test]
fn scan_of_damaged_file_stays_in_bounds() {
    let vfs = new_vfs();
    let writer = writer(&vfs, 1 << 20);
    for seed in 0..20 {
        writer.append(&key_of(seed), &value_of(seed, 200), Compression::Lz4).unwrap();
    }
    let path = blob_path(Path::new(DIR), 1);
    let original = vfs.read(&path);
    let mut state = 9u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for _ in 0..500 {
        let mut bytes = original.clone();
        for _ in 0..1 + random() % 30 {
            let at = FILE_HEADER_LEN + random() % (bytes.len() - FILE_HEADER_LEN);
            bytes[at] = random() as u8;
        }
        let vfs = FaultVfs::of_files(Path::new(DIR), &[(path.clone(), bytes)].into());
        let file = open(&vfs, 1);
        let mut end = FILE_HEADER_LEN as u64;
        for item in scan(&file) {
            let range = match item {
                ScanItem::Hole { range } => range,
                ScanItem::Record { reference, .. } | ScanItem::Broken { reference } => {
                    let _ = file.read(&reference);
                    reference.offset..reference.offset + reference.stored_len
                }
            };
            assert!(range.start == end.next_multiple_of(8) || range.start == end);
            end = range.end;
        }
    }
}

/// A value reserved when the map was made but written later was reported as damaged.
#[test]
fn read_of_value_written_after_mapping_succeeds() {
    let vfs = new_vfs();
    let writer = writer(&vfs, 1 << 20);
    let put = |seed| writer.append(b"key", &value_of(seed, 5000), Compression::None).unwrap();
    let first = put(1);
    let file = vfs.open(&blob_path(Path::new(DIR), 1), OpenMode::ReadWrite).unwrap();
    file.set_len(64 << 10).unwrap();
    let blobs = open(&vfs, 1);
    assert!(matches!(blobs.read(&first).unwrap(), BlobValue::InPlace(_)));
    let second = put(2);
    assert!(blobs.read(&second).unwrap().into_vec() == value_of(2, 5000));
}
