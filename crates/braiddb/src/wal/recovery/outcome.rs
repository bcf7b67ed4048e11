//! The result of a recovery: the log's end, its segments, and how a new epoch (use of the log)
//! continues it.

use super::super::{
    format::{Epoch, Lsn},
    reader::{ClosedLog, floor_of},
    retention::{RetentionLimit, find_retained},
    segment::{Segment, SegmentInfo, WalStart},
    tail::Tail,
};
use super::SeenFiles;
use crate::{
    base::{Error, FileNumber, Result, SequenceNumber},
    platform::File,
};
use std::{fmt, io, path::PathBuf, sync::Arc};

const REWRITE_LEN: usize = 256 << 10;

pub struct RecoveryOutcome {
    pub end_lsn: Lsn,
    /// How far the log is known to have been durable; never past its end.
    pub durable_lsn: Lsn,
    /// New commits get higher numbers, perhaps those of discarded records: see `db::version_tags`.
    pub last_sequence: SequenceNumber,
    pub next_epoch: Epoch,
    pub segments: Vec<SegmentInfo>,
    /// To be removed once the new epoch has begun.
    pub unneeded: Vec<FileNumber>,
    /// New files get higher numbers.
    pub highest_file_number: FileNumber,
    pub tail_note: Option<String>,
    pub cut_tail: Option<CutTail>,
    /// The log is absent, or ends with the mark of a clean close
    /// ([`super::super::Wal::note_closed`]): all commits were synced before it, and a torn record
    /// past the end is not the log's.
    pub is_closed_cleanly: bool,
    /// Bytes past the end may have been a record: one interrupted by a crash, or an acknowledged
    /// one that was damaged, or in a recycled segment one of an earlier use.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests distinguish it from a clean end"))]
    pub ambiguous_tail: bool,
    pub tail: Option<Tail>,
    /// Upper bound on the sequence numbers before the first segment.
    pub begins_after: SequenceNumber,
    pub is_stopped: bool,
    pub(super) files: SeenFiles,
    pub(super) start: WalStart,
}

/// Bytes cut off at the log's end: a torn or damaged record, or one whose values are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutTail {
    pub number: FileNumber,
    pub path: PathBuf,
    pub offset: u64,
    pub len: u64,
    pub detail: String,
    pub last_commit: SequenceNumber,
}

impl fmt::Display for CutTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CutTail { path, offset, len, detail, last_commit, .. } = self;
        let path = path.display();
        write!(f, "torn or damaged tail of the log: {path} at offset {offset}, {len} bytes: {detail}; ")?;
        write!(f, "the last commit before it is {last_commit}")
    }
}

impl fmt::Debug for RecoveryOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecoveryOutcome")
            .field("end_lsn", &self.end_lsn)
            .field("last_sequence", &self.last_sequence)
            .field("next_epoch", &self.next_epoch)
            .field("segments", &self.segments)
            .field("unneeded", &self.unneeded)
            .field("tail_note", &self.tail_note)
            .finish_non_exhaustive()
    }
}

impl RecoveryOutcome {
    pub(super) fn with_files(self, files: SeenFiles) -> RecoveryOutcome {
        RecoveryOutcome { files, ..self }
    }

    /// Finds segments to retain within a limit. `keep_from` gets all segments in log order and
    /// returns the number of the oldest to leave out. Returns the floor of the retained ones.
    pub fn retain(
        &mut self,
        limit: RetentionLimit,
        keep_from: impl FnOnce(&[Arc<Segment>]) -> Result<usize>,
    ) -> Result<SequenceNumber> {
        self.start.retention = limit;
        let Some(oldest) = self.start.older.first() else { return Ok(self.start.floor) };
        let mut held: Vec<Arc<Segment>> = find_retained(&self.files, &oldest.header, limit)?.into();
        let retained = held.len();
        held.extend(self.start.older.iter().cloned());
        let skipped = if limit.is_on() { keep_from(&held)?.min(retained) } else { 0 };
        held.drain(..skipped);
        let floor = floor_of(&held)?;
        self.start.floor = floor.unwrap_or(self.start.previous_sequence);
        held.truncate(retained - skipped);
        self.unneeded.retain(|number| held.iter().all(|segment| segment.header.number != *number));
        self.start.retained = held.into();
        Ok(self.start.floor)
    }

    pub fn into_closed_log(self) -> ClosedLog {
        let segments = self.start.retained.into_iter().chain(self.start.older).collect();
        let (end_lsn, durable_lsn) = (self.end_lsn, self.durable_lsn.min(self.end_lsn));
        ClosedLog { segments, floor: self.start.floor, end_lsn, durable_lsn }
    }

    /// Makes all replayed records durable; only then may they be served. `rewrite` writes them
    /// again first: after a failed sync, the system may take pages for clean that never reached the
    /// disk.
    pub fn sync_replayed(self, rewrite: bool) -> Result<WalStart> {
        for segment in &self.start.older {
            if rewrite {
                let end = segment.end_lsn().saturating_sub(segment.header.start_lsn).min(segment.header.len);
                rewrite_in_place(&*segment.file(), end).map_err(|e| Error::io("rewrite", &segment.path, e))?;
            }
            segment.file().sync_data().map_err(|e| Error::io("sync", &segment.path, e))?;
        }
        Ok(self.start)
    }
}

fn rewrite_in_place(file: &dyn File, end: u64) -> io::Result<()> {
    let mut buffer = vec![0; REWRITE_LEN];
    let mut at = 0;
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(REWRITE_LEN);
        let chunk = buffer.get_mut(..len).unwrap_or_default();
        file.read_exact_at(chunk, at)?;
        file.write_at(chunk, at)?;
        at += len as u64;
    }
    Ok(())
}
