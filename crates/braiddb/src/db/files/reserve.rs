//! Disk space reserved for operations that free space on a full disk.
//!
//! A delete first needs the log's next segment, a flush the size of its memtable, and a merge that
//! of its output. They truncate the file `RESERVE`; once the disk has room, it grows back. Flushes
//! leave half for merges, merges leave [`LOG_SHARE`] for log and manifest, which may use all but
//! the header.
//!
//! INVARIANT D1: while the file is shorter than its header says, also after reopening, puts are
//! refused. Otherwise they would consume the space that deletes free.
//!
//! **Crashes.** Every length is valid: no data depend on the file. It grows before its header's
//! length does, and shrinks for good after it. With an unreadable header the file counts as full.
//!
//! **Threads.** Any thread may call any method. A reserve [in use](Reserve::begin) is not refilled.

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

#[cfg(test)]
mod tests;

pub const RESERVE_NAME: &str = "RESERVE";

const HEADER_BLOCK: u64 = 4096;

/// Bytes that only the log and the manifest may use.
const LOG_SHARE: u64 = 512 << 10;

/// Bytes per release for the log: a short segment and some manifest edits.
const LOG_STEP: u64 = 128 << 10;

/// Free bytes required beyond a refill.
const SLACK: u64 = 128 << 10;

/// Divisor: a default reserve takes at most a quarter of the free space.
const PART_OF_FREE: u64 = 4;

/// Minimum time between a failed refill and the next.
const RETRY_NS: u64 = 50_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Half.
    Flush,
    /// All but the log's share.
    Merge,
    Log,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// 0 for none.
    pub bytes: u64,
    /// Whether the user chose this size: then it is taken even if little space is free.
    pub is_asked_for: bool,
}

#[derive(Debug)]
pub struct Reserve {
    mode: OpenMode,
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
    whole: u64,
    retry_not_before_ns: u64,
}

#[derive(Debug)]
pub struct InUse<'a>(&'a AtomicUsize);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Reserve {
    /// A file that cannot be opened is no reserve.
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
            mode,
            vfs: Arc::clone(vfs),
            runtime: Arc::clone(runtime),
            path,
            is_used: AtomicBool::new(held.is_used() && mode == OpenMode::ReadWrite),
            users: AtomicUsize::new(0),
            compactions: AtomicUsize::new(0),
            held: Mutex::new(if mode == OpenMode::Read { Held { file: None, ..held } } else { held }),
        }
    }

    /// Returns whether only writes that free space are allowed.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Returns the length and the whole length. A follower reads them from the file, which the owner
    /// changes.
    pub fn bytes(&self) -> (u64, u64) {
        let mut held = self.held.lock();
        if self.mode == OpenMode::Read {
            let found = self.vfs.open(&self.path, self.mode).and_then(|file| Held::of(file, &self.path));
            *held = Held { file: None, ..found.unwrap_or_default() };
        }
        (held.len, held.whole)
    }

    /// Blocks refills until dropped.
    pub fn begin(&self) -> InUse<'_> {
        self.users.fetch_add(1, Ordering::AcqRel);
        InUse(&self.users)
    }

    /// Begins a compaction that the user waits for. Its flushes may use as much as its merges.
    pub fn begin_compaction(&self) -> InUse<'_> {
        self.compactions.fetch_add(1, Ordering::AcqRel);
        InUse(&self.compactions)
    }

    pub fn is_compacting(&self) -> bool {
        self.compactions.load(Ordering::Acquire) > 0
    }

    /// Releases blocks as far as the stage allows; false if there are none.
    pub fn release(&self, stage: Stage) -> bool {
        let mut held = self.held.lock();
        let Some(file) = held.file.clone() else { return false };
        let log_share = LOG_SHARE.min(held.whole / 8);
        let is_deep = self.compactions.load(Ordering::Acquire) > 0;
        let rest = match stage {
            Stage::Flush if !is_deep => held.whole / 2,
            // A flush also shortens the log.
            Stage::Flush => log_share / 2,
            Stage::Merge => log_share,
            Stage::Log => held.len.saturating_sub(LOG_STEP),
        };
        let rest = rest.next_multiple_of(HEADER_BLOCK).max(HEADER_BLOCK);
        if held.len <= rest {
            return false;
        }
        // Without the sync some file systems count the blocks as free only later.
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

    /// Resizes the file if the disk has room. Returns whether it is full or absent. Pauses after a
    /// failure unless space was freed.
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
        // A used reserve is refilled first, up to the wanted size.
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

    fn note_whole(&mut self, runtime: &dyn Runtime, whole: u64) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let header = FileHeader::new(FileKind::Reserve, runtime.random_u64(), [whole, 0]);
        file.write_at(&header.encode(), 0)?;
        file.sync_data()?;
        self.whole = whole;
        Ok(())
    }
}
