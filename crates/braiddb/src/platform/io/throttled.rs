//! A layer that throttles writers by a [`RateLimiter`], or reports read latencies to it.

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

#[derive(Clone, Debug)]
pub struct Limits {
    pub limiter: Arc<RateLimiter>,
    pub runtime: Arc<dyn Runtime>,
    /// Set when threads must stop waiting.
    pub released: Arc<AtomicBool>,
    pub urgency: Urgency,
}

impl Limits {
    pub fn wait(&self, bytes: u64) {
        self.limiter.wait(&*self.runtime, bytes, self.urgency, &self.released);
    }
}

/// Longer reads are not block reads of users.
const TIMED_READ_MAX: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Throttled,
    Timed,
}

#[derive(Debug)]
pub struct ThrottledVfs {
    inner: Arc<dyn Vfs>,
    limits: Limits,
    part: Part,
}

impl ThrottledVfs {
    pub fn throttling(inner: &Arc<dyn Vfs>, limits: Limits) -> ThrottledVfs {
        ThrottledVfs { inner: Arc::clone(inner), limits, part: Part::Throttled }
    }

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
