//! Measures asynchronous commits on two executor threads beside blocking commits of 1 to 256 threads.
//!
//! Each line: durable commits of one put per second, and the log syncs that they shared. The best
//! of three runs counts.
//!
//! ```text
//! cargo run --release -p tools --bin async_commits [directory] [commits]
//! ```

use braiddb::{Db, Result, Tree};
use std::{
    collections::VecDeque,
    future::Future,
    path::Path,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Wake, Waker},
    thread,
    time::Instant,
};

const EXECUTOR_THREADS: usize = 2;
const RUNS: usize = 3;
const VALUE: [u8; 100] = [7; 100];

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A minimal executor: a queue of woken tasks, and threads that poll them.
struct Executor {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    woken: VecDeque<Arc<Task>>,
    unfinished: usize,
}

struct Task {
    work: Mutex<Option<Work>>,
    executor: Arc<Executor>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let executor = Arc::clone(&self.executor);
        lock(&executor.state).woken.push_back(self);
        executor.changed.notify_one();
    }
}

impl Executor {
    /// Runs `works` to their ends.
    fn run(works: impl ExactSizeIterator<Item = Work>) {
        let state = State { woken: VecDeque::new(), unfinished: works.len() };
        let executor = Arc::new(Executor { state: Mutex::new(state), changed: Condvar::new() });
        let task = |work| Arc::new(Task { work: Mutex::new(Some(work)), executor: Arc::clone(&executor) });
        lock(&executor.state).woken.extend(works.map(task));
        thread::scope(|scope| {
            for _ in 0..EXECUTOR_THREADS {
                scope.spawn(|| executor.work());
            }
        });
    }

    fn work(&self) {
        while let Some(task) = self.next() {
            let waker = Waker::from(Arc::clone(&task));
            let mut work = lock(&task.work);
            let Some(mut running) = work.take() else { continue };
            if running.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                *work = Some(running);
                continue;
            }
            lock(&self.state).unfinished -= 1;
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<Arc<Task>> {
        let is_idle = |state: &mut State| state.woken.is_empty() && state.unfinished > 0;
        let state = self.changed.wait_while(lock(&self.state), is_idle);
        state.unwrap_or_else(PoisonError::into_inner).woken.pop_front()
    }
}

fn key(number: usize) -> [u8; 8] {
    (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn in_tasks(tree: &Tree, tasks: usize, commits: usize) {
    let work = |task: usize| -> Work {
        let tree = tree.clone();
        Box::pin(async move {
            for number in (task..commits).step_by(tasks) {
                tree.put_async(key(number), VALUE).await.expect("a commit");
            }
        })
    };
    Executor::run((0..tasks).map(work));
}

fn in_threads(tree: &Tree, threads: usize, commits: usize) {
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for number in (thread..commits).step_by(threads) {
                    tree.put(key(number), VALUE).expect("a commit");
                }
            });
        }
    });
}

fn measure(dir: &Path, name: &str, commits: usize, work: impl Fn(&Tree)) -> Result<f64> {
    let (mut best, mut syncs) = (0.0_f64, 0);
    for run in 0..RUNS {
        let path = dir.join(format!("{}-{run}", name.replace(' ', "-")));
        let db = Db::builder().create_parents(true).open(&path)?;
        let tree = db.tree("t")?;
        tree.put(b"first", VALUE)?;
        let before = db.stats().syncs;
        let began = Instant::now();
        work(&tree);
        let per_second = commits as f64 / began.elapsed().as_secs_f64();
        if per_second > best {
            (best, syncs) = (per_second, db.stats().syncs - before);
        }
        drop(tree);
        db.close()?;
        std::fs::remove_dir_all(&path).ok();
    }
    println!("{name:>24}: {best:9.0} commits/s, {syncs:6} syncs");
    Ok(best)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let given = arguments.next();
    let commits = arguments.next().and_then(|count| count.to_str()?.parse().ok()).unwrap_or(10_000);
    let place = std::env::temp_dir().join(format!("braiddb-async-{}", std::process::id()));
    let dir = given.map_or(place, Into::into);
    let mut of_threads = (0.0, 0);
    for threads in (0..=8).map(|power| 1_usize << power) {
        let name = format!("{threads} blocking threads");
        let per_second = measure(&dir, &name, commits, |tree| in_threads(tree, threads, commits))?;
        if per_second > of_threads.0 {
            of_threads = (per_second, threads);
        }
    }
    println!("best of blocking threads: {}", of_threads.1);
    for tasks in [64, 256, 1024, commits] {
        let per_second = measure(&dir, &format!("{tasks} tasks"), commits, |tree| in_tasks(tree, tasks, commits))?;
        println!("{:>24}  {:.2} of the best", "", per_second / of_threads.0);
    }
    std::fs::remove_dir(&dir).ok();
    Ok(())
}
