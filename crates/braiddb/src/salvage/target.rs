//! Writes the new database, like a load of a dump.
//!
//! First a marker that the directory is unfinished, then an empty database whose sequence numbers
//! continue after the damaged one's, then each tree by one commit. The marker is removed at the
//! end: after a crash the directory does not open. An error removes everything.

use super::{
    losses::{Losses, loss, lost_key},
    merge::Record,
    report::{Loss, LossKind, SalvagedTree},
};
use crate::{
    base::{Content, Corruption, EntryKind, Error, FileNumber, Result, SequenceNumber, split_internal_key},
    db::{
        Db, DumpedCatalog, DumpedContent, DumpedEntry, EntryLoader, EntrySink, NewDirectory, Settings, split_multi_key,
        unescape,
    },
    table::{
        TableContext,
        blob::{BlobFile, Pieces, blob_path},
    },
    version::{Change, Edit, Layout},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Longer values are passed in pieces.
const LONG_LEN: usize = 256 << 10;

const BLOB_FILES_MAX: usize = 64;

/// An unnamed tree is a multi-tree if this many records can be pairs.
const SAMPLE_RECORDS: usize = 1000;

struct Blobs {
    context: TableContext,
    dir: PathBuf,
    open: BTreeMap<FileNumber, std::result::Result<Arc<BlobFile>, String>>,
}

struct LostValue {
    path: PathBuf,
    offset: Option<u64>,
    detail: String,
}

impl Blobs {
    fn file(&mut self, number: FileNumber) -> std::result::Result<Arc<BlobFile>, String> {
        if self.open.len() > BLOB_FILES_MAX {
            self.open.clear();
        }
        let (context, dir) = (&self.context, &self.dir);
        let open = || BlobFile::open_damaged(context, dir, number).map(Arc::new).map_err(|e| detail_of(&e));
        self.open.entry(number).or_insert_with(open).clone()
    }

    fn read(&mut self, pieces: &Pieces, sink: &mut dyn FnMut(&[u8])) -> std::result::Result<(), LostValue> {
        for piece in &pieces.list {
            let path = blob_path(&self.dir, piece.file);
            let read = match self.file(piece.file) {
                Ok(file) => file.read_streaming(piece, sink).map_err(|e| detail_of(&e)),
                Err(detail) => Err(detail),
            };
            read.map_err(|detail| LostValue { path, offset: Some(piece.offset), detail })?;
        }
        Ok(())
    }
}

fn detail_of(error: &Error) -> String {
    match error {
        Error::Corruption(Corruption { detail, .. }) => detail.clone(),
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => "the file is missing".to_owned(),
        error => error.to_string(),
    }
}

pub struct Target<'a> {
    settings: Settings,
    dir: &'a Path,
    db: Option<Db>,
    sequence: SequenceNumber,
    blobs: Blobs,
    loader: Option<(u32, EntryLoader)>,
    trees: BTreeMap<u32, (SalvagedTree, bool)>,
    names: BTreeSet<String>,
    next_tree: u32,
    sample: Vec<Record>,
    sampled: Option<u32>,
    pub records: u64,
}

pub fn empty_layout(source: &Layout, sequence: SequenceNumber, time_us: u64) -> Layout {
    let mut layout = Layout {
        next_file: 1,
        flushed: sequence,
        last_sequence: sequence,
        time_us,
        time_ahead_us: source.time_ahead_us,
        ..Layout::default()
    };
    let whole = Change::NewPartition { id: 0, start: Vec::new(), end: None };
    layout.apply(&Edit::new(vec![whole])).unwrap_or_else(|rule| unreachable!("an empty layout: {rule}"));
    layout
}

impl<'a> Target<'a> {
    pub fn begin(
        settings: &Settings,
        new: &mut NewDirectory,
        (from, dir): (&Path, &'a Path),
        context: &TableContext,
        layout: &Layout,
        catalog: &DumpedCatalog,
    ) -> Result<Target<'a>> {
        new.make_database(layout)?;
        new.unlock();
        let settings = Settings {
            is_restoring: true,
            create: false,
            read_only: false,
            log_archive: None,
            log_retention_bytes: None,
            log_retention_age_us: None,
            reader_age_max_ns: u64::MAX,
            ..settings.clone()
        };
        let mut target = Target {
            settings,
            dir,
            db: None,
            sequence: layout.last_sequence,
            blobs: Blobs { context: context.clone(), dir: from.to_owned(), open: BTreeMap::new() },
            loader: None,
            trees: BTreeMap::new(),
            names: BTreeSet::new(),
            next_tree: catalog.next_tree,
            sample: Vec::new(),
            sampled: None,
            records: 0,
        };
        target.add_trees(catalog, false)?;
        Ok(target)
    }

    fn add_trees(&mut self, catalog: &DumpedCatalog, is_name_lost: bool) -> Result<()> {
        if let Some(db) = self.db.take() {
            db.close()?;
        }
        let db = Db::open_with(self.settings.clone(), self.dir)?;
        db.load_catalog(catalog)?;
        db.close()?;
        self.db = Some(Db::open_with(self.settings.clone(), self.dir)?);
        for tree in &catalog.trees {
            let name = tree.name.clone();
            self.names.insert(name.clone());
            let salvaged = SalvagedTree { id: tree.id, name, is_name_lost, ..SalvagedTree::default() };
            self.trees.insert(tree.id, (salvaged, tree.multi));
        }
        Ok(())
    }

    pub fn has(&self, tree: u32) -> bool {
        self.trees.contains_key(&tree)
    }

    pub fn names(&self) -> BTreeMap<u32, String> {
        self.trees.iter().map(|(id, (tree, _))| (*id, tree.name.clone())).collect()
    }

    pub fn take(&mut self, record: Record, losses: &mut Losses) -> Result<()> {
        let Some((tree, _)) = split_internal_key(&record.key) else { return Ok(()) };
        if self.sampled.is_some_and(|sampled| sampled != tree.0) {
            self.end_sample(losses)?;
        }
        if !self.has(tree.0) {
            self.sampled = Some(tree.0);
            let is_pair = could_be_pair(&record);
            self.sample.push(record);
            if !is_pair || self.sample.len() >= SAMPLE_RECORDS {
                self.end_sample(losses)?;
            }
            return Ok(());
        }
        self.load(&record, tree.0, losses)
    }

    fn end_sample(&mut self, losses: &mut Losses) -> Result<()> {
        let Some(id) = self.sampled.take() else { return Ok(()) };
        self.end_tree()?;
        let multi = self.sample.iter().all(could_be_pair);
        let mut name = format!("lost-tree-{id}");
        while self.names.contains(&name) {
            name.push('-');
        }
        self.next_tree = self.next_tree.max(id.saturating_add(1));
        let mut catalog = DumpedCatalog { next_tree: self.next_tree, ..DumpedCatalog::default() };
        catalog.add_unknown_tree(id, name, multi);
        self.add_trees(&catalog, true)?;
        for record in std::mem::take(&mut self.sample) {
            self.load(&record, id, losses)?;
        }
        Ok(())
    }

    fn end_tree(&mut self) -> Result<()> {
        match self.loader.take() {
            Some((_, loader)) => loader.install().map(drop),
            None => Ok(()),
        }
    }

    fn load(&mut self, record: &Record, tree: u32, losses: &mut Losses) -> Result<()> {
        if self.loader.as_ref().is_some_and(|(present, _)| *present != tree) {
            self.end_tree()?;
        }
        if self.loader.is_none() {
            let db = self.db.as_ref().ok_or_else(|| Error::NotFound("the new database is closed".to_owned()))?;
            let mut loader = db.entry_loader(tree, self.sequence)?;
            loader.take_bad_operands(true);
            self.loader = Some((tree, loader));
        }
        let Some((salvaged, multi)) = self.trees.get_mut(&tree) else { return Ok(()) };
        let Some((_, loader)) = &mut self.loader else { return Ok(()) };
        match (Loading { blobs: &mut self.blobs, loader, multi: *multi }).record(record)? {
            Ok(bytes) => {
                salvaged.records += 1;
                salvaged.bytes += bytes;
                self.records += 1;
            }
            Err(LostValue { path, offset, detail }) => {
                let key = lost_key(&record.key);
                let lost = loss(LossKind::Value, path, detail);
                let commits = Some((record.sequence, record.sequence));
                losses.add(Loss { offset, from: key.clone(), to: key, commits, records: Some(1), ..lost });
            }
        }
        Ok(())
    }

    pub fn finish(mut self, losses: &mut Losses) -> Result<Vec<SalvagedTree>> {
        self.end_sample(losses)?;
        self.end_tree()?;
        if let Some(db) = self.db.take() {
            db.flush()?;
            db.release_held_blobs();
            db.close()?;
        }
        let settings = Settings { read_only: true, background_threads: 0, ..self.settings };
        Db::open_with(settings, self.dir)?.close()?;
        Ok(self.trees.into_values().map(|(tree, _)| tree).collect())
    }
}

fn could_be_pair(record: &Record) -> bool {
    let user_key = record.key.get(4..).unwrap_or_default();
    record.kind == EntryKind::Value && record.value.is_empty() && split_multi_key(user_key).is_some()
}

struct Loading<'a> {
    blobs: &'a mut Blobs,
    loader: &'a mut EntryLoader,
    multi: bool,
}

type Outcome = std::result::Result<u64, LostValue>;

fn misunderstood(detail: &str) -> LostValue {
    LostValue { path: PathBuf::new(), offset: None, detail: detail.to_owned() }
}

impl Loading<'_> {
    fn record(&mut self, record: &Record) -> Result<Outcome> {
        let user_key = record.key.get(4..).unwrap_or_default();
        if self.multi {
            return self.pair(user_key, record);
        }
        if record.kind != EntryKind::Merge {
            let (kind, value) = match self.readable(record.kind, &record.value, &record.copies) {
                Ok(found) => found,
                Err(lost) => return Ok(Err(lost)),
            };
            return self.value(user_key, record.sequence, kind, value, false);
        }
        // The base is checked first: without it the operands would give another value.
        let mut beneath = None;
        if let Some((sequence, kind, value)) = &record.beneath {
            match self
                .readable(*kind, value, &record.copies)
                .and_then(|found| self.check(found.0, found.1).map(|()| found))
            {
                Ok((kind, value)) => beneath = Some((*sequence, kind, value)),
                Err(lost) => return Ok(Err(lost)),
            }
        }
        let content = match record.value.len() < LONG_LEN {
            true => DumpedContent::Operands(&record.value),
            false => DumpedContent::LongOperands(record.value.len() as u64),
        };
        self.loader.entry(&entry(user_key, record.sequence, None, false, content))?;
        if content.is_long() {
            record.value.chunks(LONG_LEN).try_for_each(|piece| self.loader.piece(piece))?;
        }
        let bytes = (user_key.len() + record.value.len()) as u64;
        match beneath {
            None => Ok(Ok(bytes)),
            Some((sequence, kind, value)) => {
                Ok(self.value(user_key, sequence, kind, value, true)?.map(|beneath| bytes + beneath))
            }
        }
    }

    /// A single entry is not checked.
    fn readable<'r>(
        &mut self,
        kind: EntryKind,
        value: &'r [u8],
        copies: &'r [(EntryKind, Vec<u8>)],
    ) -> std::result::Result<(EntryKind, &'r [u8]), LostValue> {
        if copies.is_empty() {
            return Ok((kind, value));
        }
        let lost = match self.check(kind, value) {
            Ok(()) => return Ok((kind, value)),
            Err(lost) => lost,
        };
        let found = copies.iter().find(|(kind, value)| self.check(*kind, value).is_ok());
        found.map(|(kind, value)| (*kind, value.as_slice())).ok_or(lost)
    }

    fn pair(&mut self, user_key: &[u8], record: &Record) -> Result<Outcome> {
        let Some((value_at, is_escaped)) = split_multi_key(user_key).filter(|_| record.kind == EntryKind::Value) else {
            return Ok(Err(misunderstood("the record cannot be one of a tree of many values")));
        };
        let (key, value) =
            (user_key.get(..value_at - 2).unwrap_or_default(), user_key.get(value_at..).unwrap_or_default());
        let mut unescaped = Vec::new();
        if is_escaped {
            unescape(key, &mut unescaped);
        }
        let key = if is_escaped { &unescaped } else { key };
        self.loader.entry(&entry(key, record.sequence, None, false, DumpedContent::Value(value)))?;
        Ok(Ok((key.len() + value.len()) as u64))
    }

    fn check(&mut self, kind: EntryKind, value: &[u8]) -> std::result::Result<(), LostValue> {
        let content = Content::of(kind, value).ok_or_else(|| misunderstood("the entry cannot be understood"))?;
        if content.kind == EntryKind::Value {
            return Ok(());
        }
        let pieces = Pieces::of(&content).ok_or_else(|| misunderstood("the blob reference cannot be understood"))?;
        self.blobs.read(&pieces, &mut |_| {})
    }

    fn value(
        &mut self,
        key: &[u8],
        sequence: SequenceNumber,
        kind: EntryKind,
        value: &[u8],
        is_beneath: bool,
    ) -> Result<Outcome> {
        let Some(content) = Content::of(kind, value) else {
            return Ok(Err(misunderstood("the entry cannot be understood")));
        };
        let expires_us = content.expires_us;
        let entry = |content| entry(key, sequence, expires_us, is_beneath, content);
        if content.kind == EntryKind::Value {
            self.plain(entry, content.value)?;
            return Ok(Ok((key.len() + content.value.len()) as u64));
        }
        let Some(pieces) = Pieces::of(&content) else {
            return Ok(Err(misunderstood("the blob reference cannot be understood")));
        };
        let len = pieces.len();
        if len < LONG_LEN as u64 {
            let mut whole = Vec::new();
            if let Err(lost) = self.blobs.read(&pieces, &mut |bytes| whole.extend_from_slice(bytes)) {
                return Ok(Err(lost));
            }
            self.plain(entry, &whole)?;
            return Ok(Ok(key.len() as u64 + len));
        }
        // A begun value must be completed, so it is checked first.
        if let Err(lost) = self.blobs.read(&pieces, &mut |_| {}) {
            return Ok(Err(lost));
        }
        self.loader.entry(&entry(DumpedContent::LongValue(len)))?;
        let mut loaded = Ok(());
        let loader = &mut *self.loader;
        let read = self.blobs.read(&pieces, &mut |bytes| {
            if loaded.is_ok() && !bytes.is_empty() {
                loaded = loader.piece(bytes);
            }
        });
        loaded?;
        read.map_err(|lost| Error::corruption(lost.path, lost.offset.unwrap_or(0), lost.detail))?;
        Ok(Ok(key.len() as u64 + len))
    }

    fn plain<'e>(&mut self, entry: impl Fn(DumpedContent<'e>) -> DumpedEntry<'e>, value: &'e [u8]) -> Result<()> {
        if value.len() < LONG_LEN {
            return self.loader.entry(&entry(DumpedContent::Value(value)));
        }
        self.loader.entry(&entry(DumpedContent::LongValue(value.len() as u64)))?;
        value.chunks(LONG_LEN).try_for_each(|piece| self.loader.piece(piece))
    }
}

fn entry<'e>(
    key: &'e [u8],
    sequence: SequenceNumber,
    expires_us: Option<u64>,
    is_beneath: bool,
    content: DumpedContent<'e>,
) -> DumpedEntry<'e> {
    DumpedEntry { key, sequence, expires_us, is_beneath, content }
}
