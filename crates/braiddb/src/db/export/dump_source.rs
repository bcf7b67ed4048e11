//! Reads the entries of all trees at one snapshot for a dump, range by range.
//!
//! Entries are read raw, with operands beside their base, so no merge function is needed. A range
//! changes to a newer read state every few rows, which releases files and memtables of older ones.

use super::dump_gaps::DumpGap;
use crate::{
    base::{Content, Corruption, Cursor as _, EntryKind, EntryRef, Error, Result, SequenceNumber, TreeId, limits},
    codec::Operands,
    db::{
        engine::{
            key::{KeyBuf, TREE_ID_LEN},
            read_hold::Hold,
            root::Engine,
        },
        handles::{
            database::Db,
            multi::tree::{split, unescape},
            ranges,
            snapshot::Snapshot,
            streams::reader::StreamReader,
        },
        load::dumped::{DumpedCatalog, DumpedContent, DumpedEntry, DumpedTree, EntrySink},
        read::{
            healing::{self, HEAL_TRIES},
            merge_operands::{FoundOperands, pile_up},
            point_read::{self, has_expired},
        },
    },
    read::{ReadState, ScanCursor},
    table::blob::Pieces,
};
use parking_lot::Mutex;
use std::{collections::VecDeque, sync::Arc, thread::JoinHandle};

/// Rows and bytes between two changes of the read state.
const ROWS_PER_STATE: usize = 4096;
const BYTES_PER_STATE: usize = 4 << 20;

/// Maximum number of parts in one division; a large part is divided again.
const CUTS_MAX: usize = 64;

const SHOWN_LEN_MAX: usize = 48;

/// Longer values are passed in pieces.
const LONG_LEN: usize = 256 << 10;

const PIECE_LEN: usize = 256 << 10;

const _: () = assert!(limits::MAX_KEY_LEN < LONG_LEN);

#[derive(Clone, Debug)]
pub struct DumpSource {
    db: Db,
    hold: Hold,
    skips_damaged: bool,
    gaps: Arc<Mutex<Vec<DumpGap>>>,
    failing: Arc<Mutex<Vec<Error>>>,
}

impl Db {
    pub(crate) fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<JoinHandle<()>> {
        let engine = self.engine();
        engine.settings.runtime.spawn(name, body).map_err(|e| Error::io("start a thread for", &engine.dir, e))
    }
}

impl DumpSource {
    pub fn of(snapshot: &Snapshot) -> DumpSource {
        DumpSource {
            db: snapshot.db().clone(),
            hold: snapshot.hold().clone(),
            skips_damaged: false,
            gaps: Arc::default(),
            failing: Arc::default(),
        }
    }

    pub fn skip_damaged(&mut self) {
        self.skips_damaged = true;
    }

    pub fn take_gaps(&self) -> Vec<DumpGap> {
        std::mem::take(&mut *self.gaps.lock())
    }

    pub(in crate::db) fn add_gap(&self, gap: DumpGap) {
        self.gaps.lock().push(gap);
    }

    pub(in crate::db) fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Takes the errors of records read since the last call whose merge function fails.
    pub fn take_failing(&self) -> Vec<Error> {
        std::mem::take(&mut *self.failing.lock())
    }

    pub(in crate::db) fn engine(&self) -> &Arc<Engine> {
        self.db.engine()
    }

    pub fn db(&self) -> &Db {
        &self.db
    }

    pub fn sequence(&self) -> SequenceNumber {
        self.hold.sequence()
    }

    pub fn incarnation(&self) -> u64 {
        self.engine().log.incarnation
    }

    /// Returns the time for expiry, in microseconds since 1970, and its lead over the wall clock.
    pub fn time_us(&self) -> (u64, u64) {
        (self.hold.held().taken_us, self.engine().ahead_us())
    }

    pub fn background_threads(&self) -> usize {
        self.engine().settings.background_threads
    }

    pub fn catalog(&self) -> Result<DumpedCatalog> {
        let mut taken =
            CatalogSink { source: self, catalog: DumpedCatalog { next_tree: 1, ..DumpedCatalog::default() } };
        let mut range = DumpRange::over(TreeId::CATALOG, false);
        while range.read(self, &mut taken)? {}
        let mut catalog = taken.catalog;
        catalog.trees.sort_by_key(|tree| tree.id);
        let used = catalog.trees.last().map_or(1, |tree| tree.id.saturating_add(1));
        catalog.next_tree = catalog.next_tree.max(used);
        Ok(catalog)
    }
}

struct CatalogSink<'a> {
    source: &'a DumpSource,
    catalog: DumpedCatalog,
}

impl EntrySink for CatalogSink<'_> {
    fn entry(&mut self, entry: &DumpedEntry<'_>) -> Result<()> {
        let dir = &self.source.engine().dir;
        let key = entry.key.escape_ascii();
        let bad = || Error::corruption(dir, 0, format!("the catalog entry \"{key}\" cannot be understood"));
        let (Some((tag, name)), DumpedContent::Value(value)) = (entry.key.split_first(), entry.content) else {
            return Err(bad());
        };
        match tag {
            b'n' => self.catalog.add_tree(name, value).ok_or_else(bad)?,
            _ => self.catalog.add_other(*tag, name, value).ok_or_else(bad)?,
        }
        Ok(())
    }

    fn piece(&mut self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub struct DumpRange {
    pub(in crate::db) tree: TreeId,
    multi: bool,
    pub(in crate::db) next: Vec<u8>,
    pub(in crate::db) end: Option<Vec<u8>>,
}

impl DumpRange {
    fn over(tree: TreeId, multi: bool) -> DumpRange {
        let end = tree.end_key().map(|end| end.to_vec());
        DumpRange { tree, multi, next: tree.first_key().to_vec(), end }
    }

    pub fn of(tree: &DumpedTree) -> DumpRange {
        DumpRange::over(TreeId(tree.id), tree.multi)
    }

    pub fn tree(&self) -> u32 {
        self.tree.0
    }

    /// Divides the range into parts of about `part_bytes`. Reads little.
    fn parts(self, source: &DumpSource, part_bytes: u64) -> Result<Vec<DumpRange>> {
        let points = ranges::points_every(source.engine(), &self.next, self.end.as_deref(), part_bytes, CUTS_MAX)?;
        let starts = std::iter::once(self.next.clone()).chain(points.iter().cloned());
        let ends = points.iter().cloned().map(Some).chain([self.end.clone()]);
        Ok(starts.zip(ends).map(|(next, end)| DumpRange { next, end, ..self.clone() }).collect())
    }

    /// Reads some entries; returns whether there may be more. A corruption error names the keys
    /// near the damage.
    pub fn read(&mut self, source: &DumpSource, sink: &mut dyn EntrySink) -> Result<bool> {
        for _ in 0..HEAL_TRIES {
            let mut reading = Reading { source, range: self, sink, is_taken: false, present: None };
            let done = reading.some();
            let (is_taken, present) = (reading.is_taken, reading.present.take());
            let error = match done {
                Ok(is_more) => return Ok(is_more),
                // Entries already passed to the sink cannot be repeated.
                Err(e) if is_taken => return Err(self.described(source, e)),
                Err(e) => match healing::set_aside_or_fail(source.engine(), e) {
                    Ok(()) => continue,
                    Err(e) => e,
                },
            };
            // Without a part of the catalog, trees would be missing.
            if source.skips_damaged && self.tree != TreeId::CATALOG && self.skip(source, &error, present)? {
                return Ok(self.end.as_ref().is_none_or(|end| self.next < *end));
            }
            return Err(self.described(source, error));
        }
        let reason = "views are damaged again and again";
        Err(self.described(source, Error::corruption(&source.engine().dir, 0, reason)))
    }

    /// Adds the tree and the unreadable keys to a corruption error, in the text form of the `braid`
    /// command.
    fn described(&self, source: &DumpSource, error: Error) -> Error {
        let shown = |key: &[u8]| {
            let key = key.get(TREE_ID_LEN..).unwrap_or_default();
            let more = if key.len() > SHOWN_LEN_MAX { "..." } else { "" };
            format!("{}{more}", text_form(&key[..key.len().min(SHOWN_LEN_MAX)]))
        };
        match error {
            Error::Corruption(Corruption { path, offset, detail, .. }) => {
                let end = self.end.as_deref().filter(|end| end.starts_with(&self.tree.first_key()));
                let end = end.map_or_else(|| "the tree's end".to_owned(), shown);
                let name = source.engine().catalog.name_of(self.tree);
                let tree =
                    name.map_or_else(|| format!("tree number {}", self.tree.0), |name| format!("the tree {name:?}"));
                let range = match shown(&self.next) {
                    start if start.is_empty() => format!("{tree}, keys up to {end}"),
                    start => format!("{tree}, keys from {start} up to {end}"),
                };
                Error::corruption(path, offset, format!("{detail} (met in {range})"))
            }
            other => other,
        }
    }
}

/// Printable ASCII is unchanged, a backslash doubled, other bytes are `\xNN`.
fn text_form(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

struct Reading<'a> {
    source: &'a DumpSource,
    range: &'a mut DumpRange,
    sink: &'a mut dyn EntrySink,
    /// Whether the sink has a part of the current key.
    is_taken: bool,
    present: Option<Vec<u8>>,
}

impl Reading<'_> {
    fn some(&mut self) -> Result<bool> {
        let engine = Arc::clone(self.source.engine());
        engine.health.check_open()?;
        let (state, at) = engine.state_for(Some(&self.source.hold))?;
        let state = Arc::clone(&state);
        let mut cursor = ScanCursor::new(&state, at, self.range.tree);
        cursor.seek(&self.range.next)?;
        let (mut rows, mut bytes) = (0, 0);
        while rows < ROWS_PER_STATE && bytes < BYTES_PER_STATE {
            if !cursor.valid() || self.range.end.as_deref().is_some_and(|end| cursor.entry_there().key >= end) {
                return Ok(false);
            }
            let entry = cursor.entry_there();
            if !has_expired(&entry, self.source.hold.held().taken_us) {
                if self.source.skips_damaged {
                    self.present = Some(entry.key.to_vec());
                }
                self.show(&state, &entry)?;
                self.present = None;
            }
            (rows, bytes) = (rows + 1, bytes + entry.key.len() + entry.value.len());
            self.range.next.clear();
            self.range.next.extend_from_slice(entry.key);
            self.range.next.push(0);
            self.is_taken = false;
            cursor.next_entry()?;
        }
        Ok(true)
    }

    fn show(&mut self, state: &ReadState, entry: &EntryRef<'_>) -> Result<()> {
        let misunderstood = || self.source.engine().storage.blobs.misunderstood();
        let user_key = entry.key.get(TREE_ID_LEN..).unwrap_or_default();
        if self.range.multi {
            let (value_at, is_escaped) = split(user_key).ok_or_else(misunderstood)?;
            let key = &user_key[..value_at - 2];
            let mut unescaped = Vec::new();
            if is_escaped {
                unescape(key, &mut unescaped);
            }
            let key = if is_escaped { &unescaped } else { key };
            let shown = Shown { key, sequence: entry.sequence, expires_us: None, is_beneath: false };
            return self.value(&shown, &user_key[value_at..]);
        }
        let content = Content::of(entry.kind, entry.value).ok_or_else(misunderstood)?;
        let shown =
            Shown { key: user_key, sequence: entry.sequence, expires_us: content.expires_us, is_beneath: false };
        match content.kind {
            EntryKind::Value => self.value(&shown, content.value),
            EntryKind::Merge => self.operands(state, entry, &shown),
            _ => {
                let pieces = Pieces::of(&content).ok_or_else(misunderstood)?;
                if pieces.len() < LONG_LEN as u64 {
                    let value = self.source.engine().storage.blobs.read_pieces(&pieces)?;
                    return self.value(&shown, &value);
                }
                self.long_value(entry.key, &shown, pieces.len())
            }
        }
    }

    fn value(&mut self, shown: &Shown<'_>, value: &[u8]) -> Result<()> {
        if value.len() < LONG_LEN {
            return self.entry(shown, DumpedContent::Value(value));
        }
        self.entry(shown, DumpedContent::LongValue(value.len() as u64))?;
        value.chunks(PIECE_LEN).try_for_each(|piece| self.sink.piece(piece))
    }

    fn long_value(&mut self, internal: &[u8], shown: &Shown<'_>, len: u64) -> Result<()> {
        let mut key = KeyBuf::new(self.range.tree, b"");
        key.set(internal);
        let opened = StreamReader::open(&self.source.db, key, self.source.hold.clone())?;
        // The value at the snapshot cannot have changed.
        let misunderstood = || self.source.engine().storage.blobs.misunderstood();
        let mut stream = opened.filter(|stream| stream.len() == len).ok_or_else(misunderstood)?;
        if self.source.skips_damaged {
            // Verified first, since a begun value cannot be taken back.
            for at in (0..len).step_by(PIECE_LEN) {
                stream.read_range(at..at + PIECE_LEN as u64)?;
            }
        }
        self.entry(shown, DumpedContent::LongValue(len))?;
        for at in (0..len).step_by(PIECE_LEN) {
            let piece = stream.read_range(at..at + PIECE_LEN as u64)?;
            self.sink.piece(&piece)?;
        }
        Ok(())
    }

    fn operands(&mut self, state: &ReadState, entry: &EntryRef<'_>, shown: &Shown<'_>) -> Result<()> {
        let engine = self.source.engine();
        let mut pile = pile_up(engine, state, &FoundOperands::of(entry))?;
        let beneath = match pile.beneath.take() {
            None => None,
            Some((sequence, found)) => {
                let (expires_us, now_us) = (found.expires_us(), self.source.hold.held().taken_us);
                point_read::resolve(engine, state, found, now_us)?.map(|value| (sequence, expires_us, value))
            }
        };
        // An expired base no longer exists for the operands.
        let operands = if beneath.is_none() { pile.on_nothing()? } else { pile.operands };
        if operands.len() < LONG_LEN {
            self.entry(shown, DumpedContent::Operands(&operands))?;
        } else {
            self.entry(shown, DumpedContent::LongOperands(operands.len() as u64))?;
            operands.chunks(PIECE_LEN).try_for_each(|piece| self.sink.piece(piece))?;
        }
        self.try_merge(shown.key, &operands, beneath.as_ref().map(|(_, _, value)| &**value));
        let Some((sequence, expires_us, value)) = beneath else { return Ok(()) };
        self.value(&Shown { key: shown.key, sequence, expires_us, is_beneath: true }, &value)
    }

    /// Records an error if a read of the record fails.
    fn try_merge(&self, key: &[u8], operands: &[u8], beneath: Option<&[u8]>) {
        let engine = self.source.engine();
        let Some(operands) = Operands::decode(operands) else { return };
        // The application's functions may be missing.
        if !engine.functions.can_apply(&operands) {
            return;
        }
        let finished = engine.functions.finish(key, &operands);
        let applied = finished.unwrap_or_else(|| engine.functions.apply(key, beneath, &operands));
        if let Err(e) = applied {
            let internal = [&self.range.tree.first_key(), key].concat();
            self.source.failing.lock().push(engine.catalog.with_tree(e, &internal));
        }
    }

    fn entry(&mut self, shown: &Shown<'_>, content: DumpedContent<'_>) -> Result<()> {
        self.is_taken = true;
        let Shown { key, sequence, expires_us, is_beneath } = *shown;
        self.sink.entry(&DumpedEntry { key, sequence, expires_us, is_beneath, content })
    }
}

struct Shown<'a> {
    key: &'a [u8],
    sequence: SequenceNumber,
    expires_us: Option<u64>,
    is_beneath: bool,
}

/// The ranges of a dump in order, divided when reached.
#[derive(Debug)]
pub struct DumpParts {
    source: DumpSource,
    part_bytes: u64,
    waiting: VecDeque<(DumpRange, bool)>,
}

impl DumpParts {
    pub fn new(source: &DumpSource, trees: &[DumpedTree], part_bytes: u64) -> DumpParts {
        let waiting = trees.iter().map(|tree| (DumpRange::of(tree), false)).collect();
        DumpParts { source: source.clone(), part_bytes, waiting }
    }

    pub fn take_next(&mut self) -> Result<Option<DumpRange>> {
        loop {
            let Some((range, is_cut)) = self.waiting.pop_front() else { return Ok(None) };
            if is_cut {
                return Ok(Some(range));
            }
            let mut parts = range.parts(&self.source, self.part_bytes)?;
            // At the maximum, parts may still be too large.
            let is_cut = parts.len() < CUTS_MAX;
            while let Some(part) = parts.pop() {
                self.waiting.push_front((part, is_cut));
            }
        }
    }
}
