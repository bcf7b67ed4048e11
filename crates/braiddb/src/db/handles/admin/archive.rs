//! The log archive, as the database's user sees it.

use crate::{
    base::{Error, Result, SequenceNumber},
    commit::PreparedBatch,
    db::{
        engine::parts::commits::Request,
        files::archive_gaps::{self, ArchiveGap},
        handles::database::Db,
    },
    txn::Validation,
};
use std::sync::atomic::Ordering;

impl Db {
    /// Has the [archive](crate::Builder::log_archive) hold every commit up to now; it does by itself only when a segment of the log is
    /// full, and when the database is closed. Returns the last one. The log goes on in another segment. `InvalidArgument` if no log archive
    /// is kept.
    ///
    /// [`Error::ArchiveGap`] if commits are missing that no call has returned since the opening: the database was written by an
    /// open without the archive, or commits did not go through the log. All other commits were archived then, and the next call
    /// returns the last one; but no restore from a backup before the gap passes over it. Take a new full backup.
    pub fn archive_now(&self) -> Result<SequenceNumber> {
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        engine.health.check_writable()?;
        let (Some(archiver), Some(wal)) = (&engine.log.archiver, &engine.log.wal) else {
            return Err(Error::InvalidArgument("no log archive is kept: open with Builder::log_archive".to_owned()));
        };
        // All before it are in the log.
        let visible = engine.readers.snapshots.visible();
        engine.tell_of_refused()?;
        wal.go_on()?;
        engine.archive_finished()?;
        engine.archive_up_to(visible)?;
        let gap = archiver.unreported.lock().pop();
        if let Some(gap) = gap {
            // The newest gap covers the others: a backup behind it is behind them all.
            archiver.unreported.lock().clear();
            return Err(gap.to_error(&archiver.dir, gap.first.saturating_sub(1)));
        }
        Ok(visible.max(archiver.archived.load(Ordering::Acquire)))
    }

    /// The random number of the database's life: its incarnation, which backups name ([`crate::BackupInfo::incarnation`]). A restored,
    /// loaded or checkpointed database begins a life of its own.
    pub fn incarnation(&self) -> u64 {
        self.engine().log.incarnation
    }

    /// Lists the gaps that are noted in the [archive](crate::Builder::log_archive), oldest first: commits that it lacks. A backup of
    /// the last one's last commit, or of a later commit, can be restored to every commit that is archived after it.
    /// `InvalidArgument` if no log archive is kept.
    pub fn archive_gaps(&self) -> Result<Vec<ArchiveGap>> {
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        let Some(archiver) = &engine.log.archiver else {
            return Err(Error::InvalidArgument("no log archive is kept: open with Builder::log_archive".to_owned()));
        };
        archive_gaps::list(&*archiver.vfs, &archiver.dir)
    }

    /// Commits what a log tells of, under the numbers that it had there.
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
        engine.try_commit_group(&mut write, &mut group, drops)?;
        drop(write);
        if engine.settings.background_threads == 0 {
            engine.run_inline();
        }
        Ok(())
    }

    /// Lets go of the blob files that were held while the database was restored, as far as nothing refers to them.
    pub(crate) fn release_held_blobs(&self) {
        let held = std::mem::take(&mut *self.engine().storage.held_blobs.lock());
        self.engine()
            .storage
            .blobs
            .settle(&held.into_iter().collect::<Vec<_>>(), Some(self.engine().readers.snapshots.visible()));
    }
}
