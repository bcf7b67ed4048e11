//! Large pieces of memory, taken from the system and given back to it page by page.
//!
//! What caches and memtables take and give back by the megabyte does not go through the global allocator: there, a few
//! small pieces that live on keep what was freed around them from the system, and the process takes far more memory
//! than the database does. Small pieces, and systems without such calls, do use it.
//!
//! [`Zeroed`] is a slice in such memory.

use std::{
    alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error},
    ops::{Deref, DerefMut},
    ptr::NonNull,
    slice,
    sync::atomic::{AtomicPtr, AtomicU64},
};

/// Smaller pieces come from the global allocator.
const PAGES_MIN: usize = 64 << 10;

/// A huge page. Pieces of this length and alignment, or multiples of it, are made of them where the system has any.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// What the processor fetches at once.
const LINE_BYTES: usize = 64;

/// Shorter slices are not put into huge pages: those would be empty for the most part. None are where nobody is asked for such.
const IN_HUGE_PAGES_MIN: usize =
    if cfg!(all(target_os = "linux", not(miri))) { HUGE_PAGE_BYTES / 2 } else { usize::MAX };

/// Asks the processor to fetch these bytes, which will be read soon. Meant for a few lines.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch has no effect that can be seen; SSE is always there.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}

/// Memory of this layout, uninitialised; null if there is none. To be given back by [`release`] with the same layout.
///
/// # Safety
/// The layout is not empty.
pub unsafe fn reserve(layout: Layout) -> *mut u8 {
    #[cfg(all(unix, not(miri)))]
    if layout.size() >= PAGES_MIN {
        return mapped::map(layout);
    }
    // SAFETY: the caller's.
    unsafe { alloc(layout) }
}

/// The same, but of small pages where the system gives huge ones to who asks for them: for what may never be used but for a part. The
/// first write to a huge page has all of it cleared, which takes milliseconds where a host has to find the memory.
///
/// # Safety
/// The layout is not empty.
pub unsafe fn reserve_small_pages(layout: Layout) -> *mut u8 {
    #[cfg(all(unix, not(miri)))]
    if layout.size() >= PAGES_MIN {
        return mapped::map_small_pages(layout);
    }
    // SAFETY: the caller's.
    unsafe { alloc(layout) }
}

/// The same as [`reserve`], all zero. Pages that are never written to take no memory where the system gives such.
///
/// # Safety
/// The layout is not empty.
pub unsafe fn reserve_zeroed(layout: Layout) -> *mut u8 {
    #[cfg(all(unix, not(miri)))]
    if layout.size() >= PAGES_MIN {
        // Fresh pages are.
        return mapped::map(layout);
    }
    // SAFETY: the caller's.
    unsafe { alloc_zeroed(layout) }
}

/// Has the system find all of this memory at once, where there is such a call. What is in it stays.
///
/// # Safety
/// `memory` is null, or came from [`reserve`], [`reserve_small_pages`] or [`reserve_zeroed`] with this layout.
pub unsafe fn populate(memory: *mut u8, layout: Layout) {
    #[cfg(all(unix, not(miri)))]
    if layout.size() >= PAGES_MIN && !memory.is_null() {
        mapped::populate(memory, layout.size());
    }
    #[cfg(not(all(unix, not(miri))))]
    let _ = (memory, layout);
}

/// Gives back what [`reserve`], [`reserve_small_pages`] or [`reserve_zeroed`] gave.
///
/// # Safety
/// `memory` came from one of them with this layout, and nobody uses it any more.
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

/// What may have all bytes zero.
///
/// # Safety
/// All zeros are a value of the type, and nothing need be done when one is let go.
pub unsafe trait Zeroable {}

// SAFETY: it is the number zero.
unsafe impl Zeroable for AtomicU64 {}

// SAFETY: it is the null pointer.
unsafe impl<T> Zeroable for AtomicPtr<T> {}

/// Words that the processor fetches together.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Line(pub [u32; LINE_BYTES / size_of::<u32>()]);

// SAFETY: it is so many numbers of zero.
unsafe impl Zeroable for Line {}

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
        let memory = unsafe { reserve_zeroed(layout) };
        let start = NonNull::new(memory.cast()).unwrap_or_else(|| handle_alloc_error(layout));
        Zeroed { start, len: len.max(1), layout }
    }

    /// Has the system find all memory of it at once, which takes less time than page by page as they are written: where pages are read before, they
    /// would be found twice. Where there is no such call, nothing happens.
    pub fn populate(&self) {
        // SAFETY: it was reserved with this layout.
        unsafe { populate(self.start.as_ptr().cast(), self.layout) };
    }

    /// Bytes of memory it may take.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }
}

/// What a slice of so many bytes takes [in huge pages](Zeroed::in_huge_pages): the last of them is filled to more than half, or there are small ones in its
/// place.
pub fn bytes_in_huge_pages(bytes: usize) -> usize {
    let whole = bytes.next_multiple_of(HUGE_PAGE_BYTES);
    if bytes > IN_HUGE_PAGES_MIN && whole - bytes < HUGE_PAGE_BYTES / 2 { whole } else { bytes }
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

    /// Maps pages of this layout, huge ones if it is made for them.
    pub fn map(layout: Layout) -> *mut u8 {
        let memory = map_small_pages(layout);
        if !memory.is_null() && layout.size() >= HUGE_PAGE_BYTES && layout.align() >= HUGE_PAGE_BYTES {
            advise_huge_pages(memory, layout.size().next_multiple_of(page_size()));
        }
        memory
    }

    /// Maps pages of this layout: a map that is longer by the alignment is cut at both ends. Pages are of 4 KiB on most machines, of 16
    /// on those of Apple, and up to 64 on others with ARM or POWER: a cut elsewhere than between pages would be refused.
    pub fn map_small_pages(layout: Layout) -> *mut u8 {
        let (len, align) = (layout.size().next_multiple_of(page_size()), layout.align());
        let slack = if align > page_size() { align } else { 0 };
        // SAFETY: a new map, at a place of the system's choice.
        let mapped =
            unsafe { mmap_anonymous(null_mut(), len + slack, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        let Ok(mapped) = mapped else { return null_mut() };
        let start = mapped.cast::<u8>();
        let head = if slack > 0 { start.align_offset(align) } else { 0 };
        let memory = start.wrapping_add(head);
        // SAFETY: both ends lie within the map and outside what is given away.
        unsafe {
            unmap(start, head);
            unmap(memory.wrapping_add(len), slack - head);
        }
        memory
    }

    /// # Safety
    /// The pages are mapped, and nobody uses them any more.
    pub unsafe fn unmap(memory: *mut u8, len: usize) {
        if len > 0 {
            // SAFETY: the caller's. A failure would leave the pages mapped, which harms nothing.
            let _ = unsafe { munmap(memory.cast(), len.next_multiple_of(page_size())) };
        }
    }

    /// Only advice, as below.
    pub fn populate(memory: *mut u8, len: usize) {
        #[cfg(target_os = "linux")]
        // SAFETY: this advice has pages found that a write would have found, and changes nothing that they hold; the pages are ours.
        let _ = unsafe { rustix::mm::madvise(memory.cast(), len, rustix::mm::Advice::LinuxPopulateWrite) };
        #[cfg(not(target_os = "linux"))]
        let _ = (memory, len);
    }

    /// Only advice: where the system has none, nothing happens.
    fn advise_huge_pages(memory: *mut u8, len: usize) {
        #[cfg(target_os = "linux")]
        // SAFETY: this advice changes how memory is mapped, never what it holds, and the pages are ours.
        let _ = unsafe { rustix::mm::madvise(memory.cast(), len, rustix::mm::Advice::LinuxHugepage) };
        #[cfg(not(target_os = "linux"))]
        let _ = (memory, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    /// As the system tells it of the map that an address is in.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn asks_for_huge_pages(memory: *const u8) -> bool {
        let told = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_there = false;
        for line in told.lines() {
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
    fn huge_pages_are_asked_for_where_they_are_wanted_alone() {
        let layout = Layout::from_size_align(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES).unwrap();
        // SAFETY: the layout is not empty, and each piece is given back once.
        unsafe {
            let (huge, small) = (reserve(layout), reserve_small_pages(layout));
            // A kernel without huge pages takes no such advice.
            if std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
                assert!(asks_for_huge_pages(huge));
            }
            assert!(!asks_for_huge_pages(small));
            release(huge, layout);
            release(small, layout);
        }
    }

    #[test]
    fn pieces_of_all_sizes_are_aligned_and_hold_what_is_written() {
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
    fn slices_of_all_lengths_are_zero_and_hold_what_is_written() {
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
