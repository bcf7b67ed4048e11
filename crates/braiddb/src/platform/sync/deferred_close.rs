//! Closes and removes files in the background.
//!
//! Closing the last handle or map of a removed file frees its space. That takes milliseconds if the
//! file is fragmented or the file system discards blocks (ext4 with `discard`), and up to a second
//! on a busy device. Any thread may drop the last handle. So handles are dropped here: by a
//! background thread after [`DeferredClose::defer`], otherwise at once.

use crate::platform::vfs::Vfs;
use parking_lot::Mutex;
use std::{
    any::Any,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Maximum depth of drops that trigger further drops.
const DEPTH_MAX: usize = 4;

/// A queue of handles to drop. Any thread may call any method, holding any lock that `wake` does
/// not need.
#[derive(Default)]
pub struct DeferredClose {
    state: Mutex<State>,
    working: Mutex<()>,
    gone: AtomicU64,
}

#[derive(Default)]
struct State {
    wake: Option<Arc<dyn Fn() + Send + Sync>>,
    waiting: Vec<Waste>,
}

/// The file is removed before, if any.
struct Waste {
    file: Option<(Arc<dyn Vfs>, PathBuf)>,
    _handle: Box<dyn Any + Send>,
}

impl Waste {
    fn go(self) {
        let Some((vfs, path)) = &self.file else { return };
        if let Err(error) = vfs.remove(path) {
            tracing::warn!(path = %path.display(), %error, "a file that is not needed any more could not be removed; the next open will");
        }
    }
}

impl DeferredClose {
    /// Removes a file, then drops `handle`, which keeps it open.
    pub fn remove(&self, vfs: &Arc<dyn Vfs>, path: &Path, handle: impl Any + Send) {
        self.take(Waste { file: Some((Arc::clone(vfs), path.to_owned())), _handle: Box::new(handle) });
    }

    /// Drops a handle that may be the last one of a file.
    pub fn drop_later(&self, handle: impl Any + Send) {
        self.take(Waste { file: None, _handle: Box::new(handle) });
    }

    fn take(&self, waste: Waste) {
        let mut state = self.state.lock();
        let Some(wake) = state.wake.clone() else {
            drop(state);
            return waste.go();
        };
        state.waiting.push(waste);
        let is_first = state.waiting.len() == 1;
        drop(state);
        if is_first {
            wake();
        }
    }

    /// Queues handles from now on, and calls `wake` so that a thread calls [`DeferredClose::work`].
    pub fn defer(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.state.lock().wake = Some(wake);
    }

    /// Drops the queued handles, after a concurrent call has finished. Returns true if there were
    /// any. Must not be called from a drop that runs here.
    pub fn work(&self) -> bool {
        let _working = self.working.lock();
        // Drops may queue more handles, so the state must not be locked.
        let waiting = std::mem::take(&mut self.state.lock().waiting);
        let count = waiting.len() as u64;
        waiting.into_iter().for_each(Waste::go);
        self.gone.fetch_add(count, Ordering::Release);
        count > 0
    }

    /// Drops the queued handles and those that they queue in turn: a removed file drops a run,
    /// which drops a map. Bounded, even if other threads keep adding.
    pub fn work_through(&self) {
        for _ in 0..DEPTH_MAX {
            if !self.work() {
                break;
            }
        }
    }

    /// Returns the number of queued handles dropped so far. If it grew, more space may be free.
    pub fn gone(&self) -> u64 {
        self.gone.load(Ordering::Acquire)
    }

    /// Drops the queued handles. Later handles are dropped at once.
    pub fn finish(&self) {
        let wake = self.state.lock().wake.take();
        drop(wake);
        while self.work() {}
    }
}

impl fmt::Debug for DeferredClose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let (is_deferred, waiting) = (state.wake.is_some(), state.waiting.len());
        f.debug_struct("DeferredClose").field("is_deferred", &is_deferred).field("waiting", &waiting).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{MemVfs, OpenMode};
    use std::sync::atomic::AtomicUsize;

    /// Adds 1 when dropped after the removal of the file, 100 when dropped before.
    struct Handle(Arc<AtomicUsize>, MemVfs);

    impl Drop for Handle {
        fn drop(&mut self) {
            let is_there = self.1.open(Path::new("a"), OpenMode::Read).is_ok();
            self.0.fetch_add(if is_there { 100 } else { 1 }, Ordering::Relaxed);
        }
    }

    #[test]
    fn handle_drops_in_work_if_deferred_and_at_once_otherwise() {
        let (memory, gone, woken) = (MemVfs::new(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let vfs: Arc<dyn Vfs> = Arc::new(memory.clone());
        let deferred_close = DeferredClose::default();
        let give = || {
            memory.open(Path::new("a"), OpenMode::CreateNew).unwrap();
            deferred_close.remove(&vfs, Path::new("a"), Handle(Arc::clone(&gone), memory.clone()));
        };
        let seen =
            || (gone.load(Ordering::Relaxed), woken.load(Ordering::Relaxed), memory.list(Path::new("")).unwrap().len());
        give();
        assert_eq!(seen(), (1, 0, 0), "the file goes first");
        let counter = Arc::clone(&woken);
        deferred_close.defer(Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        give();
        assert_eq!(seen(), (1, 1, 1));
        deferred_close.drop_later(Handle(Arc::clone(&gone), MemVfs::new()));
        assert_eq!(seen(), (1, 1, 1), "who was woken once sees to all");
        deferred_close.work();
        assert_eq!(seen(), (3, 1, 0));
        give();
        assert_eq!(seen(), (3, 2, 1));
        deferred_close.finish();
        assert_eq!(seen(), (4, 2, 0));
        give();
        assert_eq!(seen(), (5, 2, 0));
    }

    #[test]
    fn work_through_drops_nested_handles() {
        struct Chain(Arc<DeferredClose>, usize, Arc<AtomicUsize>);
        impl Drop for Chain {
            fn drop(&mut self) {
                self.2.fetch_add(1, Ordering::Relaxed);
                if self.1 > 0 {
                    self.0.drop_later(Chain(Arc::clone(&self.0), self.1 - 1, Arc::clone(&self.2)));
                }
            }
        }
        let (deferred_close, gone) = (Arc::new(DeferredClose::default()), Arc::new(AtomicUsize::new(0)));
        deferred_close.defer(Arc::new(|| {}));
        deferred_close.drop_later(Chain(Arc::clone(&deferred_close), DEPTH_MAX - 1, Arc::clone(&gone)));
        deferred_close.work();
        assert_eq!(gone.load(Ordering::Relaxed), 1, "others come between");
        deferred_close.work_through();
        assert_eq!((gone.load(Ordering::Relaxed), deferred_close.gone()), (DEPTH_MAX, DEPTH_MAX as u64));
        deferred_close.drop_later(Chain(Arc::clone(&deferred_close), 20, Arc::clone(&gone)));
        deferred_close.finish();
        assert_eq!(gone.load(Ordering::Relaxed), DEPTH_MAX + 21);
    }
}
