//! The cursor that memtables, views and merges have in common.

use super::{EntryRef, Result, SequenceNumber};

/// A position in a sorted source, read at one snapshot.
///
/// A cursor shows **one entry a key**: the newest version at or below its snapshot, tombstones included. Keys
/// without such a version are not shown. A source that holds range tombstones of its own may, but need not, leave
/// out entries that they delete at the snapshot.
///
/// A new cursor, and one that has run off either end, is not valid: only the four seeks may be called then.
/// After an error the cursor is not valid. The direction may change at any valid position.
pub trait Cursor {
    /// Moves to the first key that is `key` or greater.
    fn seek(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the last key that is less than `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the first key.
    fn seek_first(&mut self) -> Result<()>;
    /// Moves to the last key.
    fn seek_last(&mut self) -> Result<()>;
    /// Moves to the next key. Precondition: valid.
    fn next(&mut self) -> Result<()>;
    /// Moves to the key before. Precondition: valid.
    fn prev(&mut self) -> Result<()>;
    /// Whether the cursor stands on an entry.
    fn valid(&self) -> bool;
    /// The entry it stands on; borrowed until the cursor moves. Precondition: valid.
    fn entry(&self) -> EntryRef<'_>;
    /// The internal key it stands on. Precondition: valid.
    fn key(&self) -> &[u8] {
        self.entry().key
    }
    /// The sequence number of the entry it stands on. Precondition: valid.
    fn sequence(&self) -> SequenceNumber {
        self.entry().sequence
    }
}

impl<C: Cursor + ?Sized> Cursor for Box<C> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        (**self).seek(key)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        (**self).seek_before(key)
    }

    fn seek_first(&mut self) -> Result<()> {
        (**self).seek_first()
    }

    fn seek_last(&mut self) -> Result<()> {
        (**self).seek_last()
    }

    fn next(&mut self) -> Result<()> {
        (**self).next()
    }

    fn prev(&mut self) -> Result<()> {
        (**self).prev()
    }

    fn valid(&self) -> bool {
        (**self).valid()
    }

    fn entry(&self) -> EntryRef<'_> {
        (**self).entry()
    }
}
