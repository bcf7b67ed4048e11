//! Opens a view: reads and checks its header, footer and directory.

use super::super::{
    count::LiveCounts,
    directory::Directory,
    first_blocks::FirstBlocks,
    format::{FOOTER_BYTES, Footer, Layout, PAGE_BYTES, VIEW_FILE_START, ViewMeta},
    simd::Simd,
};
use super::{View, read_exact};
use crate::base::{Error, FileId, Result};
use crate::cache::{CacheSlots, UnitNote};
use crate::codec::{FILE_HEADER_LEN, FileHeader, FileKind, checksum};
use crate::platform::{File, OpenMode};
use crate::table::{Run, TableContext};
use std::{
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64},
    },
};

impl View {
    pub fn open_unlisted(ctx: &TableContext, path: &Path, number: u64) -> Result<Arc<View>> {
        let io = |e| Error::io("open", path, e);
        let file = ctx.vfs.open(path, OpenMode::Read).map_err(io)?;
        let len = file.len().map_err(io)?;
        let mut header = [0; FILE_HEADER_LEN];
        let read = file.read_at(&mut header, 0).map_err(io)?;
        let file_id = FileHeader::decode(FileKind::View, &header[..read], path, 0)?.file_id;
        Ok(Arc::new(View::open_section(ctx, file, path, number, file_id, VIEW_FILE_START, len)?))
    }

    pub fn open(ctx: &TableContext, path: &Path, meta: &ViewMeta) -> Result<Arc<View>> {
        let io = |e| Error::io("open", path, e);
        let file = ctx.vfs.open(path, OpenMode::Read).map_err(io)?;
        let len = file.len().map_err(io)?;
        if len != meta.file_bytes {
            let detail = format!("the view file has {len} bytes, the manifest says {}", meta.file_bytes);
            return Err(Error::corruption(path, len, detail));
        }
        let mut header = [0; FILE_HEADER_LEN];
        read_exact(&*file, path, &mut header, 0)?;
        let header = FileHeader::decode(FileKind::View, &header, path, 0)?;
        if header.file_id != meta.file_id {
            return Err(Error::corruption(path, 32, "the view file's id is not the one in the manifest"));
        }
        let view = View::open_section(ctx, file, path, meta.number, meta.file_id, VIEW_FILE_START, len)?;
        if view.meta != *meta {
            let detail = format!("the view's footer says {:?}, the manifest {meta:?}", view.meta);
            return Err(Error::corruption(path, len, detail));
        }
        Ok(Arc::new(view))
    }

    pub fn open_embedded(ctx: &TableContext, run: &Arc<Run>) -> Result<Arc<View>> {
        let meta = run.meta();
        let corrupt = |detail: &str| Error::corruption(run.path(), meta.view_offset, detail);
        let end = meta.view_offset.checked_add(meta.view_bytes).filter(|&end| end <= meta.file_bytes);
        let end = end.ok_or_else(|| corrupt("the run's view lies outside the file"))?;
        let file = run.file().clone();
        let mut view = View::open_section(ctx, file, run.path(), 0, meta.file_id, meta.view_offset, end)?;
        view.meta.file_bytes = meta.view_bytes;
        if run.given_sequence() > 0 {
            view.meta.max_sequence = run.given_sequence();
        }
        if view.layout.run_count != 1 || view.meta.entries != meta.entries {
            return Err(corrupt("the run's view does not have the run's entries"));
        }
        Ok(Arc::new(view))
    }

    fn open_section(
        ctx: &TableContext,
        file: Arc<dyn File>,
        path: &Path,
        number: u64,
        file_id: FileId,
        start: u64,
        end: u64,
    ) -> Result<View> {
        let corrupt = |offset, detail: &str| Error::corruption(path, offset, detail);
        let footer_at = end.checked_sub(FOOTER_BYTES as u64).filter(|&at| at >= start);
        let footer_at = footer_at.ok_or_else(|| corrupt(start, "the view is too short for a footer"))?;
        let mut footer = [0; FOOTER_BYTES];
        read_exact(&*file, path, &mut footer, footer_at)?;
        let footer = Footer::decode(&footer, file_id, footer_at)
            .ok_or_else(|| corrupt(footer_at, "the view's footer does not match its checksum"))?;
        let layout = Layout::new(footer.run_count as usize)
            .ok_or_else(|| corrupt(footer_at, "the view has an impossible number of runs"))?;
        let pages = layout.pages(footer.segments);
        let directory_at = start.saturating_add(u64::from(pages) * PAGE_BYTES as u64);
        if directory_at.checked_add(footer.directory_bytes) != Some(footer_at) {
            return Err(corrupt(footer_at, "the view's parts do not fill its section"));
        }
        // The file's length now bounds this length.
        let mut directory = vec![0; footer.directory_bytes as usize];
        read_exact(&*file, path, &mut directory, directory_at)?;
        if checksum(file_id, directory_at, &directory) != footer.directory_checksum {
            return Err(corrupt(directory_at, "the view's directory does not match its checksum"));
        }
        let simd = Simd::detect();
        let directory = Directory::decode(&directory, footer.segments, simd)
            .filter(|d| d.entries() == footer.entries)
            .ok_or_else(|| corrupt(directory_at, "the view's directory is malformed"))?;
        Ok(View {
            vfs: ctx.vfs.clone(),
            deferred_close: Arc::clone(&ctx.deferred_close),
            file,
            path: path.to_owned(),
            file_id,
            start,
            layout,
            directory,
            meta: footer.meta(number, file_id, end),
            pages: CacheSlots::with_notes(&ctx.cache, (0..pages).map(|_| UnitNote::new(PAGE_BYTES, 0))),
            simd,
            hash_index: OnceLock::new(),
            searches: AtomicU64::new(0),
            had_its_chance: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
            trigger: Arc::clone(&ctx.trigger),
            live_counts: LiveCounts::default(),
            first_blocks: FirstBlocks::default(),
            obsolete: AtomicBool::new(false),
        })
    }
}
