//! The requirements for every file system. Run on each implementation, here and in the simulator.

use super::{File, OpenMode, Vfs};
use std::{
    io::ErrorKind,
    path::Path,
    sync::{Arc, Barrier},
};

/// Runs all checks in `root`, an empty directory or one that can be created.
pub(crate) fn check(vfs: &dyn Vfs, root: &Path) {
    directories(vfs, &root.join("directories"));
    opening(vfs, &root.join("opening"));
    contents(vfs, &root.join("contents"));
    lengths(vfs, &root.join("lengths"));
    written_places(vfs, &root.join("written"));
    names(vfs, &root.join("names"));
    open_handles_outlive_names(vfs, &root.join("handles"));
    locks(vfs, &root.join("locks"));
    many_threads(vfs, &root.join("threads"));
    random_operations(vfs, &root.join("random"));
    mappings(vfs, &root.join("mappings"));
}

fn create(vfs: &dyn Vfs, path: &Path) -> Arc<dyn File> {
    vfs.open(path, OpenMode::CreateNew).unwrap()
}

fn put(vfs: &dyn Vfs, path: &Path, bytes: &[u8]) {
    create(vfs, path).write_at(bytes, 0).unwrap();
}

fn bytes_of(vfs: &dyn Vfs, path: &Path) -> Vec<u8> {
    bytes_in(&*vfs.open(path, OpenMode::Read).unwrap())
}

fn bytes_in(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0xee; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn names_in(vfs: &dyn Vfs, dir: &Path) -> Vec<(String, u64)> {
    let mut names: Vec<_> = vfs.list(dir).unwrap().into_iter().map(|entry| (entry.name, entry.len)).collect();
    names.sort();
    names
}

/// Files with holes and too short files are never mapped.
fn mappings(vfs: &dyn Vfs, root: &Path) {
    const LEN: u64 = 64 << 10;
    vfs.create_dir_all(root).unwrap();
    let sparse = create(vfs, &root.join("sparse"));
    sparse.set_len(LEN).unwrap();
    assert!(sparse.map_for_writing(LEN).unwrap().is_none(), "a write might find no space");
    let path = root.join("allocated");
    let file = create(vfs, &path);
    file.preallocate(LEN).unwrap();
    file.sync_data().unwrap();
    assert!(file.map_for_writing(LEN + 1).unwrap().is_none(), "a write might reach past the end");
    let Some(mut mapping) = file.map_for_writing(LEN).unwrap() else { return };
    file.write_at(b"written", 4090).unwrap();
    mapping.write(b"mapped", 4093);
    mapping.write(b"end", LEN - 3);
    file.write_at(b"again", 10).unwrap();
    file.sync_bytes(b"again", 10).unwrap();
    file.sync_data().unwrap();
    let check = |bytes: &[u8]| {
        assert_eq!(bytes.len() as u64, LEN);
        assert_eq!((&bytes[4090..4100], &bytes[10..15]), (&b"wrimapped\0"[..], &b"again"[..]));
        assert!(bytes.ends_with(b"\0end"));
    };
    check(&bytes_in(&*file));
    vfs.remove(&path).unwrap();
    mapping.write(b"M", 4093);
    drop(mapping);
    let mut byte = [0];
    file.read_exact_at(&mut byte, 4093).unwrap();
    assert_eq!(&byte, b"M");
}

fn directories(vfs: &dyn Vfs, root: &Path) {
    assert_eq!(vfs.list(root).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(vfs.sync_dir(root).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(vfs.open(&root.join("a"), OpenMode::CreateNew).unwrap_err().kind(), ErrorKind::NotFound);
    let deep = root.join("a/b/c");
    vfs.create_dir_all(&deep).unwrap();
    vfs.create_dir_all(&deep).unwrap();
    for dir in [root, &root.join("a"), &root.join("a/b"), &deep] {
        assert_eq!(vfs.list(dir).unwrap(), [], "directories are not listed");
        vfs.sync_dir(dir).unwrap();
    }
    put(vfs, &deep.join("file"), b"12345");
    assert_eq!(names_in(vfs, &deep), [("file".to_owned(), 5)]);
    assert_eq!(names_in(vfs, &root.join("a/b/c/")), [("file".to_owned(), 5)]);
    assert_eq!(names_in(vfs, &root.join("a/b")), []);
    assert!(vfs.create_dir_all(&deep.join("file/below")).is_err(), "a file is no directory");
    let space = vfs.free_space(root).unwrap();
    assert!(space.is_none_or(|bytes| bytes > 0));
}

fn opening(vfs: &dyn Vfs, root: &Path) {
    vfs.create_dir_all(root).unwrap();
    let path = root.join("file");
    for mode in [OpenMode::Read, OpenMode::ReadWrite] {
        assert_eq!(vfs.open(&path, mode).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(vfs.open(root, mode).unwrap_err().kind(), ErrorKind::IsADirectory);
    }
    put(vfs, &path, b"old");
    assert_eq!(vfs.open(&path, OpenMode::CreateNew).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(bytes_of(vfs, &path), b"old", "a refused creation cuts nothing");
    vfs.open(&path, OpenMode::ReadWrite).unwrap().write_at(b"new", 0).unwrap();
    let reader = vfs.open(&path, OpenMode::Read).unwrap();
    assert!(reader.write_at(b"bad", 0).is_err(), "opened for reading");
    assert!(reader.set_len(0).is_err(), "opened for reading");
    assert_eq!(bytes_in(&*reader), b"new");
}

fn contents(vfs: &dyn Vfs, root: &Path) {
    vfs.create_dir_all(root).unwrap();
    let path = root.join("file");
    let file = create(vfs, &path);
    assert!(file.is_empty().unwrap());
    assert_eq!(file.read_at(&mut [0; 4], 0).unwrap(), 0);
    file.write_at(b"", 9).unwrap();
    assert_eq!(file.len().unwrap(), 0, "an empty write does not grow the file");
    let long: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8 + 1).collect();
    file.write_at(&long, 100_000).unwrap();
    file.write_at(b"xyz", 400_000).unwrap();
    assert_eq!(file.len().unwrap(), 400_003);
    let bytes = bytes_of(vfs, &path);
    assert!(bytes[..100_000].iter().all(|byte| *byte == 0), "a hole reads as zeros");
    assert_eq!(bytes[100_000..300_000], long[..]);
    assert!(bytes[300_000..400_000].iter().all(|byte| *byte == 0));
    assert_eq!(&bytes[400_000..], b"xyz");
    file.write_at(b"##", 65_535).unwrap();
    let mut four = [9; 4];
    file.read_exact_at(&mut four, 65_534).unwrap();
    assert_eq!(four, [0, b'#', b'#', 0]);
    let mut buf = [7; 8];
    assert_eq!(file.read_at(&mut buf, 400_000).unwrap(), 3);
    assert_eq!(&buf, b"xyz\x07\x07\x07\x07\x07", "what was not read is left alone");
    assert_eq!(file.read_at(&mut buf, 400_003).unwrap(), 0);
    assert_eq!(file.read_at(&mut buf, 1 << 40).unwrap(), 0);
    assert_eq!(file.read_exact_at(&mut buf, 400_000).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(file.read_at(&mut [], 0).unwrap(), 0);
    assert!(file.write_at(b"x", u64::MAX - 3).is_err());
    file.sync_data().unwrap();
}

fn lengths(vfs: &dyn Vfs, root: &Path) {
    vfs.create_dir_all(root).unwrap();
    let path = root.join("file");
    let file = create(vfs, &path);
    file.write_at(&[1; 70_000], 0).unwrap();
    file.set_len(10).unwrap();
    assert_eq!(bytes_in(&*file), [1; 10]);
    file.set_len(70_000).unwrap();
    assert_eq!(file.len().unwrap(), 70_000);
    assert!(bytes_in(&*file)[10..].iter().all(|byte| *byte == 0), "what was cut does not come back");
    file.set_len(5).unwrap();
    file.write_at(&[2], 8).unwrap();
    assert_eq!(bytes_in(&*file), [1, 1, 1, 1, 1, 0, 0, 0, 2]);
    file.set_len(0).unwrap();
    assert!(file.is_empty().unwrap());
    file.write_at(&[3; 3], 0).unwrap();
    file.preallocate(100_000).unwrap();
    assert_eq!(file.len().unwrap(), 100_000);
    file.preallocate(50).unwrap();
    file.preallocate(0).unwrap();
    assert_eq!(file.len().unwrap(), 100_000, "preallocation never cuts");
    let bytes = bytes_in(&*file);
    assert_eq!(bytes[..3], [3; 3]);
    assert!(bytes[3..].iter().all(|byte| *byte == 0));
    assert_eq!(names_in(vfs, root), [("file".to_owned(), 100_000)]);
    assert!(file.set_len(u64::MAX).is_err());
    assert!(file.preallocate(u64::MAX).is_err());
    assert_eq!(file.len().unwrap(), 100_000);
}

fn written_places(vfs: &dyn Vfs, root: &Path) {
    const LEN: u64 = 2 << 20;
    vfs.create_dir_all(root).unwrap();
    let path = root.join("file");
    let file = create(vfs, &path);
    file.preallocate(LEN).unwrap();
    file.sync_data().unwrap();
    let reads_as_zeros = |from: u64, until: u64| {
        let mut bytes = vec![1; (until - from) as usize];
        file.read_exact_at(&mut bytes, from).unwrap();
        bytes.iter().all(|byte| *byte == 0)
    };
    let mut last = 0;
    let mut check = |place: u64| {
        let found = file.next_written(last).unwrap().expect("something was written there");
        assert!((last..=place).contains(&found), "{found} where {place} was written to");
        assert!(reads_as_zeros(last, found));
        last = place + 1;
    };
    file.write_at(&[1], 300_000).unwrap();
    check(300_000);
    if let Some(mut mapping) = file.map_for_writing(LEN).unwrap() {
        mapping.write(&[2], 900_000);
        check(900_000);
    }
    file.write_at(&[3], LEN - 1).unwrap();
    check(LEN - 1);
    file.sync_data().unwrap();
    assert!(file.next_written(0).unwrap().is_some_and(|place| place <= 300_000));
    // Past the end it returns nothing, or the offset itself.
    assert!(file.next_written(LEN).unwrap().is_none_or(|place| place == LEN));
}

fn names(vfs: &dyn Vfs, root: &Path) {
    vfs.create_dir_all(&root.join("sub")).unwrap();
    let (a, b, c) = (root.join("a"), root.join("b"), root.join("sub/c"));
    assert_eq!(vfs.remove(&a).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(vfs.rename(&a, &b).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(vfs.hard_link(&a, &b).unwrap_err().kind(), ErrorKind::NotFound);
    put(vfs, &a, b"a");
    put(vfs, &b, b"bb");
    vfs.rename(&a, &b).unwrap();
    assert_eq!(names_in(vfs, root), [("b".to_owned(), 1)]);
    assert_eq!(bytes_of(vfs, &b), b"a");
    vfs.rename(&b, &c).unwrap();
    assert_eq!(names_in(vfs, root), []);
    assert_eq!(vfs.rename(&c, &root.join("none/c")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(bytes_of(vfs, &c), b"a", "a refused rename changes nothing");
    vfs.hard_link(&c, &a).unwrap();
    assert_eq!(vfs.hard_link(&c, &a).unwrap_err().kind(), ErrorKind::AlreadyExists);
    vfs.open(&a, OpenMode::ReadWrite).unwrap().write_at(b"shared", 0).unwrap();
    assert_eq!(bytes_of(vfs, &c), b"shared", "two names, one file");
    vfs.remove(&c).unwrap();
    assert_eq!(bytes_of(vfs, &a), b"shared");
    vfs.remove(&a).unwrap();
    assert_eq!(vfs.open(&a, OpenMode::Read).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(vfs.remove(&a).unwrap_err().kind(), ErrorKind::NotFound);
    vfs.sync_dir(root).unwrap();
}

fn open_handles_outlive_names(vfs: &dyn Vfs, root: &Path) {
    vfs.create_dir_all(root).unwrap();
    let (a, b) = (root.join("a"), root.join("b"));
    let file = create(vfs, &a);
    file.write_at(b"kept", 0).unwrap();
    vfs.remove(&a).unwrap();
    file.write_at(b"!", 4).unwrap();
    file.sync_data().unwrap();
    assert_eq!(bytes_in(&*file), b"kept!");
    file.sync_bytes(b"ept", 1).unwrap();
    assert_eq!(bytes_in(&*file), b"kept!");
    put(vfs, &a, b"another");
    assert_eq!(bytes_in(&*file), b"kept!");
    let replaced = vfs.open(&a, OpenMode::ReadWrite).unwrap();
    put(vfs, &b, b"winner");
    vfs.rename(&b, &a).unwrap();
    assert_eq!(bytes_in(&*replaced), b"another");
    assert_eq!(bytes_of(vfs, &a), b"winner");
}

fn locks(vfs: &dyn Vfs, root: &Path) {
    vfs.create_dir_all(root).unwrap();
    let (path, other) = (root.join("LOCK"), root.join("OTHER"));
    let held = vfs.lock(&path, "process 17, a long text").unwrap().unwrap();
    assert_eq!(vfs.lock(&path, "process 18").unwrap().unwrap_err(), "process 17, a long text");
    assert_eq!(vfs.lock(&path, "process 18").unwrap().unwrap_err(), "process 17, a long text");
    assert_eq!(vfs.lock_owner(&path).unwrap().as_deref(), Some("process 17, a long text"));
    assert_eq!(vfs.lock_owner(&other).unwrap(), None);
    let another = vfs.lock(&other, "x").unwrap().unwrap();
    drop(held);
    assert_eq!(vfs.lock_owner(&path).unwrap(), None);
    assert_eq!(bytes_of(vfs, &path), b"process 17, a long text");
    let held = vfs.lock(&path, "process 19").unwrap().unwrap();
    assert_eq!(vfs.lock(&path, "").unwrap().unwrap_err(), "process 19");
    assert_eq!(bytes_of(vfs, &path), b"process 19");
    drop((held, another));
    assert!(vfs.lock(&root.join("none/LOCK"), "x").is_err());
}

fn many_threads(vfs: &dyn Vfs, root: &Path) {
    const THREADS: usize = 4;
    const RANGE: usize = 50_000;
    vfs.create_dir_all(root).unwrap();
    let file = create(vfs, &root.join("file"));
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (file, barrier) = (&file, &barrier);
            scope.spawn(move || {
                barrier.wait();
                let start = thread * RANGE;
                for round in 0..20_u8 {
                    let bytes = vec![round * 4 + thread as u8; RANGE];
                    file.write_at(&bytes, start as u64).unwrap();
                    let mut read = vec![0; RANGE];
                    file.read_exact_at(&mut read, start as u64).unwrap();
                    assert_eq!(read, bytes);
                }
            });
        }
    });
    assert_eq!(file.len().unwrap(), (THREADS * RANGE) as u64);
    let winners: usize = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| usize::from(vfs.open(&root.join("one"), OpenMode::CreateNew).is_ok())))
            .collect();
        tries.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(winners, 1);
}

fn random_operations(vfs: &dyn Vfs, root: &Path) {
    vfs.create_dir_all(root).unwrap();
    let file = create(vfs, &root.join("file"));
    let mut model = Vec::new();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound as u64) as usize
    };
    for step in 0..400 {
        let offset = below(200_000);
        match below(8) {
            0 => {
                file.set_len(offset as u64).unwrap();
                model.resize(offset, 0);
            }
            1 => {
                file.preallocate(offset as u64).unwrap();
                model.resize(model.len().max(offset), 0);
            }
            2 => file.sync_data().unwrap(),
            _ => {
                let bytes = vec![step as u8 | 1; below(if step % 7 == 0 { 150_000 } else { 5_000 }) + 1];
                file.write_at(&bytes, offset as u64).unwrap();
                model.resize(model.len().max(offset + bytes.len()), 0);
                model[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
        }
        assert_eq!(file.len().unwrap(), model.len() as u64, "step {step}");
        let mut buf = vec![0xaa; below(100_000)];
        let count = file.read_at(&mut buf, offset as u64).unwrap();
        let expected = model.get(offset..).unwrap_or_default();
        let expected = &expected[..expected.len().min(buf.len())];
        assert!(buf[..count] == *expected, "step {step}");
    }
    assert!(bytes_in(&*file) == model);
}
