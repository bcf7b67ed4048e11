#[cfg(windows)]
use crate::platform::ReadRequest;
use crate::platform::{
    Aligned, File, OpenMode, SystemVfs, Unbuffered, Vfs,
    os::{
        aligned_io::{KEPT, KEPT_MAX, PIECE_BYTES},
        tests::conformance,
    },
};
use std::{io, path::Path, sync::Arc};

fn open(path: &Path, mode: OpenMode) -> io::Result<Unbuffered> {
    SystemVfs::new().open_unbuffered(path, mode)
}

#[derive(Debug, Default)]
struct AllUnbuffered(SystemVfs);

impl crate::platform::VfsLayer for AllUnbuffered {
    fn inner(&self) -> &dyn Vfs {
        &self.0
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(self.0.open_unbuffered(path, mode)?.file)
    }
}

/// Prints a message if the file system has no direct reads.
fn direct(path: &Path) -> Option<Arc<dyn File>> {
    let opened = open(path, OpenMode::Read).unwrap();
    if let Some(because) = &opened.refused {
        eprintln!("skipped: {because}");
        return None;
    }
    assert!(opened.file.is_unbuffered());
    Some(opened.file)
}

fn put(path: &Path, bytes: &[u8]) {
    SystemVfs::new().open(path, OpenMode::CreateNew).unwrap().write_at(bytes, 0).unwrap();
}

fn get(path: &Path) -> Vec<u8> {
    let file = SystemVfs::new().open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[cfg(target_os = "linux")]
fn pages_cached(path: &Path) -> usize {
    let file = SystemVfs::new().open(path, OpenMode::Read).unwrap();
    let len = file.len().unwrap();
    let map = file.map_for_reading(len).unwrap().expect("a file system whose files are mapped");
    let len = usize::try_from(len).unwrap();
    (0..len).step_by(4096).filter(|&at| map.is_in_memory(at..at + 1)).count()
}

#[test]
fn direct_io_conforms() {
    let dir = tempfile::tempdir().unwrap();
    conformance::check(&AllUnbuffered::default(), dir.path());
}

/// Varies the file's length, and offset, length and address of the reads.
#[test]
fn direct_read_at_any_alignment_returns_bytes() {
    const UNIT: usize = 4096;
    let dir = tempfile::tempdir().unwrap();
    let edges = |near: usize| [near.saturating_sub(1), near, near + 1];
    for len in [0, 1, 511, 512, 513, UNIT - 1, UNIT, UNIT + 1, 3 * UNIT, PIECE_BYTES - 1, PIECE_BYTES + 77] {
        let (path, bytes) = (dir.path().join(format!("{len}.run")), pattern(len));
        put(&path, &bytes);
        let Some(file) = direct(&path) else { return };
        let mut target = Aligned::new(PIECE_BYTES + 4 * UNIT);
        let places = [0, 512, UNIT, 2 * UNIT, len / 2, len, PIECE_BYTES];
        let lengths = [0, 1, 7, 512, UNIT, 2 * UNIT, len, PIECE_BYTES + UNIT];
        for offset in places.into_iter().flat_map(edges) {
            for count in lengths.into_iter().flat_map(edges) {
                for address in [0, 1, 8, 512, UNIT] {
                    let buf = &mut target.bytes_mut()[address..][..count.min(PIECE_BYTES + 2 * UNIT)];
                    buf.fill(0xee);
                    let read = file.read_at(buf, offset as u64).unwrap();
                    let expected = &bytes[offset.min(len)..(offset + buf.len()).min(len)];
                    assert_eq!(read, expected.len(), "{} bytes at {offset} of {len}", buf.len());
                    assert!(buf[..read] == *expected, "{} bytes at {offset} of {len}", buf.len());
                }
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn direct_io_leaves_no_cached_pages() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes) = (dir.path().join("1.run"), pattern((3 << 20) + 100));
    let writer = open(&path, OpenMode::CreateNew).unwrap();
    assert_eq!(writer.refused, None);
    writer.file.write_at(&bytes, 0).unwrap();
    assert_eq!(pages_cached(&path), 1, "what is no whole unit, and nothing else");
    writer.file.write_at(&bytes[..5000], 0).unwrap();
    assert!(pages_cached(&path) > 2, "short writes go through it");
    writer.file.sync_data().unwrap();
    assert!(pages_cached(&path) <= 1, "the last page, for who appends");
    drop(writer);
    assert_eq!(pages_cached(&path), 0);
    let Some(file) = direct(&path) else { return };
    for offset in (0..bytes.len()).step_by(5000) {
        let mut buf = vec![0; 9000.min(bytes.len() - offset)];
        file.read_exact_at(&mut buf, offset as u64).unwrap();
        assert!(buf == bytes[offset..offset + buf.len()]);
    }
    assert_eq!(pages_cached(&path), 0);
    // Buffered reads stay cached, so this check can fail.
    SystemVfs::new().open(&path, OpenMode::Read).unwrap().read_exact_at(&mut [0; 9000], 0).unwrap();
    assert!(pages_cached(&path) > 0);
    drop(direct(&path));
    assert_eq!(pages_cached(&path), 0);
}

#[test]
fn direct_write_at_any_alignment_stores_bytes() {
    const LEN: usize = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let (path, source) = (dir.path().join("1.run"), pattern(2 * LEN));
    let writer = open(&path, OpenMode::CreateNew).unwrap().file;
    let mut memory = Aligned::new(LEN);
    let mut expected = Vec::new();
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for round in 0..400 {
        let unit = [1, 8, 512, 4096][random(4)];
        let (at, address) = (random(LEN) / unit * unit, random(3) * [1, 512, 4096][random(3)]);
        let longest = [100, 5000, 70 << 10, 600 << 10][random(4)];
        let len = (1 + random(longest) / unit * unit).min(LEN - 3 * 4096);
        let from = random(LEN);
        let bytes = &mut memory.bytes_mut()[address..address + len];
        bytes.copy_from_slice(&source[from..from + len]);
        writer.write_at(bytes, at as u64).unwrap();
        expected.resize(expected.len().max(at + len), 0);
        expected[at..at + len].copy_from_slice(bytes);
        if round % 40 == 0 {
            writer.sync_data().unwrap();
        }
        if round % 10 == 0 {
            assert!(get(&path) == expected, "after {round} writes");
        }
    }
    let Some(reader) = direct(&path) else { return };
    let mut bytes = vec![0; expected.len()];
    reader.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == expected);
}

#[test]
fn direct_read_after_buffered_append_returns_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1.blob");
    let writer = open(&path, OpenMode::CreateNew).unwrap().file;
    writer.write_at(b"first", 0).unwrap();
    let Some(reader) = direct(&path) else { return };
    let (mut expected, mut at) = (b"first".to_vec(), 5);
    for round in 0..200usize {
        let piece = pattern(round * 37 % 700 + 1);
        writer.write_at(&piece, at).unwrap();
        at += piece.len() as u64;
        expected.extend_from_slice(&piece);
        if round % 20 == 0 {
            writer.sync_data().unwrap();
        }
        let mut bytes = vec![0; expected.len()];
        reader.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == expected, "after {round} appends");
    }
}

#[test]
fn concurrent_unaligned_reads_return_own_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes) = (dir.path().join("1.run"), pattern(1 << 20));
    put(&path, &bytes);
    let Some(file) = direct(&path) else { return };
    std::thread::scope(|scope| {
        for thread in 0..8usize {
            let (file, bytes) = (&file, &bytes);
            scope.spawn(move || {
                for round in 0..200 {
                    let offset = (thread * 7919 + round * 104_729) % (bytes.len() - 9000);
                    let mut buf = vec![0; 1 + (round * 41) % 9000];
                    file.read_exact_at(&mut buf, offset as u64).unwrap();
                    assert!(buf == bytes[offset..offset + buf.len()]);
                }
            });
        }
    });
    assert!(KEPT.lock().len() <= KEPT_MAX);
}

#[cfg(target_os = "linux")]
#[test]
fn open_unbuffered_without_support_falls_back_with_reason() {
    // Files of /proc have no blocks on a device.
    let opened = open(Path::new("/proc/self/status"), OpenMode::Read).unwrap();
    let because = opened.refused.expect("a reason");
    assert!(because.contains("O_DIRECT"), "{because}");
    assert!(!opened.file.is_unbuffered());
    assert!(opened.file.read_at(&mut [0; 10], 0).unwrap() > 0);
}

/// The counterpart for Linux is in `posix/tests/uring.rs`.
#[cfg(windows)]
#[test]
fn batched_reads_equal_single_reads() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = pattern((1 << 20) + 100);
    let paths = [dir.path().join("1.run"), dir.path().join("2.run")];
    paths.iter().for_each(|path| put(path, &bytes));
    let vfs = SystemVfs::new();
    let files = [vfs.open(&paths[0], OpenMode::Read).unwrap(), direct(&paths[1]).expect("past the cache")];
    for count in [1, 2, 15, 16, 17, 50] {
        let request = |at: usize| {
            let (offset, len) = ((at * 104_729) % bytes.len(), 1 + (at * 7919) % 40_000);
            ReadRequest::new(Arc::clone(&files[at % 2]), offset as u64, len)
        };
        let mut requests: Vec<_> = (0..count).map(request).collect();
        vfs.read_many(&mut requests);
        for request in requests {
            let at = usize::try_from(request.offset).unwrap();
            match request.result.expect("it was made") {
                Ok(()) => assert!(request.bytes == bytes[at..at + request.bytes.len()]),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                    assert!(at + request.bytes.len() > bytes.len());
                }
            }
        }
    }
}
