//! Verification lists each damaged unit once, with its tree and keys, and continues past damage.

use crate::{
    base::{DatabaseFile, EntryKind, EntryRef, Error},
    codec::{Base, Operand, encode_operands},
    db::{
        ProblemKind, Settings, VerifyOptions, VerifyProblem, VerifyReport,
        maintenance::verify::Checker,
        tests_common::{DIR, fault, killed, open, small},
        verify_path,
    },
    platform::fault_vfs::FaultVfs,
};
use parking_lot::Mutex;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

fn settings(vfs: &FaultVfs) -> Settings {
    Settings { partition_bytes: Some(1 << 30), memtable_bytes: Some(1 << 20), ..small(&fault(vfs)) }
}

fn verified(vfs: &FaultVfs) -> VerifyReport {
    verify_path(settings(vfs), Path::new(DIR), &VerifyOptions::default()).unwrap()
}

fn database() -> FaultVfs {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(settings(&vfs)).unwrap();
    let tree = db.tree("albums").unwrap();
    for i in 0..500_u32 {
        tree.put(i.to_be_bytes(), i.to_be_bytes().repeat(8)).unwrap();
    }
    drop(tree);
    db.compact().unwrap();
    db.close().unwrap();
    vfs
}

fn path_of(vfs: &FaultVfs, extension: &str) -> PathBuf {
    let mut paths: Vec<PathBuf> = vfs.files().into_keys().collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == extension));
    paths.pop().expect("a file of this kind")
}

fn damaged(vfs: &FaultVfs, path: &Path, places: &[usize]) -> FaultVfs {
    let mut files = vfs.files();
    places.iter().for_each(|&at| files.get_mut(path).unwrap()[at] ^= 4);
    FaultVfs::of_files(Path::new(DIR), &files)
}

fn texts(problems: &[VerifyProblem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

/// Regression: the first damaged unit ended the run's verification, and was listed twice.
#[test]
fn verify_lists_each_damaged_block_once_with_tree_and_keys() {
    let vfs = database();
    let sound = verified(&vfs);
    assert!(sound.is_sound() && sound.opens, "{:?}", texts(&sound.problems));
    let run = path_of(&vfs, "run");
    let report = verified(&damaged(&vfs, &run, &[1500, 3000, 3001, 6000]));
    assert_eq!(report.problems.len(), 3, "{:#?}", texts(&report.problems));
    for (problem, at) in report.problems.iter().zip([1500, 3000, 6000]) {
        assert_eq!((problem.kind, problem.file, &problem.path), (ProblemKind::Damaged, DatabaseFile::Run, &run));
        assert!((problem.offset..problem.offset + problem.len).contains(&at), "{problem}");
        assert!(!problem.to_string().contains("braid verify"), "{problem}");
    }
    let keys = report.problems[1].keys.as_ref().expect("keys of a data block");
    assert_eq!((keys.from.tree.as_deref(), keys.to.tree.as_deref()), (Some("albums"), Some("albums")));
    assert!(keys.from.key < keys.to.key && keys.to.key < 500_u32.to_be_bytes().to_vec());
    assert_eq!(report.files, sound.files);
    assert!(report.bytes >= sound.bytes / 2);
    // Without the catalog entry in the first block, only the tree's number is known.
    let report = verified(&damaged(&vfs, &run, &[200]));
    assert!(report.problems[0].keys.as_ref().is_some_and(|keys| keys.to.tree.is_none() && keys.to.tree_id > 0));
}

/// Regression: a missing run ended the verification.
#[test]
fn verify_of_missing_run_and_damaged_log_lists_both() {
    let vfs = database();
    let db = open(settings(&vfs)).unwrap();
    let tree = db.tree("albums").unwrap();
    tree.put("a", [7; 30]).unwrap();
    tree.put("b", [8; 30]).unwrap();
    db.sync().unwrap();
    tree.put("c", [9; 30]).unwrap();
    let vfs = killed(&vfs);
    let mut files = vfs.files();
    let run = path_of(&vfs, "run");
    files.remove(&run);
    let log = files.iter_mut().filter(|(path, _)| path.extension().is_some_and(|e| e == "wal"));
    let (log, at) = log
        .filter_map(|(path, bytes)| {
            let at = bytes.windows(30).position(|part| part == [7; 30])?;
            bytes[at] ^= 1;
            Some((path.clone(), at as u64))
        })
        .next()
        .expect("the record");
    let report = verified(&FaultVfs::of_files(Path::new(DIR), &files));
    assert!(!report.opens);
    let [first, second] = &report.problems[..] else { panic!("{:#?}", texts(&report.problems)) };
    assert_eq!((first.kind, &first.path), (ProblemKind::Damaged, &log));
    assert!((first.offset..first.offset + first.len).contains(&at), "{first}");
    assert_eq!((second.kind, &second.path), (ProblemKind::Missing, &run));
    assert!(second.keys.is_some(), "{second}");
}

#[test]
fn verify_without_current_or_manifest_goes_on() {
    let vfs = database();
    let run = path_of(&vfs, "run");
    for gone in ["CURRENT", "MANIFEST"] {
        let mut files = damaged(&vfs, &run, &[3000]).files();
        files.retain(|path, _| !path.file_name().unwrap().to_string_lossy().starts_with(gone));
        let report = verified(&FaultVfs::of_files(Path::new(DIR), &files));
        let is_missing = |problem: &VerifyProblem| problem.kind == ProblemKind::Missing;
        assert!(!report.opens && report.problems.iter().any(is_missing), "{:#?}", texts(&report.problems));
        assert!(report.problems.iter().any(|problem| problem.path == run), "{:#?}", texts(&report.problems));
    }
}

/// Regression: a damaged tail was reported as sound, although a durable commit was lost.
#[test]
fn verify_reports_torn_tail_with_offset_and_last_commit() {
    let vfs = database();
    let db = open(settings(&vfs)).unwrap();
    db.tree("albums").unwrap().put("last", [7; 30]).unwrap();
    let last = db.stats().last_sequence;
    let vfs = killed(&vfs);
    assert!(verified(&vfs).is_sound());
    let log = path_of(&vfs, "wal");
    let at = vfs.read(&log).windows(30).position(|part| part == [7; 30]).unwrap();
    let report = verified(&damaged(&vfs, &log, &[at]));
    let [tail] = &report.problems[..] else { panic!("{:#?}", texts(&report.problems)) };
    assert_eq!((tail.kind, &tail.path, tail.last_commit), (ProblemKind::TornTail, &log, Some(last - 1)));
    assert!((tail.offset..tail.offset + tail.len).contains(&(at as u64)), "{tail}");
    assert!(report.opens);
}

/// Regression: operands that a built-in function can never apply were reported as sound.
#[test]
fn verify_reports_operand_that_can_never_be_applied() {
    let value = encode_operands(Base::Beneath, 0, std::iter::once(Operand { function: 1, bytes: b"1" }));
    let key = [0, 0, 0, 1, b'k'];
    let entry = EntryRef { key: &key, sequence: 1, kind: EntryKind::Merge, value: &value };
    let checker = Checker::new(Path::new(DIR), VerifyOptions::default(), Box::new(|_| Err(Error::Closed)));
    checker.entry(&entry, Path::new("/db/000001.run"), 0);
    let report = checker.finish(true);
    let [problem] = &report.problems[..] else { panic!("{:#?}", texts(&report.problems)) };
    assert_eq!(problem.kind, ProblemKind::CannotApply);
    assert!(problem.detail.contains("\"add\""), "{problem}");
}

#[test]
fn verify_reports_progress_up_to_all_bytes() {
    let vfs = database();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let options = VerifyOptions::default().threads(2).progress(move |progress| noted.lock().push(progress));
    let report = verify_path(settings(&vfs), Path::new(DIR), &options).unwrap();
    let seen = seen.lock();
    let last = seen.last().expect("some progress");
    assert_eq!((last.bytes, last.bytes_total), (report.bytes, report.bytes));
    assert!(seen.iter().all(|progress| progress.bytes <= progress.bytes_total));
}
