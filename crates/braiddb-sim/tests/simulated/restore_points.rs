//! Restores from a backup and the log archive to a commit or a moment: exactly there, or refused.

use crate::common;

use braiddb::{
    Db, Durability, Error, Result,
    backup::{DirectoryTarget, RestorePoint},
    platform::Vfs,
};
use braiddb_sim::{
    CrashPolicy, Effect, Fault, Random, SimDisk, SimRuntime, mix,
    model::{Contents, apply, moment},
};
use common::{
    Counter, PATH, SmallOptions, check_all_reads, empty_disk, explained, full_text, in_parallel, open_trees, read_all,
    volume,
    workload::{ALPHABET, SEED, Step},
};
use std::{collections::BTreeMap, io::ErrorKind, path::Path, sync::Arc};

const BACKUPS: &str = "/backups";
const ARCHIVE: &str = "/archive";
/// Minimum microseconds between commits.
const NEXT_US: u64 = 1000;
const RESTORED: &str = "/restored";

struct World {
    options: SmallOptions,
    disk: Arc<SimDisk>,
    runtime: Arc<SimRuntime>,
    db: Option<Db>,
    now: Contents,
    /// Contents and time after each commit.
    states: BTreeMap<u64, (Contents, u64)>,
    time_us: u64,
    steps: u64,
}

fn target(disk: &Arc<SimDisk>) -> Result<DirectoryTarget> {
    let vfs: Arc<dyn Vfs> = disk.clone();
    DirectoryTarget::open_in(vfs, BACKUPS)
}

impl World {
    fn new(options: SmallOptions, seed: u64) -> World {
        let disk = empty_disk(seed);
        let runtime = SimRuntime::new(mix(seed, 1));
        let states = BTreeMap::new();
        let mut world = World { options, disk, runtime, db: None, now: Contents::new(), states, time_us: 0, steps: 0 };
        world.open(true).expect("open");
        world
    }

    fn open(&mut self, archives: bool) -> Result<()> {
        let builder = self.options.builder_by(&self.disk, self.runtime.clone());
        let db = if archives { builder.log_archive(ARCHIVE) } else { builder }.open(PATH)?;
        open_trees(&db)?;
        self.note(db.snapshot().sequence());
        self.db = Some(db);
        Ok(())
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("the database is open")
    }

    fn note(&mut self, sequence: u64) {
        use braiddb::platform::Runtime;
        self.time_us = self.runtime.unix_time_us();
        self.states.insert(sequence, (self.now.clone(), self.time_us));
        self.runtime.advance_us(NEXT_US);
    }

    fn commit(&mut self, step: Step, at: u64) -> Result<()> {
        let Some((changes, durability)) = step.commit(at) else { return Ok(()) };
        let trees = open_trees(self.db())?;
        let sequence = step.write((&self.disk, self.db(), &trees), &changes, durability, at)?;
        apply(&mut self.now, &changes);
        self.note(sequence);
        Ok(())
    }

    fn step(&mut self, random: &mut Random) {
        self.steps += 1;
        match random.below(40) {
            0 => self.db().flush().expect("flush"),
            1 => self.db().compact().expect("compact"),
            2 => drop(self.db().archive_now().expect("archive")),
            3 => {
                self.db.take().expect("open").close().expect("close");
                self.open(true).expect("open");
            }
            4 => drop(self.db().backup(&target(&self.disk).expect("a target")).expect("backup")),
            _ => {
                let logged = |step: &Step| !matches!(step, Step::PutUnlogged | Step::Load | Step::Ingest);
                let step = loop {
                    let step = ALPHABET[random.index(ALPHABET.len())];
                    if logged(&step) {
                        break step;
                    }
                };
                self.commit(step, self.steps).unwrap_or_else(|e| panic!("{step:?}: {}", full_text(&e)));
            }
        }
    }

    fn restore(&self, point: RestorePoint, dir: &str) -> Result<braiddb::backup::Restored> {
        let builder = self.options.builder(&self.disk, SEED + 3).create(false);
        builder.restore_to(&target(&self.disk)?, ARCHIVE, point, dir)
    }

    fn check(&self, point: RestorePoint, sequence: u64, dir: &str) {
        let restored = self.restore(point, dir).unwrap_or_else(|e| panic!("{point:?}: {}", full_text(&e)));
        assert_eq!(restored.sequence, sequence, "{point:?}");
        let db = self.options.builder(&self.disk, SEED + 4).create(false).open(dir).expect("open");
        assert_eq!(db.snapshot().sequence(), sequence);
        let (expected, _) = &self.states[&sequence];
        check_all_reads(&db, expected).unwrap_or_else(|e| panic!("{point:?}: {}", full_text(&e)));
        let tree = db.tree("zero").expect("tree");
        assert!(tree.put(b"more", b"more").expect("put") > sequence);
    }
}

fn some_points(world: &World, random: &mut Random, count: usize) -> Vec<(RestorePoint, u64)> {
    let sequences: Vec<u64> = world.states.keys().copied().collect();
    (0..count)
        .map(|_| {
            // A moment needs a later commit as proof that none lies between.
            let index = random.index(sequences.len() - 1);
            let sequence = sequences[index];
            let at = world.states[&sequence].1;
            // The backup was taken after the first commit: none precedes the commit's moment.
            match if index == 0 { 0 } else { random.below(2) } {
                0 => (RestorePoint::Version(sequence), sequence),
                _ => (RestorePoint::Time(moment(at + random.below(NEXT_US))), sequence),
            }
        })
        .collect()
}

#[test]
fn restore_to_point_lands_exactly_on_it() {
    let seed = common::seed();
    let restored = Counter::default();
    in_parallel(volume(60).max(6) as usize, |index| {
        let random = &mut Random::new(mix(seed, index as u64));
        let options = SmallOptions { log_segment_bytes: 4 << 10, ..SmallOptions::random(random) };
        explained(
            || format!("seed {seed}, world {index}, {options:?}"),
            || {
                let mut world = World::new(options.clone(), seed + index as u64);
                for _ in 0..10 {
                    world.step(random);
                }
                world.db().backup(&target(&world.disk).expect("a target")).expect("backup");
                let first = world.db().snapshot().sequence();
                for _ in 0..150 {
                    world.step(random);
                }
                world.db().archive_now().expect("archive");
                world.states.retain(|sequence, _| *sequence >= first);
                for (number, (point, sequence)) in some_points(&world, random, 20).into_iter().enumerate() {
                    world.check(point, sequence, &format!("{RESTORED}/{number}"));
                    restored.add(1);
                }
            },
        );
    });
    println!("{} points", restored.get());
}

/// The story: the numbers of commits that a crash removed were not reused, which looked like a gap.
/// Two of three restores across a crash were refused.
#[test]
fn archive_after_crash_anywhere_restores_last_state() {
    let seed = common::seed();
    let images = Counter::default();
    in_parallel(volume(40).max(4) as usize, |index| {
        let random = &mut Random::new(mix(seed, 1000 + index as u64));
        let options = SmallOptions { log_segment_bytes: 4 << 10, ..SmallOptions::random(random) };
        let mut world = World::new(options.clone(), seed + index as u64);
        world.db().backup(&target(&world.disk).expect("a target")).expect("backup");
        let from = world.disk.operations();
        for _ in 0..60 {
            world.step(random);
        }
        let to = world.disk.operations();
        drop(world.db.take());
        for _ in 0..20 {
            let moment = from + random.index(to - from + 1);
            let policies = CrashPolicy::some(6, random.next_u64());
            let policy = policies[random.index(policies.len())];
            explained(
                || format!("seed {seed}, world {index}, crash after {moment}, {policy:?}, {options:?}"),
                || {
                    images.add(1);
                    let mut world = World {
                        options: options.clone(),
                        disk: world.disk.crash_image(moment, policy),
                        runtime: SimRuntime::new(random.next_u64()),
                        db: None,
                        now: Contents::new(),
                        states: BTreeMap::new(),
                        time_us: 0,
                        steps: 500,
                    };
                    world.open(true).unwrap_or_else(|e| panic!("open: {}", full_text(&e)));
                    world.now = read_all(world.db()).expect("read");
                    world.states.clear();
                    let recovered = world.db().snapshot().sequence();
                    for _ in 0..12 {
                        world.step(random);
                    }
                    world.commit(Step::BigValueSync, 3).expect("commit");
                    let last = world.db().archive_now().expect("archive");
                    let restored = world.restore(RestorePoint::Version(last), RESTORED);
                    let restored = restored.unwrap_or_else(|e| panic!("{recovered}..{last}: {}", full_text(&e)));
                    assert_eq!(restored.sequence, last);
                    let db = world.options.builder(&world.disk, SEED).open(RESTORED).expect("open");
                    check_all_reads(&db, &world.now).expect("read");
                },
            );
        }
    });
    println!("{} images", images.get());
}

fn small_world() -> World {
    let options = SmallOptions { log_segment_bytes: 4 << 10, memtable_bytes: 8 << 10, ..SmallOptions::default() };
    let mut world = World::new(options, 5);
    world.commit(Step::Batch, 1).expect("commit");
    world.db().backup(&target(&world.disk).expect("a target")).expect("backup");
    for at in 0..20 {
        world
            .commit([Step::Batch, Step::BigValueBuffered, Step::Stream, Step::Extend][at as usize % 4], at)
            .expect("commit");
    }
    world
}

fn archived(disk: &SimDisk, kind: &str) -> Vec<std::path::PathBuf> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.starts_with(ARCHIVE) && path.extension().is_some_and(|e| e == kind)).collect()
}

#[test]
fn restore_across_damaged_archive_is_refused() {
    let mut world = small_world();
    let last = world.db().archive_now().expect("archive");
    drop(world.db.take());
    let first =
        *world.states.keys().find(|s| world.restore(RestorePoint::Version(**s), "/first").is_ok()).expect("one");
    let (segments, blobs) = (archived(&world.disk, "wal"), archived(&world.disk, "blob"));
    assert!(segments.len() >= 3 && blobs.len() > 3, "{segments:?} {blobs:?}");
    world.check(RestorePoint::Version(last), last, "/whole");
    for (number, gone) in segments.iter().chain(&blobs).enumerate() {
        for damage in ["gone", "empty", "flipped"] {
            let mut world = World {
                disk: world.disk.fork(),
                db: None,
                runtime: world.runtime.clone(),
                now: Contents::new(),
                states: world.states.clone(),
                options: world.options.clone(),
                ..world
            };
            match damage {
                "gone" => world.disk.remove(gone).expect("remove"),
                "empty" => world.disk.truncate(gone, 0).expect("cut"),
                _ => world.disk.flip_bit(gone, 8 * 150).expect("flip"),
            }
            explained(
                || format!("{} {damage}", gone.display()),
                || {
                    let mut refused = false;
                    let sequences: Vec<u64> = world.states.range(first..).map(|(s, _)| *s).collect();
                    for sequence in sequences {
                        let dir = format!("/some/{number}-{damage}-{sequence}");
                        match world.restore(RestorePoint::Version(sequence), &dir) {
                            Ok(_) => {
                                let is_blob = gone.extension().is_some_and(|e| e == "blob");
                                assert!(!refused || is_blob, "a commit after a gap was restored");
                                let db = world.options.builder(&world.disk, SEED).open(&dir).expect("open");
                                check_all_reads(&db, &world.states[&sequence].0).expect("read");
                            }
                            Err(e) => {
                                refused = true;
                                let is_end = *gone == segments[segments.len() - 1] && damage != "flipped";
                                let is_past_end = is_end && matches!(e, Error::InvalidArgument(_));
                                assert!(e.is_corruption() || e.is_archive_gap() || is_past_end, "{}", full_text(&e));
                                assert!(
                                    world
                                        .disk
                                        .list(Path::new(&dir))
                                        .unwrap_or_default()
                                        .iter()
                                        .all(|e| e.name == "LOCK")
                                );
                            }
                        }
                    }
                    assert!(
                        refused || number == 0 || gone.extension().is_some_and(|e| e == "blob"),
                        "nothing was refused"
                    );
                },
            );
            world.time_us = 0;
        }
    }
}

/// A life without the archive leaves a gap.
#[test]
fn restore_of_unarchived_commit_is_refused() {
    let mut world = small_world();
    let before = world.db().archive_now().expect("archive");
    world.db.take().expect("open").close().expect("close");
    world.open(false).expect("open");
    for at in 0..30 {
        world.commit(Step::BigValueSync, at).expect("commit");
    }
    world.db().compact().expect("compact");
    world.db.take().expect("open").close().expect("close");
    world.open(true).expect("open");
    world.commit(Step::PutSync, 3).expect("commit");
    let found = world.db().archive_now().expect_err("a gap");
    let after = world.db().archive_now().expect("archive");
    let gaps = world.db().archive_gaps().expect("gaps");
    assert!(found.is_archive_gap() && gaps.len() == 1, "{gaps:?}, {}", full_text(&found));
    assert_eq!((gaps[0].first, gaps[0].last), (before + 1, after - 1));
    world.check(RestorePoint::Version(before), before, "/before");
    let refused = world.restore(RestorePoint::Version(after), "/after").expect_err("a gap");
    assert!(refused.is_archive_gap() && full_text(&refused).contains("gap"), "{}", full_text(&refused));
    assert!(world.disk.list(Path::new("/after")).unwrap_or_default().is_empty());
    world.db().backup(&target(&world.disk).expect("a target")).expect("backup");
    world.commit(Step::PutSync, 4).expect("commit");
    let not_archived = world.db().snapshot().sequence();
    let refused = world.restore(RestorePoint::Version(not_archived), "/not archived").expect_err("not archived");
    assert!(full_text(&refused).contains("archive_now"), "{}", full_text(&refused));
    world.db().archive_now().expect("archive");
    world.check(RestorePoint::Version(not_archived), not_archived, "/archived");
    let (_, time_us) = world.states[&not_archived];
    world.restore(RestorePoint::Time(moment(time_us + 1)), "/moment").expect_err("not known yet");
    let early = world.restore(RestorePoint::Time(moment(1)), "/early").expect_err("no backup");
    assert!(early.is_not_found(), "{}", full_text(&early));
}

/// Each call fails in turn; the archive misses nothing.
#[test]
fn archive_after_failed_call_has_no_gap() {
    let act = |world: &mut World| -> Vec<Error> {
        let mut errors = Vec::new();
        for at in 30..36 {
            errors
                .extend(world.commit([Step::BigValueSync, Step::Stream, Step::PutBuffered][at as usize % 3], at).err());
        }
        errors.extend(world.db().flush().err());
        errors.extend(world.db().archive_now().err());
        errors
    };
    let calls = {
        let mut world = small_world();
        let before = world.disk.calls(None);
        assert!(act(&mut world).is_empty());
        world.disk.calls(None) - before
    };
    let (every, fired) = ((calls / volume(400).min(calls)).max(1), Counter::default());
    in_parallel((calls / every) as usize, |index| {
        let call = index as u64 * every;
        explained(
            || format!("call {call} of {calls}"),
            || {
                let mut world = small_world();
                let first = *world.states.keys().nth(1).expect("two commits");
                world
                    .disk
                    .inject(Fault { effect: Effect::Fail(ErrorKind::Other), ..Fault::nth(call, ErrorKind::Other) });
                let errors = act(&mut world);
                fired.add(u64::from(!errors.is_empty()));
                world.disk.clear_faults();
                drop(world.db.take());
                world.open(true).unwrap_or_else(|e| panic!("open: {}", full_text(&e)));
                world.now = read_all(world.db()).expect("read");
                world.commit(Step::PutSync, 50).expect("commit");
                let last = world.db().archive_now().expect("archive");
                match world.restore(RestorePoint::Version(last), RESTORED) {
                    Ok(_) => {
                        let db = world.options.builder(&world.disk, SEED).open(RESTORED).expect("open");
                        check_all_reads(&db, &world.now).expect("read");
                    }
                    Err(e) => {
                        let text = full_text(&e);
                        assert!(!errors.is_empty() && text.contains("did not go through the log"), "{first}: {text}");
                    }
                }
            },
        );
    });
    assert!(fired.get() > 0);
}

#[test]
fn restore_to_point_with_crash_anywhere_leaves_right_or_no_database() {
    let mut world = small_world();
    let last = world.db().archive_now().expect("archive");
    drop(world.db.take());
    let from = world.disk.operations();
    world.check_only(RestorePoint::Version(last));
    let to = world.disk.operations();
    let every = ((to - from) / volume(400).min((to - from) as u64) as usize).max(1);
    let (whole, images) = (Counter::default(), Counter::default());
    in_parallel((to - from) / every, |index| {
        for policy in CrashPolicy::some(2, index as u64) {
            let moment = to - index * every;
            explained(
                || format!("crash after {moment} of {from}..{to}, {policy:?}"),
                || {
                    images.add(1);
                    let image = world.disk.crash_image(moment, policy);
                    match world.options.builder(&image, SEED).create(false).open(RESTORED) {
                        Ok(db) => {
                            whole.add(1);
                            check_all_reads(&db, &world.states[&last].0).expect("read");
                        }
                        Err(e) => {
                            assert!(moment < to, "{}", full_text(&e));
                            let is_none = e.is_not_found() || e.is_corruption() || matches!(e, Error::Io { .. });
                            assert!(is_none, "{}", full_text(&e));
                        }
                    }
                },
            );
        }
    });
    println!("{} images, {} of them whole", images.get(), whole.get());
    assert!(whole.get() > 0);
}

impl World {
    fn check_only(&self, point: RestorePoint) {
        self.restore(point, RESTORED).unwrap_or_else(|e| panic!("{}", full_text(&e)));
    }
}

#[test]
fn restore_across_unlogged_commit_is_refused() {
    for is_load in [true, false] {
        let mut world = small_world();
        let before = world.db().archive_now().expect("archive");
        let tree = world.db().tree("past the log").expect("a tree");
        if is_load {
            tree.bulk_load([("a", "1"), ("b", "2")]).expect("load");
        } else {
            let mut batch = world.db().batch();
            batch.put(&tree, "a", "1");
            batch.commit_with(Durability::None).expect("write");
        }
        drop(tree);
        world.commit(Step::PutSync, 3).expect("commit");
        assert!(world.db().archive_now().expect_err("a gap").is_archive_gap());
        let after = world.db().archive_now().expect("archive");
        world.check(RestorePoint::Version(before), before, "/before");
        let refused = world.restore(RestorePoint::Version(after), "/after").expect_err("a gap");
        assert!(refused.is_archive_gap(), "{}", full_text(&refused));
        assert!(full_text(&refused).contains("did not go through the log"), "{}", full_text(&refused));
    }
}

/// A crash at each moment between the note of a gap and the archiving of later commits. No restore
/// crosses the gap.
#[test]
fn gap_after_power_failure_anywhere_in_archiving_is_known() {
    let mut world = small_world();
    let before = world.db().archive_now().expect("archive");
    world.db().tree("past the log").expect("a tree").bulk_load([("a", "1"), ("b", "2")]).expect("load");
    world.commit(Step::PutSync, 3).expect("commit");
    let segments = archived(&world.disk, "wal").len();
    let from = world.disk.operations();
    assert!(world.db().archive_now().expect_err("a gap").is_archive_gap());
    let to = world.disk.operations();
    drop(world.db.take());
    let (images, between) = (Counter::default(), Counter::default());
    let World { options, disk, .. } = &world;
    in_parallel(to - from + 1, |index| {
        for policy in CrashPolicy::some(2, index as u64) {
            let moment = from + index;
            explained(
                || format!("crash after {moment} of {from}..{to}, {policy:?}"),
                || {
                    images.add(1);
                    let mut world = World {
                        options: options.clone(),
                        disk: disk.crash_image(moment, policy),
                        runtime: SimRuntime::new(moment as u64),
                        db: None,
                        now: Contents::new(),
                        states: BTreeMap::new(),
                        time_us: 0,
                        steps: 0,
                    };
                    let is_noted = !archived(&world.disk, "gap").is_empty();
                    between.add(u64::from(is_noted && archived(&world.disk, "wal").len() == segments));
                    if let Ok(restored) = world.restore(RestorePoint::Latest, "/early") {
                        assert!(restored.sequence <= before, "restored {} over a gap", restored.sequence);
                    }
                    world.open(true).unwrap_or_else(|e| panic!("open: {}", full_text(&e)));
                    let after = world.db().archive_now().or_else(|e| {
                        assert!(e.is_archive_gap(), "{}", full_text(&e));
                        world.db().archive_now()
                    });
                    let (after, gaps) = (after.expect("archive"), world.db().archive_gaps().expect("gaps"));
                    assert!(after > before && gaps.len() == 1 && gaps[0].first > before, "{before} {after} {gaps:?}");
                    let refused = world.restore(RestorePoint::Version(after), RESTORED).expect_err("a gap");
                    assert!(refused.is_archive_gap(), "{}", full_text(&refused));
                },
            );
        }
    });
    println!("{} images, {} of them between note and segment", images.get(), between.get());
    assert!(between.get() > 0);
}
