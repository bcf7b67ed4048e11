//! Values in pieces, and the blob references in entries of any kind.
//!
//! The value of an entry of kind [`EntryKind::Stream`] is the length of the whole value (varint),
//! then the reference of each piece in order. A piece is an ordinary blob record and never empty.

use super::format::BlobRef;
use crate::{
    base::{Content, EntryKind, Result, limits},
    codec::{ByteReader, put_varint},
};
use std::borrow::Cow;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    pub list: Vec<BlobRef>,
}

impl Pieces {
    pub fn len(&self) -> u64 {
        self.list.iter().map(|piece| piece.len).sum()
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len());
        self.list.iter().for_each(|piece| piece.encode(out));
    }

    pub fn decode(bytes: &[u8]) -> Option<Pieces> {
        let mut reader = ByteReader::new(bytes);
        let len = reader.varint()?;
        let mut pieces = Pieces::default();
        let mut sum = 0_u64;
        while !reader.is_at_end() {
            let piece = BlobRef::read(&mut reader).filter(|piece| piece.len > 0)?;
            sum = sum.checked_add(piece.len)?;
            pieces.list.push(piece);
        }
        (sum == len && len <= limits::MAX_VALUE_LEN).then_some(pieces)
    }

    /// `None` if the entry is invalid or of another kind.
    pub fn of(content: &Content<'_>) -> Option<Pieces> {
        match content.kind {
            EntryKind::BlobRef => BlobRef::decode(content.value).map(|only| Pieces { list: vec![only] }),
            EntryKind::Stream => Pieces::decode(content.value),
            _ => None,
        }
    }

    /// Kind and value of an entry. A single piece becomes a blob reference.
    pub fn entry(&self) -> (EntryKind, Vec<u8>) {
        let mut value = Vec::new();
        if let [only] = self.list.as_slice() {
            only.encode(&mut value);
            return (EntryKind::BlobRef, value);
        }
        self.encode(&mut value);
        (EntryKind::Stream, value)
    }
}

/// `None` if the entry is invalid.
#[must_use]
pub fn visit_references(kind: EntryKind, value: &[u8], mut visit: impl FnMut(&BlobRef)) -> Option<()> {
    if !may_refer(kind) {
        return Some(());
    }
    let content = Content::of(kind, value)?;
    if may_refer(content.kind) {
        Pieces::of(&content)?.list.iter().for_each(&mut visit);
    }
    Some(())
}

/// Returns the entry's value with references replaced by `map`; `None` if none is, or the entry is
/// invalid.
pub fn map_references(
    kind: EntryKind,
    value: &[u8],
    mut map: impl FnMut(&BlobRef) -> Result<Option<BlobRef>>,
) -> Result<Option<Vec<u8>>> {
    if !may_refer(kind) {
        return Ok(None);
    }
    let Some(content) = Content::of(kind, value).filter(|content| may_refer(content.kind)) else { return Ok(None) };
    let Some(mut pieces) = Pieces::of(&content) else { return Ok(None) };
    let mut is_changed = false;
    for piece in &mut pieces.list {
        if let Some(mapped) = map(piece)? {
            *piece = mapped;
            is_changed = true;
        }
    }
    if !is_changed {
        return Ok(None);
    }
    let mut mapped = Vec::new();
    match (content.kind, pieces.list.as_slice()) {
        (EntryKind::BlobRef, [only]) => only.encode(&mut mapped),
        _ => pieces.encode(&mut mapped),
    }
    let mut room = Vec::new();
    Ok(Some(Cow::from(Content { value: &mapped, ..content }.entry(&mut room).1).into_owned()))
}

fn may_refer(kind: EntryKind) -> bool {
    matches!(kind, EntryKind::BlobRef | EntryKind::Stream | EntryKind::Expiring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Compression;

    fn piece(file: u64, len: u64) -> BlobRef {
        BlobRef { file, offset: 64, len, stored_len: len + 60, compression: Compression::None, checksum: file * 7 }
    }

    fn references(kind: EntryKind, value: &[u8]) -> Option<Vec<BlobRef>> {
        let mut found = Vec::new();
        visit_references(kind, value, |piece| found.push(*piece)).map(|()| found)
    }

    #[test]
    fn references_of_every_kind_are_visited_and_mapped() {
        for list in [vec![piece(1, 10)], vec![piece(1, 10), piece(300, 70_000), piece(2, 1)]] {
            let (kind, value) = Pieces { list: list.clone() }.entry();
            for expires_us in [None, Some(12)] {
                let mut room = Vec::new();
                let (kind, value) = Content { kind, value: &value, expires_us }.entry(&mut room);
                assert_eq!(references(kind, value), Some(list.clone()));
                let moved = |r: &BlobRef| Ok((r.file == 1).then_some(BlobRef { file: 9, ..*r }));
                let mapped = map_references(kind, value, moved).unwrap().unwrap();
                let mut expected = list.clone();
                expected[0].file = 9;
                assert_eq!(references(kind, &mapped), Some(expected));
                assert_eq!(Content::of(kind, &mapped).unwrap().expires_us, expires_us);
                assert_eq!(map_references(kind, value, |_| Ok(None)).unwrap(), None);
            }
        }
        assert_eq!(references(EntryKind::Value, b"x"), Some(vec![]));
        assert_eq!(references(EntryKind::BlobRef, b"x"), None);
    }

    #[test]
    fn decode_of_invalid_pieces_returns_none() {
        let pieces = Pieces { list: vec![piece(1, 10), piece(2, 5)] };
        let mut bytes = Vec::new();
        pieces.encode(&mut bytes);
        assert_eq!(Pieces::decode(&bytes), Some(pieces.clone()));
        for len in 0..bytes.len() {
            assert_eq!(Pieces::decode(&bytes[..len]), None, "cut to {len} bytes");
        }
        bytes[0] += 1;
        assert_eq!(Pieces::decode(&bytes), None, "another length than that of the pieces");
        let mut empty = Vec::new();
        Pieces { list: vec![piece(1, 10), piece(2, 0)] }.encode(&mut empty);
        assert_eq!(Pieces::decode(&empty), None, "an empty piece");
    }
}
