//! Opens a run: reads its header, footer, index and range tombstones, and checks them against the
//! manifest.

use super::super::{
    TableContext,
    direct_offset::average_stride,
    format::{decode_tombstones, read_unit},
    meta::RunMeta,
    place::Place,
    recent_writes::is_sample,
    sequence::Sequence,
    tail::{FOOTER_LEN, Footer, Index},
};
use super::{Run, read_bytes};
use crate::{
    base::{Error, FileId, FileNumber, RangeTombstoneSet, Result},
    cache::CacheSlots,
    codec::{FILE_HEADER_LEN, FileHeader, FileKind, GIVEN_SEQUENCE, PADDED_BLOCKS},
    platform::{File, OpenMode},
};
use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

#[derive(Debug)]
pub(in crate::table) struct Tail {
    pub file_id: FileId,
    pub version: u32,
    /// The manifest has the sequence number of the entries.
    pub is_unnumbered: bool,
    pub footer: Footer,
    pub index: Index,
    pub range_tombstones: RangeTombstoneSet,
}

impl Run {
    /// Reads no data block.
    pub fn open(ctx: &TableContext, path: &Path, meta: &RunMeta) -> Result<Arc<Run>> {
        Run::open_checked(ctx, path, Some(meta), meta.number)
    }

    pub fn open_unlisted(ctx: &TableContext, path: &Path, number: FileNumber) -> Result<Arc<Run>> {
        Run::open_checked(ctx, path, None, number)
    }

    fn open_checked(ctx: &TableContext, path: &Path, listed: Option<&RunMeta>, number: FileNumber) -> Result<Arc<Run>> {
        let file = open_file(ctx, path)?;
        let len = file.len().map_err(|e| Error::io("read the length of", path, e))?;
        if let Some(meta) = listed.filter(|meta| len != meta.file_bytes) {
            let detail = format!("the file has {len} bytes where the manifest knows {}", meta.file_bytes);
            return Err(Error::corruption(path, len.min(meta.file_bytes), detail));
        }
        let tail = read_tail(&*file, path, len)?;
        Run::of_tail(ctx, path, (file, len), tail, listed, number)
    }

    pub(in crate::table) fn of_tail(
        ctx: &TableContext,
        path: &Path,
        (file, len): (Arc<dyn File>, u64),
        mut tail: Tail,
        listed: Option<&RunMeta>,
        number: FileNumber,
    ) -> Result<Arc<Run>> {
        let mut meta = tail.take_meta(number);
        let given = listed.filter(|_| tail.is_unnumbered).map_or(0, |listed| listed.max_sequence);
        if given > 0 {
            (meta.min_sequence, meta.max_sequence) = (given, given);
        }
        let on_grid = if tail.index.is_grid() { &tail.index.notes[..] } else { &[] };
        let (stride, counts) = (average_stride(on_grid), on_grid.iter().map(|note| note.mark()).collect());
        if listed.is_some_and(|listed| *listed != meta) {
            let offset = len - FOOTER_LEN as u64;
            return Err(Error::corruption(path, offset, "index and footer are not those that the manifest knows"));
        }
        let run = Run {
            slots: CacheSlots::with_notes(&ctx.cache, std::mem::take(&mut tail.index.notes)),
            index: tail.index,
            version: tail.version,
            meta,
            given,
            place: Place::new(ctx),
            sequence: Sequence::default(),
            stride,
            counts,
            file,
            path: path.to_owned(),
            range_tombstones: Arc::new(tail.range_tombstones),
            vfs: ctx.vfs.clone(),
            deferred_close: Arc::clone(&ctx.deferred_close),
            is_obsolete: AtomicBool::new(false),
        };
        if let Some(since) = ctx.recent_writes.since(run.meta.file_id, 0).filter(|_| ctx.in_place) {
            let blocks = (0..run.end().block).filter(|&block| !is_sample(run.meta.file_id, block.into()));
            blocks.for_each(|block| run.slots.set_written(block.into(), since.span_of(block.into())));
        }
        Ok(Arc::new(run))
    }

    #[cfg(test)]
    pub fn read_meta(ctx: &TableContext, path: &Path, number: FileNumber) -> Result<RunMeta> {
        let file = open_file(ctx, path)?;
        let len = file.len().map_err(|e| Error::io("read the length of", path, e))?;
        Ok(read_tail(&*file, path, len)?.take_meta(number))
    }

    /// Reads the file's description; `None` if the file has sequence numbers.
    pub fn read_unnumbered_meta(ctx: &TableContext, path: &Path, number: FileNumber) -> Result<Option<RunMeta>> {
        let file = ctx.vfs.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
        let len = file.len().map_err(|e| Error::io("read the length of", path, e))?;
        let mut tail = read_tail(&*file, path, len)?;
        Ok(tail.is_unnumbered.then(|| tail.take_meta(number)))
    }
}

impl Tail {
    fn take_meta(&mut self, number: FileNumber) -> RunMeta {
        let Index { smallest, largest, blob_uses, expiries, .. } = &mut self.index;
        let (smallest, largest) = (std::mem::take(smallest), std::mem::take(largest));
        let (blob_uses, expiries) = (std::mem::take(blob_uses), std::mem::take(expiries));
        self.footer.meta(number, self.file_id, smallest, largest, blob_uses, expiries)
    }
}

/// Reads everything but blocks, keys and view.
pub(in crate::table) fn read_tail(file: &dyn File, path: &Path, len: u64) -> Result<Tail> {
    if len < (FILE_HEADER_LEN + FOOTER_LEN) as u64 {
        return Err(Error::corruption(path, len, "the file is too short for a run"));
    }
    let header = read_bytes(file, path, 0, FILE_HEADER_LEN as u64)?;
    let header = FileHeader::decode(FileKind::Run, &header, path, 0)?;
    let mut tail = read_tail_without_tombstones(file, path, len, &header)?;
    tail.range_tombstones = read_tombstones(file, path, &tail)?;
    Ok(tail)
}

pub(in crate::table) fn read_tail_without_tombstones(
    file: &dyn File,
    path: &Path,
    len: u64,
    header: &FileHeader,
) -> Result<Tail> {
    let FileHeader { file_id, version, required_features, .. } = *header;
    if len < (FILE_HEADER_LEN + FOOTER_LEN) as u64 {
        return Err(Error::corruption(path, len, "the file is too short for a run"));
    }
    let footer_at = len - FOOTER_LEN as u64;
    let bytes = read_bytes(file, path, footer_at, len)?;
    let bytes = bytes.first_chunk().ok_or_else(|| Error::corruption(path, footer_at, "the footer is cut short"))?;
    let footer = Footer::decode(bytes, file_id, len, path)?;
    let unit = |from, to| read_unit(read_bytes(file, path, from, to)?, file_id, from, path);
    let is_padded = required_features & PADDED_BLOCKS != 0;
    let index = Index::decode(&unit(footer.index_offset, footer.index_end)?, &footer, is_padded)
        .ok_or_else(|| Error::corruption(path, footer.index_offset, "the index is malformed"))?;
    let is_unnumbered = required_features & GIVEN_SEQUENCE != 0;
    if is_unnumbered && (footer.max_sequence != 0 || footer.range_tombstones != 0) {
        return Err(Error::corruption(path, footer_at, "a run that is to be given a sequence number tells some"));
    }
    Ok(Tail { file_id, version, is_unnumbered, footer, index, range_tombstones: RangeTombstoneSet::default() })
}

pub(in crate::table) fn read_tombstones(file: &dyn File, path: &Path, tail: &Tail) -> Result<RangeTombstoneSet> {
    let footer = &tail.footer;
    let at = footer.tombstones_offset;
    let range_tombstones = match footer.range_tombstones {
        0 => RangeTombstoneSet::default(),
        _ => {
            let unit = read_unit(read_bytes(file, path, at, footer.index_offset)?, tail.file_id, at, path)?;
            decode_tombstones(&unit).ok_or_else(|| Error::corruption(path, at, "the range tombstones are malformed"))?
        }
    };
    let is_absent = footer.range_tombstones == 0 && at != footer.index_offset;
    if is_absent || range_tombstones.len() as u64 != u64::from(footer.range_tombstones) {
        return Err(Error::corruption(path, at, "the footer has another number of range tombstones"));
    }
    Ok(range_tombstones)
}

fn open_file(ctx: &TableContext, path: &Path) -> Result<Arc<dyn File>> {
    ctx.vfs.open(path, OpenMode::Read).map_err(|e| match e.kind() {
        // Runs are removed only after the manifest dropped them.
        std::io::ErrorKind::NotFound => Error::corruption(path, 0, "the manifest names this run, but it is missing"),
        _ => Error::io("open", path, e),
    })
}
