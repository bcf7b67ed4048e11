//! The partitions as one cursor: the oldest source of a scan.
//!
//! One partition is open at a time: its view and each run that is read apart. Nothing is older than this source, so
//! deleted keys are left out here already, whether a tombstone or a range tombstone of a run deletes them.

use super::Merge;
use crate::{
    base::{Cursor, EntryKind, EntryRef, Result, SequenceNumber},
    version::{Partition, Version},
    view::ViewCursor,
};
use std::sync::Arc;

/// A cursor over a view that may reach outside the partition (a run shared with others) and is then held within.
#[derive(Debug)]
struct Source {
    cursor: ViewCursor,
    within: Option<Arc<Partition>>,
}

impl Source {
    fn all(partition: &Arc<Partition>, snapshot: SequenceNumber) -> Result<Vec<Source>> {
        let mut sources = Vec::with_capacity(partition.apart.len() + 1);
        if let Some(view) = &partition.view {
            let cursor = ViewCursor::new(Arc::clone(view), Arc::clone(&partition.view_runs), snapshot);
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

    fn next(&mut self) -> Result<()> {
        self.cursor.next()
    }

    fn prev(&mut self) -> Result<()> {
        self.cursor.prev()
    }

    fn valid(&self) -> bool {
        self.cursor.valid()
            && self.within.as_ref().is_none_or(|partition| {
                let (key, layout) = (self.cursor.key(), &partition.layout);
                layout.start.as_slice() <= key && layout.end.as_deref().is_none_or(|end| key < end)
            })
    }

    fn entry(&self) -> EntryRef<'_> {
        self.cursor.entry()
    }
}

/// All partitions of a version, shown as one cursor over keys that are not deleted.
#[derive(Debug)]
pub struct PartitionChain {
    version: Arc<Version>,
    snapshot: SequenceNumber,
    index: usize,
    open: Option<Merge<Source>>,
}

/// How to enter a partition.
#[derive(Clone, Copy)]
enum Entry<'a> {
    At(&'a [u8]),
    Before(&'a [u8]),
    First,
    Last,
}

impl PartitionChain {
    /// A cursor over all runs of `version`, at `snapshot`.
    pub fn new(version: Arc<Version>, snapshot: SequenceNumber) -> PartitionChain {
        PartitionChain { version, snapshot, index: 0, open: None }
    }

    fn enter(&mut self, index: usize, entry: Entry<'_>) -> Result<()> {
        if self.index != index || self.open.is_none() {
            self.open = None;
            let partition = &self.version.partitions[index];
            self.open = Some(Merge::new(Source::all(partition, self.snapshot)?));
            self.index = index;
        }
        let Some(merge) = &mut self.open else { return Ok(()) };
        match entry {
            Entry::At(key) => merge.seek(key),
            Entry::Before(key) => merge.seek_before(key),
            Entry::First => merge.seek_first(),
            Entry::Last => merge.seek_last(),
        }
    }

    fn is_open_valid(&self) -> bool {
        self.open.as_ref().is_some_and(Merge::valid)
    }

    fn is_deleted(&self) -> bool {
        let Some(merge) = &self.open else { return false };
        let entry = merge.entry();
        entry.kind == EntryKind::Tombstone
            || self.version.partitions[self.index].newest_covering(entry.key, self.snapshot) > entry.sequence
    }

    /// Goes on to the first key that is not deleted, into later partitions if need be.
    fn settle_forward(&mut self) -> Result<()> {
        loop {
            if !self.is_open_valid() {
                if self.index + 1 >= self.version.partitions.len() {
                    return Ok(());
                }
                self.enter(self.index + 1, Entry::First)?;
            } else if self.is_deleted() {
                if let Some(merge) = &mut self.open {
                    merge.next()?;
                }
            } else {
                return Ok(());
            }
        }
    }

    fn settle_backward(&mut self) -> Result<()> {
        loop {
            if !self.is_open_valid() {
                if self.index == 0 {
                    return Ok(());
                }
                self.enter(self.index - 1, Entry::Last)?;
            } else if self.is_deleted() {
                if let Some(merge) = &mut self.open {
                    merge.prev()?;
                }
            } else {
                return Ok(());
            }
        }
    }
}

impl Cursor for PartitionChain {
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

    fn next(&mut self) -> Result<()> {
        if let Some(merge) = &mut self.open {
            merge.next()?;
        }
        self.settle_forward()
    }

    fn prev(&mut self) -> Result<()> {
        if let Some(merge) = &mut self.open {
            merge.prev()?;
        }
        self.settle_backward()
    }

    fn valid(&self) -> bool {
        self.is_open_valid()
    }

    fn entry(&self) -> EntryRef<'_> {
        match &self.open {
            Some(merge) => merge.entry(),
            None => unreachable!("precondition: the cursor is valid"),
        }
    }
}
