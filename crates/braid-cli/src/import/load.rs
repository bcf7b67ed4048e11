//! The fast way into an empty tree without indexes: records are sorted and loaded as a whole, past the log.
//!
//! Nothing is there before all is; an import that is killed leaves nothing, and begins anew. The tree is created when the
//! first record comes.

use anyhow::{Context, Result};
use braiddb::{BulkOptions, Db, Durability, UnsortedLoader};

use super::{
    created::KnownTrees,
    index_store::tree_id,
    keys::NewNotation,
    pipeline::ReadyRecord,
    progress::{IMPORT_TREE, Progress},
};

/// A load in the making.
pub struct Load {
    db: Db,
    tree_name: String,
    notation: NewNotation,
    is_new: bool,
    known: KnownTrees,
    loader: Option<UnsortedLoader<'static>>,
}

impl Load {
    /// Begins one, into the tree of that name, which has no records.
    pub fn begin(db: Db, tree_name: &str, notation: NewNotation) -> Result<Load> {
        let is_new = tree_id(&db, tree_name)?.is_none();
        let known = KnownTrees::of(&db)?;
        Ok(Load { db, tree_name: tree_name.to_owned(), notation, is_new, known, loader: None })
    }

    /// Adds a record.
    pub fn store(&mut self, record: &ReadyRecord) -> Result<()> {
        let loader = match &mut self.loader {
            Some(loader) => loader,
            None => {
                let loader = self.db.tree(&self.tree_name)?.unsorted_loader(BulkOptions::default())?;
                self.loader.insert(loader)
            }
        };
        Ok(loader.add(&record.key, &record.json)?)
    }

    /// Stores all of them, and then the progress record.
    pub fn finish(self, progress: &mut Progress) -> Result<()> {
        let Load { db, tree_name, mut notation, is_new, known, loader } = self;
        let Some(loader) = loader else { return Ok(db.close()?) };
        let loaded = match loader.finish() {
            Ok(loaded) => loaded,
            Err(error) => {
                drop_new(&db, &tree_name, is_new);
                return Err(error.into());
            }
        };
        progress.replaced = progress.stored - loaded.records;
        let recorded = record(&db, &tree_name, progress, &mut notation);
        if recorded.is_err() {
            drop_new(&db, &tree_name, is_new);
        }
        recorded?;
        known.note_new(&db)?;
        Ok(db.close()?)
    }

    /// Gives up, and leaves no tree that was not there before.
    pub fn abandon(self) {
        let Load { db, tree_name, is_new, loader, .. } = self;
        if loader.is_some() {
            drop(loader);
            drop_new(&db, &tree_name, is_new);
        }
    }
}

/// Stores the progress record, and how the keys are written.
fn record(db: &Db, tree_name: &str, progress: &mut Progress, notation: &mut NewNotation) -> Result<()> {
    progress.tree_id = Some(tree_id(db, tree_name)?.context("the tree was dropped meanwhile")?);
    let imports = db.tree(IMPORT_TREE)?;
    let mut batch = db.batch();
    progress.store(&imports, tree_name, &mut batch)?;
    notation.store(db, tree_name, &imports, &mut batch)?;
    db.write(batch, Durability::Sync)?;
    Ok(())
}

/// Drops a tree that the load has created. An error is not reported: the one before says why.
fn drop_new(db: &Db, tree_name: &str, is_new: bool) {
    if is_new {
        let _ = db.drop_tree(tree_name);
    }
}
