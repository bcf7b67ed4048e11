//! Open run: random access to its entries, through the cache or the mapped file (`place.rs`).
//!
//! Memory for each block: eight bytes for the cache's slot, with length and entry count, and four
//! for the offset (eight beyond 4 GiB). If each block has its own page, nine bytes: an array of
//! entry counts locates entries without the slot.
//!
//! A read goes from the slot to the frame, to the block's end (count, base, slot), to the entry. It
//! allocates nothing, takes no lock and compares nothing.

use super::{
    Position, TableContext,
    block::{self, Rows, entry_count},
    direct_offset::{average_stride, start_on_grid},
    format::{Contents, PAGE_BYTES, UNIT_HEADER_LEN, decode_tombstones, open_unit, read_unit},
    meta::RunMeta,
    place::{Moment, Place},
    recent_writes::is_sample,
    scan::{KeyScan, RunScan},
    sequence::Sequence,
    tail::{FOOTER_LEN, Footer, Index},
};
use crate::{
    base::{EntryRef, Error, FileId, FileNumber, RangeTombstoneSet, Result, SequenceNumber},
    cache::{CacheSlots, MappedFile, PinnedUnit, UnitNote},
    codec::{FILE_HEADER_LEN, FileHeader, FileKind, GIVEN_SEQUENCE, PADDED_BLOCKS},
    platform::{DeferredClose, File, OpenMode, ReadRequest, Vfs},
};
use crossbeam_epoch::Guard;
use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// For a query whether they are in memory: 64 KiB.
const BLOCKS_ASKED_AT_ONCE: u16 = 16;

/// Immutable; shared by all threads.
#[derive(Debug)]
pub struct Run {
    pub(super) slots: CacheSlots,
    pub(super) index: Index,
    meta: RunMeta,
    version: u32,
    /// Sequence number of all entries if the file has none, else 0. Added on read.
    given: SequenceNumber,
    pub(super) place: Place,
    sequence: Sequence,
    /// Average bytes of an entry if each block has its own page, else 0.
    pub(super) stride: usize,
    /// Entries of each block if each has its own page, else empty.
    counts: Box<[u8]>,
    file: Arc<dyn File>,
    path: PathBuf,
    range_tombstones: Arc<RangeTombstoneSet>,
    vfs: Arc<dyn Vfs>,
    deferred_close: Arc<DeferredClose>,
    is_obsolete: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Tail {
    pub file_id: FileId,
    pub version: u32,
    /// The manifest has the sequence number of the entries.
    pub is_unnumbered: bool,
    pub footer: Footer,
    pub index: Index,
    pub range_tombstones: RangeTombstoneSet,
}

impl Run {
    /// Checks the file against the manifest. Reads no data block.
    pub fn open(ctx: &TableContext, path: &Path, meta: &RunMeta) -> Result<Arc<Run>> {
        Run::open_checked(ctx, path, Some(meta), meta.number)
    }

    pub fn open_unlisted(ctx: &TableContext, path: &Path, number: FileNumber) -> Result<Arc<Run>> {
        Run::open_checked(ctx, path, None, number)
    }

    fn open_checked(ctx: &TableContext, path: &Path, listed: Option<&RunMeta>, number: FileNumber) -> Result<Arc<Run>> {
        let file = open_file(ctx, path)?;
        let len = file.len().map_err(|e| Error::io("read the length of", path, e))?;
        if let Some(meta) = listed.filter(|meta| len != meta.file_bytes) {
            let detail = format!("the file has {len} bytes where the manifest knows {}", meta.file_bytes);
            return Err(Error::corruption(path, len.min(meta.file_bytes), detail));
        }
        let tail = read_tail(&*file, path, len)?;
        Run::of_tail(ctx, path, (file, len), tail, listed, number)
    }

    pub(super) fn of_tail(
        ctx: &TableContext,
        path: &Path,
        (file, len): (Arc<dyn File>, u64),
        mut tail: Tail,
        listed: Option<&RunMeta>,
        number: FileNumber,
    ) -> Result<Arc<Run>> {
        let mut meta = tail.take_meta(number);
        let given = listed.filter(|_| tail.is_unnumbered).map_or(0, |listed| listed.max_sequence);
        if given > 0 {
            (meta.min_sequence, meta.max_sequence) = (given, given);
        }
        let on_grid = if tail.index.is_grid() { &tail.index.notes[..] } else { &[] };
        let (stride, counts) = (average_stride(on_grid), on_grid.iter().map(|note| note.mark()).collect());
        if listed.is_some_and(|listed| *listed != meta) {
            let offset = len - FOOTER_LEN as u64;
            return Err(Error::corruption(path, offset, "index and footer are not those that the manifest knows"));
        }
        let run = Run {
            slots: CacheSlots::with_notes(&ctx.cache, std::mem::take(&mut tail.index.notes)),
            index: tail.index,
            version: tail.version,
            meta,
            given,
            place: Place::new(ctx),
            sequence: Sequence::default(),
            stride,
            counts,
            file,
            path: path.to_owned(),
            range_tombstones: Arc::new(tail.range_tombstones),
            vfs: ctx.vfs.clone(),
            deferred_close: Arc::clone(&ctx.deferred_close),
            is_obsolete: AtomicBool::new(false),
        };
        if let Some(since) = ctx.recent_writes.since(run.meta.file_id, 0).filter(|_| ctx.in_place) {
            let blocks = (0..run.end().block).filter(|&block| !is_sample(run.meta.file_id, block.into()));
            blocks.for_each(|block| run.slots.set_written(block.into(), since.span_of(block.into())));
        }
        Ok(Arc::new(run))
    }

    /// Reads the facts in the file, without a manifest.
    pub fn read_meta(ctx: &TableContext, path: &Path, number: FileNumber) -> Result<RunMeta> {
        let file = open_file(ctx, path)?;
        let len = file.len().map_err(|e| Error::io("read the length of", path, e))?;
        Ok(read_tail(&*file, path, len)?.take_meta(number))
    }

    /// As [`Run::read_meta`]; `None` if the file has sequence numbers.
    pub fn read_unnumbered_meta(ctx: &TableContext, path: &Path, number: FileNumber) -> Result<Option<RunMeta>> {
        let file = ctx.vfs.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
        let len = file.len().map_err(|e| Error::io("read the length of", path, e))?;
        let mut tail = read_tail(&*file, path, len)?;
        Ok(tail.is_unnumbered.then(|| tail.take_meta(number)))
    }

    /// Sequence number of all entries if the file has none, else 0.
    #[inline(always)]
    pub fn given_sequence(&self) -> SequenceNumber {
        self.given
    }

    pub fn meta(&self) -> &RunMeta {
        &self.meta
    }

    pub fn version(&self) -> u32 {
        self.version
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    pub fn block_count(&self) -> u32 {
        self.meta.blocks
    }

    /// 0 past the end.
    #[inline(always)]
    pub fn block_entries(&self, block: u16) -> u16 {
        match self.counts.get(usize::from(block)) {
            Some(&count) => u16::from(count),
            None => u16::from(self.note(block).mark()),
        }
    }

    #[inline(always)]
    pub(super) fn note(&self, block: u16) -> UnitNote {
        self.slots.note(u32::from(block))
    }

    /// Moves `n` entries, at most to [`Run::end`]. Takes a step for each block passed.
    #[inline(always)]
    pub fn advance(&self, position: Position, n: u32) -> Position {
        let Position { mut block, slot } = position;
        let mut left = u32::from(slot).saturating_add(n);
        while usize::from(block) < self.slots.units() {
            let entries = u32::from(self.block_entries(block));
            if left < entries {
                return Position { block, slot: left as u16 };
            }
            left -= entries;
            block += 1;
        }
        self.end()
    }

    #[inline]
    pub fn retreat(&self, position: Position) -> Option<Position> {
        if position.slot > 0 {
            return Some(Position { slot: position.slot - 1, ..position });
        }
        let block = position.block.min(self.end().block).checked_sub(1)?;
        Some(Position { block, slot: self.block_entries(block).saturating_sub(1) })
    }

    #[inline]
    pub fn end(&self) -> Position {
        Position { block: self.slots.units() as u16, slot: 0 }
    }

    /// Corruption if there is no entry: the block or the source of the position is damaged.
    #[inline(always)]
    pub fn read<'g>(&self, position: Position, guard: &'g Guard) -> Result<EntryRef<'g>> {
        self.read_by(position, guard, || self.moment())
    }

    #[inline(always)]
    pub fn read_by<'g>(
        &self,
        position: Position,
        guard: &'g Guard,
        moment: impl FnOnce() -> Moment,
    ) -> Result<EntryRef<'g>> {
        Ok(self.read_with_block(position, guard, moment)?.0)
    }

    /// Also returns the block if it is read in place: then it is valid as long as the run is open.
    #[inline(always)]
    pub fn read_with_block<'g>(
        &self,
        position: Position,
        guard: &'g Guard,
        moment: impl FnOnce() -> Moment,
    ) -> Result<(EntryRef<'g>, Option<&'g [u8]>)> {
        if usize::from(position.block) < self.slots.units() {
            self.prefetch_on_grid(position);
            // Prefetch the entry while the block's end, which is read first, is loading.
            let entry = self.bytes_before_end(position);
            let soon = [entry, entry.saturating_sub(64)];
            let (bytes, is_in_place) = match self.slots.get_soon(u32::from(position.block), guard, soon) {
                Some(bytes) => (bytes, false),
                None => match self.at_hand_in_place(position.block, moment) {
                    Some((file, range)) => {
                        file.hint(range.end).prefetch_before(soon);
                        (file.get(range, guard).ok_or_else(|| self.no_such_entry(position))?, true)
                    }
                    None => (self.read_uncached(position.block, soon, guard)?, false),
                },
            };
            if let Some(entry) = block::entry(bytes, position.slot) {
                return Ok((entry.numbered(self.given), is_in_place.then_some(bytes)));
            }
        }
        Err(self.no_such_entry(position))
    }

    #[inline(always)]
    pub fn entry_in_block<'g>(&self, block: &'g [u8], slot: u16) -> Option<EntryRef<'g>> {
        Some(block::entry(block, slot)?.numbered(self.given))
    }

    /// Blocks that are cached, or were recently checked or written in place.
    pub fn cached_blocks(&self, blocks: Range<u16>) -> u64 {
        let is_mapped = self.place.file(&*self.file, self.meta.file_bytes).is_some();
        let now = |block| is_mapped.then(|| self.place.now(block));
        blocks.filter(|&block| self.slots.is_at_hand(u32::from(block), now(block))).count() as u64
    }

    /// Maps the file if possible. Uncompressed blocks are then read in place.
    pub fn is_mapped(&self) -> bool {
        self.place.file(&*self.file, self.meta.file_bytes).is_some()
    }

    /// Cached blocks, and uncompressed ones that the system has.
    pub fn blocks_in_memory(&self, blocks: Range<u16>) -> u64 {
        let Some(file) = self.place.file(&*self.file, self.meta.file_bytes) else { return self.cached_blocks(blocks) };
        let end = blocks.end.min(self.end().block);
        let count = |first: u16| {
            let some = first..first.saturating_add(BLOCKS_ASKED_AT_ONCE).min(end);
            let bytes = self.index.offset(some.start.into())..self.index.offset(some.end.into());
            match file.is_in_memory(bytes) {
                true => {
                    some.map(|block| u64::from(self.is_plain(block)).max(self.cached_blocks(block..block + 1))).sum()
                }
                false => self.cached_blocks(some),
            }
        };
        (blocks.start..end).step_by(BLOCKS_ASKED_AT_ONCE.into()).map(count).sum()
    }

    pub(super) fn is_plain(&self, block: u16) -> bool {
        let (len, unit) = (self.note(block).len(), self.unit_of(block));
        len > 0 && unit.end - unit.start == (UNIT_HEADER_LEN + len) as u64
    }

    #[inline]
    pub fn block<'g>(&'g self, block: u16, guard: &'g Guard) -> Result<Block<'g>> {
        if usize::from(block) >= self.slots.units() {
            return Err(self.no_such_entry(Position { block, slot: 0 }));
        }
        let bytes = match self.slots.get(u32::from(block), guard) {
            Some(bytes) => bytes,
            None => self.read_uncached(block, [0; 2], guard)?,
        };
        Ok(Block { bytes, run: self, block })
    }

    #[inline]
    pub fn moment(&self) -> Moment {
        self.place.moment()
    }

    /// `None` unless the block is read in place and needs no check. Valid while the run is open.
    #[inline(always)]
    pub fn entry_in_place(&self, position: Position, moment: Moment) -> Option<Result<EntryRef<'_>>> {
        let (file, range) = self.at_hand_in_place(position.block, || moment)?;
        let bytes = file.bytes(range)?;
        let entry = block::entry(bytes, position.slot).map(|entry| entry.numbered(self.given));
        Some(entry.ok_or_else(|| self.no_such_entry(position)))
    }

    /// See [`Run::entry_in_place`].
    #[inline(always)]
    pub fn rows_in_place(&self, block: u16, moment: Moment) -> Option<Result<Rows<'_>>> {
        let (file, range) = self.at_hand_in_place(block, || moment)?;
        let bytes = file.bytes(range)?;
        // Readers of many rows rely on the index's entry count.
        let rows = Rows::new(bytes).filter(|_| entry_count(bytes) == self.block_entries(block));
        Some(rows.ok_or_else(|| self.no_such_entry(Position { block, slot: 0 })))
    }

    #[inline(always)]
    pub(super) fn at_hand_in_place(
        &self,
        block: u16,
        moment: impl FnOnce() -> Moment,
    ) -> Option<(&MappedFile, Range<u64>)> {
        if usize::from(block) >= self.slots.units() {
            return None;
        }
        let checked = self.slots.in_place_since(u32::from(block))?;
        if checked != moment().span_of(u64::from(block)) {
            return None;
        }
        let file = self.place.get()?;
        self.slots.note_hit();
        Some((file, self.contents_of(block)))
    }

    /// Keeps the block in memory while the handle lives.
    #[inline]
    pub fn pin(&self, block: u16) -> Result<PinnedBlock> {
        if usize::from(block) >= self.slots.units() {
            return Err(self.no_such_entry(Position { block, slot: 0 }));
        }
        let unit = match self.slots.pin(u32::from(block)) {
            Some(unit) => unit,
            None => self.pin_uncached(block)?,
        };
        Ok(PinnedBlock { unit, number: self.meta.number, given: self.given, block })
    }

    /// The block must probably be read from the file.
    #[inline]
    pub fn is_absent(&self, block: u16) -> bool {
        self.slots.is_vacant(u32::from(block))
    }

    /// A read to be batched with others and passed to [`Run::take_in`]. `None` if the system has
    /// the block in memory, or there is no such block.
    pub fn request(&self, block: u16) -> Option<ReadRequest> {
        if usize::from(block) >= self.slots.units() {
            return None;
        }
        let unit = self.unit_of(block);
        let mapped = self.place.file(&*self.file, self.meta.file_bytes);
        if mapped.is_some_and(|file| file.is_in_memory(unit.clone())) {
            return None;
        }
        let len = usize::try_from(unit.end - unit.start).ok()?;
        Some(ReadRequest::new(Arc::clone(&self.file), unit.start, len))
    }

    /// Caches a block, unless it is read in place. After a failed read or damage it does nothing; a
    /// later read reports that.
    pub fn take_in(&self, block: u16, read: &ReadRequest) {
        if matches!(read.result, Some(Ok(()))) && self.is_absent(block) {
            let _ = self.take_in_unit(block, &read.bytes, self.place.get().is_none());
        }
    }

    fn take_in_unit(&self, block: u16, unit: &[u8], even_plain: bool) -> Result<()> {
        let mut unpacked = Vec::new();
        let contents = match open_unit(unit, self.meta.file_id, self.unit_of(block).start, &self.path, &mut unpacked)? {
            Contents::Plain(_) if !even_plain => return Ok(()),
            Contents::Plain(contents) => contents,
            Contents::Unpacked => &unpacked,
        };
        self.check_contents(block, contents)?;
        self.slots.insert(u32::from(block), contents, &crossbeam_epoch::pin());
        Ok(())
    }

    pub fn range_tombstones(&self) -> &Arc<RangeTombstoneSet> {
        &self.range_tombstones
    }

    pub fn scan(self: &Arc<Self>, from: Position) -> RunScan {
        RunScan::new(self.clone(), from)
    }

    pub fn keys(self: &Arc<Self>, from: Position) -> KeyScan {
        KeyScan::new(self.clone(), from)
    }

    /// Checks all bytes and their consistency, past the cache. Returns the bytes checked; takes
    /// linear time.
    pub fn verify(self: &Arc<Self>) -> Result<u64> {
        self.verify_with(&mut |_| {})
    }

    pub fn verify_with(self: &Arc<Self>, visitor: &mut dyn FnMut(&EntryRef<'_>)) -> Result<u64> {
        super::verify::verify(self, visitor)
    }

    pub fn resident_bytes(&self) -> usize {
        let bounds = |key: &Vec<u8>| 2 * (size_of::<Vec<u8>>() + key.len());
        let tombstones: usize = self.range_tombstones.iter().map(|t| 16 + bounds(&t.start) + bounds(&t.end)).sum();
        let meta = self.meta.smallest.len() + self.meta.largest.len() + size_of_val(&*self.meta.blob_uses);
        let path = self.path.as_os_str().len();
        let blocks = self.slots.resident_bytes() + self.index.resident_bytes() + self.counts.len();
        size_of::<Run>() + blocks + tombstones + meta + path
    }

    /// Removes the file with the last handle.
    pub fn mark_obsolete(&self) {
        // Release, paired with acquire in `drop`, which may run on another thread.
        self.is_obsolete.store(true, Ordering::Release);
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    #[cold]
    pub(super) fn no_such_entry(&self, position: Position) -> Error {
        let Position { block, slot } = position;
        let offset = self.index.offset(usize::from(block));
        Error::corruption(&self.path, offset, format!("block {block} has no whole entry {slot}"))
    }

    /// Prefetches two places, in bytes before the block's end.
    #[inline(never)]
    pub(super) fn read_uncached<'g>(&self, block: u16, soon: [usize; 2], guard: &'g Guard) -> Result<&'g [u8]> {
        match self.find_uncached(block)? {
            Found::InPlace(file, range) => {
                file.hint(range.end).prefetch_before(soon);
                file.get(range, guard).ok_or_else(|| self.no_such_entry(Position { block, slot: 0 }))
            }
            Found::Loaded(bytes) => Ok(self.slots.insert(u32::from(block), &bytes, guard)),
        }
    }

    /// No guard while loading, so that others can reclaim.
    #[inline(never)]
    fn pin_uncached(&self, block: u16) -> Result<PinnedUnit> {
        match self.find_uncached(block)? {
            Found::InPlace(file, range) => {
                file.pin(range).ok_or_else(|| self.no_such_entry(Position { block, slot: 0 }))
            }
            Found::Loaded(bytes) => Ok(self.slots.insert_pinned(u32::from(block), &bytes)),
        }
    }

    #[inline(always)]
    fn find_uncached(&self, block: u16) -> Result<Found<'_>> {
        let unit = u32::from(block);
        let Some(file) = self.place.file(&*self.file, self.meta.file_bytes) else {
            return Ok(Found::Loaded(self.load(block)?));
        };
        let now = self.place.now(block);
        if self.slots.in_place_since(unit) == Some(now) {
            self.slots.note_hit();
        } else if let Some(unpacked) = self.check(file, block)? {
            return Ok(Found::Loaded(unpacked));
        } else {
            self.slots.set_in_place(unit, now, self.note(block).len());
        }
        Ok(Found::InPlace(file, self.contents_of(block)))
    }

    #[inline]
    pub fn unit_of(&self, block: u16) -> Range<u64> {
        self.index.unit(usize::from(block), self.note(block).len())
    }

    #[inline(always)]
    fn contents_of(&self, block: u16) -> Range<u64> {
        let len = self.note(block).len() as u64;
        if self.stride > 0 && len > 0 && usize::from(block) + 1 < self.slots.units() {
            let start = start_on_grid(block);
            return start..(start + len).min((u64::from(block) + 1) * PAGE_BYTES);
        }
        let unit = self.unit_of(block);
        unit.start + UNIT_HEADER_LEN as u64..unit.end
    }

    #[cold]
    #[inline(never)]
    pub(super) fn load(&self, block: u16) -> Result<Vec<u8>> {
        let unit = self.unit_of(block);
        let ahead = if self.file.is_unbuffered() { self.sequence.note(block, self.end().block) } else { block };
        let end = self.unit_of(ahead).end.max(unit.end);
        let mut bytes = read_bytes(&*self.file, &self.path, unit.start, end)?;
        for next in block + 1..=ahead {
            self.take_in_ahead(next, unit.start, &bytes);
        }
        bytes.truncate((unit.end - unit.start) as usize);
        let bytes = read_unit(bytes, self.meta.file_id, unit.start, &self.path)?;
        self.check_contents(block, &bytes)?;
        Ok(bytes)
    }

    /// Caches a block that was read with an earlier one at `start`. A later read reports its
    /// errors.
    fn take_in_ahead(&self, block: u16, start: u64, bytes: &[u8]) {
        let Range { start: from, end: to } = self.unit_of(block);
        let part = from.checked_sub(start).zip(to.checked_sub(start));
        let part = part.and_then(|(from, to)| bytes.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?));
        if let Some(unit) = part.filter(|_| self.is_absent(block)) {
            let _ = self.take_in_unit(block, unit, true);
        }
    }

    /// Checks a block in the mapped file. Returns the contents of a compressed one.
    #[cold]
    #[inline(never)]
    fn check(&self, file: &MappedFile, block: u16) -> Result<Option<Vec<u8>>> {
        let unit = self.unit_of(block);
        self.place.have_in_memory(&unit, &*self.file, &self.path)?;
        let guard = crossbeam_epoch::pin();
        let bytes = file.get(unit.clone(), &guard).ok_or_else(|| self.no_such_entry(Position { block, slot: 0 }))?;
        let mut unpacked = Vec::new();
        match open_unit(bytes, self.meta.file_id, unit.start, &self.path, &mut unpacked)? {
            Contents::Plain(contents) => self.check_contents(block, contents).map(|()| None),
            Contents::Unpacked => self.check_contents(block, &unpacked).map(|()| Some(unpacked)),
        }
    }

    fn check_contents(&self, block: u16, bytes: &[u8]) -> Result<()> {
        let note = self.note(block);
        let offset = self.index.offset(usize::from(block));
        if !block::validate(bytes, u16::from(note.mark())) {
            return Err(Error::corruption(&self.path, offset, format!("block {block} is malformed")));
        }
        if UnitNote::new(bytes.len(), note.mark()) != note {
            return Err(Error::corruption(&self.path, offset, format!("block {block} is not the one in the index")));
        }
        Ok(())
    }
}

enum Found<'a> {
    InPlace(&'a MappedFile, Range<u64>),
    Loaded(Vec<u8>),
}

impl Drop for Run {
    fn drop(&mut self) {
        let file = Arc::clone(&self.file);
        if self.is_obsolete.load(Ordering::Acquire) {
            self.deferred_close.remove(&self.vfs, &self.path, file);
        } else {
            // Another process removes a follower's files.
            self.deferred_close.drop_later(file);
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Block<'g> {
    bytes: &'g [u8],
    run: &'g Run,
    block: u16,
}

impl<'g> Block<'g> {
    #[inline]
    pub fn entry(&self, slot: u16) -> Result<EntryRef<'g>> {
        let entry = block::entry(self.bytes, slot).map(|entry| entry.numbered(self.run.given));
        entry.ok_or_else(|| self.run.no_such_entry(Position { block: self.block, slot }))
    }

    #[inline]
    pub fn rows(&self) -> Result<Rows<'g>> {
        Rows::new(self.bytes).ok_or_else(|| self.run.no_such_entry(Position { block: self.block, slot: 0 }))
    }
}

/// A block that stays in memory even after its run is closed.
#[derive(Debug)]
pub struct PinnedBlock {
    unit: PinnedUnit,
    number: FileNumber,
    given: SequenceNumber,
    block: u16,
}

impl PinnedBlock {
    /// Corruption if there is no such entry: the source of the slot is probably damaged. (The
    /// error's path is only the file name.)
    #[inline(always)]
    pub fn entry(&self, slot: u16) -> Result<EntryRef<'_>> {
        match block::entry(&self.unit, slot) {
            Some(entry) => Ok(entry.numbered(self.given)),
            None => Err(self.no_such_entry(slot)),
        }
    }

    pub fn is_of(&self, run: &Run) -> bool {
        self.number == run.meta.number
    }

    pub fn number(&self) -> u16 {
        self.block
    }

    #[inline]
    pub fn rows(&self) -> Result<Rows<'_>> {
        Rows::new(&self.unit).ok_or_else(|| self.no_such_entry(0))
    }

    #[inline]
    pub fn entries(&self) -> u16 {
        entry_count(&self.unit)
    }

    #[cold]
    pub(super) fn no_such_entry(&self, slot: u16) -> Error {
        let detail = format!("block {} has no entry {slot}", self.block);
        Error::corruption(format!("{:06}.run", self.number), 0, detail)
    }
}

impl Tail {
    fn take_meta(&mut self, number: FileNumber) -> RunMeta {
        let Index { smallest, largest, blob_uses, expiries, .. } = &mut self.index;
        let (smallest, largest) = (std::mem::take(smallest), std::mem::take(largest));
        let (blob_uses, expiries) = (std::mem::take(blob_uses), std::mem::take(expiries));
        self.footer.meta(number, self.file_id, smallest, largest, blob_uses, expiries)
    }
}

/// Everything but blocks, keys and view.
pub(super) fn read_tail(file: &dyn File, path: &Path, len: u64) -> Result<Tail> {
    if len < (FILE_HEADER_LEN + FOOTER_LEN) as u64 {
        return Err(Error::corruption(path, len, "the file is too short for a run"));
    }
    let header = read_bytes(file, path, 0, FILE_HEADER_LEN as u64)?;
    let header = FileHeader::decode(FileKind::Run, &header, path, 0)?;
    let mut tail = read_tail_without_tombstones(file, path, len, &header)?;
    tail.range_tombstones = read_tombstones(file, path, &tail)?;
    Ok(tail)
}

pub(super) fn read_tail_without_tombstones(
    file: &dyn File,
    path: &Path,
    len: u64,
    header: &FileHeader,
) -> Result<Tail> {
    let FileHeader { file_id, version, required_features, .. } = *header;
    if len < (FILE_HEADER_LEN + FOOTER_LEN) as u64 {
        return Err(Error::corruption(path, len, "the file is too short for a run"));
    }
    let footer_at = len - FOOTER_LEN as u64;
    let bytes = read_bytes(file, path, footer_at, len)?;
    let bytes = bytes.first_chunk().ok_or_else(|| Error::corruption(path, footer_at, "the footer is cut short"))?;
    let footer = Footer::decode(bytes, file_id, len, path)?;
    let unit = |from, to| read_unit(read_bytes(file, path, from, to)?, file_id, from, path);
    let is_padded = required_features & PADDED_BLOCKS != 0;
    let index = Index::decode(&unit(footer.index_offset, footer.index_end)?, &footer, is_padded)
        .ok_or_else(|| Error::corruption(path, footer.index_offset, "the index is malformed"))?;
    let is_unnumbered = required_features & GIVEN_SEQUENCE != 0;
    if is_unnumbered && (footer.max_sequence != 0 || footer.range_tombstones != 0) {
        return Err(Error::corruption(path, footer_at, "a run that is to be given a sequence number tells some"));
    }
    Ok(Tail { file_id, version, is_unnumbered, footer, index, range_tombstones: RangeTombstoneSet::default() })
}

pub(super) fn read_tombstones(file: &dyn File, path: &Path, tail: &Tail) -> Result<RangeTombstoneSet> {
    let footer = &tail.footer;
    let at = footer.tombstones_offset;
    let range_tombstones = match footer.range_tombstones {
        0 => RangeTombstoneSet::default(),
        _ => {
            let unit = read_unit(read_bytes(file, path, at, footer.index_offset)?, tail.file_id, at, path)?;
            decode_tombstones(&unit).ok_or_else(|| Error::corruption(path, at, "the range tombstones are malformed"))?
        }
    };
    let is_absent = footer.range_tombstones == 0 && at != footer.index_offset;
    if is_absent || range_tombstones.len() as u64 != u64::from(footer.range_tombstones) {
        return Err(Error::corruption(path, at, "the footer has another number of range tombstones"));
    }
    Ok(range_tombstones)
}

pub(super) fn read_bytes(file: &dyn File, path: &Path, from: u64, to: u64) -> Result<Vec<u8>> {
    let len = to.checked_sub(from).and_then(|len| usize::try_from(len).ok());
    let len = len.ok_or_else(|| Error::corruption(path, from, "a length that this machine cannot hold"))?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, from).map_err(|error| read_error(path, from, error))?;
    Ok(bytes)
}

pub(super) fn read_error(path: &Path, offset: u64, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::corruption(path, offset, "the file is cut short"),
        _ => Error::io("read", path, error),
    }
}

fn open_file(ctx: &TableContext, path: &Path) -> Result<Arc<dyn File>> {
    ctx.vfs.open(path, OpenMode::Read).map_err(|e| match e.kind() {
        // Runs are removed only after the manifest dropped them.
        std::io::ErrorKind::NotFound => Error::corruption(path, 0, "the manifest names this run, but it is missing"),
        _ => Error::io("open", path, e),
    })
}
