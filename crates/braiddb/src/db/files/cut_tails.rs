//! Copies of torn or damaged log tails.
//!
//! An open for writing ends the log after its last intact commit. The bytes after it may be a
//! durable commit with a flipped bit, so they are copied to `LOG-TAIL-NNNNNN`, named by the
//! segment, after a text line with their place. The clean close of a later open removes the copies:
//! a command that logs the name of a copy ends with a clean close itself. A failed copy is only
//! logged.

use crate::{
    platform::{OpenMode, Vfs},
    wal::CutTail,
};
use std::{io, path::Path};

pub const CUT_TAIL_PREFIX: &str = "LOG-TAIL-";

const CUT_TAIL_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of copies. One more replaces that of the lowest segment.
const CUT_TAILS_MAX: usize = 8;

/// Returns the file name or the error.
pub fn keep(vfs: &dyn Vfs, dir: &Path, tail: &CutTail) -> String {
    let name = format!("{CUT_TAIL_PREFIX}{:06}", tail.number);
    match copy(vfs, dir, &name, tail) {
        Ok(()) => name,
        Err(error) => format!("{name}, but the copy failed: {error}"),
    }
}

fn copy(vfs: &dyn Vfs, dir: &Path, name: &str, tail: &CutTail) -> io::Result<()> {
    let mut kept = names(vfs, dir)?;
    if kept.iter().any(|other| other == name) {
        vfs.remove(&dir.join(name))?;
        kept.retain(|other| other != name);
    }
    for other in kept.iter().take((kept.len() + 1).saturating_sub(CUT_TAILS_MAX)) {
        vfs.remove(&dir.join(other))?;
    }
    let mut bytes = format!("{tail}\n").into_bytes();
    let (begin, len) = (bytes.len(), usize::try_from(tail.len.min(CUT_TAIL_BYTES_MAX)).unwrap_or(0));
    bytes.resize(begin + len, 0);
    let segment = vfs.open(&tail.path, OpenMode::Read)?;
    let read = segment.read_at(bytes.get_mut(begin..).unwrap_or_default(), tail.offset)?;
    bytes.truncate(begin + read);
    let file = vfs.open(&dir.join(name), OpenMode::CreateNew)?;
    file.write_at(&bytes, 0)?;
    file.sync_data()
}

pub fn remove(vfs: &dyn Vfs, dir: &Path) {
    let removed = names(vfs, dir).and_then(|names| names.iter().try_for_each(|name| vfs.remove(&dir.join(name))));
    if let Err(error) = removed {
        tracing::warn!(%error, "a copy of a cut log tail could not be removed");
    }
}

fn names(vfs: &dyn Vfs, dir: &Path) -> io::Result<Vec<String>> {
    let entries = vfs.list(dir)?.into_iter().map(|entry| entry.name);
    let mut names: Vec<String> = entries.filter(|name| name.starts_with(CUT_TAIL_PREFIX)).collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    Ok(names)
}
