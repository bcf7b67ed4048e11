//! Log archive calls.

use crate::{
    base::{Error, Result, SequenceNumber},
    commit::PreparedBatch,
    db::{
        engine::parts::commits::Request,
        files::archive_gaps::{self, ArchiveGap},
        handles::database::Db,
        maintenance::{background, log_archive},
        write::pipeline,
    },
    txn::Validation,
};
use std::sync::atomic::Ordering;

impl Db {
    /// Archives every commit so far and returns the last one. By itself, the
    /// [archive](crate::Builder::log_archive) grows only when a log segment is full and at close.
    /// Fails with `InvalidArgument` without a log archive.
    ///
    /// Fails with [`Error::ArchiveGap`], once per gap, if commits are missing: the database was
    /// written without the archive, or commits bypassed the log. All others are archived. Earlier
    /// backups cannot be restored past the gap: take a new full backup.
    pub fn archive_now(&self) -> Result<SequenceNumber> {
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        engine.health.check_writable()?;
        let (Some(archiver), Some(wal)) = (&engine.log.archiver, &engine.log.wal) else {
            return Err(Error::InvalidArgument("no log archive is kept: open with Builder::log_archive".to_owned()));
        };
        // All earlier commits are in the log.
        let visible = engine.readers.snapshots.visible();
        pipeline::log_refused(engine)?;
        wal.begin_segment()?;
        log_archive::archive_finished(engine)?;
        log_archive::note_gap_up_to(engine, visible)?;
        let gap = archiver.unreported.lock().pop();
        if let Some(gap) = gap {
            // A backup after the newest gap is after all gaps.
            archiver.unreported.lock().clear();
            return Err(gap.to_error(&archiver.dir, gap.first.saturating_sub(1)));
        }
        Ok(visible.max(archiver.archived.load(Ordering::Acquire)))
    }

    /// Returns the random number by which backups name this database
    /// ([`crate::backup::BackupInfo::incarnation`]). Restored, loaded or checkpointed databases get a new
    /// one.
    pub fn incarnation(&self) -> u64 {
        self.engine().log.incarnation
    }

    /// Lists the gaps of the [archive](crate::Builder::log_archive), oldest first. A backup of the
    /// last missing commit, or of a later one, can be restored to every commit archived after it.
    /// Fails with `InvalidArgument` without a log archive.
    pub fn archive_gaps(&self) -> Result<Vec<ArchiveGap>> {
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        let Some(archiver) = &engine.log.archiver else {
            return Err(Error::InvalidArgument("no log archive is kept: open with Builder::log_archive".to_owned()));
        };
        archive_gaps::list(&*archiver.vfs, &archiver.dir)
    }

    pub(crate) fn apply_logged(&self, first: SequenceNumber, batches: &[&[u8]]) -> Result<()> {
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        let mut write = engine.commits.write.lock();
        if first <= write.last_sequence {
            let detail = format!("commit {first} after {}", write.last_sequence);
            return Err(Error::corruption(&engine.dir, 0, detail));
        }
        write.last_sequence = first - 1;
        let drops = engine.catalog.drops.load(Ordering::Acquire);
        let request = |batch: &&[u8]| Request {
            batch: PreparedBatch::of_log(batch),
            drops,
            is_unlogged: false,
            check: None,
            validation: Validation::Unchanged,
        };
        let mut group: Vec<Request> = batches.iter().map(request).collect();
        pipeline::try_commit_group(engine, &mut write, &mut group, drops)?;
        drop(write);
        if engine.settings.background_threads == 0 {
            background::run_inline(engine, &mut |_, _| ());
        }
        Ok(())
    }

    /// Releases unreferenced blob files that a restore retained.
    pub(crate) fn release_held_blobs(&self) {
        let held = std::mem::take(&mut *self.engine().storage.held_blobs.lock());
        self.engine()
            .storage
            .blobs
            .settle(&held.into_iter().collect::<Vec<_>>(), Some(self.engine().readers.snapshots.visible()));
    }
}
