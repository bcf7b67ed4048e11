//! Writes a view segment by segment: pages as they fill, directory and footer at the end.

use super::bits;
use super::directory::DirectoryWriter;
use super::format::{
    Difference, Footer, Lane, Layout, PAGE_BYTES, SEGMENT_LANES, SELECTOR_EMPTY, SELECTOR_RUN, SELECTOR_STALE,
    SELECTOR_TOMBSTONE, VIEW_FILE_START, ViewMeta, encode_record, seal_page,
};
use crate::base::{Error, FileId, FileNumber, Result, SequenceNumber};
use crate::codec::{FileHeader, FileKind, checksum};
use crate::platform::{File, OpenMode, Vfs};
use crate::table::{Position, Run};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const PAGES_PER_WRITE: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// The first segment's separator is ignored.
    Separator(Vec<u8>),
    /// Continues the versions of the previous key.
    Continuation,
}

impl Anchor {
    /// Shortest separator of `key` from the previous one.
    pub(crate) fn of(key: &[u8], difference: Difference) -> Anchor {
        let len = match difference {
            Difference::Bit(bit) => bit as usize / 8 + 1,
            Difference::Same | Difference::Untold => key.len(),
        };
        Anchor::Separator(key.get(..len).unwrap_or(key).to_vec())
    }
}

#[derive(Debug)]
enum Target {
    File {
        file: Arc<dyn File>,
        path: PathBuf,
        number: FileNumber,
        file_id: FileId,
    },
    /// Returned at the end, when their offset in a file is known.
    Memory,
}

#[derive(Debug)]
pub(crate) struct SegmentWriter {
    target: Target,
    layout: Layout,
    /// Runs, for their blocks' entry counts. Empty for a run's own view, whose segments begin with
    /// entries.
    runs: Vec<Arc<Run>>,
    positions: Vec<Position>,
    pages: Vec<u8>,
    records_in_page: usize,
    pages_written: u64,
    pub(crate) directory: DirectoryWriter,
    entries: u64,
    stale: u64,
    tombstones: u64,
    max_sequence: SequenceNumber,
}

impl SegmentWriter {
    pub(crate) fn create(
        vfs: &dyn Vfs,
        path: &Path,
        number: FileNumber,
        file_id: FileId,
        runs: &[Arc<Run>],
        positions: &[Position],
    ) -> Result<SegmentWriter> {
        assert_eq!(runs.len(), positions.len(), "each run has a position");
        let layout = Layout::new(runs.len())
            .ok_or_else(|| Error::InvalidArgument(format!("a view braids 1 to 31 runs, not {}", runs.len())))?;
        let file = vfs.open(path, OpenMode::CreateNew).map_err(|e| Error::io("create", path, e))?;
        let mut start = FileHeader::new(FileKind::View, file_id, [0, 0]).encode().to_vec();
        start.resize(VIEW_FILE_START as usize, 0);
        file.write_at(&start, 0).map_err(|e| Error::io("write", path, e))?;
        let target = Target::File { file, path: path.to_owned(), number, file_id };
        let mut writer = SegmentWriter::new(target, layout, runs.to_vec(), positions.to_vec());
        writer.max_sequence = runs.iter().map(|run| max_sequence_of(run)).max().unwrap_or(0);
        Ok(writer)
    }

    pub(crate) fn in_memory() -> SegmentWriter {
        let layout = Layout { run_count: 1, record_bytes: 128, records_per_page: 31 };
        debug_assert_eq!(Some(layout), Layout::new(1));
        SegmentWriter::new(Target::Memory, layout, Vec::new(), vec![Position::default()])
    }

    fn new(target: Target, layout: Layout, runs: Vec<Arc<Run>>, positions: Vec<Position>) -> SegmentWriter {
        SegmentWriter {
            target,
            layout,
            runs,
            positions,
            pages: Vec::new(),
            records_in_page: 0,
            pages_written: 0,
            directory: DirectoryWriter::default(),
            entries: 0,
            stale: 0,
            tombstones: 0,
            max_sequence: 0,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match &self.target {
            Target::File { path, .. } => path,
            Target::Memory => Path::new(""),
        }
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    pub(crate) fn estimated_bytes(&self) -> u64 {
        let pages = self.pages_written * PAGE_BYTES as u64 + self.pages.len() as u64;
        pages + self.directory.estimated_bytes() as u64 + 4096
    }

    pub(crate) fn cover_sequence(&mut self, sequence: SequenceNumber) {
        self.max_sequence = self.max_sequence.max(sequence);
    }

    pub(crate) fn set_positions(&mut self, positions: impl Iterator<Item = Position>) {
        for (mine, position) in self.positions.iter_mut().zip(positions) {
            *mine = position;
        }
    }

    pub(crate) fn write(&mut self, lanes: &[Lane], anchor: &Anchor) -> Result<()> {
        // A run's cursor is its first entry in this segment.
        for lane in lanes.iter().rev() {
            self.positions[usize::from(lane.selector & SELECTOR_RUN)] = lane.position;
        }
        self.start_record(lanes.len(), anchor)?;
        let at = self.record_start();
        encode_record(&mut self.pages[at..at + self.layout.record_bytes], lanes, &self.positions);
        for lane in lanes {
            self.count(lane.selector);
            let run = usize::from(lane.selector & SELECTOR_RUN);
            self.positions[run] = match self.runs.get(run) {
                Some(known) => known.advance(lane.position, 1),
                None => lane.position,
            };
        }
        Ok(())
    }

    /// Copies a segment of an older view over this view's first runs. `record` has final selectors,
    /// differences and tags, and the older cursors.
    pub(crate) fn copy(&mut self, record: &[u8], count: usize, old_runs: usize, anchor: &Anchor) -> Result<()> {
        self.start_record(count, anchor)?;
        let at = self.record_start();
        let len = 96 + 4 * old_runs;
        let out = &mut self.pages[at..at + self.layout.record_bytes];
        out[..len].copy_from_slice(&record[..len]);
        for (cursor, position) in out[len..].chunks_exact_mut(4).zip(&self.positions[old_runs..]) {
            cursor[..2].copy_from_slice(&position.block.to_le_bytes());
            cursor[2..].copy_from_slice(&position.slot.to_le_bytes());
        }
        for &selector in &record[..SEGMENT_LANES] {
            if selector != SELECTOR_EMPTY {
                self.count(selector);
            }
        }
        Ok(())
    }

    fn count(&mut self, selector: u8) {
        self.entries += 1;
        if selector & SELECTOR_STALE != 0 {
            self.stale += 1;
        } else if selector & SELECTOR_TOMBSTONE != 0 {
            self.tombstones += 1;
        }
    }

    fn start_record(&mut self, count: usize, anchor: &Anchor) -> Result<()> {
        match anchor {
            Anchor::Separator(separator) => self.directory.push(count, separator),
            Anchor::Continuation => self.directory.push_continuation(count),
        }
        if self.pages.is_empty() || self.records_in_page == self.layout.records_per_page {
            if self.pages.len() >= PAGES_PER_WRITE * PAGE_BYTES {
                self.write_pages()?;
            }
            self.pages.resize(self.pages.len() + PAGE_BYTES, 0);
            self.records_in_page = 0;
        }
        self.records_in_page += 1;
        Ok(())
    }

    fn record_start(&self) -> usize {
        self.pages.len() - PAGE_BYTES + (self.records_in_page - 1) * self.layout.record_bytes
    }

    fn write_pages(&mut self) -> Result<()> {
        let Target::File { file, path, file_id, .. } = &self.target else {
            return Ok(());
        };
        let start = VIEW_FILE_START + self.pages_written * PAGE_BYTES as u64;
        seal_pages(&mut self.pages, *file_id, start);
        file.write_at(&self.pages, start).map_err(|e| Error::io("write", path, e))?;
        self.pages_written += (self.pages.len() / PAGE_BYTES) as u64;
        self.pages.clear();
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<ViewMeta> {
        self.write_pages()?;
        let segments = self.directory.segments();
        let Target::File { file, path, number, file_id } = &self.target else {
            panic!("a view in memory is finished by `into_section`");
        };
        let offset = VIEW_FILE_START + self.pages_written * PAGE_BYTES as u64;
        let mut tail = std::mem::take(&mut self.directory).finish();
        let footer = self.footer(segments, &tail, *file_id, offset);
        tail.extend_from_slice(&footer.encode(*file_id, offset + tail.len() as u64));
        file.write_at(&tail, offset).map_err(|e| Error::io("write", path, e))?;
        file.sync_data().map_err(|e| Error::io("sync", path, e))?;
        Ok(footer.meta(*number, *file_id, offset + tail.len() as u64))
    }

    /// Returns the view's bytes for an offset in a file.
    pub(crate) fn into_section(mut self, file_id: FileId, offset: u64) -> Vec<u8> {
        let segments = self.directory.segments();
        seal_pages(&mut self.pages, file_id, offset);
        let directory = std::mem::take(&mut self.directory).finish();
        let directory_at = offset + self.pages.len() as u64;
        let footer = self.footer(segments, &directory, file_id, directory_at);
        let mut section = self.pages;
        section.extend_from_slice(&directory);
        section.extend_from_slice(&footer.encode(file_id, offset + section.len() as u64));
        section
    }

    fn footer(&self, segments: u32, directory: &[u8], file_id: FileId, offset: u64) -> Footer {
        Footer {
            entries: self.entries,
            segments,
            run_count: self.layout.run_count as u32,
            stale: self.stale,
            tombstones: self.tombstones,
            max_sequence: self.max_sequence,
            directory_bytes: directory.len() as u64,
            directory_checksum: checksum(file_id, offset, directory),
        }
    }

    /// Precondition: a view in memory.
    pub(crate) fn mark_segments_stale(&mut self, segments: std::ops::Range<u32>) {
        assert!(matches!(self.target, Target::Memory));
        for segment in segments {
            let (page, at) = self.layout.place(segment);
            let from = page as usize * PAGE_BYTES + at;
            for selector in &mut self.pages[from..from + SEGMENT_LANES] {
                if *selector == SELECTOR_EMPTY || *selector & SELECTOR_STALE != 0 {
                    continue;
                }
                self.stale += 1;
                self.tombstones -= u64::from(*selector & SELECTOR_TOMBSTONE != 0);
                *selector |= SELECTOR_STALE;
            }
        }
    }
}

impl Footer {
    pub(crate) fn meta(&self, number: FileNumber, file_id: FileId, file_bytes: u64) -> ViewMeta {
        ViewMeta {
            number,
            file_id,
            file_bytes,
            entries: self.entries,
            segments: self.segments,
            stale: self.stale,
            tombstones: self.tombstones,
            max_sequence: self.max_sequence,
            run_count: self.run_count as u8,
        }
    }
}

fn seal_pages(pages: &mut [u8], file_id: FileId, start: u64) {
    for (i, page) in pages.chunks_exact_mut(PAGE_BYTES).enumerate() {
        seal_page(page, file_id, start + (i * PAGE_BYTES) as u64);
    }
}

/// Includes range tombstones.
pub(crate) fn max_sequence_of(run: &Run) -> SequenceNumber {
    run.range_tombstones().iter().map(|t| t.sequence).max().unwrap_or(0).max(run.meta().max_sequence)
}

pub(crate) fn difference(key: &[u8], before: &[u8]) -> (std::cmp::Ordering, Difference) {
    match bits::compare_bits(key, before) {
        (std::cmp::Ordering::Equal, _) => (std::cmp::Ordering::Equal, Difference::Same),
        (order, Some(bit)) => (order, Difference::Bit(bit)),
        (order, None) => (order, Difference::Untold),
    }
}
