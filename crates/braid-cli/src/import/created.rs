//! Reports created trees on standard error, so that a mistyped name is noticed.

use std::collections::BTreeSet;

use anyhow::Result;
use braiddb::Db;

use super::{index_store::all_indexes, progress::IMPORT_TREE};
use crate::{notation::show_name, output::note};

pub struct KnownTrees(BTreeSet<String>);

impl KnownTrees {
    pub fn of(db: &Db) -> Result<KnownTrees> {
        Ok(KnownTrees(db.trees()?.into_iter().map(|tree| tree.name).collect()))
    }

    /// After a failure, drops new empty trees, except indexes of older trees, and a new tree of import
    /// records if `nothing_is_stored`. Ignores errors: the caller reports the first.
    pub fn drop_new(&self, db: &Db, nothing_is_stored: bool) {
        let _ = self.try_drop_new(db, nothing_is_stored);
    }

    fn try_drop_new(&self, db: &Db, nothing_is_stored: bool) -> Result<()> {
        let indexes = all_indexes(db)?.into_iter().filter(|(tree, _)| self.0.contains(tree));
        let kept: BTreeSet<String> = indexes.flat_map(|(_, specs)| specs).map(|spec| spec.name).collect();
        let mut is_all_dropped = nothing_is_stored && kept.is_subset(&self.0);
        for tree in db.trees()?.into_iter().filter(|tree| tree.name != IMPORT_TREE && !self.0.contains(&tree.name)) {
            let is_empty = match tree.multi {
                true => db.open_multi_tree(&tree.name)?.iter().next().transpose()?.is_none(),
                false => db.open_tree(&tree.name)?.first()?.is_none(),
            };
            if is_empty && !kept.contains(&tree.name) {
                db.drop_tree(&tree.name)?;
            } else {
                is_all_dropped = false;
            }
        }
        if is_all_dropped && db.tree_info(IMPORT_TREE)?.is_some() && !self.0.contains(IMPORT_TREE) {
            db.drop_tree(IMPORT_TREE)?;
        }
        Ok(())
    }

    pub fn note_new(&self, db: &Db) -> Result<()> {
        let is_new = |name: &String| *name != IMPORT_TREE && !self.0.contains(name);
        let new: Vec<String> =
            db.trees()?.into_iter().map(|tree| tree.name).filter(is_new).map(|name| show_name(&name)).collect();
        match new.as_slice() {
            [] => {}
            [name] => note!("braid: created tree {name}"),
            names => note!("braid: created trees {}", names.join(", ")),
        }
        Ok(())
    }
}
