//! Asynchronous commits after crashes and failed syncs: those whose futures are ready survive, and
//! no future hangs.

use crate::common;

use braiddb::{Commit, Db, Error, Tree};
use braiddb_sim::{Call, CrashPolicy, Fault, Random, SimDisk, SimRuntime, mix};
use common::{PATH, SmallOptions, empty_disk, explained, full_text, volume};
use std::{io::ErrorKind, sync::Arc};

const COMMITS: u64 = 120;

fn options() -> SmallOptions {
    SmallOptions { memtable_bytes: 1 << 20, ..SmallOptions::default() }
}

/// With background threads if `has_threads`; only without them is a run reproducible.
fn open(disk: &Arc<SimDisk>, seed: u64, has_threads: bool) -> (Db, Tree) {
    let seed = mix(seed, disk.next_session());
    let builder = match has_threads {
        true => options().builder_by(disk, SimRuntime::in_real_time(seed)).background_threads(1),
        false => options().builder_by(disk, SimRuntime::new(seed)),
    };
    let db = builder.open(PATH).unwrap_or_else(|e| panic!("open: {}", full_text(&e)));
    let tree = db.tree("zero").expect("a tree");
    (db, tree)
}

/// Returns the number of surviving commits, which are the first ones.
fn survivors(image: &Arc<SimDisk>) -> u64 {
    let (_db, tree) = open(image, 9, false);
    let mut count = 0_u64;
    for row in tree.iter() {
        let (key, value) = row.unwrap_or_else(|e| panic!("a row: {}", full_text(&e)));
        assert_eq!((&*key, &*value), (&count.to_be_bytes()[..], &count.to_le_bytes()[..]), "a commit is missing");
        count += 1;
    }
    count
}

/// Commits in groups. Returns, for each acknowledged group, the operations of the disk by then and
/// the commits so far.
fn commit_in_groups(disk: &SimDisk, tree: &Tree, random: &mut Random) -> Vec<(usize, u64)> {
    let (mut acknowledged, mut number) = (Vec::new(), 0);
    while number < COMMITS {
        let mut group: Vec<Commit> = Vec::new();
        for _ in 0..1 + random.below(12) {
            group.push(tree.put_async(number.to_be_bytes(), number.to_le_bytes()));
            number += 1;
        }
        // Some are dropped, and one of the others is awaited.
        let awaited = random.index(group.len());
        let upto = number - (group.len() - awaited) as u64 + 1;
        group.swap_remove(awaited).wait().unwrap_or_else(|e| panic!("a commit: {}", full_text(&e)));
        acknowledged.push((disk.operations(), upto));
    }
    acknowledged
}

#[test]
fn acknowledged_commits_after_crash_anywhere_survive() {
    let seed = common::seed();
    for has_threads in [false, true] {
        let disk = empty_disk(seed);
        let (db, tree) = open(&disk, seed, has_threads);
        let mut random = Random::new(seed);
        let from = disk.operations();
        let acknowledged = commit_in_groups(&disk, &tree, &mut random);
        let to = disk.operations();
        let mut moments: Vec<usize> = (0..volume(1000)).map(|_| from + random.index(to - from + 1)).collect();
        moments.extend(acknowledged.iter().map(|(operations, _)| *operations));
        moments.sort_unstable();
        for moment in moments {
            for policy in CrashPolicy::some(2, mix(seed, moment as u64)) {
                explained(
                    || format!("threads {has_threads}, crash after {moment} of {from}..{to}, {policy:?}"),
                    || {
                        let before = acknowledged.iter().filter(|(operations, _)| *operations <= moment);
                        let promised = before.map(|(_, upto)| *upto).max().unwrap_or(0);
                        let found = survivors(&disk.crash_image(moment, policy));
                        assert!(found >= promised, "{found} commits of {promised} survived");
                    },
                );
            }
        }
        drop((db, tree));
    }
}

#[test]
fn failed_sync_fails_all_later_futures_and_none_before() {
    for has_threads in [false, true] {
        for skip in 0..6 {
            let disk = empty_disk(skip);
            let (db, tree) = open(&disk, skip, has_threads);
            let fault = Fault::nth_of(Call::Sync, skip, ErrorKind::Other);
            disk.inject(Fault { path_suffix: Some(".wal".to_owned()), ..fault });
            let mut outcomes = Vec::new();
            for group in 0..10_u64 {
                let commits: Vec<Commit> = (group * 4..group * 4 + 4)
                    .map(|number| tree.put_async(number.to_be_bytes(), number.to_le_bytes()))
                    .collect();
                outcomes.extend(commits.into_iter().map(Commit::wait));
            }
            assert_eq!(disk.failed_calls().len(), 1, "the planned fault");
            let durable = outcomes.iter().take_while(|outcome| outcome.is_ok()).count();
            let failed = &outcomes[durable..];
            let is_expected = |error: &Error| error.is_commit_unknown() || matches!(error, Error::ReadOnly { .. });
            assert!(failed.iter().all(|outcome| outcome.as_ref().is_err_and(is_expected)), "{failed:?}");
            assert!(failed.first().is_some_and(|first| first.as_ref().is_err_and(Error::is_commit_unknown)));
            drop((tree, db));
            let image = disk.crash_image(disk.operations(), CrashPolicy::LoseAllUnsynced);
            assert!(survivors(&image) >= durable as u64, "threads {has_threads}, {skip} syncs before the fault");
        }
    }
}
