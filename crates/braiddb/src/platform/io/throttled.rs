//! Files whose writers wait for a [`RateLimiter`], and files whose readers tell it how long they waited for the device.

use super::rate_limiter::{RateLimiter, Urgency};
use crate::platform::{
    batch::Unbuffered,
    runtime::Runtime,
    vfs::{File, OpenMode, Vfs},
};
use std::{
    io,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

/// What those who are limited have in common.
#[derive(Clone, Debug)]
pub struct Limits {
    /// What gives the time.
    pub limiter: Arc<RateLimiter>,
    /// The clock that it goes by.
    pub runtime: Arc<dyn Runtime>,
    /// Set when nobody is to wait any more.
    pub released: Arc<AtomicBool>,
    /// What for.
    pub urgency: Urgency,
}

impl Limits {
    /// Waits until so many bytes may be written.
    pub fn wait(&self, bytes: u64) {
        self.limiter.wait(&*self.runtime, bytes, self.urgency, &self.released);
    }
}

/// Longer reads are no user's, who reads blocks.
const TIMED_READ_MAX: usize = 64 << 10;

/// What a limiter has to do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Writes wait for it.
    Throttled,
    /// It is told how long reads take.
    Timed,
}

/// A file system whose new files are limited, or whose files are timed when they are read.
#[derive(Debug)]
pub struct ThrottledVfs {
    inner: Arc<dyn Vfs>,
    limits: Limits,
    part: Part,
}

impl ThrottledVfs {
    /// The same files as `inner`; the writers of new ones wait.
    pub fn throttling(inner: &Arc<dyn Vfs>, limits: Limits) -> ThrottledVfs {
        ThrottledVfs { inner: Arc::clone(inner), limits, part: Part::Throttled }
    }

    /// The same files as `inner`; how long reads take is told.
    pub fn timing(inner: &Arc<dyn Vfs>, limits: Limits) -> ThrottledVfs {
        ThrottledVfs { inner: Arc::clone(inner), limits, part: Part::Timed }
    }

    fn wrap(&self, inner: Arc<dyn File>, mode: OpenMode) -> Arc<dyn File> {
        match (self.part, mode) {
            (Part::Throttled, OpenMode::CreateNew) | (Part::Timed, OpenMode::Read) => {
                Arc::new(ThrottledFile { inner, limits: self.limits.clone(), part: self.part })
            }
            _ => inner,
        }
    }
}

impl super::layer::VfsLayer for ThrottledVfs {
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

/// A file that is written as fast as may be, or timed.
#[derive(Debug)]
struct ThrottledFile {
    inner: Arc<dyn File>,
    limits: Limits,
    part: Part,
}

impl super::layer::FileLayer for ThrottledFile {
    fn inner(&self) -> &dyn File {
        &*self.inner
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.part == Part::Throttled || buf.len() > TIMED_READ_MAX {
            return self.inner.read_at(buf, offset);
        }
        let runtime = &self.limits.runtime;
        let began_ns = runtime.monotonic_ns();
        let read = self.inner.read_at(buf, offset);
        self.limits.limiter.note_latency(runtime.monotonic_ns().saturating_sub(began_ns));
        read
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if self.part == Part::Throttled {
            self.limits.wait(buf.len() as u64);
        }
        self.inner.write_at(buf, offset)
    }
}
