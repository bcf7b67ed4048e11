//! The log archive: finished log segments and the blob files that their records refer to. A backup
//! and the archive restore any later state (`open/archive.rs`).
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

use crate::{
    base::{Error, FileId, FileNumber, Result, SequenceNumber},
    codec::{FILE_HEADER_LEN, FileHeader, FileKind},
    commit::decode_group,
    db::{
        engine::{
            events::event::Event,
            parts::archiver::{ArchiveEnd, Archiver},
            root::Engine,
        },
        files::archive_gaps::{self, ArchiveGap, NOT_ARCHIVED, NOT_LOGGED},
        write::pipeline,
    },
    platform::{OpenMode, SystemTime, Vfs, moment_of},
    table::blob::{blob_path, visit_references},
    wal::{self, FinishedSegment, SEGMENT_HEADER_LEN},
};
use std::{collections::BTreeSet, io, ops::RangeInclusive, path::Path, sync::atomic::Ordering};

const COPY_BYTES: u64 = 1 << 20;

impl Archiver {
    fn find_end(&self) -> Result<ArchiveEnd> {
        let noted = archive_gaps::list(&*self.vfs, &self.dir)?.last().map(|gap| gap.last);
        let mut segments = Vec::new();
        for number in segment_numbers(&*self.vfs, &self.dir)? {
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

pub fn segment_numbers(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<FileNumber>> {
    let entries = match vfs.list(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other.map_err(|e| Error::io("list", dir, e))?,
    };
    Ok(entries.iter().filter_map(|entry| wal::segment_number(&entry.name)).collect())
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

/// Returns whether a segment is still to be archived.
pub fn segments_to_archive(engine: &Engine) -> impl Fn(FileNumber) -> bool + use<> {
    let archived = engine.log.archiver.as_ref().map(|archiver| archiver.known.lock().clone());
    move |number| archived.as_ref().is_some_and(|archived| !archived.contains(&number))
}

/// Archives segments of earlier opens before any is released.
pub fn at_open(engine: &Engine) -> Result<()> {
    if engine.log.archiver.is_some() {
        engine.storage.blobs.hold_until_archived(0);
    }
    archive_finished(engine)
}

/// Like [`archive_finished`], but logs a failure; the log is then kept.
pub fn archive_or_warn(engine: &Engine) {
    if let Err(e) = archive_finished(engine) {
        engine.events.emit(|| Event::ArchiveFailed { error: e.to_string() });
        tracing::warn!(error = %e, "the log archive cannot be written: the log is kept and grows until it can");
    }
}

/// Syncs an archived log before an edit makes its commits durable in runs. Otherwise a power
/// failure could lose them from the log alone and leave a gap.
pub(in crate::db) fn sync_log(engine: &Engine) -> Result<()> {
    match (&engine.log.archiver, &engine.log.wal) {
        (Some(_), Some(wal)) => pipeline::sync_to(engine, wal.end_lsn()),
        _ => Ok(()),
    }
}

pub fn at_close(engine: &Engine) -> Result<()> {
    let (Some(_), Some(wal)) = (&engine.log.archiver, &engine.log.wal) else { return Ok(()) };
    pipeline::log_refused(engine)?;
    wal.begin_segment()?;
    let visible = engine.readers.snapshots.visible();
    archive_finished(engine)?;
    note_gap_up_to(engine, visible)
}

/// Records a gap if the archive ends before `visible` although the log is archived: these
/// commits were without WAL, or an open without the archive wrote them.
pub(in crate::db) fn note_gap_up_to(engine: &Engine, visible: SequenceNumber) -> Result<()> {
    let Some(archiver) = &engine.log.archiver else { return Ok(()) };
    // The log may still reuse the numbers of rejected commits.
    let visible = pipeline::before_refused(engine, visible);
    let mut end = archiver.end.lock();
    if let Some(end) = &mut *end {
        archiver.note_gap_before(end, visible + 1, moment_of(engine.settings.runtime.unix_time_us()), NOT_ARCHIVED)?;
        end.reached = end.reached.max(Some(visible));
    }
    Ok(())
}

pub fn archive_finished(engine: &Engine) -> Result<()> {
    let (Some(archiver), Some(wal)) = (&engine.log.archiver, &engine.log.wal) else { return Ok(()) };
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
                    let commits = commits_of(engine, archiver, segment, end)?;
                    give_up(engine, archiver, segment, end, commits, "another segment has its number in the archive")?;
                }
                None => archive_segment(engine, archiver, segment, end)?,
            }
            archiver.known.lock().insert(segment.number);
        }
        archiver.archived.fetch_max(segment.last_sequence, Ordering::AcqRel);
        engine.storage.blobs.hold_until_archived(archiver.archived.load(Ordering::Acquire));
    }
    archiver.known.lock().retain(|number| segments.iter().any(|segment| segment.number == *number));
    Ok(())
}

fn archive_segment(
    engine: &Engine,
    archiver: &Archiver,
    segment: &FinishedSegment,
    end: &mut ArchiveEnd,
) -> Result<()> {
    // The archive must not contain commits that a power failure could still undo.
    pipeline::sync_to(engine, segment.end_lsn)?;
    let commits = commits_of(engine, archiver, segment, end)?;
    engine.storage.blobs.seal(&commits.blobs)?;
    for number in &commits.blobs {
        if !archiver.add_blob(&blob_path(&engine.dir, *number), *number)? {
            let reason = "a blob file that their segment refers to is gone";
            return give_up(engine, archiver, segment, end, commits, reason);
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
fn commits_of(
    engine: &Engine,
    archiver: &Archiver,
    segment: &FinishedSegment,
    end: &ArchiveEnd,
) -> Result<SegmentCommits> {
    let (header, _) = wal::first_group(&*engine.storage.table.vfs, &segment.path)?;
    let now = moment_of(engine.settings.runtime.unix_time_us());
    let mut at = ArchiveEnd { reached: Some(end.reached.unwrap_or(header.previous_sequence)) };
    let mut commits = SegmentCommits { first: None, reached: at.reached, blobs: BTreeSet::new() };
    wal::read_groups(&*engine.storage.table.vfs, &segment.path, segment.used_len, &mut |group, payload| {
        let reason = if commits.first.is_none() { NOT_ARCHIVED } else { NOT_LOGGED };
        archiver.note_gap_before(&at, *group.start(), now, reason)?;
        at.reached = at.reached.max(Some(*group.end()));
        commits.first.get_or_insert(*group.start());
        commits.blobs.extend(blobs_of(payload));
        Ok(())
    })?;
    commits.reached = at.reached;
    Ok(commits)
}

/// Records the commits of a segment that can no longer be archived as a gap.
fn give_up(
    engine: &Engine,
    archiver: &Archiver,
    segment: &FinishedSegment,
    end: &mut ArchiveEnd,
    commits: SegmentCommits,
    reason: &str,
) -> Result<()> {
    if let Some(first) = commits.first.filter(|_| commits.reached > end.reached) {
        let now = moment_of(engine.settings.runtime.unix_time_us());
        archiver.note_gap(first..=segment.last_sequence.max(first), now, reason)?;
    }
    end.reached = commits.reached;
    Ok(())
}

struct SegmentCommits {
    first: Option<SequenceNumber>,
    /// Last commit in the segment or before it.
    reached: Option<SequenceNumber>,
    blobs: BTreeSet<FileNumber>,
}
