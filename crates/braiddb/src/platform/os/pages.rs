//! Large memory blocks, allocated from the system and returned by pages.
//!
//! Caches and memtables bypass the global allocator for megabyte-sized blocks: there, a few
//! long-lived small allocations would keep freed memory around them. Small blocks, and systems
//! without the calls, use the global allocator.

use std::{
    alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error},
    ops::{Deref, DerefMut},
    ptr::NonNull,
    slice,
    sync::atomic::{AtomicPtr, AtomicU64},
};

/// Smaller blocks use the global allocator.
#[cfg(any(all(unix, not(miri)), test))]
const PAGES_MIN: usize = 64 << 10;

/// Bytes of a huge page. Blocks aligned to it and at least as long use huge pages where available.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Minimum bytes of a slice in huge pages. Shorter ones would leave them mostly empty. Unreachable
/// on systems without huge page advice.
const IN_HUGE_PAGES_MIN: usize =
    if cfg!(all(target_os = "linux", not(miri))) { HUGE_PAGE_BYTES / 2 } else { usize::MAX };

/// Prefetches a few cache lines.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch has no visible effect; x86-64 always has SSE.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}

/// Allocates uninitialised memory; null on failure. Free it with [`release`] and the same layout.
///
/// # Safety
/// The layout must not be empty.
pub unsafe fn reserve(layout: Layout) -> *mut u8 {
    #[cfg(all(unix, not(miri)))]
    if layout.size() >= PAGES_MIN {
        return mapped::map(layout);
    }
    // SAFETY: the caller's.
    unsafe { alloc(layout) }
}

/// Like [`reserve`], but in small pages, for memory that may stay partly unused. The first write to
/// a huge page clears all of it, which can take milliseconds.
///
/// # Safety
/// The layout must not be empty.
pub unsafe fn reserve_small_pages(layout: Layout) -> *mut u8 {
    #[cfg(all(unix, not(miri)))]
    if layout.size() >= PAGES_MIN {
        return mapped::map_small_pages(layout);
    }
    // SAFETY: the caller's.
    unsafe { alloc(layout) }
}

/// Like [`reserve`], but zeroed. Pages cost no memory before the first write, if the system can.
///
/// # Safety
/// The layout must not be empty.
pub unsafe fn reserve_zeroed(layout: Layout) -> *mut u8 {
    #[cfg(all(unix, not(miri)))]
    if layout.size() >= PAGES_MIN {
        // Fresh pages are zero.
        return mapped::map(layout);
    }
    // SAFETY: the caller's.
    unsafe { alloc_zeroed(layout) }
}

/// Prefaults the memory and keeps its contents. Does nothing on systems without the call.
///
/// # Safety
/// `memory` is null, or came from [`reserve`], [`reserve_small_pages`] or [`reserve_zeroed`] with
/// this layout.
pub unsafe fn populate(memory: *mut u8, layout: Layout) {
    #[cfg(all(unix, not(miri)))]
    if layout.size() >= PAGES_MIN && !memory.is_null() {
        mapped::populate(memory, layout.size());
    }
    #[cfg(not(all(unix, not(miri))))]
    let _ = (memory, layout);
}

/// Frees memory of [`reserve`], [`reserve_small_pages`] or [`reserve_zeroed`].
///
/// # Safety
/// `memory` came from one of them with this layout, and is unused.
pub unsafe fn release(memory: *mut u8, layout: Layout) {
    #[cfg(all(unix, not(miri)))]
    if layout.size() >= PAGES_MIN {
        // SAFETY: the caller's: these pages were mapped for this layout.
        unsafe { mapped::unmap(memory, layout.size()) };
        return;
    }
    // SAFETY: the caller's.
    unsafe { dealloc(memory, layout) };
}

/// A type whose bytes may all be zero.
///
/// # Safety
/// All zeros must be a valid value, and the type must not need to be dropped.
pub unsafe trait Zeroable {}

// SAFETY: the number zero is valid.
unsafe impl Zeroable for AtomicU64 {}

// SAFETY: the null pointer is valid.
unsafe impl<T> Zeroable for AtomicPtr<T> {}

/// The words of a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Line(pub [u32; LINE_BYTES / size_of::<u32>()]);

// SAFETY: zeros are valid numbers.
unsafe impl Zeroable for Line {}

/// A slice that starts as zeros.
#[derive(Debug)]
pub struct Zeroed<T: Zeroable> {
    start: NonNull<T>,
    len: usize,
    layout: Layout,
}

// SAFETY: it owns its values, like a box.
unsafe impl<T: Zeroable + Send> Send for Zeroed<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroable + Sync> Sync for Zeroed<T> {}

impl<T: Zeroable> Zeroed<T> {
    /// Allocates `len` values, at least one. Most systems provide pages as they are written.
    pub fn new(len: usize) -> Zeroed<T> {
        Zeroed::of_layout(len, Layout::array::<T>(len.max(1)).expect("far below isize::MAX"))
    }

    /// Allocates `len` values, at least one, in huge pages if they fill more than half of one. They
    /// cause fewer TLB misses of random reads.
    pub fn in_huge_pages(len: usize) -> Zeroed<T> {
        let layout = Layout::array::<T>(len.max(1)).expect("far below isize::MAX");
        let bytes = bytes_in_huge_pages(layout.size());
        let align = if bytes > IN_HUGE_PAGES_MIN { HUGE_PAGE_BYTES } else { layout.align() };
        let layout = Layout::from_size_align(bytes, align).expect("far below isize::MAX");
        Zeroed::of_layout(len, layout)
    }

    fn of_layout(len: usize, layout: Layout) -> Zeroed<T> {
        assert!(size_of::<T>() > 0);
        // SAFETY: the type has a size, and the layout has room for at least one value.
        let memory = unsafe { reserve_zeroed(layout) };
        let start = NonNull::new(memory.cast()).unwrap_or_else(|| handle_alloc_error(layout));
        Zeroed { start, len: len.max(1), layout }
    }

    /// Prefaults all pages, which is cheaper than single faults. Without this, a page that is read
    /// before it is written faults twice. Does nothing on systems without the call.
    pub fn populate(&self) {
        // SAFETY: it was reserved with this layout.
        unsafe { populate(self.start.as_ptr().cast(), self.layout) };
    }

    /// Returns the allocated bytes.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }
}

/// Returns the bytes of a slice of `bytes` [in huge pages](Zeroed::in_huge_pages): whole ones if
/// the last is more than half full; otherwise small pages.
pub fn bytes_in_huge_pages(bytes: usize) -> usize {
    let whole = bytes.next_multiple_of(HUGE_PAGE_BYTES);
    if bytes > IN_HUGE_PAGES_MIN && whole - bytes < HUGE_PAGE_BYTES / 2 { whole } else { bytes }
}

impl<T: Zeroable> Deref for Zeroed<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the reserved memory holds `len` aligned, zeroed values, and zero is valid. It
        // lives as long as `self`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> DerefMut for Zeroed<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> Drop for Zeroed<T> {
    fn drop(&mut self) {
        // SAFETY: reserved with this layout, and released only here.
        unsafe { release(self.start.as_ptr().cast(), self.layout) };
    }
}

#[cfg(all(unix, not(miri)))]
mod mapped {
    use super::HUGE_PAGE_BYTES;
    use rustix::{
        mm::{MapFlags, ProtFlags, mmap_anonymous, munmap},
        param::page_size,
    };
    use std::{alloc::Layout, ptr::null_mut};

    /// Huge pages if the layout suits them.
    pub fn map(layout: Layout) -> *mut u8 {
        let memory = map_small_pages(layout);
        if !memory.is_null() && layout.size() >= HUGE_PAGE_BYTES && layout.align() >= HUGE_PAGE_BYTES {
            advise_huge_pages(memory, layout.size().next_multiple_of(page_size()));
        }
        memory
    }

    /// Maps more for the alignment and trims both ends, by whole pages: the system refuses to trim
    /// inside a page (of 4 to 64 KiB).
    pub fn map_small_pages(layout: Layout) -> *mut u8 {
        let (len, align) = (layout.size().next_multiple_of(page_size()), layout.align());
        let slack = if align > page_size() { align } else { 0 };
        // SAFETY: a new map, at an address of the system's choice.
        let mapped =
            unsafe { mmap_anonymous(null_mut(), len + slack, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        let Ok(mapped) = mapped else { return null_mut() };
        let start = mapped.cast::<u8>();
        let head = if slack > 0 { start.align_offset(align) } else { 0 };
        let memory = start.wrapping_add(head);
        // SAFETY: both ends lie in the map and outside the returned memory.
        unsafe {
            unmap(start, head);
            unmap(memory.wrapping_add(len), slack - head);
        }
        memory
    }

    /// # Safety
    /// The pages are mapped, and unused.
    pub unsafe fn unmap(memory: *mut u8, len: usize) {
        if len > 0 {
            // SAFETY: the caller's. After a failure the pages stay mapped, which is harmless.
            let _ = unsafe { munmap(memory.cast(), len.next_multiple_of(page_size())) };
        }
    }

    pub fn populate(memory: *mut u8, len: usize) {
        #[cfg(target_os = "linux")]
        // SAFETY: the advice prefaults pages and keeps their contents; the pages are ours.
        let _ = unsafe { rustix::mm::madvise(memory.cast(), len, rustix::mm::Advice::LinuxPopulateWrite) };
        #[cfg(not(target_os = "linux"))]
        let _ = (memory, len);
    }

    /// Advice only; does nothing where unsupported.
    fn advise_huge_pages(memory: *mut u8, len: usize) {
        #[cfg(target_os = "linux")]
        // SAFETY: the advice changes the mapping of memory, never its contents, and the pages are
        // ours.
        let _ = unsafe { rustix::mm::madvise(memory.cast(), len, rustix::mm::Advice::LinuxHugepage) };
        #[cfg(not(target_os = "linux"))]
        let _ = (memory, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    /// Looks up the flags of the map that contains the address.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn asks_for_huge_pages(memory: *const u8) -> bool {
        let reported = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_there = false;
        for line in reported.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bounds = range.map(|(a, b)| [a, b].map(|n| usize::from_str_radix(n, 16).ok()));
            if let Some([Some(start), Some(end)]) = bounds {
                is_there = (start..end).contains(&memory.addr());
            } else if is_there && line.starts_with("VmFlags:") {
                return line.split(' ').any(|flag| flag == "hg");
            }
        }
        false
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn reserve_requests_huge_pages_unless_small() {
        let layout = Layout::from_size_align(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES).unwrap();
        // SAFETY: the layout is not empty, and each block is released once.
        unsafe {
            let (huge, small) = (reserve(layout), reserve_small_pages(layout));
            // Kernels without huge pages reject the advice.
            if std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
                assert!(asks_for_huge_pages(huge));
            }
            assert!(!asks_for_huge_pages(small));
            release(huge, layout);
            release(small, layout);
        }
    }

    #[test]
    fn reserve_any_layout_is_aligned_and_writable() {
        for len in [1, 4096, PAGES_MIN - 1, PAGES_MIN, PAGES_MIN + 1, 1 << 20, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES] {
            let aligns = [1, 64, 4096, 1 << 16, HUGE_PAGE_BYTES];
            for (align, small) in aligns.into_iter().flat_map(|align| [(align, false), (align, true)]) {
                let layout = Layout::from_size_align(len, align).unwrap();
                // SAFETY: the layout is not empty.
                let memory = unsafe { if small { reserve_small_pages(layout) } else { reserve(layout) } };
                assert!(!memory.is_null());
                assert_eq!(memory.addr() % align, 0);
                // SAFETY: fresh memory of this length, written before it is read.
                unsafe {
                    memory.write_bytes(0xa5, len);
                    assert!(slice::from_raw_parts(memory, len).iter().all(|&b| b == 0xa5));
                    release(memory, layout);
                }
            }
        }
    }

    #[test]
    fn zeroed_any_length_is_zero_and_writable() {
        for bytes in [0, 8, 4096, 64 << 10, 1 << 20, (1 << 20) + 8, 2 << 20, (2 << 20) + 8] {
            let populated = Zeroed::new(bytes / 8);
            populated.populate();
            for mut slice in [Zeroed::<AtomicU64>::new(bytes / 8), populated, Zeroed::in_huge_pages(bytes / 8)] {
                assert_eq!(slice.len(), (bytes / 8).max(1));
                assert!(slice.iter().all(|word| word.load(Relaxed) == 0));
                slice.iter_mut().zip(1..).for_each(|(word, number)| *word.get_mut() = number);
                assert!(slice.iter().zip(1..).all(|(word, number)| word.load(Relaxed) == number));
                assert!(slice.bytes() >= bytes.max(8));
            }
            let slice = Zeroed::<AtomicU64>::in_huge_pages(bytes / 8);
            assert_eq!(slice.bytes(), bytes_in_huge_pages(bytes.max(8)));
            let is_huge = bytes > IN_HUGE_PAGES_MIN;
            assert!(slice.bytes() < bytes.max(8) + HUGE_PAGE_BYTES / 2);
            assert!(!is_huge || slice.as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES));
            assert!(is_huge || slice.bytes() == bytes.max(8));
        }
    }
}
