//! Crashes of a watched database. A killed follower that resumes from its token reaches the same
//! contents by changes alone. Commits without WAL survive or vanish in order.
//!
//! The follower stores its state with the token after each commit. The recovered database must have
//! all commits that the follower has seen, and show exactly the later ones. A follower reads
//! everything again only if commits were missing from the log.

use crate::common;

use braiddb::{
    Builder, Db, Durability, Error, Result,
    watch::{Change as Shown, ChangeSet, Gap, ResumeToken, WatchOptions, Watcher},
};
use braiddb_sim::{
    CrashPolicy, Fault, Random, SimDisk,
    model::{Bounds, Bytes, Change, Contents, History, difference},
};
use common::{
    Counter, PATH, SmallOptions, TREES, batch_of, empty_disk, explained, full_text, in_parallel, open_trees, read_all,
    value, volume,
};
use std::{collections::BTreeMap, io::ErrorKind, ops::Bound, sync::Arc};

const IMAGES_A_WORKLOAD: u64 = 20;

#[derive(Clone, Debug)]
struct Follower {
    contents: Contents,
    /// The workload's number of each tree, by id.
    trees: BTreeMap<u32, u32>,
    token: ResumeToken,
    cursor: u64,
}

#[derive(Debug, Default)]
struct Seen {
    images: Counter,
    shown: Counter,
    gaps: Counter,
    too_old: Counter,
    resumed_behind: Counter,
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

impl Follower {
    fn new(db: &Db) -> Result<Follower> {
        let mut follower = Follower {
            contents: Contents::new(),
            trees: BTreeMap::new(),
            token: db.watch(WatchOptions::new().unsynced(true))?.token(),
            cursor: 0,
        };
        follower.read_uncached(db)?;
        Ok(follower)
    }

    fn read_uncached(&mut self, db: &Db) -> Result<()> {
        for tree in db.trees()? {
            if let Some(at) = TREES.iter().position(|name| *name == tree.name) {
                self.trees.insert(tree.id, at as u32);
            }
        }
        db.sync()?;
        self.contents = read_all(db)?;
        self.cursor = db.application_cursor()?.map_or(0, |cursor| number(&cursor));
        self.token = db.watch(WatchOptions::new())?.token();
        Ok(())
    }

    /// Returns false on a gap.
    fn apply(&mut self, set: &ChangeSet) -> bool {
        for change in &set.changes {
            let tree = change.tree().and_then(|tree| self.trees.get(&tree.id).copied());
            match (change, tree) {
                (Shown::Put { key, value, .. }, Some(tree)) => {
                    self.contents.insert((tree, key.clone()), value.clone());
                }
                (Shown::PutStream { key, stream, .. }, Some(tree)) => {
                    let mut value = Vec::new();
                    stream.copy_to(&mut value).unwrap_or_else(|e| panic!("a stream: {}", full_text(&e)));
                    self.contents.insert((tree, key.clone()), value);
                }
                (Shown::Delete { key, .. }, Some(tree)) => {
                    self.contents.remove(&(tree, key.clone()));
                }
                (Shown::DeleteRange { start, end, .. }, Some(tree)) => {
                    let is_in = |key: &Bytes| key >= start && end.as_ref().is_none_or(|end| key < end);
                    self.contents.retain(|(of, key), _| *of != tree || !is_in(key));
                }
                (Shown::CreateTree { tree, .. }, None) => {
                    let name = tree.name.as_deref().expect("a new tree has a name");
                    let at = TREES.iter().position(|known| *known == name).expect("a known tree");
                    self.trees.insert(tree.id, at as u32);
                }
                (Shown::ApplicationCursor { cursor }, None) => {
                    let next = number(cursor);
                    assert!(next == self.cursor + 1, "commit {next} after {}", self.cursor);
                    self.cursor = next;
                }
                (Shown::Gap(Gap::Commits { .. }), None) => return false,
                other => panic!("{other:?}"),
            }
        }
        self.token = ResumeToken::from_bytes(&set.token.to_bytes()).expect("a valid token");
        true
    }
}

struct World {
    options: SmallOptions,
    /// Bytes of log retention.
    kept: u64,
    durabilities: Vec<Durability>,
    disk: Arc<SimDisk>,
    db: Option<Db>,
    history: History,
    commits: u64,
    follower: Follower,
    stored: Vec<(usize, Follower)>,
}

fn builder(options: &SmallOptions, kept: u64, disk: &Arc<SimDisk>, seed: u64) -> Builder {
    options.builder(disk, seed).log_retention(kept)
}

impl World {
    fn new(options: SmallOptions, kept: u64, durabilities: Vec<Durability>) -> World {
        let disk = empty_disk(1);
        let db = builder(&options, kept, &disk, 1).open(PATH).expect("open");
        open_trees(&db).expect("trees");
        let follower = Follower::new(&db).expect("a follower");
        db.close().expect("close");
        let disk = disk.fork();
        let db = builder(&options, kept, &disk, 2).open(PATH).expect("open");
        let stored = vec![(0, follower.clone())];
        let history = History::new(Contents::new());
        World { options, kept, durabilities, disk, db: Some(db), history, commits: 0, follower, stored }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("the database is open")
    }

    fn commit(&mut self, random: &mut Random) -> Result<()> {
        let tag = self.commits * 16;
        let key = |random: &mut Random| format!("key{:02}", random.below(12)).into_bytes();
        let mut changes = Vec::new();
        for at in 0..1 + random.below(4) {
            let tree = random.below(2) as u32;
            changes.push(match random.below(12) {
                0 => {
                    let bounds: Bounds = (Bound::Included(key(random)), Bound::Excluded(key(random)));
                    Change::DeleteRange(tree, bounds)
                }
                1 | 2 => Change::Delete(tree, key(random)),
                3 => Change::Put(tree, key(random), value(1200 + random.below(2000) as usize, tag + at)),
                _ => Change::Put(tree, key(random), value(random.below(120) as usize, tag + at)),
            });
        }
        self.commits += 1;
        changes.push(Change::Put(0, b"number".to_vec(), self.commits.to_le_bytes().to_vec()));
        self.history.submit(self.disk.operations(), changes.clone());
        let durability = self.durabilities[random.index(self.durabilities.len())];
        let db = self.db();
        let mut batch = batch_of(db, &open_trees(db)?, &changes);
        batch.set_application_cursor(self.commits.to_le_bytes());
        batch.commit_with(durability)?;
        match durability {
            Durability::Sync => self.history.promise(self.disk.operations()),
            Durability::None if random.chance(1, 12) => {
                self.db().flush_to(self.commits.to_le_bytes())?;
                self.history.promise(self.disk.operations());
            }
            _ => {}
        }
        Ok(())
    }

    fn follow(&mut self, most: u64, seen: &Seen) -> Result<()> {
        let db = self.db().clone();
        let is_kept = self.is_kept();
        follow(&db, &mut self.follower, most, is_kept, seen)?;
        self.stored.push((self.disk.operations(), self.follower.clone()));
        Ok(())
    }

    fn is_kept(&self) -> bool {
        self.kept > 1 << 30 && !self.durabilities.contains(&Durability::None)
    }

    fn step(&mut self, random: &mut Random, seen: &Seen) -> Result<()> {
        match random.below(30) {
            0 => self.db().flush(),
            1 => self.db().compact(),
            2 => self.db().sync(),
            3 => {
                self.db.take().expect("the database is open").close()?;
                self.history.promise(self.disk.operations());
                self.db = Some(builder(&self.options, self.kept, &self.disk, 3).open(PATH)?);
                Ok(())
            }
            4..9 => self.follow(random.below(12), seen),
            _ => return self.commit(random),
        }?;
        Ok(())
    }
}

fn follow(db: &Db, follower: &mut Follower, most: u64, is_kept: bool, seen: &Seen) -> Result<()> {
    let read = |follower: &mut Follower| -> Result<bool> {
        let mut watcher: Watcher = db.watch(WatchOptions::new().resume(follower.token))?;
        for _ in 0..most {
            let Some(set) = watcher.try_next()? else { break };
            seen.shown.add(1);
            if !follower.apply(&set) {
                seen.gaps.add(1);
                return Ok(false);
            }
        }
        Ok(true)
    };
    match read(follower) {
        Ok(true) => Ok(()),
        Ok(false) => {
            assert!(!is_kept, "a gap, although the log had all commits and was retained");
            follower.read_uncached(db)
        }
        Err(Error::WatchTooOld { .. }) => {
            assert!(!is_kept, "too old, although the log had all commits and was retained");
            seen.too_old.add(1);
            follower.read_uncached(db)
        }
        Err(e) => Err(e),
    }
}

fn check_image(world: &World, moment: usize, image: &Arc<SimDisk>, seen: &Seen) {
    let db = builder(&world.options, world.kept, image, 9).open(PATH);
    let db = db.unwrap_or_else(|e| panic!("open: {}", full_text(&e)));
    let found = read_all(&db).unwrap_or_else(|e| panic!("reading: {}", full_text(&e)));
    let count = world.history.judge(moment, &found).unwrap_or_else(|text| panic!("{text}"));
    let cursor = db.application_cursor().expect("the cursor").map_or(0, |cursor| number(&cursor));
    assert_eq!(cursor, count as u64, "the cursor is that of the last commit");
    let stored = world.stored.iter().rev().find(|(since, _)| *since <= moment);
    let mut follower = stored.expect("an earlier stored state").1.clone();
    assert!(
        follower.cursor <= cursor,
        "it was shown commit {}, but the crash left the cursor {cursor}",
        follower.cursor
    );
    seen.resumed_behind.add(u64::from(follower.cursor < cursor));
    let followed = follow(&db, &mut follower, u64::MAX, world.is_kept(), seen);
    followed.unwrap_or_else(|e| panic!("following: {}", full_text(&e)));
    assert!(follower.contents == found, "the follower: {}", difference(&found, &follower.contents));
    assert_eq!(follower.cursor, cursor);
    let trees = open_trees(&db).expect("trees");
    let mut batch = batch_of(&db, &trees, &[Change::Put(1, b"more".to_vec(), value(1500, 3))]);
    batch.set_application_cursor((cursor + 1).to_le_bytes());
    batch.commit_with(Durability::Sync).expect("one more commit");
    follow(&db, &mut follower, u64::MAX, world.is_kept(), seen).expect("following");
    assert_eq!(follower.contents, read_all(&db).expect("reading"));
    seen.images.add(1);
}

fn survive(seed: u64, durabilities: &[Durability], images: u64) -> Seen {
    let seen = Seen::default();
    in_parallel(volume(images).div_ceil(IMAGES_A_WORKLOAD) as usize, |index| {
        let random = &mut Random::new(seed + index as u64);
        let options = SmallOptions::random(random);
        let kept = [u64::MAX, 0, 20_000, 200_000][random.index(4)];
        let described = format!("seed {seed}, workload {index}, kept {kept}, {options:?}");
        let world = explained(
            || described.clone(),
            || {
                let mut world = World::new(options, kept, durabilities.to_vec());
                for _ in 0..10 + random.below(150) {
                    world.step(random, &seen).unwrap_or_else(|e| panic!("{}", full_text(&e)));
                }
                world
            },
        );
        for _ in 0..IMAGES_A_WORKLOAD {
            let moment = random.index(world.disk.operations() + 1);
            let policies = CrashPolicy::some(12, random.next_u64());
            let policy = policies[random.index(policies.len())];
            explained(
                || format!("{described}, crash after operation {moment}, {policy:?}"),
                || check_image(&world, moment, &world.disk.crash_image(moment, policy), &seen),
            );
        }
    });
    println!("{seen:?}");
    seen
}

#[test]
fn follower_resumed_after_crash_sees_each_commit_once() {
    let seen = survive(common::seed(), &[Durability::Sync, Durability::Buffered, Durability::Buffered], 5_000);
    assert!(seen.shown.get() > seen.images.get() && seen.resumed_behind.get() > 0);
}

#[test]
fn unlogged_commits_after_crash_end_at_the_cursor_in_all_trees() {
    survive(common::seed() + 1, &[Durability::None], 5_000);
}

#[test]
fn logged_and_unlogged_commits_after_crash_survive_in_order() {
    let all = [Durability::None, Durability::None, Durability::Buffered, Durability::Sync];
    let seen = survive(common::seed() + 2, &all, 5_000);
    assert!(seen.gaps.get() > 0);
}

#[test]
fn follower_on_failing_disk_is_shown_no_wrong_change() {
    let all = vec![Durability::None, Durability::Buffered, Durability::Sync, Durability::Buffered];
    let work = |world: &mut World, seen: &Seen| -> Result<()> {
        let mut random = Random::new(5);
        for _ in 0..60 {
            world.step(&mut random, seen)?;
        }
        Ok(())
    };
    let new = || {
        World::new(
            SmallOptions { memtable_bytes: 4 << 10, log_segment_bytes: 4 << 10, ..SmallOptions::default() },
            30_000,
            all.clone(),
        )
    };
    let (mut whole, seen) = (new(), Seen::default());
    work(&mut whole, &seen).expect("a disk without faults");
    let calls = whole.disk.calls(None);
    let every = (calls / volume(calls)).max(1) as usize;
    in_parallel(calls as usize / every, |index| {
        let call = (index * every) as u64;
        explained(
            || format!("call {call} of {calls}"),
            || {
                let mut world = new();
                let kind = [ErrorKind::Other, ErrorKind::StorageFull][index % 2];
                world.disk.inject(Fault::nth(call, kind));
                let failed = work(&mut world, &seen);
                if failed.is_err() {
                    drop(world.db.take());
                    let db = builder(&world.options, world.kept, &world.disk, 8).open(PATH);
                    let db = db.unwrap_or_else(|e| panic!("open after {failed:?}: {}", full_text(&e)));
                    let found = read_all(&db).expect("reading");
                    let followed = follow(&db, &mut world.follower, u64::MAX, false, &seen);
                    followed.unwrap_or_else(|e| panic!("following after {failed:?}: {}", full_text(&e)));
                    assert!(world.follower.contents == found, "{}", difference(&found, &world.follower.contents));
                }
            },
        );
    });
    println!("{calls} calls: {seen:?}");
}
