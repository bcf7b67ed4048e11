//! Checks a whole run: all checksums, and the consistency of all facts.

use super::{
    Expiries, ExpiryCounter,
    run::{Run, Tail, read_bytes, read_tail},
};
use crate::cache::UnitNote;
use crate::{
    base::{Content, EntryKind, EntryRef, Error, Result, SequenceNumber},
    codec::checksum,
};
use std::{cmp::Reverse, sync::Arc};

#[derive(Debug, Default)]
struct Sums {
    entries: u64,
    tombstones: u64,
    raw_bytes: u64,
    sequences: Option<(SequenceNumber, SequenceNumber)>,
    smallest: Option<Vec<u8>>,
    largest: Option<Vec<u8>>,
    expiries: ExpiryCounter,
}

impl Sums {
    fn add_sequence(&mut self, sequence: SequenceNumber) {
        let (least, most) = self.sequences.unwrap_or((sequence, sequence));
        self.sequences = Some((least.min(sequence), most.max(sequence)));
    }
}

fn bounds_of(expiries: &Expiries) -> (u64, Option<u64>, Option<u64>) {
    (expiries.entries, expiries.earliest(), expiries.latest())
}

/// Returns the file's length.
pub(super) fn verify(run: &Arc<Run>, visitor: &mut dyn FnMut(&EntryRef<'_>)) -> Result<u64> {
    let path = run.path();
    let bad = |offset: u64, detail: &str| Error::corruption(path, offset, detail);
    let len = run.file().len().map_err(|e| Error::io("read the length of", path, e))?;
    if len != run.meta().file_bytes {
        return Err(bad(len.min(run.meta().file_bytes), "the file's length is not what the manifest knows"));
    }
    let tail = read_tail(&**run.file(), path, len)?;
    let mut sums = verify_entries(run, visitor)?;
    for tombstone in tail.range_tombstones.iter() {
        sums.add_sequence(tombstone.sequence);
        if sums.smallest.as_ref().is_none_or(|smallest| tombstone.start < *smallest) {
            sums.smallest = Some(tombstone.start.clone());
        }
        if sums.largest.as_ref().is_none_or(|largest| tombstone.end > *largest) {
            sums.largest = Some(tombstone.end.clone());
        }
    }
    let meta = run.meta();
    let is_same = sums.entries == meta.entries
        && sums.tombstones == meta.tombstones
        && sums.raw_bytes == meta.raw_bytes
        && sums.sequences.unwrap_or_default() == (meta.min_sequence, meta.max_sequence)
        && sums.smallest.unwrap_or_default() == meta.smallest
        && sums.largest.unwrap_or_default() == meta.largest
        && tail.file_id == meta.file_id
        && bounds_of(&sums.expiries.finish()) == bounds_of(&meta.expiries);
    if !is_same {
        return Err(bad(tail.footer.index_offset, "the entries do not add up to what index and footer say"));
    }
    verify_view(run, &tail)?;
    Ok(len)
}

fn verify_entries(run: &Arc<Run>, visitor: &mut dyn FnMut(&EntryRef<'_>)) -> Result<Sums> {
    let bad =
        |block: u16, detail: String| Error::corruption(run.path(), run.index().offset(usize::from(block)), detail);
    let mut sums = Sums::default();
    let mut scan = run.scan(Default::default());
    let mut keys = run.meta().has_key_block.then(|| run.keys(Default::default()));
    let mut last: Option<(Vec<u8>, SequenceNumber)> = None;
    while scan.next()? {
        let (entry, position) = (scan.entry(), scan.position());
        let is_after = last
            .as_ref()
            .is_none_or(|(key, sequence)| (key.as_slice(), Reverse(*sequence)) < (entry.key, Reverse(entry.sequence)));
        if !is_after || entry.kind == EntryKind::RangeDelete {
            return Err(bad(
                position.block,
                format!("entry {} of block {} is out of order", position.slot, position.block),
            ));
        }
        if let Some(keys) = &mut keys {
            let is_same = keys.next()? && {
                let other = keys.entry();
                (other.key, other.sequence, other.kind) == (entry.key, entry.sequence, entry.kind)
            };
            if !is_same || keys.position() != position {
                return Err(bad(position.block, format!("the key block differs from block {}", position.block)));
            }
        }
        if entry.kind == EntryKind::Expiring {
            let expires_us = Content::of(entry.kind, entry.value).and_then(|content| content.expires_us);
            let nonsense = || bad(position.block, format!("entry {} expires and cannot be understood", position.slot));
            sums.expiries.add(expires_us.ok_or_else(nonsense)?);
        }
        visitor(&entry);
        sums.entries += 1;
        sums.tombstones += u64::from(entry.kind == EntryKind::Tombstone);
        sums.raw_bytes += (entry.key.len() + entry.value.len()) as u64;
        sums.add_sequence(entry.sequence);
        let (key, sequence) = last.get_or_insert_with(|| (Vec::new(), 0));
        key.clear();
        key.extend_from_slice(entry.key);
        *sequence = entry.sequence;
        if sums.entries == 1 {
            sums.smallest = Some(entry.key.to_vec());
        }
        let note = run.note(position.block);
        if position.slot == 0 && UnitNote::new(scan.block_len(), note.mark()) != note {
            return Err(bad(position.block, format!("block {} is not the one in the index", position.block)));
        }
    }
    if let Some(mut keys) = keys
        && keys.next()?
    {
        return Err(bad(0, "the key block has keys that no block has".to_owned()));
    }
    sums.largest = last.map(|(key, _)| key);
    Ok(sums)
}

fn verify_view(run: &Run, tail: &Tail) -> Result<()> {
    let footer = &tail.footer;
    if footer.view_bytes == 0 {
        return Ok(());
    }
    let (file, path) = (&**run.file(), run.path());
    if read_bytes(file, path, footer.index_end, footer.view_offset)?.iter().any(|&byte| byte != 0) {
        return Err(Error::corruption(path, footer.index_end, "the bytes before the view are not zero"));
    }
    let view = read_bytes(file, path, footer.view_offset, footer.view_offset + footer.view_bytes)?;
    if checksum(tail.file_id, footer.view_offset, &view) != footer.view_checksum {
        return Err(Error::corruption(path, footer.view_offset, "the embedded view's checksum does not match"));
    }
    Ok(())
}
