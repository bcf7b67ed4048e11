//! Bytes behind the last whole record of the log: a torn or damaged tail, or nothing.
//!
//! Where a process was killed, the file goes on behind its last record with zeros, or with bytes of an earlier life of
//! a recycled segment. Neither is damage. These are a **torn or damaged tail**:
//!
//! 1. a record whose header is whole and whose payload does not match it;
//! 2. whole records that the chain does not reach, because one before them is missing or damaged;
//! 3. a record header that is whole once one bit, or the magic, is put right: its checksum covers the segment's file
//!    id and the LSN, so it was written there in this life of the file;
//! 4. in a segment that was never recycled ([`super::format::ZEROED_SEGMENT`]): any byte that is not zero.
//!
//! A record that was being written at a crash and a durable record that was damaged later look the same: the log cannot
//! distinguish them, because nothing behind the record says how far the log was synced. What is left undetected: zeros
//! from a record's first byte to the log's end look like a log that ends there, and in a recycled segment a range of
//! zeros over a record's header does too, if no whole record stands behind it. There, the tail reaches to the end of its
//! first record: nothing shows what else was lost.

use super::{
    record::RecordHeader,
    scan::{Beyond, Found, SegmentReader},
};
use crate::base::Result;

/// Bytes behind the last whole record that neither zeros nor an earlier life of the file explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remains {
    /// Where they begin in the segment: just behind the last whole record.
    pub offset: u64,
    /// How many bytes they are.
    pub len: u64,
    /// What they look like.
    pub detail: String,
}

/// The torn or damaged tail at `offset`, where the chain of records ends. `found` begins there; `beyond` is what a
/// search of the rest of the log has found.
pub(super) fn remains(
    reader: &mut SegmentReader<'_>,
    offset: u64,
    found: Found,
    beyond: &Beyond,
) -> Result<Option<Remains>> {
    let of = |len: u64, detail: String| Ok(Some(Remains { offset, len, detail }));
    if let Found::Torn(record) = found {
        let RecordHeader { first_sequence, last_sequence, .. } = record.header;
        let detail = match record.header.flags.is_group() {
            true => format!("the record of commits {first_sequence} to {last_sequence} does not match its checksum"),
            false => "a record without commits does not match its checksum".to_owned(),
        };
        let end = end_of_damage(reader, offset + record.file_len(), beyond)?;
        return of(end - offset, detail);
    }
    let next = reader.next_record(offset)?;
    if beyond.records > 0 {
        let detail = format!("{} whole records stand behind a place where no whole record stands", beyond.records);
        let end = next.map_or(reader.len(), |(at, record)| if at == offset { at + record.file_len() } else { at });
        return of(end - offset, detail);
    }
    if let Some(record) = reader.repaired(offset)? {
        let RecordHeader { first_sequence, last_sequence, .. } = record.header;
        let detail = format!("the header of the record of commits {first_sequence} to {last_sequence} is damaged");
        let end = end_of_damage(reader, (offset + record.file_len()).min(reader.len()), beyond)?;
        return of(end - offset, detail);
    }
    if reader.is_zeroed()
        && let Some(end) = reader.end_of_written(offset)?
    {
        return of(end - offset, "bytes that are no record stand where nothing was written".to_owned());
    }
    Ok(None)
}

/// Where damage ends that reaches to `end` at least: at the next record whose header is whole, if there is one, or behind the
/// last byte that is not zero in a segment that was never recycled.
fn end_of_damage(reader: &mut SegmentReader<'_>, end: u64, beyond: &Beyond) -> Result<u64> {
    if beyond.records > 0
        && let Some((at, _)) = reader.next_record(end)?
    {
        return Ok(at.max(end));
    }
    let written = if reader.is_zeroed() { reader.end_of_written(end)? } else { None };
    Ok(written.map_or(end, |written| written.max(end)))
}
