//! Follows a log that another process writes.
//!
//! A [`Tail`] starts at the end of a recovery and continues as far as whole records extend the
//! chain. Checksums and links prove their order, whatever the writer does to the file meanwhile. A
//! recycled segment yields no more records; its header, which is rewritten first, reveals that. So
//! a follower must first check for a newer manifest, and restart where the log now begins if the
//! tail is lost or another use of the log has begun.

use super::{
    format::{Link, SEGMENT_HEADER_LEN, SegmentHeader, segment_path},
    record::{RecordFlags, decode_seal},
    recovery::{Position, RecordInfo, Visit},
    scan::{Found, SegmentReader},
};
use crate::{
    base::{Error, FileId, FileNumber, Result},
    platform::{File, OpenMode, Vfs},
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub struct Tail {
    header: SegmentHeader,
    path: PathBuf,
    file: Arc<dyn File>,
    position: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    All,
    Lost,
}

impl Tail {
    pub(super) fn new(header: SegmentHeader, path: PathBuf, file: Arc<dyn File>, position: Position) -> Tail {
        Tail { header, path, file, position }
    }

    /// Calls `visitor` with the new commit groups. If it refuses one, the log is lost: data that
    /// the group refers to may have been moved.
    pub fn follow(
        &mut self,
        vfs: &dyn Vfs,
        dir: &Path,
        visitor: &mut dyn FnMut(&RecordInfo, &[u8]) -> Result<Visit>,
    ) -> Result<Followed> {
        loop {
            match self.segment(visitor)? {
                // Check afterwards: a segment not recycled by now has shown all its records.
                Step::End if self.is_same_segment()? => return Ok(Followed::All),
                Step::End | Step::Lost => return Ok(Followed::Lost),
                Step::Sealed(number, file_id, after) => {
                    if !self.enter(vfs, dir, (number, file_id), after)? {
                        return Ok(Followed::Lost);
                    }
                }
            }
        }
    }

    /// False: the file was recycled, and reads from it prove nothing.
    pub fn is_same_segment(&self) -> Result<bool> {
        let header = read_header(&*self.file, &self.path)?;
        Ok(header.is_some_and(|(header, _)| header == self.header))
    }

    pub fn has_gone_on(&self) -> Result<bool> {
        let mut reader = SegmentReader::short(&self.header, &*self.file, &self.path);
        let found = reader.find(self.position.offset)?;
        Ok(matches!(found, Found::Record(record) if record.header.previous_link == self.position.link))
    }

    pub fn lost(&self) -> Error {
        Error::corruption(&self.path, 0, "the log segment was overwritten while it was read")
    }

    /// Moves to the segment that a seal at the end of `at` names. If it is not there, returns
    /// false: the tail stays before the seal, and the next call tries again.
    fn enter(&mut self, vfs: &dyn Vfs, dir: &Path, named: (FileNumber, FileId), at: Position) -> Result<bool> {
        let (number, file_id) = named;
        let path = segment_path(dir, number);
        let file = match vfs.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(Error::io("open", path, e)),
        };
        let Some((header, link)) = read_header(&*file, &path)? else { return Ok(false) };
        let fits = header.number == number
            && header.file_id == file_id
            && header.start_lsn == at.lsn
            && header.epoch == at.epoch
            && !header.begins_epoch();
        if fits {
            let lsn = header.start_lsn + SEGMENT_HEADER_LEN;
            self.position = Position { number, offset: SEGMENT_HEADER_LEN, lsn, link, ..at };
            (self.header, self.path, self.file) = (header, path, file);
        }
        Ok(fits)
    }

    fn segment(&mut self, visitor: &mut dyn FnMut(&RecordInfo, &[u8]) -> Result<Visit>) -> Result<Step> {
        let mut reader = SegmentReader::short(&self.header, &*self.file, &self.path);
        loop {
            let at = self.position.offset;
            let Found::Record(record) = reader.find(at)? else { return Ok(Step::End) };
            let header = &record.header;
            if header.previous_link != self.position.link {
                return Ok(Step::End);
            }
            let mut after = Position {
                offset: at + record.file_len(),
                lsn: self.position.lsn + record.file_len(),
                link: record.link,
                ..self.position.clone()
            };
            if header.flags.contains(RecordFlags::SEAL) {
                let payload = reader.payload(at, &record)?;
                let Some((number, file_id)) = decode_seal(&payload) else { return Ok(Step::Lost) };
                return Ok(Step::Sealed(number, file_id, after));
            }
            if header.flags.is_group() {
                if header.first_sequence <= self.position.last_sequence {
                    return Ok(Step::Lost);
                }
                after.last_sequence = header.last_sequence;
                let info = RecordInfo {
                    epoch: self.position.epoch,
                    lsn: self.position.lsn,
                    end_lsn: after.lsn,
                    first_sequence: header.first_sequence,
                    last_sequence: header.last_sequence,
                    commit_time_us: header.commit_time_us,
                };
                let payload = reader.payload(at, &record)?;
                if let Visit::EndHere(_) = visitor(&info, &payload)? {
                    return Ok(Step::Lost);
                }
            }
            self.position = after;
        }
    }
}

enum Step {
    End,
    Lost,
    Sealed(FileNumber, FileId, Position),
}

pub(super) fn read_header(file: &dyn File, path: &Path) -> Result<Option<(SegmentHeader, Link)>> {
    let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => Ok(SegmentHeader::decode(&bytes, path).ok()),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(Error::io("read", path, e)),
    }
}
