//! Slices that are zero at first, in memory taken from the system page by page.

use super::pages::{self, HUGE_PAGE_BYTES};
use std::{
    alloc::{Layout, handle_alloc_error},
    ops::{Deref, DerefMut},
    ptr::NonNull,
    slice,
    sync::atomic::AtomicU64,
};

/// Shorter slices are not put into huge pages: those would be empty for the most part.
const IN_HUGE_PAGES_MIN: usize = HUGE_PAGE_BYTES / 2;

/// What may have all bytes zero.
///
/// # Safety
/// All zeros are a value of the type, and nothing need be done when one is let go.
pub unsafe trait Zeroable {}

// SAFETY: it is the number zero.
unsafe impl Zeroable for AtomicU64 {}

/// A slice that is zero at first.
#[derive(Debug)]
pub struct Zeroed<T: Zeroable> {
    start: NonNull<T>,
    len: usize,
    layout: Layout,
}

// SAFETY: it owns what is in it alone, like a box.
unsafe impl<T: Zeroable + Send> Send for Zeroed<T> {}
// SAFETY: the same.
unsafe impl<T: Zeroable + Sync> Sync for Zeroed<T> {}

impl<T: Zeroable> Zeroed<T> {
    /// So many, one at least. They take memory as they are written, where the system has it so.
    pub fn new(len: usize) -> Zeroed<T> {
        Zeroed::of_layout(len, Layout::array::<T>(len.max(1)).expect("far below isize::MAX"))
    }

    /// So many, one at least, in huge pages if they fill more than half of one. For what is read here and there: the processor finds its
    /// way to few large pages sooner than to many small ones.
    pub fn in_huge_pages(len: usize) -> Zeroed<T> {
        let layout = Layout::array::<T>(len.max(1)).expect("far below isize::MAX");
        let bytes = bytes_in_huge_pages(layout.size());
        let align = if bytes > IN_HUGE_PAGES_MIN { HUGE_PAGE_BYTES } else { layout.align() };
        let layout = Layout::from_size_align(bytes, align).expect("far below isize::MAX");
        Zeroed::of_layout(len, layout)
    }

    fn of_layout(len: usize, layout: Layout) -> Zeroed<T> {
        assert!(size_of::<T>() > 0);
        // SAFETY: one has some bytes, and there is room for one at least.
        let memory = unsafe { pages::reserve_zeroed(layout) };
        let start = NonNull::new(memory.cast()).unwrap_or_else(|| handle_alloc_error(layout));
        Zeroed { start, len: len.max(1), layout }
    }

    /// Bytes of memory it may take.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }
}

/// What a slice of so many bytes takes [in huge pages](Zeroed::in_huge_pages).
pub fn bytes_in_huge_pages(bytes: usize) -> usize {
    if bytes > IN_HUGE_PAGES_MIN { bytes.next_multiple_of(HUGE_PAGE_BYTES) } else { bytes }
}

impl<T: Zeroable> Deref for Zeroed<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: so many fit into what was reserved, aligned and zero, which is a value of theirs; they stay until this is dropped.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> DerefMut for Zeroed<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and nobody else borrows them.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> Drop for Zeroed<T> {
    fn drop(&mut self) {
        // SAFETY: reserved with this layout, and given back only here.
        unsafe { pages::release(self.start.as_ptr().cast(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn slices_of_all_lengths_are_zero_and_hold_what_is_written() {
        for bytes in [0, 8, 4096, 64 << 10, 1 << 20, (1 << 20) + 8, 2 << 20, (2 << 20) + 8] {
            for mut slice in [Zeroed::<AtomicU64>::new(bytes / 8), Zeroed::in_huge_pages(bytes / 8)] {
                assert_eq!(slice.len(), (bytes / 8).max(1));
                assert!(slice.iter().all(|word| word.load(Relaxed) == 0));
                slice.iter_mut().zip(1..).for_each(|(word, number)| *word.get_mut() = number);
                assert!(slice.iter().zip(1..).all(|(word, number)| word.load(Relaxed) == number));
                assert!(slice.bytes() >= bytes.max(8));
            }
            let slice = Zeroed::<AtomicU64>::in_huge_pages(bytes / 8);
            assert_eq!(slice.bytes(), bytes_in_huge_pages(bytes.max(8)));
            let is_huge = slice.bytes().is_multiple_of(HUGE_PAGE_BYTES);
            assert_eq!(is_huge, bytes > 1 << 20);
            assert!(!is_huge || slice.as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES));
        }
    }
}
