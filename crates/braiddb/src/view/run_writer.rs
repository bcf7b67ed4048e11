//! Writes a run with its own one-run view embedded in the run file.
//!
//! An entry is marked stale if it is an older version of the previous key, or if a newer range
//! tombstone added before it covers it. For range tombstones added later, `finish` marks only whole
//! segments. Readers apply range tombstones regardless; marks save them work and count garbage.

use super::builder::ViewBuilder;
use super::directory::Directory;
use super::simd::Simd;
use crate::base::{EntryRef, FileId, FileNumber, RangeTombstone, RangeTombstoneSet, Result};
use crate::codec::Compression;
use crate::table::{RunMeta, RunOptions, RunWriter, TableContext};
use std::{cmp::Ordering, path::Path};

#[derive(Debug)]
pub struct SortedRunWriter {
    run: RunWriter,
    view: ViewBuilder,
    tombstones: Vec<RangeTombstone>,
    covering: RangeTombstoneSet,
    covering_is_current: bool,
    has_late_tombstones: bool,
    first_key: Vec<u8>,
}

impl SortedRunWriter {
    pub fn create(
        ctx: &TableContext,
        path: &Path,
        number: FileNumber,
        file_id: FileId,
        options: &RunOptions,
    ) -> Result<SortedRunWriter> {
        Ok(SortedRunWriter {
            run: RunWriter::create(ctx, path, number, file_id, options)?,
            view: ViewBuilder::in_memory(),
            tombstones: Vec::new(),
            covering: RangeTombstoneSet::default(),
            covering_is_current: true,
            has_late_tombstones: false,
            first_key: Vec::new(),
        })
    }

    /// Adds an entry, in order of key, then newest first.
    pub fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        if !self.covering_is_current {
            self.covering = RangeTombstoneSet::new(self.tombstones.clone());
            self.covering_is_current = true;
        }
        if self.view.entries() == 0 {
            self.first_key = entry.key.to_vec();
        }
        let covered = !self.covering.is_empty()
            && self.covering.covering(entry.key).first().is_some_and(|&newest| newest > entry.sequence);
        let position = self.run.add(entry)?;
        self.view.push(entry.key, entry.sequence, 0, position, entry.kind, covered)
    }

    pub fn set_compression(&mut self, compression: Compression) {
        self.run.set_compression(compression);
    }

    pub fn add_blob_use(&mut self, file: FileNumber, bytes: u64) {
        self.run.add_blob_use(file, bytes);
    }

    /// Preferably before the entries it covers.
    pub fn add_range_tombstone(&mut self, tombstone: RangeTombstone) {
        self.view.writer.cover_sequence(tombstone.sequence);
        self.has_late_tombstones |= self.view.entries() > 0;
        self.covering_is_current = false;
        self.tombstones.push(tombstone.clone());
        self.run.add_range_tombstone(tombstone);
    }

    pub fn last_key(&self) -> &[u8] {
        &self.view.last_key
    }

    pub fn block_count(&self) -> u32 {
        self.run.block_count()
    }

    pub fn estimated_bytes(&self) -> u64 {
        self.run.estimated_bytes() + self.view.writer.estimated_bytes()
    }

    pub fn finish(mut self) -> Result<RunMeta> {
        self.view.flush()?;
        if self.has_late_tombstones {
            self.mark_late()?;
        }
        let writer = self.view.writer;
        self.run.finish(|file_id, offset| Ok(writer.into_section(file_id, offset)))
    }

    /// Marks segments stale that lie within range tombstones newer than all their entries.
    fn mark_late(&mut self) -> Result<()> {
        let Some(newest) = self.view.newest_by_segment.take() else {
            return Ok(());
        };
        let writer = self.view.writer.directory.clone();
        let segments = writer.segments();
        let Some(directory) = Directory::decode(&writer.finish(), segments, Simd::detect()) else {
            unreachable!("a directory that was just written can be read");
        };
        if segments == 0 {
            return Ok(());
        }
        let covering = RangeTombstoneSet::new(std::mem::take(&mut self.tombstones));
        let anchors = &directory.anchors;
        for tombstone in covering.iter() {
            let mut from = if tombstone.start <= self.first_key { 0 } else { anchors.find(&tombstone.start) };
            if from > 0 || tombstone.start > self.first_key {
                from += usize::from(anchors.compare(from, &tombstone.start) != Ordering::Equal);
            }
            let to = if tombstone.end > self.view.last_key { anchors.len() } else { anchors.find(&tombstone.end) };
            for segment in directory.segment_of(from)..directory.segment_of(to) {
                if newest.get(segment as usize).is_some_and(|&sequence| sequence < tombstone.sequence) {
                    self.view.writer.mark_segments_stale(segment..segment + 1);
                }
            }
        }
        Ok(())
    }
}
