//! Entries in the arena, and the chain of versions of one key.
//!
//! ```text
//! EntryHeader, 24 bytes: sequence u64 | history pointer | key length, kind u32 | value length u32
//!                        followed by key bytes | value bytes | padding to 8 bytes
//! History, 24 bytes:     older pointer | jump pointer | depth u64
//! ```
//!
//! An entry is complete before a pointer to it is stored with `Release`, and never changes: a
//! reader that loads the pointer with `Acquire` may read all of it. Each version stores its own
//! key, next to its value. A version that replaces another has a `History`: the previous version,
//! and a jump to an older one as in Myers' random-access list ("An applicative random-access
//! stack", 1983). So an old snapshot finds its version of a hot key in O(log n) steps.

use super::arena::{Arena, Kind};
use crate::base::{EntryKind, EntryRef, SequenceNumber, limits};
use std::{alloc::Layout, marker::PhantomData, ptr::NonNull, slice};

const LINE_BYTES: usize = 64;

const KEY_BYTES_FIRST: usize = 16;

/// Cache lines to prefetch; the hardware prefetches the following ones.
const PREFETCHED_LINES: usize = 6;

#[derive(Debug)]
#[repr(C)]
pub(super) struct EntryHeader {
    sequence: SequenceNumber,
    history: *const History,
    /// Key length in the upper 24 bits, kind in the lower 8.
    key_length_and_kind: u32,
    value_length: u32,
}

#[derive(Debug)]
#[repr(C)]
struct History {
    older: NonNull<EntryHeader>,
    jump: NonNull<EntryHeader>,
    depth: u64,
}

const _: () = assert!(size_of::<EntryHeader>() <= 24 && size_of::<History>() <= 24);
const _: () = assert!(limits::MAX_INTERNAL_KEY_LEN < 1 << 24);

/// A complete entry in an arena that lives at least for `'a`.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryPtr<'a>(NonNull<EntryHeader>, PhantomData<&'a EntryHeader>);

// SAFETY: an `EntryPtr` is a shared reference to bytes that never change.
unsafe impl Send for EntryPtr<'_> {}
// SAFETY: as above.
unsafe impl Sync for EntryPtr<'_> {}

impl<'a> EntryPtr<'a> {
    /// `older` is the version that the entry replaces.
    ///
    /// # Safety
    /// The arena lives for `'a`.
    pub unsafe fn write(arena: &mut Arena, entry: EntryRef<'_>, older: Option<EntryPtr<'a>>) -> EntryPtr<'a> {
        let EntryRef { key, sequence, kind, value } = entry;
        assert!(key.len() <= limits::MAX_INTERNAL_KEY_LEN, "the caller checks key lengths");
        let value_length = u32::try_from(value.len()).expect("the caller checks value lengths");
        let key_length = u32::try_from(key.len()).expect("checked above");
        let history = older.map_or(std::ptr::null(), |older| {
            let history = arena.allocate(Kind::Entry, Layout::new::<History>()).cast::<History>();
            // SAFETY: fresh memory of this layout.
            unsafe {
                history.write(History { older: older.0, jump: older.jump_of_newer().0, depth: older.depth() + 1 })
            };
            history.as_ptr().cast_const()
        });
        let size = size_of::<EntryHeader>() + key.len() + value.len();
        let layout = Layout::from_size_align(size, align_of::<EntryHeader>()).expect("below isize::MAX");
        let piece = arena.allocate(Kind::Entry, layout);
        let key_length_and_kind = key_length << 8 | kind as u32;
        // SAFETY: the piece is fresh and has room for the header and, after it, both slices, which
        // cannot overlap it.
        unsafe {
            piece.cast().write(EntryHeader { sequence, history, key_length_and_kind, value_length });
            let bytes = piece.add(size_of::<EntryHeader>());
            bytes.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            bytes.add(key.len()).copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
        }
        EntryPtr(piece.cast(), PhantomData)
    }

    /// # Safety
    /// `pointer` came from [`EntryPtr::as_ptr`] through a `Release` store and an `Acquire` load;
    /// its arena lives for `'a`.
    pub unsafe fn from_ptr(pointer: *mut EntryHeader) -> Option<EntryPtr<'a>> {
        NonNull::new(pointer).map(|pointer| EntryPtr(pointer, PhantomData))
    }

    pub fn as_ptr(self) -> *mut EntryHeader {
        self.0.as_ptr()
    }

    fn header(self) -> &'a EntryHeader {
        // SAFETY: points to a complete entry that lives for `'a` and never changes.
        unsafe { self.0.as_ref() }
    }

    fn history(self) -> Option<&'a History> {
        // SAFETY: null, or a complete history in the same arena, written before the entry.
        unsafe { self.header().history.as_ref() }
    }

    fn key_length(self) -> usize {
        (self.header().key_length_and_kind >> 8) as usize
    }

    pub fn sequence(self) -> SequenceNumber {
        self.header().sequence
    }

    pub fn key(self) -> &'a [u8] {
        // SAFETY: the key's bytes follow the header, in the same piece of the arena.
        unsafe { slice::from_raw_parts(self.0.as_ptr().add(1).cast::<u8>(), self.key_length()) }
    }

    pub fn kind(self) -> EntryKind {
        EntryKind::from_byte((self.header().key_length_and_kind & 0xff) as u8).expect("written from a kind")
    }

    pub fn row(self) -> (&'a [u8], usize) {
        let key_length = self.key_length();
        let length = key_length + self.header().value_length as usize;
        // SAFETY: both follow the header, in the same piece of the arena.
        let bytes = unsafe { slice::from_raw_parts(self.0.as_ptr().add(1).cast::<u8>(), length) };
        (bytes, key_length)
    }

    pub fn entry(self) -> EntryRef<'a> {
        let (bytes, key_length) = self.row();
        let (key, value) = bytes.split_at(key_length);
        EntryRef { key, sequence: self.sequence(), kind: self.kind(), value }
    }

    pub fn older(self) -> Option<EntryPtr<'a>> {
        self.history().map(|history| EntryPtr(history.older, PhantomData))
    }

    pub fn visible_at(self, snapshot: SequenceNumber) -> Option<EntryPtr<'a>> {
        let mut version = self;
        while version.sequence() > snapshot {
            let history = version.history()?;
            let jump = EntryPtr(history.jump, PhantomData);
            version = if jump.sequence() > snapshot { jump } else { EntryPtr(history.older, PhantomData) };
        }
        Some(version)
    }

    fn depth(self) -> u64 {
        self.history().map_or(0, |history| history.depth)
    }

    fn jump(self) -> EntryPtr<'a> {
        self.history().map_or(self, |history| EntryPtr(history.jump, PhantomData))
    }

    /// The jump of a version that replaces this one: twice as far as this one's jump if that and
    /// the next jump are equally long, else to this one.
    fn jump_of_newer(self) -> EntryPtr<'a> {
        let first = self.jump();
        let second = first.jump();
        if self.depth() - first.depth() == first.depth() - second.depth() { second } else { self }
    }

    pub fn prefetch_rest(self) {
        let len = size_of::<EntryHeader>() + self.key_length() + self.header().value_length as usize;
        let start = self.0.as_ptr().cast::<u8>().cast_const();
        for line in 1..=(len / LINE_BYTES).min(PREFETCHED_LINES) {
            super::search::prefetch(start.wrapping_add(line * LINE_BYTES));
        }
    }

    pub fn prefetch(self) {
        super::search::prefetch(self.0.as_ptr().cast());
    }

    /// The header and the begin of the key may be on two cache lines.
    pub fn prefetch_key(self) {
        let start = self.0.as_ptr().cast::<u8>().cast_const();
        super::search::prefetch(start);
        super::search::prefetch(start.wrapping_add(size_of::<EntryHeader>() + KEY_BYTES_FIRST));
    }
}
