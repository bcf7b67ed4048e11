//! A layer whose new files are written and synced by a background thread.
//!
//! Writes and syncs execute in order. **Syncs take effect only with [`WriteBehind::settle`]**. A
//! later call or `settle` reports a failed write: only for files not needed earlier. All other
//! operations on a file wait for the queue.

use crate::platform::{
    batch::Unbuffered,
    os::aligned::Aligned,
    runtime::Runtime,
    vfs::{File, OpenMode, Vfs},
};
use parking_lot::Mutex;
use std::{
    io,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender},
    },
    thread::JoinHandle,
};

const WAITING_MAX: usize = 4;

#[derive(Debug)]
enum Job {
    Write {
        file: Arc<dyn File>,
        bytes: Aligned,
        len: usize,
        offset: u64,
    },
    WriteBack {
        file: Arc<dyn File>,
        offset: u64,
        len: u64,
    },
    Sync {
        file: Arc<dyn File>,
    },
    /// Signals when the queue reaches this job.
    Tell(SyncSender<()>),
}

#[derive(Debug, Default)]
struct Shared {
    /// The first failure. Later jobs are skipped.
    failure: Mutex<Option<(io::ErrorKind, String)>>,
    /// Buffers for reuse.
    spare: Mutex<Vec<Aligned>>,
}

impl Shared {
    fn check(&self) -> io::Result<()> {
        match &*self.failure.lock() {
            None => Ok(()),
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
        }
    }

    fn do_all(&self, jobs: &Receiver<Job>) {
        for job in jobs {
            let done = match job {
                Job::Tell(to) => {
                    // The receiver may be gone.
                    let _ = to.send(());
                    continue;
                }
                _ if self.failure.lock().is_some() => continue,
                Job::Write { file, bytes, len, offset } => {
                    let done = file.write_at(&bytes.bytes()[..len], offset);
                    self.spare.lock().push(bytes);
                    done
                }
                Job::WriteBack { file, offset, len } => {
                    file.start_write_back(offset, len);
                    Ok(())
                }
                Job::Sync { file } => file.sync_data(),
            };
            if let Err(e) = done {
                *self.failure.lock() = Some((e.kind(), e.to_string()));
            }
        }
    }
}

/// Dropping it first finishes all jobs.
#[derive(Debug)]
pub struct WriteBehind {
    shared: Arc<Shared>,
    jobs_to: Option<SyncSender<Job>>,
    handle: Option<JoinHandle<()>>,
}

impl WriteBehind {
    pub fn start(runtime: &dyn Runtime) -> io::Result<WriteBehind> {
        let shared = Arc::<Shared>::default();
        let (jobs_to, jobs_from) = mpsc::sync_channel(WAITING_MAX);
        let there = Arc::clone(&shared);
        let handle = runtime.spawn("braiddb-write", Box::new(move || there.do_all(&jobs_from)))?;
        Ok(WriteBehind { shared, jobs_to: Some(jobs_to), handle: Some(handle) })
    }

    /// Waits until the queue is empty; returns the first failure.
    pub fn settle(&self) -> io::Result<()> {
        let (to, reported) = mpsc::sync_channel(1);
        self.note(Job::Tell(to))?;
        reported.recv().map_err(|_| died())?;
        self.shared.check()
    }

    fn note(&self, job: Job) -> io::Result<()> {
        self.jobs_to.as_ref().ok_or_else(died)?.send(job).map_err(|_| died())
    }

    fn write(&self, file: &Arc<dyn File>, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.shared.check()?;
        let spare = self.shared.spare.lock().pop().filter(|spare| spare.bytes().len() >= bytes.len());
        let mut copy = spare.unwrap_or_else(|| Aligned::new(bytes.len()));
        copy.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        self.note(Job::Write { file: Arc::clone(file), bytes: copy, len: bytes.len(), offset })
    }
}

impl Drop for WriteBehind {
    fn drop(&mut self) {
        drop(self.jobs_to.take());
        if let Some(handle) = self.handle.take()
            && handle.join().is_err()
        {
            tracing::error!("the thread that wrote files panicked");
        }
    }
}

fn died() -> io::Error {
    io::Error::other("the thread that writes files has died")
}

#[derive(Debug)]
pub struct BehindVfs {
    inner: Arc<dyn Vfs>,
    behind: Arc<WriteBehind>,
}

impl BehindVfs {
    pub fn new(inner: &Arc<dyn Vfs>, behind: &Arc<WriteBehind>) -> BehindVfs {
        BehindVfs { inner: Arc::clone(inner), behind: Arc::clone(behind) }
    }

    /// Existing files may have queued writes, so opening one settles first.
    fn wrap(&self, inner: Arc<dyn File>, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(match mode {
            OpenMode::CreateNew => Arc::new(BehindFile { inner, behind: Arc::clone(&self.behind) }),
            OpenMode::Read | OpenMode::ReadWrite => {
                self.behind.settle()?;
                inner
            }
        })
    }
}

impl super::layer::VfsLayer for BehindVfs {
    fn inner(&self) -> &dyn Vfs {
        &*self.inner
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.wrap(self.inner.open(path, mode)?, mode)
    }

    fn open_unbuffered(&self, path: &Path, mode: OpenMode) -> io::Result<Unbuffered> {
        let opened = self.inner.open_unbuffered(path, mode)?;
        Ok(Unbuffered { file: self.wrap(opened.file, mode)?, ..opened })
    }
}

#[derive(Debug)]
struct BehindFile {
    inner: Arc<dyn File>,
    behind: Arc<WriteBehind>,
}

impl File for BehindFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.behind.settle()?;
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.behind.write(&self.inner, buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.behind.settle()?;
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.behind.settle()?;
        self.inner.set_len(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.behind.settle()?;
        self.inner.preallocate(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.behind.shared.check()?;
        self.behind.note(Job::Sync { file: Arc::clone(&self.inner) })
    }

    fn start_write_back(&self, offset: u64, len: u64) {
        let _ = self.behind.note(Job::WriteBack { file: Arc::clone(&self.inner), offset, len });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{
        SystemRuntime,
        fault_vfs::{FaultVfs, Operation},
    };

    fn world() -> (FaultVfs, Arc<WriteBehind>, BehindVfs) {
        let vfs = FaultVfs::new(Path::new("/d"));
        vfs.create_dir_all(Path::new("/d")).unwrap();
        let behind = Arc::new(WriteBehind::start(&SystemRuntime::new()).unwrap());
        let inner: Arc<dyn Vfs> = Arc::new(vfs.clone());
        let files = BehindVfs::new(&inner, &behind);
        (vfs, behind, files)
    }

    #[test]
    fn settle_after_writes_makes_them_durable_in_order() {
        let (vfs, behind, files) = world();
        let path = Path::new("/d/new");
        let file = files.open(path, OpenMode::CreateNew).unwrap();
        for round in 0..100u8 {
            file.write_at(&[round; 300], u64::from(round) * 100).unwrap();
        }
        file.sync_data().unwrap();
        behind.settle().unwrap();
        vfs.sync_dir(Path::new("/d")).unwrap();
        let bytes = vfs.crashed(|| false).read(path);
        let expected: Vec<u8> = (0..bytes.len()).map(|at| (at / 100).min(99) as u8).collect();
        assert_eq!(bytes, expected);
        assert_eq!(file.len().unwrap(), bytes.len() as u64);
    }

    #[test]
    fn write_failure_is_reported_and_stops_later_writes() {
        let (vfs, behind, files) = world();
        let file = files.open(Path::new("/d/new"), OpenMode::CreateNew).unwrap();
        file.write_at(b"first", 0).unwrap();
        behind.settle().unwrap();
        vfs.fail(Operation::Write, 0, 1, io::ErrorKind::StorageFull);
        file.write_at(b"second", 5).unwrap();
        let _ = file.write_at(b"third", 11);
        assert_eq!(behind.settle().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.write_at(b"x", 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.sync_data().unwrap_err().kind(), io::ErrorKind::StorageFull);
        let mut bytes = [0; 5];
        let inside = vfs.open(Path::new("/d/new"), OpenMode::Read).unwrap();
        inside.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((&bytes, inside.len().unwrap()), (b"first", 5));
    }
}
