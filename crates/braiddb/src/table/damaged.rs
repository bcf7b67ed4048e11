//! Reads what is whole of a run, whatever became of the rest of its file.
//!
//! Where header, footer and index can be read, the index says where each block stands, and a block that fails its checksum is
//! skipped by itself. Without them the file is **walked**: each unit says how long it was before compression, and its length in the
//! file is the one that its checksum fits; after a place where no unit stands, the next one is looked for byte by byte. A unit counts
//! only if its checksum fits, which covers the file's id and the unit's place, so nothing else passes for one.
//!
//! A read that fails counts as damage of what was to be read.

use super::{
    RunMeta, TableContext,
    block::{self, entry_count},
    format::{Contents, UNIT_HEADER_LEN, decode_tombstones, longest_raw, open_unit},
    run::{Run, read_bytes, read_tail_without_tombstones, read_tombstones},
};
use crate::{
    base::{EntryRef, Error, FileId, FileNumber, RangeTombstoneSet, Result, SequenceNumber, limits::MAX_RUN_BLOCKS},
    codec::{ByteReader, Compression, FILE_HEADER_LEN, FileHeader, FileKind, length_with_checksum},
    platform::{File, OpenMode},
};
use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The most bytes, before compression, of a unit whose beginning is looked for. Blocks of several entries have no more.
const SOUGHT_BYTES_MAX: usize = 80 << 10;

/// The most bytes, before compression, of a compressed unit whose length is looked for.
const PACKED_BYTES_MAX: usize = 16 << 20;

/// The least bytes of a block: an empty entry, its slot and the block's end.
const BLOCK_BYTES_LEAST: usize = 15;

/// How much is read at once where the next unit is looked for.
const WINDOW_BYTES: usize = 1 << 20;

/// Damage in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it was met in the file.
    pub offset: u64,
    /// What is wrong.
    pub detail: String,
}

impl Damage {
    fn of(error: Error, offset: u64) -> Damage {
        match error {
            Error::Corruption { offset, detail, .. } => Damage { offset, detail },
            error => Damage { offset, detail: error.to_string() },
        }
    }
}

/// The next thing in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A whole block, which [`DamagedRun::entry`] shows.
    Block,
    /// Bytes that should be blocks and are none; how many entries they had, if that is known.
    Lost {
        /// Where they stand in the file.
        range: Range<u64>,
        /// The number of entries that were there.
        entries: Option<u64>,
        /// The blocks, if the index tells.
        blocks: Range<u16>,
        /// What is wrong with them.
        detail: String,
    },
    /// No more.
    End,
}

/// Where blocks are found.
#[derive(Debug)]
enum Blocks {
    /// Where the index says.
    Indexed(Arc<Run>),
    /// Where they are met.
    Walked { file: Arc<dyn File>, file_id: FileId, len: u64 },
}

/// A run that may be damaged, read from front to back.
#[derive(Debug)]
pub struct DamagedRun {
    path: PathBuf,
    blocks: Blocks,
    /// What the run says of itself or the manifest says of it, if either can be read.
    meta: Option<RunMeta>,
    /// The sequence number of all entries if the file tells none, else 0.
    given: SequenceNumber,
    /// Whether the file tells no sequence numbers.
    is_unnumbered: bool,
    tombstones: RangeTombstoneSet,
    /// Why range tombstones may be missing, if any may be.
    tombstones_lost: Option<Damage>,
    /// What is wrong with header, footer or index.
    tail_damage: Option<Damage>,
    /// The byte of the header that was damaged and is known again.
    repaired: Option<usize>,
    next_block: u16,
    next_offset: u64,
    is_past_blocks: bool,
    contents: Vec<u8>,
}

/// What became of an attempt to open a run.
#[derive(Debug)]
pub enum Opened {
    /// It can be read, in part at least.
    Run(Box<DamagedRun>),
    /// There is no such file.
    Missing,
    /// It is the run of another database, or another run.
    Foreign,
    /// Nothing of it can be read.
    Unreadable(Damage),
}

impl DamagedRun {
    /// Opens the file `path`, which should be the run that the manifest knows as `listed`, or any run if it knows none.
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
            // The id is what is needed of it.
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

    /// The open run, and why its range tombstones are not all there, if so.
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

    /// Looks for the range tombstones of a run without index: they follow the blocks and key chunks.
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
            // Neither a block nor a chunk of keys reads as tombstones: their counts would not fit.
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

    /// What is known of the run.
    pub fn meta(&self) -> Option<&RunMeta> {
        self.meta.as_ref()
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the manifest has to say which sequence number the entries have.
    pub fn is_unnumbered(&self) -> bool {
        self.is_unnumbered
    }

    /// Says which sequence number all entries have that tell none.
    pub fn give_sequence(&mut self, sequence: SequenceNumber) {
        if self.is_unnumbered {
            self.given = sequence;
        }
    }

    /// The run, if its index can be read.
    pub fn indexed(&self) -> Option<&Arc<Run>> {
        match &self.blocks {
            Blocks::Indexed(run) => Some(run),
            Blocks::Walked { .. } => None,
        }
    }

    /// The range tombstones that can be read.
    pub fn range_tombstones(&self) -> &RangeTombstoneSet {
        &self.tombstones
    }

    /// Why range tombstones are missing, if any may be.
    pub fn tombstones_lost(&self) -> Option<&Damage> {
        self.tombstones_lost.as_ref()
    }

    /// What is wrong with header, footer or index, if anything is.
    pub fn tail_damage(&self) -> Option<&Damage> {
        self.tail_damage.as_ref()
    }

    /// The byte of the header that was damaged and could be told again.
    pub fn repaired(&self) -> Option<usize> {
        self.repaired
    }

    /// How many entries the present block has.
    pub fn entries(&self) -> u16 {
        entry_count(&self.contents)
    }

    /// An entry of the present block.
    pub fn entry(&self, slot: u16) -> Option<EntryRef<'_>> {
        Some(block::entry(&self.contents, slot)?.numbered(self.given))
    }

    /// Goes to the next block, or past what should be one.
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
                    // A chunk of keys, range tombstones or the index: blocks stand before them.
                    self.is_past_blocks = true;
                    return Step::End;
                }
                self.contents = contents;
                return Step::Block;
            }
            let next = self.next_unit(file, file_id, len, at + 1);
            self.next_offset = next.unwrap_or(len);
            // Zeros stand between blocks, so that the next begins with a page.
            if next.is_some_and(|next| is_zero(file, at..next)) {
                continue;
            }
            return lost(at..self.next_offset, "no whole block stands here");
        }
        let is_end_seen = self.is_past_blocks;
        self.is_past_blocks = true;
        if is_end_seen { Step::End } else { lost(len..len, "the file ends before its index") }
    }

    /// The length in the file, and the contents, of the unit that begins at an offset.
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

    /// The first offset from `from` on at which a unit begins.
    fn next_unit(&self, file: &dyn File, file_id: FileId, len: u64, from: u64) -> Option<u64> {
        let mut at = from;
        while at + (UNIT_HEADER_LEN as u64) < len {
            let end = (at + WINDOW_BYTES as u64).min(len);
            let Ok(window) = read_bytes(file, &self.path, at, end) else {
                // What cannot be read at all is passed page by page.
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

/// The compression and the length before it that the first bytes of a unit tell.
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
