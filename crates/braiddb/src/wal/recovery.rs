//! Reads the log after a restart.
//!
//! **The chain.** From the oldest needed segment on, each record must carry the link of the
//! previous one. A seal leads to the next segment of the epoch (one use of the log). An epoch with
//! a successor ends exactly at the LSN and link in the successor's first header; later bytes were
//! discarded. The last epoch ends where no whole record continues the chain.
//!
//! **Torn or damaged?** Pages of buffered commits may reach the disk in any order, so a break alone
//! proves nothing. But every record stores how far the log was synced when it was written. So after
//! a break in the last epoch, all its later bytes are searched for whole records. If the manifest
//! or one of those records shows a synced position past the break, durable bytes are gone:
//! corruption. Otherwise the log ends at the break.
//!
//! Always corruption, since each is synced before anything depends on it: a missing oldest segment;
//! a seal whose next segment is missing or another; a segment shorter than its header says; a break
//! before an epoch's recorded end; segments of an epoch that the chain does not reach.
//!
//! Only the bytes after the last record that shows a sync are ambiguous: see
//! [`RecoveryOutcome::ambiguous_tail`]. [`super::Wal::note_durable`] leaves none.
//!
//! **Nothing is written** before [`RecoveryOutcome::sync_replayed`], which writes no new data: a
//! repeated recovery changes nothing. A new epoch is the last step: its synced header fixes the end
//! of the previous epoch.

use super::{
    format::{Epoch, Link, Lsn, MAX_LSN, segment_path},
    record::{CLEAN_CLOSE, Record, RecordFlags, decode_seal},
    recovery_prefetch::RecoveryPrefetch,
    remains::{Remains, remains},
    retention::RetentionLimit,
    scan::{Beyond, Found, SegmentReader},
    segment::{Segment, SegmentInfo, WalStart},
    tail::Tail,
};
use crate::{
    base::{Error, FileId, FileNumber, Result, SequenceNumber},
    platform::{Runtime, Vfs},
};
use std::{collections::VecDeque, path::Path, sync::Arc};

mod outcome;
mod seen_files;

pub use outcome::{CutTail, RecoveryOutcome};
pub(super) use seen_files::{Candidate, SeenFiles};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryInput {
    pub oldest_segment: Option<FileNumber>,
    pub durable_lsn: Lsn,
    /// Later groups are visited; earlier ones are only verified.
    pub flushed: SequenceNumber,
    /// True if [`RecoveryOutcome::sync_replayed`] follows: write-back then starts during the read.
    pub is_to_sync: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordInfo {
    pub epoch: Epoch,
    pub lsn: Lsn,
    pub end_lsn: Lsn,
    pub first_sequence: SequenceNumber,
    pub last_sequence: SequenceNumber,
    pub commit_time_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visit {
    Taken,
    /// The record refers to missing data: the log ends before it, which is corruption if the record
    /// is known to be durable. No later record is visited.
    EndHere(String),
}

/// Calls `visitor` with each commit group and its decompressed payload. Memory is bounded by the
/// longest record.
pub fn recover(
    vfs: &dyn Vfs,
    dir: &Path,
    input: &RecoveryInput,
    visitor: &mut dyn FnMut(&RecordInfo, &[u8]) -> Result<Visit>,
) -> Result<RecoveryOutcome> {
    recover_with(vfs, dir, input, None, visitor)
}

pub fn recover_with(
    vfs: &dyn Vfs,
    dir: &Path,
    input: &RecoveryInput,
    helper: Option<&dyn Runtime>,
    visitor: &mut dyn FnMut(&RecordInfo, &[u8]) -> Result<Visit>,
) -> Result<RecoveryOutcome> {
    let mut files = SeenFiles::list(vfs, dir)?;
    if let Some(oldest) = input.oldest_segment.filter(|_| input.is_to_sync) {
        files.open_to_write(vfs, oldest)?;
    }
    let mut chain = Chain {
        files: &files,
        input,
        visitor,
        end: Position::default(),
        durable_lsn: input.durable_lsn,
        stopped: None,
        closed_lsn: None,
        used: Vec::new(),
        beyond: Beyond::default(),
        found: Found::Nothing,
        remains: None,
        prefetch: None,
    };
    if let Some(oldest) = input.oldest_segment {
        let written_back = if input.is_to_sync { files.from(oldest) } else { Vec::new() };
        match helper.and_then(|runtime| RecoveryPrefetch::start(runtime, files.probed(), written_back.clone())) {
            Some(prefetch) => chain.prefetch = Some(prefetch),
            None => written_back.iter().for_each(|(file, len)| file.start_write_back(0, *len)),
        }
        chain.follow(oldest)?;
        chain.settle()?;
    }
    let outcome = chain.outcome()?;
    Ok(outcome.with_files(files))
}

#[derive(Clone, Debug, Default)]
pub(super) struct Position {
    pub number: FileNumber,
    pub offset: u64,
    pub lsn: Lsn,
    pub link: Link,
    pub epoch: Epoch,
    pub last_sequence: SequenceNumber,
}

enum Next<'a> {
    Segment(&'a Candidate, Position),
    End(Position),
}

struct Chain<'a> {
    files: &'a SeenFiles,
    input: &'a RecoveryInput,
    visitor: &'a mut dyn FnMut(&RecordInfo, &[u8]) -> Result<Visit>,
    end: Position,
    durable_lsn: Lsn,
    stopped: Option<(Position, String)>,
    closed_lsn: Option<Lsn>,
    used: Vec<Arc<Segment>>,
    beyond: Beyond,
    found: Found,
    remains: Option<Remains>,
    prefetch: Option<RecoveryPrefetch>,
}

impl<'a> Chain<'a> {
    fn follow(&mut self, oldest: FileNumber) -> Result<()> {
        let mut candidate = self.files.required(oldest, "the oldest segment of the log")?;
        let (header, link) = candidate.header()?;
        let mut position = candidate.first_position(header, link, 0);
        loop {
            match self.segment(candidate, position)? {
                Next::Segment(next, next_position) => (candidate, position) = (next, next_position),
                Next::End(end) => {
                    self.end = end;
                    return Ok(());
                }
            }
        }
    }

    fn segment(&mut self, candidate: &'a Candidate, mut position: Position) -> Result<Next<'a>> {
        let (header, _) = candidate.header()?;
        if candidate.file_len < header.len {
            let detail = format!("the log segment has {} of {} bytes", candidate.file_len, header.len);
            return Err(Error::corruption(&candidate.path, candidate.file_len, detail));
        }
        let bound = self.files.successor(header.epoch);
        let mut reader = SegmentReader::new(header, &*candidate.file, &candidate.path);
        let segment = candidate.segment()?;
        self.used.push(segment.clone());
        if let Some(prefetch) = &self.prefetch {
            prefetch.reach(header.start_lsn);
        }
        loop {
            segment.close(position.lsn);
            segment.set_last_sequence(position.last_sequence);
            if let Some((next, next_header, next_link)) = bound
                && position.lsn >= next_header.previous_end_lsn
            {
                if position.lsn != next_header.previous_end_lsn || position.link != next_header.previous_link {
                    return Err(
                        candidate.bad(position.offset, "the log does not end where the next epoch's header says")
                    );
                }
                // The next epoch was begun when all of this one was durable.
                self.durable_lsn = self.durable_lsn.max(position.lsn);
                return Ok(Next::Segment(next, next.first_position(next_header, next_link, position.last_sequence)));
            }
            let found = reader.find(position.offset)?;
            let record = match found {
                Found::Record(record) if record.header.previous_link == position.link => record,
                _ => return self.break_at(found, position, candidate, reader, bound.is_some()),
            };
            self.durable_lsn = self.durable_lsn.max(record.header.durable_lsn);
            let before = position.clone();
            position.offset += record.file_len();
            position.lsn += record.file_len();
            position.link = record.link;
            if record.header.flags.contains(RecordFlags::SEAL) {
                let payload = reader.payload(before.offset, &record)?;
                let seal = decode_seal(&payload).ok_or_else(|| {
                    candidate.bad(before.offset, "the record should name the next log segment, and does not")
                })?;
                segment.close(position.lsn);
                return self.next_of_seal(seal, &position);
            }
            if record.header.flags.contains(RecordFlags::NOTE)
                && reader.payload(before.offset, &record)?[..] == CLEAN_CLOSE
            {
                self.closed_lsn = Some(position.lsn);
            }
            if record.header.flags.is_group() {
                self.group(candidate, &mut reader, &before, &mut position, &record)?;
            }
        }
    }

    fn group(
        &mut self,
        candidate: &Candidate,
        reader: &mut SegmentReader<'_>,
        before: &Position,
        after: &mut Position,
        record: &Record,
    ) -> Result<()> {
        let header = &record.header;
        if header.first_sequence <= before.last_sequence {
            let detail = format!(
                "commit {} follows commit {}, and numbers must increase",
                header.first_sequence, before.last_sequence
            );
            return Err(candidate.bad(before.offset, &detail));
        }
        after.last_sequence = header.last_sequence;
        if self.stopped.is_some() || header.last_sequence <= self.input.flushed {
            return Ok(());
        }
        let info = RecordInfo {
            epoch: before.epoch,
            lsn: before.lsn,
            end_lsn: after.lsn,
            first_sequence: header.first_sequence,
            last_sequence: header.last_sequence,
            commit_time_us: header.commit_time_us,
        };
        let payload = reader.payload(before.offset, record)?;
        if let Visit::EndHere(reason) = (self.visitor)(&info, &payload)? {
            // Continue without visiting, to learn how far the log was durable.
            self.stopped = Some((before.clone(), reason));
        }
        Ok(())
    }

    fn next_of_seal(&self, (number, file_id): (FileNumber, FileId), position: &Position) -> Result<Next<'a>> {
        let next = self.files.required(number, "a log segment that the previous one names")?;
        let (header, link) = next.header()?;
        let fits = header.file_id == file_id
            && header.start_lsn == position.lsn
            && header.epoch == position.epoch
            && !header.begins_epoch();
        if !fits {
            return Err(next.bad(0, "the log segment is not the one that the previous segment names"));
        }
        Ok(Next::Segment(next, next.first_position(header, link, position.last_sequence)))
    }

    /// An error unless it may be the log's end.
    fn break_at(
        &mut self,
        found: Found,
        position: Position,
        candidate: &Candidate,
        mut reader: SegmentReader<'_>,
        bounded: bool,
    ) -> Result<Next<'a>> {
        if bounded {
            return Err(candidate.bad(position.offset, "the log breaks off before the end in the next epoch's header"));
        }
        self.found = found;
        self.beyond = reader.beyond(position.offset)?;
        let probed = self.prefetch.take().map(RecoveryPrefetch::finish).unwrap_or_default();
        for (later, header) in self.files.valid() {
            if header.epoch == position.epoch && header.start_lsn >= position.lsn {
                self.durable_lsn = self.durable_lsn.max(header.durable_lsn);
                self.beyond.add(match probed.get(&header.number) {
                    Some(beyond) => *beyond,
                    None => later.probe(header).read()?,
                });
            }
        }
        self.durable_lsn = self.durable_lsn.max(self.beyond.durable_lsn);
        self.remains = remains(&mut reader, position.offset, found, &self.beyond)?;
        Ok(Next::End(position))
    }

    fn settle(&mut self) -> Result<()> {
        if let Some((candidate, header)) = self.files.valid().find(|(_, header)| header.epoch > self.end.epoch) {
            let detail = format!("no other log segment leads to this one of epoch {}", header.epoch);
            return Err(candidate.bad(0, &detail));
        }
        let (end, reason) = match &self.stopped {
            Some((position, reason)) => (position, reason.as_str()),
            None => (&self.end, "there is no intact log record here"),
        };
        if end.lsn < self.durable_lsn {
            let detail = format!("{reason}, but the log was synced up to LSN {}", self.durable_lsn);
            let path = self.files.by_number.get(&end.number).map(|c| c.path.clone()).unwrap_or_default();
            return Err(Error::corruption(path, end.offset, detail));
        }
        Ok(())
    }

    fn cut_tail(&self) -> Option<CutTail> {
        let (end, remains) = match (&self.stopped, &self.remains) {
            (Some((position, reason)), _) => {
                let len = if self.end.number == position.number { self.end.offset - position.offset } else { 0 };
                (position, Remains { offset: position.offset, len, detail: reason.clone() })
            }
            (None, Some(remains)) => (&self.end, remains.clone()),
            (None, None) => return None,
        };
        let Remains { offset, len, detail } = remains;
        let path = segment_path(&self.files.dir, end.number);
        Some(CutTail { number: end.number, path, offset, len, detail, last_commit: end.last_sequence })
    }

    fn outcome(self) -> Result<RecoveryOutcome> {
        let highest_epoch = self.files.valid().map(|(_, header)| header.epoch).max().unwrap_or(0);
        let limit = self.files.valid().map(|(_, header)| header.limit_lsn()).max().unwrap_or(0);
        let start_lsn = limit.max(self.input.durable_lsn).max(self.end.lsn);
        let next_epoch = highest_epoch
            .checked_add(1)
            .filter(|_| start_lsn < MAX_LSN)
            .ok_or_else(|| Error::corruption(&self.files.dir, 0, "the log's epochs or positions are used up"))?;
        let cut_tail = self.cut_tail();
        let tail_note = cut_tail.as_ref().map(CutTail::to_string);
        let ambiguous_tail = tail_note.is_some() || self.found != Found::Nothing;
        let is_stopped = self.stopped.is_some();
        let ends_closed = !is_stopped && self.beyond.records == 0 && self.closed_lsn == Some(self.end.lsn);
        let is_closed_cleanly = ends_closed || self.input.oldest_segment.is_none();
        let begins_after = self.used.first().map_or(0, |segment| segment.header.previous_sequence);
        let end = self.stopped.map_or(self.end, |(position, _)| position);
        let mut used = self.used;
        used.retain(|segment| segment.header.epoch < end.epoch || segment.header.start_lsn <= end.lsn);
        if let Some(last) = used.last() {
            last.close(end.lsn);
            last.set_last_sequence(end.last_sequence);
        }
        let tail = used
            .last()
            .filter(|segment| segment.header.number == end.number)
            .map(|segment| Tail::new(segment.header, segment.path.clone(), segment.file(), end.clone()));
        let segments: Vec<SegmentInfo> = used.iter().map(|segment| segment.info()).collect();
        let unneeded =
            self.files.by_number.keys().copied().filter(|n| segments.iter().all(|s| s.number != *n)).collect();
        Ok(RecoveryOutcome {
            end_lsn: end.lsn,
            durable_lsn: self.durable_lsn,
            last_sequence: end.last_sequence,
            next_epoch,
            segments,
            unneeded,
            highest_file_number: self.files.by_number.keys().next_back().copied().unwrap_or(0),
            tail_note,
            cut_tail,
            is_closed_cleanly,
            ambiguous_tail,
            tail,
            begins_after,
            is_stopped,
            files: SeenFiles::default(),
            start: WalStart {
                epoch: next_epoch,
                start_lsn,
                previous_end_lsn: end.lsn,
                previous_link: end.link,
                previous_epoch: end.epoch,
                previous_sequence: end.last_sequence.max(self.input.flushed),
                older: used,
                retained: VecDeque::new(),
                floor: self.input.flushed.max(end.last_sequence),
                retention: RetentionLimit::default(),
            },
        })
    }
}
