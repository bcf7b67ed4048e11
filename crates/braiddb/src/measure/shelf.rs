//! Runs of rows in memory, their view, and what a plain merge needs of them.
//!
//! The view comes to be as in a database: it begins as the oldest run's own, and each newer run is folded in. Where a run
//! would have more blocks than a run may have, the keyspace is cut into parts of equal width, each with runs and a view of its
//! own, as a database is into partitions; the plain merge gets the same parts.

use super::{
    data::{self, KEY_LEN, Key, Layout, VALUE_LEN},
    plain_run::PlainRun,
};
use crate::{
    base::{EntryKind, EntryRef, Error, Result},
    cache::BlockCache,
    codec::Compression,
    platform::{MemVfs, Vfs},
    table::{Run, RunOptions, TableContext},
    view::{Bounds, PAGE_BYTES, SortedRunWriter, View, fold_view},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// More rows would not fit into the blocks of one run.
const RUN_ROWS_MAX: u64 = 1_500_000;

/// One part of the keyspace.
pub(super) struct Part {
    pub(super) runs: Arc<[Arc<Run>]>,
    pub(super) view: Arc<View>,
    pub(super) plain: Vec<PlainRun>,
}

/// All parts, and what they should answer.
pub(super) struct Shelf {
    /// Of the runs' blocks.
    pub(super) blocks: Arc<BlockCache>,
    /// Of the views' pages: apart from the blocks, so that each can be counted by itself.
    pub(super) pages: Arc<BlockCache>,
    pub(super) starts: Vec<Key>,
    pub(super) parts: Vec<Part>,
    /// All keys in order, each with its row.
    pub(super) truth: Vec<(Key, u64)>,
}

impl Shelf {
    /// Builds `runs` runs of so many rows together, and folds them into views.
    pub(super) fn build(rows: u64, layout: Layout, runs: usize) -> Result<Shelf> {
        Shelf::cut(rows, layout, runs, RUN_ROWS_MAX)
    }

    /// The same with no run of more rows than `run_rows_max`, about.
    pub(super) fn cut(rows: u64, layout: Layout, runs: usize, run_rows_max: u64) -> Result<Shelf> {
        let vfs = MemVfs::new();
        let dir = Path::new("/shelf");
        vfs.create_dir_all(dir).map_err(|error| Error::io("create", dir, error))?;
        let vfs: Arc<dyn Vfs> = Arc::new(vfs);
        let [blocks, pages] = [(); 2].map(|()| BlockCache::new(cache_bytes(rows)));
        let [of_runs, of_views] = [&blocks, &pages].map(|cache| TableContext::new(Arc::clone(&vfs), Arc::clone(cache)));
        let borders = layout.borders(rows, runs);
        let largest = borders.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        let count = largest.div_ceil(run_rows_max).max(1) as usize;
        let starts: Vec<Key> = (0..count).map(|part| data::border(part, count)).collect();

        let mut files = Files { of_runs, of_views, last: 0 };
        let mut runs_of: Vec<Vec<Arc<Run>>> = vec![Vec::new(); count];
        for pair in borders.windows(2) {
            let sorted = sorted_rows(pair[0]..pair[1]);
            for (part, of_part) in runs_of.iter_mut().enumerate() {
                let from = sorted.partition_point(|(key, _)| *key < starts[part]);
                let to = starts.get(part + 1).map_or(sorted.len(), |end| sorted.partition_point(|(key, _)| key < end));
                of_part.push(files.write_run(&sorted[from..to])?);
            }
        }
        let parts = runs_of.into_iter().map(|runs| files.fold(runs)).collect::<Result<_>>()?;
        Ok(Shelf { blocks, pages, starts, parts, truth: sorted_rows(0..rows) })
    }

    /// Throws all blocks of runs out of the cache.
    pub(super) fn forget_blocks(&self) {
        self.blocks.set_capacity(0);
        self.blocks.set_capacity(cache_bytes(self.truth.len() as u64));
    }

    /// Bytes of memory that the views take: what stays there, and their pages in the cache.
    pub(super) fn view_bytes(&self) -> u64 {
        let of_part = |part: &Part| {
            let pages = part.view.layout.pages(part.view.meta().segments) as usize;
            (part.view.resident_bytes() + pages * PAGE_BYTES) as u64
        };
        self.parts.iter().map(of_part).sum()
    }

    /// Bytes of the views' files, or of the run files' parts that hold them.
    pub(super) fn view_file_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.view.meta().file_bytes).sum()
    }

    /// Bytes of memory that the plain merge's first keys and filters take.
    pub(super) fn plain_bytes(&self) -> u64 {
        self.parts.iter().flat_map(|part| &part.plain).map(|run| run.index_bytes() as u64).sum()
    }
}

/// Room for all blocks, or pages, and what a cache keeps beside them, so that nothing is thrown out but by [`Shelf::forget_blocks`]:
/// that counts until no thread of the process can read it any more, which other tests may put off.
fn cache_bytes(rows: u64) -> usize {
    (rows as usize + 1_000_000) * 2 * (KEY_LEN + VALUE_LEN)
}

/// Rows with their keys, by key.
fn sorted_rows(rows: std::ops::Range<u64>) -> Vec<(Key, u64)> {
    let mut sorted: Vec<(Key, u64)> = rows.map(|row| (data::key(row), row)).collect();
    sorted.sort_unstable();
    sorted
}

/// Makes files.
struct Files {
    of_runs: TableContext,
    of_views: TableContext,
    last: u64,
}

impl Files {
    fn new_file(&mut self, kind: &str) -> (PathBuf, u64) {
        self.last += 1;
        (PathBuf::from(format!("/shelf/{:06}.{kind}", self.last)), self.last)
    }

    fn write_run(&mut self, rows: &[(Key, u64)]) -> Result<Arc<Run>> {
        let (path, number) = self.new_file("run");
        let options = RunOptions { compression: Compression::None, ..RunOptions::default() };
        let mut writer = SortedRunWriter::create(&self.of_runs, &path, number, data::mix(number), &options)?;
        for (key, row) in rows {
            let value = data::value(*row);
            writer.add(EntryRef { key, sequence: row + 1, kind: EntryKind::Value, value: &value })?;
        }
        let meta = writer.finish()?;
        Run::open(&self.of_runs, &path, &meta)
    }

    fn fold(&mut self, runs: Vec<Arc<Run>>) -> Result<Part> {
        let mut view = View::open_embedded(&self.of_views, &runs[0])?;
        for count in 1..runs.len() {
            let (path, number) = self.new_file("view");
            let (old, new) = (&runs[..count], &runs[count..=count]);
            let id = data::mix(number);
            let (meta, _) = fold_view(&self.of_views, &path, number, id, &view, old, new, &Bounds::default())?;
            view.mark_obsolete();
            view = View::open(&self.of_views, &path, &meta)?;
        }
        let plain = runs.iter().map(PlainRun::new).collect::<Result<_>>()?;
        Ok(Part { runs: runs.into(), view, plain })
    }
}
