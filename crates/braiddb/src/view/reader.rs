//! An open view: its directory in memory, its segment records read through the block cache.
//!
//! Any number of threads read concurrently, since data never changes. Callers pass the runs the
//! view was built over, in the same order.

pub use super::anchors::Leaf;
use super::bits::is_equal;
use super::cache_miss::CacheMiss;
use super::count::LiveCounts;
use super::counters::count_segment_read;
use super::directory::Directory;
use super::first_blocks::FirstBlocks;
use super::format::{
    FOOTER_BYTES, Footer, Layout, PAGE_BYTES, SELECTOR_STALE, Segment, VIEW_FILE_START, ViewMeta, lanes_below,
    page_is_sound, tag_of_hash,
};
use super::hash_index::HashIndex;
use super::search::{Comparison, Place, candidate, compare_counted, find_place};
use super::simd::{Simd, Task};
use crate::base::{EntryRef, Error, FileId, Result, SequenceNumber};
use crate::cache::{CacheSlots, UnitNote};
use crate::codec::{FILE_HEADER_LEN, FileHeader, FileKind, checksum, hash64};
use crate::platform::{DeferredClose, File, OpenMode, ReadRequest, Vfs};
use crate::table::{IndexTrigger, Position, Run, TableContext};
use crossbeam_epoch::Guard;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

struct Get<'a, 'g> {
    view: &'a View,
    runs: &'a [Arc<Run>],
    number: Option<u32>,
    query: Query<'a>,
    guard: &'g Guard,
}

impl<'g> Task for Get<'_, 'g> {
    type Output = Result<Option<EntryRef<'g>>>;

    #[inline(always)]
    fn run(self, simd: Simd) -> Self::Output {
        let Get { view, runs, number, query, guard } = self;
        if let Some(index) = view.hash_index(query.snapshot)
            && let Some(found) = view.hash_get(simd, index, runs, query, guard)?
        {
            return Ok(found);
        }
        view.note_search();
        // No closure: it would not be compiled for this instruction set.
        let number = match number {
            Some(number) => number,
            None => match view.segment_with(simd, query.key) {
                Some(number) => number,
                None => return Ok(None),
            },
        };
        view.get_with(simd, runs, number, query, guard)
    }
}

struct PrefetchEntry<'a, 'g> {
    view: &'a View,
    runs: &'a [Arc<Run>],
    number: u32,
    key: &'g [u8],
    hash: u64,
    slot_only: bool,
    guard: &'g Guard,
}

impl<'a> Task for PrefetchEntry<'a, '_> {
    type Output = Option<CacheMiss<'a>>;

    #[inline(always)]
    fn run(self, simd: Simd) -> Option<CacheMiss<'a>> {
        let PrefetchEntry { view, runs, number, key, hash, slot_only, guard } = self;
        let (page, at) = view.layout.place(number);
        let Some(bytes) = view.pages.get(page, guard) else { return Some(CacheMiss::Page(view, page)) };
        // The read itself reports damage.
        let record = bytes.get(at..at + view.layout.record_bytes)?;
        let segment = view.parse(number, record).ok()?;
        let candidates = view.candidates(simd, &segment, key, hash);
        if candidates == 0 {
            return None;
        }
        let lane = candidates.trailing_zeros() as usize;
        if slot_only {
            let index = segment.run(lane);
            if let (Some(run), Some(cursor)) = (runs.get(index), segment.cursor(index)) {
                run.prefetch_slot(cursor.block);
            }
        } else if let Ok((run, position)) = view.locate(runs, number, &segment, lane) {
            return precheck(&runs[run], position);
        }
        None
    }
}

#[inline(always)]
fn precheck(run: &Arc<Run>, position: Position) -> Option<CacheMiss<'_>> {
    run.prefetch(position);
    run.is_absent(position.block).then_some(CacheMiss::Block(run, position.block))
}

struct FindLeaf<'a> {
    view: &'a View,
    key: &'a [u8],
}

impl Task for FindLeaf<'_> {
    type Output = Leaf;

    #[inline(always)]
    fn run(self, simd: Simd) -> Leaf {
        self.view.directory.anchors.find_leaf(simd, self.key)
    }
}

struct FindInLeaf<'a> {
    view: &'a View,
    key: &'a [u8],
    leaf: Leaf,
}

impl Task for FindInLeaf<'_> {
    type Output = usize;

    #[inline(always)]
    fn run(self, simd: Simd) -> usize {
        self.view.directory.anchors.find_in_leaf(simd, self.key, self.leaf)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Query<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
    snapshot: SequenceNumber,
    pub(super) with_sequence: bool,
}

#[derive(Debug)]
pub struct View {
    vfs: Arc<dyn Vfs>,
    deferred_close: Arc<DeferredClose>,
    pub(crate) file: Arc<dyn File>,
    path: PathBuf,
    pub(crate) file_id: FileId,
    pub(crate) start: u64,
    pub(crate) layout: Layout,
    pub(crate) directory: Directory,
    pub(super) meta: ViewMeta,
    pages: CacheSlots,
    pub(crate) simd: Simd,
    pub(super) hash_index: OnceLock<HashIndex>,
    pub(super) searches: AtomicU64,
    pub(super) had_its_chance: AtomicBool,
    pub(super) refusals: AtomicU32,
    pub(super) trigger: Arc<IndexTrigger>,
    pub(super) live_counts: LiveCounts,
    pub(super) first_blocks: FirstBlocks,
    obsolete: AtomicBool,
}

impl View {
    /// Opens a view file by its own footer, without a manifest.
    pub fn open_unlisted(ctx: &TableContext, path: &Path, number: u64) -> Result<Arc<View>> {
        let io = |e| Error::io("open", path, e);
        let file = ctx.vfs.open(path, OpenMode::Read).map_err(io)?;
        let len = file.len().map_err(io)?;
        let mut header = [0; FILE_HEADER_LEN];
        let read = file.read_at(&mut header, 0).map_err(io)?;
        let file_id = FileHeader::decode(FileKind::View, &header[..read], path, 0)?.file_id;
        Ok(Arc::new(View::open_section(ctx, file, path, number, file_id, VIEW_FILE_START, len)?))
    }

    pub fn open(ctx: &TableContext, path: &Path, meta: &ViewMeta) -> Result<Arc<View>> {
        let io = |e| Error::io("open", path, e);
        let file = ctx.vfs.open(path, OpenMode::Read).map_err(io)?;
        let len = file.len().map_err(io)?;
        if len != meta.file_bytes {
            let detail = format!("the view file has {len} bytes, the manifest says {}", meta.file_bytes);
            return Err(Error::corruption(path, len, detail));
        }
        let mut header = [0; FILE_HEADER_LEN];
        read_exact(&*file, path, &mut header, 0)?;
        let header = FileHeader::decode(FileKind::View, &header, path, 0)?;
        if header.file_id != meta.file_id {
            return Err(Error::corruption(path, 32, "the view file's id is not the one in the manifest"));
        }
        let view = View::open_section(ctx, file, path, meta.number, meta.file_id, VIEW_FILE_START, len)?;
        if view.meta != *meta {
            let detail = format!("the view's footer says {:?}, the manifest {meta:?}", view.meta);
            return Err(Error::corruption(path, len, detail));
        }
        Ok(Arc::new(view))
    }

    pub fn open_embedded(ctx: &TableContext, run: &Arc<Run>) -> Result<Arc<View>> {
        let meta = run.meta();
        let corrupt = |detail: &str| Error::corruption(run.path(), meta.view_offset, detail);
        let end = meta.view_offset.checked_add(meta.view_bytes).filter(|&end| end <= meta.file_bytes);
        let end = end.ok_or_else(|| corrupt("the run's view lies outside the file"))?;
        let file = run.file().clone();
        let mut view = View::open_section(ctx, file, run.path(), 0, meta.file_id, meta.view_offset, end)?;
        view.meta.file_bytes = meta.view_bytes;
        if run.given_sequence() > 0 {
            view.meta.max_sequence = run.given_sequence();
        }
        if view.layout.run_count != 1 || view.meta.entries != meta.entries {
            return Err(corrupt("the run's view does not have the run's entries"));
        }
        Ok(Arc::new(view))
    }

    fn open_section(
        ctx: &TableContext,
        file: Arc<dyn File>,
        path: &Path,
        number: u64,
        file_id: FileId,
        start: u64,
        end: u64,
    ) -> Result<View> {
        let corrupt = |offset, detail: &str| Error::corruption(path, offset, detail);
        let footer_at = end.checked_sub(FOOTER_BYTES as u64).filter(|&at| at >= start);
        let footer_at = footer_at.ok_or_else(|| corrupt(start, "the view is too short for a footer"))?;
        let mut footer = [0; FOOTER_BYTES];
        read_exact(&*file, path, &mut footer, footer_at)?;
        let footer = Footer::decode(&footer, file_id, footer_at)
            .ok_or_else(|| corrupt(footer_at, "the view's footer does not match its checksum"))?;
        let layout = Layout::new(footer.run_count as usize)
            .ok_or_else(|| corrupt(footer_at, "the view has an impossible number of runs"))?;
        let pages = layout.pages(footer.segments);
        let directory_at = start.saturating_add(u64::from(pages) * PAGE_BYTES as u64);
        if directory_at.checked_add(footer.directory_bytes) != Some(footer_at) {
            return Err(corrupt(footer_at, "the view's parts do not fill its section"));
        }
        // The file's length now bounds this length.
        let mut directory = vec![0; footer.directory_bytes as usize];
        read_exact(&*file, path, &mut directory, directory_at)?;
        if checksum(file_id, directory_at, &directory) != footer.directory_checksum {
            return Err(corrupt(directory_at, "the view's directory does not match its checksum"));
        }
        let simd = Simd::detect();
        let directory = Directory::decode(&directory, footer.segments, simd)
            .filter(|d| d.entries() == footer.entries)
            .ok_or_else(|| corrupt(directory_at, "the view's directory is malformed"))?;
        Ok(View {
            vfs: ctx.vfs.clone(),
            deferred_close: Arc::clone(&ctx.deferred_close),
            file,
            path: path.to_owned(),
            file_id,
            start,
            layout,
            directory,
            meta: footer.meta(number, file_id, end),
            pages: CacheSlots::with_notes(&ctx.cache, (0..pages).map(|_| UnitNote::new(PAGE_BYTES, 0))),
            simd,
            hash_index: OnceLock::new(),
            searches: AtomicU64::new(0),
            had_its_chance: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
            trigger: Arc::clone(&ctx.trigger),
            live_counts: LiveCounts::default(),
            first_blocks: FirstBlocks::default(),
            obsolete: AtomicBool::new(false),
        })
    }

    pub fn meta(&self) -> &ViewMeta {
        &self.meta
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn resident_bytes(&self) -> usize {
        let parts = self.directory.resident_bytes() + self.pages.resident_bytes();
        let learned = self.hash_index_bytes() + self.live_counts.resident_bytes() + self.first_blocks.resident_bytes();
        size_of::<View>() + parts + learned
    }

    /// Removes the file on the last drop. No effect on a view inside a run file.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Relaxed);
    }

    /// Returns the newest version of `key` at or below `snapshot`, tombstones included. If the
    /// snapshot covers the view, keys deleted by its runs' range tombstones count as absent. One
    /// key comparison for a present key, about an eighth for an absent one.
    pub fn get<'g>(
        &self,
        runs: &[Arc<Run>],
        key: &[u8],
        snapshot: SequenceNumber,
        guard: &'g Guard,
    ) -> Result<Option<EntryRef<'g>>> {
        self.get_hashed(runs, key, hash64(key), snapshot, guard)
    }

    #[inline]
    pub fn get_hashed<'g>(
        &self,
        runs: &[Arc<Run>],
        key: &[u8],
        hash: u64,
        snapshot: SequenceNumber,
        guard: &'g Guard,
    ) -> Result<Option<EntryRef<'g>>> {
        self.simd.run(Get {
            view: self,
            runs,
            number: None,
            query: Query { key, hash, snapshot, with_sequence: true },
            guard,
        })
    }

    /// The sequence number of a plain value is undefined.
    #[inline]
    pub fn find_hashed<'g>(
        &self,
        runs: &[Arc<Run>],
        key: &[u8],
        hash: u64,
        snapshot: SequenceNumber,
        guard: &'g Guard,
    ) -> Result<Option<EntryRef<'g>>> {
        let query = Query { key, hash, snapshot, with_sequence: false };
        self.simd.run(Get { view: self, runs, number: None, query, guard })
    }

    pub fn get_in_segment<'g>(
        &self,
        runs: &[Arc<Run>],
        number: u32,
        key: &[u8],
        hash: u64,
        snapshot: SequenceNumber,
        guard: &'g Guard,
    ) -> Result<Option<EntryRef<'g>>> {
        let query = Query { key, hash, snapshot, with_sequence: true };
        self.simd.run(Get { view: self, runs, number: Some(number), query, guard })
    }

    #[inline(always)]
    fn get_with<'g>(
        &self,
        simd: Simd,
        runs: &[Arc<Run>],
        number: u32,
        query: Query<'_>,
        guard: &'g Guard,
    ) -> Result<Option<EntryRef<'g>>> {
        let Query { key, hash, snapshot, .. } = query;
        let segment = self.segment(number, guard)?;
        let sees_all = snapshot >= self.meta.max_sequence;
        let mut candidates = self.candidates(simd, &segment, key, hash);
        while candidates != 0 {
            let lane = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            if sees_all && segment.selector(lane) & SELECTOR_STALE != 0 {
                continue;
            }
            let entry = self.entry(runs, number, &segment, lane, guard)?;
            super::counters::count_key_comparison();
            if !is_equal(entry.key, key) {
                continue;
            }
            if entry.sequence <= snapshot {
                return Ok(Some(entry));
            }
            return self.older_version(runs, key, snapshot, (number, lane), guard);
        }
        Ok(None)
    }

    /// Returns the lanes that can have a key's newest version: usually one if present, none if not.
    #[inline(always)]
    fn candidates(&self, simd: Simd, segment: &Segment<'_>, key: &[u8], hash: u64) -> u32 {
        let candidates = segment.tagged(tag_of_hash(hash)) & !segment.same_key();
        if candidates & candidates.wrapping_sub(1) == 0 {
            return candidates;
        }
        // Blind search always leads to a present key, so other lanes with the same tag need no
        // read.
        candidates & candidate(segment, simd, key).map_or(u32::MAX, |lane| 1 << lane)
    }

    /// First half of finding a key's segment; prefetches for the second.
    #[inline]
    pub fn find_leaf(&self, key: &[u8]) -> Leaf {
        self.simd.run(FindLeaf { view: self, key })
    }

    /// Second half; prefetches the segment's record. `None` for a view without entries.
    #[inline]
    pub fn segment_in_leaf(&self, key: &[u8], leaf: Leaf) -> Option<u32> {
        if self.directory.segments() == 0 {
            return None;
        }
        let segment = self.directory.segment_of(self.simd.run(FindInLeaf { view: self, key, leaf }));
        self.prefetch_record(segment);
        Some(segment)
    }

    /// Prefetches what [`View::prefetch_entry`] needs besides the segment's record.
    #[inline]
    pub fn prefetch_slot(&self, runs: &[Arc<Run>], number: u32, key: &[u8], hash: u64, guard: &Guard) {
        self.simd.run(PrefetchEntry { view: self, runs, number, key, hash, slot_only: true, guard });
    }

    /// Prefetches the entry for [`View::get_in_segment`]. Returns the page or block if not cached.
    #[inline]
    pub fn prefetch_entry<'a>(
        &'a self,
        runs: &'a [Arc<Run>],
        number: u32,
        key: &[u8],
        hash: u64,
        guard: &Guard,
    ) -> Option<CacheMiss<'a>> {
        self.simd.run(PrefetchEntry { view: self, runs, number, key, hash, slot_only: false, guard })
    }

    pub(super) fn page_request(&self, page: u32) -> ReadRequest {
        ReadRequest::new(Arc::clone(&self.file), self.page_offset(page), PAGE_BYTES)
    }

    /// Caches a page. Ignores failures and damage: readers of the page will report them.
    pub(super) fn take_in_page(&self, page: u32, read: &ReadRequest) {
        let is_read = matches!(read.result, Some(Ok(())));
        if is_read && self.pages.is_vacant(page) && self.check_page(page, &read.bytes).is_ok() {
            self.pages.insert(page, &read.bytes, &crossbeam_epoch::pin());
        }
    }

    /// Returns the first version at or below `snapshot` after the newest one, at `from`.
    #[cold]
    fn older_version<'g>(
        &self,
        runs: &[Arc<Run>],
        key: &[u8],
        snapshot: SequenceNumber,
        from: (u32, usize),
        guard: &'g Guard,
    ) -> Result<Option<EntryRef<'g>>> {
        let (mut number, mut lane) = from;
        let mut segment = self.segment(number, guard)?;
        loop {
            lane += 1;
            if lane == segment.count() {
                number += 1;
                lane = 0;
                if number == self.directory.segments() || !self.directory.is_continuation(number) {
                    return Ok(None);
                }
                segment = self.segment(number, guard)?;
            } else if segment.same_key() & 1 << lane == 0 {
                return Ok(None);
            }
            let entry = self.entry(runs, number, &segment, lane, guard)?;
            if entry.key != key {
                return Err(self.corrupt_segment(number, "a version of a key has another key"));
            }
            if entry.sequence <= snapshot {
                return Ok(Some(entry));
            }
        }
    }

    /// Returns the rank of `key` among all entries, rounded down to its segment. No I/O.
    pub fn rank(&self, _runs: &[Arc<Run>], key: &[u8]) -> Result<u64> {
        Ok(self.segment_for(key).map_or(0, |segment| self.directory.entries_before(segment)))
    }

    /// Returns up to `parts - 1` sorted keys after the first entry that divide the view into about
    /// equal parts. No I/O.
    pub fn split_points(&self, _runs: &[Arc<Run>], parts: usize) -> Result<Vec<Vec<u8>>> {
        let mut points = Vec::new();
        let mut last = 0;
        for part in 1..parts as u64 {
            let rank = (u128::from(self.meta.entries) * u128::from(part) / parts as u128) as u64;
            let anchor = self.directory.anchor_at_rank(rank);
            if anchor > last {
                points.push(self.directory.anchors.separator(anchor));
                last = anchor;
            }
        }
        Ok(points)
    }

    /// Returns the first segment of the key's group; `None` for a view without entries.
    pub(crate) fn segment_for(&self, key: &[u8]) -> Option<u32> {
        if self.directory.segments() == 0 {
            return None;
        }
        Some(self.directory.segment_of(self.directory.anchors.find(key)))
    }

    #[inline(always)]
    pub(crate) fn segment_with(&self, simd: Simd, key: &[u8]) -> Option<u32> {
        if self.directory.segments() == 0 {
            return None;
        }
        Some(self.directory.segment_of(self.directory.anchors.find_with(simd, key)))
    }

    #[inline(always)]
    pub(crate) fn segment<'g>(&self, number: u32, guard: &'g Guard) -> Result<Segment<'g>> {
        let record = self.record(number, guard)?;
        self.parse(number, record)
    }

    #[inline(always)]
    pub(crate) fn record<'g>(&self, number: u32, guard: &'g Guard) -> Result<&'g [u8]> {
        count_segment_read();
        let (page, at) = self.layout.place(number);
        let bytes = self.pages.get_or_load_soon(page, guard, lines_before_end(at), || self.load_page(page))?;
        bytes
            .get(at..at + self.layout.record_bytes)
            .ok_or_else(|| self.corrupt_segment(number, "its page is cut short"))
    }

    /// Prefetches a record if its page is cached.
    #[inline]
    pub(crate) fn prefetch_record(&self, number: u32) {
        if number < self.directory.segments() {
            let (page, at) = self.layout.place(number);
            self.pages.hint(page).prefetch(lines_before_end(at));
        }
    }

    #[inline(always)]
    pub(crate) fn parse<'r>(&self, number: u32, record: &'r [u8]) -> Result<Segment<'r>> {
        Segment::new(record, self.directory.count(number), self.layout.run_count)
            .ok_or_else(|| self.corrupt_segment(number, "its entries are not those the directory counts"))
    }

    fn load_page(&self, page: u32) -> Result<Vec<u8>> {
        let offset = self.page_offset(page);
        let mut bytes = vec![0; PAGE_BYTES];
        read_exact(&*self.file, &self.path, &mut bytes, offset)?;
        self.check_page(page, &bytes)?;
        Ok(bytes)
    }

    pub(crate) fn page_offset(&self, page: u32) -> u64 {
        self.start + u64::from(page) * PAGE_BYTES as u64
    }

    pub(crate) fn check_page(&self, page: u32, bytes: &[u8]) -> Result<()> {
        let offset = self.page_offset(page);
        if page_is_sound(bytes, self.file_id, offset) {
            return Ok(());
        }
        Err(Error::corruption(&self.path, offset, "a page of the view does not match its checksum"))
    }

    #[inline(always)]
    pub(crate) fn locate(
        &self,
        runs: &[Arc<Run>],
        number: u32,
        segment: &Segment<'_>,
        lane: usize,
    ) -> Result<(usize, Position)> {
        let index = segment.run(lane);
        let located = segment.cursor(index).zip(runs.get(index)).and_then(|(cursor, run)| {
            let before = (segment.lanes_of_run(index) & lanes_below(lane)).count_ones();
            let position = run.advance(cursor, before);
            (position.slot < run.block_entries(position.block)).then_some((index, position))
        });
        located.ok_or_else(|| self.corrupt_segment(number, "an entry lies outside of its run"))
    }

    #[inline(always)]
    pub(crate) fn entry<'g>(
        &self,
        runs: &[Arc<Run>],
        number: u32,
        segment: &Segment<'_>,
        lane: usize,
        guard: &'g Guard,
    ) -> Result<EntryRef<'g>> {
        let (run, position) = self.locate(runs, number, segment, lane)?;
        runs[run].read(position, guard)
    }

    /// One key comparison unless the segment must be bisected.
    pub(crate) fn find_in_segment(
        &self,
        number: u32,
        segment: &Segment<'_>,
        query: &[u8],
        mut compare: impl FnMut(usize) -> Result<Comparison>,
    ) -> Result<Place> {
        find_place(segment, self.simd, query, |lane| {
            if lane >= segment.count() {
                return Err(self.corrupt_segment(number, "its differences lead past its entries"));
            }
            compare(lane)
        })
    }

    pub(crate) fn find_with_guard(
        &self,
        runs: &[Arc<Run>],
        number: u32,
        segment: &Segment<'_>,
        query: &[u8],
        guard: &Guard,
    ) -> Result<Place> {
        self.find_in_segment(number, segment, query, |lane| {
            Ok(compare_counted(query, self.entry(runs, number, segment, lane, guard)?.key))
        })
    }

    /// Returns the position of a run's first entry at or above `key`, by its own view.
    pub(crate) fn position_of(&self, run: &Arc<Run>, key: &[u8], guard: &Guard) -> Result<Position> {
        let Some(mut number) = self.segment_for(key) else {
            return Ok(run.end());
        };
        let segment = self.segment(number, guard)?;
        let runs = std::slice::from_ref(run);
        let place = self.find_with_guard(runs, number, &segment, key, guard)?;
        if place.lane < segment.count() {
            return Ok(self.locate(runs, number, &segment, place.lane)?.1);
        }
        loop {
            number += 1;
            if number == self.directory.segments() {
                return Ok(run.end());
            }
            if !self.directory.is_continuation(number) {
                return Ok(self.locate(runs, number, &self.segment(number, guard)?, 0)?.1);
            }
        }
    }

    #[cold]
    pub(crate) fn corrupt_segment(&self, number: u32, detail: &str) -> Error {
        let (page, at) = self.layout.place(number);
        Error::corruption(
            &self.path,
            self.page_offset(page) + at as u64,
            format!("segment {number} of the view: {detail}"),
        )
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let file = Arc::clone(&self.file);
        if self.obsolete.load(Relaxed) && self.meta.number != 0 {
            self.deferred_close.remove(&self.vfs, &self.path, file);
        } else {
            self.deferred_close.drop_later(file);
        }
    }
}

pub(crate) fn read_exact(file: &dyn File, path: &Path, buf: &mut [u8], offset: u64) -> Result<()> {
    file.read_exact_at(buf, offset).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::corruption(path, offset, "the file ends before its view does"),
        _ => Error::io("read", path, e),
    })
}

/// Returns the distances from the page's end to the two lines that every lookup needs.
#[inline(always)]
fn lines_before_end(at: usize) -> [usize; 2] {
    [PAGE_BYTES - at, (PAGE_BYTES - at).saturating_sub(64)]
}
