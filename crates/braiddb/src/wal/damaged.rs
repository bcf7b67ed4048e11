//! Reads everything intact in a damaged log, for salvage.
//!
//! Segments are walked in log order. Records count while each carries the link of the previous one.
//! After a break the next whole record is searched; the space between is a **gap**. Both checksums
//! cover file id and position, so records of earlier uses of a file never pass.
//!
//! Discarded commits stay discarded. A record past the recorded end of its epoch (one use of the
//! log, from open to close) does not count. Sequence numbers of discarded commits are reused, so
//! after a break a record does not count either if its number is above the `previous_sequence` of a
//! segment of a later epoch.
//!
//! A header area with one damaged byte is repaired: only one value of one byte fits its checksum.

use super::{
    format::{Epoch, Link, Lsn, SEGMENT_HEADER_LEN, SegmentHeader, segment_number, segment_path},
    record::{Record, RecordFlags, decode_seal},
    recovery::RecordInfo,
    scan::{Found, SegmentReader},
};
use crate::{
    base::{Corruption, Error, FileId, FileNumber, Result, SequenceNumber},
    codec::{FILE_HEADER_LEN, FileHeader, FileKind, checksum, repair_byte},
    platform::{File, OpenMode, Vfs},
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

#[derive(Clone, Copy, Debug, Default)]
pub struct DamagedLogInput {
    pub oldest_segment: Option<FileNumber>,
    pub durable_lsn: Lsn,
    pub epoch: Option<Epoch>,
    pub flushed: SequenceNumber,
    pub stop_at_gap: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogGap {
    pub path: PathBuf,
    pub offset: u64,
    pub after: SequenceNumber,
    pub before: Option<SequenceNumber>,
    pub detail: String,
}

#[derive(Debug, Default)]
pub struct DamagedLog {
    pub gaps: Vec<LogGap>,
    /// Paths without records of this log, and the reasons.
    pub ignored: Vec<(PathBuf, String)>,
    /// Path and offset of a repaired byte in a header area.
    pub repaired: Vec<(PathBuf, usize)>,
    pub unlinked: Vec<PathBuf>,
    pub groups: u64,
    pub bytes: u64,
    pub last_sequence: SequenceNumber,
    pub last_commit_us: u64,
}

/// Upper bound on the length of a seal record, in bytes.
const SEAL_BYTES_MAX: u64 = 128;

struct Readable {
    path: PathBuf,
    file: Arc<dyn File>,
    header: SegmentHeader,
    link: Link,
    is_cut: bool,
}

type Unreadable = (FileNumber, PathBuf, String);

#[derive(Clone, Copy, Debug, Default)]
struct At {
    epoch: Epoch,
    lsn: Lsn,
    link: Link,
    last: SequenceNumber,
}

pub fn read_damaged_log(
    vfs: &dyn Vfs,
    dir: &Path,
    input: &DamagedLogInput,
    visitor: &mut dyn FnMut(&RecordInfo, &[u8]) -> Result<()>,
) -> Result<DamagedLog> {
    let mut log = DamagedLog::default();
    let (segments, lost) = list(vfs, dir, input, &mut log)?;
    let mut walk = Walk {
        input,
        visitor,
        log,
        at: At::default(),
        seal: None,
        open_gap: None,
        is_clean_end: false,
        foreign: BTreeSet::new(),
        is_ended: false,
        broken: None,
        highest: SequenceNumber::MAX,
    };
    walk.log.last_sequence = input.flushed;
    walk.at.last = input.flushed.min(walk.begins_after(&segments));
    walk.check_begin(dir, &segments, &lost);
    for (index, segment) in segments.iter().enumerate() {
        let ends = |next: &&Readable| begins_after_epoch(&next.header, segment.header.epoch);
        let bounds: Vec<SegmentHeader> = segments.iter().filter(ends).map(|next| next.header).collect();
        let later = segments.get(index + 1..).unwrap_or_default();
        let of_later_epochs = later.iter().filter(|later| later.header.epoch > segment.header.epoch);
        let highest = of_later_epochs.map(|later| later.header.previous_sequence).min();
        walk.highest = highest.unwrap_or(SequenceNumber::MAX);
        if walk.enter(segment, &bounds, later, index == 0, dir) {
            walk.segment(segment, &bounds)?;
        }
    }
    walk.finish(dir, &lost);
    Ok(walk.log)
}

fn begins_after_epoch(header: &SegmentHeader, epoch: Epoch) -> bool {
    header.begins_epoch() && header.previous_epoch == epoch
}

fn list(
    vfs: &dyn Vfs,
    dir: &Path,
    input: &DamagedLogInput,
    log: &mut DamagedLog,
) -> Result<(Vec<Readable>, Vec<Unreadable>)> {
    let (mut segments, mut lost) = (Vec::new(), Vec::new());
    for entry in vfs.list(dir).map_err(|e| Error::io("list", dir, e))? {
        let Some(number) = segment_number(&entry.name) else { continue };
        let path = dir.join(&entry.name);
        log.bytes += entry.len;
        match open(vfs, &path) {
            Ok(None) => {}
            Ok(Some((segment, repaired))) => {
                log.repaired.extend(repaired.map(|place| (path.clone(), place)));
                if segment.header.number == number {
                    segments.push(segment);
                } else {
                    let detail = format!("its header is of segment {:06}", segment.header.number);
                    log.ignored.push((path, detail));
                }
            }
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            Err(Error::Corruption(Corruption { detail, .. })) => lost.push((number, path, detail)),
            Err(error) => lost.push((number, path, error.to_string())),
        }
    }
    segments.sort_by_key(|segment| (segment.header.epoch, segment.header.start_lsn, segment.header.number));
    if let Some(oldest) = input.oldest_segment {
        let begin = segments.iter().find(|s| s.header.number == oldest).map(|s| (s.header.epoch, s.header.start_lsn));
        let is_before = |segment: &Readable| match begin {
            Some(begin) => (segment.header.epoch, segment.header.start_lsn) < begin,
            None => segment.header.number < oldest,
        };
        segments.retain(|segment| !is_before(segment));
        lost.retain(|(number, ..)| *number >= oldest);
    }
    if let Some(epoch) = input.epoch {
        let (ours, others) = segments.into_iter().partition(|s: &Readable| s.header.epoch <= epoch);
        segments = ours;
        let detail =
            |s: Readable| (s.path, format!("it is of epoch {}, and the database is in epoch {epoch}", s.header.epoch));
        log.ignored.extend(others.into_iter().map(detail));
    }
    Ok((segments, lost))
}

/// `None` for an unused file. Also returns the offset of a repaired header byte.
fn open(vfs: &dyn Vfs, path: &Path) -> Result<Option<(Readable, Option<usize>)>> {
    let file = vfs.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
    let file_len = file.len().map_err(|e| Error::io("read", path, e))?;
    let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
    if file_len < SEGMENT_HEADER_LEN {
        return Err(Error::corruption(path, file_len, "the segment header is cut short"));
    }
    file.read_exact_at(&mut bytes, 0).map_err(|e| Error::io("read", path, e))?;
    if bytes.iter().all(|&byte| byte == 0) && is_unused(&*file, file_len) {
        return Ok(None);
    }
    let repaired = repair(&mut bytes);
    let (mut header, link) = SegmentHeader::decode(&bytes, path)?;
    let is_cut = header.len > file_len;
    header.len = header.len.min(file_len);
    Ok(Some((Readable { path: path.to_owned(), file, header, link, is_cut }, repaired)))
}

fn is_unused(file: &dyn File, len: u64) -> bool {
    let mut buffer = vec![0; 64 << 10];
    let mut at = 0;
    while at < len {
        at = match file.next_written(at) {
            Ok(None) => return true,
            Ok(Some(written)) => written.max(at),
            Err(_) => return false,
        };
        match file.read_at(&mut buffer, at) {
            Ok(0) => return true,
            Ok(read) if buffer[..read].iter().all(|&byte| byte == 0) => at += read as u64,
            _ => return false,
        }
    }
    true
}

fn repair(bytes: &mut [u8; SEGMENT_HEADER_LEN as usize]) -> Option<usize> {
    const REST: usize = SEGMENT_HEADER_LEN as usize - FILE_HEADER_LEN;
    let mut head = *bytes.first_chunk::<FILE_HEADER_LEN>()?;
    let mut rest = *bytes.last_chunk::<REST>()?;
    let place = match FileHeader::decode_repaired(FileKind::Wal, &head, Path::new(""), 0) {
        Ok((header, None)) => {
            let is_whole = |rest: &[u8; REST]| {
                checksum(header.file_id, FILE_HEADER_LEN as u64, &rest[..REST - 8]).to_le_bytes() == rest[REST - 8..]
            };
            repair_byte(&mut rest, is_whole)? + FILE_HEADER_LEN
        }
        Ok((header, Some(place))) => {
            head = header.encode();
            place
        }
        Err(_) => return None,
    };
    bytes[..FILE_HEADER_LEN].copy_from_slice(&head);
    bytes[FILE_HEADER_LEN..].copy_from_slice(&rest);
    Some(place)
}

/// True if the log never wrote past `offset`. Damage that leaves zeros comes in sectors; a record
/// would have to end exactly at a sector boundary.
fn is_never_written(segment: &Readable, offset: u64) -> bool {
    let mut bytes = [0; 64];
    let Ok(read) = segment.file.read_at(&mut bytes, offset) else { return false };
    let is_zero = bytes.iter().take(read).all(|&byte| byte == 0);
    !segment.is_cut && read > 0 && !(is_zero && offset.is_multiple_of(512))
}

struct Walk<'a> {
    input: &'a DamagedLogInput,
    visitor: &'a mut dyn FnMut(&RecordInfo, &[u8]) -> Result<()>,
    log: DamagedLog,
    at: At,
    seal: Option<(FileNumber, FileId)>,
    open_gap: Option<LogGap>,
    /// The previous segment ended at bytes never written: nothing follows it.
    is_clean_end: bool,
    /// Headers that claim to begin an epoch of this log but do not match its end.
    foreign: BTreeSet<FileId>,
    is_ended: bool,
    broken: Option<Epoch>,
    highest: SequenceNumber,
}

impl Walk<'_> {
    fn begins_after(&self, segments: &[Readable]) -> SequenceNumber {
        segments.first().map_or(0, |first| first.header.previous_sequence)
    }

    fn check_begin(&mut self, dir: &Path, segments: &[Readable], lost: &[Unreadable]) {
        let Some(oldest) = self.input.oldest_segment else { return };
        if segments.first().is_some_and(|first| first.header.number == oldest) {
            return;
        }
        self.at.last = self.input.flushed;
        let found = lost.iter().find(|(number, ..)| *number == oldest);
        let (path, detail) = found.map_or_else(
            || (segment_path(dir, oldest), "the oldest segment of the log is missing".to_owned()),
            |(_, path, detail)| (path.clone(), detail.clone()),
        );
        self.gap(&path, 0, detail);
    }

    fn gap(&mut self, path: &Path, offset: u64, detail: impl Into<String>) {
        if self.open_gap.is_none() {
            let (after, detail) = (self.at.last, detail.into());
            self.open_gap = Some(LogGap { path: path.to_owned(), offset, after, before: None, detail });
        }
    }

    fn end_gap(&mut self, first: SequenceNumber) {
        if let Some(gap) = self.open_gap.take() {
            // Commits in runs are not lost.
            if first > self.input.flushed.max(gap.after) + 1 {
                self.log.gaps.push(LogGap { before: Some(first), ..gap });
            }
        }
    }

    /// Moves to the start of a segment. Returns false if it is not part of this log.
    fn enter(
        &mut self,
        segment: &Readable,
        bounds: &[SegmentHeader],
        later: &[Readable],
        is_first: bool,
        dir: &Path,
    ) -> bool {
        let header = &segment.header;
        let at = self.at;
        let begin = At {
            epoch: header.epoch,
            lsn: header.start_lsn + SEGMENT_HEADER_LEN,
            link: segment.link,
            last: at.last.max(header.previous_sequence),
        };
        if is_first || self.is_ended {
            self.at = begin;
            return !self.is_ended;
        }
        if let Some(detail) = self.why_not(header, bounds, later) {
            self.log.ignored.push((segment.path.clone(), detail));
            return false;
        }
        let seal = self.seal.take();
        let is_next = match seal {
            Some((number, file_id)) => (number, file_id) == (header.number, header.file_id),
            None => {
                header.begins_epoch()
                    && (header.previous_epoch, header.previous_end_lsn, header.previous_link)
                        == (at.epoch, at.lsn, at.link)
            }
        };
        if !is_next {
            match seal {
                Some((number, _)) => {
                    let detail = "the segment that the previous one names is missing or was replaced";
                    self.gap(&segment_path(dir, number), 0, detail);
                }
                None => self.gap(&segment.path, 0, "the end of the previous segment is missing"),
            }
            self.log.unlinked.push(segment.path.clone());
        }
        if self.input.stop_at_gap && self.open_gap.is_some() {
            self.is_ended = true;
            return false;
        }
        self.at = begin;
        true
    }

    fn why_not(&self, header: &SegmentHeader, bounds: &[SegmentHeader], later: &[Readable]) -> Option<String> {
        let at = self.at;
        if self.foreign.contains(&header.file_id) {
            return Some("it continues another log".to_owned());
        }
        let is_past = |bound: &&SegmentHeader| {
            !self.foreign.contains(&bound.file_id) && header.start_lsn >= bound.previous_end_lsn
        };
        if let Some(bound) = bounds.iter().rfind(is_past) {
            return Some(format!("it was discarded when epoch {} began", bound.epoch));
        }
        if header.start_lsn < at.lsn && header.epoch == at.epoch {
            return Some("another segment holds this part of the log".to_owned());
        }
        if let Some((number, file_id)) = self.seal
            && (number, file_id) != (header.number, header.file_id)
            && later.iter().any(|later| (later.header.number, later.header.file_id) == (number, file_id))
        {
            return Some("the log continues in another segment".to_owned());
        }
        let begins_here = |header: &SegmentHeader| {
            header.begins_epoch()
                && (header.previous_epoch, header.previous_end_lsn, header.previous_link) == (at.epoch, at.lsn, at.link)
        };
        let is_successor = begins_here(header);
        if self.seal.is_none() && !is_successor && later.iter().any(|later| begins_here(&later.header)) {
            return Some("the log continues in another segment".to_owned());
        }
        // If only a seal is lost, the next segment begins right after it.
        let is_next = header.epoch == at.epoch && header.start_lsn.saturating_sub(at.lsn) <= SEAL_BYTES_MAX;
        let is_known_to_continue = is_next || self.input.durable_lsn > at.lsn;
        // If the log's begin is unknown, old segments may lack their successors.
        let is_begin_known = self.input.oldest_segment.is_some();
        if is_begin_known && self.seal.is_none() && self.is_clean_end && !is_successor && !is_known_to_continue {
            return Some("the log ends before it".to_owned());
        }
        None
    }

    /// True if the next epoch's header ends this epoch here. A header with an earlier end, before
    /// unbroken records, belongs to another log.
    fn is_end_of_epoch(&mut self, bounds: &[SegmentHeader], lsn: Lsn) -> bool {
        let is_broken = self.open_gap.is_some();
        for bound in bounds.iter().filter(|bound| lsn >= bound.previous_end_lsn) {
            if self.foreign.contains(&bound.file_id) {
                continue;
            }
            if is_broken || (lsn, self.at.link) == (bound.previous_end_lsn, bound.previous_link) {
                return true;
            }
            self.foreign.insert(bound.file_id);
        }
        false
    }

    fn segment(&mut self, segment: &Readable, bounds: &[SegmentHeader]) -> Result<()> {
        self.is_clean_end = false;
        let mut reader = SegmentReader::new(&segment.header, &*segment.file, &segment.path);
        let mut offset = SEGMENT_HEADER_LEN;
        loop {
            if self.is_end_of_epoch(bounds, segment.header.start_lsn + offset) {
                return Ok(());
            }
            let (at, record) = match reader.find(offset).unwrap_or(Found::Nothing) {
                Found::Record(record) if record.header.previous_link == self.at.link => (offset, record),
                found => {
                    let Some(next) = self.after_break(segment, &mut reader, offset, found) else {
                        self.is_clean_end = found == Found::Nothing && is_never_written(segment, offset);
                        return Ok(());
                    };
                    next
                }
            };
            let header = &record.header;
            if self.broken == Some(segment.header.epoch) && self.is_given_up(&record) {
                return Ok(());
            }
            self.at = At { lsn: segment.header.start_lsn + at + record.file_len(), link: record.link, ..self.at };
            offset = at + record.file_len();
            // Seals and notes carry the last commit before them.
            if !header.flags.is_group() && self.open_gap.as_ref().is_some_and(|gap| gap.after >= header.first_sequence)
            {
                self.open_gap = None;
            }
            if header.flags.contains(RecordFlags::SEAL) {
                self.seal = reader.payload(at, &record).ok().and_then(|payload| decode_seal(&payload));
                return Ok(());
            }
            if header.flags.is_group() {
                self.group(segment, &mut reader, at, &record)?;
            }
        }
    }

    fn is_given_up(&self, record: &Record) -> bool {
        record.header.last_sequence > self.highest
    }

    fn after_break(
        &mut self,
        segment: &Readable,
        reader: &mut SegmentReader<'_>,
        offset: u64,
        found: Found,
    ) -> Option<(u64, Record)> {
        let mut from = offset;
        let next = loop {
            let Ok(Some(place)) = reader.next_magic(from) else { break None };
            match reader.find(place).unwrap_or(Found::Nothing) {
                Found::Record(record) if self.is_given_up(&record) => break None,
                Found::Record(record) if record.header.first_sequence >= self.at.last => break Some((place, record)),
                Found::Record(record) | Found::Torn(record) => from = place + record.file_len(),
                Found::Remains | Found::Nothing => from = place + 1,
            }
        };
        if next.is_some() {
            self.broken = Some(segment.header.epoch);
        }
        match (&next, found) {
            (Some(_), _) => self.gap(&segment.path, offset, "there is no intact log record here"),
            (None, Found::Torn(record)) => {
                let commits = (record.header.first_sequence, record.header.last_sequence);
                self.gap(
                    &segment.path,
                    offset,
                    format!("the record of commits {} to {} is incomplete or damaged", commits.0, commits.1),
                );
                self.log.last_sequence = self.log.last_sequence.max(commits.1);
            }
            // This may be the end of the log; the next segment will show.
            (None, _) => {}
        }
        if self.input.stop_at_gap && next.is_some() {
            self.is_ended = true;
            return None;
        }
        next
    }

    fn group(
        &mut self,
        segment: &Readable,
        reader: &mut SegmentReader<'_>,
        offset: u64,
        record: &Record,
    ) -> Result<()> {
        let header = &record.header;
        if header.first_sequence <= self.at.last && self.at.last > 0 && header.last_sequence <= self.at.last {
            return Ok(());
        }
        self.end_gap(header.first_sequence);
        self.at.last = header.last_sequence;
        self.log.last_sequence = self.log.last_sequence.max(header.last_sequence);
        self.log.last_commit_us = self.log.last_commit_us.max(header.commit_time_us);
        if header.last_sequence <= self.input.flushed {
            return Ok(());
        }
        let info = RecordInfo {
            epoch: segment.header.epoch,
            lsn: segment.header.start_lsn + offset,
            end_lsn: self.at.lsn,
            first_sequence: header.first_sequence,
            last_sequence: header.last_sequence,
            commit_time_us: header.commit_time_us,
        };
        match reader.payload(offset, record) {
            Ok(payload) => {
                self.log.groups += 1;
                (self.visitor)(&info, &payload)
            }
            Err(error) => {
                self.at.last = header.first_sequence.saturating_sub(1);
                self.gap(&segment.path, offset, error.to_string());
                self.at.last = header.last_sequence;
                Ok(())
            }
        }
    }

    fn finish(&mut self, dir: &Path, lost: &[Unreadable]) {
        if let Some((number, _)) = self.seal.take() {
            let found = lost.iter().find(|(lost, ..)| *lost == number);
            let (path, detail) = found.map_or_else(
                || (segment_path(dir, number), "the segment that the previous one names is missing".to_owned()),
                |(_, path, detail)| (path.clone(), detail.clone()),
            );
            self.gap(&path, 0, detail);
        }
        // Without the manifest, an unreadable segment is the only trace of its commits.
        let named: BTreeSet<PathBuf> = self.log.gaps.iter().chain(&self.open_gap).map(|gap| gap.path.clone()).collect();
        for (_, path, detail) in lost.iter().filter(|(_, path, _)| !named.contains(path)) {
            if self.input.oldest_segment.is_none() {
                self.gap(path, 0, detail.clone());
            } else {
                self.log.ignored.push((path.clone(), detail.clone()));
            }
        }
        if self.at.lsn < self.input.durable_lsn && self.open_gap.is_none() && !self.is_ended {
            let detail =
                format!("the log was synced up to LSN {}, but ends at LSN {}", self.input.durable_lsn, self.at.lsn);
            let last = self.log.unlinked.last().cloned().unwrap_or_else(|| dir.to_owned());
            self.gap(&last, 0, detail);
        }
        self.log.gaps.extend(self.open_gap.take());
    }
}
