//! Reads the undamaged parts of a manifest, for salvage.
//!
//! Edits before the damage give the layout of that time. Edits after it are found by their
//! checksums, which cover file id and offset, and applied as far as possible: a change to a
//! partition or run of a lost edit has no meaning alone. A lost edit may have changed which runs
//! count, so the caller must not trust the layout alone.

use super::{
    Change, Current, Edit, Layout,
    current::{CURRENT_NAME, CurrentSlot},
    manifest::{manifest_name, read_record},
};
use crate::{
    base::{Corruption, Error, FileNumber, Result},
    codec::{FILE_HEADER_LEN, FileHeader, FileKind},
    platform::{OpenMode, Vfs},
};
use std::{
    ops::Range,
    path::{Path, PathBuf},
};

const MANIFEST_BYTES_MAX: u64 = 1 << 30;

#[derive(Debug)]
pub struct DamagedManifest {
    pub path: PathBuf,
    pub layout: Layout,
    pub edits: u64,
    /// Unreadable ranges between edits, with the reason.
    pub gaps: Vec<(Range<u64>, String)>,
    pub is_named: bool,
    /// Bytes after the last edit may be an unfinished one.
    pub has_rest: bool,
    /// Offset of the repaired header byte.
    pub repaired: Option<usize>,
}

pub fn read_damaged_current(vfs: &dyn Vfs, dir: &Path) -> std::result::Result<CurrentSlot, String> {
    let path = dir.join(CURRENT_NAME);
    let file = vfs.open(&path, OpenMode::Read).map_err(|e| e.to_string())?;
    let slots = Current::read_slots(&*file, &path).map_err(|e| e.to_string())?;
    let mut detail = String::new();
    let mut best: Option<CurrentSlot> = None;
    for slot in slots {
        match slot {
            Ok(slot) if best.is_none_or(|best| slot.generation > best.generation) => best = Some(slot),
            Ok(_) => {}
            Err(error) => detail = error.to_string(),
        }
    }
    best.ok_or(detail)
}

/// `synced_len` is the manifest's length by CURRENT, if known. Returns an error text if nothing can
/// be read.
pub fn read_damaged_manifest(
    vfs: &dyn Vfs,
    dir: &Path,
    number: FileNumber,
    synced_len: Option<u64>,
) -> Result<std::result::Result<DamagedManifest, String>> {
    let path = dir.join(manifest_name(number));
    let bytes = match read_all(vfs, &path) {
        Ok(bytes) => bytes,
        Err(e) => return Ok(Err(e.to_string())),
    };
    let (header, repaired) = match FileHeader::decode_repaired(FileKind::Manifest, &bytes, &path, 0) {
        Ok(decoded) => decoded,
        Err(error @ crate::base::Error::Unsupported { .. }) => return Err(error),
        Err(Error::Corruption(Corruption { detail, .. })) => return Ok(Err(detail)),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let mut manifest = DamagedManifest {
        path,
        layout: Layout::default(),
        edits: 0,
        gaps: Vec::new(),
        is_named: synced_len.is_some(),
        has_rest: false,
        repaired,
    };
    manifest.read(&bytes, header.file_id, synced_len);
    manifest.layout.next_file = manifest.layout.next_file.max(number + 1);
    Ok(Ok(manifest))
}

fn read_all(vfs: &dyn Vfs, path: &Path) -> std::io::Result<Vec<u8>> {
    let file = vfs.open(path, OpenMode::Read)?;
    let len = file.len()?;
    if len > MANIFEST_BYTES_MAX {
        return Err(std::io::Error::other("it is longer than any manifest"));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

impl DamagedManifest {
    fn read(&mut self, bytes: &[u8], file_id: u64, synced_len: Option<u64>) {
        let record_at = |at: usize| {
            let (payload, len) = read_record(bytes.get(at..)?, file_id, at as u64)?;
            Some((Edit::decode(payload)?, len))
        };
        let mut at = FILE_HEADER_LEN;
        loop {
            if let Some((edit, len)) = record_at(at) {
                self.apply(&edit);
                self.edits += 1;
                at += len;
                continue;
            }
            let rest = bytes.get(at..).unwrap_or_default();
            let next = (at + 1..bytes.len()).find(|&next| !is_empty(&bytes[next..]) && record_at(next).is_some());
            match next {
                Some(next) => {
                    self.gaps.push((at as u64..next as u64, "an edit's checksum does not match".to_owned()));
                    at = next;
                }
                None => {
                    self.has_rest = rest.iter().any(|&byte| byte != 0);
                    let end = synced_len.unwrap_or(at as u64);
                    if (at as u64) < end {
                        self.gaps.push((at as u64..end, "edits that were synced are missing or damaged".to_owned()));
                    }
                    return;
                }
            }
        }
    }

    fn apply(&mut self, edit: &Edit) {
        for change in &edit.changes {
            if self.layout.apply_change(change).is_err()
                && let Change::SetRuns { partition, runs, loose, .. } = change
                && let Some(partition) = self.layout.partitions.get_mut(partition)
            {
                // Take the runs anyway: their files have the other facts.
                partition.runs.clone_from(runs);
                partition.loose.clone_from(loose);
                partition.view = None;
            }
        }
        self.layout.forget_unused_runs();
    }
}

/// Edits without changes are never written, and zeros would look like many of them.
fn is_empty(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0; 4])
}
