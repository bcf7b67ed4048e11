//! Entries: one version of one key.

use super::SequenceNumber;

/// What an entry means. The numbers are part of every file format and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// The value stands in the entry.
    Value = 1,
    /// The key is deleted.
    Tombstone = 2,
    /// The value stands in a blob file: the entry's value is a blob reference.
    BlobRef = 3,
    /// An operand of a merge function. Reserved: written by no released version yet.
    Merge = 4,
    /// A value that expires: eight bytes of expiry time (microseconds since 1970, little-endian) stand before it.
    /// Reserved: written by no released version yet.
    Expiring = 5,
    /// One value of many under a key. Reserved: multi-trees put key and value into the internal key.
    MultiValue = 6,
    /// All keys from this key up to the value (exclusive) are deleted. In logs and batches only; memtables and runs
    /// keep range tombstones apart from entries.
    RangeDelete = 7,
}

impl EntryKind {
    /// The kind of a byte in a file; `None` for a byte that no version of the format has written.
    pub fn from_byte(byte: u8) -> Option<EntryKind> {
        Some(match byte {
            1 => EntryKind::Value,
            2 => EntryKind::Tombstone,
            3 => EntryKind::BlobRef,
            4 => EntryKind::Merge,
            5 => EntryKind::Expiring,
            6 => EntryKind::MultiValue,
            7 => EntryKind::RangeDelete,
            _ => return None,
        })
    }

    /// Whether a reader needs more than the entry's bytes to answer (the selector's resolve bit).
    pub fn needs_resolving(self) -> bool {
        matches!(self, EntryKind::BlobRef | EntryKind::Merge | EntryKind::Expiring)
    }
}

/// One version of one key, borrowed from wherever it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The internal key.
    pub key: &'a [u8],
    /// The commit that wrote it.
    pub sequence: SequenceNumber,
    /// What `value` means.
    pub kind: EntryKind,
    /// The value, or what `kind` says; empty for a tombstone.
    pub value: &'a [u8],
}
