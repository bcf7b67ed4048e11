//! An open view: its directory in memory, its segment records read through the block cache.
//!
//! Any number of threads read concurrently, since data never changes. Callers pass the view's runs
//! in the view's order.

pub use super::anchors::Leaf;
use super::count::LiveCounts;
use super::counters::count_segment_read;
use super::directory::Directory;
use super::first_blocks::FirstBlocks;
use super::format::{Layout, PAGE_BYTES, Segment, ViewMeta, lanes_below, page_is_sound};
use super::hash_index::HashIndex;
use super::search::{Comparison, Place, compare_counted, find_place};
use super::simd::Simd;
use crate::base::{EntryRef, Error, FileId, Result};
use crate::cache::CacheSlots;
use crate::platform::{DeferredClose, File, ReadRequest, Vfs};
use crate::table::{IndexTrigger, Position, Run};
use crossbeam_epoch::Guard;
pub use get::Query;
pub(super) use get::block_step;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

mod get;
mod open;

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

    pub(super) fn page_request(&self, page: u32) -> ReadRequest {
        ReadRequest::new(Arc::clone(&self.file), self.page_offset(page), PAGE_BYTES)
    }

    /// Caches a page. Leaves failures and damage to the page's readers.
    pub(super) fn take_in_page(&self, page: u32, read: &ReadRequest) {
        let is_read = matches!(read.result, Some(Ok(())));
        if is_read && self.pages.is_vacant(page) && self.check_page(page, &read.bytes).is_ok() {
            self.pages.insert(page, &read.bytes, &crossbeam_epoch::pin());
        }
    }

    /// Ranks `key` among all entries, rounded down to its segment. No I/O.
    pub fn rank(&self, _runs: &[Arc<Run>], key: &[u8]) -> Result<u64> {
        Ok(self.segment_for(key).map_or(0, |segment| self.directory.entries_before(segment)))
    }

    /// Returns up to `parts - 1` sorted keys after the first entry that divide the view about
    /// equally. No I/O.
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

    /// `None` for a view without entries.
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

    /// Returns the position of a run's first entry at or above `key`, by the run's own view.
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

/// The two lines that every lookup needs.
#[inline(always)]
fn lines_before_end(at: usize) -> [usize; 2] {
    [PAGE_BYTES - at, (PAGE_BYTES - at).saturating_sub(64)]
}
