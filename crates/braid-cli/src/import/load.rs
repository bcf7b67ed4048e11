//! The fast way into an empty tree without indexes: records are sorted and loaded as a whole, past the log.
//!
//! Nothing is there before all is; an import that is killed leaves nothing, and begins anew.

use anyhow::Result;
use braiddb::{BulkOptions, Db, Durability, UnsortedLoader};

use super::{
    keys::NewNotation,
    pipeline::ReadyRecord,
    progress::{IMPORT_TREE, Progress},
};

/// A load in the making.
pub struct Load {
    db: Db,
    tree_name: String,
    notation: NewNotation,
    loader: UnsortedLoader<'static>,
}

impl Load {
    /// Begins one, into the tree of that name.
    pub fn begin(db: Db, tree_name: &str, notation: NewNotation) -> Result<Load> {
        let loader = db.tree(tree_name)?.unsorted_loader(BulkOptions::default())?;
        Ok(Load { db, tree_name: tree_name.to_owned(), notation, loader })
    }

    /// Adds a record.
    pub fn store(&mut self, record: &ReadyRecord) -> Result<()> {
        Ok(self.loader.add(&record.key, &record.json)?)
    }

    /// Stores all of them, and then what is known of the import.
    pub fn finish(self, progress: &mut Progress) -> Result<()> {
        let Load { db, tree_name, mut notation, loader } = self;
        let loaded = loader.finish()?;
        progress.replaced = progress.stored - loaded.records;
        let imports = db.tree(IMPORT_TREE)?;
        let mut batch = db.batch();
        progress.store(&imports, &tree_name, &mut batch)?;
        if loaded.records > 0 {
            notation.store(&db, &tree_name, &imports, &mut batch)?;
        }
        db.write(batch, Durability::Sync)?;
        drop(imports);
        Ok(db.close()?)
    }
}
