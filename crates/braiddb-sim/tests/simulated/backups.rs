//! Checkpoints and backups with a crash at every operation, a failure of every call, and damage.
//!
//! The database and each earlier backup stay intact. The backup in progress is complete or missing.
//! A checkpoint or restored directory is complete or does not open.

use crate::common;

use braiddb::{
    Builder, Db, Error,
    backup::{BackupOptions, Backups, DirectoryTarget},
    dump::{DumpOptions, LoadOptions},
    platform::Vfs,
};
use braiddb_sim::{
    Call, CrashPolicy, Effect, Fault, Random, SimDisk,
    model::{Contents, difference},
};
use common::{
    Counter, SmallOptions, check_all_reads, explained, full_text, in_parallel, read_all, volume,
    workload::{Run, SEED, Start, Step, recover},
};
use std::{collections::BTreeMap, io::ErrorKind, ops::RangeInclusive, path::Path, sync::Arc};

const BACKUPS: &str = "/backups/of the test";
const COPY: &str = "/copies/one";

/// After these steps two backups share some files.
const STEPS: [Step; 9] = [
    Step::Batch,
    Step::BigValueSync,
    Step::Stream,
    Step::Append,
    Step::Expiring,
    Step::Flush,
    Step::Extend,
    Step::Delete,
    Step::BigValueBuffered,
];

type Known = BTreeMap<u64, Contents>;

fn target(disk: &Arc<SimDisk>) -> DirectoryTarget {
    try_target(disk).unwrap_or_else(|e| panic!("{}", full_text(&e)))
}

fn try_target(disk: &Arc<SimDisk>) -> Result<DirectoryTarget, Error> {
    let vfs: Arc<dyn Vfs> = disk.clone();
    DirectoryTarget::open_in(vfs, BACKUPS)
}

fn db(run: &Run) -> &Db {
    &run.db.as_ref().expect("the database is open").0
}

fn backup(run: &Run, known: &mut Known) {
    let target = target(&run.disk);
    let info = db(run).backup(&target).unwrap_or_else(|e| panic!("{}", full_text(&e)));
    known.insert(info.id, run.history.latest().clone());
}

fn with_backups(start: &Start) -> (Run, Known) {
    let (mut run, mut known) = (Run::start(start), Known::new());
    for round in 0..2 {
        for (at, step) in STEPS.iter().enumerate() {
            run.step(*step, (at + 7 * round) as u64);
        }
        backup(&run, &mut known);
    }
    for (at, step) in STEPS.iter().enumerate() {
        run.step(*step, at as u64 + 3);
    }
    (run, known)
}

fn builder(options: &SmallOptions, disk: &Arc<SimDisk>) -> Builder {
    options.builder(disk, SEED + 9).create(false)
}

fn check_backup(options: &SmallOptions, disk: &Arc<SimDisk>, id: u64, expected: &Contents) {
    let dir = format!("/restored/{id} {}", disk.operations());
    let restored = builder(options, disk).restore(&target(disk), Some(id), &dir);
    let restored = restored.unwrap_or_else(|e| panic!("restoring {id}: {}", full_text(&e)));
    let db = builder(options, disk).open(&dir).unwrap_or_else(|e| panic!("opening {id}: {}", full_text(&e)));
    assert_eq!(db.snapshot().sequence(), restored.sequence);
    check_all_reads(&db, expected).unwrap_or_else(|e| panic!("reading {id}: {}", full_text(&e)));
    let report = db.verify().expect("verify");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

fn check_backups(options: &SmallOptions, disk: &Arc<SimDisk>, must_be_there: &[u64], known: &Known) {
    let target = target(disk);
    let listed = Backups::new(&target).list().unwrap_or_else(|e| panic!("listing: {}", full_text(&e)));
    let listed: Vec<u64> = listed.iter().map(|info| info.id).collect();
    for id in must_be_there {
        assert!(listed.contains(id), "backup {id} is gone: {listed:?}");
    }
    let report = Backups::new(&target).verify(None).expect("verify");
    assert!(report.problems.is_empty() && report.whole == listed, "{report:?}");
    for id in listed {
        let expected = known.get(&id).unwrap_or_else(|| panic!("unknown backup {id}"));
        check_backup(options, disk, id, expected);
    }
}

fn check_copy(options: &SmallOptions, disk: &Arc<SimDisk>, expected: &Contents) -> bool {
    match builder(options, disk).open(COPY) {
        Ok(db) => {
            check_all_reads(&db, expected).unwrap_or_else(|e| panic!("reading the copy: {}", full_text(&e)));
            true
        }
        Err(e) => {
            assert!(e.is_corruption() || e.is_not_found() || matches!(e, Error::Io { .. }), "{}", full_text(&e));
            false
        }
    }
}

fn crashes(first: usize, last: usize, full: u64, seed: u64) -> Vec<(usize, CrashPolicy)> {
    let all: Vec<_> = (first..=last)
        .flat_map(|at| CrashPolicy::some(4, seed + at as u64).into_iter().map(move |p| (at, p)))
        .collect();
    let wanted = volume(full).min(all.len() as u64) as usize;
    let every = (all.len() / wanted).max(1);
    let every = if every > 1 && every.is_multiple_of(2) { every + 1 } else { every };
    all.into_iter().step_by(every).collect()
}

fn crash_each(
    what: &str,
    disk: &SimDisk,
    moments: RangeInclusive<usize>,
    full: u64,
    check: impl Fn(usize, &Arc<SimDisk>) + Sync,
) {
    let seed = common::seed();
    let cases = crashes(*moments.start(), *moments.end(), full, seed);
    in_parallel(cases.len(), |index| {
        let (moment, policy) = cases[index];
        explained(
            || format!("seed {seed}, {what}, crash after {moment} of {moments:?}, {policy:?}"),
            || check(moment, &disk.crash_image(moment, policy)),
        );
    });
}

#[test]
fn backups_after_crash_anywhere_are_complete() {
    let (images, complete) = (Counter::default(), Counter::default());
    for start in [Start::small(), Start::loose()] {
        let (run, mut known) = with_backups(&start);
        let old: Vec<u64> = known.keys().copied().collect();
        let first = run.disk.operations();
        backup(&run, &mut known);
        let last = run.disk.operations();
        let all: Vec<u64> = known.keys().copied().collect();
        crash_each("backup", &run.disk, first..=last, 3000, |moment, image| {
            images.add(1);
            let is_done = moment == last;
            check_backups(&start.options, image, if is_done { &all } else { &old }, &known);
            let listed = Backups::new(&target(image)).list().expect("list");
            complete.add(u64::from(listed.len() == all.len()));
            recover(&start.options, image, |found| run.history.judge(moment, found));
            let db = start.options.open(image, SEED + 4).expect("open");
            let mut known = known.clone();
            let info = db.backup(&target(image)).unwrap_or_else(|e| panic!("again: {}", full_text(&e)));
            known.insert(info.id, read_all(&db).expect("read"));
            check_backups(&start.options, image, &old, &known);
            check_nothing_is_left_over(image);
        });
    }
    println!("{} images, {} with the last backup whole", images.get(), complete.get());
    assert!(complete.get() > 0 && complete.get() < images.get());
}

fn check_nothing_is_left_over(disk: &Arc<SimDisk>) {
    let target = target(disk);
    let backups = Backups::new(&target);
    for info in backups.list().expect("list") {
        backups.delete(info.id).unwrap_or_else(|e| panic!("deleting: {}", full_text(&e)));
    }
    let left: Vec<String> = disk.list(Path::new(BACKUPS)).expect("list").into_iter().map(|e| e.name).collect();
    assert_eq!(left, ["LOCK"]);
}

#[test]
fn backup_deletion_with_crash_anywhere_keeps_other_backups() {
    let start = Start::small();
    let (run, known) = with_backups(&start);
    let first = run.disk.operations();
    Backups::new(&target(&run.disk)).delete(1).expect("delete");
    let last = run.disk.operations();
    crash_each("deletion", &run.disk, first..=last, 500, |_, image| {
        check_backups(&start.options, image, &[2], &known);
        check_nothing_is_left_over(image);
    });
}

#[test]
fn copy_with_crash_anywhere_is_complete_or_does_not_open() {
    let (images, complete) = (Counter::default(), Counter::default());
    for what in ["checkpoint", "restore", "load"] {
        let start = Start::small();
        let (run, known) = with_backups(&start);
        let dumped = dump(&run).expect("dump");
        let first = run.disk.operations();
        let expected = match what {
            "load" => {
                load(&run, &dumped).expect("load");
                run.history.latest().clone()
            }
            "checkpoint" => {
                db(&run).checkpoint(COPY).expect("checkpoint");
                run.history.latest().clone()
            }
            _ => {
                builder(&start.options, &run.disk).restore(&target(&run.disk), Some(1), COPY).expect("restore");
                known[&1].clone()
            }
        };
        let last = run.disk.operations();
        crash_each(what, &run.disk, first..=last, 3000, |moment, image| {
            images.add(1);
            let is_there = check_copy(&start.options, image, &expected);
            assert!(is_there || moment < last, "the finished copy is gone");
            complete.add(u64::from(is_there));
            recover(&start.options, image, |found| run.history.judge(moment, found));
            check_backups(&start.options, image, &[1, 2], &known);
        });
    }
    println!("{} images, {} with the copy whole", images.get(), complete.get());
    assert!(complete.get() > 0 && complete.get() < images.get());
}

fn dump(run: &Run) -> Result<Vec<u8>, Error> {
    let mut dumped = Vec::new();
    db(run).dump(&mut dumped, DumpOptions::default())?;
    Ok(dumped)
}

fn load(run: &Run, mut dumped: &[u8]) -> Result<(), Error> {
    builder(&run.options, &run.disk).load(COPY, &mut dumped, LoadOptions::default()).map(|_| ())
}

/// Fails each call of `act` in turn: it must fail without damage, or succeed.
fn fail_each_call(
    what: &str,
    act: impl Fn(&Run) -> Result<(), Error> + Sync,
    check: impl Fn(&Run, &Known, bool) + Sync,
) {
    let start = Start::small();
    let (run, _) = with_backups(&start);
    let before = run.disk.calls(None);
    act(&run).unwrap_or_else(|e| panic!("{what}: {}", full_text(&e)));
    let calls = run.disk.calls(None) - before;
    let effects = [
        Effect::Fail(ErrorKind::Other),
        Effect::Fail(ErrorKind::StorageFull),
        Effect::Short { bytes: 7, error: ErrorKind::Other },
    ];
    let (failed, fired) = (Counter::default(), Counter::default());
    in_parallel(calls as usize, |call| {
        for effect in effects {
            explained(
                || format!("{what}, call {call} of {calls}: {effect:?}"),
                || {
                    let (run, known) = with_backups(&start);
                    run.disk.inject(Fault { effect, ..Fault::nth(call as u64, ErrorKind::Other) });
                    let done = act(&run);
                    fired.add(u64::from(!run.disk.failed_calls().is_empty()));
                    run.disk.clear_faults();
                    failed.add(u64::from(done.is_err()));
                    check(&run, &known, done.is_ok());
                },
            );
        }
    });
    println!("{what}: {} of {} faults made it fail, {calls} calls", failed.get(), fired.get());
    assert!(failed.get() > 0 && fired.get() > 0);
}

#[test]
fn backup_that_fails_keeps_earlier_ones() {
    fail_each_call(
        "backup",
        |run| db(run).backup(&try_target(&run.disk)?).map(|_| ()),
        |run, known, is_done| {
            let mut known = known.clone();
            known.insert(3, run.history.latest().clone());
            check_backups(&run.options, &run.disk, if is_done { &[1, 2, 3] } else { &[1, 2] }, &known);
            let found = read_all(db(run)).expect("read");
            assert!(found == *run.history.latest(), "{}", difference(run.history.latest(), &found));
        },
    );
}

#[test]
fn checkpoint_restore_or_load_that_fails_leaves_no_files() {
    let check = |run: &Run, is_done: bool, expected: &Contents| {
        if is_done {
            assert!(check_copy(&run.options, &run.disk, expected));
        } else {
            // A lock file may stay.
            let left = run.disk.list(Path::new(COPY)).unwrap_or_default();
            let failed = run.disk.failed_calls();
            assert!(
                left.iter().all(|e| e.name == "LOCK") || failed.iter().any(|(call, _)| *call == Call::Remove),
                "{left:?}"
            );
        }
        let found = read_all(db(run)).expect("read");
        assert!(found == *run.history.latest(), "{}", difference(run.history.latest(), &found));
    };
    fail_each_call(
        "checkpoint",
        |run| db(run).checkpoint(COPY).map(|_| ()),
        |run, _, is_done| check(run, is_done, run.history.latest()),
    );
    fail_each_call(
        "dump and load",
        |run| load(run, &dump(run)?),
        |run, _, is_done| check(run, is_done, run.history.latest()),
    );
    fail_each_call(
        "restore",
        |run| builder(&run.options, &run.disk).restore(&try_target(&run.disk)?, Some(2), COPY).map(|_| ()),
        |run, known, is_done| check(run, is_done, &known[&2]),
    );
}

#[test]
fn checkpoint_without_hard_links_copies_files() {
    let (run, _) = with_backups(&Start::small());
    let refused = Fault { call: Some(Call::Link), ..Fault::all_from(0, ErrorKind::Unsupported) };
    run.disk.inject(refused);
    db(&run).checkpoint(COPY).expect("checkpoint");
    assert!(!run.disk.failed_calls().is_empty());
    run.disk.clear_faults();
    assert!(check_copy(&run.options, &run.disk, run.history.latest()));
    let image = run.disk.crash_image(run.disk.operations(), CrashPolicy::LoseAllUnsynced);
    assert!(check_copy(&run.options, &image, run.history.latest()));
}

#[test]
fn backup_with_flipped_bit_is_reported_and_refused() {
    let (mut run, known) = with_backups(&Start::small());
    run.close();
    let objects: Vec<_> = run.disk.files().into_iter().filter(|(path, _)| path.starts_with(BACKUPS)).collect();
    let bits: Vec<_> = objects
        .iter()
        .filter(|(path, _)| !path.ends_with("LOCK"))
        .flat_map(|(path, len)| (0..len * 8).map(move |bit| (path.clone(), bit)))
        .collect();
    let every = (bits.len() as u64 / volume(20_000).min(bits.len() as u64)).max(1) as usize | 1;
    let (found, random) = (Counter::default(), Random::new(common::seed()).index(every));
    in_parallel((bits.len() - random) / every, |index| {
        let (path, bit) = &bits[random + index * every];
        explained(
            || format!("bit {bit} of {}", path.display()),
            || {
                let disk = run.disk.fork();
                disk.flip_bit(path, *bit).expect("flip");
                let target = target(&disk);
                let report = Backups::new(&target).verify(None).expect("verify");
                assert!(!report.problems.is_empty() && !report.damaged.is_empty(), "not found");
                for id in known.keys() {
                    let dir = format!("/restored/{id}");
                    let restored = builder(&run.options, &disk).restore(&target, Some(*id), &dir);
                    assert_eq!(restored.is_err(), report.damaged.contains(id), "{restored:?}");
                    if let Err(e) = restored {
                        assert!(e.is_corruption() || matches!(e, Error::Unsupported { .. }), "{}", full_text(&e));
                        assert!(disk.list(Path::new(&dir)).unwrap_or_default().is_empty());
                    }
                }
                found.add(1);
            },
        );
    });
    println!("{} bits of {}", found.get(), bits.len());
}

#[test]
fn backup_with_cut_or_missing_object_is_reported_and_refused() {
    let (mut run, known) = with_backups(&Start::small());
    run.close();
    let objects: Vec<_> = run.disk.files().into_iter().filter(|(path, _)| path.starts_with(BACKUPS)).collect();
    for (path, len) in objects.iter().filter(|(path, _)| !path.ends_with("LOCK")) {
        for what in ["gone", "empty", "shorter", "longer"] {
            let disk = run.disk.fork();
            match what {
                "gone" => disk.remove(path).expect("remove"),
                "empty" => disk.truncate(path, 0).expect("cut"),
                "shorter" => disk.truncate(path, len - 1).expect("cut"),
                _ => disk.overwrite(path, *len, b"x").expect("grow"),
            }
            let target = target(&disk);
            let report = Backups::new(&target).verify(None).expect("verify");
            let is_description = path.extension().is_some_and(|e| e == "backup");
            // A backup without its description does not exist.
            assert!(!report.problems.is_empty() || is_description && what == "gone", "{} {what}", path.display());
            for id in known.keys().filter(|id| !report.whole.contains(id)) {
                let restored = builder(&run.options, &disk).restore(&target, Some(*id), "/restored/it");
                let error = restored.expect_err("a damaged backup");
                assert!(error.is_corruption() || is_description && error.is_not_found(), "{}", full_text(&error));
            }
        }
    }
}

#[test]
fn full_backup_survives_deletion_of_earlier_ones() {
    let (run, mut known) = with_backups(&Start::small());
    let target = target(&run.disk);
    let full = db(&run).backup_with(&target, BackupOptions::new().full(true)).expect("backup");
    assert_eq!((full.bytes_copied, full.files_copied), (full.bytes, full.files));
    known.insert(full.id, run.history.latest().clone());
    let again = db(&run).backup(&target).expect("backup");
    assert_eq!((again.bytes_copied, again.files_copied), (0, 0));
    known.insert(again.id, run.history.latest().clone());
    Backups::new(&target).delete(1).expect("delete");
    Backups::new(&target).delete(2).expect("delete");
    check_backups(&run.options, &run.disk, &[full.id, again.id], &known);
}
