//! The log archive: finished log segments and the blob files that their records refer to. A backup
//! and the archive restore any later state.
//!
//! The archive has one directory per incarnation of the database, in which no file number is used
//! twice. A segment is **copied**, because its file will be recycled or removed. Blob files are
//! sealed and linked, or copied if they cannot be linked.
//!
//! **Order.** Sync the segment, archive its blob files, then copy the segment, its header last.
//! INVARIANT: an archived segment with a complete header is complete, its blob files are archived,
//! and recovery always includes it. Recovery skips a segment, and its blob files are released, only
//! once it is archived. If the archive is not writable, the log grows and nothing is lost.
//!
//! **Gaps.** Commit numbers are consecutive, so missing commits show when the next ones are
//! archived: those of a lost segment, or commits without WAL. The gap is recorded
//! (`archive_gaps.rs`), and the call returns it.

use super::new_directory::make_durably;
use crate::{
    base::{Error, FileId, FileNumber, Result, SequenceNumber},
    codec::{FILE_HEADER_LEN, FileHeader, FileKind},
    commit::{decode_group, split_group},
    db::{
        engine::{
            parts::archiver::{ArchiveEnd, Archiver},
            root::Engine,
            settings::Settings,
        },
        files::archive_gaps::{self, ArchiveGap, NOT_ARCHIVED, NOT_LOGGED},
    },
    platform::{BudgetedVfs, OpenFiles, OpenMode, SystemTime, Vfs, moment_of},
    table::blob::{blob_path, visit_references},
    wal::{self, FinishedSegment, RecordInfo, RecoveryInput, SEGMENT_HEADER_LEN, Visit},
};
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

const OPEN_SEGMENTS_MAX: usize = 16;

const COPY_BYTES: u64 = 1 << 20;

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

impl Archiver {
    /// Creates the archiver of incarnation `life`; `None` without an archive.
    pub fn new(settings: &Settings, life: u64) -> Result<Option<Archiver>> {
        let Some(dir) = settings.log_archive.as_ref().filter(|_| !settings.read_only) else { return Ok(None) };
        let dir = dir.join(life_name(life));
        make_durably(&*settings.vfs, &dir)?;
        let vfs = Arc::clone(&settings.vfs);
        let archived = AtomicU64::new(0);
        let (end, unreported, known) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Some(Archiver { vfs, dir, end, unreported, known, archived }))
    }

    fn find_end(&self) -> Result<ArchiveEnd> {
        let archive = LogArchive { vfs: Arc::clone(&self.vfs), dir: self.dir.clone() };
        let noted = archive_gaps::list(&*self.vfs, &self.dir)?.last().map(|gap| gap.last);
        let mut segments = Vec::new();
        for number in archive.segment_numbers()? {
            match wal::first_group(&*self.vfs, &wal::segment_path(&self.dir, number)) {
                Ok((header, first)) => segments.push((header.epoch, header.start_lsn, number, first, header)),
                // The next copy replaces an unfinished segment; a restore reports a damaged one.
                Err(e) if e.is_corruption() => {}
                Err(e) => return Err(e),
            }
        }
        segments.sort_unstable_by_key(|(epoch, start_lsn, ..)| (*epoch, *start_lsn));
        let begins_after = segments.first().map(|(.., header)| header.previous_sequence);
        let last_with_commits = segments.iter().rev().find(|(_, _, _, first, _)| first.is_some());
        let mut last = None;
        if let Some((_, _, number, ..)) = last_with_commits {
            let path = wal::segment_path(&self.dir, *number);
            wal::inspect_segment(&*self.vfs, &path, &mut |_, record| {
                if record.header.flags.is_group() {
                    last = Some(record.header.last_sequence);
                }
                Ok(())
            })?;
        }
        Ok(ArchiveEnd { reached: last.or(begins_after).max(noted) })
    }

    /// Records the commits missing before `next`. Call it before archiving `next`.
    fn note_gap_before(&self, end: &ArchiveEnd, next: SequenceNumber, now: SystemTime, reason: &str) -> Result<()> {
        match end.reached {
            Some(reached) if next > reached + 1 => self.note_gap(reached + 1..=next - 1, now, reason),
            _ => Ok(()),
        }
    }

    fn note_gap(&self, commits: RangeInclusive<SequenceNumber>, found: SystemTime, reason: &str) -> Result<()> {
        let (first, last) = commits.into_inner();
        tracing::warn!(first, last, reason, "the log archive has a gap: take a new full backup");
        let gap = ArchiveGap { first, last, found, reason: reason.to_owned() };
        let gap = archive_gaps::note(&*self.vfs, &self.dir, gap)?;
        let mut unreported = self.unreported.lock();
        unreported.retain(|other| other.first != gap.first);
        unreported.push(gap);
        Ok(())
    }

    /// Returns true if the segment is archived, false if another has its number, `None` otherwise.
    /// Removes an unfinished copy.
    fn has_segment(&self, segment: &FinishedSegment) -> Result<Option<bool>> {
        let path = wal::segment_path(&self.dir, segment.number);
        match wal::first_group(&*self.vfs, &path) {
            Ok((header, _)) => Ok(Some(header.file_id == segment.file_id)),
            Err(e) if e.is_corruption() => {
                self.vfs.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
                Ok(None)
            }
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Archives a sealed blob file. Returns false if it does not exist.
    fn add_blob(&self, from: &Path, number: FileNumber) -> Result<bool> {
        let to = blob_path(&self.dir, number);
        let (wanted, len) = match file_identity(&*self.vfs, from) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(file_identity(&*self.vfs, &to).is_ok());
            }
            identity => identity?,
        };
        match file_identity(&*self.vfs, &to) {
            Ok(found) if found == (wanted, len) => return Ok(true),
            Ok(_) => return Err(Error::AlreadyExists(format!("{} is another blob file", to.display()))),
            Err(e) if e.is_corruption() => self.vfs.remove(&to).map_err(|e| Error::io("remove", &to, e))?,
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        if self.vfs.hard_link(from, &to).is_err() {
            copy_header_last(&*self.vfs, from, &to, FILE_HEADER_LEN as u64, len, len)?;
        }
        Ok(true)
    }

    fn sync(&self) -> Result<()> {
        self.vfs.sync_dir(&self.dir).map_err(|e| Error::output("sync", &self.dir, e))
    }
}

fn life_name(life: u64) -> String {
    format!("{life:016x}")
}

fn file_identity(vfs: &dyn Vfs, path: &Path) -> Result<(FileId, u64)> {
    let file = vfs.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
    let mut header = [0; FILE_HEADER_LEN];
    let read = file.read_at(&mut header, 0).map_err(|e| Error::io("read", path, e))?;
    let header = FileHeader::decode(FileKind::Blob, &header[..read], path, 0)?;
    Ok((header.file_id, file.len().map_err(|e| Error::io("read", path, e))?))
}

/// Copies the first `used_len` bytes into a new file of `len` bytes. Writes the header after all
/// else is synced, so a copy with a header is complete.
fn copy_header_last(vfs: &dyn Vfs, from: &Path, to: &Path, header_len: u64, used_len: u64, len: u64) -> Result<()> {
    let source = vfs.open(from, OpenMode::Read).map_err(|e| Error::io("open", from, e))?;
    let file = vfs.open(to, OpenMode::CreateNew).map_err(|e| Error::output("create", to, e))?;
    let mut buffer = Vec::new();
    let mut copy = |range: std::ops::Range<u64>| -> Result<()> {
        for at in range.clone().step_by(COPY_BYTES as usize) {
            buffer.resize((range.end - at).min(COPY_BYTES) as usize, 0);
            source.read_exact_at(&mut buffer, at).map_err(|e| Error::io("read", from, e))?;
            file.write_at(&buffer, at).map_err(|e| Error::output("write", to, e))?;
        }
        Ok(())
    };
    copy(header_len..used_len)?;
    if file.len().map_err(|e| Error::io("read", to, e))? < len {
        file.set_len(len).map_err(|e| Error::output("extend", to, e))?;
    }
    file.sync_data().map_err(|e| Error::output("sync", to, e))?;
    copy(0..header_len.min(used_len))?;
    file.sync_data().map_err(|e| Error::output("sync", to, e))
}

impl Engine {
    /// Returns whether a segment is still to be archived.
    pub fn segments_to_archive(&self) -> impl Fn(FileNumber) -> bool + use<> {
        let archived = self.log.archiver.as_ref().map(|archiver| archiver.known.lock().clone());
        move |number| archived.as_ref().is_some_and(|archived| !archived.contains(&number))
    }

    /// Archives segments of earlier opens before any is released.
    pub fn archive_at_open(&self) -> Result<()> {
        if self.log.archiver.is_some() {
            self.storage.blobs.hold_until_archived(0);
        }
        self.archive_finished()
    }

    /// Like [`Engine::archive_finished`], but logs a failure; the log is then kept.
    pub fn archive_finished_or_warn(&self) {
        if let Err(e) = self.archive_finished() {
            tracing::warn!(error = %e, "the log archive cannot be written: the log is kept and grows until it can");
        }
    }

    /// Syncs an archived log before an edit makes its commits durable in runs. Otherwise a power
    /// failure could lose them from the log alone and leave a gap.
    pub(in crate::db) fn sync_for_archive(&self) -> Result<()> {
        match (&self.log.archiver, &self.log.wal) {
            (Some(_), Some(wal)) => self.sync_to(wal.end_lsn()),
            _ => Ok(()),
        }
    }

    pub fn archive_at_close(&self) -> Result<()> {
        let (Some(_), Some(wal)) = (&self.log.archiver, &self.log.wal) else { return Ok(()) };
        self.log_refused()?;
        wal.begin_segment()?;
        let visible = self.readers.snapshots.visible();
        self.archive_finished()?;
        self.archive_up_to(visible)
    }

    /// Records a gap if the archive ends before `visible` although the log is archived: these
    /// commits were without WAL, or an open without the archive wrote them.
    pub(in crate::db) fn archive_up_to(&self, visible: SequenceNumber) -> Result<()> {
        let Some(archiver) = &self.log.archiver else { return Ok(()) };
        // The log may still reuse the numbers of rejected commits.
        let visible = self.before_refused(visible);
        let mut end = archiver.end.lock();
        if let Some(end) = &mut *end {
            archiver.note_gap_before(
                end,
                visible + 1,
                moment_of(self.settings.runtime.unix_time_us()),
                NOT_ARCHIVED,
            )?;
            end.reached = end.reached.max(Some(visible));
        }
        Ok(())
    }

    pub fn archive_finished(&self) -> Result<()> {
        let (Some(archiver), Some(wal)) = (&self.log.archiver, &self.log.wal) else { return Ok(()) };
        let mut end = archiver.end.lock();
        let end = match &mut *end {
            Some(end) => end,
            none => none.insert(archiver.find_end()?),
        };
        let segments = wal.finished_segments();
        for segment in &segments {
            if !archiver.known.lock().contains(&segment.number) {
                match archiver.has_segment(segment)? {
                    Some(true) => {}
                    Some(false) => {
                        let commits = self.commits_of(archiver, segment, end)?;
                        self.give_up(archiver, segment, end, commits, "another segment has its number in the archive")?;
                    }
                    None => self.archive_segment(archiver, segment, end)?,
                }
                archiver.known.lock().insert(segment.number);
            }
            archiver.archived.fetch_max(segment.last_sequence, Ordering::AcqRel);
            self.storage.blobs.hold_until_archived(archiver.archived.load(Ordering::Acquire));
        }
        archiver.known.lock().retain(|number| segments.iter().any(|segment| segment.number == *number));
        Ok(())
    }

    fn archive_segment(&self, archiver: &Archiver, segment: &FinishedSegment, end: &mut ArchiveEnd) -> Result<()> {
        // The archive must not contain commits that a power failure could still undo.
        self.sync_to(segment.end_lsn)?;
        let commits = self.commits_of(archiver, segment, end)?;
        self.storage.blobs.seal(&commits.blobs)?;
        for number in &commits.blobs {
            if !archiver.add_blob(&blob_path(&self.dir, *number), *number)? {
                let reason = "a blob file that their segment refers to is gone";
                return self.give_up(archiver, segment, end, commits, reason);
            }
        }
        archiver.sync()?;
        let to = wal::segment_path(&archiver.dir, segment.number);
        let copied =
            copy_header_last(&*archiver.vfs, &segment.path, &to, SEGMENT_HEADER_LEN, segment.used_len, segment.len);
        copied.inspect_err(|_| drop(archiver.vfs.remove(&to)))?;
        archiver.sync()?;
        end.reached = commits.reached;
        Ok(())
    }

    /// Reads a segment and records the gaps before and among its commits.
    fn commits_of(&self, archiver: &Archiver, segment: &FinishedSegment, end: &ArchiveEnd) -> Result<SegmentCommits> {
        let (header, _) = wal::first_group(&*self.storage.table.vfs, &segment.path)?;
        let now = moment_of(self.settings.runtime.unix_time_us());
        let mut at = ArchiveEnd { reached: Some(end.reached.unwrap_or(header.previous_sequence)) };
        let mut commits = SegmentCommits { first: None, reached: at.reached, blobs: BTreeSet::new() };
        wal::read_groups(&*self.storage.table.vfs, &segment.path, segment.used_len, &mut |group, payload| {
            let reason = if commits.first.is_none() { NOT_ARCHIVED } else { NOT_LOGGED };
            archiver.note_gap_before(&at, *group.start(), now, reason)?;
            at.reached = at.reached.max(Some(*group.end()));
            commits.first.get_or_insert(*group.start());
            commits.blobs.extend(LogArchive::blobs_of(payload));
            Ok(())
        })?;
        commits.reached = at.reached;
        Ok(commits)
    }

    /// Records the commits of a segment that can no longer be archived as a gap.
    fn give_up(
        &self,
        archiver: &Archiver,
        segment: &FinishedSegment,
        end: &mut ArchiveEnd,
        commits: SegmentCommits,
        reason: &str,
    ) -> Result<()> {
        if let Some(first) = commits.first.filter(|_| commits.reached > end.reached) {
            let now = moment_of(self.settings.runtime.unix_time_us());
            archiver.note_gap(first..=segment.last_sequence.max(first), now, reason)?;
        }
        end.reached = commits.reached;
        Ok(())
    }
}

struct SegmentCommits {
    first: Option<SequenceNumber>,
    /// Last commit in the segment or before it.
    reached: Option<SequenceNumber>,
    blobs: BTreeSet<FileNumber>,
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
        let mut blobs = BTreeSet::new();
        // Ignore malformed data here: reads report it.
        let _ = decode_group(batch, |_, operation| {
            let _ = visit_references(operation.kind, operation.value, |blob| {
                blobs.insert(blob.file);
            });
        });
        blobs
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

    /// Determines what follows commit `last`, where a walk from segment `oldest` ended.
    fn after(&self, last: SequenceNumber, oldest: FileNumber) -> Result<After> {
        let mut next: Option<SequenceNumber> = None;
        let (mut damaged, mut newest) = (None, None);
        for number in self.segment_numbers()? {
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

    fn segment_numbers(&self) -> Result<Vec<FileNumber>> {
        let entries = match self.vfs.list(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(|e| Error::io("list", &self.dir, e))?,
        };
        Ok(entries.iter().filter_map(|entry| wal::segment_number(&entry.name)).collect())
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
        let numbers = self.segment_numbers()?;
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
