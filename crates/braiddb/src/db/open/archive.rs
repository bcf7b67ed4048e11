//! The log archive as the source of a restore: a backup and the archive restore any later state.
//!
//! The directory of an incarnation holds its archived segments and blob files, and the noted gaps
//! (`maintenance/log_archive.rs`).

use super::new_directory::make_durably;
use crate::{
    base::{Error, FileNumber, Result, SequenceNumber},
    commit::split_group,
    db::{
        engine::{parts::archiver::Archiver, settings::Settings},
        files::archive_gaps::{self, ArchiveGap, NOT_ARCHIVED, NOT_LOGGED},
        maintenance::log_archive,
    },
    platform::{BudgetedVfs, OpenFiles, OpenMode, SystemTime, Vfs, moment_of},
    table::blob::blob_path,
    wal::{self, RecordInfo, RecoveryInput, SEGMENT_HEADER_LEN, Visit},
};
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
};

const OPEN_SEGMENTS_MAX: usize = 16;

/// The target of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestorePoint {
    /// Just after this commit.
    Version(SequenceNumber),
    /// Just before the first commit later than this, by the wall clock at commit time.
    Time(SystemTime),
    /// Just after the last archived commit.
    Latest,
}

/// Creates the archiver of incarnation `life`; `None` without an archive.
pub fn archiver(settings: &Settings, life: u64) -> Result<Option<Archiver>> {
    let Some(dir) = settings.log_archive.as_ref().filter(|_| !settings.read_only) else { return Ok(None) };
    let dir = dir.join(life_name(life));
    make_durably(&*settings.vfs, &dir)?;
    let vfs = Arc::clone(&settings.vfs);
    let archived = AtomicU64::new(0);
    let (end, unreported, known) = (Mutex::default(), Mutex::default(), Mutex::default());
    Ok(Some(Archiver { vfs, dir, end, unreported, known, archived }))
}

pub fn life_name(life: u64) -> String {
    format!("{life:016x}")
}

/// The archive of one incarnation, as the source of a restore.
#[derive(Debug)]
pub struct LogArchive {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
}

/// Receives batches with consecutive numbers, and the first number.
type Take<'a> = dyn FnMut(SequenceNumber, &[&[u8]]) -> Result<()> + 'a;

struct Walk<'a, 'b> {
    archive: &'a LogArchive,
    point: RestorePoint,
    last: SequenceNumber,
    /// Whether the next commit is known to be past the point.
    is_reached: bool,
    take: &'a mut Take<'b>,
}

impl LogArchive {
    pub fn new(vfs: &Arc<dyn Vfs>, dir: &Path, life: u64) -> LogArchive {
        LogArchive { vfs: Arc::clone(vfs), dir: dir.join(life_name(life)) }
    }

    pub fn blobs_of(batch: &[u8]) -> BTreeSet<FileNumber> {
        log_archive::blobs_of(batch)
    }

    pub fn blob_path(&self, number: FileNumber) -> PathBuf {
        blob_path(&self.dir, number)
    }

    /// Passes the batches of all commits after `from` up to the point to `take`. Returns the last
    /// commit. Fails with `ArchiveGap` if commits are missing before the point, `BackupDamaged` if
    /// the archive is damaged there.
    pub fn walk(&self, from: SequenceNumber, point: RestorePoint, take: &mut Take<'_>) -> Result<SequenceNumber> {
        if point == RestorePoint::Version(from) {
            return Ok(from);
        }
        let oldest = self.first_segment(from)?;
        let input = RecoveryInput { oldest_segment: Some(oldest), durable_lsn: 0, flushed: from, is_to_sync: false };
        let mut walk = Walk { archive: self, point, last: from, is_reached: false, take };
        // The walk opens all segments; limit the descriptors.
        let budget = OpenFiles::new(OPEN_SEGMENTS_MAX);
        let vfs = BudgetedVfs::new(Arc::clone(&self.vfs), budget, |_| true, false);
        let walked = wal::recover(&vfs, &self.dir, &input, &mut |info, payload| walk.visit(info, payload));
        match walked {
            // Ignore errors past the point: the last segment names a successor that is not
            // archived.
            _ if walk.is_reached => Ok(walk.last),
            Err(e) if !e.is_corruption() => Err(e),
            Err(e @ Error::BackupDamaged { .. }) => Err(e),
            // Also after an error: the last segment may name one that was not archived.
            walked => match self.after(walk.last, oldest)? {
                After::Nothing => match point {
                    RestorePoint::Latest => Ok(walk.last),
                    _ => Err(not_in_archive(point, walk.last)),
                },
                After::Gap(last) => Err(self.gap(walk.last, last, NOT_ARCHIVED)?),
                After::NotedGap(_) if point == RestorePoint::Latest => Ok(walk.last),
                After::NotedGap(last) => Err(self.gap(walk.last, last, NOT_ARCHIVED)?),
                After::Damage(path) => {
                    let cause = walked.err().map(|e| format!(" ({e})")).unwrap_or_default();
                    Err(self.ends(walk.last, &format!("{} is damaged{cause}", path.display())))
                }
                After::Commits => {
                    let cause = walked.err().map(|e| format!(" ({e})")).unwrap_or_default();
                    Err(self.ends(walk.last, &format!("a segment without commits is missing or damaged{cause}")))
                }
            },
        }
    }

    /// Finds how the archive goes on after commit `last`: with a record, a gap or damage. `last` is the
    /// end of a walk from segment `oldest`.
    fn after(&self, last: SequenceNumber, oldest: FileNumber) -> Result<After> {
        let mut next: Option<SequenceNumber> = None;
        let (mut damaged, mut newest) = (None, None);
        for number in log_archive::segment_numbers(&*self.vfs, &self.dir)? {
            let path = wal::segment_path(&self.dir, number);
            let mut found = None;
            let dump = wal::inspect_segment(&*self.vfs, &path, &mut |_, record| {
                if found.is_none() && record.header.flags.is_group() && record.header.last_sequence > last {
                    found = Some(record.header.first_sequence);
                }
                Ok(())
            });
            match dump {
                Ok(dump) => {
                    let place = Some((dump.header.epoch, dump.header.start_lsn));
                    let holds_end = dump.header.previous_sequence <= last && number >= oldest;
                    if (dump.remains || dump.records_beyond > 0) && holds_end && place >= newest {
                        (damaged, newest) = (Some(path), place);
                    }
                }
                Err(e) if e.is_corruption() && (number < oldest || self.is_unfinished(&path)?) => {}
                Err(e) if e.is_corruption() => damaged = Some(path),
                Err(e) => return Err(e),
            }
            next = next.into_iter().chain(found).min();
        }
        let noted = archive_gaps::list(&*self.vfs, &self.dir)?.into_iter().find(|gap| gap.last > last);
        Ok(match (damaged, next, noted) {
            // A recorded gap takes precedence over damage.
            (_, _, Some(gap)) if gap.first <= last + 1 => match next {
                Some(_) => After::Gap(gap.last),
                None => After::NotedGap(gap.last),
            },
            (Some(path), ..) => After::Damage(path),
            (None, Some(next), _) if next > last + 1 => After::Gap(next - 1),
            (None, Some(_), _) => After::Commits,
            (None, None, _) => After::Nothing,
        })
    }

    /// Returns whether a killed process left this segment unfinished: the header, written last, is
    /// zero. Any other unreadable header is damage.
    fn is_unfinished(&self, path: &Path) -> Result<bool> {
        let file = self.vfs.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
        let mut header = [0; SEGMENT_HEADER_LEN as usize];
        file.read_at(&mut header, 0).map_err(|e| Error::io("read", path, e))?;
        Ok(header.iter().all(|byte| *byte == 0))
    }

    fn gap(&self, reached: SequenceNumber, last: SequenceNumber, reason: &str) -> Result<Error> {
        let noted = archive_gaps::list(&*self.vfs, &self.dir)?;
        let noted = noted.into_iter().find(|gap| gap.first <= reached + 1 && gap.last > reached);
        let gap = match noted {
            Some(noted) => ArchiveGap { first: reached + 1, last: noted.last.max(last), ..noted },
            None => ArchiveGap { first: reached + 1, last, found: moment_of(0), reason: reason.to_owned() },
        };
        Ok(gap.to_error(&self.dir, reached))
    }

    fn ends(&self, last: SequenceNumber, detail: &str) -> Error {
        let detail = format!(
            "the log archive leads to commit {last}, which can be restored, and no further: {detail}; a backup of a later commit may lead to \
             the moment asked for"
        );
        Error::BackupDamaged { path: self.dir.clone(), detail }
    }

    /// Returns the last segment with commits up to `from + 1`; the commits after `from` are in it
    /// or after it.
    fn first_segment(&self, from: SequenceNumber) -> Result<FileNumber> {
        let numbers = log_archive::segment_numbers(&*self.vfs, &self.dir)?;
        if numbers.is_empty() {
            return Err(Error::NotFound(format!(
                "there is no log archive of the database in {}: name the directory that `braid archive` or `Builder::log_archive` was \
                 given",
                self.dir.display()
            )));
        }
        let (mut best, mut begins_after) = (None, None);
        for number in numbers {
            let path = wal::segment_path(&self.dir, number);
            match wal::first_group(&*self.vfs, &path) {
                Ok((header, first)) => {
                    let before = first.map_or(header.previous_sequence, |first| first.saturating_sub(1));
                    if before <= from {
                        best = best.max(Some((header.epoch, header.start_lsn, number)));
                    }
                    begins_after = begins_after.into_iter().chain([before]).min();
                }
                // Unfinished or damaged: the chain then shows the segment as missing.
                Err(e) if e.is_corruption() => {}
                Err(e) => return Err(e),
            }
        }
        match (best, begins_after) {
            (Some((_, _, number)), _) => Ok(number),
            (None, Some(before)) => Err(self.gap(from, before, "the archive begins after them")?),
            (None, None) => {
                let detail = "no segment of the log archive can be read".to_owned();
                Err(Error::BackupDamaged { path: self.dir.clone(), detail })
            }
        }
    }
}

enum After {
    Nothing,
    /// A gap up to this commit, then later commits.
    Gap(SequenceNumber),
    /// A gap up to this commit, then nothing.
    NotedGap(SequenceNumber),
    /// This damaged segment.
    Damage(PathBuf),
    /// A next commit that the chain of segments does not reach.
    Commits,
}

fn not_in_archive(point: RestorePoint, last: SequenceNumber) -> Error {
    let asked = match point {
        RestorePoint::Version(version) => format!("commit {version} is not in the archive"),
        _ => "no commit in the archive was made later than that moment, so what was committed before it is not known"
            .to_owned(),
    };
    Error::InvalidArgument(format!(
        "{asked}; the last is {last}: restore to that or to the latest, or archive what the database has committed since \
         (`braid archive`, `Db::archive_now`)"
    ))
}

impl Walk<'_, '_> {
    fn visit(&mut self, info: &RecordInfo, payload: &[u8]) -> Result<Visit> {
        if self.is_reached {
            return Ok(Visit::Taken);
        }
        let damaged = |detail: String| Error::BackupDamaged { path: self.archive.dir.clone(), detail };
        let next = self.last + 1;
        if info.first_sequence > next {
            return Err(self.archive.gap(self.last, info.first_sequence - 1, NOT_LOGGED)?);
        }
        let is_past = match self.point {
            RestorePoint::Version(version) => info.first_sequence > version,
            RestorePoint::Time(time) => moment_of(info.commit_time_us) > time,
            RestorePoint::Latest => false,
        };
        if is_past {
            self.is_reached = true;
            return Ok(Visit::Taken);
        }
        let batches = split_group(payload).filter(|b| info.first_sequence + b.len() as u64 - 1 == info.last_sequence);
        let batches = batches.ok_or_else(|| damaged(format!("commit {next} cannot be understood")))?;
        let end = match self.point {
            RestorePoint::Version(version) => version.min(info.last_sequence),
            RestorePoint::Time(_) | RestorePoint::Latest => info.last_sequence,
        };
        let index = |sequence: SequenceNumber| usize::try_from(sequence - info.first_sequence).unwrap_or(usize::MAX);
        (self.take)(next, &batches[index(next)..=index(end)])?;
        self.last = end;
        self.is_reached = self.point == RestorePoint::Version(end);
        Ok(Visit::Taken)
    }
}
