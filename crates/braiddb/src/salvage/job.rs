//! Runs a salvage.

use super::{
    log::{part_path, read_log},
    losses::{Losses, loss, lost_key},
    merge::{Merge, Record},
    plan::plan,
    report::{Loss, LossKind, ManifestCondition, SalvageReport},
    target::{Target, empty_layout},
};
use crate::{
    base::{Content, EntryKind, Error, RangeTombstoneSet, Result, TreeId, split_internal_key},
    cache::BlockCache,
    db::{DumpedCatalog, LOCK_NAME, NewDirectory, Operation, RESTORING_NAME, Settings},
    platform::OpenMode,
    table::TableContext,
};
use std::{collections::BTreeMap, fmt, path::Path};

const CACHE_BYTES: usize = 8 << 20;

/// Divisor: log operations spill to files beyond a quarter of the memory.
const LOG_PART: usize = 4;

const TARGET_MEMORY_MIN: usize = 16 << 20;

const KEYS_PER_TELL: u64 = 4096;

/// Progress of a salvage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageProgress {
    /// Entries read, counting all versions.
    pub entries: u64,
    /// Records written.
    pub records: u64,
    /// Total bytes of all files to read.
    pub file_bytes: u64,
}

/// Options of a salvage.
#[derive(Default)]
#[non_exhaustive]
pub struct SalvageOptions<'a> {
    /// Keeps, rather than leaves out, records of which a newer version may be lost. The report
    /// lists them either way.
    pub keep_stale: bool,
    /// Ignores the log after the first lost commit: the result is the state at that commit, as far
    /// as the log goes. By default every intact commit is taken.
    pub stop_at_gap: bool,
    /// Called from time to time with the progress.
    pub progress: Option<&'a mut dyn FnMut(SalvageProgress)>,
}

impl<'a> SalvageOptions<'a> {
    /// Returns the default options.
    pub fn new() -> SalvageOptions<'a> {
        SalvageOptions::default()
    }

    /// If true, keeps records of which a newer version may be lost.
    pub fn keep_stale(mut self, keep: bool) -> SalvageOptions<'a> {
        self.keep_stale = keep;
        self
    }

    /// If true, ignores the log after the first lost commit.
    pub fn stop_at_gap(mut self, stop: bool) -> SalvageOptions<'a> {
        self.stop_at_gap = stop;
        self
    }

    /// Sets a function that is called from time to time.
    pub fn progress(mut self, report: &'a mut dyn FnMut(SalvageProgress)) -> SalvageOptions<'a> {
        self.progress = Some(report);
        self
    }
}

impl fmt::Debug for SalvageOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SalvageOptions")
            .field("keep_stale", &self.keep_stale)
            .field("stop_at_gap", &self.stop_at_gap)
            .finish_non_exhaustive()
    }
}

/// See [`crate::Builder::salvage`].
pub fn salvage(settings: Settings, from: &Path, to: &Path, options: SalvageOptions<'_>) -> Result<SalvageReport> {
    refuse(&settings, from, to)?;
    let context = TableContext {
        runtime: settings.runtime.clone(),
        in_place: false,
        ..TableContext::new(settings.vfs.clone(), BlockCache::new(CACHE_BYTES))
    };
    let mut losses = Losses::default();
    let plan = plan(&context, from, &mut losses)?;
    let mut new = NewDirectory::begin(&settings.vfs, &settings.runtime, to)?;
    new.mark_unfinished(Operation::Salvage)?;
    let job = Job { settings: &settings, context, from, to, options, losses, plan };
    let done = job.run(&mut new).and_then(|report| {
        new.mark_finished()?;
        Ok(report)
    });
    match done {
        Ok(_) => new.keep(),
        Err(_) => new.answer_for_all()?,
    }
    done
}

/// Refuses nested directories and, as far as visible without writing, an open database.
fn refuse(settings: &Settings, from: &Path, to: &Path) -> Result<()> {
    let lock = from.join(LOCK_NAME);
    if let Some(owner) = settings.vfs.lock_owner(&lock).unwrap_or_default() {
        return Err(Error::Locked { path: from.to_owned(), owner });
    }
    if to.starts_with(from) || from.starts_with(to) {
        let (from, to) = (from.display(), to.display());
        let detail =
            format!("the new database {to} and the damaged one {from} lie in one another: name another directory");
        return Err(Error::InvalidArgument(detail));
    }
    Ok(())
}

struct Job<'a, 'o> {
    settings: &'a Settings,
    context: TableContext,
    from: &'a Path,
    to: &'a Path,
    options: SalvageOptions<'o>,
    losses: Losses,
    plan: super::plan::Plan,
}

impl Job<'_, '_> {
    fn run(mut self, new: &mut NewDirectory) -> Result<SalvageReport> {
        if self.settings.vfs.open(&self.from.join(RESTORING_NAME), OpenMode::Read).is_ok() {
            let detail = "a restore, a load or a salvage into this directory was not finished: it holds a part of what it was to hold";
            self.losses.add(loss(LossKind::Uncertain, self.from.join(RESTORING_NAME), detail));
        }
        let memory = self.settings.memory / LOG_PART;
        let stop_at_gap = self.options.stop_at_gap;
        let directories = (self.from, self.to);
        let log = read_log(&self.context, directories, &mut self.plan, memory, stop_at_gap, &mut self.losses)?;
        let parts = log.runs.len();
        let sequence = self.plan.last_sequence.max(log.last_sequence).max(1);
        let committed_us = log.last_commit_us.saturating_add(self.plan.layout.time_ahead_us);
        let is_logged = log.last_commit_us > 0;
        let time_us = self.plan.layout.time_us.max(if is_logged { committed_us } else { 0 });
        let tombstones = std::mem::take(&mut self.plan.range_tombstones);
        let tombstones = RangeTombstoneSet::new(tombstones.into_iter().chain(log.range_tombstones).collect());
        let of_runs = self.plan.runs.iter().filter_map(|run| Some(run.listed.as_ref()?.max_sequence.max(run.given)));
        let is_sure = self.plan.condition == ManifestCondition::Whole;
        let unsure = of_runs.max().filter(|_| !is_sure).map(|sequence| (sequence, self.from.to_owned()));
        let runs = self.plan.runs.iter().cloned().chain(log.runs).collect();
        let keep_stale = self.options.keep_stale;
        let mut merge = Merge::new(self.context.clone(), runs, log.entries, tombstones, time_us, keep_stale, unsure);
        let catalog = self.catalog(&mut merge)?;
        let layout = empty_layout(&self.plan.layout, sequence, time_us);
        let half = (self.settings.memory / 2).max(TARGET_MEMORY_MIN).min(self.settings.memory);
        let settings = Settings { memory: half, ..self.settings.clone() };
        let mut target = Target::begin(&settings, new, directories, &self.context, &layout, &catalog)?;
        self.fill(&mut merge, &mut target)?;
        let names = target.names();
        let trees = target.finish(&mut self.losses)?;
        drop(merge);
        for number in 0..parts {
            let path = part_path(self.to, number);
            self.settings.vfs.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
        }
        let names: BTreeMap<u32, String> = trees.iter().map(|tree| (tree.id, tree.name.clone())).chain(names).collect();
        let (losses, losses_left_out) = self.losses.finish(&names);
        Ok(SalvageReport {
            sequence,
            records: trees.iter().map(|tree| tree.records).sum(),
            bytes: trees.iter().map(|tree| tree.bytes).sum(),
            trees,
            manifest: self.plan.condition,
            losses,
            losses_left_out,
            notes: self.plan.notes,
            files: self.plan.files,
            file_bytes: self.plan.file_bytes,
        })
    }

    fn catalog(&mut self, merge: &mut Merge) -> Result<DumpedCatalog> {
        let mut catalog = DumpedCatalog { next_tree: 1, ..DumpedCatalog::default() };
        let mut named: BTreeMap<u32, Record> = BTreeMap::new();
        let is_catalog = |key: &[u8]| split_internal_key(key).is_some_and(|(tree, _)| tree == TreeId::CATALOG);
        while merge.peek(&mut self.losses)?.is_some_and(is_catalog) {
            let Some(Some(record)) = merge.take(&mut self.losses)? else { continue };
            let user_key = record.key.get(4..).unwrap_or_default();
            let Some((&tag, name)) = user_key.split_first() else { continue };
            let content = Content::of(record.kind, &record.value).filter(|content| content.kind == EntryKind::Value);
            let understood = match (content, tag) {
                (None, _) => None,
                (Some(content), b'n') => tree_of(name, content.value).map(|id| {
                    // The newest name of a renamed tree counts.
                    let is_newer = named.get(&id).is_none_or(|known| known.sequence < record.sequence);
                    if is_newer {
                        named.insert(id, record.clone());
                    }
                }),
                (Some(content), tag) => catalog.add_other(tag, name, content.value),
            };
            if understood.is_none() {
                let key = lost_key(&record.key);
                let detail = "an entry of the list of trees cannot be understood";
                let lost = loss(LossKind::Value, self.from, detail);
                self.losses.add(Loss { from: key.clone(), to: key, records: Some(1), ..lost });
            }
        }
        for record in named.values() {
            catalog.add_tree(record.key.get(5..).unwrap_or_default(), &record.value);
        }
        let used = catalog.trees.last().map_or(1, |tree| tree.id.saturating_add(1));
        catalog.next_tree = catalog.next_tree.max(used);
        let functions = std::mem::take(&mut catalog.functions);
        for (name, number) in functions {
            if catalog.functions.iter().all(|(_, other)| *other != number) {
                catalog.functions.push((name, number));
            }
        }
        Ok(catalog)
    }

    fn fill(&mut self, merge: &mut Merge, target: &mut Target<'_>) -> Result<()> {
        // The catalog lost nothing, so a tree that it does not name was dropped.
        let is_catalog_sure =
            self.plan.condition == ManifestCondition::Whole && !self.losses.is_any_below(&[0, 0, 0, 1]);
        let mut keys = 0_u64;
        while let Some(record) = merge.take(&mut self.losses)? {
            keys += 1;
            if keys.is_multiple_of(KEYS_PER_TELL)
                && let Some(report) = &mut self.options.progress
            {
                let file_bytes = self.plan.file_bytes;
                report(SalvageProgress { entries: merge.entries, records: target.records, file_bytes });
            }
            let Some(record) = record else { continue };
            let tree = split_internal_key(&record.key).map_or(0, |(tree, _)| tree.0);
            if is_catalog_sure && !target.has(tree) {
                continue;
            }
            target.take(record, &mut self.losses)?;
        }
        Ok(())
    }
}

fn tree_of(name: &[u8], value: &[u8]) -> Option<u32> {
    let mut only = DumpedCatalog::default();
    only.add_tree(name, value)?;
    only.trees.first().map(|tree| tree.id)
}
