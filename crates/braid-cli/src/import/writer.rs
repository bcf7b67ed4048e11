//! Writes records into a database.
//!
//! A record with an existing key replaces the old record and its index entries. A key above all
//! keys of the tree needs no lookup.

use std::collections::HashMap;

use anyhow::{Context, Result};
use braiddb::{Batch, Db, Durability, Tree};
use serde::{Deserialize, Serialize};

use super::{
    created::KnownTrees,
    index::Indexes,
    index_store::{Declaration, tree_id},
    keys::NewNotation,
    pipeline::ReadyRecord,
    progress::{IMPORT_TREE, Progress},
    stages::{Stages, StagesReport},
};
use crate::output::print_line;

/// Batches are committed at this number of bytes or records.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_RECORDS: usize = 2000;

/// Returns the batch size in bytes: smaller on a small volume, so that each flush fits into the
/// disk reserve.
pub fn batch_bytes(db: &Db) -> usize {
    usize::try_from(db.stats().memtable_bytes_max / 2).unwrap_or(usize::MAX).min(BATCH_BYTES)
}

/// The acknowledgement after each durable commit, printed as `ack ` and JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Acknowledgement {
    /// All records below this number are durable or were skipped.
    pub next_number: u64,
    pub stored: u64,
    pub given_bytes: u64,
    pub written_bytes: u64,
    pub stages: StagesReport,
    pub complete: bool,
}

pub fn written_bytes(stats: &braiddb::stats::Stats) -> u64 {
    stats.log_bytes_written
        + stats.run_bytes_written
        + stats.view_bytes_written
        + stats.blob_bytes_written
        + stats.manifest_bytes_written
}

/// Commits records to a tree and its indexes, which it creates with the first record.
pub struct DatabaseWriter {
    db: Db,
    batch_bytes: usize,
    tree_name: String,
    notation: NewNotation,
    declaration: Declaration,
    open: Option<OpenTrees>,
    durability: Durability,
    acknowledges: bool,
    known: Option<KnownTrees>,
    has_committed: bool,
    batch: Batch,
    pending: HashMap<Vec<u8>, Vec<(usize, String)>>,
}

struct OpenTrees {
    tree: Tree,
    imports: Tree,
    indexes: Indexes,
    id: u32,
    /// An upper bound of the keys in the tree.
    last_key: Option<Vec<u8>>,
}

impl DatabaseWriter {
    pub fn new(
        db: Db,
        tree_name: &str,
        notation: NewNotation,
        declaration: Declaration,
        durability: Durability,
        acknowledges: bool,
    ) -> DatabaseWriter {
        DatabaseWriter {
            batch_bytes: batch_bytes(&db),
            batch: db.batch(),
            tree_name: tree_name.to_owned(),
            notation,
            declaration,
            open: None,
            durability,
            acknowledges,
            known: None,
            has_committed: false,
            pending: HashMap::new(),
            db,
        }
    }

    pub fn establish(&mut self) -> Result<()> {
        if self.open.is_some() {
            return Ok(());
        }
        self.known = Some(KnownTrees::of(&self.db)?);
        let tree = self.db.tree(&self.tree_name)?;
        let imports = self.db.tree(IMPORT_TREE)?;
        let indexes = self.declaration.establish(&self.db, &self.tree_name, &mut self.batch)?;
        let last_key = tree.last()?.map(|(key, _)| key.to_vec());
        let id = tree_id(&self.db, &self.tree_name)?.context("the tree was dropped during the import")?;
        self.open = Some(OpenTrees { tree, imports, indexes, id, last_key });
        Ok(())
    }

    /// Returns whether the record replaced another.
    pub fn store(&mut self, record: ReadyRecord) -> Result<bool> {
        self.establish()?;
        let Some(open) = &mut self.open else { return Ok(false) };
        let old = match self.pending.get(&record.key) {
            Some(keys) => Some(keys.clone()),
            None => open.existing(&record.key)?,
        };
        let replaced = old.is_some();
        self.batch.put(&open.tree, &record.key, &record.json);
        open.indexes.replace(&mut self.batch, &record.key, &old.unwrap_or_default(), &record.index_keys);
        if open.last_key.as_ref().is_none_or(|last| *last < record.key) {
            open.last_key = Some(record.key.clone());
        }
        self.pending.insert(record.key, record.index_keys);
        Ok(replaced)
    }

    pub fn is_full(&self) -> bool {
        self.batch.size_bytes() >= self.batch_bytes || self.pending.len() >= BATCH_RECORDS
    }

    pub fn commit(&mut self, progress: &mut Progress, stages: &Stages) -> Result<()> {
        let Some(open) = &self.open else { return self.acknowledge(progress, stages) };
        progress.tree_id = Some(open.id);
        progress.store(&open.imports, &self.tree_name, &mut self.batch)?;
        if !self.pending.is_empty() {
            self.notation.store(&self.db, &self.tree_name, &open.imports, &mut self.batch)?;
        }
        let batch = std::mem::replace(&mut self.batch, self.db.batch());
        batch.commit_with(self.durability)?;
        self.pending.clear();
        if !std::mem::replace(&mut self.has_committed, true)
            && let Some(known) = &self.known
        {
            known.note_new(&self.db)?;
        }
        if progress.complete && self.durability != Durability::Sync {
            self.db.sync()?;
        }
        let durable = progress.complete || self.durability == Durability::Sync;
        if durable { self.acknowledge(progress, stages) } else { Ok(()) }
    }

    pub fn acknowledge(&self, progress: &Progress, stages: &Stages) -> Result<()> {
        if !self.acknowledges {
            return Ok(());
        }
        let stats = self.db.stats();
        let acknowledgement = Acknowledgement {
            next_number: progress.next_number,
            stored: progress.stored,
            given_bytes: stats.user_bytes_written,
            written_bytes: written_bytes(&stats),
            stages: stages.report(),
            complete: progress.complete,
        };
        print_line(format_args!("ack {}", serde_json::to_string(&acknowledgement)?))
    }

    /// Drops the trees it created if nothing was committed. Returns whether the committed records
    /// are on disk.
    pub fn abandon(self) -> bool {
        let DatabaseWriter { db, open, batch, known, has_committed, durability, .. } = self;
        drop((open, batch));
        if let Some(known) = known.filter(|_| !has_committed) {
            known.drop_new(&db, true);
        }
        durability == Durability::Sync || db.sync().is_ok()
    }

    pub fn close(self) -> Result<()> {
        let DatabaseWriter { db, open, batch, .. } = self;
        if let Some(open) = &open {
            open.indexes.note_empty()?;
        }
        drop((open, batch));
        Ok(db.close()?)
    }
}

impl OpenTrees {
    fn existing(&self, key: &[u8]) -> Result<Option<Vec<(usize, String)>>> {
        if self.last_key.as_ref().is_none_or(|last| last.as_slice() < key) {
            return Ok(None);
        }
        Ok(self.tree.get(key)?.map(|stored| self.indexes.keys_of_stored(&stored)))
    }
}
