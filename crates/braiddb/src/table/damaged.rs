//! Reads the intact blocks of a damaged run file, for salvage.
//!
//! If header, footer and index are readable, the index locates the blocks, and a block with a wrong
//! checksum is skipped alone. Otherwise the file is **walked**. Each unit stores its uncompressed
//! length; its length in the file is the one whose checksum matches. After damage, the next unit is
//! searched byte by byte. Only units with valid checksums count, which include file id and offset.
//!
//! A failed read counts as damage of the bytes to be read.

use super::{
    RunMeta, TableContext,
    block::{self, entry_count},
    format::{Contents, UNIT_HEADER_LEN, decode_tombstones, longest_raw, open_unit},
    run::{Run, read_bytes, read_tail_without_tombstones, read_tombstones},
};
use crate::{
    base::{
        Corruption, EntryRef, Error, FileId, FileNumber, RangeTombstoneSet, Result, SequenceNumber,
        limits::MAX_RUN_BLOCKS,
    },
    codec::{ByteReader, Compression, FILE_HEADER_LEN, FileHeader, FileKind, length_with_checksum},
    platform::{File, OpenMode},
};
use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Maximum uncompressed bytes of a unit in a search for its start.
const SOUGHT_BYTES_MAX: usize = 80 << 10;

/// Maximum uncompressed bytes of a compressed unit of unknown stored length.
const PACKED_BYTES_MAX: usize = 16 << 20;

const BLOCK_BYTES_LEAST: usize = 15;

const WINDOW_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub offset: u64,
    pub detail: String,
}

impl Damage {
    fn of(error: Error, offset: u64) -> Damage {
        match error {
            Error::Corruption(Corruption { offset, detail, .. }) => Damage { offset, detail },
            error => Damage { offset, detail: error.to_string() },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Block,
    Lost { range: Range<u64>, entries: Option<u64>, blocks: Range<u16>, detail: String },
    End,
}

#[derive(Debug)]
enum Blocks {
    Indexed(Arc<Run>),
    Walked { file: Arc<dyn File>, file_id: FileId, len: u64 },
}

#[derive(Debug)]
pub struct DamagedRun {
    path: PathBuf,
    blocks: Blocks,
    meta: Option<RunMeta>,
    /// 0 if the file has sequence numbers.
    given: SequenceNumber,
    /// The file has no sequence numbers.
    is_unnumbered: bool,
    tombstones: RangeTombstoneSet,
    tombstones_lost: Option<Damage>,
    tail_damage: Option<Damage>,
    repaired: Option<usize>,
    next_block: u16,
    next_offset: u64,
    is_past_blocks: bool,
    contents: Vec<u8>,
}

#[derive(Debug)]
pub enum Opened {
    /// The run is at least partly readable.
    Run(Box<DamagedRun>),
    Missing,
    /// Another run, or of another database.
    Foreign,
    Unreadable(Damage),
}

impl DamagedRun {
    /// Opens the run `listed` in the manifest; any run for `None`.
    pub fn open(ctx: &TableContext, path: &Path, number: FileNumber, listed: Option<&RunMeta>) -> Result<Opened> {
        let file = match ctx.vfs.open(path, OpenMode::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Opened::Missing),
            Err(e) => return Ok(Opened::Unreadable(Damage { offset: 0, detail: e.to_string() })),
        };
        let len = match file.len() {
            Ok(len) => len,
            Err(e) => return Ok(Opened::Unreadable(Damage { offset: 0, detail: e.to_string() })),
        };
        let read = read_bytes(&*file, path, 0, len.min(FILE_HEADER_LEN as u64));
        let decoded = read.and_then(|bytes| FileHeader::decode_repaired(FileKind::Run, &bytes, path, 0));
        let (header, repaired, header_damage) = match (decoded, listed) {
            (Ok((header, repaired)), _) => (header, repaired, None),
            (Err(error @ Error::Unsupported { .. }), _) => return Err(error),
            (Err(error), None) => return Ok(Opened::Unreadable(Damage::of(error, 0))),
            // Only the file id is needed.
            (Err(error), Some(meta)) => {
                (FileHeader::new(FileKind::Run, meta.file_id, [0; 2]), None, Some(Damage::of(error, 0)))
            }
        };
        if listed.is_some_and(|listed| listed.file_id != header.file_id) {
            return Ok(Opened::Foreign);
        }
        let tail = Self::read_tail(ctx, (path, number), (&file, len), &header, header_damage.is_some(), listed);
        let mut run = DamagedRun {
            path: path.to_owned(),
            blocks: Blocks::Walked { file: Arc::clone(&file), file_id: header.file_id, len },
            meta: listed.cloned(),
            given: 0,
            is_unnumbered: header.required_features & crate::codec::GIVEN_SEQUENCE != 0,
            tombstones: RangeTombstoneSet::default(),
            tombstones_lost: None,
            tail_damage: header_damage,
            repaired,
            next_block: 0,
            next_offset: FILE_HEADER_LEN as u64,
            is_past_blocks: false,
            contents: Vec::new(),
        };
        match tail {
            Ok((open, tombstones_lost)) => {
                run.tombstones = RangeTombstoneSet::new(open.range_tombstones().iter().cloned().collect());
                run.tombstones_lost = tombstones_lost;
                run.given = open.given_sequence();
                run.is_unnumbered = open.meta().entries > 0 && (run.given > 0 || open.meta().max_sequence == 0);
                run.meta = Some(open.meta().clone());
                run.blocks = Blocks::Indexed(open);
            }
            Err(error) => {
                run.tail_damage.get_or_insert(Damage::of(error, len));
                run.given = if run.is_unnumbered { listed.map_or(0, |listed| listed.max_sequence) } else { 0 };
                run.find_tombstones(listed)?;
            }
        }
        Ok(Opened::Run(Box::new(run)))
    }

    fn read_tail(
        ctx: &TableContext,
        (path, number): (&Path, FileNumber),
        (file, len): (&Arc<dyn File>, u64),
        header: &FileHeader,
        is_guessed: bool,
        listed: Option<&RunMeta>,
    ) -> Result<(Arc<Run>, Option<Damage>)> {
        let guesses: &[u64] = if is_guessed { &[1, 3, 0, 2] } else { &[header.required_features] };
        let mut found = Err(Error::corruption(path, 0, "the file header is damaged"));
        for &features in guesses {
            found = read_tail_without_tombstones(&**file, path, len, &header.requiring(features));
            if found.is_ok() {
                break;
            }
        }
        let mut tail = found?;
        let lost = match read_tombstones(&**file, path, &tail) {
            Ok(tombstones) => {
                tail.range_tombstones = tombstones;
                None
            }
            Err(error) => Some(Damage::of(error, tail.footer.tombstones_offset)),
        };
        Ok((Run::of_tail(ctx, path, (Arc::clone(file), len), tail, listed, number)?, lost))
    }

    fn find_tombstones(&mut self, listed: Option<&RunMeta>) -> Result<()> {
        if listed.is_some_and(|listed| listed.range_tombstones == 0) || self.is_unnumbered {
            return Ok(());
        }
        let Blocks::Walked { file, file_id, len } = &self.blocks else { return Ok(()) };
        let (file, file_id, len) = (Arc::clone(file), *file_id, *len);
        let mut at = FILE_HEADER_LEN as u64;
        let mut found = None;
        while at < len {
            let Some((unit_len, contents)) = self.unit_at(&*file, file_id, len, at) else {
                match self.next_unit(&*file, file_id, len, at + 1) {
                    Some(next) => at = next,
                    None => break,
                }
                continue;
            };
            if !block::validate(&contents, entry_count(&contents))
                && let Some(set) = decode_tombstones(&contents).filter(|set| !set.is_empty())
            {
                found = Some(set);
                break;
            }
            at += unit_len;
        }
        let is_all = |set: &RangeTombstoneSet| listed.is_none_or(|l| set.len() as u64 == u64::from(l.range_tombstones));
        match found.filter(is_all) {
            Some(set) => self.tombstones = set,
            None => {
                let detail = "range tombstones that it may have had cannot be found";
                self.tombstones_lost = Some(Damage { offset: len, detail: detail.to_owned() });
            }
        }
        Ok(())
    }

    pub fn meta(&self) -> Option<&RunMeta> {
        self.meta.as_ref()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_unnumbered(&self) -> bool {
        self.is_unnumbered
    }

    pub fn give_sequence(&mut self, sequence: SequenceNumber) {
        if self.is_unnumbered {
            self.given = sequence;
        }
    }

    pub fn indexed(&self) -> Option<&Arc<Run>> {
        match &self.blocks {
            Blocks::Indexed(run) => Some(run),
            Blocks::Walked { .. } => None,
        }
    }

    pub fn range_tombstones(&self) -> &RangeTombstoneSet {
        &self.tombstones
    }

    pub fn tombstones_lost(&self) -> Option<&Damage> {
        self.tombstones_lost.as_ref()
    }

    pub fn tail_damage(&self) -> Option<&Damage> {
        self.tail_damage.as_ref()
    }

    pub fn repaired(&self) -> Option<usize> {
        self.repaired
    }

    pub fn entries(&self) -> u16 {
        entry_count(&self.contents)
    }

    pub fn entry(&self, slot: u16) -> Option<EntryRef<'_>> {
        Some(block::entry(&self.contents, slot)?.numbered(self.given))
    }

    pub fn step(&mut self) -> Step {
        match &self.blocks {
            Blocks::Indexed(run) => {
                let run = Arc::clone(run);
                self.step_indexed(&run)
            }
            Blocks::Walked { file, file_id, len } => {
                let (file, file_id, len) = (Arc::clone(file), *file_id, *len);
                self.step_walked(&*file, file_id, len)
            }
        }
    }

    fn step_indexed(&mut self, run: &Arc<Run>) -> Step {
        let block = self.next_block;
        if u32::from(block) >= run.block_count().min(MAX_RUN_BLOCKS as u32) {
            return Step::End;
        }
        self.next_block += 1;
        match run.load(block) {
            Ok(contents) => {
                self.contents = contents;
                Step::Block
            }
            Err(error) => {
                let range = run.unit_of(block);
                let Damage { detail, .. } = Damage::of(error, range.start);
                let entries = Some(u64::from(run.block_entries(block)));
                Step::Lost { range, entries, blocks: block..block + 1, detail }
            }
        }
    }

    fn step_walked(&mut self, file: &dyn File, file_id: FileId, len: u64) -> Step {
        let lost = |range, detail: &str| Step::Lost { range, entries: None, blocks: 0..0, detail: detail.to_owned() };
        while !self.is_past_blocks && self.next_offset < len {
            let at = self.next_offset;
            if let Some((unit_len, contents)) = self.unit_at(file, file_id, len, at) {
                self.next_offset = at + unit_len;
                if !block::validate(&contents, entry_count(&contents)) {
                    // A key chunk, range tombstones or the index: no more blocks follow.
                    self.is_past_blocks = true;
                    return Step::End;
                }
                self.contents = contents;
                return Step::Block;
            }
            let next = self.next_unit(file, file_id, len, at + 1);
            self.next_offset = next.unwrap_or(len);
            if next.is_some_and(|next| is_zero(file, at..next)) {
                continue;
            }
            return lost(at..self.next_offset, "no whole block stands here");
        }
        let is_end_seen = self.is_past_blocks;
        self.is_past_blocks = true;
        if is_end_seen { Step::End } else { lost(len..len, "the file ends before its index") }
    }

    fn unit_at(&self, file: &dyn File, file_id: FileId, len: u64, at: u64) -> Option<(u64, Vec<u8>)> {
        let header = read_bytes(file, &self.path, at, at + UNIT_HEADER_LEN as u64).ok()?;
        let (method, raw_len) = unit_header(&header)?;
        let left = usize::try_from(len.checked_sub(at)?).unwrap_or(usize::MAX);
        let most = UNIT_HEADER_LEN.checked_add(raw_len)?;
        if method != Compression::None && raw_len > PACKED_BYTES_MAX || method == Compression::None && most > left {
            return None;
        }
        let mut unit = read_bytes(file, &self.path, at, at + most.min(left) as u64).ok()?;
        if method != Compression::None {
            let sum = u64::from_le_bytes(*unit.first_chunk()?);
            let body = length_with_checksum(file_id, at, unit.get(8..)?, UNIT_HEADER_LEN - 8 + 1, sum)?;
            unit.truncate(8 + body);
            if raw_len > longest_raw(unit.len() - UNIT_HEADER_LEN) {
                return None;
            }
        }
        let mut unpacked = Vec::new();
        let unit_len = unit.len() as u64;
        match open_unit(&unit, file_id, at, &self.path, &mut unpacked).ok()? {
            Contents::Unpacked => Some((unit_len, unpacked)),
            Contents::Plain(_) => {
                unit.drain(..UNIT_HEADER_LEN);
                Some((unit_len, unit))
            }
        }
    }

    fn next_unit(&self, file: &dyn File, file_id: FileId, len: u64, from: u64) -> Option<u64> {
        let mut at = from;
        while at + (UNIT_HEADER_LEN as u64) < len {
            let end = (at + WINDOW_BYTES as u64).min(len);
            let Ok(window) = read_bytes(file, &self.path, at, end) else {
                at += 4096;
                continue;
            };
            let found = window.windows(UNIT_HEADER_LEN).enumerate().find(|(place, bytes)| {
                let is_likely = unit_header(bytes)
                    .is_some_and(|(_, raw_len)| (BLOCK_BYTES_LEAST..=SOUGHT_BYTES_MAX).contains(&raw_len));
                is_likely && self.unit_at(file, file_id, len, at + *place as u64).is_some()
            });
            if let Some((place, _)) = found {
                return Some(at + place as u64);
            }
            at = end - (UNIT_HEADER_LEN as u64 - 1);
            if end == len {
                break;
            }
        }
        None
    }
}

fn unit_header(bytes: &[u8]) -> Option<(Compression, usize)> {
    let mut reader = ByteReader::new(bytes.get(8..)?);
    let method = Compression::from_byte(reader.u8()?)?;
    Some((method, usize::try_from(reader.u32()?).ok()?))
}

fn is_zero(file: &dyn File, range: Range<u64>) -> bool {
    let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let mut bytes = vec![0; len.min(4096)];
    len <= bytes.len() && file.read_exact_at(&mut bytes, range.start).is_ok() && bytes.iter().all(|&byte| byte == 0)
}
