//! Reads blocks in mapped files.
//!
//! An uncompressed block is read in place if its file can be mapped: a copy would cost time and
//! memory. The rules:
//!
//! - A block is **checked** before it is read in place, like a loaded block. First the system must
//!   read it by a call that can fail, so that a disk error is an error and not a signal.
//! - It is checked again when it is looked up more than [`CHECKED_FOR_NS`] later, since the system
//!   may have dropped and reread it. Blocks fall due at different times. (A pinned block is not
//!   rechecked.)
//! - Recent uncompressed writes of this process count as checked (`recent_writes.rs`).
//! - If several blocks of a **region** were checked in one time span and the system has the region
//!   in memory, it is mapped at once. Its other blocks then need no call.

use super::{TableContext, run::read_error};
use crate::{
    base::Result,
    cache::{CheckTime, MappedFile},
    platform::{DeferredClose, File, Runtime},
};
use std::{
    ops::Range,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Maximum time between two checks.
pub(super) const CHECKED_FOR_NS: u64 = 32_000_000_000;
const SHIFTS: u64 = 1024;
const READ_BYTES_MAX: usize = 256 << 10;
/// Minimum page size of the system.
const PAGE_BYTES: u64 = 4096;
/// A huge page.
const REGION_BYTES: u64 = 2 << 20;
/// Checks before the system is asked for a whole region.
const REGION_CHECKS: u64 = 16;
/// In place of the number of checks: the region is in memory.
const REGION_READY: u64 = 255;

/// Lets lookups of several blocks read the clock once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    ns: u64,
}

impl Moment {
    #[inline]
    pub(super) fn now(runtime: &dyn Runtime) -> Moment {
        Moment { ns: runtime.monotonic_coarse_ns() }
    }

    /// Spans of different blocks begin at different times.
    #[inline(always)]
    pub(super) fn span_of(self, number: u64) -> CheckTime {
        let shift = number % SHIFTS * (CHECKED_FOR_NS / SHIFTS);
        CheckTime::new(1 + (self.ns + shift) / CHECKED_FOR_NS)
    }

    pub(super) fn is_with(self, other: Moment) -> bool {
        self.span_of(0) == other.span_of(0)
    }

    /// 0 if `other` is later.
    pub(super) fn ns_after(self, other: Moment) -> u64 {
        self.ns.saturating_sub(other.ns)
    }
}

#[derive(Debug)]
pub(super) struct Place {
    mapped: OnceLock<Option<Mapped>>,
    runtime: Arc<dyn Runtime>,
    deferred_close: Arc<DeferredClose>,
    is_allowed: bool,
}

#[derive(Debug)]
struct Mapped {
    file: MappedFile,
    /// Last time span with a check; low byte: number of checks.
    regions: Box<[AtomicU64]>,
}

impl Place {
    pub fn new(ctx: &TableContext) -> Place {
        Place {
            mapped: OnceLock::new(),
            runtime: Arc::clone(&ctx.runtime),
            deferred_close: Arc::clone(&ctx.deferred_close),
            is_allowed: ctx.in_place,
        }
    }

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
            let file = MappedFile::new(file.map_for_reading(len).ok()??, &self.deferred_close);
            let regions = (file.len() as u64).div_ceil(REGION_BYTES);
            Some(Mapped { file, regions: (0..regions).map(|_| AtomicU64::new(0)).collect() })
        };
        self.mapped.get_or_init(|| if self.is_allowed { map() } else { None }).as_ref().map(|mapped| &mapped.file)
    }

    #[inline]
    pub fn get(&self) -> Option<&MappedFile> {
        self.mapped.get()?.as_ref().map(|mapped| &mapped.file)
    }

    #[inline]
    pub fn moment(&self) -> Moment {
        Moment::now(&*self.runtime)
    }

    #[inline]
    pub fn now(&self, block: u16) -> CheckTime {
        self.moment().span_of(u64::from(block))
    }

    /// Makes the system read a part before it is checked, so that an access cannot fault. Outside
    /// of ready regions it reads a byte of each page, or a part of more than three pages whole.
    /// Fails if the disk does.
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
            // The last byte of a page and the first of the next: most units span two pages.
            let (first, end) = (next_page.min(part.end) - 1, (next_page + 1).min(part.end));
            let bytes = &mut [0; 2][..(end - first) as usize];
            file.read_exact_at(bytes, first).map_err(|e| read_error(path, first, e))?;
            at = next_page + PAGE_BYTES;
        }
        Ok(())
    }

    fn is_region_in_memory(&self, region: u64, now: CheckTime) -> bool {
        let Some(Some(Mapped { file, regions })) = self.mapped.get() else { return false };
        let Some(state) = usize::try_from(region).ok().and_then(|at| regions.get(at)) else { return false };
        // Relaxed, and counts may be lost: only "mapped before marked ready" matters.
        let seen = state.load(Ordering::Relaxed);
        let span = u64::from(now.count()) << 8;
        let checks = if seen & !0xff == span { seen & 0xff } else { 0 };
        let next = match checks {
            REGION_READY => return true,
            checks if checks < REGION_CHECKS => checks + 1,
            _ => {
                let all = region * REGION_BYTES..(region + 1) * REGION_BYTES;
                // This maps pages in memory; a page dropped meanwhile is read, which can fail.
                if file.is_in_memory(all.clone()) && file.populate(all) { REGION_READY } else { 0 }
            }
        };
        state.store(span | next, Ordering::Relaxed);
        next == REGION_READY
    }
}

fn read_whole(part: &Range<u64>, file: &dyn File, path: &Path) -> Result<()> {
    let mut buffer = vec![0; usize::try_from(part.end - part.start).unwrap_or(usize::MAX).min(READ_BYTES_MAX)];
    for at in part.clone().step_by(buffer.len()) {
        let len = usize::try_from(part.end - at).unwrap_or(usize::MAX).min(buffer.len());
        file.read_exact_at(&mut buffer[..len], at).map_err(|e| read_error(path, at, e))?;
    }
    Ok(())
}
