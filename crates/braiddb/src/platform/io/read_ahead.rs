//! A layer that prefetches sequential reads in a thread, with direct I/O where possible.
//!
//! For files written once, read once in order, and removed. A file read in order uses two pieces of
//! memory, one being read and one prefetched; other files use one.

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
        Arc, OnceLock,
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    thread::JoinHandle,
};

pub const PIECE_BYTES: usize = 128 << 10;

#[derive(Debug)]
struct Piece {
    /// Position in the file, in pieces.
    index: u64,
    memory: Aligned,
    /// Fewer than a piece only at the end of the file.
    filled: usize,
}

impl Piece {
    fn read(file: &dyn File, index: u64, mut memory: Aligned) -> io::Result<Piece> {
        let (start, target) = (index.saturating_mul(PIECE_BYTES as u64), memory.bytes_mut());
        let mut filled = 0;
        while filled < target.len() {
            match file.read_at(&mut target[filled..], start.saturating_add(filled as u64))? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(Piece { index, memory, filled })
    }
}

#[derive(Debug)]
struct Job {
    file: Arc<dyn File>,
    index: u64,
    memory: Aligned,
    to: SyncSender<io::Result<Piece>>,
}

/// Dropping it stops the thread.
#[derive(Debug)]
struct Reader {
    jobs_to: Option<Sender<Job>>,
    handle: Option<JoinHandle<()>>,
}

impl Reader {
    fn start(runtime: &dyn Runtime) -> io::Result<Reader> {
        let (jobs_to, jobs_from) = mpsc::channel::<Job>();
        let work = move || {
            for job in jobs_from {
                // The receiver may be gone.
                let _ = job.to.send(Piece::read(&*job.file, job.index, job.memory));
            }
        };
        let handle = runtime.spawn("braiddb-read", Box::new(work))?;
        Ok(Reader { jobs_to: Some(jobs_to), handle: Some(handle) })
    }

    /// `None` if the thread has ended.
    fn begin(&self, file: &Arc<dyn File>, index: u64, memory: Aligned) -> Option<Pending> {
        let (to, from) = mpsc::sync_channel(1);
        self.jobs_to.as_ref()?.send(Job { file: Arc::clone(file), index, memory, to }).ok()?;
        Some(Pending { index, from })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.jobs_to.take());
        if let Some(handle) = self.handle.take()
            && handle.join().is_err()
        {
            tracing::error!("the thread that read files ahead panicked");
        }
    }
}

#[derive(Debug)]
struct Pending {
    index: u64,
    from: Receiver<io::Result<Piece>>,
}

#[derive(Debug)]
pub struct AheadVfs {
    inner: Arc<dyn Vfs>,
    runtime: Arc<dyn Runtime>,
    /// `None` inside if the thread could not start.
    reader: OnceLock<Option<Arc<Reader>>>,
}

impl AheadVfs {
    pub fn new(inner: &Arc<dyn Vfs>, runtime: &Arc<dyn Runtime>) -> AheadVfs {
        AheadVfs { inner: Arc::clone(inner), runtime: Arc::clone(runtime), reader: OnceLock::new() }
    }

    fn wrap(&self, inner: Arc<dyn File>, mode: OpenMode) -> Arc<dyn File> {
        let reader = || self.reader.get_or_init(|| Reader::start(&*self.runtime).ok().map(Arc::new)).clone();
        match mode {
            OpenMode::Read => Arc::new(AheadFile { inner, reader: reader(), state: Mutex::default() }),
            OpenMode::CreateNew | OpenMode::ReadWrite => inner,
        }
    }
}

impl super::layer::VfsLayer for AheadVfs {
    fn inner(&self) -> &dyn Vfs {
        &*self.inner
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(super::layer::VfsLayer::open_unbuffered(self, path, mode)?.file)
    }

    fn open_unbuffered(&self, path: &Path, mode: OpenMode) -> io::Result<Unbuffered> {
        let opened = self.inner.open_unbuffered(path, mode)?;
        Ok(Unbuffered { file: self.wrap(opened.file, mode), ..opened })
    }
}

/// Precondition: the file does not change.
#[derive(Debug)]
struct AheadFile {
    inner: Arc<dyn File>,
    reader: Option<Arc<Reader>>,
    state: Mutex<State>,
}

/// The current piece and the prefetched one.
#[derive(Debug, Default)]
struct State {
    held: Option<Piece>,
    pending: Option<Pending>,
}

impl AheadFile {
    /// Prefetches the next piece if reads are sequential.
    fn hold<'a>(&self, state: &'a mut State, index: u64) -> io::Result<&'a Piece> {
        if state.held.as_ref().is_none_or(|held| held.index != index) {
            let before = state.held.take();
            let follows = before.as_ref().is_some_and(|held| held.index.checked_add(1) == Some(index));
            // An error loses the memory; the next read allocates again.
            let mut spare = before.map(|held| held.memory);
            let pending = state.pending.take().filter(|pending| pending.index == index);
            let piece = match pending.and_then(|pending| pending.from.recv().ok()) {
                Some(read) => read?,
                None => Piece::read(&*self.inner, index, spare.take().unwrap_or_else(new_memory))?,
            };
            if follows
                && piece.filled == PIECE_BYTES
                && let Some(reader) = &self.reader
            {
                state.pending = reader.begin(&self.inner, index + 1, spare.unwrap_or_else(new_memory));
            }
            state.held = Some(piece);
        }
        state.held.as_ref().ok_or_else(|| io::Error::other("a piece that was just read is gone"))
    }
}

fn new_memory() -> Aligned {
    Aligned::new(PIECE_BYTES)
}

impl File for AheadFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = &mut *self.state.lock();
        let mut done = 0;
        while done < buf.len() {
            let Some(at) = offset.checked_add(done as u64) else { break };
            let piece = self.hold(state, at / PIECE_BYTES as u64)?;
            let from = (at % PIECE_BYTES as u64) as usize;
            let there = piece.memory.bytes()[..piece.filled].get(from..).unwrap_or_default();
            let count = there.len().min(buf.len() - done);
            if count == 0 {
                break;
            }
            buf[done..done + count].copy_from_slice(&there[..count]);
            done += count;
        }
        Ok(done)
    }

    fn is_read_ahead(&self) -> bool {
        true
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.inner.preallocate(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{MemVfs, SystemRuntime};

    const LEN: usize = 5 * PIECE_BYTES + 1000;

    #[derive(Debug)]
    struct Watched {
        inner: Arc<dyn File>,
        read: Mutex<Vec<usize>>,
        fails: usize,
    }

    impl File for Watched {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            let mut read = self.read.lock();
            read.push(usize::try_from(offset).unwrap() / PIECE_BYTES);
            if read.len() - 1 == self.fails {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.inner.read_at(buf, offset)
        }
        fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn len(&self) -> io::Result<u64> {
            self.inner.len()
        }
        fn set_len(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn preallocate(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn sync_data(&self) -> io::Result<()> {
            unreachable!()
        }
    }

    fn world(fails: usize, threads: bool) -> (Arc<Watched>, AheadFile, Vec<u8>) {
        let vfs = MemVfs::new();
        let bytes: Vec<u8> = (0..LEN as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        vfs.create_dir_all(Path::new("/d")).unwrap();
        let inner = vfs.open(Path::new("/d/file"), OpenMode::CreateNew).unwrap();
        inner.write_at(&bytes, 0).unwrap();
        let watched = Arc::new(Watched { inner, read: Mutex::default(), fails });
        let reader = threads.then(|| Arc::new(Reader::start(&SystemRuntime::new()).unwrap()));
        (Arc::clone(&watched), AheadFile { inner: watched, reader, state: Mutex::default() }, bytes)
    }

    #[test]
    fn read_in_any_order_returns_file_bytes() {
        for threads in [true, false] {
            let (_, file, bytes) = world(usize::MAX, threads);
            for step in [777, 50_000, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
                for offset in (0..LEN + step).step_by(step) {
                    let mut buf = vec![0xee; step];
                    let count = file.read_at(&mut buf, offset as u64).unwrap();
                    assert_eq!(&buf[..count], &bytes[offset.min(LEN)..(offset + step).min(LEN)], "{step} at {offset}");
                }
            }
            let mut state = 7u64;
            for _ in 0..200 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let offset = (state >> 33) as usize % (LEN - 3000);
                let mut buf = [0; 3000];
                file.read_exact_at(&mut buf, offset as u64).unwrap();
                assert!(buf == bytes[offset..offset + 3000], "at {offset}");
            }
            assert_eq!(file.read_at(&mut [0; 10], u64::MAX - 3).unwrap(), 0);
        }
    }

    #[test]
    fn prefetch_starts_for_sequential_reads_only() {
        let (watched, file, _) = world(usize::MAX, true);
        let read = |piece: usize| file.read_exact_at(&mut [0; 10], (piece * PIECE_BYTES) as u64).unwrap();
        [3, 1, 4].into_iter().for_each(read);
        assert_eq!(*watched.read.lock(), [3, 1, 4]);
        [0, 1, 2, 3].into_iter().for_each(read);
        while watched.read.lock().len() < 3 + 5 {
            std::thread::yield_now();
        }
        assert_eq!(watched.read.lock()[3..], [0, 1, 2, 3, 4]);
    }

    #[test]
    fn read_failure_is_reported_once_and_next_read_succeeds() {
        for fails in 0..8 {
            let (_, file, bytes) = world(fails, true);
            let mut reported = 0;
            for offset in [0, 0, 2, 2, 0, 0].map(|piece| piece * PIECE_BYTES) {
                let mut buf = vec![0; 2 * PIECE_BYTES];
                match file.read_exact_at(&mut buf, offset as u64) {
                    Ok(()) => assert!(buf == bytes[offset..offset + buf.len()]),
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                        reported += 1;
                    }
                }
            }
            assert!(reported == 1 || (reported == 0 && fails > 1), "{reported} of read {fails}");
        }
    }
}
