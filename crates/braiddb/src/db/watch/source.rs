//! Finds the log that a watcher reads, and resumes a watch: checks the token against incarnation,
//! visible commit and log.

use super::token::ResumeToken;
use crate::{
    base::{Error, Result, SequenceNumber},
    db::{engine::root::Engine, maintenance::flush, write::wal_bypass},
    version::Layout,
    wal::{
        ClosedLog, Gone, LogReader, Lsn, RecoveryInput, RetentionLimit, Segment, SegmentSource, Visit, end_of_epoch,
        recover,
    },
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// Maximum number of restarts because another process wrote the log.
const LOOKS_MAX: u32 = 100;

/// The log being written, or the log found by a read-only database.
#[derive(Debug)]
pub(super) struct Source {
    engine: Arc<Engine>,
    pub(super) closed: Option<ClosedLog>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceState {
    visible: SequenceNumber,
    end: Lsn,
    durable: Lsn,
    gap: SequenceNumber,
}

impl Source {
    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(super) fn state(&self) -> SourceState {
        SourceState {
            visible: self.engine.readers.snapshots.visible(),
            end: self.limit(true),
            durable: self.limit(false),
            gap: self.gap_end(),
        }
    }

    pub(super) fn new(engine: &Arc<Engine>) -> Result<Source> {
        let closed = if engine.log.wal.is_some() { None } else { Some(find_log(engine)?) };
        Ok(Source { engine: Arc::clone(engine), closed })
    }

    pub(super) fn limit(&self, is_unsynced: bool) -> Lsn {
        match (&self.engine.log.wal, &self.closed) {
            (Some(wal), _) if is_unsynced => wal.end_lsn(),
            (Some(wal), _) => wal.durable_lsn().min(wal.end_lsn()),
            (None, Some(closed)) if is_unsynced => closed.end_lsn(),
            (None, closed) => closed.as_ref().map_or(0, ClosedLog::durable_lsn),
        }
    }

    /// Creates the token of a watcher that starts after `delivered`. It must be refused if a crash takes
    /// back this commit, so everything up to it is synced first, unless the watcher is unsynced.
    pub(super) fn first_token(
        &self,
        delivered: SequenceNumber,
        reader: &LogReader,
        is_unsynced: bool,
    ) -> Result<ResumeToken> {
        let engine = &self.engine;
        let mut is_synced =
            self.limit(false) >= self.limit(true) && (self.closed.is_some() || !wal_bypass::has_unlogged(engine));
        if engine.log.wal.is_some() && !is_unsynced && !is_synced && engine.health.check_writable().is_ok() {
            let _inside = engine.health.enter()?;
            flush::make_durable(engine, delivered)?;
            is_synced = true;
        }
        let incarnation = engine.log.incarnation;
        let (epoch, lsn) = (u64::from(reader.epoch()), reader.lsn());
        if is_synced {
            return Ok(ResumeToken { incarnation, sequence: delivered, epoch, lsn, is_synced: true });
        }
        // The commit's place in the log is unknown, so the token requires the whole log.
        let last_epoch = self.with_segments(|segments, _| segments.last().map(|segment| segment.header.epoch));
        let (epoch, lsn) = (last_epoch.map_or(epoch, u64::from), self.limit(true));
        Ok(ResumeToken { incarnation, sequence: delivered, epoch, lsn, is_synced: false })
    }

    pub(super) fn gap_end(&self) -> SequenceNumber {
        self.engine.commits.unlogged.load(Ordering::Acquire).min(self.engine.storage.flushed.load(Ordering::Acquire))
    }

    pub(super) fn floor(&self) -> SequenceNumber {
        self.with_segments(|_, floor| floor)
    }

    pub(super) fn reader_after(&self, after: SequenceNumber) -> Result<LogReader> {
        LogReader::seek(self, after).map_err(|Gone { floor }| Error::WatchTooOld { after, floor })
    }

    pub(super) fn check_token(&self, token: &ResumeToken) -> Result<SequenceNumber> {
        if token.incarnation != self.engine.log.incarnation {
            return Err(Error::InvalidArgument(
                "the resume token is of another database, or of this one before it was restored: what it has not seen cannot be told; \
                 take a snapshot, and watch from its sequence number on"
                    .to_owned(),
            ));
        }
        // Checked first: after a restore from a copy, the token's epoch looks like a dropped one.
        check_reached(token.sequence, self.engine.readers.snapshots.visible())?;
        if token.is_synced {
            return Ok(token.sequence);
        }
        match end_of_epoch(self, u32::try_from(token.epoch).unwrap_or(u32::MAX)) {
            Some(end) if token.lsn <= end => Ok(token.sequence),
            Some(_) => Err(Error::InvalidArgument(
                "the resume token is of a watcher that saw commits before they were synced, and a crash has taken them back: take a \
                 snapshot, and watch from its sequence number on"
                    .to_owned(),
            )),
            None => Err(Error::WatchTooOld { after: token.sequence, floor: self.floor() }),
        }
    }
}

pub(super) fn check_reached(commit: SequenceNumber, last: SequenceNumber) -> Result<()> {
    if commit <= last {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "the watch is to begin after commit {commit}, but the last commit of the database is {last}: a crash has \
         taken back commits that were not synced, the database was put back to an earlier state, or the number or resume token \
         is from another copy of it; take a snapshot, and watch from its sequence \
         number on"
    )))
}

impl SegmentSource for Source {
    fn with_segments<R>(&self, visit: impl FnOnce(&mut dyn Iterator<Item = &Arc<Segment>>, SequenceNumber) -> R) -> R {
        match (&self.engine.log.wal, &self.closed) {
            (Some(wal), _) => wal.with_segments(visit),
            (None, Some(closed)) => closed.with_segments(visit),
            (None, None) => visit(&mut std::iter::empty(), SequenceNumber::MAX),
        }
    }
}

/// Finds the log of a read-only database. If a writer in another process reuses segments that
/// the manifest names, the search restarts with the newer manifest.
fn find_log(engine: &Engine) -> Result<ClosedLog> {
    let mut manifest = engine.storage.disk.lock().manifest.clone();
    let started_ns = engine.settings.runtime.monotonic_ns();
    let mut tries = 0;
    loop {
        tries += 1;
        match find_log_by(engine, manifest.layout()) {
            Err(e) if e.is_corruption() && manifest.has_gone_on()? => {
                if tries > LOOKS_MAX {
                    let took_ns = engine.settings.runtime.monotonic_ns().saturating_sub(started_ns);
                    return Err(Error::too_busy(&engine.dir, tries, Duration::from_nanos(took_ns), e));
                }
                tracing::debug!(error = %e, "the log was written anew while it was read, and is read again");
            }
            found => return found,
        }
        let newer = manifest.reopen()?;
        manifest =
            newer.filter(|newer| newer.layout().incarnation == engine.log.incarnation).ok_or(Error::Superseded)?;
    }
}

fn find_log_by(engine: &Engine, layout: &Layout) -> Result<ClosedLog> {
    let input = RecoveryInput {
        oldest_segment: (layout.oldest_segment > 0).then_some(layout.oldest_segment),
        durable_lsn: layout.durable_lsn,
        flushed: layout.flushed,
        is_to_sync: false,
    };
    let mut outcome = recover(&*engine.storage.table.vfs, &engine.dir, &input, &mut |_, _| Ok(Visit::Taken))?;
    let whatever_there_is = RetentionLimit { bytes: u64::MAX, ..RetentionLimit::default() };
    outcome.retain(whatever_there_is, |_| Ok(0))?;
    Ok(outcome.into_closed_log())
}
