//! Builds a view from entries given in order.
//!
//! A new key starts the next segment if one is full. If another version of the last key finds it
//! full, all versions of that key move to a new segment. So versions are divided only if they
//! exceed a segment; the excess fills continuation segments, which hold nothing else.

use super::format::{Difference, Lane, SEGMENT_LANES, ViewMeta, selector, tag};
use super::writer::{Anchor, SegmentWriter, difference};
use crate::base::{EntryKind, Error, FileId, FileNumber, Result, SequenceNumber};
use crate::table::{Position, Run, TableContext};
use std::{cmp::Ordering, path::Path, sync::Arc};

/// Entries of a new segment, of at most 32. Later folds insert into the free places; an overflow
/// costs a split.
pub(crate) const FOLDED_FILL: usize = 30;

#[derive(Debug)]
pub struct ViewBuilder {
    pub(crate) writer: SegmentWriter,
    fill: usize,
    lanes: Vec<Lane>,
    anchor: Anchor,
    chain_start: usize,
    pub(crate) last_key: Vec<u8>,
    last_sequence: SequenceNumber,
    has_last: bool,
    /// In the view of one run: an upper bound of each segment's sequence numbers.
    pub(crate) newest_by_segment: Option<Vec<SequenceNumber>>,
    newest: SequenceNumber,
}

impl ViewBuilder {
    /// `path` must not exist. `positions` are the runs' first entries in the view.
    pub fn new(
        ctx: &TableContext,
        path: &Path,
        number: FileNumber,
        file_id: FileId,
        runs: &[Arc<Run>],
        positions: &[Position],
    ) -> Result<ViewBuilder> {
        let writer = SegmentWriter::create(&*ctx.vfs, path, number, file_id, runs, positions)?;
        Ok(ViewBuilder::over(writer, FOLDED_FILL))
    }

    pub(crate) fn over(writer: SegmentWriter, fill: usize) -> ViewBuilder {
        assert!((1..=SEGMENT_LANES).contains(&fill));
        ViewBuilder {
            writer,
            fill,
            lanes: Vec::with_capacity(SEGMENT_LANES),
            anchor: Anchor::Separator(Vec::new()),
            chain_start: 0,
            last_key: Vec::new(),
            last_sequence: 0,
            has_last: false,
            newest_by_segment: None,
            newest: 0,
        }
    }

    pub(crate) fn in_memory() -> ViewBuilder {
        let mut builder = ViewBuilder::over(SegmentWriter::in_memory(), SEGMENT_LANES);
        builder.newest_by_segment = Some(Vec::new());
        builder
    }

    /// Adds an entry, in order of key, then newest first. Older versions of the last key are stale
    /// in any case. Out of order is an error: the order comes from disk.
    pub fn push(
        &mut self,
        key: &[u8],
        sequence: SequenceNumber,
        run: u8,
        position: Position,
        kind: EntryKind,
        stale: bool,
    ) -> Result<()> {
        let (order, difference) =
            if self.has_last { difference(key, &self.last_key) } else { (Ordering::Greater, Difference::Untold) };
        match order {
            Ordering::Greater => self.start_key(key, difference)?,
            Ordering::Equal if sequence <= self.last_sequence => self.make_room_for_version()?,
            _ => {
                let detail = "the entries of its runs are out of order";
                return Err(Error::corruption(self.writer.path(), 0, detail));
            }
        }
        let tag = match self.lanes.last() {
            Some(before) if order == Ordering::Equal => before.tag,
            _ => tag(key),
        };
        let stale = stale || order == Ordering::Equal;
        self.lanes.push(Lane { selector: selector(run, kind, stale), tag, difference, position });
        self.last_sequence = sequence;
        self.newest = self.newest.max(sequence);
        self.writer.cover_sequence(sequence);
        Ok(())
    }

    /// Writes the last segment and syncs the file.
    pub fn finish(mut self) -> Result<ViewMeta> {
        self.flush()?;
        self.writer.finish()
    }

    pub(crate) fn entries(&self) -> u64 {
        self.writer.entries() + self.lanes.len() as u64
    }

    /// Ends the segment. The next entry starts one with `separator`; the preceding key is unknown.
    pub(crate) fn start_group(&mut self, separator: Vec<u8>) -> Result<()> {
        self.flush()?;
        self.anchor = Anchor::Separator(separator);
        self.has_last = false;
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        if !self.lanes.is_empty() {
            self.writer.write(&self.lanes, &self.anchor)?;
            self.lanes.clear();
            if let Some(newest) = &mut self.newest_by_segment {
                newest.push(std::mem::take(&mut self.newest));
            }
        }
        self.chain_start = 0;
        Ok(())
    }

    fn start_key(&mut self, key: &[u8], difference: Difference) -> Result<()> {
        if self.lanes.len() >= self.fill || (self.anchor == Anchor::Continuation && !self.lanes.is_empty()) {
            self.flush()?;
            self.anchor = Anchor::of(key, difference);
        }
        self.chain_start = self.lanes.len();
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.has_last = true;
        Ok(())
    }

    fn make_room_for_version(&mut self) -> Result<()> {
        if self.lanes.len() < SEGMENT_LANES {
            return Ok(());
        }
        let newest = self.newest;
        let chain = self.lanes.split_off(if self.chain_start > 0 { self.chain_start } else { SEGMENT_LANES });
        self.flush()?;
        self.anchor = match chain.first() {
            Some(first) => Anchor::of(&self.last_key, first.difference),
            None => Anchor::Continuation,
        };
        if !chain.is_empty() {
            self.newest = newest;
        }
        self.lanes.extend(chain);
        Ok(())
    }
}
