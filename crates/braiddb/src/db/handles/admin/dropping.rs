//! Drops and renames trees.

use crate::{
    base::{EntryKind, Error, Result},
    commit::RawBatch,
    db::{
        engine::catalog::{catalog_key, check_name},
        handles::database::Db,
        maintenance::dropping,
        write::{conflict_window, pipeline, update_scope},
    },
};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

impl Db {
    /// Drops a tree with its data in constant time; space is reclaimed later. Its handles then
    /// fail.
    pub fn drop_tree(&self, name: &str) -> Result<()> {
        self.drop_trees(&[name])
    }

    /// Drops trees with their data in one commit. Ignores duplicate names. Drops none, with
    /// `NotFound`, if one is absent.
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
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        update_scope::check_outside(engine)?;
        drop(conflict_window::await_no_exclusive(engine)?);
        let _change = engine.catalog.next_id.lock();
        let mut trees = BTreeMap::new();
        for name in names.iter().map(AsRef::as_ref) {
            let tree =
                engine.catalog.find(name).ok_or_else(|| Error::NotFound(format!("there is no tree {name:?}")))?;
            trees.insert(name, tree);
        }
        if trees.is_empty() {
            return engine.health.check_writable();
        }
        dropping::drop_trees(engine, &trees)
    }

    /// Renames a tree. Fails with `AlreadyExists` if `to` is taken.
    pub fn rename_tree(&self, from: &str, to: &str) -> Result<()> {
        check_name(to)?;
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        update_scope::check_outside(engine)?;
        drop(conflict_window::await_no_exclusive(engine)?);
        let _change = engine.catalog.next_id.lock();
        if engine.catalog.find(to).is_some() {
            return Err(Error::AlreadyExists(format!("there is a tree {to:?} already")));
        }
        let tree = engine.catalog.find(from).ok_or_else(|| Error::NotFound(format!("there is no tree {from:?}")))?;
        let mut batch = RawBatch::default();
        batch.push(EntryKind::Tombstone, &[&catalog_key(b'n', from.as_bytes())], b"");
        batch.push(EntryKind::Value, &[&catalog_key(b'n', to.as_bytes())], &tree.encode());
        pipeline::commit(engine, batch.prepare()?, engine.settings.durability)?;
        engine.catalog.named_until.store(engine.readers.snapshots.visible(), Ordering::Release);
        let mut by_name = engine.catalog.by_name.write();
        by_name.remove(from);
        *tree.name.write() = to.to_owned();
        by_name.insert(to.to_owned(), tree);
        Ok(())
    }
}
