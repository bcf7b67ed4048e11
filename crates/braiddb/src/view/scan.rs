//! Reads all segments of a view in order, bypassing the block cache and without reading keys.

use super::format::{MAX_RECORD_BYTES, PAGE_BYTES, SELECTOR_RESOLVE, SELECTOR_STALE, SELECTOR_TOMBSTONE, Segment};
use super::reader::{View, read_exact};
use crate::base::Result;
use crate::table::{Position, Run};
use std::sync::Arc;

const PAGES_PER_READ: u32 = 64;

#[derive(Debug)]
pub(crate) struct SegmentStream {
    view: Arc<View>,
    pages: Vec<u8>,
    first_page: u32,
    next: u32,
    record: [u8; MAX_RECORD_BYTES],
}

impl SegmentStream {
    pub(crate) fn new(view: Arc<View>) -> SegmentStream {
        SegmentStream { view, pages: Vec::new(), first_page: 0, next: 0, record: [0; MAX_RECORD_BYTES] }
    }

    pub(crate) fn next(&mut self) -> Result<Option<u32>> {
        let number = self.next;
        if number >= self.view.directory.segments() {
            return Ok(None);
        }
        let (page, at) = self.view.layout.place(number);
        let loaded = self.first_page + (self.pages.len() / PAGE_BYTES) as u32;
        if self.pages.is_empty() || page >= loaded {
            self.load(page)?;
        }
        let from = (page - self.first_page) as usize * PAGE_BYTES + at;
        let record_bytes = self.view.layout.record_bytes;
        self.record[..record_bytes].copy_from_slice(&self.pages[from..from + record_bytes]);
        self.view.parse(number, &self.record)?;
        self.next += 1;
        Ok(Some(number))
    }

    pub(crate) fn segment(&self) -> Result<Segment<'_>> {
        self.view.parse(self.next - 1, &self.record)
    }

    pub(crate) fn record(&mut self) -> &mut [u8] {
        &mut self.record[..self.view.layout.record_bytes]
    }

    fn load(&mut self, page: u32) -> Result<()> {
        let all = self.view.layout.pages(self.view.directory.segments());
        let count = PAGES_PER_READ.min(all - page);
        self.pages.resize(count as usize * PAGE_BYTES, 0);
        read_exact(&*self.view.file, self.view.path(), &mut self.pages, self.view.page_offset(page))?;
        self.first_page = page;
        for (i, bytes) in self.pages.chunks_exact(PAGE_BYTES).enumerate() {
            self.view.check_page(page + i as u32, bytes)?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentDump {
    pub number: u32,
    pub is_continuation: bool,
    pub selectors: Vec<u8>,
    /// 255: differences are unknown.
    pub base: u8,
    /// Differences between neighbours, from the second entry on.
    pub differences: Vec<u8>,
    pub tags: Vec<u8>,
    /// Each run's first position in or after the segment.
    pub cursors: Vec<Position>,
}

impl View {
    /// Passes each segment to `visitor` until it returns false; checks every page.
    pub fn dump(self: &Arc<Self>, visitor: &mut dyn FnMut(SegmentDump) -> bool) -> Result<()> {
        let mut stream = SegmentStream::new(Arc::clone(self));
        while let Some(number) = stream.next()? {
            let segment = stream.segment()?;
            let count = segment.count();
            let dump = SegmentDump {
                number,
                is_continuation: self.directory.is_continuation(number),
                selectors: (0..count).map(|lane| segment.selector(lane)).collect(),
                base: segment.base(),
                differences: segment.differences().iter().take(count).skip(1).copied().collect(),
                tags: (0..count).map(|lane| segment.tag(lane)).collect(),
                cursors: (0..self.layout.run_count).filter_map(|run| segment.cursor(run)).collect(),
            };
            if !visitor(dump) {
                break;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedEntry {
    pub run: u8,
    pub position: Position,
    pub stale: bool,
    pub tombstone: bool,
    pub resolve: bool,
    pub same_key: bool,
}

#[derive(Debug)]
pub struct ViewScan {
    stream: SegmentStream,
    view: Arc<View>,
    runs: Vec<Arc<Run>>,
    positions: Vec<Position>,
    number: u32,
    lane: usize,
    count: usize,
    same_key: u32,
}

impl ViewScan {
    pub fn new(view: Arc<View>, runs: &[Arc<Run>]) -> ViewScan {
        ViewScan {
            stream: SegmentStream::new(view.clone()),
            view,
            runs: runs.to_vec(),
            positions: Vec::new(),
            number: 0,
            lane: 0,
            count: 0,
            same_key: 0,
        }
    }

    pub fn next(&mut self) -> Result<Option<ScannedEntry>> {
        if self.lane == self.count {
            let Some(number) = self.stream.next()? else {
                return Ok(None);
            };
            self.number = number;
            let segment = self.stream.segment()?;
            self.positions.clear();
            self.positions.extend((0..self.view.layout.run_count).map_while(|run| segment.cursor(run)));
            self.count = segment.count();
            self.lane = 0;
            self.same_key = segment.same_key() | u32::from(self.view.directory.is_continuation(number));
        }
        let segment = self.stream.segment()?;
        let (index, selector) = (segment.run(self.lane), segment.selector(self.lane));
        let known = self.positions.get_mut(index).zip(self.runs.get(index));
        let Some((position, run)) = known.filter(|(p, run)| p.slot < run.block_entries(p.block)) else {
            return Err(self.view.corrupt_segment(self.number, "an entry lies outside of its run"));
        };
        let entry = ScannedEntry {
            run: index as u8,
            position: *position,
            stale: selector & SELECTOR_STALE != 0,
            tombstone: selector & SELECTOR_TOMBSTONE != 0,
            resolve: selector & SELECTOR_RESOLVE != 0,
            same_key: self.same_key & 1 << self.lane != 0,
        };
        *position = run.advance(*position, 1);
        self.lane += 1;
        Ok(Some(entry))
    }
}
