//! The writer into a database.
//!
//! A record whose key exists takes the place of the old one, whose index entries are removed. Whether a key exists is
//! looked up in the batch at hand first, then in the tree; a key above all keys of the tree (record numbers always
//! are, in a first import) needs no look.

use std::collections::HashMap;

use anyhow::Result;
use braiddb::{Batch, Db, Durability, Tree};
use serde::{Deserialize, Serialize};

use super::{
    index::Indexes,
    keys::NewNotation,
    pipeline::ReadyRecord,
    progress::{IMPORT_TREE, Progress},
    stages::{Stages, StagesReport},
};
use crate::output::print_line;

/// A batch is committed when it has this many bytes or records.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_RECORDS: usize = 2000;

/// What the importer says after each durable commit, when asked to: a line `ack ` and this as JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Acknowledgement {
    /// All records below this number are durable, or were skipped.
    pub next_number: u64,
    /// Records stored so far.
    pub stored: u64,
    /// Bytes of keys and values given to the database by this process.
    pub given_bytes: u64,
    /// Bytes it wrote to files.
    pub written_bytes: u64,
    /// Where the stages stand.
    pub stages: StagesReport,
    /// Whether the input's end was reached.
    pub complete: bool,
}

/// The bytes an open database has written to files of every kind.
pub fn written_bytes(stats: &braiddb::Stats) -> u64 {
    stats.log_bytes_written
        + stats.run_bytes_written
        + stats.view_bytes_written
        + stats.blob_bytes_written
        + stats.manifest_bytes_written
}

/// Commits records to a tree and its indexes.
pub struct DatabaseWriter {
    db: Db,
    tree_name: String,
    tree: Tree,
    notation: NewNotation,
    imports: Tree,
    indexes: Indexes,
    durability: Durability,
    acknowledges: bool,
    /// The largest key that the tree may have.
    last_key: Option<Vec<u8>>,
    batch: Batch,
    /// The records in the batch, with their index entries.
    pending: HashMap<Vec<u8>, Vec<(usize, String)>>,
}

impl DatabaseWriter {
    /// A writer into the tree of that name.
    pub fn new(
        db: Db,
        tree_name: &str,
        notation: NewNotation,
        indexes: Indexes,
        durability: Durability,
        acknowledges: bool,
    ) -> Result<DatabaseWriter> {
        let tree = db.tree(tree_name)?;
        let imports = db.tree(IMPORT_TREE)?;
        let last_key = tree.last()?.map(|(key, _)| key.to_vec());
        Ok(DatabaseWriter {
            batch: db.batch(),
            tree_name: tree_name.to_owned(),
            tree,
            notation,
            imports,
            indexes,
            durability,
            acknowledges,
            last_key,
            pending: HashMap::new(),
            db,
        })
    }

    /// Adds a record to the batch; whether it took the place of another.
    pub fn store(&mut self, record: ReadyRecord) -> Result<bool> {
        let old = self.existing(&record.key)?;
        let replaced = old.is_some();
        self.batch.put(&self.tree, &record.key, &record.json);
        self.indexes.replace(&mut self.batch, &record.key, &old.unwrap_or_default(), &record.index_keys);
        if self.last_key.as_ref().is_none_or(|last| *last < record.key) {
            self.last_key = Some(record.key.clone());
        }
        self.pending.insert(record.key, record.index_keys);
        Ok(replaced)
    }

    /// The index entries of the record that has this key now, if there is one.
    fn existing(&self, key: &[u8]) -> Result<Option<Vec<(usize, String)>>> {
        if let Some(keys) = self.pending.get(key) {
            return Ok(Some(keys.clone()));
        }
        if self.last_key.as_ref().is_none_or(|last| last.as_slice() < key) {
            return Ok(None);
        }
        Ok(self.tree.get(key)?.map(|stored| self.indexes.keys_of_stored(&stored)))
    }

    /// Whether the batch is large enough.
    pub fn is_full(&self) -> bool {
        self.batch.size_bytes() >= BATCH_BYTES || self.pending.len() >= BATCH_RECORDS
    }

    /// Commits the batch together with the progress record.
    pub fn commit(&mut self, progress: &Progress, stages: &Stages) -> Result<()> {
        progress.store(&self.imports, &self.tree_name, &mut self.batch)?;
        if !self.pending.is_empty() {
            self.notation.store(&self.db, &self.tree_name, &self.imports, &mut self.batch)?;
        }
        let batch = std::mem::replace(&mut self.batch, self.db.batch());
        self.db.write(batch, self.durability)?;
        self.pending.clear();
        if progress.complete && self.durability != Durability::Sync {
            self.db.sync()?;
        }
        let durable = progress.complete || self.durability == Durability::Sync;
        if durable { self.acknowledge(progress, stages) } else { Ok(()) }
    }

    /// Says what is durable, if that is wanted.
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

    /// Closes the database.
    pub fn close(self) -> Result<()> {
        let DatabaseWriter { db, tree, imports, indexes, batch, .. } = self;
        drop((tree, imports, indexes, batch));
        Ok(db.close()?)
    }
}
