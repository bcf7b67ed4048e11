//! Retains log that recovery no longer needs, for readers.
//!
//! A segment whose commits are all in runs is *retained* until the retained segments exceed their
//! limit in bytes or age; then the oldest are recycled or removed. The **floor** is the last
//! sequence number before the oldest segment. A reader that has not passed the floor has missed
//! commits and gets an error.
//!
//! **Readers and recycling.** A reader **pins** its segment, under the lock under which segments
//! are released, and only if it is in the list. A segment released while pinned is removed and
//! never recycled: its reader has the file open, reads to its end, and then finds that the next
//! segment is gone. So no reader blocks a writer, and each pins the space of at most one segment.
//!
//! **After a restart** the retained segments are found by going back from the oldest that recovery
//! needs: a segment's seal names its successor, and the first header of an epoch (one use of the
//! log) stores end and link of the previous epoch. Segments before a break in that chain, or beyond
//! the limit, are not retained.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionLimit {
    /// Maximum bytes of retained segments and of data that they pin; 0 retains nothing.
    pub bytes: u64,
    /// Maximum age of a segment's last commit, in microseconds.
    pub age_us: u64,
}

impl Default for RetentionLimit {
    fn default() -> RetentionLimit {
        RetentionLimit { bytes: 0, age_us: u64::MAX }
    }
}

impl RetentionLimit {
    pub fn is_on(&self) -> bool {
        self.bytes > 0
    }
}

#[derive(Debug, Default)]
pub struct Retained {
    pub segments: VecDeque<Arc<Segment>>,
    pub floor: SequenceNumber,
    pub limit: RetentionLimit,
}

impl Retained {
    /// Removes the oldest segments beyond the limit. `beside` returns the bytes that retention down
    /// to a floor pins outside the log; `next` is the segment after the last one.
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
            // No commit went to it after the next segment began.
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

/// A segment in use by a reader: its file is not recycled meanwhile.
#[derive(Debug)]
pub struct Pin(Arc<Segment>);

impl Pin {
    /// Requires that the segment is in the list, and the list's lock.
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

/// `None` unless the seal that leads to `after` ends the segment.
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

/// `None` unless the segment ends as the next epoch's header says.
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
