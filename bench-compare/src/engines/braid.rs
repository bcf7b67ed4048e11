//! BraidDB with defaults, except for the memory budget and compression (off in all engines).

use super::engine::{Engine, Op, Reader, Rows, Setup, Visit};
use anyhow::{Result, bail};
use braiddb::{Builder, Compression, Cursor, Db, Durability, Tree, options::Tuning};
use std::{
    ops::ControlFlow,
    thread,
    time::{Duration, Instant},
};

const VIEW_TIME_MAX: Duration = Duration::from_secs(120);

pub struct Braid {
    db: Db,
    tree: Tree,
    durability: Durability,
    /// Reads rows by iterators and owned values instead of a kept cursor and closures.
    is_natural: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewSize {
    pub entries: u64,
    pub bytes: u64,
}

impl Braid {
    pub fn open(setup: Setup<'_>) -> Result<Braid> {
        Braid::open_with(setup, |builder| builder)
    }

    /// The same database read as most programs do: owned values, an iterator for each range.
    pub fn open_natural(setup: Setup<'_>) -> Result<Braid> {
        Ok(Braid { is_natural: true, ..Braid::open(setup)? })
    }

    /// Keeps each flushed eighth of the data as a run in one partition.
    pub fn open_unsplit(setup: Setup<'_>) -> Result<Braid> {
        let memtable_bytes = setup.data_bytes as usize / 4;
        // Space for two memtables beside a cache of all data.
        let memory = setup.budget + 2 * memtable_bytes;
        let tuning = Tuning::new().memtable_bytes(memtable_bytes).partition_bytes(1 << 40);
        let set = |builder: Builder| builder.memory(memory).tuning(tuning);
        Braid::open_with(setup, set)
    }

    fn open_with(setup: Setup<'_>, set: impl FnOnce(Builder) -> Builder) -> Result<Braid> {
        let durability = if setup.durable { Durability::Sync } else { Durability::Buffered };
        let builder = Db::builder().memory(setup.budget).durability(durability).compression(Compression::None);
        let builder = set(builder);
        let db = if setup.in_memory { builder.open_in_memory()? } else { builder.open(setup.folder.join("db"))? };
        let tree = db.tree("rows")?;
        Ok(Braid { db, tree, durability, is_natural: false })
    }

    pub fn db(&self) -> &Db {
        &self.db
    }

    pub fn cache_misses(&self) -> u64 {
        self.db.stats().cache_misses
    }

    /// Waits until the partition has a view of `runs` runs and no unindexed run.
    pub fn wait_for_view(&self, runs: usize) -> Result<ViewSize> {
        let start = Instant::now();
        loop {
            let stats = self.db.stats();
            if let [partition] = &stats.partitions[..]
                && partition.loose.is_empty()
                && partition.runs.len() == runs
                && partition.view_bytes > 0
            {
                return Ok(ViewSize { entries: partition.view_entries, bytes: partition.view_bytes });
            }
            if start.elapsed() > VIEW_TIME_MAX {
                let shapes: Vec<(usize, usize)> =
                    stats.partitions.iter().map(|partition| (partition.runs.len(), partition.loose.len())).collect();
                bail!("no view of {runs} runs; each partition's runs in the view and unindexed runs: {shapes:?}");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Engine for Braid {
    fn write(&self, ops: &[Op<'_>]) -> Result<()> {
        if let [Op { key, value: Some(value) }] = ops {
            self.tree.put(key, value)?;
            return Ok(());
        }
        let mut batch = self.db.batch();
        for op in ops {
            match op.value {
                Some(value) => batch.put(&self.tree, op.key, value),
                None => batch.delete(&self.tree, op.key),
            };
        }
        batch.commit_with(self.durability)?;
        Ok(())
    }

    fn load_sorted(&self, rows: &mut dyn Rows) -> Result<()> {
        let mut loader = self.tree.bulk_loader()?;
        while let Some((key, value)) = rows.next() {
            loader.add(key, value)?;
        }
        loader.finish()?;
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        if self.is_natural {
            return Ok(Box::new(NaturalReader { tree: &self.tree }));
        }
        Ok(Box::new(BraidReader { tree: &self.tree, cursor: None, is_stale: false }))
    }

    fn pop_first(&self, found: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool> {
        let row = self.tree.pop_first()?;
        row.iter().for_each(|(key, value)| found(key, value));
        Ok(row.is_some())
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn unindexed_runs_max(&self) -> Option<usize> {
        self.db.stats().partitions.iter().map(|partition| partition.loose.len()).max()
    }

    fn replayed(&self) -> Option<u64> {
        Some(self.db.stats().recovered_records)
    }
}

/// Gets read the latest state. The cursor is kept and refreshed before its next use.
struct BraidReader<'a> {
    tree: &'a Tree,
    cursor: Option<Cursor>,
    is_stale: bool,
}

impl BraidReader<'_> {
    fn cursor(&mut self) -> &mut Cursor {
        let is_stale = std::mem::replace(&mut self.is_stale, false);
        if let Some(cursor) = self.cursor.as_mut().filter(|_| is_stale) {
            cursor.refresh();
        }
        self.cursor.get_or_insert_with(|| self.tree.cursor())
    }
}

impl Reader for BraidReader<'_> {
    fn refresh(&mut self) -> Result<()> {
        self.is_stale = true;
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.tree.get_with(key, found)?.is_some())
    }

    fn multi_get(&mut self, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let show = |index: usize, value: Option<&[u8]>| value.into_iter().for_each(|value| found(index, value));
        Ok(self.tree.multi_get_with(keys, show)?)
    }

    fn scan(&mut self, from: &[u8], visit: Visit<'_>) -> Result<()> {
        let cursor = self.cursor();
        if cursor.seek(from)? {
            let _ = cursor.try_for_each(|key, value| go_on_if(visit(key, value)))?;
        }
        Ok(())
    }

    fn scan_back(&mut self, visit: Visit<'_>) -> Result<()> {
        let cursor = self.cursor();
        if cursor.seek_last()? {
            let _ = cursor.try_for_each_back(|key, value| go_on_if(visit(key, value)))?;
        }
        Ok(())
    }
}

struct NaturalReader<'a> {
    tree: &'a Tree,
}

impl Reader for NaturalReader<'_> {
    /// Each call reads the latest state.
    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.tree.get(key)?;
        value.iter().for_each(|value| found(value));
        Ok(value.is_some())
    }

    fn multi_get(&mut self, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let values = self.tree.multi_get(keys)?;
        values.iter().enumerate().for_each(|(index, value)| value.iter().for_each(|value| found(index, value)));
        Ok(())
    }

    fn scan(&mut self, from: &[u8], visit: Visit<'_>) -> Result<()> {
        for row in self.tree.range(from..) {
            let (key, value) = row?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn scan_back(&mut self, visit: Visit<'_>) -> Result<()> {
        for row in self.tree.iter().rev() {
            let (key, value) = row?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn scan_prefix(&mut self, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
        for row in self.tree.prefix(prefix) {
            let (key, value) = row?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }
}

fn go_on_if(is_wanted: bool) -> ControlFlow<()> {
    if is_wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}
