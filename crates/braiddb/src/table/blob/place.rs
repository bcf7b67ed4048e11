//! Reading values where their blob file is mapped: as blocks of runs are (`table/place.rs`), under the same rules.
//!
//! A blob file may still grow. Its map has the length that the file had, and is made anew when the file has grown by an eighth, or
//! has stood still for some time. Values within it may still be being written: nobody has a reference to those.

use crate::{
    base::FileId,
    cache::{CheckTime, MappedFile},
    platform::{Disposal, File, Runtime},
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

/// Of as many bytes of a file, one value is known to be checked: that which begins there and was checked last.
const BYTES_A_MARK: u64 = 64 << 10;

/// A file that still grows is mapped anew when it has grown by this part of its mapped length.
const GROWTH_MIN: u64 = 8;

/// The map of a blob file, made when it is first wanted.
#[derive(Debug)]
pub(super) struct BlobPlace {
    mapped: ArcSwapOption<MappedBlobs>,
    /// The file's length when a value was wanted that the map lacks, and when that was.
    wanted: Mutex<(u64, Option<CheckTime>)>,
    runtime: Arc<dyn Runtime>,
    recent_writes: Arc<RecentWrites>,
    disposal: Arc<Disposal>,
    is_allowed: bool,
}

/// A map of a blob file as it was.
#[derive(Debug)]
pub(super) struct MappedBlobs {
    pub file: MappedFile,
    /// Where in its [`BYTES_A_MARK`] a value begins that was checked, and in which span of time; zero if none was.
    marks: Box<[AtomicU64]>,
}

impl BlobPlace {
    /// No map yet.
    pub fn new(ctx: &TableContext) -> BlobPlace {
        BlobPlace {
            mapped: ArcSwapOption::empty(),
            wanted: Mutex::default(),
            runtime: Arc::clone(&ctx.runtime),
            recent_writes: Arc::clone(&ctx.recent_writes),
            disposal: Arc::clone(&ctx.disposal),
            is_allowed: ctx.in_place,
        }
    }

    /// The map, if it has the first `end` bytes or can be made to.
    pub fn mapped(&self, file: &dyn File, end: u64) -> Option<Guard<Option<Arc<MappedBlobs>>>> {
        let mapped = self.mapped.load();
        if mapped.as_ref().is_some_and(|mapped| end <= mapped.file.len() as u64) {
            return Some(mapped);
        }
        if !self.is_allowed {
            return None;
        }
        // While another thread makes one, values are read in the usual way.
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
        // A system that refuses it is one without.
        let file = MappedFile::new(file.map_for_reading(len).ok()??, &self.disposal);
        let marks = (0..len.div_ceil(BYTES_A_MARK)).map(|_| AtomicU64::new(0)).collect();
        let mapped = Arc::new(MappedBlobs { file, marks });
        self.mapped.store(Some(Arc::clone(&mapped)));
        Some(Guard::from_inner(Some(mapped)))
    }

    /// Whether the record at an offset was written in this span of time and need not be checked for that.
    pub fn is_written(&self, file: FileId, offset: u64, now: CheckTime) -> bool {
        !is_sample(file, offset) && self.recent_writes.since(file, offset).is_some_and(|since| since.span_of(0) == now)
    }

    /// The present span of time: what was checked in another is to be checked again.
    pub fn now(&self) -> CheckTime {
        Moment::now(&*self.runtime).span_of(0)
    }
}

impl MappedBlobs {
    /// Has the system read a part of the file, so that looking at it cannot fail; whether it did.
    pub fn have_in_memory(&self, part: Range<u64>) -> bool {
        self.file.populate(part)
    }

    /// Whether the value that begins there was checked in this span of time.
    pub fn is_checked(&self, offset: u64, now: CheckTime) -> bool {
        let mark = usize::try_from(offset / BYTES_A_MARK).ok().and_then(|at| self.marks.get(at));
        mark.is_some_and(|mark| mark.load(Ordering::Relaxed) == mark_of(offset, now))
    }

    /// Notes that it was.
    pub fn set_checked(&self, offset: u64, now: CheckTime) {
        if let Some(mark) = usize::try_from(offset / BYTES_A_MARK).ok().and_then(|at| self.marks.get(at)) {
            mark.store(mark_of(offset, now), Ordering::Relaxed);
        }
    }
}

fn mark_of(offset: u64, now: CheckTime) -> u64 {
    1 << 63 | (offset % BYTES_A_MARK) << 32 | u64::from(now.count())
}
