//! The complete files of a log archive, for copies of them in another place.

use crate::{
    base::{Error, FileNumber, Result, SequenceNumber},
    db::{
        files::archive_gaps,
        maintenance::log_archive::{blobs_of, segment_numbers},
        open::archive::life_name,
    },
    platform::{OpenMode, Vfs},
    table::blob::blob_path,
    wal::{self, SEGMENT_HEADER_LEN},
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// A complete archived segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedSegment {
    pub number: FileNumber,
    /// The last commit in it or before it.
    pub last: SequenceNumber,
    /// Blob files that its commits after the wanted one refer to.
    pub blobs: BTreeSet<FileNumber>,
    /// Length up to the end of its last record. Zeros follow.
    pub used_len: u64,
}

/// The directory of an incarnation in the archive `dir`.
pub fn directory_of(dir: &Path, life: u64) -> PathBuf {
    dir.join(life_name(life))
}

/// Returns the segments of an incarnation's directory in the order of the log. `blobs` are those of
/// commits after `after`. Omits unfinished segments; damaged ones are errors.
pub fn segments(vfs: &dyn Vfs, dir: &Path, after: SequenceNumber) -> Result<Vec<ArchivedSegment>> {
    let mut found = Vec::new();
    for number in segment_numbers(vfs, dir)? {
        let path = wal::segment_path(dir, number);
        if is_unfinished(vfs, &path)? {
            continue;
        }
        let (mut last, mut blobs) = (None, BTreeSet::new());
        let dump = wal::inspect_segment(vfs, &path, &mut |_, record| {
            if record.header.flags.is_group() {
                last = Some(record.header.last_sequence);
            }
            Ok(())
        })?;
        if dump.remains || dump.records_beyond > 0 {
            return Err(Error::corruption(&path, dump.end_offset, "a record of an archived log segment is damaged"));
        }
        wal::read_groups(vfs, &path, dump.end_offset, &mut |commits, payload| {
            if *commits.end() > after {
                blobs.extend(blobs_of(payload));
            }
            Ok(())
        })?;
        let (header, used_len) = (dump.header, dump.end_offset);
        let last = last.unwrap_or(header.previous_sequence);
        let segment = ArchivedSegment { number, last, blobs, used_len };
        found.push(((header.epoch, header.start_lsn), segment));
    }
    found.sort_unstable_by_key(|(place, _)| *place);
    Ok(found.into_iter().map(|(_, segment)| segment).collect())
}

/// Returns whether the header, which is written last, is missing.
fn is_unfinished(vfs: &dyn Vfs, path: &Path) -> Result<bool> {
    let file = vfs.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
    let mut header = [0; SEGMENT_HEADER_LEN as usize];
    file.read_at(&mut header, 0).map_err(|e| Error::io("read", path, e))?;
    Ok(header.iter().all(|byte| *byte == 0))
}

/// Extends a segment without its zeros to the length in its header, which readers expect.
pub fn lengthen(vfs: &dyn Vfs, path: &Path) -> Result<()> {
    let len = wal::stated_len(vfs, path)?;
    let file = vfs.open(path, OpenMode::ReadWrite).map_err(|e| Error::io("open", path, e))?;
    if file.len().map_err(|e| Error::io("read", path, e))? < len {
        file.set_len(len).map_err(|e| Error::output("extend", path, e))?;
        file.sync_data().map_err(|e| Error::output("sync", path, e))?;
    }
    Ok(())
}

pub fn segment_file(dir: &Path, number: FileNumber) -> PathBuf {
    wal::segment_path(dir, number)
}

pub fn blob_file(dir: &Path, number: FileNumber) -> PathBuf {
    blob_path(dir, number)
}

/// Returns the names of the notes of gaps.
pub fn gap_notes(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<String>> {
    let noted = archive_gaps::list(vfs, dir)?;
    Ok(noted.iter().map(|gap| archive_gaps::note_name(gap.first, gap.last)).collect())
}
