//! Drops and renames trees.

use crate::{
    base::{EntryKind, Error, Result},
    commit::RawBatch,
    db::engine::{
        catalog::{DroppedTree, TreeState, catalog_key},
        root::Engine,
    },
    wal::Wal,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

impl Engine {
    /// Drops trees in one commit. The caller holds the catalog lock.
    pub(in crate::db) fn drop_all(&self, trees: &BTreeMap<&str, Arc<TreeState>>) -> Result<()> {
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
        // INVARIANT: mark the trees and bump the count before the commit. A commit that checked its
        // trees earlier then sees the new count, so none lands above the range delete.
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
        let sequence = dropped.as_ref().map_or_else(|_| self.readers.snapshots.visible(), |sequence| *sequence);
        let floor = self.log.wal.as_ref().map_or(0, Wal::floor);
        let mut recent_writes = self.catalog.dropped.write();
        recent_writes.retain(|_, tree| tree.sequence > floor);
        recent_writes.extend(
            trees
                .iter()
                .map(|(name, tree)| (tree.id, DroppedTree { name: (*name).to_owned(), multi: tree.multi, sequence })),
        );
        drop(recent_writes);
        dropped.map(|_| ())
    }
}
