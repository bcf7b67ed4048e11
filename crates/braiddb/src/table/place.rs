//! Reading blocks where their file is mapped.
//!
//! A block that is not compressed is read in place, where its file can be mapped: the system has it in memory as long as there
//! is room, and a copy of it would cost time and take the room of others. The rules:
//!
//! - A block is **checked** before it is read in place: its checksum, and all that is checked of a block that is loaded. Before
//!   that, the system is made to read it by a call that can fail, so that a disk that cannot read it gives an error and not a
//!   signal.
//! - What was checked is checked again when it is looked up more than [`CHECKED_FOR_NS`] later. The system may have dropped the
//!   block meanwhile and may read it from the disk again, and there is no way to be told. Blocks fall due at different times,
//!   so that this is never much work at once. (Who pins a block has it as it is for as long as that lasts.)
//! - What this process wrote a short while ago counts as checked then, if it was written without compression (`recent_writes.rs`).
//! - Where some blocks of a **region** were checked in that time and the system has all of it in memory, all of it is made ready
//!   at once, and the other blocks need no call.

use super::{TableContext, run::read_error};
use crate::{
    base::Result,
    cache::{CheckTime, MappedFile},
    platform::{Disposal, File, Runtime},
};
use std::{
    ops::Range,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// For how long a checked block is read in place, at most.
pub(super) const CHECKED_FOR_NS: u64 = 32_000_000_000;
/// At so many different times spans begin.
const SHIFTS: u64 = 1024;
/// Longer parts are read as a whole, as many bytes at once as this at most.
const READ_BYTES_MAX: usize = 256 << 10;
/// The least that a page of the system's memory has.
const PAGE_BYTES: u64 = 4096;
/// The length of a region: a huge page.
const REGION_BYTES: u64 = 2 << 20;
/// After so many checks in a region, and again after as many more, the system is asked whether it has all of it.
const REGION_CHECKS: u64 = 16;
/// Stands for the number of checks where it has.
const REGION_READY: u64 = 255;

/// A moment, for who looks up several blocks at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    ns: u64,
}

impl Moment {
    /// Now.
    #[inline]
    pub(super) fn now(runtime: &dyn Runtime) -> Moment {
        Moment { ns: runtime.monotonic_coarse_ns() }
    }

    /// The span of time that it lies in for a thing of this number: spans of different things begin at different times.
    #[inline(always)]
    pub(super) fn span_of(self, number: u64) -> CheckTime {
        let shift = number % SHIFTS * (CHECKED_FOR_NS / SHIFTS);
        // Never 0, which stands for no time.
        CheckTime::new(1 + (self.ns + shift) / CHECKED_FOR_NS)
    }

    /// Whether another lies in the same span of time of a thing without number.
    pub(super) fn is_with(self, other: Moment) -> bool {
        self.span_of(0) == other.span_of(0)
    }

    /// By how many nanoseconds it comes after another; 0 if it comes before it.
    pub(super) fn ns_after(self, other: Moment) -> u64 {
        self.ns.saturating_sub(other.ns)
    }
}

/// The map of a file, made when it is first wanted.
#[derive(Debug)]
pub(super) struct Place {
    mapped: OnceLock<Option<Mapped>>,
    runtime: Arc<dyn Runtime>,
    disposal: Arc<Disposal>,
    is_allowed: bool,
}

#[derive(Debug)]
struct Mapped {
    file: MappedFile,
    /// Of each region, the last span of time in which something was checked, and, in the low byte, how much.
    regions: Box<[AtomicU64]>,
}

impl Place {
    /// No map yet.
    pub fn new(ctx: &TableContext) -> Place {
        Place {
            mapped: OnceLock::new(),
            runtime: Arc::clone(&ctx.runtime),
            disposal: Arc::clone(&ctx.disposal),
            is_allowed: ctx.in_place,
        }
    }

    /// The map of the file's first `len` bytes; `None` if there is none to be had.
    #[inline]
    pub fn file(&self, file: &dyn File, len: u64) -> Option<&MappedFile> {
        match self.mapped.get() {
            Some(mapped) => mapped.as_ref().map(|mapped| &mapped.file),
            None => self.map(file, len),
        }
    }

    #[cold]
    fn map(&self, file: &dyn File, len: u64) -> Option<&MappedFile> {
        let map = || {
            // A system that refuses it is one without: what is not mapped is cached.
            let file = MappedFile::new(file.map_for_reading(len).ok()??, &self.disposal);
            let regions = (file.len() as u64).div_ceil(REGION_BYTES);
            Some(Mapped { file, regions: (0..regions).map(|_| AtomicU64::new(0)).collect() })
        };
        self.mapped.get_or_init(|| if self.is_allowed { map() } else { None }).as_ref().map(|mapped| &mapped.file)
    }

    /// The map, if it was made.
    #[inline]
    pub fn get(&self) -> Option<&MappedFile> {
        self.mapped.get()?.as_ref().map(|mapped| &mapped.file)
    }

    /// Now.
    #[inline]
    pub fn moment(&self) -> Moment {
        Moment::now(&*self.runtime)
    }

    /// The present span of time of a block: what was checked in another is to be checked again.
    #[inline]
    pub fn now(&self, block: u16) -> CheckTime {
        self.moment().span_of(u64::from(block))
    }

    /// Has the system read a part of the mapped file that is to be checked, so that looking at it cannot fail: if its regions
    /// are not ready, it reads some bytes of each page, two pages at a time, since a unit mostly has no more. Fails where the disk
    /// does.
    pub fn have_in_memory(&self, part: &Range<u64>, file: &dyn File, path: &Path) -> Result<()> {
        let now = self.now(0);
        let mut regions = part.start / REGION_BYTES..=part.end.saturating_sub(1) / REGION_BYTES;
        if regions.all(|region| self.is_region_in_memory(region, now)) {
            return Ok(());
        }
        if part.end - part.start > 3 * PAGE_BYTES {
            return read_whole(part, file, path);
        }
        let mut at = part.start;
        while at < part.end {
            let next_page = (at + 1).next_multiple_of(PAGE_BYTES);
            // Its last byte and the first of the next, if the part has both.
            let (first, end) = (next_page.min(part.end) - 1, (next_page + 1).min(part.end));
            let bytes = &mut [0; 2][..(end - first) as usize];
            file.read_exact_at(bytes, first).map_err(|e| read_error(path, first, e))?;
            at = next_page + PAGE_BYTES;
        }
        Ok(())
    }

    /// Counts a check in a region. Whether all of it was made ready in this span of time.
    fn is_region_in_memory(&self, region: u64, now: CheckTime) -> bool {
        let Some(Some(Mapped { file, regions })) = self.mapped.get() else { return false };
        let Some(state) = usize::try_from(region).ok().and_then(|at| regions.get(at)) else { return false };
        // Relaxed, and counts may be lost: it only matters that a region is ready before somebody says so.
        let seen = state.load(Ordering::Relaxed);
        let span = u64::from(now.count()) << 8;
        let checks = if seen & !0xff == span { seen & 0xff } else { 0 };
        let next = match checks {
            REGION_READY => return true,
            checks if checks < REGION_CHECKS => checks + 1,
            _ => {
                let all = region * REGION_BYTES..(region + 1) * REGION_BYTES;
                // It has the pages, so this only maps them; should it have to read one, it can fail.
                if file.is_in_memory(all.clone()) && file.populate(all) { REGION_READY } else { 0 }
            }
        };
        state.store(span | next, Ordering::Relaxed);
        next == REGION_READY
    }
}

/// Reads a part for nothing but having it read: in one call if it is not long, so that the disk is asked once.
fn read_whole(part: &Range<u64>, file: &dyn File, path: &Path) -> Result<()> {
    let mut buffer = vec![0; usize::try_from(part.end - part.start).unwrap_or(usize::MAX).min(READ_BYTES_MAX)];
    for at in part.clone().step_by(buffer.len()) {
        let len = usize::try_from(part.end - at).unwrap_or(usize::MAX).min(buffer.len());
        file.read_exact_at(&mut buffer[..len], at).map_err(|e| read_error(path, at, e))?;
    }
    Ok(())
}
