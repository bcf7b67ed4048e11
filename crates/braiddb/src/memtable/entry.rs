//! Entries in the arena, and the chain of versions of one key.
//!
//! ```text
//! EntryHeader  sequence u64 | history pointer | key length and kind u32 | value length u32     24 bytes
//!              key bytes | value bytes | padding to 8 bytes
//! History      older pointer | jump pointer | depth u64                                         24 bytes
//! ```
//!
//! An entry is written whole before a pointer to it is stored with `Release`; whoever loads that pointer with
//! `Acquire` may read all of it, and it never changes. Each version holds its own key, so that key and value are read
//! from one place. A version that replaces another has a `History`: the version before it, and a jump to an older one
//! as in Myers' random-access list ("An applicative random-access stack", 1983), so that a reader with an old snapshot
//! finds its version of a hot key in a logarithmic number of steps.

use super::arena::{Arena, Kind};
use crate::base::{EntryKind, EntryRef, SequenceNumber, limits};
use std::{alloc::Layout, marker::PhantomData, ptr::NonNull, slice};

/// A cache line.
const LINE_BYTES: usize = 64;

/// So many bytes of a key are compared first.
const KEY_BYTES_FIRST: usize = 16;

/// The processor follows what is longer by itself.
const PREFETCHED_LINES: usize = 6;

/// The fixed part of an entry.
#[derive(Debug)]
#[repr(C)]
pub(super) struct EntryHeader {
    sequence: SequenceNumber,
    /// Null for the first version of a key.
    history: *const History,
    /// The key's length in the upper 24 bits, the kind in the lower 8.
    key_length_and_kind: u32,
    value_length: u32,
}

/// How a version finds the ones it replaced.
#[derive(Debug)]
#[repr(C)]
struct History {
    older: NonNull<EntryHeader>,
    jump: NonNull<EntryHeader>,
    /// How many versions are older.
    depth: u64,
}

const _: () = assert!(size_of::<EntryHeader>() <= 24 && size_of::<History>() <= 24);
const _: () = assert!(limits::MAX_INTERNAL_KEY_LEN < 1 << 24);

/// A whole, published or about to be published entry of an arena that lives for `'a` at least.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryPtr<'a>(NonNull<EntryHeader>, PhantomData<&'a EntryHeader>);

// SAFETY: an `EntryPtr` is a shared reference to bytes that never change.
unsafe impl Send for EntryPtr<'_> {}
// SAFETY: as above.
unsafe impl Sync for EntryPtr<'_> {}

impl<'a> EntryPtr<'a> {
    /// Writes an entry into the arena. `older` is the version that it replaces.
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
        // SAFETY: the piece is fresh and holds the header and, after it, both slices, which cannot overlap it.
        unsafe {
            piece.cast().write(EntryHeader { sequence, history, key_length_and_kind, value_length });
            let bytes = piece.add(size_of::<EntryHeader>());
            bytes.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            bytes.add(key.len()).copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
        }
        EntryPtr(piece.cast(), PhantomData)
    }

    /// # Safety
    /// `pointer` came from [`EntryPtr::as_ptr`], by an `Acquire` load of what was stored with `Release`; its arena
    /// lives for `'a`.
    pub unsafe fn from_ptr(pointer: *mut EntryHeader) -> Option<EntryPtr<'a>> {
        NonNull::new(pointer).map(|pointer| EntryPtr(pointer, PhantomData))
    }

    /// For a shared field.
    pub fn as_ptr(self) -> *mut EntryHeader {
        self.0.as_ptr()
    }

    fn header(self) -> &'a EntryHeader {
        // SAFETY: points to a whole entry that lives for `'a` and never changes.
        unsafe { self.0.as_ref() }
    }

    fn history(self) -> Option<&'a History> {
        // SAFETY: null, or a whole history in the same arena, written before the entry.
        unsafe { self.header().history.as_ref() }
    }

    fn key_length(self) -> usize {
        (self.header().key_length_and_kind >> 8) as usize
    }

    /// The commit that wrote it.
    pub fn sequence(self) -> SequenceNumber {
        self.header().sequence
    }

    /// The internal key.
    pub fn key(self) -> &'a [u8] {
        // SAFETY: the key's bytes stand right after the header, in the same piece of the arena.
        unsafe { slice::from_raw_parts(self.0.as_ptr().add(1).cast::<u8>(), self.key_length()) }
    }

    /// What it means.
    pub fn kind(self) -> EntryKind {
        EntryKind::from_byte((self.header().key_length_and_kind & 0xff) as u8).expect("written from a kind")
    }

    /// Its key and value, one right after the other, and the length of the key.
    pub fn row(self) -> (&'a [u8], usize) {
        let key_length = self.key_length();
        let length = key_length + self.header().value_length as usize;
        // SAFETY: both stand right after the header, in the same piece of the arena.
        let bytes = unsafe { slice::from_raw_parts(self.0.as_ptr().add(1).cast::<u8>(), length) };
        (bytes, key_length)
    }

    /// The whole entry.
    pub fn entry(self) -> EntryRef<'a> {
        let (bytes, key_length) = self.row();
        let (key, value) = bytes.split_at(key_length);
        EntryRef { key, sequence: self.sequence(), kind: self.kind(), value }
    }

    /// The version that this one replaced.
    pub fn older(self) -> Option<EntryPtr<'a>> {
        self.history().map(|history| EntryPtr(history.older, PhantomData))
    }

    /// This version or the newest older one that is at or below `snapshot`.
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

    /// Where a version that replaces this one jumps to: twice as far as this one's own jump if that and the one
    /// after it are equally long, else to this one.
    fn jump_of_newer(self) -> EntryPtr<'a> {
        let first = self.jump();
        let second = first.jump();
        if self.depth() - first.depth() == first.depth() - second.depth() { second } else { self }
    }

    /// Asks for the rest of the entry, up to a few lines; its first bytes are there.
    pub fn prefetch_rest(self) {
        let len = size_of::<EntryHeader>() + self.key_length() + self.header().value_length as usize;
        let start = self.0.as_ptr().cast::<u8>().cast_const();
        for line in 1..=(len / LINE_BYTES).min(PREFETCHED_LINES) {
            super::search::prefetch(start.wrapping_add(line * LINE_BYTES));
        }
    }

    /// Asks for the entry's first bytes, to be read soon.
    pub fn prefetch(self) {
        super::search::prefetch(self.0.as_ptr().cast());
    }

    /// Asks for the entry's header and the beginning of its key, which may stand on two lines.
    pub fn prefetch_key(self) {
        let start = self.0.as_ptr().cast::<u8>().cast_const();
        super::search::prefetch(start);
        super::search::prefetch(start.wrapping_add(size_of::<EntryHeader>() + KEY_BYTES_FIRST));
    }
}
