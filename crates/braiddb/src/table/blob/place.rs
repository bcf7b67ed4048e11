//! Reads values in a mapped blob file, under the rules of `table/place.rs`.
//!
//! A growing file is mapped again after growth by an eighth, or when a value behind the map is read
//! after some time without growth.

use crate::{
    base::FileId,
    cache::{CheckTime, MappedFile},
    platform::{DeferredClose, File, Runtime},
    table::{RecentWrites, TableContext, place::Moment, recent_writes::is_sample},
};
use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;
use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Bytes of the file for each mark of its last checked value.
const BYTES_A_MARK: u64 = 64 << 10;

const GROWTH_MIN: u64 = 8;

#[derive(Debug)]
pub(super) struct BlobPlace {
    mapped: ArcSwapOption<MappedBlobs>,
    /// File length at the last read behind the map, and the time span when it was first seen.
    wanted: Mutex<(u64, Option<CheckTime>)>,
    runtime: Arc<dyn Runtime>,
    recent_writes: Arc<RecentWrites>,
    deferred_close: Arc<DeferredClose>,
    is_allowed: bool,
}

#[derive(Debug)]
pub(super) struct MappedBlobs {
    pub file: MappedFile,
    /// Offset and time span of the last checked value of each [`BYTES_A_MARK`].
    marks: Box<[AtomicU64]>,
}

impl BlobPlace {
    pub fn new(ctx: &TableContext) -> BlobPlace {
        BlobPlace {
            mapped: ArcSwapOption::empty(),
            wanted: Mutex::default(),
            runtime: Arc::clone(&ctx.runtime),
            recent_writes: Arc::clone(&ctx.recent_writes),
            deferred_close: Arc::clone(&ctx.deferred_close),
            is_allowed: ctx.in_place,
        }
    }

    /// `None` if the first `end` bytes cannot be mapped.
    pub fn mapped(&self, file: &dyn File, end: u64) -> Option<Guard<Option<Arc<MappedBlobs>>>> {
        let mapped = self.mapped.load();
        if mapped.as_ref().is_some_and(|mapped| end <= mapped.file.len() as u64) {
            return Some(mapped);
        }
        if !self.is_allowed {
            return None;
        }
        // While another thread maps the file, use ordinary reads.
        self.map(file, end, &mut *self.wanted.try_lock()?)
    }

    #[cold]
    fn map(
        &self,
        file: &dyn File,
        end: u64,
        wanted: &mut (u64, Option<CheckTime>),
    ) -> Option<Guard<Option<Arc<MappedBlobs>>>> {
        let present = self.mapped.load();
        let present_len = present.as_ref().map_or(0, |mapped| mapped.file.len() as u64);
        if end <= present_len {
            return Some(present);
        }
        let (len, now) = (file.len().ok().filter(|len| end <= *len)?, self.now());
        if wanted.0 != len {
            *wanted = (len, Some(now));
        }
        let is_at_rest = wanted.1.is_some_and(|since| since != now);
        if present_len > 0 && !is_at_rest && len - present_len < present_len / GROWTH_MIN {
            return None;
        }
        // Treated like a system without maps.
        let file = MappedFile::new(file.map_for_reading(len).ok()??, &self.deferred_close);
        let marks = (0..len.div_ceil(BYTES_A_MARK)).map(|_| AtomicU64::new(0)).collect();
        let mapped = Arc::new(MappedBlobs { file, marks });
        self.mapped.store(Some(Arc::clone(&mapped)));
        Some(Guard::from_inner(Some(mapped)))
    }

    /// True if written in this time span and not in the sample that is checked anyway.
    pub fn is_written(&self, file: FileId, offset: u64, now: CheckTime) -> bool {
        !is_sample(file, offset) && self.recent_writes.since(file, offset).is_some_and(|since| since.span_of(0) == now)
    }

    pub fn now(&self) -> CheckTime {
        Moment::now(&*self.runtime).span_of(0)
    }
}

impl MappedBlobs {
    /// Makes the system read a part, so that an access cannot fault.
    pub fn have_in_memory(&self, part: Range<u64>) -> bool {
        self.file.populate(part)
    }

    pub fn is_checked(&self, offset: u64, now: CheckTime) -> bool {
        let mark = usize::try_from(offset / BYTES_A_MARK).ok().and_then(|at| self.marks.get(at));
        mark.is_some_and(|mark| mark.load(Ordering::Relaxed) == mark_of(offset, now))
    }

    pub fn set_checked(&self, offset: u64, now: CheckTime) {
        if let Some(mark) = usize::try_from(offset / BYTES_A_MARK).ok().and_then(|at| self.marks.get(at)) {
            mark.store(mark_of(offset, now), Ordering::Relaxed);
        }
    }
}

fn mark_of(offset: u64, now: CheckTime) -> u64 {
    1 << 63 | (offset % BYTES_A_MARK) << 32 | u64::from(now.count())
}
