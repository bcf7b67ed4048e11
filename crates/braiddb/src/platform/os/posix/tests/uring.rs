use super::{super::per_process::tests::is_true_in_child, *};
use crate::platform::{BatchReads, File, OpenMode, PosixVfs, Vfs};
use std::{path::Path, sync::Arc};

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn files(dir: &Path, bytes: &[u8]) -> [Arc<dyn File>; 2] {
    let (vfs, path) = (PosixVfs::new(), dir.join("1.run"));
    vfs.open(&path, OpenMode::CreateNew).unwrap().write_at(bytes, 0).unwrap();
    [vfs.open(&path, OpenMode::Read).unwrap(), vfs.open_unbuffered(&path, OpenMode::Read).unwrap().file]
}

/// Some are too long for a slot, some end at or past the end of the file.
fn requests(file: &Arc<dyn File>, len: usize) -> Vec<ReadRequest> {
    let mut requests: Vec<_> = (0..3 * SLOTS)
        .map(|n| ReadRequest::new(Arc::clone(file), (n * 104_729 % (len - 9000)) as u64, 1 + n * 131 % 9000))
        .collect();
    requests.push(ReadRequest::new(Arc::clone(file), 3, 3 * SLOT_BYTES));
    requests.push(ReadRequest::new(Arc::clone(file), len as u64 - 100, 100));
    requests.push(ReadRequest::new(Arc::clone(file), len as u64 - 50, 100));
    requests.push(ReadRequest::new(Arc::clone(file), u64::MAX - 10, 100));
    requests.push(ReadRequest::new(Arc::clone(file), 17, 0));
    requests
}

fn check(requests: &[ReadRequest], bytes: &[u8]) {
    for (index, request) in requests.iter().enumerate() {
        let result = request.result.as_ref().expect("each was made");
        let start = usize::try_from(request.offset).ok();
        let expected = start.and_then(|start| bytes.get(start..start.checked_add(request.bytes.len())?));
        match expected {
            Some(expected) => assert!(result.is_ok() && request.bytes == expected, "read {index}: {result:?}"),
            None => assert!(result.is_err(), "read {index}, past the end"),
        }
    }
    assert_eq!(requests.iter().filter(|request| matches!(request.result, Some(Err(_)))).count(), 2);
}

#[test]
fn read_many_equals_single_reads() {
    let (dir, bytes) = (tempfile::tempdir().unwrap(), pattern(300_001));
    for file in files(dir.path(), &bytes) {
        for vfs in [PosixVfs::new(), PosixVfs::new().io_uring(false)] {
            let mut requests = requests(&file, bytes.len());
            vfs.read_many(&mut requests);
            check(&requests, &bytes);
        }
    }
}

#[test]
fn ring_read_leaves_failed_requests_open() {
    if let Some(because) = refused() {
        return eprintln!("skipped: {because}");
    }
    let (dir, bytes) = (tempfile::tempdir().unwrap(), pattern(300_001));
    for file in files(dir.path(), &bytes) {
        let mut requests = requests(&file, bytes.len());
        read(&mut requests).unwrap();
        let made = requests.iter().filter(|request| request.result.is_some()).count();
        assert_eq!(made, 3 * SLOTS + 1, "all that are right and short enough");
        requests.iter_mut().for_each(ReadRequest::read_alone);
        check(&requests, &bytes);
    }
}

#[test]
fn concurrent_batches_use_separate_rings() {
    let (dir, bytes) = (tempfile::tempdir().unwrap(), pattern(300_001));
    let [_, file] = files(dir.path(), &bytes);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (file, bytes) = (&file, &bytes);
            scope.spawn(move || {
                for _ in 0..20 {
                    let mut requests = requests(file, bytes.len());
                    PosixVfs::new().io_uring(thread % 2 == 0).read_many(&mut requests);
                    check(&requests, bytes);
                }
            });
        }
    });
    assert!(state().lock().idle.len() <= RINGS_KEPT);
}

#[test]
fn io_report_names_batch_method() {
    let report = PosixVfs::new().io_uring(false).io_report();
    assert_eq!(report.batches, BatchReads::Threads);
    assert!(report.io_uring_refused.unwrap().contains("switched it off"));
    let report = PosixVfs::new().io_report();
    assert_eq!(report.batches == BatchReads::IoUring, report.io_uring_refused.is_none());
}

/// A child of a fork used its parent's idle rings, and each took the results of the other's reads.
#[test]
fn child_of_fork_has_rings_of_its_own() {
    if let Some(because) = refused() {
        return eprintln!("skipped: {because}");
    }
    let (dir, bytes) = (tempfile::tempdir().unwrap(), pattern(300_001));
    let [_, file] = files(dir.path(), &bytes);
    keep(take().unwrap());
    let mut of_child = requests(&file, bytes.len());
    let is_right = is_true_in_child(|| {
        let had_none = state().lock().idle.is_empty();
        let done = read(&mut of_child);
        had_none && done.is_ok() && of_child.iter().filter(|request| request.result.is_some()).count() == 3 * SLOTS + 1
    });
    assert!(is_right);
    let mut requests = requests(&file, bytes.len());
    read(&mut requests).unwrap();
    requests.iter_mut().for_each(ReadRequest::read_alone);
    check(&requests, &bytes);
}
