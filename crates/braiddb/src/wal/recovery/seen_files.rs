//! Finds the log's segment files in a directory, and reads their headers.

use super::super::{
    format::{Epoch, Link, Lsn, MAX_LSN, SEGMENT_HEADER_LEN, SegmentHeader, segment_number, segment_path},
    recovery_prefetch::SegmentProbe,
    scan::{Beyond, SegmentReader},
    segment::Segment,
};
use super::Position;
use crate::{
    base::{Corruption, Error, FileNumber, Result, SequenceNumber},
    platform::{File, OpenMode, Vfs},
};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub struct Candidate {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
    pub(super) is_writable: bool,
    pub(super) file_len: u64,
    /// The header and the first link; or offset and detail of the damage.
    pub(super) header: std::result::Result<(SegmentHeader, Link), (u64, String)>,
}

impl Candidate {
    fn open(vfs: &dyn Vfs, path: PathBuf, number: FileNumber) -> Result<Option<Candidate>> {
        let file = match vfs.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("open", path, error)),
        };
        let io_error = |e| Error::io("read", &path, e);
        let file_len = file.len().map_err(io_error)?;
        let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, filled as u64).map_err(io_error)? {
                0 => break,
                n => filled += n,
            }
        }
        let header = match SegmentHeader::decode(bytes.get(..filled).unwrap_or_default(), &path) {
            Ok((header, link)) if header.number == number => Ok((header, link)),
            Ok((header, _)) => Err((64, format!("the header is of segment {}", header.number))),
            Err(Error::Corruption(Corruption { offset, detail, .. })) => Err((offset, detail)),
            Err(error) => return Err(error),
        };
        Ok(Some(Candidate { path, file, is_writable: false, file_len, header }))
    }

    pub fn header(&self) -> Result<(&SegmentHeader, Link)> {
        match &self.header {
            Ok((header, link)) => Ok((header, *link)),
            Err((offset, detail)) => Err(Error::corruption(&self.path, *offset, detail.clone())),
        }
    }

    pub fn file_len(&self) -> u64 {
        self.file_len
    }

    pub fn reader(&self) -> Result<SegmentReader<'_>> {
        let (header, _) = self.header()?;
        Ok(SegmentReader::new(header, &*self.file, &self.path))
    }

    pub fn segment(&self) -> Result<Arc<Segment>> {
        let (header, link) = self.header()?;
        let segment = Segment::new(*header, link, self.path.clone(), self.file.clone());
        Ok(Arc::new(if self.is_writable { segment } else { segment.of_file_to_read() }))
    }

    pub fn place(&self) -> (&dyn File, &Path) {
        (&*self.file, &self.path)
    }

    pub fn beyond(&self, header: &SegmentHeader) -> Result<Beyond> {
        self.probe(header).read()
    }

    pub(super) fn probe(&self, header: &SegmentHeader) -> SegmentProbe {
        let header = SegmentHeader { len: header.len.min(self.file_len), ..*header };
        SegmentProbe { header, path: self.path.clone(), file: self.file.clone() }
    }

    pub(super) fn first_position(&self, header: &SegmentHeader, link: Link, last_sequence: SequenceNumber) -> Position {
        Position {
            number: header.number,
            offset: SEGMENT_HEADER_LEN,
            lsn: header.start_lsn + SEGMENT_HEADER_LEN,
            link,
            epoch: header.epoch,
            // The beginning of an epoch may skip numbers.
            last_sequence: last_sequence.max(header.previous_sequence),
        }
    }

    pub(super) fn bad(&self, offset: u64, detail: &str) -> Error {
        Error::corruption(&self.path, offset, detail)
    }
}

#[derive(Default)]
pub struct SeenFiles {
    pub(super) dir: PathBuf,
    pub(super) by_number: BTreeMap<FileNumber, Candidate>,
}

impl SeenFiles {
    pub fn list(vfs: &dyn Vfs, dir: &Path) -> Result<SeenFiles> {
        let mut by_number = BTreeMap::new();
        for entry in vfs.list(dir).map_err(|e| Error::io("list", dir, e))? {
            if let Some(number) = segment_number(&entry.name)
                && let Some(candidate) = Candidate::open(vfs, dir.join(&entry.name), number)?
            {
                by_number.insert(number, candidate);
            }
        }
        Ok(SeenFiles { dir: dir.to_owned(), by_number })
    }

    /// They are synced, and later recycled. Retained segments may be many and need a descriptor
    /// only while they are read.
    pub(super) fn open_to_write(&mut self, vfs: &dyn Vfs, oldest: FileNumber) -> Result<()> {
        let start_lsn = self.start_of(oldest);
        for candidate in self.by_number.values_mut() {
            if candidate.header.as_ref().is_ok_and(|(header, _)| header.start_lsn >= start_lsn) {
                let opened = vfs.open(&candidate.path, OpenMode::ReadWrite);
                candidate.file = opened.map_err(|e| Error::io("open", &candidate.path, e))?;
                candidate.is_writable = true;
            }
        }
        Ok(())
    }

    fn start_of(&self, number: FileNumber) -> Lsn {
        let start_of =
            |(_, header): (&Candidate, &SegmentHeader)| (header.number == number).then_some(header.start_lsn);
        self.valid().find_map(start_of).unwrap_or(MAX_LSN)
    }

    /// Files and lengths from a segment on, for write-back. A failed one fails again in the sync.
    pub(super) fn from(&self, oldest: FileNumber) -> Vec<(Arc<dyn File>, u64)> {
        let start_lsn = self.start_of(oldest);
        let segments = self.valid().filter(|(_, header)| header.start_lsn >= start_lsn);
        segments.map(|(candidate, header)| (Arc::clone(&candidate.file), header.len)).collect()
    }

    /// Segments that may lie past the log's end: of the last epoch all but the first.
    pub(super) fn probed(&self) -> Vec<SegmentProbe> {
        let last = self.valid().map(|(_, header)| header.epoch).max();
        let segments = self.valid().filter(|(_, header)| Some(header.epoch) == last && !header.begins_epoch());
        segments.map(|(candidate, header)| candidate.probe(header)).collect()
    }

    pub(super) fn required(&self, number: FileNumber, what: &str) -> Result<&Candidate> {
        self.by_number.get(&number).ok_or_else(|| {
            Error::corruption(segment_path(&self.dir, number), 0, format!("the file is missing: it is {what}"))
        })
    }

    pub fn get(&self, number: FileNumber) -> Option<&Candidate> {
        self.by_number.get(&number)
    }

    pub fn valid(&self) -> impl Iterator<Item = (&Candidate, &SegmentHeader)> {
        self.by_number.values().filter_map(|candidate| Some((candidate, &candidate.header.as_ref().ok()?.0)))
    }

    /// The segment that begins the epoch after `epoch`. After a failed attempt to begin it, the
    /// later file counts.
    pub fn successor(&self, epoch: Epoch) -> Option<(&Candidate, &SegmentHeader, Link)> {
        let begins = |header: &SegmentHeader| header.begins_epoch() && header.previous_epoch == epoch;
        self.by_number
            .values()
            .filter_map(|candidate| candidate.header.as_ref().ok().map(|(header, link)| (candidate, header, *link)))
            .filter(|(_, header, _)| begins(header))
            .max_by_key(|(_, header, _)| (header.epoch, header.number))
    }
}
