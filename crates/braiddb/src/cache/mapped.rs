//! Files that are read in place: one of the islands of unsafe.
//!
//! A unit of a mapped file needs no frame: its bytes stand where the file does. They are readable while the map is, so the
//! map is unmapped only when nobody can look at it: its owner's hold on it goes through the epoch's collector, which waits
//! for all readers with a guard; and whoever needs bytes for longer holds it too. So that readers of one file do not all
//! write to one counter, there are several **holders** of the map, and a reader counts up that of his thread.

use super::{
    arena::{Hint, Pin},
    striped_counter,
};
use crate::platform::{Disposal, ReadMapping};
use crossbeam_epoch::Guard;
use std::{fmt, ops::Deref, ops::Range, ptr::NonNull, sync::Arc};

/// How many holders a map has.
const HOLDERS: usize = 8;

/// One of those who keep a map; on lines of its own.
#[repr(align(128))]
struct Holder {
    mapping: Arc<Mapping>,
}

/// The map. It is undone by who has the time: the last to hold it may be any reader.
struct Mapping {
    /// There until this is dropped.
    map: Option<ReadMapping>,
    disposal: Arc<Disposal>,
}

impl Mapping {
    fn map(&self) -> &ReadMapping {
        self.map.as_ref().expect("there until this is dropped")
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(map) = self.map.take() {
            self.disposal.let_go(map);
        }
    }
}

/// A mapped file. Shared by all threads.
pub struct MappedFile {
    bytes: NonNull<[u8]>,
    holders: [Arc<Holder>; HOLDERS],
}

// SAFETY: the bytes are those of a `ReadMapping`, which is both and is kept by the holders.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// A file of these bytes.
    pub fn new(map: ReadMapping, disposal: &Arc<Disposal>) -> MappedFile {
        let bytes = map.memory();
        let mapping = Arc::new(Mapping { map: Some(map), disposal: Arc::clone(disposal) });
        let holders = std::array::from_fn(|_| Arc::new(Holder { mapping: Arc::clone(&mapping) }));
        MappedFile { bytes, holders }
    }

    /// Bytes of it, which nobody writes to any more; `None` if it has no such range.
    #[inline]
    pub fn get<'g>(&self, range: Range<u64>, _guard: &'g Guard) -> Option<&'g [u8]> {
        let bytes = self.part(range)?;
        // SAFETY: the map is there, since we are; and it stays while the guard lives, since it is let go of only through
        // the collector.
        Some(unsafe { bytes.as_ref() })
    }

    /// Bytes of it, which nobody writes to any more, for as long as it is there itself; `None` if it has no such range.
    #[inline(always)]
    pub fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        let bytes = self.part(range)?;
        // SAFETY: the map is there as long as a holder is, and the holders are ours.
        Some(unsafe { bytes.as_ref() })
    }

    /// Bytes of it, which nobody writes to any more, for as long as the handle lives; `None` if it has no such range.
    #[inline]
    pub fn pin(&self, range: Range<u64>) -> Option<PinnedUnit> {
        let bytes = self.part(range)?;
        let holder = Arc::clone(&self.holders[striped_counter::shard() % HOLDERS]);
        Some(PinnedUnit { bytes, _keeper: Keeper::Mapped { _holder: holder } })
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// [`ReadMapping::is_in_memory`].
    pub fn is_in_memory(&self, range: Range<u64>) -> bool {
        self.holders[0].mapping.map().is_in_memory(clamp(range))
    }

    /// [`ReadMapping::populate`].
    pub fn populate(&self, range: Range<u64>) -> bool {
        self.holders[0].mapping.map().populate(clamp(range))
    }

    /// Where a unit is that ends there.
    #[inline]
    pub fn hint(&self, end: u64) -> Hint {
        let start = self.bytes.cast::<u8>().addr().get();
        Hint::at_end(start.wrapping_add(usize::try_from(end).unwrap_or(0)))
    }

    #[inline]
    fn part(&self, range: Range<u64>) -> Option<NonNull<[u8]>> {
        let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
        if start > end || end > self.bytes.len() {
            return None;
        }
        // SAFETY: `start` is within the bytes.
        let first = unsafe { self.bytes.cast::<u8>().add(start) };
        Some(NonNull::slice_from_raw_parts(first, end - start))
    }
}

fn clamp(range: Range<u64>) -> Range<usize> {
    let to_usize = |at| usize::try_from(at).unwrap_or(usize::MAX);
    to_usize(range.start)..to_usize(range.end)
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        let holders = self.holders.clone();
        crossbeam_epoch::pin().defer(move || drop(holders));
        // The space of a file that was removed comes back when it is unmapped, so the epoch is pushed on.
        for _ in 0..4 {
            crossbeam_epoch::pin().flush();
        }
    }
}

impl fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedFile").field("len", &self.bytes.len()).finish()
    }
}

/// A unit that stays in memory while this handle lives, even after the cache and the file are gone.
pub struct PinnedUnit {
    bytes: NonNull<[u8]>,
    _keeper: Keeper,
}

/// Why the bytes stay.
enum Keeper {
    Cached { _pin: Pin },
    Mapped { _holder: Arc<Holder> },
}

// SAFETY: the bytes do not change while the keeper lives, which is both.
unsafe impl Send for PinnedUnit {}
// SAFETY: as above.
unsafe impl Sync for PinnedUnit {}

impl PinnedUnit {
    /// A unit of the cache.
    #[inline]
    pub(super) fn cached(pin: Pin) -> PinnedUnit {
        PinnedUnit { bytes: NonNull::from(pin.bytes()), _keeper: Keeper::Cached { _pin: pin } }
    }
}

impl Deref for PinnedUnit {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the keeper keeps them.
        unsafe { self.bytes.as_ref() }
    }
}

impl fmt::Debug for PinnedUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedUnit").field("len", &self.len()).finish()
    }
}
