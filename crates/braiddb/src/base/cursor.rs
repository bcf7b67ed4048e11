//! The cursor interface of memtables, views and merges.

use super::{EntryRef, Result};

/// A position in a sorted source, read at one snapshot.
///
/// A cursor shows **one entry a key**: the newest version at or below its snapshot, tombstones
/// included. A key without such a version is not shown. A source with range tombstones of its own
/// may leave out entries that they delete at the snapshot, but need not.
///
/// A cursor is invalid when new, after running off either end, and after an error; only the four
/// seeks may be called then. The direction may change at any valid position.
pub trait Cursor {
    /// Moves to the first key at or above `key`.
    fn seek(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the last key below `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the first key.
    fn seek_first(&mut self) -> Result<()>;
    /// Moves to the last key.
    fn seek_last(&mut self) -> Result<()>;
    /// Moves to the next key. Precondition: valid.
    fn next(&mut self) -> Result<()>;
    /// Moves to the previous key. Precondition: valid.
    fn prev(&mut self) -> Result<()>;
    /// Returns whether the cursor is on an entry.
    fn valid(&self) -> bool;
    /// Returns the current entry, borrowed until the cursor moves. Precondition: valid.
    fn entry(&self) -> EntryRef<'_>;
    /// Returns the current internal key. Precondition: valid.
    fn key(&self) -> &[u8] {
        self.entry().key
    }
    /// Returns the current entry's sequence number. Precondition: valid.
    #[cfg(test)]
    fn sequence(&self) -> super::SequenceNumber {
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
