//! Backups, checkpoints, dumps and restores hold the state at their creation or at the requested
//! commit.

use super::{
    boundaries::Source,
    outcome::{Outcome, Said},
    settings::{ARCHIVE, BACKUPS, COPIES},
    steps::CopyStep,
    world::World,
};
use braiddb::{
    Builder, Compression,
    backup::{DirectoryTarget, RestorePoint},
    dump::{DumpOptions, LoadOptions},
    platform::Vfs,
};
use std::sync::Arc;

#[derive(Default)]
pub struct Copies {
    /// Number and commit of each.
    backups: Vec<(u64, u64)>,
    /// Directory and commit of each.
    checkpoints: Vec<(String, u64)>,
    made: u64,
}

impl World<'_> {
    fn target(&self) -> Outcome<DirectoryTarget> {
        let vfs: Arc<dyn Vfs> = self.disk.clone();
        DirectoryTarget::open_in(vfs, BACKUPS).said("a target")
    }

    fn new_directory(&mut self) -> String {
        self.copies.made += 1;
        format!("{COPIES}/{}", self.copies.made)
    }

    fn builder_of_copy(&self) -> Builder {
        self.settings.plain_builder(&self.disk, &self.new_runtime()).create(false)
    }

    pub fn copy(&mut self, step: &CopyStep) -> Outcome {
        match step {
            CopyStep::Backup => {
                let info = self.db().backup(&self.target()?).said("backup")?;
                ensure!(info.sequence >= self.last(), "a backup up to {}, not {}", info.sequence, self.last());
                self.copies.backups.push((info.id, self.last()));
                self.durable = self.last();
            }
            CopyStep::Restore { which } => {
                let Some((id, sequence)) = pick(&self.copies.backups, usize::from(*which)) else { return Ok(()) };
                let dir = self.new_directory();
                self.builder_of_copy().restore(&self.target()?, Some(id), &dir).said("restore")?;
                self.check_copy(&dir, sequence).map_err(|text| format!("{text}, in backup {id}"))?;
                self.seen.restored.add(1);
            }
            CopyStep::RestoreTo { which } => self.restore_to(usize::from(*which))?,
            CopyStep::Checkpoint => {
                let dir = self.new_directory();
                let sequence = self.db().checkpoint(&dir).said("checkpoint")?;
                ensure!(sequence >= self.last(), "a checkpoint up to {sequence}, not {}", self.last());
                self.copies.checkpoints.push((dir, self.last()));
                self.durable = self.last();
            }
            CopyStep::Dump { is_packed, flipped } => self.dump(*is_packed, *flipped)?,
            CopyStep::OpenCheckpoint { which } => {
                let found = pick(&self.copies.checkpoints, usize::from(*which));
                let Some((dir, sequence)) = found else { return Ok(()) };
                self.check_copy(&dir, sequence).map_err(|text| format!("{text}, in the checkpoint {dir}"))?;
                self.seen.checkpoints.add(1);
            }
        }
        Ok(())
    }

    fn dump(&mut self, is_packed: bool, flipped: u32) -> Outcome {
        let compression = if is_packed { Compression::Lz4 } else { Compression::None };
        let mut dump = Vec::new();
        let report = self.db().dump(&mut dump, DumpOptions::new().compression(compression)).said("dump")?;
        ensure!(report.sequence >= self.last(), "a dump up to {}, not {}", report.sequence, self.last());
        ensure!(report.dump_bytes == dump.len() as u64, "a dump of {} bytes, not {}", report.dump_bytes, dump.len());
        let load = |dir: &str, mut dump: &[u8]| {
            let builder = self.settings.plain_builder(&self.disk, &self.new_runtime());
            builder.load(dir, &mut dump, LoadOptions::default())
        };
        let (damaged_dir, dir) =
            (format!("{COPIES}/damaged {}", self.copies.made), format!("{COPIES}/dump {}", self.copies.made));
        let at = flipped as usize / 8 % dump.len();
        dump[at] ^= 1 << (flipped % 8);
        let damaged = load(&damaged_dir, &dump);
        ensure!(damaged.is_err(), "a dump with byte {at} of {} damaged was loaded: {damaged:?}", dump.len());
        ensure!(self.builder_of_copy().open(&damaged_dir).is_err(), "a damaged dump left files");
        dump[at] ^= 1 << (flipped % 8);
        let loaded = load(&dir, &dump).said("load a dump")?;
        ensure!(loaded.records == report.records, "{} of {} records were loaded", loaded.records, report.records);
        self.check_copy(&dir, self.last()).map_err(|text| format!("{text}, in a loaded dump"))?;
        self.copies.made += 1;
        self.seen.dumps.add(1);
        Ok(())
    }

    fn check_copy(&self, dir: &str, sequence: u64) -> Outcome {
        let db = self.builder_of_copy().open(dir).said("open a copy")?;
        self.check_at(&db, sequence)?;
        let report = db.verify().said("verify a copy")?;
        ensure!(report.problems.is_empty(), "verify found {:?} in a copy", report.problems);
        Ok(())
    }

    /// Exactly at the commit, or refused if the log lacks a commit after the newest earlier backup.
    fn restore_to(&mut self, which: usize) -> Outcome {
        if !self.settings.archives {
            return Ok(());
        }
        let Some((_, first)) = self.copies.backups.first().copied() else { return Ok(()) };
        // A gap is reported once.
        let archived = match self.db().archive_now() {
            Err(e) if e.is_archive_gap() => self.db().archive_now(),
            archived => archived,
        };
        let archived = archived.said("archive_now")?;
        ensure!(archived >= self.last_logged(), "archived up to {archived}, not {}", self.last_logged());
        self.durable = self.durable.max(self.last_logged());
        let after: Vec<_> = self.boundaries.iter().filter(|boundary| boundary.sequence >= first).cloned().collect();
        // An open may skip numbers, and a doubtful commit cannot be requested.
        let is_commit =
            |boundary: &&super::boundaries::Boundary| !matches!(boundary.source, Source::Open | Source::Doubtful);
        let commits: Vec<_> = after.iter().filter(is_commit).collect();
        let Some(boundary) = pick(&commits, which) else { return Ok(()) };
        let to = boundary.sequence;
        let before = self.copies.backups.iter().rev().find(|(_, sequence)| *sequence <= to);
        let from = before.map_or(first, |(_, sequence)| *sequence);
        let is_past = |other: &&super::boundaries::Boundary| {
            matches!(other.source, Source::Load | Source::Unlogged) && other.sequence > from && other.sequence <= to
        };
        let has_gap = after.iter().any(|other| is_past(&other));
        let may_jump = self.jumps.iter().any(|last| *last >= first && *last <= to);
        let dir = self.new_directory();
        match self.builder_of_copy().restore_to(&self.target()?, ARCHIVE, RestorePoint::Version(to), &dir) {
            Err(_) if has_gap || may_jump => {
                self.seen.refused_restores.add(1);
                Ok(())
            }
            restored => {
                let restored = restored.map_err(|e| format!("restore to {to} from {from}: {e} ({e:?})"))?;
                self.seen.restored_to.add(1);
                ensure!(!has_gap && restored.sequence == to, "restored to {}, not {to}", restored.sequence);
                self.check_copy(&dir, to).map_err(|text| format!("{text}, restored to {to}"))
            }
        }
    }
}

fn pick<T: Clone>(all: &[T], which: usize) -> Option<T> {
    all.get(which % all.len().max(1)).cloned()
}
