//! Decides which files of a damaged database count.
//!
//! With an intact manifest, the runs that it names count, each within its partitions. Other runs
//! are inputs of a finished merge or outputs of an unfinished one. If edits are lost, unnamed runs
//! count too. Without a manifest, every run counts. Sequence numbers order versions, so counting a
//! run twice is harmless, but a deleted record may return if a merge dropped its tombstone.

use super::{
    losses::{Losses, Oracle, Shadow, loss, lost_key},
    report::{Loss, LossKind, ManifestCondition},
};
use crate::{
    base::{Error, FileNumber, RangeTombstone, Result, SequenceNumber},
    platform::Vfs,
    table::{Damage, DamagedRun, Opened, RunMeta, Step, TableContext},
    version::{CURRENT_NAME, DamagedManifest, Layout, manifest_name, read_damaged_current, read_damaged_manifest},
    view::View,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

pub type KeyRange = (Vec<u8>, Option<Vec<u8>>);

#[derive(Clone, Debug)]
pub struct PlannedRun {
    pub path: PathBuf,
    pub number: FileNumber,
    pub listed: Option<RunMeta>,
    /// Key ranges in which the run counts, sorted and disjoint. `None`: everywhere.
    pub allowed: Option<Vec<KeyRange>>,
    pub smallest: Vec<u8>,
    /// Sequence number of all entries if they store none.
    pub given: SequenceNumber,
}

pub struct Plan {
    pub condition: ManifestCondition,
    pub layout: Layout,
    pub runs: Vec<PlannedRun>,
    pub range_tombstones: Vec<RangeTombstone>,
    pub last_sequence: SequenceNumber,
    pub notes: Vec<String>,
    pub files: u64,
    pub file_bytes: u64,
}

#[derive(Default)]
struct Files {
    runs: BTreeSet<FileNumber>,
    manifests: BTreeSet<FileNumber>,
    has_current: bool,
    count: u64,
    bytes: u64,
}

impl Files {
    fn list(vfs: &dyn Vfs, dir: &Path) -> Result<Files> {
        let entries = vfs.list(dir).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::NotFound(format!("there is no directory {}", dir.display())),
            _ => Error::io("list", dir, e),
        })?;
        let mut files = Files::default();
        for entry in entries {
            let is_ours = match numbered(&entry.name) {
                Some((number, "run")) => files.runs.insert(number),
                Some((number, "manifest")) => files.manifests.insert(number),
                Some(_) => true,
                None => entry.name == CURRENT_NAME,
            };
            files.has_current |= entry.name == CURRENT_NAME;
            files.count += u64::from(is_ours);
            files.bytes += if is_ours { entry.len } else { 0 };
        }
        if files.count == 0 {
            let detail = format!("there is nothing of a database in {}", dir.display());
            return Err(Error::NotFound(detail));
        }
        Ok(files)
    }
}

fn numbered(name: &str) -> Option<(FileNumber, &str)> {
    if let Some(number) = name.strip_prefix("MANIFEST-") {
        return Some((number.parse().ok()?, "manifest"));
    }
    let (stem, extension) = name.rsplit_once('.')?;
    let is_known = matches!(extension, "wal" | "run" | "view" | "blob");
    Some((stem.parse().ok().filter(|_| is_known)?, extension))
}

fn run_path(dir: &Path, number: FileNumber) -> PathBuf {
    dir.join(format!("{number:06}.run"))
}

pub fn plan(context: &TableContext, dir: &Path, losses: &mut Losses) -> Result<Plan> {
    let files = Files::list(&*context.vfs, dir)?;
    let mut plan = Plan {
        condition: ManifestCondition::Missing,
        layout: Layout::default(),
        runs: Vec::new(),
        range_tombstones: Vec::new(),
        last_sequence: 0,
        notes: Vec::new(),
        files: files.count,
        file_bytes: files.bytes,
    };
    let manifest = find_manifest(context, dir, &files, &mut plan, losses)?;
    let mut planner = Planner { context, dir, plan, losses, unnumbered: Vec::new(), missing: Vec::new() };
    if let Some(manifest) = manifest {
        let unnamed: Vec<FileNumber> = unnamed(&manifest.layout, &files).collect();
        planner.take_manifest(manifest, &unnamed)?;
    }
    match planner.plan.condition {
        ManifestCondition::Whole => {
            for number in unnamed(&planner.plan.layout, &files) {
                planner.plan.notes.push(format!("{number:06}.run does not count: the manifest does not name it"));
            }
        }
        condition => {
            let unnamed: Vec<FileNumber> = unnamed(&planner.plan.layout, &files).collect();
            planner.take_unnamed(&unnamed, condition)?;
        }
    }
    Ok(planner.plan)
}

fn unnamed<'a>(layout: &'a Layout, files: &'a Files) -> impl Iterator<Item = FileNumber> + use<'a> {
    let named: BTreeSet<FileNumber> =
        layout.partitions.values().flat_map(|p| p.runs.iter().chain(&p.loose)).copied().collect();
    files.runs.iter().copied().filter(move |number| !named.contains(number))
}

fn find_manifest(
    context: &TableContext,
    dir: &Path,
    files: &Files,
    plan: &mut Plan,
    losses: &mut Losses,
) -> Result<Option<DamagedManifest>> {
    let vfs = &*context.vfs;
    let uncertain = |path: PathBuf, detail: String| loss(LossKind::Uncertain, path, detail);
    match read_damaged_current(vfs, dir) {
        Ok(slot) => match read_damaged_manifest(vfs, dir, slot.manifest, Some(slot.manifest_len))? {
            Ok(manifest) => return Ok(Some(manifest)),
            Err(detail) => {
                let detail = format!("CURRENT names this manifest, and nothing of it can be read: {detail}");
                losses.add(uncertain(dir.join(manifest_name(slot.manifest)), detail));
            }
        },
        // Alone this loses nothing if there is one intact manifest.
        Err(detail) => plan.notes.push(format!("CURRENT cannot be read: {detail}")),
    }
    let mut best: Option<(usize, DamagedManifest)> = None;
    for &number in files.manifests.iter().rev() {
        let Ok(manifest) = read_damaged_manifest(vfs, dir, number, None)? else { continue };
        // If two databases share the directory, the manifest with the most existing runs counts.
        let is_there = |meta: &&RunMeta| {
            let opened = DamagedRun::open(context, &run_path(dir, meta.number), meta.number, Some(*meta));
            matches!(opened, Ok(Opened::Run(_)))
        };
        let there = manifest.layout.runs.values().filter(is_there).count();
        if manifest.edits > 0 && best.as_ref().is_none_or(|(most, _)| there > *most) {
            best = Some((there, manifest));
        }
    }
    if best.is_none() && !(files.runs.is_empty() && files.manifests.is_empty() && !files.has_current) {
        let path = files.manifests.last().map_or_else(|| dir.to_owned(), |number| dir.join(manifest_name(*number)));
        losses.add(uncertain(path, "no manifest can be read: what was deleted or replaced may be back".to_owned()));
    }
    Ok(best.map(|(_, manifest)| manifest))
}

struct Planner<'a> {
    context: &'a TableContext,
    dir: &'a Path,
    plan: Plan,
    losses: &'a mut Losses,
    unnumbered: Vec<usize>,
    missing: Vec<FileNumber>,
}

impl Planner<'_> {
    fn take_manifest(&mut self, manifest: DamagedManifest, unnamed: &[FileNumber]) -> Result<()> {
        let names = |number: &FileNumber| format!("{number:06}.run");
        let is_there = |number: &FileNumber| self.context.vfs.open(&run_path(self.dir, *number), OPEN).is_ok();
        let is_cover = manifest.layout.check_cover().is_ok();
        // With CURRENT, nothing follows the manifest's end; without it, the existing files must
        // match.
        let is_last = manifest.is_named
            || (unnamed.is_empty() && manifest.layout.runs.keys().all(is_there) && !manifest.has_rest);
        let is_whole = manifest.gaps.is_empty() && is_cover && is_last;
        self.plan.condition = if is_whole { ManifestCondition::Whole } else { ManifestCondition::Partial };
        if let Some(place) = manifest.repaired {
            let path = manifest.path.display();
            self.plan.notes.push(format!("{path}: byte {place} of the header is damaged, and was put right"));
        }
        for (range, detail) in &manifest.gaps {
            let detail = format!("{detail}: runs that they name are taken as far as they are found");
            let uncertain = loss(LossKind::Uncertain, &manifest.path, detail);
            self.losses.add(Loss { offset: Some(range.start), bytes: Some(range.end - range.start), ..uncertain });
        }
        if !is_whole && manifest.gaps.is_empty() {
            let runs: Vec<String> = unnamed.iter().take(8).map(names).collect();
            let detail = format!("its last edits may be missing: it does not name {}", runs.join(", "));
            self.losses.add(loss(LossKind::Uncertain, &manifest.path, detail));
        }
        self.plan.layout = manifest.layout;
        let layout = &self.plan.layout;
        self.plan.last_sequence = layout.last_sequence.max(layout.flushed);
        let mut allowed: BTreeMap<FileNumber, Vec<KeyRange>> = BTreeMap::new();
        for partition in layout.partitions.values() {
            for run in partition.runs.iter().chain(&partition.loose) {
                allowed.entry(*run).or_default().push((partition.start.clone(), partition.end.clone()));
            }
        }
        for (number, ranges) in allowed {
            let listed = self.plan.layout.runs.get(&number).cloned();
            // If edits are lost, runs may count in other partitions too.
            let allowed = if is_whole { Some(joined(ranges)) } else { None };
            self.take_run(number, listed, allowed, true)?;
        }
        Ok(())
    }

    fn take_unnamed(&mut self, unnamed: &[FileNumber], condition: ManifestCondition) -> Result<()> {
        for &number in unnamed {
            self.take_run(number, None, None, false)?;
        }
        // A load comes after earlier flushes and before later ones.
        for place in std::mem::take(&mut self.unnumbered) {
            let number = self.plan.runs[place].number;
            let before = self.plan.runs.iter().filter(|run| run.number < number);
            let known = before.map(|run| run.listed.as_ref().map_or(0, |meta| meta.max_sequence).max(run.given));
            let given = known.max().unwrap_or(0) + 1;
            self.plan.runs[place].given = given;
            self.plan.last_sequence = self.plan.last_sequence.max(given);
            let run = &self.plan.runs[place];
            let detail = "it belongs to a load, and no readable file shows whether and when that was committed: \
                          its records are taken for older than what was written since";
            let uncertain = loss(LossKind::Uncertain, &run.path, detail);
            let (from, to) =
                run.listed.as_ref().map_or((None, None), |meta| (lost_key(&meta.smallest), lost_key(&meta.largest)));
            self.losses.add(Loss { from, to, records: run.listed.as_ref().map(|meta| meta.entries), ..uncertain });
        }
        if condition == ManifestCondition::Missing {
            return Ok(());
        }
        for number in std::mem::take(&mut self.missing) {
            let detail = "the manifest names this run, and it is missing: a merge that a lost edit records may have \
                          taken it in";
            self.losses.add(loss(LossKind::Uncertain, run_path(self.dir, number), detail));
        }
        Ok(())
    }

    fn take_run(
        &mut self,
        number: FileNumber,
        listed: Option<RunMeta>,
        allowed: Option<Vec<KeyRange>>,
        is_named: bool,
    ) -> Result<()> {
        let path = run_path(self.dir, number);
        let damage = match DamagedRun::open(self.context, &path, number, listed.as_ref())? {
            Opened::Run(run) => return self.take_open(*run, number, listed, allowed),
            Opened::Missing => Damage { offset: 0, detail: "the file is missing".to_owned() },
            Opened::Foreign => {
                Damage { offset: 0, detail: "the file has another id: it is not of this database".to_owned() }
            }
            Opened::Unreadable(damage) => damage,
        };
        if !is_named {
            let what = loss(LossKind::Records, path, damage.detail);
            self.losses.add(Loss { offset: Some(damage.offset), ..what });
            return Ok(());
        }
        if self.plan.condition == ManifestCondition::Partial && damage.detail == "the file is missing" {
            self.missing.push(number);
            return Ok(());
        }
        let everywhere = || vec![(Vec::new(), None)];
        self.lose_run(number, listed.as_ref(), &allowed.unwrap_or_else(everywhere), &damage);
        Ok(())
    }

    fn lose_run(&mut self, number: FileNumber, listed: Option<&RunMeta>, allowed: &[KeyRange], damage: &Damage) {
        let path = run_path(self.dir, number);
        let Some(meta) = listed else {
            let what = loss(LossKind::Records, path, damage.detail.clone());
            self.losses.add(what);
            return;
        };
        for (start, end) in within(allowed, &meta.smallest, Some(&meta.largest)) {
            let what = loss(LossKind::Records, &path, damage.detail.clone());
            self.losses.add(Loss {
                offset: Some(damage.offset),
                from: lost_key(&start),
                to: end.as_deref().and_then(lost_key),
                commits: Some((meta.min_sequence, meta.max_sequence)),
                records: (allowed.len() == 1).then_some(meta.entries),
                ..what
            });
            let oracle = self.oracle_of(number, &start, meta);
            self.losses.cast(Shadow {
                start,
                is_start_known: false,
                end,
                max_sequence: meta.max_sequence,
                oracle,
                path: path.clone(),
            });
        }
    }

    fn oracle_of(&self, number: FileNumber, key: &[u8], meta: &RunMeta) -> Option<Oracle> {
        let holds = |p: &&crate::version::PartitionLayout| {
            p.start.as_slice() <= key && p.end.as_deref().is_none_or(|end| key < end)
        };
        let partition = self.plan.layout.partitions.values().find(holds)?;
        let place = partition.runs.iter().position(|run| *run == number)?;
        let view = partition.view.as_ref().filter(|_| meta.range_tombstones == 0)?;
        let path = self.dir.join(format!("{:06}.view", view.number));
        let view = View::open(self.context, &path, view).ok()?;
        Some(Oracle::Run(view, place))
    }

    fn take_open(
        &mut self,
        mut run: DamagedRun,
        number: FileNumber,
        listed: Option<RunMeta>,
        allowed: Option<Vec<KeyRange>>,
    ) -> Result<()> {
        let path = run.path().to_owned();
        let meta = run.meta().cloned();
        if let Some(place) = run.repaired() {
            self.plan
                .notes
                .push(format!("{}: byte {place} of the header is damaged, and was put right", path.display()));
        }
        if let Some(damage) = run.tail_damage() {
            let Damage { offset, detail } = damage;
            self.plan.notes.push(format!(
                "{}: {detail} (at byte {offset}): its blocks were looked for one by one",
                path.display()
            ));
        }
        let everywhere = [(Vec::new(), None)];
        let ranges = allowed.as_deref().unwrap_or(&everywhere);
        for tombstone in run.range_tombstones().iter() {
            for (start, end) in clip(ranges, &tombstone.start, &tombstone.end) {
                self.plan.range_tombstones.push(RangeTombstone { start, end, sequence: tombstone.sequence });
            }
        }
        if let Some(damage) = run.tombstones_lost() {
            self.lose_tombstones(&path, damage, meta.as_ref(), ranges);
        }
        let of_run = match meta.as_ref().or(listed.as_ref()) {
            Some(meta) => meta.max_sequence,
            None => highest_sequence(&mut run),
        };
        self.plan.last_sequence = self.plan.last_sequence.max(of_run);
        let first = ranges.first().map_or(&[][..], |(start, _)| start);
        let smallest = meta.as_ref().map_or(&[][..], |meta| meta.smallest.as_slice()).max(first).to_vec();
        let given = listed.as_ref().filter(|_| run.is_unnumbered()).map_or(0, |listed| listed.max_sequence);
        if run.is_unnumbered() && given == 0 {
            self.unnumbered.push(self.plan.runs.len());
        }
        let listed = listed.or(meta);
        self.plan.runs.push(PlannedRun { path, number, listed, allowed, smallest, given });
        Ok(())
    }

    fn lose_tombstones(&mut self, path: &Path, damage: &Damage, meta: Option<&RunMeta>, ranges: &[KeyRange]) {
        let what = loss(LossKind::Deletes, path, damage.detail.clone());
        let what = Loss { offset: Some(damage.offset), ..what };
        let Some(meta) = meta else {
            self.losses.add(what);
            return;
        };
        for (start, end) in within(ranges, &meta.smallest, Some(&meta.largest)) {
            self.losses.add(Loss {
                from: lost_key(&start),
                to: end.as_deref().and_then(lost_key),
                commits: Some((meta.min_sequence, meta.max_sequence)),
                ..what.clone()
            });
            self.losses.cast(Shadow {
                start,
                is_start_known: false,
                end,
                max_sequence: meta.max_sequence,
                oracle: None,
                path: path.to_owned(),
            });
        }
    }
}

/// Reads all blocks, for a run without a readable tail.
fn highest_sequence(run: &mut DamagedRun) -> SequenceNumber {
    let mut highest = 0;
    loop {
        match run.step() {
            Step::End => return highest,
            Step::Lost { .. } => {}
            Step::Block => {
                let numbers = (0..run.entries()).filter_map(|slot| Some(run.entry(slot)?.sequence));
                highest = numbers.fold(highest, SequenceNumber::max);
            }
        }
    }
}

const OPEN: crate::platform::OpenMode = crate::platform::OpenMode::Read;

fn joined(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.sort();
    let mut joined: Vec<KeyRange> = Vec::new();
    for (start, end) in ranges {
        match joined.last_mut() {
            Some((_, last)) if last.as_ref().is_none_or(|last| *last >= start) => {
                let is_longer = last.is_some() && (end.is_none() || end > *last);
                if is_longer {
                    *last = end;
                }
            }
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// The end of a part is an upper bound, possibly exclusive.
pub fn within(ranges: &[KeyRange], first: &[u8], last: Option<&[u8]>) -> Vec<KeyRange> {
    let mut parts = Vec::new();
    for (start, end) in ranges {
        let is_before = end.as_deref().is_some_and(|end| end <= first);
        if is_before || last.is_some_and(|last| start.as_slice() > last) {
            continue;
        }
        let to = match (end.as_deref(), last) {
            (Some(end), Some(last)) => Some(end.min(last)),
            (end, last) => end.or(last),
        };
        parts.push((start.as_slice().max(first).to_vec(), to.map(<[u8]>::to_vec)));
    }
    parts
}

fn clip(ranges: &[KeyRange], start: &[u8], end: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let clipped = ranges
        .iter()
        .map(|(from, to)| (from.as_slice().max(start).to_vec(), to.as_deref().map_or(end, |to| to.min(end)).to_vec()));
    clipped.filter(|(from, to)| from < to).collect()
}
