//! Bulk load into an empty tree without indexes: faster than batches, but all or nothing. The tree
//! is created with the first record.

use anyhow::{Context, Result};
use braiddb::{
    Db, Durability,
    bulk::{BulkOptions, UnsortedLoader},
};

use super::{
    created::KnownTrees,
    index_store::tree_id,
    keys::NewNotation,
    pipeline::ReadyRecord,
    progress::{IMPORT_TREE, Progress},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Nothing,
    /// This many, without a progress record: removing them failed too.
    Records(u64),
    /// All records, with the progress record.
    All(u64),
}

pub struct FailedLoad {
    pub error: anyhow::Error,
    pub left: Left,
}

pub struct Load {
    db: Db,
    tree_name: String,
    notation: NewNotation,
    is_new: bool,
    known: KnownTrees,
    loader: Option<UnsortedLoader<'static>>,
}

impl Load {
    pub fn begin(db: Db, tree_name: &str, notation: NewNotation) -> Result<Load> {
        let is_new = tree_id(&db, tree_name)?.is_none();
        let known = KnownTrees::of(&db)?;
        Ok(Load { db, tree_name: tree_name.to_owned(), notation, is_new, known, loader: None })
    }

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

    pub fn finish(self, progress: &mut Progress) -> Result<(), FailedLoad> {
        let Load { db, tree_name, mut notation, is_new, known, loader } = self;
        let failed = |left, error| FailedLoad { error, left };
        let Some(loader) = loader else { return db.close().map_err(|error| failed(Left::Nothing, error.into())) };
        let loaded = match loader.finish() {
            Ok(loaded) => loaded,
            Err(error) => {
                drop_new(&db, &tree_name, is_new);
                return Err(failed(Left::Nothing, error.into()));
            }
        };
        progress.replaced = progress.stored - loaded.records;
        if let Err(error) = record(&db, &tree_name, progress, &mut notation) {
            let left = if undo(&db, &tree_name, is_new) { Left::Nothing } else { Left::Records(loaded.records) };
            return Err(failed(left, error));
        }
        let noted = known.note_new(&db).and_then(|()| Ok(db.close()?));
        noted.map_err(|error| failed(Left::All(loaded.records), error))
    }

    pub fn abandon(self) {
        let Load { db, tree_name, is_new, loader, .. } = self;
        if loader.is_some() {
            drop(loader);
            drop_new(&db, &tree_name, is_new);
        }
    }
}

fn record(db: &Db, tree_name: &str, progress: &mut Progress, notation: &mut NewNotation) -> Result<()> {
    progress.tree_id = Some(tree_id(db, tree_name)?.context("the tree was dropped during the import")?);
    let imports = db.tree(IMPORT_TREE)?;
    let mut batch = db.batch();
    progress.store(&imports, tree_name, &mut batch)?;
    notation.store(db, tree_name, &imports, &mut batch)?;
    batch.commit_with(Durability::Sync)?;
    Ok(())
}

fn undo(db: &Db, tree_name: &str, is_new: bool) -> bool {
    match is_new {
        true => db.drop_tree(tree_name).is_ok(),
        false => db.open_tree(tree_name).and_then(|tree| tree.delete_range(..)).is_ok(),
    }
}

fn drop_new(db: &Db, tree_name: &str, is_new: bool) {
    if is_new {
        let _ = db.drop_tree(tree_name);
    }
}

#[cfg(test)]
mod tests {
    use super::undo;

    /// The story: after a failed write of the progress record, a load into an existing tree left
    /// its records but reported that nothing was stored.
    #[test]
    fn undo_of_load_empties_existing_tree_and_drops_new_one() {
        let db = braiddb::Db::in_memory().unwrap();
        for is_new in [false, true] {
            db.tree("t").unwrap().put("a", "1").unwrap();
            assert!(undo(&db, "t", is_new));
            assert_eq!(db.open_tree("t").is_err(), is_new);
            assert!(db.tree("t").unwrap().is_empty().unwrap());
        }
        let stays = db.clone();
        stays.tree("t").unwrap().put("a", "1").unwrap();
        db.close().unwrap();
        assert!(!undo(&stays, "t", false) && !undo(&stays, "t", true));
    }
}
