//! Loads the entries of a dump with their sequence numbers, expiry times and operands.
//!
//! Requires a new database whose sequence numbers continue after the dump's. One edit installs the
//! runs of a tree, as in a bulk load (`install.rs`).

use super::{
    dumped::{DumpedCatalog, DumpedContent, DumpedEntry, EntrySink},
    writer::{LoadWriter, Loaded},
};
use crate::{
    base::{Content, EntryKind, Error, Result, SequenceNumber, TreeId, limits},
    codec::{Operand, Operands},
    commit::RawBatch,
    db::{
        engine::{
            catalog::{TreeState, catalog_key, check_name},
            key::{KeyBuf, TREE_ID_LEN, check_key},
        },
        handles::{
            database::Db,
            multi::tree::{TERMINATOR, escape},
        },
        open::wal_retention as log_kept,
        write::{piece_writer::PieceWriter, pipeline},
    },
    wal::RetentionLimit,
};
use std::sync::Arc;

/// Maximum preallocation: the announced length may be wrong.
const ROOM_MAX: usize = 1 << 20;

impl Db {
    /// Writes a dumped catalog. Its trees exist after the next open.
    pub(crate) fn load_catalog(&self, catalog: &DumpedCatalog) -> Result<()> {
        let mut batch = RawBatch::default();
        for tree in &catalog.trees {
            check_name(&tree.name)?;
            batch.push(EntryKind::Value, &[&catalog_key(b'n', tree.name.as_bytes())], &tree.state.encode());
        }
        batch.push(EntryKind::Value, &[&catalog_key(b'i', b"")], &catalog.next_tree.to_le_bytes());
        for (name, number) in &catalog.functions {
            batch.push(EntryKind::Value, &[&catalog_key(b'f', name.as_bytes())], &number.to_le_bytes());
        }
        if let Some(cursor) = &catalog.application_cursor {
            batch.push(EntryKind::Value, &[&catalog_key(b'c', b"")], cursor);
        }
        if let Some((bytes, age_us)) = catalog.retention {
            let limit = log_kept::encode(RetentionLimit { bytes, age_us });
            batch.push(EntryKind::Value, &[&catalog_key(b'r', b"")], &limit);
        }
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        pipeline::commit(engine, batch.prepare()?, crate::db::engine::settings::Durability::Sync).map(|_| ())
    }

    /// Several loaders may fill disjoint key ranges of one tree.
    pub(crate) fn entry_loader(&self, tree: u32, sequence_max: SequenceNumber) -> Result<EntryLoader> {
        let trees = self.engine().catalog.by_name.read();
        let found = trees.values().find(|state| state.id == TreeId(tree)).cloned();
        drop(trees);
        let state = found.ok_or_else(|| Error::NotFound(format!("there is no tree of number {tree}")))?;
        Ok(EntryLoader {
            writer: LoadWriter::of_entries(self.engine(), &state)?,
            db: self.clone(),
            tree: state,
            sequence_max,
            key: Vec::new(),
            last: None,
            long: None,
            takes_bad_operands: false,
        })
    }
}

#[derive(Debug)]
enum Long {
    Value { pieces: Box<PieceWriter>, expires_us: Option<u64>, len: u64 },
    Operands { bytes: Vec<u8>, len: u64 },
}

#[derive(Debug)]
pub struct EntryLoader {
    writer: LoadWriter,
    db: Db,
    tree: Arc<TreeState>,
    sequence_max: SequenceNumber,
    key: Vec<u8>,
    last: Option<(SequenceNumber, bool)>,
    long: Option<Long>,
    takes_bad_operands: bool,
}

fn bad(what: &str) -> Error {
    Error::InvalidArgument(what.to_owned())
}

impl EntrySink for EntryLoader {
    fn entry(&mut self, entry: &DumpedEntry<'_>) -> Result<()> {
        if self.long.is_some() {
            return Err(bad("a long value ends too soon"));
        }
        self.take_key(entry)?;
        let (sequence, expires_us) = (entry.sequence, entry.expires_us);
        let is_operands = matches!(entry.content, DumpedContent::Operands(_) | DumpedContent::LongOperands(_));
        let is_plain = expires_us.is_none() && !is_operands;
        if (self.tree.multi && !is_plain) || (is_operands && expires_us.is_some()) {
            return Err(bad("a record has what its tree cannot keep"));
        }
        self.last = Some((sequence, is_operands));
        match entry.content {
            DumpedContent::Value(_) if self.tree.multi => self.writer.add_value(&self.key, sequence, b"", None),
            DumpedContent::Value(value) => self.writer.add_value(&self.key, sequence, value, expires_us),
            DumpedContent::Operands(operands) => self.operands(operands),
            DumpedContent::LongValue(len) | DumpedContent::LongOperands(len)
                if self.tree.multi || len == 0 || len > limits::MAX_VALUE_LEN =>
            {
                Err(bad("a long value has a length that no value has"))
            }
            DumpedContent::LongValue(len) => {
                let mut key = KeyBuf::new(self.tree.id, b"");
                key.set(&self.key);
                let pieces = Box::new(PieceWriter::new(self.db.engine(), key, &self.tree.options.get()));
                self.long = Some(Long::Value { pieces, expires_us, len });
                Ok(())
            }
            DumpedContent::LongOperands(len) => {
                let room = usize::try_from(len).unwrap_or(usize::MAX).min(ROOM_MAX);
                self.long = Some(Long::Operands { bytes: Vec::with_capacity(room), len });
                Ok(())
            }
        }
    }

    fn piece(&mut self, piece: &[u8]) -> Result<()> {
        let is_whole = match &mut self.long {
            None => return Err(bad("a piece of a long value is none of the record's before")),
            Some(Long::Value { pieces, len, .. }) => {
                check_fits(pieces.len(), piece, *len)?;
                pieces.write(piece)?;
                pieces.len() == *len
            }
            Some(Long::Operands { bytes, len }) => {
                check_fits(bytes.len() as u64, piece, *len)?;
                bytes.extend_from_slice(piece);
                bytes.len() as u64 == *len
            }
        };
        if is_whole { self.end_long() } else { Ok(()) }
    }
}

fn check_fits(so_far: u64, piece: &[u8], len: u64) -> Result<()> {
    if piece.is_empty() || so_far + piece.len() as u64 > len {
        return Err(bad("a long value has other pieces than its length says"));
    }
    Ok(())
}

impl EntryLoader {
    /// Sets the current internal key, or fails if it may not follow.
    fn take_key(&mut self, entry: &DumpedEntry<'_>) -> Result<()> {
        check_key(entry.key)?;
        if !(1..=self.sequence_max).contains(&entry.sequence) {
            return Err(bad("a record has the number of a commit that is not in the dump"));
        }
        let mut key = Vec::with_capacity(self.key.len());
        key.extend_from_slice(&self.tree.id.first_key());
        match entry.content {
            DumpedContent::Value(value) if self.tree.multi => {
                check_key(value)?;
                key.extend_from_slice(&escape(entry.key));
                key.extend_from_slice(&TERMINATOR);
                key.extend_from_slice(value);
            }
            _ => key.extend_from_slice(entry.key),
        }
        let is_next = match self.last {
            None => !entry.is_beneath,
            Some((sequence, has_operands)) if entry.is_beneath => {
                has_operands && key == self.key && entry.sequence < sequence
            }
            Some(_) => key > self.key,
        };
        if !is_next {
            return Err(bad("records are out of order"));
        }
        self.key = key;
        Ok(())
    }

    fn operands(&mut self, operands: &[u8]) -> Result<()> {
        let decoded = Operands::decode(operands).ok_or_else(|| bad("operands cannot be understood"))?;
        let Some((sequence, _)) = self.last else { return Err(bad("operands of no record")) };
        if decoded.reach >= sequence {
            return Err(bad("operands of commits before the first"));
        }
        if !self.takes_bad_operands {
            decoded.iter().try_for_each(|operand| self.check_operand(operand))?;
        }
        self.writer.add_placed(&self.key, sequence, EntryKind::Merge, operands)
    }

    /// Fails for an operand that its function rejects for every value. It is not damage.
    fn check_operand(&self, operand: Operand<'_>) -> Result<()> {
        let engine = self.db.engine();
        engine.functions.check(operand.function, operand.bytes).map_err(|e| {
            let key = self.key.get(TREE_ID_LEN..).unwrap_or_default().escape_ascii().to_string();
            let reason = match e {
                Error::InvalidArgument(reason) => reason,
                e => e.to_string(),
            };
            let tree = self.tree.name.read().clone();
            Error::MergeFailed { tree, function: engine.functions.name(operand.function), key, reason }
        })
    }

    /// Accepts operands that a merge function rejects for every value.
    pub fn take_bad_operands(&mut self, takes: bool) {
        self.takes_bad_operands = takes;
    }

    fn end_long(&mut self) -> Result<()> {
        let Some((sequence, _)) = self.last else { return Err(bad("a long value of no record")) };
        match self.long.take() {
            None => Ok(()),
            Some(Long::Operands { bytes, .. }) => self.operands(&bytes),
            Some(Long::Value { pieces, expires_us, .. }) => {
                let (placed, pending) = pieces.finish()?;
                let mut room = Vec::new();
                let content = Content { kind: placed.kind, value: &placed.value, expires_us };
                let (kind, value) = content.entry(&mut room);
                self.writer.add_placed(&self.key, sequence, kind, value)?;
                self.writer.keep_stream(pending);
                Ok(())
            }
        }
    }

    /// Ends a run, so that another loader may continue.
    pub fn end_run(&mut self) -> Result<()> {
        if self.long.is_some() {
            return Err(bad("a long value ends too soon"));
        }
        self.writer.end_run()
    }

    pub fn absorb(&mut self, other: EntryLoader) -> Result<()> {
        self.writer.absorb(other.writer)
    }

    pub fn install(mut self) -> Result<Loaded> {
        self.end_run()?;
        self.writer.install_entries()
    }
}
