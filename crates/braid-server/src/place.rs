//! Chooses the threads of engine calls: workers for fast calls, a pool for others.
//!
//! A get of cached or mapped data takes a microsecond, less than a change of threads. But one that
//! waits for the disk stalls every connection of its worker, and nothing knows in advance which
//! will. So short calls run on the worker as long as they are fast. A call of more than
//! [`SLOW`] sends those of the next [`PAUSE`] to the pool, then one is tried again.
//!
//! INVARIANT H1: at most all workers but one are inside engine calls. So one is always free to drive
//! the other connections, whatever the disk does. (A worker of tokio that finds an event wakes another
//! before it runs the task, so that one waits for the sockets meanwhile.)

use crate::problem::Problem;
use std::{
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::{
    runtime::Handle,
    task::{JoinError, JoinHandle},
};

/// Duration from which a call counts as slow: above any call that finds its data in memory.
const SLOW: Duration = Duration::from_micros(500);
/// Time for which calls use the pool after a slow one.
const PAUSE: Duration = Duration::from_millis(20);

/// Decides where calls run. Shared by all connections; its fields are independent counters.
#[derive(Debug)]
pub struct Place {
    began: Instant,
    inside: AtomicUsize,
    inside_max: usize,
    /// End of the current pause, in microseconds since `began`.
    slow_until_us: AtomicU64,
}

impl Place {
    /// `workers` is at least 2.
    pub fn new(workers: usize) -> Place {
        Place {
            began: Instant::now(),
            inside: AtomicUsize::new(0),
            inside_max: workers.saturating_sub(1),
            slow_until_us: AtomicU64::new(0),
        }
    }

    /// Runs a short call, on this thread or in the pool.
    pub async fn run<R: Send + 'static>(&self, call: impl FnOnce() -> R + Send + 'static) -> Result<R, Problem> {
        match self.enter() {
            Some(_turn) => Ok(call()),
            None => in_pool(call).await,
        }
    }

    /// Sends the calls of the next time to the pool.
    fn pause(&self) {
        let until_us = self.now_us() + PAUSE.as_micros() as u64;
        self.slow_until_us.store(until_us, Ordering::Relaxed);
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn enter(&self) -> Option<Turn<'_>> {
        let began_us = self.now_us();
        if began_us < self.slow_until_us.load(Ordering::Relaxed) {
            return None;
        }
        if self.inside.fetch_add(1, Ordering::Relaxed) >= self.inside_max {
            self.inside.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Turn { place: self, began_us })
    }
}

/// A call on a worker.
struct Turn<'a> {
    place: &'a Place,
    began_us: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.place.now_us().saturating_sub(self.began_us) > SLOW.as_micros() as u64 {
            self.place.pause();
        }
        self.place.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs a call that may take long: a scan, a part of a stream, a new tree. A call that still waits
/// for a thread when the future is dropped does not run.
pub async fn in_pool<R: Send + 'static>(call: impl FnOnce() -> R + Send + 'static) -> Result<R, Problem> {
    Pooled::spawn(call).await.map_err(|_| Problem::panicked())
}

/// A call in the pool. The drop cancels it unless it runs already.
pub struct Pooled<R>(JoinHandle<R>);

impl<R: Send + 'static> Pooled<R> {
    pub fn spawn(call: impl FnOnce() -> R + Send + 'static) -> Pooled<R> {
        Pooled(tokio::task::spawn_blocking(call))
    }
}

impl<R> Future for Pooled<R> {
    type Output = Result<R, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<R> Drop for Pooled<R> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A value whose drop changes files. So it is dropped in the pool, not on the worker that drops the
/// request (INVARIANT H1).
#[derive(Debug)]
pub struct DropInPool<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> DropInPool<T> {
    pub fn new(value: T) -> DropInPool<T> {
        DropInPool(Some(value))
    }

    pub fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }

    /// Returns the value, for a call that may block.
    pub fn take(mut self) -> Option<T> {
        self.0.take()
    }
}

impl<T: Send + 'static> Drop for DropInPool<T> {
    fn drop(&mut self) {
        if let (Some(value), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            // Nothing waits for it.
            std::mem::drop(runtime.spawn_blocking(move || drop(value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_call_sends_next_ones_to_the_pool() {
        let place = Place::new(4);
        let slow = place.enter().unwrap();
        std::thread::sleep(2 * SLOW);
        drop(slow);
        assert!(place.enter().is_none());
        place.slow_until_us.store(0, Ordering::Relaxed);
        assert!(place.enter().is_some());
    }

    #[test]
    fn one_worker_stays_free() {
        let place = Place::new(3);
        let turns = [place.enter(), place.enter(), place.enter()];
        assert_eq!(turns.iter().flatten().count(), 2);
        drop(turns);
        place.slow_until_us.store(0, Ordering::Relaxed);
        assert!(place.enter().is_some());
    }

    fn with_one_pool_thread() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).max_blocking_threads(1).build().unwrap()
    }

    /// Requests of clients that went away filled the queue of the pool.
    #[test]
    fn queued_call_of_dropped_future_does_not_run() {
        let runtime = with_one_pool_thread();
        runtime.block_on(async {
            let (release, released) = std::sync::mpsc::channel::<()>();
            let first = Pooled::spawn(move || released.recv());
            let has_run = std::sync::Arc::new(AtomicU64::new(0));
            let count = std::sync::Arc::clone(&has_run);
            drop(Pooled::spawn(move || count.fetch_add(1, Ordering::SeqCst)));
            release.send(()).unwrap();
            first.await.unwrap().unwrap();
            // Behind the dropped one in the queue.
            in_pool(|| ()).await.unwrap();
            assert_eq!(has_run.load(Ordering::SeqCst), 0);
        });
    }

    #[test]
    fn value_that_changes_files_is_dropped_in_the_pool() {
        struct Reports(std::sync::mpsc::Sender<std::thread::ThreadId>);
        impl Drop for Reports {
            fn drop(&mut self) {
                self.0.send(std::thread::current().id()).unwrap();
            }
        }
        let runtime = with_one_pool_thread();
        let (report, reported) = std::sync::mpsc::channel();
        let value = DropInPool::new(Reports(report));
        let worker = runtime.block_on(runtime.spawn(async move {
            drop(value);
            std::thread::current().id()
        }));
        let patience = Duration::from_secs(60);
        assert_ne!(reported.recv_timeout(patience).unwrap(), worker.unwrap());
    }
}
