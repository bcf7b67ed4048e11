//! Walks over the whole log, continues after damage, and lists each damaged part once.
//!
//! The walk follows the chain as recovery does. Where a record is missing, it searches the next
//! valid record header: checksums cover file id and LSN, so it was written there in the current use
//! of the file. The damage extends to that record. After a missing or damaged segment, the walk
//! continues in the segment that begins next.
//!
//! Nothing is written. Memory is bounded by the longest record and the damaged parts.

use super::{
    format::{Epoch, Link, Lsn, SEGMENT_HEADER_LEN, SegmentHeader, segment_path},
    record::{Record, RecordFlags, decode_seal},
    recovery::{Candidate, RecordInfo, SeenFiles},
    remains::remains,
    scan::{Beyond, Found, SegmentReader},
};
use crate::{
    base::{Corruption, Error, FileId, FileNumber, Result, SequenceNumber},
    codec::FILE_HEADER_LEN,
    platform::Vfs,
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

#[derive(Clone, Copy, Debug, Default)]
pub struct LogBounds {
    pub oldest_segment: Option<FileNumber>,
    pub durable_lsn: Lsn,
    pub flushed: SequenceNumber,
    pub end_lsn: Option<Lsn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogDamageKind {
    Damaged,
    Missing,
    Tail,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDamage {
    pub kind: LogDamageKind,
    pub number: FileNumber,
    pub path: PathBuf,
    pub offset: u64,
    pub len: u64,
    pub detail: String,
    pub last_commit: SequenceNumber,
    pub next_commit: Option<SequenceNumber>,
}

#[derive(Clone, Debug, Default)]
pub struct WalkedLog {
    pub segments: BTreeSet<FileNumber>,
    pub bytes: u64,
    pub last_commit: SequenceNumber,
    pub damaged: Vec<LogDamage>,
}

/// Receives path, offset, properties and decompressed payload of a commit group's record.
pub type GroupVisitor<'a> = dyn FnMut(&Path, u64, &RecordInfo, &[u8]) -> Result<()> + 'a;

/// Calls `visitor` with each whole commit group in `dir`, including groups in runs. Returns errors
/// of reads and of `visitor` only.
pub fn walk_damaged_log(
    vfs: &dyn Vfs,
    dir: &Path,
    bounds: &LogBounds,
    visitor: &mut GroupVisitor<'_>,
) -> Result<WalkedLog> {
    let Some(oldest) = bounds.oldest_segment else { return Ok(WalkedLog::default()) };
    let files = SeenFiles::list(vfs, dir)?;
    let mut walk = Walk {
        dir,
        files: &files,
        bounds,
        visitor,
        out: WalkedLog::default(),
        seen: BTreeSet::new(),
        lsn: 0,
        epoch: 0,
        known: None,
    };
    let mut next = Some(Named { number: oldest, file_id: None });
    while let Some(named) = next {
        next = match walk.segment(&named)? {
            Step::To(named) => Some(named),
            Step::Lost => walk.resume(),
            Step::End => None,
        };
    }
    walk.unreached();
    Ok(walk.out)
}

struct Named {
    number: FileNumber,
    file_id: Option<FileId>,
}

enum Step {
    To(Named),
    Lost,
    End,
}

struct Walk<'a> {
    dir: &'a Path,
    files: &'a SeenFiles,
    bounds: &'a LogBounds,
    visitor: &'a mut GroupVisitor<'a>,
    out: WalkedLog,
    seen: BTreeSet<FileNumber>,
    lsn: Lsn,
    epoch: Epoch,
    known: Option<(Epoch, Lsn)>,
}

struct InSegment<'a> {
    header: SegmentHeader,
    path: &'a Path,
    reader: SegmentReader<'a>,
    offset: u64,
    /// The link that the next record must carry; `None` after damage.
    link: Option<Link>,
}

impl InSegment<'_> {
    fn lsn(&self) -> Lsn {
        self.header.start_lsn + self.offset
    }
}

impl<'a> Walk<'a> {
    fn note(&mut self, kind: LogDamageKind, number: FileNumber, (offset, len): (u64, u64), detail: impl Into<String>) {
        let (path, last_commit) = (segment_path(self.dir, number), self.out.last_commit);
        let detail = detail.into();
        self.out.damaged.push(LogDamage { kind, number, path, offset, len, detail, last_commit, next_commit: None });
    }

    fn segment(&mut self, named: &Named) -> Result<Step> {
        let number = named.number;
        if !self.seen.insert(number) {
            return Ok(Step::End);
        }
        let Some(candidate) = self.files.get(number) else {
            let detail = "the log segment is missing";
            self.note(LogDamageKind::Missing, number, (0, 0), detail);
            return Ok(Step::Lost);
        };
        self.out.segments.insert(number);
        let (header, link) = match candidate.header() {
            Ok((header, link)) => (*header, link),
            Err(Error::Corruption(Corruption { offset, detail, .. })) => {
                let end = if offset < FILE_HEADER_LEN as u64 { FILE_HEADER_LEN as u64 } else { SEGMENT_HEADER_LEN };
                self.note(LogDamageKind::Damaged, number, (offset, end.saturating_sub(offset).max(1)), detail);
                return Ok(Step::Lost);
            }
            Err(error) => return Err(error),
        };
        if named.file_id.is_some_and(|id| id != header.file_id) || header.start_lsn < self.lsn {
            let detail = "the log segment is not the one that the previous segment names";
            self.note(LogDamageKind::Damaged, number, (0, SEGMENT_HEADER_LEN), detail);
            return Ok(Step::Lost);
        }
        if candidate.file_len() < header.len {
            let (file_len, len) = (candidate.file_len(), header.len);
            let detail = format!("the log segment has {file_len} of {len} bytes");
            self.note(LogDamageKind::Damaged, number, (file_len, len - file_len), detail);
        }
        (self.epoch, self.lsn) = (header.epoch, header.start_lsn + SEGMENT_HEADER_LEN);
        let header = SegmentHeader { len: header.len.min(candidate.file_len()), ..header };
        self.records(candidate, header, link)
    }

    fn records(&mut self, candidate: &Candidate, header: SegmentHeader, link: Link) -> Result<Step> {
        let (file, path) = candidate.place();
        let reader = SegmentReader::new(&header, file, path);
        let mut at = InSegment { header, path, reader, offset: SEGMENT_HEADER_LEN, link: Some(link) };
        self.out.last_commit = self.out.last_commit.max(header.previous_sequence);
        let successor = self.files.successor(header.epoch).map(|(_, header, _)| *header);
        let step = loop {
            self.lsn = at.lsn();
            if let Some(next) = &successor
                && self.lsn >= next.previous_end_lsn
            {
                let is_right =
                    self.lsn == next.previous_end_lsn && at.link.is_none_or(|link| link == next.previous_link);
                if !is_right {
                    let detail = "the log does not end where the next epoch's header says";
                    self.note(LogDamageKind::Damaged, header.number, (at.offset, 1), detail);
                }
                break Step::To(Named { number: next.number, file_id: None });
            }
            if self.bounds.end_lsn.is_some_and(|end| self.lsn >= end) {
                break Step::End;
            }
            match at.reader.find(at.offset)? {
                Found::Record(record) if at.link.is_none_or(|link| link == record.header.previous_link) => {
                    if let Some(step) = self.record(&mut at, &record)? {
                        break step;
                    }
                }
                found => {
                    if let Some(step) = self.damage(&mut at, found, successor.is_some())? {
                        break step;
                    }
                }
            }
        };
        self.out.bytes += at.offset;
        Ok(step)
    }

    fn record(&mut self, at: &mut InSegment<'_>, record: &Record) -> Result<Option<Step>> {
        let (offset, lsn, number) = (at.offset, at.lsn(), at.header.number);
        let header = &record.header;
        at.offset += record.file_len();
        at.link = Some(record.link);
        if !header.flags.is_group() && !header.flags.contains(RecordFlags::SEAL) {
            return Ok(None);
        }
        let payload = match at.reader.payload(offset, record) {
            Ok(payload) => payload,
            Err(Error::Corruption(Corruption { detail, .. })) => {
                self.note(LogDamageKind::Damaged, number, (offset, record.file_len()), detail);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if header.flags.contains(RecordFlags::SEAL) {
            self.lsn = lsn + record.file_len();
            let Some((number, file_id)) = decode_seal(&payload) else {
                self.note(
                    LogDamageKind::Damaged,
                    number,
                    (offset, record.file_len()),
                    "the record should name the next log segment, and does not",
                );
                return Ok(Some(Step::Lost));
            };
            return Ok(Some(Step::To(Named { number, file_id: Some(file_id) })));
        }
        if header.first_sequence <= self.out.last_commit {
            let detail = format!(
                "commit {} follows commit {}, and numbers must increase",
                header.first_sequence, self.out.last_commit
            );
            self.note(LogDamageKind::Damaged, number, (offset, record.file_len()), detail);
            return Ok(None);
        }
        self.out.last_commit = header.last_sequence;
        for damage in self.out.damaged.iter_mut().rev().take_while(|damage| damage.next_commit.is_none()) {
            damage.next_commit = Some(header.first_sequence);
        }
        let info = RecordInfo {
            epoch: at.header.epoch,
            lsn,
            end_lsn: lsn + record.file_len(),
            first_sequence: header.first_sequence,
            last_sequence: header.last_sequence,
            commit_time_us: header.commit_time_us,
        };
        (self.visitor)(at.path, offset, &info, &payload)?;
        Ok(None)
    }

    fn damage(&mut self, at: &mut InSegment<'_>, found: Found, has_successor: bool) -> Result<Option<Step>> {
        let (offset, number) = (at.offset, at.header.number);
        let next = at.reader.next_record(offset + 1)?;
        let is_known = has_successor || self.bounds.end_lsn.is_some() || self.known(at)? > at.lsn();
        if !is_known {
            let mut beyond = at.reader.beyond(offset)?;
            beyond.add(self.beyond_in_later(at.lsn())?);
            if let Some(remains) = remains(&mut at.reader, offset, found, &beyond)? {
                self.note(LogDamageKind::Tail, number, (remains.offset, remains.len), remains.detail);
            }
            return Ok(Some(Step::End));
        }
        let (end, detail) = match (found, next) {
            (Found::Record(record), _) => (offset + record.file_len(), "a log record does not follow the previous one"),
            (Found::Torn(record), _) => {
                (offset + record.file_len(), "the payload of a log record does not match its checksum")
            }
            (_, Some((next, _))) => (next, "there is no intact log record here"),
            (_, None) => (self.end_of_records(&at.header), "there is no intact log record from here on"),
        };
        self.note(LogDamageKind::Damaged, number, (offset, end.saturating_sub(offset).max(1)), detail);
        (at.offset, at.link) = (end.max(offset + 1), None);
        self.lsn = at.lsn();
        let is_over = next.is_none() && !matches!(found, Found::Record(_) | Found::Torn(_));
        Ok(is_over.then_some(Step::Lost))
    }

    fn end_of_records(&self, header: &SegmentHeader) -> u64 {
        let successor = self.files.successor(header.epoch).map(|(_, next, _)| next.previous_end_lsn);
        let ends = [successor, self.bounds.end_lsn].into_iter().flatten();
        let within = ends.filter(|end| (header.start_lsn..header.limit_lsn()).contains(end));
        within.map(|end| end - header.start_lsn).min().unwrap_or(header.len)
    }

    /// Returns how far records after the first damage show the log to be durable.
    fn known(&mut self, at: &mut InSegment<'_>) -> Result<Lsn> {
        if let Some((epoch, known)) = self.known
            && epoch == at.header.epoch
        {
            return Ok(known);
        }
        let mut known = self.bounds.durable_lsn.max(at.reader.beyond(at.offset)?.durable_lsn);
        known = known.max(self.beyond_in_later(at.lsn())?.durable_lsn);
        self.known = Some((at.header.epoch, known));
        Ok(known)
    }

    fn beyond_in_later(&self, lsn: Lsn) -> Result<Beyond> {
        let mut beyond = Beyond::default();
        for (candidate, header) in self.files.valid() {
            if header.epoch == self.epoch && header.start_lsn >= lsn {
                beyond.add(Beyond { durable_lsn: header.durable_lsn, ..Beyond::default() });
                beyond.add(candidate.beyond(header)?);
            }
        }
        Ok(beyond)
    }

    fn resume(&self) -> Option<Named> {
        let is_later = |header: &SegmentHeader| {
            !self.seen.contains(&header.number)
                && header.epoch >= self.epoch
                && header.start_lsn >= self.lsn
                && header.previous_sequence >= self.bounds.flushed
        };
        let later = self.files.valid().map(|(_, header)| header).filter(|header| is_later(header));
        later.min_by_key(|header| header.start_lsn).map(|header| Named { number: header.number, file_id: None })
    }

    /// Reports an epoch (use of the log) that the chain does not reach, if there is no other
    /// damage.
    fn unreached(&mut self) {
        if !self.out.damaged.is_empty() || self.bounds.end_lsn.is_some() {
            return;
        }
        let later = self.files.valid().find(|(_, header)| header.epoch > self.epoch);
        if let Some((_, header)) = later {
            let detail = format!("no other log segment leads to this one of epoch {}", header.epoch);
            self.note(LogDamageKind::Damaged, header.number, (0, SEGMENT_HEADER_LEN), detail);
        }
    }
}
