//! A layer whose writers pause to use only a share of the time.
//!
//! A low-priority thread ([`Runtime::give_way`]) leaves processors to foreground threads, but still
//! takes memory bandwidth and caches. Pauses spread its work.

use crate::platform::{
    batch::Unbuffered,
    runtime::Runtime,
    vfs::{File, OpenMode, Vfs},
};
use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
};

pub const WHOLE: u64 = 1000;

/// Maximum share, in thousandths, at which jobs run one at a time.
const ONE_BY_ONE_MAX: u64 = 700;

/// Maximum pause, after which the share is evaluated again.
const PAUSE_NS_MAX: u64 = 50_000_000;

/// Minimum pause; shorter ones accumulate.
const PAUSE_NS_MIN: i64 = 100_000;

/// Limits background work to a share of the time.
#[derive(Debug)]
pub struct Pace {
    runtime: Arc<dyn Runtime>,
    /// Thousandths, from 1 to [`WHOLE`].
    share: AtomicU64,
    /// Live [`Hurry`] guards, plus calls of [`Pace::release`].
    hurrying: AtomicUsize,
}

impl Pace {
    pub fn new(runtime: Arc<dyn Runtime>) -> Pace {
        Pace { runtime, share: AtomicU64::new(WHOLE), hurrying: AtomicUsize::new(0) }
    }

    pub fn set_share(&self, per_mille: u64) {
        self.share.store(per_mille.clamp(1, WHOLE), Ordering::Relaxed);
    }

    /// True if a job may start beside `others`, the number of running ones.
    pub fn may_begin(&self, others: usize) -> bool {
        let is_pressing = self.share.load(Ordering::Relaxed) > ONE_BY_ONE_MAX;
        others == 0 || is_pressing || self.hurrying.load(Ordering::Relaxed) > 0
    }

    /// Suspends all pauses while the returned guard lives.
    pub fn hurry(self: &Arc<Pace>) -> Hurry {
        self.hurrying.fetch_add(1, Ordering::Relaxed);
        Hurry(Arc::clone(self))
    }

    /// Suspends all pauses forever.
    pub fn release(&self) {
        self.hurrying.fetch_add(1, Ordering::Relaxed);
    }

    /// Pauses after `worked_ns` of work and returns the time afterwards. `owed` carries over the
    /// difference between requested and actual sleep: some systems oversleep by milliseconds.
    fn pause_after(&self, worked_ns: u64, now_ns: u64, owed: &AtomicI64) -> u64 {
        let share = self.share.load(Ordering::Relaxed);
        if share >= WHOLE || self.hurrying.load(Ordering::Relaxed) > 0 {
            owed.store(0, Ordering::Relaxed);
            return now_ns;
        }
        let more_ns = (worked_ns.min(PAUSE_NS_MAX) * (WHOLE - share) / share).min(PAUSE_NS_MAX) as i64;
        let due_ns = (owed.load(Ordering::Relaxed) + more_ns).min(PAUSE_NS_MAX as i64);
        if due_ns < PAUSE_NS_MIN {
            owed.store(due_ns, Ordering::Relaxed);
            return now_ns;
        }
        self.runtime.sleep_us(due_ns as u64 / 1000);
        let after_ns = self.runtime.monotonic_ns();
        let slept_ns = after_ns.saturating_sub(now_ns).min(2 * PAUSE_NS_MAX) as i64;
        owed.store(due_ns - slept_ns, Ordering::Relaxed);
        after_ns
    }
}

#[derive(Debug)]
pub struct Hurry(Arc<Pace>);

impl Drop for Hurry {
    fn drop(&mut self) {
        self.0.hurrying.fetch_sub(1, Ordering::Relaxed);
    }
}

/// New files are written at a [`Pace`].
#[derive(Debug)]
pub struct PacedVfs {
    inner: Arc<dyn Vfs>,
    pace: Arc<Pace>,
}

impl PacedVfs {
    pub fn new(inner: &Arc<dyn Vfs>, pace: Arc<Pace>) -> PacedVfs {
        PacedVfs { inner: Arc::clone(inner), pace }
    }

    fn wrap(&self, inner: Arc<dyn File>, mode: OpenMode) -> Arc<dyn File> {
        if mode != OpenMode::CreateNew {
            return inner;
        }
        let since_ns = AtomicU64::new(self.pace.runtime.monotonic_ns());
        Arc::new(PacedFile { inner, pace: Arc::clone(&self.pace), since_ns, owed_ns: AtomicI64::new(0) })
    }
}

impl super::layer::VfsLayer for PacedVfs {
    fn inner(&self) -> &dyn Vfs {
        &*self.inner
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(self.inner.open(path, mode)?, mode))
    }

    fn open_unbuffered(&self, path: &Path, mode: OpenMode) -> io::Result<Unbuffered> {
        let opened = self.inner.open_unbuffered(path, mode)?;
        Ok(Unbuffered { file: self.wrap(opened.file, mode), ..opened })
    }
}

/// A file that one thread writes piece by piece.
#[derive(Debug)]
struct PacedFile {
    inner: Arc<dyn File>,
    pace: Arc<Pace>,
    since_ns: AtomicU64,
    /// Pause still owed; negative after oversleeping.
    owed_ns: AtomicI64,
}

impl super::layer::FileLayer for PacedFile {
    fn inner(&self) -> &dyn File {
        &*self.inner
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let now_ns = self.pace.runtime.monotonic_ns();
        let worked_ns = now_ns.saturating_sub(self.since_ns.load(Ordering::Relaxed));
        self.since_ns.store(self.pace.pause_after(worked_ns, now_ns, &self.owed_ns), Ordering::Relaxed);
        self.inner.write_at(buf, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::MemVfs;
    use std::thread::JoinHandle;

    /// Advances only by sleeping, possibly longer than requested.
    #[derive(Debug, Default)]
    struct Ticking {
        now_ns: AtomicU64,
        slept_us: AtomicU64,
        late_us: AtomicU64,
    }

    impl Runtime for Ticking {
        fn unix_time_us(&self) -> u64 {
            0
        }
        fn monotonic_ns(&self) -> u64 {
            self.now_ns.load(Ordering::Relaxed)
        }
        fn random_u64(&self) -> u64 {
            4
        }
        fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn sleep_us(&self, micros: u64) {
            let micros = micros + self.late_us.load(Ordering::Relaxed);
            self.slept_us.fetch_add(micros, Ordering::Relaxed);
            self.now_ns.fetch_add(micros * 1000, Ordering::Relaxed);
        }
        fn process_name(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn paced_writer_takes_its_share() {
        let runtime = Arc::new(Ticking::default());
        let pace = Arc::new(Pace::new(Arc::clone(&runtime) as Arc<dyn Runtime>));
        let inner: Arc<dyn Vfs> = Arc::new(MemVfs::default());
        let paced = PacedVfs::new(&inner, Arc::clone(&pace));
        let new = Vfs::open(&paced, Path::new("new"), OpenMode::CreateNew).unwrap();
        let slept_us = || runtime.slept_us.load(Ordering::Relaxed);
        // Each write follows 1 ms of work.
        let write = |file: &dyn File| {
            runtime.now_ns.fetch_add(1_000_000, Ordering::Relaxed);
            file.write_at(b"bytes", 0).unwrap();
        };
        let slept_by = |writes: u64| {
            let before = slept_us();
            (0..writes).for_each(|_| write(&*new));
            slept_us() - before
        };
        assert_eq!(slept_by(100), 0, "all of the time unless told otherwise");
        pace.set_share(400);
        assert_eq!(slept_by(100), 150_000, "two fifths of 250 ms");
        assert!(pace.may_begin(0) && !pace.may_begin(1));
        runtime.late_us.store(15_000, Ordering::Relaxed);
        let slept = slept_by(1000);
        assert!(slept.abs_diff(1_500_000) <= 16_500, "two fifths, however late one wakes: {slept}");
        runtime.late_us.store(0, Ordering::Relaxed);
        pace.set_share(950);
        assert!(pace.may_begin(1));
        slept_by(1000);
        let slept = slept_by(1000);
        assert!(slept.abs_diff(52_631) <= 200, "short pauses are gathered: {slept}");
        pace.set_share(1);
        slept_by(1);
        assert_eq!(slept_by(10), 500_000, "no pause is longer than 50 ms");
        let hurry = pace.hurry();
        assert_eq!(slept_by(100), 0);
        assert!(pace.may_begin(1));
        drop(hurry);
        assert_eq!(slept_by(1), 50_000);
        let old = Vfs::open(&paced, Path::new("new"), OpenMode::ReadWrite).unwrap();
        let before = slept_us();
        write(&*old);
        assert_eq!(slept_us(), before, "files that are there already");
        pace.release();
        assert_eq!(slept_by(100), 0);
    }
}
