//! Mapped files, whose units are read in place: one of the islands of unsafe.
//!
//! A unit of a mapped file needs no frame; its bytes are readable as long as the map. The owner
//! drops the map through the epoch collector, which waits for all guards. Readers that need bytes
//! for longer hold the map itself, by one of several **holders** with separate counters, to avoid
//! contention.

use super::{arena::Pin, hint::Hint, striped_counter};
use crate::platform::{DeferredClose, ReadMapping};
use crossbeam_epoch::Guard;
use std::{fmt, ops::Deref, ops::Range, ptr::NonNull, sync::Arc};

const HOLDERS: usize = 8;

#[repr(align(128))]
struct Holder {
    mapping: Arc<Mapping>,
}

/// Any reader may be the last to drop the map, so unmapping is left to `deferred_close`.
struct Mapping {
    map: Option<ReadMapping>,
    deferred_close: Arc<DeferredClose>,
}

impl Mapping {
    fn map(&self) -> &ReadMapping {
        self.map.as_ref().expect("there until this is dropped")
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(map) = self.map.take() {
            self.deferred_close.drop_later(map);
        }
    }
}

/// A mapped file. Shared by all threads.
pub struct MappedFile {
    bytes: NonNull<[u8]>,
    holders: [Arc<Holder>; HOLDERS],
}

// SAFETY: the bytes belong to a `ReadMapping`, which is both, and the holders keep it.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    pub fn new(map: ReadMapping, deferred_close: &Arc<DeferredClose>) -> MappedFile {
        let bytes = map.memory();
        let mapping = Arc::new(Mapping { map: Some(map), deferred_close: Arc::clone(deferred_close) });
        let holders = std::array::from_fn(|_| Arc::new(Holder { mapping: Arc::clone(&mapping) }));
        MappedFile { bytes, holders }
    }

    /// The bytes must no longer change. `None` if the file has no such range.
    #[inline]
    pub fn get<'g>(&self, range: Range<u64>, _guard: &'g Guard) -> Option<&'g [u8]> {
        let bytes = self.part(range)?;
        // SAFETY: the map exists as long as `self`, and as long as the guard, since the collector
        // drops it.
        Some(unsafe { bytes.as_ref() })
    }

    /// [`MappedFile::get`] for the lifetime of `self`.
    #[inline(always)]
    pub fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        let bytes = self.part(range)?;
        // SAFETY: the map exists as long as a holder, and `self` owns the holders.
        Some(unsafe { bytes.as_ref() })
    }

    /// [`MappedFile::get`] for the lifetime of the handle.
    #[inline]
    pub fn pin(&self, range: Range<u64>) -> Option<PinnedUnit> {
        let bytes = self.part(range)?;
        let holder = Arc::clone(&self.holders[striped_counter::shard() % HOLDERS]);
        Some(PinnedUnit { bytes, _keeper: Keeper::Mapped { _holder: holder } })
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_in_memory(&self, range: Range<u64>) -> bool {
        self.holders[0].mapping.map().is_in_memory(clamp(range))
    }

    pub fn populate(&self, range: Range<u64>) -> bool {
        self.holders[0].mapping.map().populate(clamp(range))
    }

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
        // A removed file's space is freed on unmapping, so advance the collector's epoch.
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

/// A unit that stays in memory even after cache and file are gone.
pub struct PinnedUnit {
    bytes: NonNull<[u8]>,
    _keeper: Keeper,
}

enum Keeper {
    Cached { _pin: Pin },
    Mapped { _holder: Arc<Holder> },
}

// SAFETY: the keeper is both, and keeps the bytes unchanged.
unsafe impl Send for PinnedUnit {}
// SAFETY: as above.
unsafe impl Sync for PinnedUnit {}

impl PinnedUnit {
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
