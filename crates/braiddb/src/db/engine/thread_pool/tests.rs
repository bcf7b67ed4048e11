//! Order and times of turns.

#![expect(clippy::disallowed_methods, reason = "tests of threads and time")]

use super::*;
use crate::platform::SystemRuntime;
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Instant,
};

/// Has `left` jobs of the duration `takes`. Counts its concurrent jobs.
struct Busy {
    left: AtomicUsize,
    takes: Duration,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    turns: AtomicUsize,
    rest_ns: u64,
}

impl Busy {
    fn new(left: usize, takes: Duration) -> Arc<Busy> {
        Arc::new(Busy {
            left: left.into(),
            takes,
            at_once: 0.into(),
            most_at_once: 0.into(),
            turns: 0.into(),
            rest_ns: 3_600_000_000_000,
        })
    }
}

impl Worker for Busy {
    fn run_job(&self, role: Role, found: &dyn Fn()) -> JobResult {
        if role != Role::Merger {
            return JobResult::Rest(self.rest_ns);
        }
        self.turns.fetch_add(1, Ordering::SeqCst);
        let less = |left: usize| left.checked_sub(1);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err() {
            return JobResult::Rest(self.rest_ns);
        }
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        found();
        thread::sleep(self.takes);
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        JobResult::Again
    }
}

fn pool(mergers: usize) -> ThreadPool {
    let pool = ThreadPool::new(Arc::new(SystemRuntime::new()));
    pool.start(1, mergers).unwrap();
    pool
}

fn join(pool: &ThreadPool, id: u64, worker: &Arc<impl Worker + 'static>) {
    let worker: Weak<dyn Worker> = Arc::downgrade(&(Arc::clone(worker) as Arc<dyn Worker>));
    pool.join(id, worker);
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn work_is_done_side_by_side() {
    let (pool, busy) = (pool(3), Busy::new(30, Duration::from_millis(20)));
    join(&pool, 7, &busy);
    wait_until("all is done", || busy.left.load(Ordering::SeqCst) == 0);
    assert_eq!(busy.most_at_once.load(Ordering::SeqCst), 3);
}

#[test]
fn who_has_much_to_do_keeps_nobody_waiting_for_long() {
    let pool = pool(2);
    let busy = Busy::new(usize::MAX, Duration::from_millis(5));
    join(&pool, 0, &busy);
    wait_until("both threads work", || busy.at_once.load(Ordering::SeqCst) == 2);
    let others: Vec<Arc<Busy>> = (0..10).map(|_| Busy::new(3, Duration::from_millis(5))).collect();
    let before = busy.turns.load(Ordering::SeqCst);
    for (id, other) in (1..).zip(&others) {
        join(&pool, id, other);
    }
    wait_until("the others have done theirs", || others.iter().all(|other| other.left.load(Ordering::SeqCst) == 0));
    // Ten workers have thirty jobs; the busy one is one of eleven.
    let meanwhile = busy.turns.load(Ordering::SeqCst) - before;
    assert!(meanwhile < 20, "the busy one had {meanwhile} turns meanwhile");
}

#[test]
fn a_call_that_comes_during_a_turn_is_not_lost() {
    struct Called {
        pool: ThreadPool,
        turns: AtomicUsize,
    }
    impl Worker for Called {
        fn run_job(&self, role: Role, _found: &dyn Fn()) -> JobResult {
            if role == Role::Flusher && self.turns.fetch_add(1, Ordering::SeqCst) < 100 {
                self.pool.call(1);
            }
            JobResult::Rest(3_600_000_000_000)
        }
    }
    let called = Arc::new(Called { pool: pool(1), turns: 0.into() });
    join(&called.pool, 1, &called);
    wait_until("it had a turn for each call", || called.turns.load(Ordering::SeqCst) == 101);
    called.pool.leave(1, false);
}

#[test]
fn who_rests_is_looked_at_again() {
    struct Resting(AtomicUsize);
    impl Worker for Resting {
        fn run_job(&self, role: Role, _found: &dyn Fn()) -> JobResult {
            self.0.fetch_add(usize::from(role == Role::Logger), Ordering::SeqCst);
            JobResult::Rest(1_000_000)
        }
    }
    let (pool, resting) = (pool(1), Arc::new(Resting(0.into())));
    join(&pool, 1, &resting);
    wait_until("ten looks", || resting.0.load(Ordering::SeqCst) >= 10);
}

#[test]
fn who_lets_go_of_files_has_a_turn_only_when_it_is_called_for_that() {
    #[derive(Default)]
    struct Counted([AtomicUsize; ROLES.len()]);
    impl Counted {
        fn turns(&self, role: Role) -> usize {
            self.0[role as usize].load(Ordering::SeqCst)
        }
    }
    impl Worker for Counted {
        fn run_job(&self, role: Role, _found: &dyn Fn()) -> JobResult {
            self.0[role as usize].fetch_add(1, Ordering::SeqCst);
            if role == Role::Cleaner { JobResult::Done } else { JobResult::Rest(1_000_000) }
        }
    }
    let (pool, counted) = (pool(1), Arc::new(Counted::default()));
    join(&pool, 1, &counted);
    wait_until("ten looks at the log", || counted.turns(Role::Logger) >= 10);
    assert_eq!(counted.turns(Role::Cleaner), 0);
    pool.call_cleaner(1);
    wait_until("its turn", || counted.turns(Role::Cleaner) == 1);
    let before = counted.turns(Role::Logger);
    pool.call(1);
    wait_until("ten looks more", || counted.turns(Role::Logger) >= before + 10);
    assert_eq!(counted.turns(Role::Cleaner), 1);
}

#[test]
fn long_pauses_end_together() {
    assert_eq!(due_at(123_456_789, 50_000_000), 173_456_789);
    assert_eq!(due_at(123_456_789, 1_000_000_000), 1_200_000_000);
    assert_eq!(due_at(190_000_000, 1_000_000_000), 1_200_000_000);
    assert_eq!(due_at(u64::MAX - 5, 1_000_000_000), u64::MAX);
}

#[test]
fn nobody_has_a_turn_who_has_left() {
    struct Slow {
        is_running: AtomicBool,
        has_left: AtomicBool,
    }
    impl Worker for Slow {
        fn run_job(&self, _role: Role, _found: &dyn Fn()) -> JobResult {
            assert!(!self.has_left.load(Ordering::SeqCst), "a turn after it has left");
            self.is_running.store(true, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(20));
            self.is_running.store(false, Ordering::SeqCst);
            JobResult::Again
        }
    }
    let pool = pool(1);
    for id in 0..5 {
        let slow = Arc::new(Slow { is_running: false.into(), has_left: false.into() });
        join(&pool, id, &slow);
        wait_until("it runs", || slow.is_running.load(Ordering::SeqCst));
        pool.leave(id, false);
        slow.has_left.store(true, Ordering::SeqCst);
        pool.call(id);
        assert_eq!(Arc::strong_count(&slow), 1, "somebody holds it still");
    }
    thread::sleep(Duration::from_millis(50));
    assert!(!pool.shared.state.lock().ready.iter().any(|line| !line.is_empty()));
    pool.end();
}

#[test]
fn whoever_is_gone_without_leaving_is_forgotten() {
    let pool = pool(1);
    let busy = Busy::new(1, Duration::ZERO);
    join(&pool, 3, &busy);
    wait_until("it is done", || busy.left.load(Ordering::SeqCst) == 0);
    drop(busy);
    pool.call(3);
    wait_until("all lines are empty", || pool.shared.state.lock().ready.iter().all(VecDeque::is_empty));
    // The last owner may be a pool thread.
    pool.end();
    assert_eq!(pool.threads(), 0);
}
