//! Prefetches units of the cache before they are read, by guessed addresses.

use super::arena::LINE_BYTES;
use std::ops::Range;

const BEGINNING_BYTES: usize = 40;
/// All lines of items up to this size are prefetched, since most lines have a beginning.
const WHOLE_ITEM_BYTES_MAX: usize = 192;

/// Guessed start of a unit, only for prefetches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ahead(usize);

impl Ahead {
    #[inline(always)]
    pub fn from_address(address: usize) -> Ahead {
        Ahead(address)
    }

    #[inline(always)]
    pub fn is_somewhere(self) -> bool {
        self.0 != 0
    }

    #[inline(always)]
    pub fn prefetch<const LINES: usize>(self, offset: usize) {
        if self.0 != 0 {
            for line in 0..LINES {
                prefetch_far_line(at(self.0.wrapping_add(offset + 64 * line)));
            }
        }
    }
}

/// Guessed end of a unit, only for prefetches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hint(usize);

impl Hint {
    #[inline]
    pub(super) fn at_end(address: usize) -> Hint {
        Hint(address)
    }

    /// Distances before the unit's end. All methods accept any number.
    #[inline]
    pub fn prefetch<const N: usize>(self, soon: [usize; N]) {
        if self.0 != 0 {
            self.prefetch_before(soon);
        }
    }

    #[inline(always)]
    pub fn prefetch_before<const N: usize>(self, soon: [usize; N]) {
        for before in soon {
            prefetch_line(at(self.0.wrapping_sub(before)));
        }
    }

    /// The last three lines, where the page's unit usually ends.
    #[inline(always)]
    pub fn prefetch_page_end(self) {
        for before in [64, 128, 192] {
            prefetch_line(at(self.0.wrapping_sub(before)));
        }
    }

    #[inline(always)]
    pub fn prefetch_item(self) {
        for line in [0, 64, 128] {
            prefetch_line(at(self.0.wrapping_add(line)));
        }
    }

    #[inline(always)]
    pub fn prefetch_item_in_page(self, before_end: usize) {
        for line in [0, 64, 128] {
            prefetch_line(at(self.0.wrapping_sub(before_end).wrapping_add(line)));
        }
    }

    /// `None` without an address, or if only beginnings of items are fetched.
    #[inline]
    pub fn lines_of_items(self, before_end: usize, items: u32, stride: usize) -> Option<Range<usize>> {
        if self.0 == 0 || stride > WHOLE_ITEM_BYTES_MAX {
            return None;
        }
        let start = self.0.wrapping_sub(before_end);
        Some(start - start % LINE_BYTES..start.wrapping_add(items as usize * stride))
    }

    /// Long items only at their beginnings.
    #[inline]
    pub fn prefetch_items(self, before_end: usize, items: u32, stride: usize) {
        if self.0 == 0 {
            return;
        }
        if let Some(lines) = self.lines_of_items(before_end, items, stride) {
            for line in lines.step_by(LINE_BYTES) {
                prefetch_far_line(at(line));
            }
            return;
        }
        let mut item = self.0.wrapping_sub(before_end);
        for _ in 0..items {
            // Often twice the same line, which costs less than a test.
            prefetch_far_line(at(item));
            prefetch_far_line(at(item.wrapping_add(BEGINNING_BYTES)));
            item = item.wrapping_add(stride);
        }
    }

    /// Returns the start of a unit of about `len` bytes.
    #[inline]
    pub fn ahead(self, len: usize, end_bytes: usize) -> Ahead {
        if self.0 == 0 {
            return Ahead::default();
        }
        self.prefetch_before([1, end_bytes]);
        Ahead(self.0.wrapping_sub(len))
    }
}

#[inline(always)]
fn at(address: usize) -> *const u8 {
    std::ptr::without_provenance(address)
}

#[inline(always)]
pub fn prefetch<T>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    for line in (0..size_of::<T>()).step_by(64) {
        prefetch_line(start.wrapping_add(line));
    }
}

#[inline]
fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is allowed and has no visible effect; SSE always exists.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Into the second-level cache, which has room for more requests at a time.
#[inline]
fn prefetch_far_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
