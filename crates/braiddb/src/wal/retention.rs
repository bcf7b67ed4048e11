//! What is kept of the log beyond what recovery needs, for those who read it later.
//!
//! A segment of which everything is in runs is *retained* until the retained ones together are longer than their limit, or
//! older; then the oldest are let go of, and used again or removed. The **floor** is the last sequence number before what is held:
//! whoever has read up to it can go on, and whoever has not has missed something, and is told so.
//!
//! **Readers and recycling.** A segment that somebody reads is **pinned**. Pins are taken under the lock under which segments are let go
//! of, and only of segments that are held. One that is let go of while it is pinned is removed and never used again, so that its
//! reader, who has the file open, reads on to its end; it finds then that what follows is gone. So no reader keeps a writer waiting,
//! and each keeps the space of one segment at most.
//!
//! **After a restart** the retained segments are found again, going back from the oldest that recovery needs: the seal that ends a
//! segment names the one that follows, and the header of an epoch's first segment tells where the epoch before ended, and with which
//! link. Nothing else has to be written down. Where the chain of them breaks, or is longer than the limit, the rest is left over.

use super::{
    format::SegmentHeader,
    record::{RECORD_HEADER_LEN_MIN, RecordFlags, SEAL_LEN_MAX, decode_seal},
    recovery::{Candidate, SeenFiles},
    scan::{Found, SegmentReader},
    segment::Segment,
};
use crate::base::{Result, SequenceNumber};
use std::{
    collections::VecDeque,
    ops::Deref,
    sync::{Arc, atomic::Ordering},
};

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionLimit {
    /// The most bytes of retained segments, and of what is kept for their sake; 0: nothing is retained.
    pub bytes: u64,
    /// How long they are kept at most after the last commit in them, in microseconds.
    pub age_us: u64,
}

impl Default for RetentionLimit {
    fn default() -> RetentionLimit {
        RetentionLimit { bytes: 0, age_us: u64::MAX }
    }
}

impl RetentionLimit {
    /// Whether anything is retained at all.
    pub fn is_on(&self) -> bool {
        self.bytes > 0
    }
}

/// The retained segments, in log order, and the floor.
#[derive(Debug, Default)]
pub struct Retained {
    pub segments: VecDeque<Arc<Segment>>,
    pub floor: SequenceNumber,
    pub limit: RetentionLimit,
}

impl Retained {
    /// Takes out the segments, the oldest first, that are beyond the limit. `beside` tells how many bytes are kept elsewhere for
    /// what stands above a floor; `next` is the segment after the last one.
    pub fn trim(
        &mut self,
        now_us: u64,
        next: Option<&Arc<Segment>>,
        beside: impl Fn(SequenceNumber) -> u64,
    ) -> Vec<Arc<Segment>> {
        let limit = self.limit;
        let mut bytes: u64 = self.segments.iter().map(|segment| segment.header.len).sum();
        let mut released = Vec::new();
        while let Some(first) = self.segments.front() {
            // Nothing was committed to it after the next one began.
            let ended_us = self.segments.get(1).or(next).map_or(now_us, |after| after.header.base_time_us);
            let is_old = now_us.saturating_sub(ended_us) > limit.age_us;
            let is_much = bytes > limit.bytes || bytes.saturating_add(beside(self.floor)) > limit.bytes;
            if limit.is_on() && !is_old && !is_much {
                break;
            }
            bytes -= first.header.len;
            self.floor = self.floor.max(first.last_sequence());
            released.extend(self.segments.pop_front());
        }
        released
    }
}

/// A segment that is being read. As long as this is there, its file is not used again.
#[derive(Debug)]
pub struct Pin(Arc<Segment>);

impl Pin {
    /// To be taken while the segment is held and the lock on the list of those is too.
    pub fn new(segment: &Arc<Segment>) -> Pin {
        segment.readers.fetch_add(1, Ordering::AcqRel);
        Pin(Arc::clone(segment))
    }
}

impl Deref for Pin {
    type Target = Arc<Segment>;

    fn deref(&self) -> &Arc<Segment> {
        &self.0
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The segments, in log order, that lead up to `oldest` and are within the limit, of those that recovery does not need.
pub fn find_retained(
    files: &SeenFiles,
    oldest: &SegmentHeader,
    limit: RetentionLimit,
) -> Result<VecDeque<Arc<Segment>>> {
    let mut found = VecDeque::new();
    let mut bytes = 0_u64;
    let mut after = *oldest;
    while limit.is_on() {
        let Some(segment) = files.valid().find_map(|(candidate, _)| ended_by(candidate, &after).transpose()) else {
            break;
        };
        let segment = segment?;
        bytes = bytes.saturating_add(segment.header.len);
        if bytes > limit.bytes {
            break;
        }
        after = segment.header;
        found.push_front(segment);
    }
    Ok(found)
}

/// The segment of this file, if it is the one that `after` follows.
fn ended_by(candidate: &Candidate, after: &SegmentHeader) -> Result<Option<Arc<Segment>>> {
    let Ok((header, _)) = candidate.header() else { return Ok(None) };
    let first_lsn = header.start_lsn + super::format::SEGMENT_HEADER_LEN;
    let is_before = header.number != after.number
        && header.epoch == after.previous_epoch
        && (first_lsn..=header.limit_lsn()).contains(&after.previous_end_lsn)
        && candidate.file_len() >= header.len;
    if !is_before {
        return Ok(None);
    }
    let last_sequence = match after.begins_epoch() {
        true => ends_epoch(candidate, after)?,
        false => seal_sequence(candidate, after)?,
    };
    let Some(last_sequence) = last_sequence else { return Ok(None) };
    let segment = candidate.segment()?;
    segment.close(after.previous_end_lsn);
    segment.set_last_sequence(last_sequence);
    Ok(Some(segment))
}

/// The last sequence number before the seal that leads to `after`, if such a one ends the segment.
fn seal_sequence(candidate: &Candidate, after: &SegmentHeader) -> Result<Option<SequenceNumber>> {
    let (header, _) = candidate.header()?;
    let mut reader = candidate.reader()?;
    let end = after.start_lsn - header.start_lsn;
    for len in RECORD_HEADER_LEN_MIN as u64..=SEAL_LEN_MAX.min(end) {
        let Found::Record(record) = reader.find(end - len)? else { continue };
        if record.file_len() == len
            && record.header.flags.contains(RecordFlags::SEAL)
            && decode_seal(&reader.payload(end - len, &record)?) == Some((after.number, after.file_id))
        {
            return Ok(Some(record.header.last_sequence));
        }
    }
    Ok(None)
}

/// The last sequence number of the segment, if it ends where, and with the link that, the first one of the next epoch says.
fn ends_epoch(candidate: &Candidate, after: &SegmentHeader) -> Result<Option<SequenceNumber>> {
    let (header, first_link) = candidate.header()?;
    let mut reader: SegmentReader<'_> = candidate.reader()?;
    let (mut offset, mut link) = (super::format::SEGMENT_HEADER_LEN, first_link);
    let mut last_sequence = header.previous_sequence;
    while header.start_lsn + offset < after.previous_end_lsn {
        let Found::Record(record) = reader.find(offset)? else { return Ok(None) };
        if record.header.previous_link != link {
            return Ok(None);
        }
        offset += record.file_len();
        link = record.link;
        last_sequence = last_sequence.max(record.header.last_sequence);
    }
    let is_end = header.start_lsn + offset == after.previous_end_lsn && link == after.previous_link;
    Ok(is_end.then_some(last_sequence))
}
