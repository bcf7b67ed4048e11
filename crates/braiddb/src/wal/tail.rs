//! Follows a log that another process writes.
//!
//! A [`Tail`] stands where a recovery ended, and goes on from there as far as whole records continue the chain. Their checksums
//! have the segment's file id in them, and each carries the link of the one before: so what is taken is what was written there, in
//! that order, whatever the writer does to the file meanwhile. What is not there yet may come later. A segment that was recycled
//! never shows anything again: that is told by its header, which is the first thing to be written anew. So who follows must look first
//! whether the manifest has gone on, and begin anew where the log now begins, if the tail is lost or another epoch was begun.

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

/// Where a reader of the log has come to.
pub struct Tail {
    header: SegmentHeader,
    path: PathBuf,
    file: Arc<dyn File>,
    position: Position,
}

/// What came of following.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// All whole records there are were visited.
    All,
    /// The log cannot be followed from here any more: it must be read from where the manifest says that it begins.
    Lost,
}

impl Tail {
    /// A tail that stands in a segment, between two records.
    pub(super) fn new(header: SegmentHeader, path: PathBuf, file: Arc<dyn File>, position: Position) -> Tail {
        Tail { header, path, file, position }
    }

    /// Shows the commit groups that have come since to `visitor`, in order. Where it does not take one the log is lost: what that refers
    /// to may have been moved meanwhile.
    pub fn follow(
        &mut self,
        vfs: &dyn Vfs,
        dir: &Path,
        visitor: &mut dyn FnMut(&RecordInfo, &[u8]) -> Result<Visit>,
    ) -> Result<Followed> {
        loop {
            match self.segment(visitor)? {
                // Asked afterwards: a segment that was not recycled by then has shown all it had.
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

    /// Whether the file is still what it was, so that what was read of it before was all of the log there.
    pub fn is_same_segment(&self) -> Result<bool> {
        let header = read_header(&*self.file, &self.path)?;
        Ok(header.is_some_and(|(header, _)| header == self.header))
    }

    /// Whether a record that continues the chain stands here by now.
    pub fn has_gone_on(&self) -> Result<bool> {
        let mut reader = SegmentReader::new(&self.header, &*self.file, &self.path);
        let found = reader.find(self.position.offset)?;
        Ok(matches!(found, Found::Record(record) if record.header.previous_link == self.position.link))
    }

    /// The error about a segment that was recycled while it was read.
    pub fn lost(&self) -> Error {
        Error::corruption(&self.path, 0, "the log segment was written anew while it was read")
    }

    /// Goes on in the segment that a seal names, which ends at a position; whether it is there. If not, the tail stands before the
    /// seal still, as after an error, so that who follows again comes to it again.
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

    /// Goes to the end of what there is in the present segment, or to the seal that ends it.
    fn segment(&mut self, visitor: &mut dyn FnMut(&RecordInfo, &[u8]) -> Result<Visit>) -> Result<Step> {
        let mut reader = SegmentReader::new(&self.header, &*self.file, &self.path);
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

/// What a segment led to.
enum Step {
    End,
    Lost,
    /// By which segment it goes on, and where the seal ends.
    Sealed(FileNumber, FileId, Position),
}

/// The header of a segment and the link of its first record; `None` if there is no whole one.
pub(super) fn read_header(file: &dyn File, path: &Path) -> Result<Option<(SegmentHeader, Link)>> {
    let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => Ok(SegmentHeader::decode(&bytes, path).ok()),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(Error::io("read", path, e)),
    }
}
