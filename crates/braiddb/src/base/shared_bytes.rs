//! Immutable bytes in three words, inline if short and else reference-counted.
//!
//! An iterator creates a [`Chunk`] of many rows and counts all their references at once, so that a
//! row costs one atomic operation: its drop. Crate `byteview` counts each row twice and took three
//! times as long a row (ADR 0048).
//!
//! A shared allocation begins with a [`Header`]. Its bytes follow, or are a vector's.

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    mem::{ManuallyDrop, align_of, size_of},
    ops::{Deref, RangeBounds},
    ptr::NonNull,
    sync::atomic::{AtomicUsize, Ordering, fence},
};

/// Last byte of shared bytes; inline ones have their length there.
const SHARED: u8 = 0xff;

/// Bytes that fit inside.
pub const INLINE_MAX: usize = size_of::<Shared>() - 1;

/// Vectors of at least this length are kept, not copied.
pub const KEPT_VEC_MIN: usize = 2048;

/// A chunk ends with as many unused bytes, so that a short row is copied in whole words.
const PADDING: usize = size_of::<Shared>();

#[repr(C)]
struct Header {
    references: AtomicUsize,
    /// Bytes that follow the header, or the capacity of the vector.
    capacity: usize,
    /// Null: the bytes follow the header.
    vec: *mut u8,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Shared {
    data: *const u8,
    header: NonNull<Header>,
    /// Length, and [`SHARED`] as the last byte in memory.
    tagged_len: u64,
}

/// The two have the same size, and their last byte distinguishes them.
#[repr(C)]
union Repr {
    inline: [u8; size_of::<Shared>()],
    shared: Shared,
}

pub struct SharedBytes(Repr);

// SAFETY: the bytes are immutable, and the count is atomic.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

const fn tag_len(len: u64, tag: u8) -> u64 {
    if cfg!(target_endian = "little") { len | (tag as u64) << 56 } else { len << 8 | tag as u64 }
}

impl Shared {
    #[inline(always)]
    fn bytes(data: *const u8, header: NonNull<Header>, len: usize) -> SharedBytes {
        SharedBytes(Repr { shared: Shared { data, header, tagged_len: tag_len(len as u64, SHARED) } })
    }

    #[inline(always)]
    fn len(&self) -> usize {
        let len = if cfg!(target_endian = "little") { self.tagged_len & (u64::MAX >> 8) } else { self.tagged_len >> 8 };
        len as usize
    }
}

impl Header {
    fn layout(capacity: usize) -> Layout {
        let size = size_of::<Header>().checked_add(capacity);
        match size.map(|size| Layout::from_size_align(size, align_of::<Header>())) {
            Some(Ok(layout)) => layout,
            _ => panic!("{capacity} bytes exceed the address space"),
        }
    }

    /// Allocates a header and `len` bytes after it, not initialized.
    fn with_bytes(len: usize) -> (NonNull<Header>, *mut u8) {
        let layout = Header::layout(len);
        // SAFETY: the layout is not empty. The header is written before use; the bytes begin at its
        // end, within the allocation.
        unsafe {
            let Some(header) = NonNull::new(alloc(layout).cast::<Header>()) else { handle_alloc_error(layout) };
            header.write(Header { references: AtomicUsize::new(1), capacity: len, vec: std::ptr::null_mut() });
            (header, header.add(1).cast::<u8>().as_ptr())
        }
    }

    fn of_vec(bytes: Vec<u8>, references: usize) -> (NonNull<Header>, *const u8) {
        let mut bytes = ManuallyDrop::new(bytes);
        let (capacity, vec) = (bytes.capacity(), bytes.as_mut_ptr());
        let header = Box::new(Header { references: AtomicUsize::new(references), capacity, vec });
        (NonNull::from(Box::leak(header)), vec)
    }

    /// Gives back references; the last one frees.
    ///
    /// # Safety
    ///
    /// The caller owns `count` references and does not use them again.
    #[inline(always)]
    unsafe fn release(header: NonNull<Header>, count: usize) {
        // SAFETY: the caller's references keep the header alive.
        if unsafe { header.as_ref() }.references.fetch_sub(count, Ordering::Release) == count {
            // SAFETY: those were the last.
            unsafe { Header::free(header) }
        }
    }

    /// # Safety
    ///
    /// There are no references left.
    #[inline(never)]
    unsafe fn free(header: NonNull<Header>) {
        // Uses of the bytes by other threads come before their releases.
        fence(Ordering::Acquire);
        // SAFETY: no references are left. If `vec` is null, `with_bytes` made the allocation with
        // this capacity. Otherwise `of_vec` made it from a vector and a box.
        unsafe {
            let Header { capacity, vec, .. } = *header.as_ref();
            if vec.is_null() {
                dealloc(header.as_ptr().cast(), Header::layout(capacity));
            } else {
                drop(Vec::from_raw_parts(vec, 0, capacity));
                drop(Box::from_raw(header.as_ptr()));
            }
        }
    }

    /// # Safety
    ///
    /// The caller has a reference.
    unsafe fn retain(header: NonNull<Header>) {
        // SAFETY: the caller's reference keeps the header alive.
        let before = unsafe { header.as_ref() }.references.fetch_add(1, Ordering::Relaxed);
        // As `Arc` does: forgotten clones must not wrap the count.
        if before > isize::MAX as usize {
            std::process::abort();
        }
    }
}

impl SharedBytes {
    #[inline]
    pub fn of_slice(bytes: &[u8]) -> SharedBytes {
        if bytes.len() <= INLINE_MAX {
            return SharedBytes::inline(bytes);
        }
        let (header, data) = Header::with_bytes(bytes.len());
        // SAFETY: `data` has room for them, and is not shared yet.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len()) };
        Shared::bytes(data, header, bytes.len())
    }

    pub fn of_vec(bytes: Vec<u8>) -> SharedBytes {
        if bytes.len() < KEPT_VEC_MIN {
            return SharedBytes::of_slice(&bytes);
        }
        let len = bytes.len();
        let (header, data) = Header::of_vec(bytes, 1);
        Shared::bytes(data, header, len)
    }

    #[inline(always)]
    fn inline(bytes: &[u8]) -> SharedBytes {
        let mut inline = [0; size_of::<Shared>()];
        inline[..bytes.len()].copy_from_slice(bytes);
        inline[INLINE_MAX] = bytes.len() as u8;
        SharedBytes(Repr { inline })
    }

    #[inline(always)]
    fn tag(&self) -> u8 {
        // SAFETY: both variants are initialized up to their last byte, which is plain data.
        unsafe { self.0.inline[INLINE_MAX] }
    }

    #[inline(always)]
    fn shared(&self) -> Option<&Shared> {
        if self.tag() != SHARED {
            return None;
        }
        // SAFETY: the tag says that it is the shared variant.
        Some(unsafe { &self.0.shared })
    }

    #[inline(always)]
    pub fn as_slice(&self) -> &[u8] {
        match self.shared() {
            // SAFETY: this reference keeps the bytes alive, which never change.
            Some(shared) => unsafe { std::slice::from_raw_parts(shared.data, shared.len()) },
            // SAFETY: the tag says that it is the inline variant, and is its length.
            None => unsafe { self.0.inline.get_unchecked(..usize::from(self.tag())) },
        }
    }

    /// Shares the allocation, unless the range is short. Panics if it is out of bounds.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> SharedBytes {
        let bytes = &self[(range.start_bound().cloned(), range.end_bound().cloned())];
        match self.shared() {
            Some(shared) if bytes.len() > INLINE_MAX => {
                // SAFETY: `self` has a reference.
                unsafe { Header::retain(shared.header) };
                Shared::bytes(bytes.as_ptr(), shared.header, bytes.len())
            }
            _ => SharedBytes::of_slice(bytes),
        }
    }

    /// Bytes of memory that this reference keeps allocated.
    #[cfg(test)]
    pub fn pinned_bytes(&self) -> usize {
        // SAFETY: this reference keeps the header alive.
        self.shared().map_or(0, |shared| unsafe { shared.header.as_ref() }.capacity)
    }

    /// Without a copy if this is the only reference to a kept vector, and most of it.
    pub fn into_vec(self) -> Vec<u8> {
        if let Some(&Shared { data, header, .. }) = self.shared() {
            // SAFETY: this reference keeps the header alive.
            let Header { capacity, vec, ref references } = *unsafe { header.as_ref() };
            let len = self.len();
            if data == vec && len >= capacity / 2 && references.load(Ordering::Acquire) == 1 {
                std::mem::forget(self);
                // SAFETY: the only reference is forgotten. The vector came from `Header::of_vec`
                // and had at least `len` bytes, from its start on.
                unsafe {
                    drop(Box::from_raw(header.as_ptr()));
                    return Vec::from_raw_parts(vec, len, capacity);
                }
            }
        }
        self.to_vec()
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Clone for SharedBytes {
    #[inline]
    fn clone(&self) -> SharedBytes {
        match self.shared() {
            Some(&shared) => {
                // SAFETY: `self` has a reference.
                unsafe { Header::retain(shared.header) };
                SharedBytes(Repr { shared })
            }
            // SAFETY: the tag says that it is the inline variant.
            None => SharedBytes(Repr { inline: unsafe { self.0.inline } }),
        }
    }
}

impl Drop for SharedBytes {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(shared) = self.shared() {
            // SAFETY: this is the reference of `self`.
            unsafe { Header::release(shared.header, 1) };
        }
    }
}

/// Bytes of many rows in one allocation.
pub struct Chunk {
    header: NonNull<Header>,
    data: *const u8,
    len: usize,
    /// References for later rows, besides the chunk's own.
    spare: usize,
}

// SAFETY: as for `SharedBytes`.
unsafe impl Send for Chunk {}
// SAFETY: as for `SharedBytes`.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Makes room for `len` bytes of rows.
    pub fn buffer(len: usize) -> Vec<u8> {
        Vec::with_capacity(len + PADDING)
    }

    /// Makes room for `more` bytes in a buffer that never gets more than `len_max`.
    #[inline(always)]
    pub fn reserve(bytes: &mut Vec<u8>, more: usize, len_max: usize) {
        if bytes.capacity() - bytes.len() < more + PADDING {
            bytes.reserve_exact((len_max - bytes.len()).max(more) + PADDING);
        }
    }

    /// `references`: how many rows will not fit inside. More take longer.
    pub fn new(mut bytes: Vec<u8>, references: usize) -> Chunk {
        let len = bytes.len();
        bytes.resize(len + PADDING, 0);
        let (header, data) = Header::of_vec(bytes, references + 1);
        Chunk { header, data, len, spare: references }
    }

    /// Panics if the range is out of bounds.
    #[inline(always)]
    pub fn get(&self, start: usize, end: usize) -> &[u8] {
        assert!(start <= end && end <= self.len);
        // SAFETY: the chunk's reference keeps its `len` bytes alive.
        unsafe { std::slice::from_raw_parts(self.data.add(start), end - start) }
    }

    /// Panics if the range is out of bounds.
    #[inline(always)]
    pub fn take(&mut self, start: usize, end: usize) -> SharedBytes {
        assert!(start <= end && end <= self.len);
        // SAFETY: within the allocation. Not by way of a slice of the row, which could not be read
        // beyond its end.
        let (data, len) = (unsafe { self.data.add(start) }, end - start);
        if len <= INLINE_MAX {
            // SAFETY: `PADDING` bytes follow the rows, so all of this is within the allocation, and
            // initialized.
            let mut inline: [u8; size_of::<Shared>()] = unsafe { data.cast::<[u8; PADDING]>().read() };
            inline[INLINE_MAX] = len as u8;
            return SharedBytes(Repr { inline });
        }
        match self.spare.checked_sub(1) {
            Some(spare) => self.spare = spare,
            // SAFETY: the chunk has its own reference.
            None => unsafe { Header::retain(self.header) },
        }
        Shared::bytes(data, self.header, len)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: these are the chunk's own reference and those of rows never taken.
        unsafe { Header::release(self.header, self.spare + 1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_of(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i % 251) as u8).collect()
    }

    fn references(bytes: &SharedBytes) -> usize {
        // SAFETY: `bytes` keeps its header alive.
        bytes.shared().map_or(0, |shared| unsafe { shared.header.as_ref() }.references.load(Ordering::Relaxed))
    }

    #[test]
    fn bytes_of_all_lengths_come_back() {
        for len in (0..64).chain([KEPT_VEC_MIN - 1, KEPT_VEC_MIN, 1 << 20]) {
            let bytes = bytes_of(len);
            for shared in [SharedBytes::of_slice(&bytes), SharedBytes::of_vec(bytes.clone())] {
                assert_eq!(*shared, bytes[..]);
                assert_eq!(*shared.clone(), bytes[..]);
                assert_eq!(references(&shared), usize::from(len > INLINE_MAX));
                assert_eq!(shared.into_vec(), bytes);
            }
        }
    }

    #[test]
    fn into_vec_returns_a_kept_vector_itself() {
        let bytes = bytes_of(KEPT_VEC_MIN);
        let address = bytes.as_ptr();
        let shared = SharedBytes::of_vec(bytes);
        let clone = shared.clone();
        let copied = clone.into_vec();
        assert_ne!(copied.as_ptr(), address, "another reference still needs it");
        let begin = shared.slice(..KEPT_VEC_MIN / 2);
        drop(shared);
        let kept = begin.into_vec();
        assert_eq!(kept.as_ptr(), address);
    }

    #[test]
    fn rows_of_a_chunk_outlive_it_and_need_no_more_references() {
        let mut bytes = Chunk::buffer(100);
        bytes.extend_from_slice(&bytes_of(100));
        let mut chunk = Chunk::new(bytes, 2);
        let rows = [chunk.take(0, 10), chunk.take(10, 60), chunk.take(60, 100), chunk.take(80, 100)];
        assert_eq!(references(&rows[1]), 3);
        let further = chunk.take(0, 100);
        assert_eq!(references(&further), 4);
        drop(chunk);
        assert_eq!(references(&further), 3);
        for (row, range) in rows.iter().zip([0..10, 10..60, 60..100, 80..100]) {
            assert_eq!(**row, bytes_of(100)[range]);
        }
    }

    #[test]
    fn a_chunk_dropped_early_gives_back_the_references_of_its_other_rows() {
        let mut bytes = Chunk::buffer(100);
        bytes.extend_from_slice(&bytes_of(100));
        let mut chunk = Chunk::new(bytes, 50);
        let row = chunk.take(0, 50);
        drop(chunk);
        assert_eq!(references(&row), 1);
    }

    #[test]
    #[should_panic(expected = "start <= end && end <= self.len")]
    fn a_row_beyond_the_chunk_is_refused() {
        Chunk::new(vec![1], 0).take(0, 2);
    }

    #[test]
    fn threads_drop_the_last_reference_once() {
        for _ in 0..200 {
            let shared = SharedBytes::of_vec(bytes_of(KEPT_VEC_MIN));
            let clones: Vec<SharedBytes> = (0..4).map(|_| shared.clone()).collect();
            drop(shared);
            std::thread::scope(|scope| {
                for clone in clones {
                    scope.spawn(move || assert_eq!(*clone, bytes_of(KEPT_VEC_MIN)[..]));
                }
            });
        }
    }

    proptest! {
        #[test]
        fn slices_of_slices_equal_those_of_the_bytes(len in 0_usize..5000, cuts: [u16; 4]) {
            let bytes = bytes_of(len);
            let cut = |of: usize, at: u16| usize::from(at) % (of + 1);
            let start = cut(len, cuts[0]);
            let end = start + cut(len - start, cuts[1]);
            let slice = SharedBytes::of_vec(bytes.clone()).slice(start..end);
            prop_assert_eq!(&*slice, &bytes[start..end]);
            let start_within = cut(end - start, cuts[2]);
            prop_assert_eq!(&*slice.slice(start_within..), &bytes[start + start_within..end]);
        }
    }
}
