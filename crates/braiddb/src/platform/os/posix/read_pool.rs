//! Batched reads without io_uring.
//!
//! On Linux, buffered reads are announced to the kernel first, which prefetches them all. Other
//! reads use a pool of threads that starts on demand, serves the process, and ends after some idle
//! seconds. The caller works on its own batch until no read is left, so it finishes even if no
//! thread can start. A forked child has a pool of its own.

use super::per_process::PerProcess;
use crate::platform::batch::ReadRequest;
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Eight concurrent block reads nearly saturate current devices.
const THREADS_MAX: usize = 8;

const IDLE_MAX: Duration = Duration::from_secs(5);

static POOL: PerProcess<Pool> = PerProcess::new();

#[derive(Default)]
struct Pool {
    queue: Mutex<Queue>,
    news: Condvar,
}

impl Pool {
    fn get() -> &'static Pool {
        POOL.get(Pool::default)
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<Batch>>,
    threads: usize,
}

/// Each worker takes the next index, so one thread executes each read. The caller waits for all of
/// them and takes them back.
struct Batch {
    requests: Vec<Mutex<Option<ReadRequest>>>,
    next: AtomicUsize,
    left: Mutex<usize>,
    done: Condvar,
}

impl Batch {
    fn work(&self) {
        while let Some(slot) = self.requests.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(request) = &mut *slot.lock() {
                request.read_alone();
            }
            let mut left = self.left.lock();
            *left -= 1;
            if *left == 0 {
                self.done.notify_all();
            }
        }
    }
}

/// Executes the reads that gain from concurrency.
pub(super) fn read(requests: &mut [ReadRequest]) {
    #[cfg(target_os = "linux")]
    announce(requests);
    let is_slow = |request: &ReadRequest| {
        let is_ours = request.file.system_file().is_some();
        is_ours && request.result.is_none() && (request.file.is_unbuffered() || cfg!(not(target_os = "linux")))
    };
    if requests.iter().filter(|request| is_slow(request)).count() < 2 {
        return;
    }
    let mut taken = Vec::new();
    for (index, request) in requests.iter_mut().enumerate().filter(|(_, request)| is_slow(request)) {
        let (file, bytes) = (Arc::clone(&request.file), mem::take(&mut request.bytes));
        taken.push((index, ReadRequest { file, bytes, offset: request.offset, result: None }));
    }
    let places: Vec<usize> = taken.iter().map(|(index, _)| *index).collect();
    let batch = Arc::new(Batch {
        left: Mutex::new(taken.len()),
        requests: taken.into_iter().map(|(_, request)| Mutex::new(Some(request))).collect(),
        next: AtomicUsize::new(0),
        done: Condvar::new(),
    });
    call_for_help(&batch, places.len() - 1);
    batch.work();
    let mut left = batch.left.lock();
    while *left > 0 {
        batch.done.wait(&mut left);
    }
    drop(left);
    for (place, slot) in places.into_iter().zip(&batch.requests) {
        if let Some(request) = slot.lock().take() {
            requests[place] = request;
        }
    }
}

#[cfg(target_os = "linux")]
fn announce(requests: &[ReadRequest]) {
    use rustix::fs::{Advice, fadvise};
    for request in requests.iter().filter(|request| !request.file.is_unbuffered() && request.result.is_none()) {
        if let (Some(file), Some(len)) =
            (request.file.system_file(), std::num::NonZeroU64::new(request.bytes.len() as u64))
        {
            let _ = fadvise(file.descriptor, request.offset, Some(len), Advice::WillNeed);
        }
    }
}

/// Starts threads if the pool has too few.
fn call_for_help(batch: &Arc<Batch>, helpers: usize) {
    let pool = Pool::get();
    let mut queue = pool.queue.lock();
    let helpers = helpers.min(THREADS_MAX);
    while queue.threads < helpers && start(pool).is_ok() {
        queue.threads += 1;
    }
    let helpers = helpers.min(queue.threads);
    queue.waiting.extend((0..helpers).map(|_| Arc::clone(batch)));
    drop(queue);
    for _ in 0..helpers {
        pool.news.notify_one();
    }
}

fn start(pool: &'static Pool) -> io::Result<()> {
    std::thread::Builder::new().name("braid-read".to_owned()).spawn(|| serve(pool)).map(drop)
}

fn serve(pool: &Pool) {
    let mut queue = pool.queue.lock();
    loop {
        while let Some(batch) = queue.waiting.pop_front() {
            drop(queue);
            batch.work();
            drop(batch);
            queue = pool.queue.lock();
        }
        let has_waited = pool.news.wait_for(&mut queue, IDLE_MAX).timed_out();
        if has_waited && queue.waiting.is_empty() {
            queue.threads -= 1;
            return;
        }
    }
}

#[cfg(all(test, any(target_os = "linux", target_vendor = "apple")))]
mod tests {
    use super::{super::per_process::tests::is_true_in_child, *};

    /// The child of a fork counted its parent's threads as its own, and kept each batch for them.
    #[test]
    #[cfg_attr(miri, ignore = "no fork")]
    fn child_of_fork_starts_threads_of_its_own() {
        let empty = || {
            Arc::new(Batch {
                requests: Vec::new(),
                next: AtomicUsize::new(0),
                left: Mutex::new(0),
                done: Condvar::new(),
            })
        };
        call_for_help(&empty(), 2);
        assert!(Pool::get().queue.lock().threads >= 2);
        assert!(is_true_in_child(|| {
            let had = Pool::get().queue.lock().threads;
            call_for_help(&empty(), 1);
            had == 0 && Pool::get().queue.lock().threads == 1
        }));
    }
}
