//! Trees that are dropped or renamed.

use crate::{
    base::{EntryKind, Error, Result},
    commit::RawBatch,
    db::{
        engine::{
            catalog::{DroppedTree, TreeState, catalog_key, check_name},
            core::Core,
        },
        handles::database::Db,
    },
    wal::Wal,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

impl Db {
    /// Drops a tree with all it holds, in constant time; its space comes back later. Handles of it fail from then on.
    pub fn drop_tree(&self, name: &str) -> Result<()> {
        self.drop_trees(&[name])
    }

    /// Drops trees with all they hold, in one commit: all of them or none, and one sync for all of them. A name that is
    /// given twice counts once. `NotFound` if one of them is not there; then none is dropped.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// for day in ["monday", "tuesday", "wednesday"] {
    ///     db.tree(day)?.put(b"k", b"v")?;
    /// }
    /// db.drop_trees(&["monday", "tuesday"])?;
    /// assert_eq!(db.trees()?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn drop_trees<N: AsRef<str>>(&self, names: &[N]) -> Result<()> {
        let core = self.core();
        let _inside = core.enter()?;
        core.check_outside_update()?;
        drop(core.await_no_exclusive()?);
        let _change = core.catalog.next_id.lock();
        let mut trees = BTreeMap::new();
        for name in names.iter().map(AsRef::as_ref) {
            let tree = core.catalog.find(name).ok_or_else(|| Error::NotFound(format!("there is no tree {name:?}")))?;
            trees.insert(name, tree);
        }
        if trees.is_empty() {
            return core.check_writable();
        }
        core.drop_all(&trees)
    }

    /// Gives a tree another name; `AlreadyExists` if that is taken.
    pub fn rename_tree(&self, from: &str, to: &str) -> Result<()> {
        check_name(to)?;
        let core = self.core();
        let _inside = core.enter()?;
        core.check_outside_update()?;
        drop(core.await_no_exclusive()?);
        let _change = core.catalog.next_id.lock();
        if core.catalog.find(to).is_some() {
            return Err(Error::AlreadyExists(format!("there is a tree {to:?} already")));
        }
        let tree = core.catalog.find(from).ok_or_else(|| Error::NotFound(format!("there is no tree {from:?}")))?;
        let mut batch = RawBatch::default();
        batch.push(EntryKind::Tombstone, &[&catalog_key(b'n', from.as_bytes())], b"");
        batch.push(EntryKind::Value, &[&catalog_key(b'n', to.as_bytes())], &tree.encode());
        core.commit(batch.prepare()?, core.settings.durability)?;
        let mut by_name = core.catalog.by_name.write();
        by_name.remove(from);
        *tree.name.write() = to.to_owned();
        by_name.insert(to.to_owned(), tree);
        Ok(())
    }
}

impl Core {
    /// Drops trees in one commit. The caller holds the catalog's lock.
    fn drop_all(&self, trees: &BTreeMap<&str, Arc<TreeState>>) -> Result<()> {
        let mut batch = RawBatch::default();
        for (name, tree) in trees {
            batch.push(EntryKind::Tombstone, &[&catalog_key(b'n', name.as_bytes())], b"");
            if let Some(end) = tree.id.end_key() {
                batch.push(EntryKind::RangeDelete, &[&tree.id.first_key()], &end);
            }
        }
        self.remember_dropped(trees.values().map(AsRef::as_ref), &mut batch);
        let prepared = batch.prepare()?;
        let mark = |is_dropped| trees.values().for_each(|tree| tree.dropped.store(is_dropped, Ordering::Release));
        // A commit that saw a tree before will find the count changed: none lands above the range delete.
        mark(true);
        self.catalog.drops.fetch_add(1, Ordering::Release);
        let dropped = self.commit(prepared, self.settings.durability);
        if dropped.as_ref().is_err_and(|e| !matches!(e, Error::CommitUnknown { .. })) {
            mark(false);
            return dropped.map(|_| ());
        }
        let mut by_name = self.catalog.by_name.write();
        trees.keys().for_each(|name| _ = by_name.remove(*name));
        drop(by_name);
        let sequence = dropped.as_ref().map_or_else(|_| self.snapshots.visible(), |sequence| *sequence);
        let floor = self.wal.as_ref().map_or(0, Wal::floor);
        let mut lately = self.catalog.dropped.write();
        lately.retain(|_, tree| tree.sequence > floor);
        lately.extend(
            trees
                .iter()
                .map(|(name, tree)| (tree.id, DroppedTree { name: (*name).to_owned(), multi: tree.multi, sequence })),
        );
        drop(lately);
        dropped.map(|_| ())
    }
}
