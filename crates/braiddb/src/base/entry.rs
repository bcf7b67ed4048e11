//! Entries: one version of one key.

use super::SequenceNumber;

/// What an entry means. The numbers are part of every file format and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum EntryKind {
    /// The value stands in the entry.
    Value = 1,
    /// The key is deleted.
    Tombstone = 2,
    /// The value stands in a blob file: the entry's value is a blob reference.
    BlobRef = 3,
    /// What merge functions are to do to the value beneath.
    Merge = 4,
    /// A value with an end: eight bytes of expiry time (microseconds since 1970, little-endian), the byte of the kind that the
    /// entry would have without one ([`EntryKind::Value`], [`EntryKind::BlobRef`] or [`EntryKind::Stream`]), and its value.
    Expiring = 5,
    /// The value stands in blob files, in pieces: the entry's value is a list of references.
    Stream = 6,
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
            6 => EntryKind::Stream,
            7 => EntryKind::RangeDelete,
            _ => return None,
        })
    }

    /// Whether a reader needs more than the entry's bytes to answer (the selector's resolve bit).
    pub fn needs_resolving(self) -> bool {
        matches!(self, EntryKind::BlobRef | EntryKind::Merge | EntryKind::Expiring | EntryKind::Stream)
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

impl EntryRef<'_> {
    /// The entry as it is in a run whose entries are all given a sequence number; 0: they have their own.
    #[inline(always)]
    pub fn numbered(self, given: SequenceNumber) -> Self {
        EntryRef { sequence: self.sequence.wrapping_add(given), ..self }
    }
}

/// What an entry holds, its expiry taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content<'a> {
    /// What `value` means; never [`EntryKind::Expiring`].
    pub kind: EntryKind,
    /// The value, or what `kind` says.
    pub value: &'a [u8],
    /// From then on there is no value, in microseconds since 1970.
    pub expires_us: Option<u64>,
}

impl<'a> Content<'a> {
    /// What an entry of this kind and value holds; `None` if it is an expiring one that cannot be understood.
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

    /// The kind and value of the entry that holds this; `value` is put into `room` if it needs any.
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
    fn an_expiring_entry_holds_another_and_no_third() {
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
