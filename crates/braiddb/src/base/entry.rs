//! Entries: one version of one key.

use super::SequenceNumber;

/// Meaning of an entry's value. The numbers are part of every file format and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum EntryKind {
    /// A plain value.
    Value = 1,
    /// A deletion of the key; the value is empty.
    Tombstone = 2,
    /// A reference to a value in a blob file.
    BlobRef = 3,
    /// Merge operands, for the value beneath.
    Merge = 4,
    /// A value that expires: eight bytes of expiry time (microseconds since 1970, little-endian),
    /// the kind byte without expiry ([`EntryKind::Value`], [`EntryKind::BlobRef`] or
    /// [`EntryKind::Stream`]), and the value of that kind.
    Expiring = 5,
    /// A list of references to the pieces of a value in blob files.
    Stream = 6,
    /// A deletion of all keys from this key up to the value (exclusive). In logs and batches only;
    /// memtables and runs keep range tombstones separately.
    RangeDelete = 7,
}

impl EntryKind {
    /// Returns the kind of a byte in a file; `None` for a byte that no format version has written.
    pub fn from_byte(byte: u8) -> Option<EntryKind> {
        Some(match byte {
            1 => EntryKind::Value,
            2 => EntryKind::Tombstone,
            3 => EntryKind::BlobRef,
            4 => EntryKind::Merge,
            5 => EntryKind::Expiring,
            6 => EntryKind::Stream,
            7 => EntryKind::RangeDelete,
            _ => return None,
        })
    }

    /// Returns whether a reader needs more than the entry's bytes (the selector's resolve bit).
    pub fn needs_resolving(self) -> bool {
        matches!(self, EntryKind::BlobRef | EntryKind::Merge | EntryKind::Expiring | EntryKind::Stream)
    }
}

/// One version of one key, borrowed from its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The internal key.
    pub key: &'a [u8],
    /// The commit that wrote the entry.
    pub sequence: SequenceNumber,
    /// The meaning of `value`.
    pub kind: EntryKind,
    /// The value in the form of `kind`; empty for a tombstone.
    pub value: &'a [u8],
}

impl EntryRef<'_> {
    /// Adds `given` to the entry's sequence number: the number that the manifest assigns to a loaded
    /// run, or 0 for a run whose entries have their own.
    #[inline(always)]
    pub fn numbered(self, given: SequenceNumber) -> Self {
        EntryRef { sequence: self.sequence.wrapping_add(given), ..self }
    }
}

/// Contents of an entry without its expiry time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content<'a> {
    /// The meaning of `value`; never [`EntryKind::Expiring`].
    pub kind: EntryKind,
    /// The value in the form of `kind`.
    pub value: &'a [u8],
    /// The expiry time, in microseconds since 1970: from then on there is no value.
    pub expires_us: Option<u64>,
}

impl<'a> Content<'a> {
    /// `None` for an expiring entry that cannot be decoded.
    #[inline]
    pub fn of(kind: EntryKind, value: &'a [u8]) -> Option<Content<'a>> {
        if kind != EntryKind::Expiring {
            return Some(Content { kind, value, expires_us: None });
        }
        let (expires, rest) = value.split_first_chunk()?;
        let (kind, value) = rest.split_first()?;
        let kind = EntryKind::from_byte(*kind)
            .filter(|kind| matches!(kind, EntryKind::Value | EntryKind::BlobRef | EntryKind::Stream))?;
        Some(Content { kind, value, expires_us: Some(u64::from_le_bytes(*expires)) })
    }

    /// Returns kind and value; an expiring value is built in `room`.
    pub fn entry<'b>(&self, room: &'b mut Vec<u8>) -> (EntryKind, &'b [u8])
    where
        'a: 'b,
    {
        let Some(expires) = self.expires_us else { return (self.kind, self.value) };
        room.clear();
        room.extend_from_slice(&expires.to_le_bytes());
        room.push(self.kind as u8);
        room.extend_from_slice(self.value);
        (EntryKind::Expiring, room)
    }
}

#[cfg(test)]
mod tests {
    use super::{Content, EntryKind};

    #[test]
    fn expiring_entry_contains_only_values_and_references() {
        for kind in [EntryKind::Value, EntryKind::BlobRef, EntryKind::Stream] {
            for expires_us in [None, Some(0), Some(u64::MAX)] {
                let content = Content { kind, value: b"value", expires_us };
                let mut room = Vec::new();
                let (outer, value) = content.entry(&mut room);
                assert_eq!(outer == EntryKind::Expiring, expires_us.is_some());
                assert_eq!(Content::of(outer, value), Some(content));
            }
        }
        for inner in [0, 2, 4, 5, 7, 8] {
            assert_eq!(Content::of(EntryKind::Expiring, &[1, 0, 0, 0, 0, 0, 0, 0, inner, 9]), None);
        }
        assert_eq!(Content::of(EntryKind::Expiring, &[0; 8]), None);
    }
}
