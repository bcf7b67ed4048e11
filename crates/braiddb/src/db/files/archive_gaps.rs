//! Notes about gaps of a log archive, which are commits that it lacks.
//!
//! The note of a gap is written **before** the segment behind the gap is archived. So a kill at any
//! time leaves no gap without its note. The file `FIRST-LAST.gap` is named by the missing commits and
//! says when and why the gap was found. It may be removed once no backup before the gap is left.

use crate::{
    base::{Error, Result, SequenceNumber},
    platform::{OpenMode, SystemTime, Vfs, moment_of},
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// The end of the name of a note.
const SUFFIX: &str = ".gap";

/// Maximum bytes of a note that are read. A longer one is cut.
const NOTE_BYTES_MAX: usize = 4096;

/// Reason for a gap inside a segment.
pub const NOT_LOGGED: &str = "they did not go through the log: a bulk load, or commits without WAL";

/// Reason for a gap between two segments.
pub const NOT_ARCHIVED: &str = "the database was open without the archive, or they did not go through the log (a bulk load, or commits \
                                without WAL)";

/// Commits that a [log archive](crate::Builder::log_archive) lacks. No restore passes over them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveGap {
    /// The first commit that is missing.
    pub first: SequenceNumber,
    /// The last commit that is missing. A backup of this commit or a later one leads on.
    pub last: SequenceNumber,
    /// When the gap was found, by the wall clock.
    pub found: SystemTime,
    /// The cause, as far as it is known.
    pub reason: String,
}

impl ArchiveGap {
    /// The gap as an error; a restore from a backup before it ends at the commit `reached`.
    pub(in crate::db) fn to_error(&self, archive: &Path, reached: SequenceNumber) -> Error {
        let (first, last, reason) = (self.first, self.last, self.reason.clone());
        Error::ArchiveGap { path: archive.to_owned(), first, last, reached, reason }
    }
}

/// Lists the gaps that are noted in an archive, in the order of their commits.
pub fn list(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<ArchiveGap>> {
    let entries = match vfs.list(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other.map_err(|e| Error::io("list", dir, e))?,
    };
    let mut ranges: Vec<_> = entries.iter().filter_map(|entry| range_of(&entry.name)).collect();
    // Of notes with the same first commit the widest comes first: the others are from before it was widened.
    ranges.sort_unstable_by_key(|(first, last)| (*first, u64::MAX - *last));
    let mut gaps: Vec<ArchiveGap> = Vec::new();
    for (first, last) in ranges {
        if gaps.last().is_none_or(|before| before.last < last) {
            let (found, reason) = read_note(vfs, &note_path(dir, first, last));
            gaps.push(ArchiveGap { first, last, found, reason });
        }
    }
    Ok(gaps)
}

/// Notes a gap, durably. A gap that ends just before it becomes one with it. Returns the note.
pub fn note(vfs: &dyn Vfs, dir: &Path, gap: ArchiveGap) -> Result<ArchiveGap> {
    let before = list(vfs, dir)?.into_iter().find(|other| other.last + 1 >= gap.first && other.first <= gap.first);
    let gap = match &before {
        Some(before) if before.last >= gap.last => return Ok(before.clone()),
        Some(before) => ArchiveGap { first: before.first, ..gap },
        None => gap,
    };
    let path = note_path(dir, gap.first, gap.last);
    write_note(vfs, dir, &path, &gap).inspect_err(|_| {
        // A note that is not durable must not be found by the next try, which would take it for one that is.
        let _ = vfs.remove(&path);
    })?;
    if let Some(before) = before {
        let path = note_path(dir, before.first, before.last);
        vfs.remove(&path).map_err(|e| Error::output("remove", &path, e))?;
    }
    Ok(gap)
}

fn write_note(vfs: &dyn Vfs, dir: &Path, path: &Path, gap: &ArchiveGap) -> Result<()> {
    let file = vfs.open(path, OpenMode::CreateNew).map_err(|e| Error::output("create", path, e))?;
    let found_us = gap.found.duration_since(crate::platform::UNIX_EPOCH).map_or(0, |since| since.as_micros());
    let text = format!("{found_us}\n{}\n", gap.reason);
    file.write_at(text.as_bytes(), 0).map_err(|e| Error::output("write", path, e))?;
    file.sync_data().map_err(|e| Error::output("sync", path, e))?;
    vfs.sync_dir(dir).map_err(|e| Error::output("sync", dir, e))
}

fn note_path(dir: &Path, first: SequenceNumber, last: SequenceNumber) -> PathBuf {
    dir.join(note_name(first, last))
}

pub fn note_name(first: SequenceNumber, last: SequenceNumber) -> String {
    format!("{first}-{last}{SUFFIX}")
}

/// The commits in the name of a note.
fn range_of(name: &str) -> Option<(SequenceNumber, SequenceNumber)> {
    let (first, last) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    let range = (first.parse().ok()?, last.parse().ok()?);
    (range.0 <= range.1).then_some(range)
}

/// The time and the reason in a note. A note that was cut off by a crash still says by its name which commits are missing.
fn read_note(vfs: &dyn Vfs, path: &Path) -> (SystemTime, String) {
    let mut bytes = vec![0; NOTE_BYTES_MAX];
    let len = vfs.open(path, OpenMode::Read).and_then(|file| file.read_at(&mut bytes, 0)).unwrap_or(0);
    let text = String::from_utf8_lossy(bytes.get(..len).unwrap_or_default()).into_owned();
    let mut lines = text.lines();
    let found_us = lines.next().and_then(|line| line.parse().ok()).unwrap_or(0);
    let reason = lines.next().filter(|line| !line.is_empty()).unwrap_or(NOT_ARCHIVED);
    (moment_of(found_us), reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::tests_common::mem,
        platform::{
            UNIX_EPOCH,
            fault_vfs::{FaultVfs, Operation},
        },
    };
    use std::{io, sync::Arc, time::Duration};

    const ARCHIVE: &str = "/archive";

    fn archive() -> Arc<dyn Vfs> {
        let vfs = mem();
        vfs.create_dir_all(Path::new(ARCHIVE)).unwrap();
        vfs
    }

    fn gap(first: u64, last: u64) -> ArchiveGap {
        ArchiveGap { first, last, found: UNIX_EPOCH + Duration::from_micros(77), reason: NOT_LOGGED.to_owned() }
    }

    fn make_file(vfs: &dyn Vfs, name: &str, bytes: &[u8]) {
        let file = vfs.open(&Path::new(ARCHIVE).join(name), OpenMode::CreateNew).unwrap();
        file.write_at(bytes, 0).unwrap();
    }

    fn listed(vfs: &dyn Vfs) -> Vec<ArchiveGap> {
        list(vfs, Path::new(ARCHIVE)).unwrap()
    }

    #[test]
    fn note_of_gap_is_listed_as_it_was_made_in_order_of_commits() {
        let vfs = archive();
        assert_eq!(listed(&*vfs), []);
        assert_eq!(list(&*vfs, Path::new("/none")).unwrap(), []);
        // The first begins with the first commit of all.
        for (first, last) in [(100, 100), (1, 9), (20, u64::MAX - 1)] {
            assert_eq!(note(&*vfs, Path::new(ARCHIVE), gap(first, last)).unwrap(), gap(first, last));
        }
        assert_eq!(listed(&*vfs), [gap(1, 9), gap(20, u64::MAX - 1)], "the note of 100 lies in the last");
    }

    #[test]
    fn note_of_adjoining_gap_widens_the_earlier_one() {
        let vfs = archive();
        for (first, last) in [(5, 7), (8, 9), (6, 8)] {
            note(&*vfs, Path::new(ARCHIVE), gap(first, last)).unwrap();
        }
        assert_eq!(listed(&*vfs), [gap(5, 9)]);
        assert_eq!(vfs.list(Path::new(ARCHIVE)).unwrap().len(), 1, "the note of 5 to 7 was removed");
    }

    /// A note whose write or sync had failed stayed, and the next try took it for a durable one.
    #[test]
    fn note_that_failed_is_written_again_by_the_next_try() {
        for operation in [Operation::Write, Operation::Sync, Operation::SyncDir] {
            let vfs = FaultVfs::new(Path::new(ARCHIVE));
            vfs.fail(operation, 0, 1, io::ErrorKind::StorageFull);
            note(&vfs, Path::new(ARCHIVE), gap(5, 7)).unwrap_err();
            assert_eq!(listed(&vfs), [], "{operation:?}");
            let before = vfs.journal().len();
            note(&vfs, Path::new(ARCHIVE), gap(5, 7)).unwrap();
            let done: Vec<Operation> = vfs.journal()[before..].iter().map(|(operation, _)| *operation).collect();
            assert_eq!(done, [Operation::Create, Operation::Write, Operation::Sync, Operation::SyncDir]);
            assert_eq!(listed(&vfs), [gap(5, 7)]);
        }
    }

    /// A power failure can leave the wider note beside the one that it replaces.
    #[test]
    fn narrower_note_with_the_same_first_commit_is_left_out() {
        let vfs = archive();
        make_file(&*vfs, "5-7.gap", b"1\nold\n");
        make_file(&*vfs, "5-9.gap", b"77\nnew\n");
        let gaps = listed(&*vfs);
        assert!(
            matches!(gaps.as_slice(), [ArchiveGap { first: 5, last: 9, reason, .. }] if reason == "new"),
            "{gaps:?}"
        );
    }

    #[test]
    fn damaged_note_still_names_its_commits() {
        let long = vec![b'x'; 3 * NOTE_BYTES_MAX];
        let texts: [&[u8]; 6] = [b"", b"77", b"77\n", b"\xff\xfe\n\n", b"-1\n\nx", &long];
        for text in texts {
            let vfs = archive();
            make_file(&*vfs, "3-4.gap", text);
            let gaps = listed(&*vfs);
            assert!(matches!(gaps.as_slice(), [ArchiveGap { first: 3, last: 4, .. }]), "{gaps:?}");
            assert_eq!(gaps[0].reason, NOT_ARCHIVED);
        }
    }

    #[test]
    fn files_of_other_names_are_no_notes() {
        let vfs = archive();
        let past_the_largest = format!("1-{}0.gap", u64::MAX);
        for name in ["4-3.gap", "3.gap", "-3.gap", "a-b.gap", "1-2.gap.old", "000001.wal", &past_the_largest] {
            make_file(&*vfs, name, b"1\nreason\n");
        }
        assert_eq!(listed(&*vfs), []);
    }
}
