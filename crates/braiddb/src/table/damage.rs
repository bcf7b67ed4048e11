//! Lists all damaged units of a run file, and reads the entries of intact blocks.
//!
//! [`Run::open`](super::Run::open) and [`Run::verify`](super::Run::verify) stop at the first
//! damage; this continues. The footer locates the index, and the index all other units. If either
//! is damaged, the damage counts the bytes that it hides. The file id, part of every checksum,
//! comes from the manifest if possible, so a damaged header hides nothing. Memory is bounded by the
//! longest unit.

use super::{
    block::{self, entry_count},
    format::{Contents, decode_tombstones, open_unit},
    key_block::ChunkReader,
    meta::RunMeta,
    run::{Run, read_bytes},
    tail::{FOOTER_LEN, Footer, Index},
};
use crate::{
    base::{Corruption, EntryRef, Error, FileId, Result, SequenceNumber},
    cache::UnitNote,
    codec::{FILE_HEADER_LEN, FileHeader, FileKind, PADDED_BLOCKS},
    platform::File,
};
use std::{ops::Range, path::Path};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamagedUnit {
    pub offset: u64,
    pub len: u64,
    pub detail: String,
    /// Bounds of its internal keys; `None` if none or unknown.
    pub keys: Option<(Vec<u8>, Vec<u8>)>,
    /// Other bytes that could not be checked as a result.
    pub unchecked_bytes: u64,
}

impl DamagedUnit {
    pub fn new(range: Range<u64>, detail: impl Into<String>) -> DamagedUnit {
        DamagedUnit {
            offset: range.start,
            len: range.end.saturating_sub(range.start),
            detail: detail.into(),
            ..DamagedUnit::default()
        }
    }

    fn hiding(self, unchecked_bytes: u64) -> DamagedUnit {
        DamagedUnit { unchecked_bytes, ..self }
    }
}

#[derive(Debug, Default)]
pub struct WalkedRun {
    /// By offset within their part of the file.
    pub damaged: Vec<DamagedUnit>,
    /// The embedded view, if there is one and the footer is valid.
    pub view: Option<Range<u64>>,
    pub file_id: FileId,
}

/// Checks all units against `listed`, the run's facts in the manifest. Passes each entry of valid
/// blocks to `entries`. Only failed reads are errors.
pub fn walk_run_units(
    file: &dyn File,
    path: &Path,
    listed: Option<&RunMeta>,
    entries: &mut dyn FnMut(&EntryRef<'_>),
) -> Result<WalkedRun> {
    let len = file.len().map_err(|e| Error::io("read the length of", path, e))?;
    let mut walk = Walk { file, path, listed, len, out: WalkedRun::default(), given: 0 };
    walk.run(entries)?;
    Ok(walk.out)
}

struct Walk<'a> {
    file: &'a dyn File,
    path: &'a Path,
    listed: Option<&'a RunMeta>,
    len: u64,
    out: WalkedRun,
    /// The sequence number of all entries if the file has none.
    given: SequenceNumber,
}

impl Walk<'_> {
    fn note(&mut self, range: Range<u64>, detail: impl Into<String>) {
        self.out.damaged.push(DamagedUnit::new(range, detail));
    }

    fn read(&self, range: &Range<u64>) -> Result<Vec<u8>> {
        let end = range.end.min(self.len);
        if range.start >= end { Ok(Vec::new()) } else { read_bytes(self.file, self.path, range.start, end) }
    }

    fn run(&mut self, entries: &mut dyn FnMut(&EntryRef<'_>)) -> Result<()> {
        let header_range = 0..FILE_HEADER_LEN as u64;
        let bytes = self.read(&header_range)?;
        let header = match FileHeader::decode(FileKind::Run, &bytes, self.path, 0) {
            Ok(header) => Some(header),
            Err(Error::Corruption(Corruption { detail, .. })) => {
                self.note(header_range, detail);
                None
            }
            Err(error) => return Err(error),
        };
        let raw_id = bytes.get(32..40).and_then(|id| id.try_into().ok()).map(u64::from_le_bytes);
        let listed_id = self.listed.map(|meta| meta.file_id);
        let file_id = listed_id.or(header.map(|header| header.file_id)).or(raw_id).unwrap_or_default();
        if header.is_some_and(|header| header.file_id != file_id) {
            self.note(32..40, "the file's id is not the one in the manifest");
        }
        self.out.file_id = file_id;
        let expected_len = self.listed.map_or(self.len, |meta| meta.file_bytes);
        let footer_at = expected_len.saturating_sub(FOOTER_LEN as u64);
        let keys = self.listed.map(|meta| (meta.smallest.clone(), meta.largest.clone()));
        if self.len != expected_len {
            let range = self.len.min(expected_len)..self.len.max(expected_len);
            self.note(range, format!("the file has {} bytes where the manifest knows {expected_len}", self.len));
            // The missing part includes the footer: one problem, not two.
            if self.len < expected_len {
                let hidden = self.len.min(footer_at).saturating_sub(FILE_HEADER_LEN as u64);
                if let Some(unit) = self.out.damaged.last_mut() {
                    (unit.keys, unit.unchecked_bytes) = (keys, hidden);
                }
                return Ok(());
            }
        }
        let footer = self.read(&(footer_at..expected_len))?;
        let footer = match footer.first_chunk() {
            Some(bytes) => Footer::decode(bytes, file_id, expected_len, self.path),
            None => Err(Error::corruption(self.path, footer_at, "the footer is cut short")),
        };
        let footer = match footer {
            Ok(footer) => footer,
            Err(error) => {
                let mut unit = DamagedUnit::new(footer_at..expected_len, detail_of(error));
                unit.keys = keys;
                self.out.damaged.push(unit.hiding(footer_at.saturating_sub(FILE_HEADER_LEN as u64)));
                return Ok(());
            }
        };
        self.tombstones(&footer)?;
        self.view(&footer)?;
        let features = header.map(|header| header.required_features);
        if let Some(index) = self.index(&footer, features)? {
            self.blocks(&index, entries)?;
            self.chunks(&index)?;
        }
        Ok(())
    }

    /// `None` after recording damage.
    fn unit(&mut self, range: Range<u64>, hides: u64) -> Result<Option<Vec<u8>>> {
        let bytes = self.read(&range)?;
        let mut unpacked = Vec::new();
        match open_unit(&bytes, self.out.file_id, range.start, self.path, &mut unpacked) {
            Ok(Contents::Plain(contents)) => Ok(Some(contents.to_vec())),
            Ok(Contents::Unpacked) => Ok(Some(unpacked)),
            Err(error @ Error::Corruption(_)) => {
                self.out.damaged.push(DamagedUnit::new(range, detail_of(error)).hiding(hides));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn tombstones(&mut self, footer: &Footer) -> Result<()> {
        let range = footer.tombstones_offset..footer.index_offset;
        if footer.range_tombstones > 0
            && let Some(contents) = self.unit(range.clone(), 0)?
            && decode_tombstones(&contents).is_none()
        {
            self.note(range, "the range tombstones are malformed");
        }
        Ok(())
    }

    /// Checks the zeros before the view.
    fn view(&mut self, footer: &Footer) -> Result<()> {
        if footer.view_bytes == 0 {
            return Ok(());
        }
        let zeros = footer.index_end..footer.view_offset;
        if self.read(&zeros)?.iter().any(|byte| *byte != 0) {
            self.note(zeros, "the bytes before the view are not zero");
        }
        self.out.view = Some(footer.view_offset..footer.view_offset + footer.view_bytes);
        Ok(())
    }

    fn index(&mut self, footer: &Footer, features: Option<u64>) -> Result<Option<Index>> {
        let range = footer.index_offset..footer.index_end;
        let hidden = footer.tombstones_offset.saturating_sub(FILE_HEADER_LEN as u64);
        let Some(contents) = self.unit(range.clone(), hidden)? else { return Ok(None) };
        let is_padded = |features: u64| features & PADDED_BLOCKS != 0;
        // Without a header, try both forms.
        let forms = features.map_or(vec![true, false], |features| vec![is_padded(features)]);
        let index = forms.into_iter().find_map(|is_padded| Index::decode(&contents, footer, is_padded));
        if index.is_none() {
            self.out.damaged.push(DamagedUnit::new(range, "the index is malformed").hiding(hidden));
        }
        // Only a file without sequence numbers gets one.
        let is_given = footer.max_sequence == 0 && footer.entries > 0;
        self.given = self.listed.filter(|_| is_given).map_or(0, |meta| meta.max_sequence);
        Ok(index)
    }

    fn blocks(&mut self, index: &Index, entries: &mut dyn FnMut(&EntryRef<'_>)) -> Result<()> {
        let mut last_key = index.smallest.clone();
        // First damaged unit without upper key.
        let mut open_from = self.out.damaged.len();
        for (number, note) in index.notes.iter().enumerate() {
            let range = index.unit(number, note.len());
            let padding = range.end..index.offset(number + 1);
            if self.read(&padding)?.iter().any(|byte| *byte != 0) {
                self.note(padding, "the bytes after a data block are not zero");
            }
            let before = self.out.damaged.len();
            let contents = self.unit(range.clone(), 0)?.filter(|bytes| {
                let is_right = block::validate(bytes, u16::from(note.mark()))
                    && entry_count(bytes) == u16::from(note.mark())
                    && UnitNote::new(bytes.len(), note.mark()) == *note;
                if !is_right {
                    self.out.damaged.push(DamagedUnit::new(range.clone(), format!("block {number} is malformed")));
                }
                is_right
            });
            let Some(contents) = contents else {
                for unit in self.out.damaged.iter_mut().skip(before) {
                    unit.keys = Some((last_key.clone(), index.largest.clone()));
                }
                continue;
            };
            for slot in 0..entry_count(&contents) {
                let Some(entry) = block::entry(&contents, slot) else { continue };
                if slot == 0 {
                    let units = self.out.damaged.iter_mut().skip(open_from);
                    units.filter_map(|unit| unit.keys.as_mut()).for_each(|(_, to)| *to = entry.key.to_vec());
                    open_from = self.out.damaged.len();
                }
                entries(&entry.numbered(self.given));
                last_key.clear();
                last_key.extend_from_slice(entry.key);
            }
        }
        Ok(())
    }

    fn chunks(&mut self, index: &Index) -> Result<()> {
        let mut reader = ChunkReader::default();
        for chunk in &index.chunks {
            let range = chunk.offset..chunk.offset + chunk.unit_len;
            let Some(contents) = self.unit(range.clone(), 0)? else { continue };
            reader.contents = contents;
            if reader.begin().is_none() {
                self.note(range, "a key chunk is malformed");
            }
        }
        Ok(())
    }
}

impl Run {
    /// Checks data blocks and key chunks, numbered together, from `first` on, past the cache, until
    /// `bytes_max` bytes were read. Returns the damaged ones, the bytes read, and the next unit.
    pub fn damaged_units_from(&self, first: usize, bytes_max: u64) -> Result<(Vec<DamagedUnit>, u64, Option<usize>)> {
        let (mut damaged, mut bytes, mut unit) = (Vec::new(), 0, first);
        let (path, blocks) = (self.path(), self.index().blocks());
        let mut unpacked = Vec::new();
        while bytes < bytes_max {
            let range = match unit.checked_sub(blocks) {
                None => self.index().unit(unit, self.note(u16::try_from(unit).unwrap_or(u16::MAX)).len()),
                Some(chunk) => match self.index().chunks.get(chunk) {
                    Some(chunk) => chunk.offset..chunk.offset + chunk.unit_len,
                    None => return Ok((damaged, bytes, None)),
                },
            };
            let checked = read_bytes(&**self.file(), path, range.start, range.end).and_then(|stored| {
                open_unit(&stored, self.meta().file_id, range.start, path, &mut unpacked).map(|_| ())
            });
            match checked {
                Ok(()) => {}
                Err(Error::Corruption(Corruption { detail, .. })) => {
                    damaged.push(DamagedUnit::new(range.clone(), detail))
                }
                Err(error) => return Err(error),
            }
            bytes += range.end - range.start;
            unit += 1;
        }
        Ok((damaged, bytes, Some(unit)))
    }
}

fn detail_of(error: Error) -> String {
    match error {
        Error::Corruption(Corruption { detail, .. }) => detail,
        other => other.to_string(),
    }
}
