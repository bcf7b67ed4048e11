//! Lists the damaged parts of a view: pages, directory, footer, and the header of a view file.

use super::format::{FOOTER_BYTES, Footer, Layout, PAGE_BYTES, VIEW_FILE_START, ViewMeta, page_is_sound};
use crate::{
    base::{Corruption, Error, FileId, Result},
    codec::{FILE_HEADER_LEN, FileHeader, FileKind, checksum},
    platform::File,
    table::DamagedUnit,
};
use std::{io, ops::Range, path::Path};

const PIECE_BYTES: u64 = 64 * PAGE_BYTES as u64;

/// `listed` is the view's description in the manifest, if any.
pub fn damaged_view_file(file: &dyn File, path: &Path, listed: Option<&ViewMeta>) -> Result<Vec<DamagedUnit>> {
    let mut damaged = Vec::new();
    let len = file.len().map_err(|e| Error::io("read the length of", path, e))?;
    let expected_len = listed.map_or(len, |meta| meta.file_bytes);
    if len != expected_len {
        let detail = format!("the view file has {len} bytes where the manifest knows {expected_len}");
        damaged.push(DamagedUnit::new(len.min(expected_len)..len.max(expected_len), detail));
    }
    let head = read(file, path, 0..VIEW_FILE_START)?;
    let header = FileHeader::decode(FileKind::View, &head, path, 0);
    let raw_id = head.get(32..40).and_then(|id| id.try_into().ok()).map(u64::from_le_bytes);
    let header_id = header.as_ref().ok().map(|header| header.file_id);
    match header {
        Err(Error::Corruption(Corruption { detail, .. })) => {
            damaged.push(DamagedUnit::new(0..FILE_HEADER_LEN as u64, detail))
        }
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    if head.iter().skip(FILE_HEADER_LEN).any(|byte| *byte != 0) {
        let range = FILE_HEADER_LEN as u64..VIEW_FILE_START;
        damaged.push(DamagedUnit::new(range, "the bytes before the view are not zero"));
    }
    let file_id = listed.map(|meta| meta.file_id).or(header_id).or(raw_id).unwrap_or_default();
    if header_id.is_some_and(|id| id != file_id) {
        damaged.push(DamagedUnit::new(32..40, "the view file's id is not the one in the manifest"));
    }
    damaged.extend(damaged_view(file, path, file_id, VIEW_FILE_START..expected_len)?);
    Ok(damaged)
}

pub fn damaged_view(file: &dyn File, path: &Path, file_id: FileId, range: Range<u64>) -> Result<Vec<DamagedUnit>> {
    let mut damaged = Vec::new();
    let footer_at = range.end.saturating_sub(FOOTER_BYTES as u64).max(range.start);
    let footer = read(file, path, footer_at..range.end)?;
    let footer = footer.first_chunk().and_then(|bytes| Footer::decode(bytes, file_id, footer_at));
    let parts = footer.and_then(|footer| Some((Layout::new(footer.run_count as usize)?, footer)));
    let pages_end = |(layout, footer): &(Layout, Footer)| {
        range.start.saturating_add(u64::from(layout.pages(footer.segments)) * PAGE_BYTES as u64)
    };
    let parts = parts.filter(|parts| pages_end(parts).checked_add(parts.1.directory_bytes) == Some(footer_at));
    let Some(parts) = parts else {
        let unit = DamagedUnit::new(footer_at..range.end, "the view's footer does not match its checksum");
        damaged.push(DamagedUnit { unchecked_bytes: footer_at - range.start, ..unit });
        return Ok(damaged);
    };
    let directory_at = pages_end(&parts);
    let mut piece_at = range.start;
    while piece_at < directory_at {
        let piece = piece_at..(piece_at + PIECE_BYTES).min(directory_at);
        let bytes = read(file, path, piece.clone())?;
        for at in piece.clone().step_by(PAGE_BYTES) {
            let from = (at - piece.start) as usize;
            let page = bytes.get(from..(from + PAGE_BYTES).min(bytes.len())).unwrap_or_default();
            if !page_is_sound(page, file_id, at) {
                let detail = "a page of the view does not match its checksum";
                damaged.push(DamagedUnit::new(at..at + PAGE_BYTES as u64, detail));
            }
        }
        piece_at = piece.end;
    }
    let directory = read(file, path, directory_at..footer_at)?;
    if checksum(file_id, directory_at, &directory) != parts.1.directory_checksum {
        damaged.push(DamagedUnit::new(directory_at..footer_at, "the view's directory does not match its checksum"));
    }
    Ok(damaged)
}

fn read(file: &dyn File, path: &Path, range: Range<u64>) -> Result<Vec<u8>> {
    let len = file.len().map_err(|e| Error::io("read the length of", path, e))?;
    let end = range.end.min(len);
    let mut bytes = vec![0; usize::try_from(end.saturating_sub(range.start)).unwrap_or(0)];
    match file.read_exact_at(&mut bytes, range.start) {
        Ok(()) => Ok(bytes),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
        Err(e) => Err(Error::io("read", path, e)),
    }
}
