//! The owner: records of sessions, a full disk, a stall, a replaced database.

use super::{on_disk, open, open_with, put, settings};
use crate::{
    base::{Error, Result},
    db::{
        Db, Durability, ForwardedCommit, Settings,
        tests_common::{Clock, SECOND_NS, fault, mem, noise},
    },
    platform::{
        RateLimiter, SystemRuntime,
        fault_vfs::{FaultVfs, Operation},
    },
    shared::{
        core::Core,
        election,
        held::Held,
        message::SessionId,
        owner::{Owner, Unserved, Wanted},
    },
    txn::ReadSet,
};
use std::{
    io::ErrorKind,
    path::Path,
    sync::{Arc, Barrier, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

const TIMEOUT: Duration = Duration::from_secs(20);

fn wanted(number: u64, batches: Vec<u8>) -> Wanted {
    let commit = ForwardedCommit { batches, ..ForwardedCommit::default() };
    Wanted { number, commit, durability: Durability::Buffered, ends_ns: u64::MAX }
}

fn own(settings: &Settings) -> Owner {
    let db = Db::open_with(settings.clone(), Path::new("/db")).unwrap();
    Owner::new(db, Arc::clone(&settings.runtime)).unwrap()
}

fn commit(owner: &Owner, session: SessionId, number: u64) {
    let tree = owner.db().tree("t").unwrap().id().0;
    let claim = owner.claim(session).unwrap();
    owner.commit(&claim, &mut Held::default(), wanted(number, put(tree, b"k", b"v"))).unwrap();
    owner.release(&claim, false);
}

/// The records of killed processes stayed for 15 minutes of one owner. Where owners ended sooner,
/// they stayed for ever.
#[test]
fn record_of_lost_session_is_removed_after_its_time() {
    let clock = Clock::new();
    let settings = Settings { runtime: Arc::<Clock>::clone(&clock), ..settings(&mem()) };
    let owner = own(&settings);
    commit(&owner, [1; 16], 7);
    clock.advance(800 * SECOND_NS);
    commit(&owner, [2; 16], 1);
    owner.remove_old_records();
    assert_eq!(owner.record_count(), 2);
    clock.advance(101 * SECOND_NS);
    owner.remove_old_records();
    assert_eq!(owner.record_count(), 1);
    commit(&owner, [3; 16], 1);
    owner.db().close_refused().unwrap();
    drop(owner);
    // The next owner counts from the commits, and first waits for clients that come back.
    clock.advance(800 * SECOND_NS);
    let next = own(&settings);
    next.remove_old_records();
    assert_eq!(next.record_count(), 2);
    let claim = next.claim([2; 16]).unwrap();
    clock.advance(61 * SECOND_NS);
    next.remove_old_records();
    assert_eq!(next.record_count(), 2, "one has its client back, and one is recent");
    next.release(&claim, true);
    assert_eq!(next.record_count(), 1);
    clock.advance(100 * SECOND_NS);
    next.remove_old_records();
    assert_eq!(next.record_count(), 0);
    next.db().close_refused().unwrap();
}

#[test]
fn goodbye_of_ended_session_removes_its_record() {
    let owner = own(&settings(&mem()));
    commit(&owner, [1; 16], 1);
    let claim = owner.claim([1; 16]).unwrap();
    let refused = owner.commit(&claim, &mut Held::default(), wanted(1, Vec::new()));
    assert!(refused.is_ok(), "it was applied before");
    let earlier = claim;
    let claim = owner.claim([1; 16]).unwrap();
    assert!(matches!(owner.commit(&earlier, &mut Held::default(), wanted(2, Vec::new())), Err(Unserved::Superseded)));
    owner.release(&earlier, true);
    assert_eq!(owner.record_count(), 1, "the session has a later connection");
    owner.release(&claim, true);
    assert_eq!(owner.record_count(), 0);
    assert!(owner.db().trees().unwrap().iter().all(|tree| tree.name == "t"), "no tree of a user has records");
    owner.db().close_refused().unwrap();
}

/// Requests of several sessions that commit at the same time, some with errors.
#[test]
fn each_request_of_group_has_its_own_outcome() {
    let owner = own(&settings(&mem()));
    let tree = owner.db().tree("t").unwrap();
    let id = tree.id().0;
    tree.put("read", "1").unwrap();
    for round in 1..=200_u64 {
        let snapshot = owner.db().snapshot().sequence();
        tree.put("read", round.to_le_bytes()).unwrap();
        let reads = |key: &[u8]| {
            let mut reads = ReadSet::default();
            reads.add_key(&[&id.to_be_bytes()[..], key].concat());
            reads.seal();
            reads
        };
        let value = round.to_le_bytes();
        let commits = [
            ForwardedCommit { batches: put(id, b"blind", &value), ..ForwardedCommit::default() },
            ForwardedCommit {
                snapshot,
                reads: reads(b"read"),
                batches: put(id, b"stale", &value),
                ..ForwardedCommit::default()
            },
            ForwardedCommit {
                snapshot,
                reads: reads(b"other"),
                batches: put(id, b"sound", &value),
                ..ForwardedCommit::default()
            },
            ForwardedCommit { batches: put(77, b"k", &value), ..ForwardedCommit::default() },
            ForwardedCommit { batches: vec![255; 9], ..ForwardedCommit::default() },
        ];
        let all = Barrier::new(commits.len());
        let outcomes: Vec<_> = thread::scope(|scope| {
            let spawn = |(session, commit): (usize, ForwardedCommit)| {
                let (owner, all) = (&owner, &all);
                scope.spawn(move || {
                    let claim = owner.claim([session as u8 + 1; 16]).unwrap();
                    all.wait();
                    let wanted = Wanted { commit, ..wanted(round, Vec::new()) };
                    let done = owner.commit(&claim, &mut Held::default(), wanted);
                    owner.release(&claim, false);
                    done
                })
            };
            let running: Vec<_> = commits.into_iter().enumerate().map(spawn).collect();
            running.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let [blind, stale, sound, dropped, malformed] = &outcomes[..] else { unreachable!() };
        assert!(blind.is_ok() && sound.is_ok(), "{outcomes:?}");
        assert!(matches!(stale, Err(Unserved::Refused(Error::Conflict { .. }))), "{stale:?}");
        assert!(matches!(dropped, Err(Unserved::Refused(Error::NotFound(_)))), "{dropped:?}");
        assert!(matches!(malformed, Err(Unserved::Refused(Error::InvalidArgument(_)))), "{malformed:?}");
        for (key, is_there) in [("blind", true), ("stale", false), ("sound", true)] {
            assert_eq!(tree.get(key).unwrap().is_some_and(|found| found == value), is_there, "{key}, round {round}");
        }
    }
    owner.db().close_refused().unwrap();
}

/// The session's record counted as a put, so on a full disk the deletes of members failed too.
#[test]
fn delete_of_member_succeeds_on_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultVfs::new(dir.path());
    let settings = Settings { disk_reserve: Some(1 << 20), ..settings(&fault(&disk)) };
    let [owner, member] = [(); 2].map(|()| open_with(&settings, TIMEOUT, dir.path()));
    let (of_owner, tree) = (owner.tree("t").unwrap(), member.tree("t").unwrap());
    tree.put("a", "1").unwrap();
    tree.put("b", "1").unwrap();
    let fill = || disk.fail(Operation::Write, 0, 1, ErrorKind::StorageFull);
    fill();
    let refused = tree.put("c", "1");
    assert!(refused.as_ref().is_err_and(Error::is_disk_full), "{refused:?}");
    disk.heal();
    fill();
    of_owner.delete("a").unwrap();
    disk.heal();
    fill();
    tree.delete("b").unwrap();
    disk.heal();
    assert_eq!(of_owner.iter().unwrap().count(), 0);
    assert_eq!(tree.iter().unwrap().count(), 0);
}

/// A full disk makes a sequence number visible that no log has. A member that was given it waited
/// for it in vain.
#[test]
fn read_of_member_does_not_wait_for_rejected_commit() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultVfs::new(dir.path());
    let settings = settings(&fault(&disk));
    let [owner, member] = [(); 2].map(|()| open_with(&settings, Duration::from_secs(2), dir.path()));
    let (of_owner, tree) = (owner.tree("t").unwrap(), member.tree("t").unwrap());
    tree.put("a", "1").unwrap();
    disk.fail(Operation::Write, 0, 1, ErrorKind::StorageFull);
    assert!(of_owner.put("b", "1").is_err_and(|e| e.is_disk_full()));
    disk.heal();
    member.sync().unwrap();
    assert_eq!(tree.get("a").unwrap().unwrap(), "1");
    assert_eq!(tree.get("b").unwrap(), None);
}

/// A commit that waits for a flush took as long as the flush.
#[test]
fn commit_that_stalls_fails_at_the_timeout() {
    let dir = tempfile::tempdir().unwrap();
    // A flush takes 4 seconds. Values are too short for blob files, which users write at full speed.
    let limiter = Arc::new(RateLimiter::new(64 << 10));
    let slow = Settings { memtable_bytes: Some(256 << 10), rate_limiter: Some(Arc::clone(&limiter)), ..on_disk() };
    let [owner, member] = [(); 2].map(|()| open_with(&slow, Duration::from_secs(1), dir.path()));
    let trees = [(&owner, "of owner"), (&member, "of member")].map(|(db, name)| (db, db.tree(name).unwrap()));
    for (db, tree) in &trees {
        let (began, mut n) = (Instant::now(), 0);
        let stalled = loop {
            assert!(began.elapsed() < Duration::from_secs(20), "no commit has stalled");
            // A slow machine writes single puts no faster than the flush.
            let mut batch = db.batch();
            for _ in 0..16 {
                n += 1;
                batch.put(tree, u32::to_be_bytes(n), &noise(n)[..slow.blob_threshold - 1]);
            }
            if let Err(e) = batch.commit() {
                break e;
            }
        };
        let Error::NoOwner { waited, reason, .. } = &stalled else { panic!("{stalled}") };
        assert!(reason.contains("there is memory") && *waited < Duration::from_secs(3), "{stalled}");
        assert_eq!(tree.get(u32::to_be_bytes(n)).unwrap(), None, "nothing was written");
    }
    limiter.set_bytes_per_second(u64::MAX / 2);
}

/// A request that had waited for its session began after its client had given up.
#[test]
fn commit_does_not_begin_after_its_end() {
    let owner = own(&settings(&mem()));
    let tree = owner.db().tree("t").unwrap();
    let claim = owner.claim([1; 16]).unwrap();
    let late = Wanted { ends_ns: 1, ..wanted(1, put(tree.id().0, b"k", b"late")) };
    let refused = owner.commit(&claim, &mut Held::default(), late);
    assert!(matches!(refused, Err(Unserved::Refused(Error::NoOwner { .. }))), "{refused:?}");
    assert_eq!(tree.get("k").unwrap(), None);
    owner.commit(&claim, &mut Held::default(), wanted(1, put(tree.id().0, b"k", b"v"))).unwrap();
    let again = Wanted { ends_ns: 0, ..wanted(1, Vec::new()) };
    owner.commit(&claim, &mut Held::default(), again).expect("the outcome of what was applied is told at any time");
    owner.release(&claim, true);
    owner.db().close_refused().unwrap();
}

/// The close of an owner waited for the timeouts of other processes.
#[test]
fn close_of_owner_ends_the_waits_for_memory() {
    let dir = tempfile::tempdir().unwrap();
    // A flush takes 8 seconds.
    let limiter = Arc::new(RateLimiter::new(64 << 10));
    let slow = Settings { memtable_bytes: Some(512 << 10), rate_limiter: Some(Arc::clone(&limiter)), ..on_disk() };
    let db = Db::open_with(slow.clone(), dir.path()).unwrap();
    let owner = Owner::new(db, Arc::clone(&slow.runtime)).unwrap();
    let tree = owner.db().tree("t").unwrap();
    let mut n = 0_u32;
    while owner.db().has_room() {
        let mut batch = owner.db().batch();
        for _ in 0..16 {
            n += 1;
            batch.put(&tree, n.to_be_bytes(), noise(n));
        }
        batch.commit().unwrap();
    }
    let began = Instant::now();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let claim = owner.claim([1; 16]).unwrap();
            owner.commit(&claim, &mut Held::default(), wanted(1, put(tree.id().0, b"k", b"v")))
        });
        thread::sleep(Duration::from_millis(200));
        assert!(!waiting.is_finished(), "there is no room");
        owner.end_waits();
        let ended = waiting.join().unwrap();
        assert!(matches!(ended, Err(Unserved::Closing)), "{ended:?}");
    });
    assert!(began.elapsed() < Duration::from_secs(10));
    let later = owner.await_room(|| u64::MAX);
    assert!(matches!(later, Err(Error::Closed)), "{later:?}");
    limiter.set_bytes_per_second(u64::MAX / 2);
    owner.db().close_refused().unwrap();
}

/// The thread of the role, without a handle.
fn role_of(settings: &Settings, incarnation: u64, dir: &Path) -> Result<bool> {
    let core = Arc::new(Core::new(settings.clone(), dir.to_owned(), SECOND_NS));
    core.incarnation.store(incarnation, Ordering::Relaxed);
    let running = Arc::clone(&core);
    let thread = thread::spawn(move || election::run(&running));
    let role = core.await_role(core.deadline()).map(|owner| owner.is_some());
    core.is_closing.store(true, Ordering::Release);
    election::wake(&core);
    thread.join().unwrap();
    role
}

/// A member whose owner ended took over whatever the directory then had.
#[test]
fn takeover_of_another_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let settings = on_disk();
    let incarnation = Db::open_with(settings.clone(), dir.path()).unwrap().incarnation();
    assert!(role_of(&settings, incarnation, dir.path()).unwrap());
    let replaced = role_of(&settings, incarnation ^ 1, dir.path()).unwrap_err();
    assert!(replaced.to_string().contains("replaced"), "{replaced}");
    let empty = tempfile::tempdir().unwrap();
    assert!(role_of(&settings, incarnation, empty.path()).is_err());
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0, "no other database was made");
}

/// A member asked the owner of the other database again and again, and its calls failed with
/// `NoOwner` after the whole timeout.
#[test]
fn member_of_another_database_fails_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let owner = open(dir.path());
    let incarnation = owner.core().incarnation.load(Ordering::Relaxed);
    assert!(!role_of(&on_disk(), incarnation, dir.path()).unwrap());
    let replaced = role_of(&on_disk(), incarnation ^ 1, dir.path()).unwrap_err();
    assert!(matches!(replaced, Error::InvalidArgument(_)), "{replaced}");
    assert!(replaced.to_string().contains("replaced"), "{replaced}");
}

/// The open gave up a recovery that took longer than its timeout, and the next open began again.
#[test]
fn open_waits_for_its_own_recovery() {
    let core = Arc::new(Core::new(on_disk(), "x".into(), SECOND_NS / 20));
    core.is_opening.store(true, Ordering::Release);
    let recovering = Arc::clone(&core);
    let thread = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        recovering.set_role(crate::shared::core::Role::Member);
        recovering.is_opening.store(false, Ordering::Release);
    });
    core.await_first_role(core.deadline()).unwrap();
    thread.join().unwrap();
    let idle = Core::new(on_disk(), "x".into(), SECOND_NS / 20);
    assert!(matches!(idle.await_first_role(idle.deadline()), Err(Error::NoOwner { .. })));
}

#[test]
fn sessions_of_equal_random_numbers_have_different_ids() {
    let runtime = SystemRuntime::new();
    let ids = [(); 2].map(|()| crate::shared::session::Session::new(&runtime).id);
    assert_ne!(ids[0], ids[1]);
    assert_eq!(ids[0][8..12], std::process::id().to_le_bytes(), "a forked process has another number");
}
