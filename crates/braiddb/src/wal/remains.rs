//! Detects a torn or damaged tail: bytes after the last whole record of the log.
//!
//! After a kill, the file continues with zeros, or with bytes of an earlier use of a recycled
//! segment. Neither is damage. These are a **torn or damaged tail**:
//!
//! 1. a record with a whole header whose payload does not match it;
//! 2. whole records outside of the chain, because one before them is missing or damaged;
//! 3. a record header that becomes whole if one bit, or the magic, is repaired: its checksum covers
//!    file id and LSN, so it was written there in the current use of the file;
//! 4. in a segment without earlier use ([`super::format::ZEROED_SEGMENT`]): any nonzero byte.
//!
//! A record interrupted by a crash and a durable record damaged later look the same: no later
//! record shows how far the log was synced. Undetected are zeros from a record's first byte to the
//! log's end; in a recycled segment also zeros over a record's header, if no whole record follows.

use super::{
    record::RecordHeader,
    scan::{Beyond, Found, SegmentReader},
};
use crate::base::Result;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remains {
    pub offset: u64,
    pub len: u64,
    pub detail: String,
}

/// The chain ends at `offset`; `beyond` is the result of a search of the remaining log.
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
        let detail = format!("there is no intact record here, but {} intact records follow", beyond.records);
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
        return of(end - offset, "there are bytes that are not a log record where nothing was written".to_owned());
    }
    Ok(None)
}

/// Returns the end of damage from `end` on: the next whole header, or, in a segment without earlier
/// use, the end of the nonzero bytes.
fn end_of_damage(reader: &mut SegmentReader<'_>, end: u64, beyond: &Beyond) -> Result<u64> {
    if beyond.records > 0
        && let Some((at, _)) = reader.next_record(end)?
    {
        return Ok(at.max(end));
    }
    let written = if reader.is_zeroed() { reader.end_of_written(end)? } else { None };
    Ok(written.map_or(end, |written| written.max(end)))
}
