//! Calls of members: groups, deadlines, requests without a reply.

use super::{on_disk, open, open_with, put};
use crate::{
    base::Error,
    db::Durability,
    platform::{LocalListener, SystemRuntime},
    shared::{
        SharedDb,
        core::{Core, Role},
        forward::{Answer, Write, WriteQueues, end_idle_sessions, end_sessions_idle_at, finish, write_group},
        frame::{self, FrameReader},
        message::{Reply, Request},
        polling::PollingReader,
        session::{Deadline, SLICE},
    },
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

const MS: u64 = 1_000_000;

fn deadlines(core: &Core, timeouts_ms: &[u64]) -> Vec<Deadline> {
    timeouts_ms.iter().map(|timeout| Deadline::after(core.runtime(), timeout * MS)).collect()
}

fn answers(core: &Arc<Core>, group: &mut [Write]) -> Vec<Answer> {
    let mut answers = Vec::new();
    write_group(core, group, Durability::Buffered, &mut |answer| answers.push(answer));
    assert_eq!(answers.len(), group.len(), "one answer for each write");
    answers
}

/// One write of a group that failed made all of them fail.
#[test]
fn bad_write_of_group_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, member) = (open(dir.path()), open(dir.path()));
    let tree = member.tree("t").unwrap();
    let id = owner.state().unwrap().open_tree("t").unwrap().id().0;
    let core = Arc::clone(member.core());
    let deadline = core.deadline();
    let write = |batches| Write { batches, deadline };
    let mut group = [
        write(put(id, b"a", b"1")),
        write(put(77, b"no such tree", b"1")),
        write(put(id, b"b", b"2")),
        write(vec![9]),
        write(put(id, b"c", b"3")),
    ];
    let outcomes: Vec<_> = answers(&core, &mut group)
        .into_iter()
        .map(|answer| finish(&core, Some(answer), Durability::Buffered, deadline))
        .collect();
    assert!([0, 2, 4].iter().all(|at| outcomes[*at].is_ok()), "{outcomes:?}");
    assert!(matches!(&outcomes[1], Err(Error::NotFound(_))), "{:?}", outcomes[1]);
    assert!(matches!(&outcomes[3], Err(Error::InvalidArgument(_))), "{:?}", outcomes[3]);
    let mut keys = tree.multi_get(&["a", "b", "c"]).unwrap();
    assert!(keys.drain(..).all(|value| value.is_some()));
    // Without a bad one, one request has all.
    let mut group = [write(put(id, b"a", b"4")), write(put(id, b"b", b"4"))];
    let before = owner.state().unwrap().snapshot().sequence();
    assert!(answers(&core, &mut group).iter().all(|answer| matches!(answer, Answer::Done(Ok(_)))));
    assert_eq!(owner.state().unwrap().snapshot().sequence(), before + 1);
}

/// Without an owner, the leader's timeout ended the waits of writes that had begun later.
#[test]
fn group_without_owner_ends_at_the_deadline_of_each_write() {
    let core = Arc::new(Core::new(on_disk(), "nowhere".into(), 1000 * MS));
    let deadlines = deadlines(&core, &[50, 10_000]);
    let mut group = [0, 1].map(|at| Write { batches: put(2, b"k", b"v"), deadline: deadlines[at] });
    let [first, second] = &answers(&core, &mut group)[..] else { unreachable!() };
    assert!(matches!(first, Answer::Done(Err(Error::NoOwner { .. }))), "{first:?}");
    assert!(matches!(second, Answer::Alone(batches) if *batches == put(2, b"k", b"v")), "{second:?}");
    assert!(!deadlines[1].is_over(core.runtime()));
}

/// An owner that takes requests, and replies to none of the first `silent` commits.
fn silent_owner(listener: LocalListener, silent: u32, is_over: Arc<AtomicBool>) -> thread::JoinHandle<u32> {
    thread::spawn(move || {
        let runtime = SystemRuntime::new();
        let commits = AtomicU32::new(0);
        let commits = &commits;
        let (is_over, runtime) = (&*is_over, &runtime);
        thread::scope(|scope| {
            while !is_over.load(Ordering::Acquire) {
                let Some(stream) = listener.accept(SLICE, SLICE).unwrap() else { continue };
                scope.spawn(move || {
                    let mut frames = FrameReader::default();
                    let mut is_late = || is_over.load(Ordering::Acquire);
                    loop {
                        let mut reader = PollingReader { stream: &stream, runtime, polling: None, pause: SLICE };
                        let Ok(payload) = frames.read(&mut reader, &mut is_late) else { break };
                        let is_commit = matches!(Request::decode(payload), Some(Request::Commit { .. }));
                        if is_commit && commits.fetch_add(1, Ordering::AcqRel) < silent {
                            continue;
                        }
                        let done = Reply::Done { sequence: 5, incarnation: 1 }.frame().unwrap();
                        frame::write(&mut &stream, &done, &mut is_late).unwrap();
                    }
                });
            }
        });
        commits.load(Ordering::Acquire)
    })
}

/// The outcome of a sent request is unknown to the write whose time is over. The others go on with
/// the same request.
#[test]
fn sent_group_goes_on_after_the_deadline_of_its_leader() {
    let dir = tempfile::tempdir().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let owner = silent_owner(LocalListener::bind(dir.path()).unwrap(), 1, Arc::clone(&is_over));
    let core = Arc::new(Core::new(on_disk(), dir.path().to_owned(), 1000 * MS));
    core.set_role(Role::Member);
    let deadlines = deadlines(&core, &[1000, 20_000, 20_000]);
    let mut group = [0, 1, 2].map(|at| Write { batches: put(2, b"k", b"v"), deadline: deadlines[at] });
    let mut answers = answers(&core, &mut group);
    let last = answers.split_off(1);
    assert!(matches!(&answers[..], [Answer::Done(Err(Error::OutcomeUnknown { .. }))]), "{answers:?}");
    for (answer, deadline) in last.into_iter().zip(&deadlines[1..]) {
        assert_eq!(finish(&core, Some(answer), Durability::Buffered, *deadline).unwrap(), 5);
    }
    assert_eq!(core.pool.lock().in_use, 0);
    is_over.store(true, Ordering::Release);
    assert_eq!(owner.join().unwrap(), 2, "the request was sent twice, and not once for each write");
}

/// A process that became the owner after it had sent a write reported errors as if nothing was
/// written.
#[test]
fn write_sent_to_an_owner_that_is_gone_is_unknown_after_a_close() {
    let dir = tempfile::tempdir().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let owner = silent_owner(LocalListener::bind(dir.path()).unwrap(), 1, Arc::clone(&is_over));
    let core = Arc::new(Core::new(on_disk(), dir.path().to_owned(), 20_000 * MS));
    core.set_role(Role::Member);
    let queues = WriteQueues::default();
    let outcome = thread::scope(|scope| {
        let write = scope.spawn(|| queues.write(&core, put(2, b"k", b"v"), Durability::Buffered, core.deadline()));
        thread::sleep(Duration::from_millis(100));
        // The owner ends, and this process closes its handle.
        core.set_role(Role::Closed);
        is_over.store(true, Ordering::Release);
        write.join().unwrap()
    });
    owner.join().unwrap();
    assert!(matches!(outcome, Err(Error::OutcomeUnknown { .. })), "{outcome:?}");
}

/// The time of the closure was once deducted from the timeout of the commit.
#[test]
fn update_commits_after_a_closure_that_takes_longer_than_the_timeout() {
    let (dir, timeout) = (tempfile::tempdir().unwrap(), Duration::from_millis(500));
    let [owner, member] = [(); 2].map(|()| open_with(&on_disk(), timeout, dir.path()));
    owner.tree("t").unwrap();
    for db in [&owner, &member] {
        let tree = db.tree("t").unwrap();
        let update = |conflicts: bool| {
            let mut runs = 0;
            let done = db.update(|tx| {
                runs += 1;
                let inside = tree.in_transaction(tx)?;
                let seen = tx.get(&inside, "read")?;
                thread::sleep(2 * timeout);
                if conflicts {
                    // This thread may write only through the transaction.
                    let other = owner.clone();
                    thread::spawn(move || other.tree("t")?.put("read", "2")).join().unwrap()?;
                }
                tx.put(&inside, "k", [u8::from(seen.is_some())])
            });
            (done, runs)
        };
        update(false).0.unwrap();
        assert!(tree.get("k").unwrap().is_some());
        let (conflict, runs) = update(true);
        assert!(matches!(conflict, Err(Error::Conflict { .. })), "{conflict:?}");
        assert_eq!(runs, 1, "the time to repeat it is over");
    }
}

fn records(owner: &SharedDb) -> usize {
    owner.core().owner().unwrap().record_count()
}

/// Each connection takes a thread and a descriptor of the owner.
#[test]
fn unused_session_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, member) = (open(dir.path()), open(dir.path()));
    let tree = member.tree("t").unwrap();
    tree.put("a", "1").unwrap();
    end_idle_sessions(member.core());
    assert_eq!(records(&owner), 1);
    // The clock of some systems began with the test.
    end_sessions_idle_at(member.core(), u64::MAX);
    assert_eq!((records(&owner), member.core().pool.lock().idle.len()), (0, 0));
    tree.put("b", "2").unwrap();
    assert_eq!(tree.iter().unwrap().count(), 2);
    member.close().unwrap();
    assert_eq!(records(&owner), 0);
}

/// A close let a member that waited for the right have it, and ended with it: a conflict.
#[test]
fn member_that_waits_for_the_right_gets_it_from_the_next_owner() {
    let dir = tempfile::tempdir().unwrap();
    let owner = open(dir.path());
    let [first, second] = [(); 2].map(|()| open(dir.path()));
    let pause = || thread::sleep(Duration::from_millis(100));
    let tree = second.tree("t").unwrap();
    tree.put("before", "").unwrap();
    let open_now = first.begin_exclusive().unwrap();
    thread::scope(|scope| {
        let closing = scope.spawn(|| owner.close().unwrap());
        pause();
        let waiting = scope.spawn(|| {
            let begun = second.begin_exclusive().unwrap();
            begun.put(&tree.in_transaction(&begun).unwrap(), "k", "v").unwrap();
            begun.commit().unwrap();
        });
        pause();
        assert!(!closing.is_finished(), "it waits for the transaction");
        open_now.commit().unwrap();
        closing.join().unwrap();
        waiting.join().unwrap();
    });
    assert_eq!(tree.get("k").unwrap().as_deref(), Some(&b"v"[..]));
}
