//! Lists damaged records of a manifest and slots of CURRENT, and applies the valid records.

use super::{CURRENT_NAME, Current, CurrentSlot, Edit, Layout, SLOT_LEN, SLOT_OFFSETS, manifest::read_record};
use crate::{
    base::{Corruption, Error, Result},
    codec::{FILE_HEADER_LEN, FileHeader, FileKind},
    platform::{OpenMode, Vfs},
    table::DamagedUnit,
};
use std::{io, path::Path};

#[derive(Debug, Default)]
pub struct WalkedManifest {
    /// After all valid records before the first damaged one.
    pub layout: Layout,
    pub damaged: Vec<DamagedUnit>,
    pub end: u64,
}

/// `synced_len` bytes must be valid.
pub fn walk_manifest(bytes: &[u8], synced_len: u64, path: &Path) -> Result<WalkedManifest> {
    let mut walk = WalkedManifest::default();
    let header = FileHeader::decode(FileKind::Manifest, bytes, path, 0);
    let raw_id = bytes.get(32..40).and_then(|id| id.try_into().ok()).map(u64::from_le_bytes);
    let file_id = match header {
        Ok(header) => header.file_id,
        Err(Error::Corruption(Corruption { detail, .. })) => {
            walk.damaged.push(DamagedUnit::new(0..FILE_HEADER_LEN as u64, detail));
            raw_id.unwrap_or_default()
        }
        Err(error) => return Err(error),
    };
    let len = bytes.len() as u64;
    if len < synced_len {
        let detail = format!("the manifest is cut short: {synced_len} bytes of it were synced");
        walk.damaged.push(DamagedUnit::new(len..synced_len, detail));
    }
    let mut offset = FILE_HEADER_LEN;
    let mut is_whole = true;
    loop {
        if let Some((payload, record_len)) =
            read_record(bytes.get(offset..).unwrap_or_default(), file_id, offset as u64)
        {
            let range = offset as u64..(offset + record_len) as u64;
            match Edit::decode(payload) {
                Some(edit) if is_whole => {
                    if let Err(rule) = walk.layout.apply(&edit) {
                        walk.damaged.push(DamagedUnit::new(range, rule));
                        is_whole = false;
                    }
                }
                Some(_) => {}
                None => {
                    walk.damaged.push(DamagedUnit::new(range, "an edit that cannot be understood"));
                    is_whole = false;
                }
            }
            offset += record_len;
            continue;
        }
        if offset as u64 >= synced_len.min(len) {
            walk.end = offset as u64;
            return Ok(walk);
        }
        // The next record whose checksum matches file id and offset.
        let next = (offset + 1..bytes.len())
            .find(|&at| bytes.get(at..).is_some_and(|rest| read_record(rest, file_id, at as u64).is_some()));
        let end = next.map_or(synced_len.min(len), |next| next as u64);
        walk.damaged.push(DamagedUnit::new(offset as u64..end, "an edit's checksum does not match"));
        is_whole = false;
        match next {
            Some(next) => offset = next,
            None => {
                walk.end = offset as u64;
                return Ok(walk);
            }
        }
    }
}

pub fn walk_current(vfs: &dyn Vfs, dir: &Path) -> Result<Option<(Vec<CurrentSlot>, Vec<DamagedUnit>)>> {
    let path = dir.join(CURRENT_NAME);
    let file = match vfs.open(&path, OpenMode::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("open", &path, e)),
    };
    let (mut slots, mut damaged) = (Vec::new(), Vec::new());
    for (slot, offset) in Current::read_slots(&*file, &path)?.into_iter().zip(SLOT_OFFSETS) {
        match slot {
            Ok(slot) => slots.push(slot),
            Err(Error::Corruption(Corruption { detail, .. })) => {
                damaged.push(DamagedUnit::new(offset..offset + SLOT_LEN as u64, detail));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Some((slots, damaged)))
}
