//! Iterates over all partitions: the oldest source of a scan.
//!
//! One partition is open at a time. No source is older, so keys deleted by tombstones or by range
//! tombstones of runs are omitted here.

use super::Merge;
use crate::{
    base::{Cursor, EntryKind, EntryRef, Result, SequenceNumber},
    codec::hash64,
    version::{Partition, Version, is_counted},
    view::{RowBatch, RowPlace, ViewCursor},
};
use std::sync::Arc;

/// Limited to the partition if its run is shared.
#[derive(Debug)]
pub struct Source {
    cursor: ViewCursor,
    within: Option<Arc<Partition>>,
}

impl Source {
    fn all(partition: &Arc<Partition>, snapshot: SequenceNumber) -> Result<Vec<Source>> {
        let mut sources = Vec::with_capacity(partition.apart.len() + 1);
        if let Some(view) = &partition.view {
            let mut cursor = ViewCursor::new(Arc::clone(view), Arc::clone(&partition.view_runs), snapshot);
            if partition.apart.is_empty() {
                cursor.hide_tombstones();
            }
            sources.push(Source { cursor, within: None });
        }
        for handle in &partition.apart {
            let cursor = ViewCursor::new(Arc::clone(handle.view()?), Arc::clone(handle.alone()), snapshot);
            let (meta, layout) = (handle.run().meta(), &partition.layout);
            let inside = layout.start <= meta.smallest && layout.end.as_ref().is_none_or(|end| meta.largest < *end);
            sources.push(Source { cursor, within: (!inside).then(|| Arc::clone(partition)) });
        }
        Ok(sources)
    }
}

impl Cursor for Source {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        match &self.within {
            Some(partition) => self.cursor.seek(key.max(&partition.layout.start)),
            None => self.cursor.seek(key),
        }
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let end = self.within.as_ref().and_then(|p| p.layout.end.as_deref());
        self.cursor.seek_before(end.map_or(key, |end| key.min(end)))
    }

    fn seek_first(&mut self) -> Result<()> {
        match &self.within {
            Some(partition) => self.cursor.seek(&partition.layout.start),
            None => self.cursor.seek_first(),
        }
    }

    fn seek_last(&mut self) -> Result<()> {
        match self.within.as_ref().and_then(|p| p.layout.end.as_deref()) {
            Some(end) => self.cursor.seek_before(end),
            None => self.cursor.seek_last(),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.cursor.next()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.cursor.prev()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.cursor.valid()
            && self.within.as_ref().is_none_or(|partition| {
                let (key, layout) = (self.cursor.key(), &partition.layout);
                layout.start.as_slice() <= key && layout.end.as_deref().is_none_or(|end| key < end)
            })
    }

    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        self.cursor.entry()
    }
}

impl Source {
    pub fn fill(&mut self, forward: bool, batch: &mut RowBatch) {
        self.cursor.fill(forward, batch);
        if let Some(layout) = self.within.as_ref().map(|partition| &partition.layout) {
            batch.keep_within(&layout.start, layout.end.as_deref());
        }
    }

    /// [`ViewCursor::seek_rows`] if all of the view is in the partition.
    #[inline]
    pub fn seek_rows(&mut self, key: &[u8], batch: &mut RowBatch) -> Result<bool> {
        if self.within.is_some() { Ok(false) } else { self.cursor.seek_rows(key, batch) }
    }

    pub fn resume(&self, batch: &mut RowBatch) {
        self.cursor.resume(batch);
    }

    pub fn sequences(&self) -> (SequenceNumber, SequenceNumber) {
        self.cursor.sequences()
    }

    pub fn go_to(&mut self, place: RowPlace) -> Result<()> {
        self.cursor.go_to(place)
    }

    pub fn is_last_with(&mut self, prefix_len: usize) -> bool {
        self.cursor.is_last_with(prefix_len)
    }

    pub fn go_past(&mut self) {
        self.cursor.go_past();
    }
}

/// Gets that one seek in an unindexed run counts as.
const GETS_PER_SEEK: u64 = 4;

const KEPT: usize = 64;

#[derive(Debug)]
pub struct PartitionConcatIter {
    version: Arc<Version>,
    snapshot: SequenceNumber,
    /// Open partition, and its index in `kept`; `None` before the first seek.
    index: usize,
    open: Option<usize>,
    has_tombstones: bool,
    kept: Vec<Kept>,
    kept_indexes: Vec<usize>,
    next_victim: usize,
}

/// An opened partition. Its cursors take a new snapshot at the next use.
#[derive(Debug)]
struct Kept {
    snapshot: SequenceNumber,
    merge: Merge<Source>,
}

#[derive(Clone, Copy)]
enum Entry<'a> {
    At(&'a [u8]),
    Before(&'a [u8]),
    First,
    Last,
}

impl PartitionConcatIter {
    pub fn new(version: Arc<Version>, snapshot: SequenceNumber) -> PartitionConcatIter {
        PartitionConcatIter {
            version,
            snapshot,
            index: 0,
            open: None,
            has_tombstones: false,
            kept: Vec::new(),
            kept_indexes: Vec::new(),
            next_victim: 0,
        }
    }

    pub fn is_over(&self, version: &Arc<Version>) -> bool {
        Arc::ptr_eq(&self.version, version)
    }

    pub fn set_snapshot(&mut self, snapshot: SequenceNumber) {
        self.leave();
        self.snapshot = snapshot;
    }

    /// Releases the open partition's blocks. The cursor becomes invalid.
    pub fn leave(&mut self) {
        if let Some(at) = self.open.take() {
            self.kept[at].merge.reset(|source| source.cursor.release());
        }
    }

    fn open(&mut self, index: usize) -> Result<()> {
        self.leave();
        let partition = &self.version.partitions[index];
        let snapshot = self.snapshot;
        let at = match self.kept_indexes.iter().position(|kept| *kept == index) {
            Some(at) => {
                let kept = &mut self.kept[at];
                if kept.snapshot != snapshot {
                    kept.merge.reset(|source| source.cursor.set_snapshot(snapshot));
                    kept.snapshot = snapshot;
                }
                at
            }
            None => {
                let opened = Kept { snapshot, merge: Merge::new(Source::all(partition, snapshot)?) };
                if self.kept.len() < KEPT {
                    self.kept.push(opened);
                    self.kept_indexes.push(index);
                    self.kept.len() - 1
                } else {
                    self.next_victim = (self.next_victim + 1) % KEPT;
                    self.kept[self.next_victim] = opened;
                    self.kept_indexes[self.next_victim] = index;
                    self.next_victim
                }
            }
        };
        self.index = index;
        self.open = Some(at);
        self.has_tombstones = partition.tombstones.is_some();
        Ok(())
    }

    #[inline]
    fn enter(&mut self, index: usize, entry: Entry<'_>) -> Result<()> {
        if self.index != index || self.open.is_none() {
            self.open(index)?;
        }
        if let Entry::At(key) | Entry::Before(key) = entry {
            self.count_seek(key);
        }
        let Some(merge) = self.merge_mut() else { return Ok(()) };
        match entry {
            Entry::At(key) => merge.seek(key),
            Entry::Before(key) => merge.seek_before(key),
            Entry::First => merge.seek_first(),
            Entry::Last => merge.seek_last(),
        }
    }

    #[inline]
    fn count_seek(&self, key: &[u8]) {
        let apart = &self.version.partitions[self.index].apart;
        if !apart.is_empty() && is_counted(hash64(key)) {
            apart.iter().for_each(|handle| handle.note_read(GETS_PER_SEEK));
        }
    }

    #[inline]
    fn merge(&self) -> Option<&Merge<Source>> {
        self.open.map(|at| &self.kept[at].merge)
    }

    #[inline]
    fn merge_mut(&mut self) -> Option<&mut Merge<Source>> {
        self.open.map(|at| &mut self.kept[at].merge)
    }

    #[inline]
    fn is_open_valid(&self) -> bool {
        self.merge().is_some_and(Merge::valid)
    }

    #[inline]
    fn is_deleted(&self) -> bool {
        let Some(merge) = self.merge() else { return false };
        let entry = merge.entry();
        entry.kind == EntryKind::Tombstone
            || self.has_tombstones
                && self.version.partitions[self.index].newest_covering(entry.key, self.snapshot) > entry.sequence
    }

    #[inline]
    fn settle_forward(&mut self) -> Result<()> {
        loop {
            if !self.is_open_valid() {
                if self.index + 1 >= self.version.partitions.len() {
                    return Ok(());
                }
                self.enter(self.index + 1, Entry::First)?;
            } else if self.is_deleted() {
                if let Some(merge) = self.merge_mut() {
                    merge.next()?;
                }
            } else {
                return Ok(());
            }
        }
    }

    #[inline]
    fn settle_backward(&mut self) -> Result<()> {
        loop {
            if !self.is_open_valid() {
                if self.index == 0 {
                    return Ok(());
                }
                self.enter(self.index - 1, Entry::Last)?;
            } else if self.is_deleted() {
                if let Some(merge) = self.merge_mut() {
                    merge.prev()?;
                }
            } else {
                return Ok(());
            }
        }
    }
}

/// Row batches. Range tombstones of runs require row by row reads.
impl PartitionConcatIter {
    /// Seeks in one pass, if the key's partition has one source, and decodes following rows if the
    /// batch expects them. True if the cursor is on a row; on false its position is undefined.
    #[inline]
    pub fn seek_rows(&mut self, key: &[u8], batch: &mut RowBatch) -> Result<bool> {
        let index = self.version.find(key);
        if self.index != index || self.open.is_none() {
            self.open(index)?;
        }
        let is_there = match self.open {
            Some(at) if !self.has_tombstones => self.kept[at].merge.seek_only(|source| source.seek_rows(key, batch))?,
            _ => false,
        };
        if is_there {
            self.count_seek(key);
        }
        Ok(is_there)
    }

    pub fn first_two(&mut self, forward: bool) -> Option<(&mut Source, Option<&Source>)> {
        if self.has_tombstones {
            return None;
        }
        self.merge_mut()?.first_two(forward)
    }

    pub fn is_plain(&self) -> bool {
        self.open.is_some() && !self.has_tombstones
    }

    pub fn sources(&mut self) -> &mut [Source] {
        self.merge_mut().map(|merge| merge.sources().0).unwrap_or_default()
    }

    pub fn bounds(&self) -> (&[u8], Option<&[u8]>) {
        let layout = &self.version.partitions[self.index].layout;
        (&layout.start, layout.end.as_deref())
    }

    pub fn restore(&mut self, forward: bool) -> Result<()> {
        if let Some(merge) = self.merge_mut() {
            merge.restore();
        }
        if forward { self.settle_forward() } else { self.settle_backward() }
    }
}

impl Cursor for PartitionConcatIter {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.enter(self.version.find(key), Entry::At(key))?;
        self.settle_forward()
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.enter(self.version.find(key), Entry::Before(key))?;
        self.settle_backward()
    }

    fn seek_first(&mut self) -> Result<()> {
        self.enter(0, Entry::First)?;
        self.settle_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        self.enter(self.version.partitions.len() - 1, Entry::Last)?;
        self.settle_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if let Some(merge) = self.merge_mut() {
            merge.next()?;
        }
        self.settle_forward()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if let Some(merge) = self.merge_mut() {
            merge.prev()?;
        }
        self.settle_backward()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.is_open_valid()
    }

    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        match self.merge() {
            Some(merge) => merge.entry(),
            None => unreachable!("precondition: the cursor is valid"),
        }
    }
}
