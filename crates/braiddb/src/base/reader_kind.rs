//! Kinds of readers.

use std::fmt;

/// A kind of reader, which pins old versions: see [`crate::stats::Stats::overstaying`] and
/// [`crate::Error::ReaderExpired`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReaderKind {
    /// A [`crate::Snapshot`], with its cursors and iterators.
    Snapshot,
    /// A standalone [`crate::Cursor`].
    Cursor,
    /// A standalone iterator.
    Iterator,
    /// A [`crate::Transaction`], with its iterators and snapshots.
    Transaction,
    /// A call that looks up many keys at one snapshot.
    MultiGet,
    /// A standalone [`crate::streams::StreamReader`].
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
