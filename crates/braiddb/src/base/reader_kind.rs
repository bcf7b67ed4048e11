//! Kinds of readers.

use std::fmt;

/// What holds old versions: see [`crate::Stats::overstaying`] and [`crate::Error::ReaderExpired`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReaderKind {
    /// A [`crate::Snapshot`], with the cursors and iterators made of it.
    Snapshot,
    /// A [`crate::Cursor`] of its own.
    Cursor,
    /// An iterator of its own.
    Iterator,
    /// A [`crate::Transaction`], with its iterators and snapshots.
    Transaction,
    /// A call that looks up many keys as of one moment.
    MultiGet,
    /// A [`crate::StreamReader`] of its own.
    Stream,
}

impl fmt::Display for ReaderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ReaderKind::Snapshot => "snapshot",
            ReaderKind::Cursor => "cursor",
            ReaderKind::Iterator => "iterator",
            ReaderKind::Transaction => "transaction",
            ReaderKind::MultiGet => "multi_get",
            ReaderKind::Stream => "stream",
        })
    }
}
