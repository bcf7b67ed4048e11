//! Prints any file of a database for people.
//!
//! The first bytes show the file's kind. Inspection writes nothing, takes no lock and reads no
//! other file, so it works on a copied file. Damage is an error with its offset, after all readable
//! data.

use crate::{
    base::{Content, EntryKind, EntryRef, Error, Result},
    cache::BlockCache,
    codec::{FILE_HEADER_LEN, FileHeader, FileKind},
    commit::decode_group,
    platform::{File, OpenMode, Vfs},
    table::{
        Position, Run, TableContext,
        blob::{BlobFile, BlobRef, Pieces, ScanItem},
    },
    version::{CURRENT_NAME, Change, Current, read_records},
    view::View,
    wal,
};
use std::{io::Write, path::Path, sync::Arc};

/// Limits of the output.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InspectOptions {
    /// Maximum entries, records or segments to print. The totals are always printed.
    pub rows_max: usize,
    /// Maximum bytes to print of a key or value.
    pub bytes_max: usize,
}

impl Default for InspectOptions {
    fn default() -> Self {
        InspectOptions { rows_max: 100, bytes_max: 64 }
    }
}

/// Prints the file at `path`, of any kind.
pub fn inspect_file(path: &Path, out: &mut dyn Write, options: InspectOptions) -> Result<()> {
    inspect_file_of(Arc::new(crate::platform::SystemVfs::new()), path, out, options)
}

/// Prints the file at `path` in a file system.
pub fn inspect_file_of(vfs: Arc<dyn Vfs>, path: &Path, out: &mut dyn Write, options: InspectOptions) -> Result<()> {
    let file = vfs.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
    let mut bytes = [0; FILE_HEADER_LEN];
    let len = file.read_at(&mut bytes, 0).map_err(|e| Error::io("read", path, e))?;
    if is_unused_segment(path, &bytes[..len]) {
        return Printer { path, out, options }.line(format_args!("a log segment that has not been used yet"));
    }
    let kind = FileKind::of_magic(&bytes[..len]).ok_or_else(|| unknown_kind(path))?;
    let context = TableContext::new(Arc::clone(&vfs), BlockCache::new(8 << 20));
    let mut printer = Printer { path, out, options };
    if kind != FileKind::Wal {
        let header = FileHeader::decode(kind, &bytes[..len], path, 0)?;
        printer
            .line(format_args!("{kind:?} file, format version {}, file id {:#018x}", header.version, header.file_id))?;
    }
    match kind {
        FileKind::Wal => printer.wal(&*vfs),
        FileKind::Run => printer.run(&context),
        FileKind::View => printer.view(&context),
        FileKind::Blob => printer.blob(&context),
        FileKind::Manifest => printer.manifest(&*file),
        FileKind::Current => printer.current(&*file),
        FileKind::Backup => printer.line(format_args!("a backup: `braid backup list` and `verify` tell of it")),
        FileKind::Reserve => printer.line(format_args!("a reserve of disk space: what follows the header is not read")),
        FileKind::Dump => printer.line(format_args!("a dump: `braid load --check` tells of it")),
    }
}

/// A preallocated segment has only zeros.
fn is_unused_segment(path: &Path, first_bytes: &[u8]) -> bool {
    let is_log = path.extension().is_some_and(|extension| extension == "wal") && number_of(path) > 0;
    is_log && !first_bytes.is_empty() && first_bytes.iter().all(|&byte| byte == 0)
}

/// The error for foreign first bytes: corruption if the name is one of ours.
fn unknown_kind(path: &Path) -> Error {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_numbered =
        name.starts_with("MANIFEST-") || [".wal", ".run", ".view", ".blob"].iter().any(|e| name.ends_with(e));
    if name == CURRENT_NAME || is_numbered && number_of(path) > 0 {
        return Error::corruption(path, 0, "these are not the first bytes of any file of a BraidDB database");
    }
    Error::InvalidArgument(format!(
        "{} is no file of BraidDB that could be shown: those are CURRENT, MANIFEST-*, *.wal, *.run, *.view and *.blob",
        path.display()
    ))
}

fn number_of(path: &Path) -> u64 {
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    stem.trim_start_matches("MANIFEST-").parse().unwrap_or(0)
}

struct Printer<'a> {
    path: &'a Path,
    out: &'a mut dyn Write,
    options: InspectOptions,
}

impl Printer<'_> {
    fn line(&mut self, text: std::fmt::Arguments<'_>) -> Result<()> {
        writeln!(self.out, "{text}").map_err(|e| Error::io("print", self.path, e))
    }

    fn show(&self, bytes: &[u8]) -> String {
        let shown = &bytes[..bytes.len().min(self.options.bytes_max)];
        let more = if shown.len() < bytes.len() { format!("… ({} bytes)", bytes.len()) } else { String::new() };
        format!("\"{}\"{more}", shown.escape_ascii())
    }

    fn show_key(&self, key: &[u8]) -> String {
        match crate::base::split_internal_key(key) {
            Some((tree, user_key)) => format!("{}/{}", tree.0, self.show(user_key)),
            None => self.show(key),
        }
    }

    fn show_value(&self, kind: EntryKind, value: &[u8]) -> String {
        match (kind, BlobRef::decode(value)) {
            (EntryKind::BlobRef, Some(blob)) => {
                format!("-> {:06}.blob at {}, {} bytes", blob.file, blob.offset, blob.len)
            }
            (EntryKind::Expiring, _) => match Content::of(kind, value) {
                Some(Content { kind, value, expires_us }) => {
                    let expires_us = expires_us.unwrap_or_default();
                    format!("until {expires_us} us since 1970: {kind:?} {}", self.show_value(kind, value))
                }
                None => self.show(value),
            },
            (EntryKind::Stream, _) => match Pieces::decode(value) {
                Some(pieces) => {
                    let mut files: Vec<u64> = pieces.list.iter().map(|piece| piece.file).collect();
                    files.dedup();
                    format!("-> {} bytes in {} pieces, in blob files {files:?}", pieces.len(), pieces.list.len())
                }
                None => self.show(value),
            },
            (EntryKind::RangeDelete, _) => format!(".. {}", self.show_key(value)),
            _ => self.show(value),
        }
    }

    fn entry(&mut self, position: Position, entry: &EntryRef<'_>) -> Result<()> {
        let (key, value) = (self.show_key(entry.key), self.show_value(entry.kind, entry.value));
        let Position { block, slot } = position;
        self.line(format_args!("  {block}:{slot} {key} @{} {:?} {value}", entry.sequence, entry.kind))
    }

    fn run(&mut self, context: &TableContext) -> Result<()> {
        let run = Run::open_unlisted(context, self.path, number_of(self.path))?;
        let meta = run.meta();
        self.line(format_args!(
            "{} entries ({} tombstones) in {} blocks, {} range tombstones, {} bytes of keys and values in a file of {}",
            meta.entries, meta.tombstones, meta.blocks, meta.range_tombstones, meta.raw_bytes, meta.file_bytes
        ))?;
        let (smallest, largest) = (self.show_key(&meta.smallest), self.show_key(&meta.largest));
        self.line(format_args!(
            "keys {smallest} to {largest}, sequence numbers {} to {}",
            meta.min_sequence, meta.max_sequence
        ))?;
        self.line(format_args!(
            "key block: {}; own view: {} bytes at {}",
            if meta.has_key_block { "yes" } else { "no" },
            meta.view_bytes,
            meta.view_offset
        ))?;
        if let (Some(earliest), Some(latest)) = (meta.expiries.earliest(), meta.expiries.latest()) {
            let count = meta.expiries.entries;
            self.line(format_args!("{count} entries expire, from {earliest} to {latest} us since 1970"))?;
        }
        for used in &meta.blob_uses {
            self.line(format_args!(
                "refers to {} values, {} bytes, in {:06}.blob",
                used.values, used.bytes, used.file
            ))?;
        }
        let tombstones = Arc::clone(run.range_tombstones());
        for t in tombstones.iter().take(self.options.rows_max) {
            let (start, end) = (self.show_key(&t.start), self.show_key(&t.end));
            self.line(format_args!("  deleted {start} .. {end} @{}", t.sequence))?;
        }
        let mut scan = run.scan(Position::default());
        let mut rows = 0;
        while rows < self.options.rows_max && scan.next()? {
            self.entry(scan.position(), &scan.entry())?;
            rows += 1;
        }
        self.rest(rows as u64, meta.entries, "entries")?;
        if meta.view_bytes > 0 {
            self.line(format_args!("own view:"))?;
            self.segments(&View::open_embedded(context, &run)?)?;
        }
        Ok(())
    }

    fn rest(&mut self, shown: u64, all: u64, what: &str) -> Result<()> {
        if shown < all { self.line(format_args!("  … and {} more {what}", all - shown)) } else { Ok(()) }
    }

    fn view(&mut self, context: &TableContext) -> Result<()> {
        let view = View::open_unlisted(context, self.path, number_of(self.path))?;
        self.segments(&view)
    }

    fn segments(&mut self, view: &Arc<View>) -> Result<()> {
        let meta = view.meta();
        self.line(format_args!(
            "{} entries ({} stale, {} tombstones) of {} runs in {} segments, highest sequence number {}",
            meta.entries, meta.stale, meta.tombstones, meta.run_count, meta.segments, meta.max_sequence
        ))?;
        let (mut shown, mut failed) = (0, None);
        let rows_max = self.options.rows_max;
        view.dump(&mut |segment| {
            let cursors: Vec<String> = segment.cursors.iter().map(|c| format!("{}:{}", c.block, c.slot)).collect();
            let continued = if segment.is_continuation { ", continued" } else { "" };
            let printed = self.line(format_args!(
                "  segment {}{continued}: {} entries, cursors {}, base {}\n    selectors {}\n    differences {}\n    tags {}",
                segment.number,
                segment.selectors.len(),
                cursors.join(" "),
                segment.base,
                hex(&segment.selectors),
                hex(&segment.differences),
                hex(&segment.tags),
            ));
            shown += 1;
            failed = printed.err();
            failed.is_none() && shown < rows_max
        })?;
        if let Some(e) = failed {
            return Err(e);
        }
        self.rest(shown as u64, u64::from(meta.segments), "segments")
    }

    fn blob(&mut self, ctx: &TableContext) -> Result<()> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        let file = BlobFile::open(ctx, dir, number_of(self.path))?;
        let (mut rows, mut shown) = (0u64, 0u64);
        let rows_max = self.options.rows_max as u64;
        file.scan(&mut |item| {
            rows += 1;
            if rows > rows_max {
                return Ok(());
            }
            shown = rows;
            match item {
                ScanItem::Record { reference: r, key } => {
                    let key = self.show_key(&key);
                    self.line(format_args!(
                        "  at {}: {key}, {} bytes, {} stored, {:?}",
                        r.offset, r.len, r.stored_len, r.compression
                    ))
                }
                ScanItem::Broken { reference: r } => self.line(format_args!("  at {}: a broken record", r.offset)),
                ScanItem::Hole { range } => {
                    self.line(format_args!("  at {}: {} bytes of no record", range.start, range.end - range.start))
                }
            }
        })?;
        self.rest(shown, rows, "items")
    }

    fn manifest(&mut self, file: &dyn File) -> Result<()> {
        let len = file.len().map_err(|e| Error::io("read", self.path, e))?;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0).map_err(|e| Error::io("read", self.path, e))?;
        let (records, end) = read_records(&bytes, FILE_HEADER_LEN as u64, self.path)?;
        for record in &records {
            self.line(format_args!("edit at {}:", record.offset))?;
            for change in &record.edit.changes {
                self.change(change)?;
            }
        }
        self.line(format_args!("{} edits end at byte {end} of {len}", records.len()))
    }

    fn change(&mut self, change: &Change) -> Result<()> {
        match change {
            Change::NewRun(m) => {
                let (smallest, largest) = (self.show_key(&m.smallest), self.show_key(&m.largest));
                self.line(format_args!(
                    "  new run {:06}: {} entries, {} bytes, keys {smallest} to {largest}, sequence numbers {} to {}",
                    m.number, m.entries, m.file_bytes, m.min_sequence, m.max_sequence
                ))
            }
            Change::NewPartition { id, start, end } => {
                let (start, end) = (self.show_key(start), end.as_ref().map(|e| self.show_key(e)));
                self.line(format_args!("  new partition {id}: {start} to {}", end.as_deref().unwrap_or("the end")))
            }
            Change::SetRuns { partition, runs, loose, view } => {
                let view = view.as_ref().map_or("no view".to_owned(), |v| {
                    format!("view {:06} of {} entries, {} stale", v.number, v.entries, v.stale)
                });
                self.line(format_args!("  partition {partition}: runs {runs:?}, loose {loose:?}, {view}"))
            }
            other => self.line(format_args!("  {other:?}")),
        }
    }

    fn current(&mut self, file: &dyn File) -> Result<()> {
        for (index, slot) in Current::read_slots(file, self.path)?.into_iter().enumerate() {
            match slot {
                Ok(slot) => self.line(format_args!(
                    "slot {index}: MANIFEST-{:06}, {} bytes of it synced, generation {}",
                    slot.manifest, slot.manifest_len, slot.generation
                ))?,
                Err(e) => self.line(format_args!("slot {index}: {e}"))?,
            }
        }
        Ok(())
    }

    fn wal(&mut self, vfs: &dyn Vfs) -> Result<()> {
        let mut records = 0u64;
        let rows_max = self.options.rows_max as u64;
        let path = self.path;
        let dump = wal::inspect_segment(vfs, path, &mut |offset, record| {
            records += 1;
            if records > rows_max {
                return Ok(());
            }
            let header = &record.header;
            let committed = match header.flags.is_group() {
                true => format!(", committed at {} us", header.commit_time_us),
                false => String::new(),
            };
            self.line(format_args!(
                "  at {offset}: sequence numbers {} to {}, {} bytes ({} stored), {:?}{committed}, log durable to {}",
                header.first_sequence,
                header.last_sequence,
                header.raw_len,
                header.stored_len,
                header.flags,
                header.durable_lsn
            ))?;
            let payload = wal::record_payload(vfs, path, offset, record)?;
            self.operations(header.first_sequence, &payload)
        })?;
        self.line(format_args!("{:?}", dump.header))?;
        self.line(format_args!(
            "{records} records end at byte {}; {}{} whole records beyond",
            dump.end_offset,
            if dump.remains { "something that looks like a record follows; " } else { "" },
            dump.records_beyond
        ))
    }

    fn operations(&mut self, first_sequence: u64, payload: &[u8]) -> Result<()> {
        let mut lines = Vec::new();
        decode_group(payload, |batch, op| {
            if lines.len() < self.options.rows_max {
                let (key, value) = (self.show_key(op.key), self.show_value(op.kind, op.value));
                lines.push(format!("    {key} @{} {:?} {value}", first_sequence + batch, op.kind));
            }
        });
        lines.iter().try_for_each(|line| self.line(format_args!("{line}")))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")
}
