//! Prepares chunks for memtables on a second thread while a log is replayed.
//!
//! To zero a huge page, or to get it from the host of a virtual machine, takes milliseconds.

use super::ChunkPool;
use crate::platform::Runtime;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{sync::Arc, thread::JoinHandle};

#[derive(Debug)]
pub struct ChunksAhead {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    pool: Arc<ChunkPool>,
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl ChunksAhead {
    /// `None` if the thread cannot be created.
    pub fn start(runtime: &dyn Runtime, pool: &Arc<ChunkPool>) -> Option<ChunksAhead> {
        let pool = Arc::clone(pool);
        let shared = Arc::new(Shared { pool, is_over: Mutex::new(false), changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let thread = runtime.spawn("braiddb-room", Box::new(move || of_thread.prepare())).ok()?;
        Some(ChunksAhead { shared, thread: Some(thread) })
    }

    pub fn stop(&self) {
        *self.shared.is_over.lock() = true;
        self.shared.changed.notify_one();
    }

    pub fn wake(&self) {
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn prepare(&self) {
        let mut is_over = self.is_over.lock();
        while !*is_over {
            let is_made = self.pool.ready() == 0 && MutexGuard::unlocked(&mut is_over, || self.pool.prepare());
            // A wake-up at this moment may be lost; the next one is not.
            if !is_made && !*is_over {
                self.changed.wait(&mut is_over);
            }
        }
    }
}

impl Drop for ChunksAhead {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::SystemRuntime;
    use std::{sync::mpsc, thread, time::Duration};

    /// Drops at every moment, also while the thread makes a chunk beyond the pool's limit.
    #[test]
    fn chunks_ahead_drop_ends_the_thread_at_any_moment() {
        let (report, reported) = mpsc::channel();
        let body = move || {
            let (system, pool) = (SystemRuntime::new(), Arc::new(ChunkPool::new(ChunkPool::LAYOUT.size())));
            for round in 0..if cfg!(miri) { 3 } else { 1_000 } {
                let ahead = ChunksAhead::start(&system, &pool).unwrap();
                let from = system.monotonic_ns();
                while system.monotonic_ns() < from + 300 * round {
                    thread::yield_now();
                }
                let chunk = pool.take();
                drop(ahead);
                // SAFETY: it came from this pool, and is not in use.
                unsafe { pool.give_back(chunk) };
                pool.trim();
            }
            report.send(()).unwrap();
        };
        let thread = SystemRuntime::new().spawn("bounded", Box::new(body)).unwrap();
        reported.recv_timeout(Duration::from_secs(60)).expect("it ends each time");
        thread.join().unwrap();
    }

    #[test]
    fn chunks_ahead_keeps_one_chunk_ready_within_the_pool_limit() {
        let huge = ChunkPool::LAYOUT.size();
        let pool = Arc::new(ChunkPool::new(3 * huge));
        let ahead = ChunksAhead::start(&SystemRuntime::new(), &pool).unwrap();
        let mut taken = Vec::new();
        while taken.len() < 3 {
            ahead.wake();
            assert!(pool.ready() <= 1);
            match pool.take_kept() {
                Some(chunk) => taken.push(chunk),
                None => thread::yield_now(),
            }
        }
        ahead.wake();
        assert!(!pool.prepare() && pool.take_kept().is_none());
        drop(ahead);
        for chunk in taken {
            // SAFETY: it came from this pool, and is not in use.
            unsafe { pool.give_back(chunk) };
        }
        assert_eq!(pool.bytes(), 3 * huge);
    }
}
