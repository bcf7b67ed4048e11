//! Estimates, split points, clips, and tables: exported, built, ingested.

use super::{
    boundaries::Source,
    outcome::{Outcome, Said},
    settings::TABLES,
    steps::{RangeStep, key, sized_value},
    world::World,
};
use braiddb::{
    Error,
    bulk::{TableBuilder, TableInfo},
    platform::Vfs,
};
use braiddb_sim::model::{Bounds, Bytes, Change, TreeNumber, short};
use std::{
    collections::BTreeSet,
    ops::{Bound, RangeBounds},
    path::Path,
    sync::Arc,
};

/// Maximum error of an estimate, in keys per run.
const OFF_BY_A_RUN: u64 = 80;

#[derive(Clone)]
pub struct Exported {
    pub number: TreeNumber,
    tables: Vec<TableInfo>,
    rows: Vec<Row>,
}

/// Key, value, and expiry in microseconds since 1970.
type Row = (Bytes, Bytes, Option<u64>);

impl World<'_> {
    pub fn range(&mut self, step: &RangeStep) -> Outcome {
        match step {
            RangeStep::Estimate { tree, bounds, parts } => self.estimate(*tree, &bounds.bounds(), usize::from(*parts)),
            RangeStep::Clip { tree, bounds } => self.clip(*tree, bounds.bounds()),
            RangeStep::Export { tree, bounds } => self.export(*tree, bounds.bounds()),
            RangeStep::Ingest { tree, which } => self.ingest_exported(*tree, usize::from(*which)),
            RangeStep::Build { tree, keys, size, tables } => self.build(*tree, keys, *size, usize::from(*tables)),
        }
    }

    fn estimate(&self, tree: usize, bounds: &Bounds, parts: usize) -> Outcome {
        let (handle, number) = (&self.trees[tree], self.numbers[tree]);
        let runs = self.runs();
        let slack = OFF_BY_A_RUN * runs;
        let estimate = handle.approximate(bounds.clone()).said("approximate")?;
        let versions = self.model.versions(number, bounds) as u64;
        ensure!(estimate.keys <= versions + slack, "{estimate:?} of {versions} versions, in {runs} runs");
        let points = handle.split_points(bounds.clone(), parts).said("split_points")?;
        ensure!(points.len() < parts, "{} points for {parts} parts", points.len());
        ensure!(points.is_sorted() && points.windows(2).all(|two| two[0] != two[1]), "points out of order");
        self.seen.split_points.add(points.len() as u64);
        let first = match &bounds.0 {
            Bound::Included(first) | Bound::Excluded(first) => first.as_slice(),
            Bound::Unbounded => &[],
        };
        let upto: Bounds = (Bound::Unbounded, bounds.1.clone());
        let outside = points.iter().find(|point| point.as_slice() < first || !upto.contains(*point));
        ensure!(outside.is_none(), "the point {:?} of {bounds:?}", outside.map(|point| short(point)));
        Ok(())
    }

    pub fn check_estimates(&self) -> Outcome {
        let runs = self.runs();
        for (tree, number) in self.trees.iter().zip(self.numbers) {
            let everything = (Bound::Unbounded, Bound::Unbounded);
            let keys = self.model.range(number, &everything, u64::MAX).len() as u64;
            let estimate = tree.approximate(..).said("approximate")?;
            ensure!(estimate.keys.abs_diff(keys) <= OFF_BY_A_RUN * runs, "{estimate:?} of {keys} keys in {runs} runs");
        }
        Ok(())
    }

    fn runs(&self) -> u64 {
        let partitions = self.db().stats().partitions;
        partitions.iter().map(|partition| (partition.runs.len() + partition.loose.len()) as u64).sum()
    }

    fn clip(&mut self, tree: usize, bounds: Bounds) -> Outcome {
        let number = self.numbers[tree];
        let everything = (Bound::Unbounded, Bound::Unbounded);
        let all = self.model.range(number, &everything, u64::MAX);
        let kept: BTreeSet<Bytes> =
            self.model.range(number, &bounds, u64::MAX).into_iter().map(|(key, _)| key).collect();
        let sequence = self.trees[tree].clip(bounds).said("clip")?;
        let gone = all.into_iter().filter(|(key, _)| !kept.contains(key));
        let changes: Vec<Change> = gone.map(|(key, _)| Change::Delete(number, key)).collect();
        if changes.is_empty() && sequence <= self.model.last_sequence() {
            return Ok(());
        }
        self.commit(Ok(sequence), &changes)
    }

    fn export(&mut self, tree: usize, bounds: Bounds) -> Outcome {
        self.tag += 1;
        let number = self.numbers[tree];
        let dir = format!("{TABLES}/{}", self.tag);
        self.disk.create_dir_all(Path::new(&dir)).map_err(|e| format!("create {dir}: {e}"))?;
        self.disk.sync_dir(Path::new(TABLES)).map_err(|e| format!("sync: {e}"))?;
        let rows = self.model.range_with_ends(number, &bounds);
        let tables = match self.trees[tree].export_tables(bounds, &dir) {
            Err(Error::InvalidArgument(reason)) if reason.contains("above a value that expires") => return Ok(()),
            tables => tables.said("export_tables")?,
        };
        let records: u64 = tables.iter().map(|table| table.records).sum();
        ensure!(records == rows.len() as u64, "{records} records were exported, not {}", rows.len());
        if let (Some(first), Some(last)) = (tables.first(), tables.last()) {
            ensure!(Some(&first.first_key) == rows.first().map(|row| &row.0), "the first key of tables");
            ensure!(Some(&last.last_key) == rows.last().map(|row| &row.0), "the last key of tables");
            self.exported.push(Exported { number, tables, rows });
        }
        Ok(())
    }

    fn ingest_exported(&mut self, tree: usize, which: usize) -> Outcome {
        let Some(exported) = self.exported.get(which % self.exported.len().max(1)).cloned() else { return Ok(()) };
        let paths = exported.tables.iter().map(|table| &table.path);
        let loaded = self.trees[tree].ingest(paths);
        if exported.number != self.numbers[tree] {
            let is_refused = matches!(loaded, Err(Error::InvalidArgument(_)));
            ensure!(is_refused, "tables of another tree were ingested");
            return Ok(());
        }
        self.note_ingest(tree, loaded, exported.rows)
    }

    fn build(&mut self, tree: usize, numbers: &[u8], size: u8, tables: usize) -> Outcome {
        let keys: BTreeSet<Bytes> = numbers.iter().map(|number| key(*number)).collect();
        let mut rows = Vec::new();
        for key in keys {
            self.tag += 1;
            rows.push((key, sized_value(size.wrapping_add(self.tag as u8 % 3), self.tag), None));
        }
        let spec = self.trees[tree].table_spec().said("table_spec")?;
        let mut paths = Vec::new();
        for (at, part) in rows.chunks(rows.len().div_ceil(tables)).enumerate() {
            let path = format!("{TABLES}/{} {at}.table", self.tag);
            let vfs: Arc<dyn Vfs> = self.disk.clone();
            let table = TableBuilder::create_in(vfs, self.new_runtime(), Path::new(&path), &spec);
            let mut table = table.said("a table builder")?;
            for (key, value, _) in part {
                table.add(key, value).said("add to a table")?;
            }
            let info = table.finish().said("finish a table")?;
            ensure!(info.records == part.len() as u64, "{info:?} of {} records", part.len());
            paths.push(path);
        }
        paths.reverse();
        let loaded = self.trees[tree].ingest(&paths);
        for path in paths {
            self.disk.remove(Path::new(&path)).map_err(|e| format!("remove {path}: {e}"))?;
        }
        self.note_ingest(tree, loaded, rows)
    }

    fn note_ingest(&mut self, tree: usize, loaded: Result<braiddb::bulk::Loaded, Error>, rows: Vec<Row>) -> Outcome {
        let loaded = loaded.said("ingest")?;
        self.seen.tables.add(1);
        ensure!(loaded.records == rows.len() as u64, "{} records were ingested, not {}", loaded.records, rows.len());
        let number = self.numbers[tree];
        let change = |(key, value, end): Row| match end {
            Some(expires_us) => Change::PutUntil(number, key, value, expires_us),
            None => Change::Put(number, key, value),
        };
        let changes: Vec<Change> = rows.into_iter().map(change).collect();
        self.commit_by(Ok(loaded.sequence), &changes, Source::Load)
    }
}
