//! The steps of a get, for a caller that asks for them.

use super::{EntryKind, EntryRef, SequenceNumber};
use std::fmt;

/// Observes a get. With [`NoTrace`] the compiler removes each call together with its closure, so
/// ordinary gets pay nothing.
pub trait ReadTrace: Copy {
    /// Notes a step.
    fn note(self, step: impl FnOnce() -> ReadStep);
    /// Runs `look`, whose result a later step needs. `None` without an observer.
    fn look<R>(self, look: impl FnOnce() -> R) -> Option<R>;
}

/// No observer.
#[derive(Clone, Copy, Debug)]
pub struct NoTrace;

impl ReadTrace for NoTrace {
    #[inline(always)]
    fn note(self, _step: impl FnOnce() -> ReadStep) {}

    #[inline(always)]
    fn look<R>(self, _look: impl FnOnce() -> R) -> Option<R> {
        None
    }
}

/// A step of a get, in [`Explain`](crate::stats::Explain).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadStep {
    /// The fast path for the latest value was tried. It reads the hash index and one block that is
    /// mapped and was checked recently; where that does not suffice, the general path follows. The
    /// other steps are those of the general path, which reads the same places.
    FastPath {
        /// It had the answer. A plain get ends here.
        is_answered: bool,
    },
    /// A memtable was searched.
    Memtable {
        /// 0: the one that takes writes. Then frozen ones, newest first.
        position: usize,
        /// Its entries.
        entries: usize,
        /// Its filter excluded the key, so it was not searched.
        is_excluded: bool,
        /// The newest visible version in it.
        found: Option<FoundEntry>,
        /// The newest visible range tombstone in it that covers the key.
        covered_by: Option<SequenceNumber>,
    },
    /// The partition of the key was found.
    Partition {
        /// Its number.
        id: u64,
        /// Its runs without a common view, which are searched one by one.
        unindexed_runs: usize,
        /// The runs of its view, which are searched together.
        view_runs: usize,
        /// The newest visible range tombstone in its runs that covers the key.
        covered_by: Option<SequenceNumber>,
    },
    /// An unindexed run was left out.
    RunSkipped {
        /// Number of the run.
        run: u64,
        /// The reason.
        reason: SkipReason,
    },
    /// The hash index of a view was searched, in memory.
    HashIndex {
        /// The view.
        view: ViewName,
        /// Entries with the key's hash tag.
        candidates: usize,
        /// A key that matches no candidate is absent; otherwise the anchors are searched next.
        is_complete: bool,
    },
    /// The anchors of a view led to a segment, whose record was read.
    Segment {
        /// The view.
        view: ViewName,
        /// Number of the segment.
        segment: u32,
        /// Entries with the key's hash tag.
        candidates: u32,
        /// Where the page with the record was.
        source: ReadSource,
    },
    /// A block of a run was read, for one of its entries.
    Block {
        /// Number of the run.
        run: u64,
        /// Number of the block.
        block: u32,
        /// Its offset in the file, in bytes.
        offset: u64,
        /// Its length in the file, in bytes.
        bytes: u64,
        /// Where it was.
        source: ReadSource,
    },
    /// An entry was compared with the key.
    Compared {
        /// The entry, if it has the key. Otherwise another key has the same hash tag.
        found: Option<FoundEntry>,
    },
    /// A value was read from a blob file.
    Blob {
        /// Number of the file.
        file: u64,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Bytes of the value.
        bytes: u64,
    },
    /// A value was read in pieces from blob files.
    Stream {
        /// Number of its pieces.
        pieces: usize,
        /// Bytes of the value.
        bytes: u64,
    },
    /// Merge operands were applied to the version beneath them, which was searched for in the same
    /// way.
    Merged {
        /// Bytes of the result.
        bytes: u64,
    },
}

/// A version of the key, in [`ReadStep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundEntry {
    /// What it is.
    pub kind: FoundKind,
    /// The commit that wrote it.
    pub sequence: SequenceNumber,
}

/// The kind of a [`FoundEntry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FoundKind {
    /// A value.
    Value,
    /// A tombstone: the key is deleted.
    Tombstone,
    /// A reference to a value in a blob file.
    Blob,
    /// References to the pieces of a value in blob files.
    Stream,
    /// Merge operands.
    Merge,
    /// A value with an expiry time.
    Expiring,
}

/// Why a run was not searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SkipReason {
    /// Its filter, in memory, excludes the key.
    Filter,
    /// The key is below its first or above its last key.
    KeyRange,
    /// All its entries are older than the version found.
    Older,
}

/// The place of a block or page before it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadSource {
    /// In the block cache.
    Cache,
    /// In the mapped file, in memory, checked recently: no copy, no check.
    Mapped,
    /// In the mapped file, in memory, but its checksum was due.
    MappedUnchecked,
    /// On the disk.
    Disk,
}

/// The name of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ViewName {
    /// The view of a partition, in a file of its own with this number.
    File(u64),
    /// The view inside the run with this number.
    OfRun(u64),
}

impl FoundEntry {
    pub(crate) fn of(entry: &EntryRef<'_>) -> FoundEntry {
        let kind = match entry.kind {
            EntryKind::Value => FoundKind::Value,
            EntryKind::Tombstone | EntryKind::RangeDelete => FoundKind::Tombstone,
            EntryKind::BlobRef => FoundKind::Blob,
            EntryKind::Stream => FoundKind::Stream,
            EntryKind::Merge => FoundKind::Merge,
            EntryKind::Expiring => FoundKind::Expiring,
        };
        FoundEntry { kind, sequence: entry.sequence }
    }
}

impl fmt::Display for FoundEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of commit {}", self.kind, self.sequence)
    }
}

impl fmt::Display for FoundKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FoundKind::Value => "value",
            FoundKind::Tombstone => "tombstone",
            FoundKind::Blob => "reference to a blob",
            FoundKind::Stream => "list of pieces",
            FoundKind::Merge => "merge operands",
            FoundKind::Expiring => "value with an expiry time",
        })
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SkipReason::Filter => "its filter excludes the key",
            SkipReason::KeyRange => "the key is outside of its range",
            SkipReason::Older => "it is older than the version found",
        })
    }
}

impl fmt::Display for ReadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReadSource::Cache => "cached",
            ReadSource::Mapped => "mapped",
            ReadSource::MappedUnchecked => "mapped, checksum due",
            ReadSource::Disk => "read from disk",
        })
    }
}

impl fmt::Display for ViewName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ViewName::File(number) => write!(f, "view {number}"),
            ViewName::OfRun(number) => write!(f, "view in run {number}"),
        }
    }
}

impl fmt::Display for ReadStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadStep::FastPath { is_answered: true } => f.write_str("fast path: answered"),
            ReadStep::FastPath { is_answered: false } => f.write_str("fast path: no answer"),
            ReadStep::Memtable { position, entries, is_excluded, found, covered_by } => {
                match position {
                    0 => write!(f, "active memtable, {entries} entries: ")?,
                    _ => write!(f, "frozen memtable {position}, {entries} entries: ")?,
                }
                match (found, is_excluded) {
                    (Some(found), _) => write!(f, "{found}")?,
                    (None, true) => f.write_str("its filter excludes the key")?,
                    (None, false) => f.write_str("not there")?,
                }
                write_covered(f, *covered_by)
            }
            ReadStep::Partition { id, unindexed_runs, view_runs, covered_by } => {
                write!(f, "partition {id}: {unindexed_runs} unindexed runs, {view_runs} runs in its view")?;
                write_covered(f, *covered_by)
            }
            ReadStep::RunSkipped { run, reason } => write!(f, "run {run}: left out, {reason}"),
            ReadStep::HashIndex { view, candidates, is_complete } => {
                let end = if *is_complete { "" } else { ", perhaps not all" };
                write!(f, "hash index of {view}: {candidates} candidates{end}")
            }
            ReadStep::Segment { view, segment, candidates, source } => {
                write!(f, "anchors of {view}: segment {segment}, {source}, {candidates} candidates")
            }
            ReadStep::Block { run, block, offset, bytes, source } => {
                write!(f, "block {block} of run {run}, {bytes} bytes at {offset}: {source}")
            }
            ReadStep::Compared { found: Some(found) } => write!(f, "key found: {found}"),
            ReadStep::Compared { found: None } => f.write_str("another key"),
            ReadStep::Blob { file, offset, bytes } => {
                write!(f, "blob of {bytes} bytes in file {file} at {offset}: read")
            }
            ReadStep::Stream { pieces, bytes } => write!(f, "{bytes} bytes in {pieces} pieces of blob files: read"),
            ReadStep::Merged { bytes } => write!(f, "operands merged: {bytes} bytes"),
        }
    }
}

fn write_covered(f: &mut fmt::Formatter<'_>, covered_by: Option<SequenceNumber>) -> fmt::Result {
    covered_by.map_or(Ok(()), |sequence| write!(f, ", deleted by the range tombstone of commit {sequence}"))
}
