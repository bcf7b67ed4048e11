//! Many reads at once without io_uring.
//!
//! Of files that are read through the system's cache, it is told of all reads before the first is made, and has the device work on
//! them meanwhile. (On systems without such advice they are made by threads too.) Others are made by a few threads beside the calling one, which are
//! started when they are first wanted, serve the whole process, and end when nothing was wanted of them for some seconds. They take nothing but what stands in
//! the queue, and the caller works on his own reads until none is left: so if no thread can be started, he makes all of them.

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

/// The most threads. With eight reads under way a device of today is about as busy as it can be made by reads of single blocks.
const THREADS_MAX: usize = 8;

/// How long one waits for work before it ends.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// The threads, and what they are to help with.
static QUEUE: Mutex<Queue> = Mutex::new(Queue { waiting: VecDeque::new(), threads: 0 });
static NEWS: Condvar = Condvar::new();

struct Queue {
    waiting: VecDeque<Arc<Batch>>,
    threads: usize,
}

/// Reads that were asked for at once. Whoever works on it takes the next index, so each is made by one thread alone; the caller
/// waits until all are done, and takes them back.
struct Batch {
    requests: Vec<Mutex<Option<ReadRequest>>>,
    next: AtomicUsize,
    left: Mutex<usize>,
    done: Condvar,
}

impl Batch {
    /// Makes reads until none is left to be begun.
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

/// Makes reads at once, as far as that pays; the others are left as they are.
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

/// Tells the system what will be read through its cache.
#[cfg(target_os = "linux")]
fn announce(requests: &[ReadRequest]) {
    use rustix::fs::{Advice, fadvise};
    for request in requests.iter().filter(|request| !request.file.is_unbuffered() && request.result.is_none()) {
        if let (Some(file), Some(len)) =
            (request.file.system_file(), std::num::NonZeroU64::new(request.bytes.len() as u64))
        {
            // Only advice.
            let _ = fadvise(file.descriptor, request.offset, Some(len), Advice::WillNeed);
        }
    }
}

/// Has other threads work on a batch too, at most so many; starts some if too few are idle.
fn call_for_help(batch: &Arc<Batch>, helpers: usize) {
    let mut queue = QUEUE.lock();
    let helpers = helpers.min(THREADS_MAX);
    while queue.threads < helpers && start().is_ok() {
        queue.threads += 1;
    }
    let helpers = helpers.min(queue.threads);
    queue.waiting.extend((0..helpers).map(|_| Arc::clone(batch)));
    drop(queue);
    for _ in 0..helpers {
        NEWS.notify_one();
    }
}

fn start() -> io::Result<()> {
    std::thread::Builder::new().name("braid-read".to_owned()).spawn(serve).map(drop)
}

/// What a thread does.
fn serve() {
    let mut queue = QUEUE.lock();
    loop {
        while let Some(batch) = queue.waiting.pop_front() {
            drop(queue);
            batch.work();
            drop(batch);
            queue = QUEUE.lock();
        }
        let has_waited = NEWS.wait_for(&mut queue, IDLE_MAX).timed_out();
        if has_waited && queue.waiting.is_empty() {
            queue.threads -= 1;
            return;
        }
    }
}
