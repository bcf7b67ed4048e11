//! Reads the log from front to back while it is written.
//!
//! A [`LogReader`] reads whole records below a limit: the end of the log, or its durable end.
//! Nothing below the limit changes while the segment is pinned ([`super::retention`]), so reads
//! take no lock. Each record must carry the link of the previous one, so none is skipped unnoticed.
//! Commits missing where an epoch (one use of the log) begins are reported ([`LogItem::Missing`]).

use super::{
    format::{Epoch, Link, Lsn, SEGMENT_HEADER_LEN, SegmentHeader},
    record::RecordFlags,
    recovery::RecordInfo,
    retention::Pin,
    scan::{Found, SegmentReader},
    segment::Segment,
    tail::read_header,
};
use crate::base::{Error, Result, SequenceNumber};
use std::{collections::VecDeque, sync::Arc};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogItem {
    Group(RecordInfo, Vec<u8>),
    /// The commits up to `up_to` are in runs; the log never had them or lost them.
    Missing {
        up_to: SequenceNumber,
    },
}

pub trait SegmentSource {
    /// Visits the segments in log order. They cannot be released during the call of `visit`.
    fn with_segments<R>(&self, visit: impl FnOnce(&mut dyn Iterator<Item = &Arc<Segment>>, SequenceNumber) -> R) -> R;
}

#[derive(Debug, Default)]
pub struct ClosedLog {
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) floor: SequenceNumber,
    pub(super) end_lsn: Lsn,
    pub(super) durable_lsn: Lsn,
}

impl ClosedLog {
    pub fn end_lsn(&self) -> Lsn {
        self.end_lsn
    }

    pub fn durable_lsn(&self) -> Lsn {
        self.durable_lsn
    }
}

impl SegmentSource for ClosedLog {
    fn with_segments<R>(&self, visit: impl FnOnce(&mut dyn Iterator<Item = &Arc<Segment>>, SequenceNumber) -> R) -> R {
        visit(&mut self.segments.iter(), self.floor)
    }
}

#[derive(Debug)]
pub struct LogReader {
    pin: Pin,
    offset: u64,
    link: Link,
    last_sequence: SequenceNumber,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The log is readable after this sequence number.
    pub floor: SequenceNumber,
}

#[derive(Debug)]
pub enum ReadError {
    Gone(Gone),
    Failed(Error),
}

impl From<Gone> for ReadError {
    fn from(gone: Gone) -> ReadError {
        ReadError::Gone(gone)
    }
}

impl From<Error> for ReadError {
    fn from(error: Error) -> ReadError {
        ReadError::Failed(error)
    }
}

impl LogReader {
    pub fn seek(log: &impl SegmentSource, after: SequenceNumber) -> std::result::Result<LogReader, Gone> {
        log.with_segments(|segments, floor| {
            if after < floor {
                return Err(Gone { floor });
            }
            let mut last = None;
            for segment in segments {
                last = Some(segment);
                if segment.last_sequence() > after {
                    break;
                }
            }
            let segment = last.ok_or(Gone { floor: SequenceNumber::MAX })?;
            Ok(LogReader::at_start(Pin::new(segment), after))
        })
    }

    pub(super) fn at(pin: Pin, offset: u64, link: Link, last_sequence: SequenceNumber) -> LogReader {
        LogReader { pin, offset, link, last_sequence }
    }

    fn at_start(pin: Pin, last_sequence: SequenceNumber) -> LogReader {
        LogReader { offset: SEGMENT_HEADER_LEN, link: pin.first_link, last_sequence, pin }
    }

    pub fn lsn(&self) -> Lsn {
        self.pin.header.start_lsn + self.offset
    }

    pub fn epoch(&self) -> Epoch {
        self.pin.header.epoch
    }

    pub fn last_sequence(&self) -> SequenceNumber {
        self.last_sequence
    }

    pub fn pass(&mut self, up_to: SequenceNumber) {
        self.last_sequence = self.last_sequence.max(up_to);
    }

    /// Reads up to `limit`, until about `bytes_max` bytes are returned.
    pub fn read(
        &mut self,
        log: &impl SegmentSource,
        limit: Lsn,
        bytes_max: usize,
        items: &mut VecDeque<LogItem>,
    ) -> std::result::Result<(), ReadError> {
        let mut bytes = 0;
        while bytes < bytes_max {
            self.note_missing(items);
            bytes += self.read_segment(limit, bytes_max - bytes, items)?;
            let end = self.pin.end_lsn();
            if bytes >= bytes_max || self.lsn() < end || !self.enter_next_segment(log, end)? {
                break;
            }
        }
        Ok(())
    }

    fn note_missing(&mut self, items: &mut VecDeque<LogItem>) {
        let header = &self.pin.header;
        if self.offset == SEGMENT_HEADER_LEN && header.begins_epoch() && header.previous_sequence > self.last_sequence {
            self.last_sequence = header.previous_sequence;
            items.push_back(LogItem::Missing { up_to: header.previous_sequence });
        }
    }

    /// As [`LogReader::read_records`]. Another process may recycle the file during the read, which
    /// is not damage. Its new use begins with a new header, which is checked after a failure.
    fn read_segment(
        &mut self,
        limit: Lsn,
        bytes_max: usize,
        items: &mut VecDeque<LogItem>,
    ) -> std::result::Result<usize, ReadError> {
        self.read_records(limit, bytes_max, items).map_err(|error| match error.is_corruption() && self.is_reused() {
            true => Gone { floor: self.pin.last_sequence() }.into(),
            false => error.into(),
        })
    }

    fn is_reused(&self) -> bool {
        let header = read_header(&*self.pin.file(), &self.pin.path);
        header.is_ok_and(|header| header.is_none_or(|(header, _)| header != self.pin.header))
    }

    fn read_records(&mut self, limit: Lsn, bytes_max: usize, items: &mut VecDeque<LogItem>) -> Result<usize> {
        let header = &self.pin.header;
        let end = self.pin.end_lsn().min(limit).min(header.limit_lsn());
        if self.lsn() >= end {
            return Ok(0);
        }
        // Read nothing past the end: it may be written at this moment.
        let header = SegmentHeader { len: end - header.start_lsn, ..*header };
        let file = self.pin.file();
        let mut reader = SegmentReader::new(&header, &*file, &self.pin.path);
        let mut bytes = 0;
        while header.start_lsn + self.offset < end && bytes < bytes_max {
            let record = match reader.find(self.offset)? {
                Found::Record(record) if record.header.previous_link == self.link => record,
                _ => {
                    let detail = "there is no intact log record here, though the log continues";
                    return Err(Error::corruption(&self.pin.path, self.offset, detail));
                }
            };
            let len = record.file_len();
            if record.header.flags.is_group() && record.header.last_sequence > self.last_sequence {
                let payload = reader.payload(self.offset, &record)?.into_owned();
                let lsn = header.start_lsn + self.offset;
                let info = RecordInfo {
                    epoch: header.epoch,
                    lsn,
                    end_lsn: lsn + len,
                    first_sequence: record.header.first_sequence,
                    last_sequence: record.header.last_sequence,
                    commit_time_us: record.header.commit_time_us,
                };
                self.last_sequence = record.header.last_sequence;
                bytes += usize::try_from(len).unwrap_or(usize::MAX).max(payload.len());
                items.push_back(LogItem::Group(info, payload));
            }
            debug_assert!(
                !record.header.flags.contains(RecordFlags::SEAL) || header.start_lsn + self.offset + len == end
            );
            self.offset += len;
            self.link = record.link;
        }
        Ok(bytes)
    }

    /// The current segment ends at `end`. False if there is no next one yet.
    fn enter_next_segment(&mut self, log: &impl SegmentSource, end: Lsn) -> std::result::Result<bool, ReadError> {
        let next = log.with_segments(|segments, floor| {
            let mut segments = segments;
            let next = Iterator::find(&mut segments, |segment| segment.header.start_lsn >= end);
            next.map(|segment| (Pin::new(segment), floor))
        });
        // The next segment is listed shortly after the previous one is closed.
        let Some((next, floor)) = next else { return Ok(false) };
        let header = &next.header;
        if header.previous_end_lsn != end {
            return Err(ReadError::Gone(Gone { floor }));
        }
        let fits = match header.begins_epoch() {
            true => header.previous_epoch == self.pin.header.epoch && header.previous_link == self.link,
            false => header.epoch == self.pin.header.epoch,
        };
        if !fits {
            let detail = "the log segment does not follow the previous one";
            return Err(Error::corruption(&next.path, 0, detail).into());
        }
        *self = LogReader::at_start(next, self.last_sequence);
        Ok(true)
    }
}

/// `None` if unknown; `u64::MAX` for the last epoch.
pub fn end_of_epoch(log: &impl SegmentSource, epoch: Epoch) -> Option<Lsn> {
    log.with_segments(|segments, _| {
        let mut end = None;
        for segment in segments {
            let header = &segment.header;
            if header.begins_epoch() && header.previous_epoch == epoch {
                return Some(header.previous_end_lsn);
            }
            end = if header.epoch == epoch { Some(Lsn::MAX) } else { None };
        }
        end
    })
}

pub fn visit_groups(segment: &Segment, mut visit: impl FnMut(SequenceNumber, &[u8])) -> Result<bool> {
    let (header, file) = (&segment.header, segment.file());
    let (mut reader, mut offset) = (SegmentReader::new(header, &*file, &segment.path), SEGMENT_HEADER_LEN);
    let mut link = segment.first_link;
    while header.start_lsn + offset < segment.end_lsn().min(header.limit_lsn()) {
        let record = match reader.find(offset)? {
            Found::Record(record) if record.header.previous_link == link => record,
            _ => return Ok(false),
        };
        if record.header.flags.is_group() {
            visit(record.header.first_sequence, &reader.payload(offset, &record)?);
        }
        offset += record.file_len();
        link = record.link;
    }
    Ok(true)
}

/// The last sequence number before these segments; `None` if they do not show it.
pub fn floor_of<'a>(segments: impl IntoIterator<Item = &'a Arc<Segment>>) -> Result<Option<SequenceNumber>> {
    for segment in segments {
        let header = &segment.header;
        if header.begins_epoch() {
            return Ok(Some(header.previous_sequence));
        }
        let file = segment.file();
        let (mut reader, mut offset) = (SegmentReader::new(header, &*file, &segment.path), SEGMENT_HEADER_LEN);
        while header.start_lsn + offset < segment.end_lsn().min(header.limit_lsn()) {
            let Found::Record(record) = reader.find(offset)? else { break };
            if record.header.flags.is_group() {
                return Ok(Some(record.header.first_sequence - 1));
            }
            offset += record.file_len();
        }
    }
    Ok(None)
}
