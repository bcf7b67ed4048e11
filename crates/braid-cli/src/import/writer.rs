//! The writer into a database.
//!
//! A record whose key exists takes the place of the old one, whose index entries are removed. Whether a key exists is
//! looked up in the batch at hand first, then in the tree; a key above all keys of the tree (record numbers always
//! are, in a first import) needs no look.

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

/// A batch is committed when it has this many bytes or records.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_RECORDS: usize = 2000;

/// A batch is committed when it has this many bytes: on a small volume fewer, so that each flush fits into the reserve of a full disk.
pub fn batch_bytes(db: &Db) -> usize {
    usize::try_from(db.stats().memtable_bytes_max / 2).unwrap_or(usize::MAX).min(BATCH_BYTES)
}

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

/// Commits records to a tree and its indexes. The trees are created when the first record comes, so an import that stores
/// nothing leaves nothing.
pub struct DatabaseWriter {
    db: Db,
    batch_bytes: usize,
    tree_name: String,
    notation: NewNotation,
    declaration: Declaration,
    open: Option<OpenTrees>,
    durability: Durability,
    acknowledges: bool,
    /// The trees that were there before, once others may have been created.
    known: Option<KnownTrees>,
    has_committed: bool,
    batch: Batch,
    /// The records in the batch, with their index entries.
    pending: HashMap<Vec<u8>, Vec<(usize, String)>>,
}

/// The trees of an import that has records.
struct OpenTrees {
    tree: Tree,
    imports: Tree,
    indexes: Indexes,
    id: u32,
    /// The largest key that the tree may have.
    last_key: Option<Vec<u8>>,
}

impl DatabaseWriter {
    /// A writer into the tree of that name.
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

    /// Opens the trees, and creates those that are not there.
    pub fn establish(&mut self) -> Result<()> {
        if self.open.is_some() {
            return Ok(());
        }
        self.known = Some(KnownTrees::of(&self.db)?);
        let tree = self.db.tree(&self.tree_name)?;
        let imports = self.db.tree(IMPORT_TREE)?;
        let indexes = self.declaration.establish(&self.db, &self.tree_name, &mut self.batch)?;
        let last_key = tree.last()?.map(|(key, _)| key.to_vec());
        let id = tree_id(&self.db, &self.tree_name)?.context("the tree was dropped meanwhile")?;
        self.open = Some(OpenTrees { tree, imports, indexes, id, last_key });
        Ok(())
    }

    /// Adds a record to the batch; whether it took the place of another.
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

    /// Whether the batch is large enough.
    pub fn is_full(&self) -> bool {
        self.batch.size_bytes() >= self.batch_bytes || self.pending.len() >= BATCH_RECORDS
    }

    /// Commits the batch together with the progress record; nothing where no record was stored.
    pub fn commit(&mut self, progress: &mut Progress, stages: &Stages) -> Result<()> {
        let Some(open) = &self.open else { return self.acknowledge(progress, stages) };
        progress.tree_id = Some(open.id);
        progress.store(&open.imports, &self.tree_name, &mut self.batch)?;
        if !self.pending.is_empty() {
            self.notation.store(&self.db, &self.tree_name, &open.imports, &mut self.batch)?;
        }
        let batch = std::mem::replace(&mut self.batch, self.db.batch());
        self.db.write(batch, self.durability)?;
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

    /// Gives up after a failure: trees that were created for records of which none was committed are dropped. Whether what was
    /// committed is on the disk.
    pub fn abandon(self) -> bool {
        let DatabaseWriter { db, open, batch, known, has_committed, durability, .. } = self;
        drop((open, batch));
        if let Some(known) = known.filter(|_| !has_committed) {
            known.drop_new(&db, true);
        }
        durability == Durability::Sync || db.sync().is_ok()
    }

    /// Closes the database.
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
    /// The index entries of the record that has this key now, if there is one.
    fn existing(&self, key: &[u8]) -> Result<Option<Vec<(usize, String)>>> {
        if self.last_key.as_ref().is_none_or(|last| last.as_slice() < key) {
            return Ok(None);
        }
        Ok(self.tree.get(key)?.map(|stored| self.indexes.keys_of_stored(&stored)))
    }
}
