//! The reserve: blocks of the disk that are kept for deletes, flushes and merges.
//!
//! On a full disk a delete needs a little space (the log's next segment), a flush needs as much as its memtable and a merge as much as
//! it keeps, before anything comes back. The file `RESERVE` holds that much. Who frees space cuts the file and takes the blocks; as soon
//! as the disk has room, the file gets its length back.
//!
//! The file is a header and then blocks that nobody reads. The header says how long the file is when it is whole. So a shorter file means
//! "in use", also to the process that opens the database next, and puts are refused until it is whole again: else each put would eat
//! what the deletes have freed.
//!
//! The file is cut in three stages: flushes leave half for merges, merges leave [`LOG_SHARE`] for the log and the manifest, and these may
//! take all but the header. So many deletes may take what a merge would need.
//!
//! **Crashes.** No data depend on the file, so any length is legal after a crash. It grows before its header says so, and its header says
//! less before it is shrunk for good. A header that cannot be read is written again, and the file counts as whole.
//!
//! **Threads.** Any thread may call anything. While somebody [works with the reserve](Reserve::begin), nobody refills it.

use crate::{
    codec::{FILE_HEADER_LEN, FileHeader, FileKind},
    platform::{File, OpenMode, Runtime, Vfs},
};
use parking_lot::Mutex;
use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// The file's name.
pub const RESERVE_NAME: &str = "RESERVE";

/// Bytes of the file that are never given up: the header's block.
const HEADER_BLOCK: u64 = 4096;

/// Bytes that flushes and merges leave to the log and the manifest.
const LOG_SHARE: u64 = 512 << 10;

/// Bytes that the log takes at once: a short segment, and room for the manifest's edits.
const LOG_STEP: u64 = 128 << 10;

/// Bytes that must be free beyond the missing ones before the file is refilled, so that a commit does not fail for it.
const SLACK: u64 = 128 << 10;

/// A reserve of its own accord takes at most this part of the free space.
const PART_OF_FREE: u64 = 4;

/// After an attempt to refill it that failed, the next one comes after so long.
const RETRY_NS: u64 = 50_000_000;

/// How much of the reserve may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Half.
    Flush,
    /// All but the log's share.
    Merge,
    /// Another step, up to the end.
    Log,
}

/// How large the reserve shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Bytes of the whole file; 0 for none.
    pub bytes: u64,
    /// Whether the user named this size: then it is taken although little else is free.
    pub is_asked_for: bool,
}

/// The reserve of an open database.
#[derive(Debug)]
pub struct Reserve {
    vfs: Arc<dyn Vfs>,
    runtime: Arc<dyn Runtime>,
    path: PathBuf,
    is_used: AtomicBool,
    users: AtomicUsize,
    compactions: AtomicUsize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    file: Option<Arc<dyn File>>,
    len: u64,
    /// The length of the whole file.
    whole: u64,
    retry_not_before_ns: u64,
}

/// Somebody works with the reserve's blocks.
#[derive(Debug)]
pub struct InUse<'a>(&'a AtomicUsize);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Reserve {
    /// The reserve in `dir`, as it was left. Changes nothing. A file that cannot be opened is no reserve.
    pub fn open(vfs: &Arc<dyn Vfs>, runtime: &Arc<dyn Runtime>, dir: &Path, mode: OpenMode) -> Reserve {
        let path = dir.join(RESERVE_NAME);
        let held = match vfs.open(&path, mode).and_then(|file| Held::of(file, &path)) {
            Ok(held) => held,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "the reserve of disk space cannot be used");
                }
                Held::default()
            }
        };
        Reserve {
            vfs: Arc::clone(vfs),
            runtime: Arc::clone(runtime),
            path,
            is_used: AtomicBool::new(held.is_used() && mode == OpenMode::ReadWrite),
            users: AtomicUsize::new(0),
            compactions: AtomicUsize::new(0),
            held: Mutex::new(if mode == OpenMode::Read { Held { file: None, ..held } } else { held }),
        }
    }

    /// Whether the file is shorter than it should be: then only what frees space may be written.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Its bytes now, and when it is whole.
    pub fn bytes(&self) -> (u64, u64) {
        let held = self.held.lock();
        (held.len, held.whole)
    }

    /// Keeps the reserve from being refilled until the result is dropped.
    pub fn begin(&self) -> InUse<'_> {
        self.users.fetch_add(1, Ordering::AcqRel);
        InUse(&self.users)
    }

    /// Begins a compaction that the user waits for: its flushes may use as much as its merges.
    pub fn begin_compaction(&self) -> InUse<'_> {
        self.compactions.fetch_add(1, Ordering::AcqRel);
        InUse(&self.compactions)
    }

    /// Gives blocks back to the file system, as many as the stage allows. Returns whether there were any.
    pub fn release(&self, stage: Stage) -> bool {
        let mut held = self.held.lock();
        let Some(file) = held.file.clone() else { return false };
        let log_share = LOG_SHARE.min(held.whole / 8);
        let is_deep = self.compactions.load(Ordering::Acquire) > 0;
        let rest = match stage {
            Stage::Flush if !is_deep => held.whole / 2,
            Stage::Flush | Stage::Merge => log_share,
            Stage::Log => held.len.saturating_sub(LOG_STEP),
        };
        let rest = rest.next_multiple_of(HEADER_BLOCK).max(HEADER_BLOCK);
        if held.len <= rest {
            return false;
        }
        // The sync has the file system count the blocks as free; without one, some do so a little later.
        match file.set_len(rest).and_then(|()| file.sync_data()) {
            Ok(()) => {
                tracing::warn!(bytes = held.len - rest, left = rest, "the disk is full: the reserve is used");
                held.len = rest;
                self.is_used.store(true, Ordering::Release);
                true
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the reserve of disk space cannot be used");
                held.file = None;
                false
            }
        }
    }

    /// Makes, refills, extends or shortens the file, if somebody wants it otherwise than it is and the disk has room. Returns whether it is
    /// whole, or not there. After an attempt that failed it is not tried for a while, unless space has come back.
    pub fn keep(&self, wanted: Wanted, now_ns: u64, is_space_back: bool) -> bool {
        if self.users.load(Ordering::Acquire) > 0 {
            return !self.is_used();
        }
        let mut held = self.held.lock();
        let bytes = wanted.bytes.next_multiple_of(HEADER_BLOCK);
        if bytes == 0 {
            self.remove(&mut held);
            return true;
        }
        let is_far = held.whole < bytes / 5 * 4 || held.whole > bytes.saturating_mul(2);
        if !held.is_used() && !is_far || now_ns < held.retry_not_before_ns && !is_space_back {
            return !held.is_used();
        }
        if let Err(error) = self.bring(&mut held, bytes, wanted.is_asked_for) {
            held.retry_not_before_ns = now_ns.saturating_add(RETRY_NS);
            tracing::debug!(path = %self.path.display(), %error, "the reserve of disk space stays as it is");
        }
        self.is_used.store(held.is_used(), Ordering::Release);
        !held.is_used()
    }

    fn remove(&self, held: &mut Held) {
        if held.file.is_some() {
            match self.vfs.remove(&self.path) {
                Ok(()) => *held = Held::default(),
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), %error, "the reserve could not be removed");
                }
            }
        }
        self.is_used.store(false, Ordering::Release);
    }

    fn bring(&self, held: &mut Held, bytes: u64, is_asked_for: bool) -> io::Result<()> {
        // What was given up comes back first, and no more than is wanted by now.
        let whole = if held.is_used() { held.whole.min(bytes) } else { bytes };
        if held.len > whole {
            held.note_whole(&*self.runtime, whole)?;
            held.file.as_ref().map_or(Ok(()), |file| file.set_len(whole))?;
            held.len = whole;
            return Ok(());
        }
        let missing = whole - held.len;
        let is_refill = held.is_used();
        if let Some(free) = self.vfs.free_space(self.path.parent().unwrap_or(&self.path))? {
            let needed = match is_refill || is_asked_for {
                true => missing.saturating_add(SLACK),
                false => missing.saturating_mul(PART_OF_FREE),
            };
            if free < needed {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        let file = match &held.file {
            Some(file) => Arc::clone(file),
            None => self.vfs.open(&self.path, OpenMode::CreateNew)?,
        };
        let before = held.len;
        let grown = file.preallocate(whole).and_then(|()| {
            held.file = Some(Arc::clone(&file));
            held.len = whole;
            held.note_whole(&*self.runtime, whole)
        });
        if grown.is_err() {
            // A file system may have taken some blocks all the same.
            held.len = before;
            let undone = if before == 0 { self.vfs.remove(&self.path) } else { file.set_len(before) };
            if let Err(error) = undone {
                tracing::warn!(path = %self.path.display(), %error, "the reserve could not be cut again");
            }
            if before == 0 {
                *held = Held::default();
            }
        }
        grown
    }
}

impl Held {
    fn of(file: Arc<dyn File>, path: &Path) -> io::Result<Held> {
        let len = file.len()?;
        let mut bytes = [0; FILE_HEADER_LEN];
        let read = file.read_at(&mut bytes, 0)?;
        let header = FileHeader::decode(FileKind::Reserve, &bytes[..read], path, 0);
        let whole = header.map_or(len, |header| header.numbers[0]);
        Ok(Held { file: Some(file), len, whole, retry_not_before_ns: 0 })
    }

    fn is_used(&self) -> bool {
        self.file.is_some() && self.len < self.whole
    }

    /// Writes down how long the whole file is, durably.
    fn note_whole(&mut self, runtime: &dyn Runtime, whole: u64) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let header = FileHeader::new(FileKind::Reserve, runtime.random_u64(), [whole, 0]);
        file.write_at(&header.encode(), 0)?;
        file.sync_data()?;
        self.whole = whole;
        Ok(())
    }
}
