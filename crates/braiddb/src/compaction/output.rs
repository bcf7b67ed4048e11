//! Writes filtered entries into runs, and cuts runs that grow too large.
//!
//! Runs are cut between keys. If one key's versions exceed the spare room, the run is cut among
//! them. That costs only speed: readers distinguish versions by sequence number, and runs by
//! inclusive key range.

use super::{JobContext, filter::HeldTombstones};
use crate::{
    base::{EntryKind, EntryRef, RangeTombstone, Result, TreeId, limits, split_internal_key},
    table::{
        RunMeta, RunOptions,
        blob::{map_references, visit_references},
    },
    view::SortedRunWriter,
};

/// Kept free for further versions of a run's last key.
const SPARE_BLOCKS: u32 = 8192;

const RUN_BLOCKS_MAX: u32 = limits::MAX_RUN_BLOCKS as u32 - 1;

/// Maximum blocks of runs that are merged into one.
pub const MERGED_BLOCKS_MAX: u64 = (RUN_BLOCKS_MAX - SPARE_BLOCKS) as u64;

/// Approximate maximum of each part of a split: one run.
pub const PART_BLOCKS_MAX: u32 = 40_000;

/// Blocks above which a partition is split, whatever its bytes, to limit the runs of a view.
pub const PARTITION_BLOCKS_MAX: u64 = 100_000;

const _: () = assert!(SPARE_BLOCKS < RUN_BLOCKS_MAX / 2 && PART_BLOCKS_MAX < RUN_BLOCKS_MAX - SPARE_BLOCKS);

pub struct RunOutput<'a> {
    context: &'a JobContext<'a>,
    run_options: RunOptions,
    bytes_max: u64,
    writer: Option<SortedRunWriter>,
    held: HeldTombstones,
    tree: Option<TreeId>,
    tombstones: Vec<RangeTombstone>,
    finished: Vec<RunMeta>,
}

impl<'a> RunOutput<'a> {
    pub fn new(context: &'a JobContext<'a>) -> RunOutput<'a> {
        RunOutput {
            context,
            run_options: context.run_options,
            bytes_max: context.run_bytes_max,
            writer: None,
            held: HeldTombstones::default(),
            tree: None,
            tombstones: Vec::new(),
            finished: Vec::new(),
        }
    }

    /// Gets will probe these runs one by one.
    pub fn standing_apart(mut self) -> RunOutput<'a> {
        self.run_options.has_filter = true;
        self
    }

    pub fn in_writes_of(mut self, bytes_max: usize) -> RunOutput<'a> {
        self.run_options.write_bytes = self.run_options.write_bytes.min(bytes_max);
        self
    }

    /// Does not cut runs by bytes: if the output of a merge into one run were cut, the planner
    /// would merge it again, without end.
    pub fn whole(mut self) -> RunOutput<'a> {
        self.bytes_max = u64::MAX;
        self
    }

    /// A `droppable` tombstone is written only if an older version of its key follows.
    pub fn add(&mut self, entry: &EntryRef<'_>, droppable: bool) -> Result<()> {
        if self.held.is_for_other_key(entry.key) {
            self.held.forget();
        }
        if entry.kind == EntryKind::Tombstone && droppable {
            self.held.hold(entry);
            return Ok(());
        }
        if !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            for tombstone in held.entries() {
                self.write(&tombstone)?;
            }
        }
        self.write(entry)
    }

    /// Entries that it covers and that are added later count as garbage.
    pub fn add_range_tombstone(&mut self, tombstone: RangeTombstone) {
        if let Some(writer) = &mut self.writer {
            writer.add_range_tombstone(tombstone);
            return;
        }
        match self.tombstones.last_mut() {
            Some(last) if last.sequence == tombstone.sequence && last.end == tombstone.start => {
                last.end = tombstone.end;
            }
            _ => self.tombstones.push(tombstone),
        }
    }

    /// During a split, those of the current part, except if one key's versions fill a run.
    pub fn open_bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, SortedRunWriter::estimated_bytes)
    }

    pub fn bytes(&self) -> u64 {
        self.finished.iter().map(|run| run.file_bytes).sum::<u64>() + self.open_bytes()
    }

    pub fn fills_part(&self, bytes: u64) -> bool {
        self.open_bytes() >= bytes || self.open_blocks() >= PART_BLOCKS_MAX
    }

    fn open_blocks(&self) -> u32 {
        self.writer.as_ref().map_or(0, SortedRunWriter::block_count)
    }

    fn write(&mut self, entry: &EntryRef<'_>) -> Result<()> {
        let blocks = self.open_blocks();
        let is_long = blocks + SPARE_BLOCKS >= RUN_BLOCKS_MAX || self.open_bytes() >= self.bytes_max;
        let is_same_key = |writer: &SortedRunWriter| writer.last_key() == entry.key;
        if (is_long && !self.writer.as_ref().is_some_and(is_same_key)) || blocks >= RUN_BLOCKS_MAX {
            self.finish_run()?;
        }
        let writer = open_writer(self.context, &self.run_options, &mut self.writer, &mut self.tombstones)?;
        if let Some((tree, _)) = split_internal_key(entry.key)
            && self.tree != Some(tree)
        {
            self.tree = Some(tree);
            writer.set_compression((self.context.compression_of)(tree));
        }
        let moved = match self.context.relocate {
            Some(relocate) => map_references(entry.kind, entry.value, |blob| relocate(entry.key, blob))?,
            None => None,
        };
        let entry = EntryRef { value: moved.as_deref().unwrap_or(entry.value), ..*entry };
        writer.add(entry)?;
        visit_references(entry.kind, entry.value, |blob| writer.add_blob_use(blob.file, blob.stored_len))
            .unwrap_or_else(|| {
                tracing::error!(
                    sequence = entry.sequence,
                    "an entry holds references that cannot be understood; it stays as it is"
                )
            });
        Ok(())
    }

    fn finish_run(&mut self) -> Result<()> {
        self.tree = None;
        if let Some(writer) = self.writer.take() {
            self.finished.push(writer.finish()?);
        }
        Ok(())
    }

    /// Returns the runs in key order. Syncs the files, not the directory.
    pub fn finish(mut self) -> Result<Vec<RunMeta>> {
        self.held.forget();
        if !self.tombstones.is_empty() {
            open_writer(self.context, &self.run_options, &mut self.writer, &mut self.tombstones)?;
        }
        self.finish_run()?;
        Ok(self.finished)
    }
}

fn open_writer<'w>(
    context: &JobContext<'_>,
    options: &RunOptions,
    writer: &'w mut Option<SortedRunWriter>,
    tombstones: &mut Vec<RangeTombstone>,
) -> Result<&'w mut SortedRunWriter> {
    match writer {
        Some(writer) => Ok(writer),
        empty => {
            let (number, path) = context.new_run();
            let id = (context.new_file_id)();
            let mut writer = SortedRunWriter::create(context.table, &path, number, id, options)?;
            tombstones.drain(..).for_each(|tombstone| writer.add_range_tombstone(tombstone));
            Ok(empty.insert(writer))
        }
    }
}
