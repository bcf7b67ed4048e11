//! Drops and renames trees.

use crate::{
    base::{EntryKind, Error, Result, TreeId},
    commit::RawBatch,
    db::{
        engine::{
            catalog::{DroppedTree, TreeState, catalog_key},
            root::Engine,
        },
        write::pipeline,
    },
    wal::Wal,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

/// Drops trees in one commit. The caller holds the catalog lock.
pub(in crate::db) fn drop_trees(engine: &Engine, trees: &BTreeMap<&str, Arc<TreeState>>) -> Result<()> {
    let mut batch = RawBatch::default();
    for (name, tree) in trees {
        batch.push(EntryKind::Tombstone, &[&catalog_key(b'n', name.as_bytes())], b"");
        if let Some(end) = tree.id.end_key() {
            batch.push(EntryKind::RangeDelete, &[&tree.id.first_key()], &end);
        }
    }
    remember_dropped(engine, trees.values().map(AsRef::as_ref), &mut batch);
    let prepared = batch.prepare()?;
    let mark = |is_dropped| trees.values().for_each(|tree| tree.dropped.store(is_dropped, Ordering::Release));
    // INVARIANT: mark the trees and bump the count before the commit. A commit that checked its
    // trees earlier then sees the new count, so none lands above the range delete.
    mark(true);
    engine.catalog.drops.fetch_add(1, Ordering::Release);
    let dropped = pipeline::commit(engine, prepared, engine.settings.durability);
    if dropped.as_ref().is_err_and(|e| !matches!(e, Error::CommitUnknown { .. })) {
        mark(false);
        return dropped.map(|_| ());
    }
    trees.values().for_each(|tree| engine.commits.tree_ends.forget(tree.id));
    let mut by_name = engine.catalog.by_name.write();
    trees.keys().for_each(|name| _ = by_name.remove(*name));
    drop(by_name);
    let sequence = dropped.as_ref().map_or_else(|_| engine.readers.snapshots.visible(), |sequence| *sequence);
    let floor = engine.log.wal.as_ref().map_or(0, Wal::floor);
    let mut recent_writes = engine.catalog.dropped.write();
    recent_writes.retain(|_, tree| tree.sequence > floor);
    recent_writes.extend(
        trees
            .iter()
            .map(|(name, tree)| (tree.id, DroppedTree { name: (*name).to_owned(), multi: tree.multi, sequence })),
    );
    drop(recent_writes);
    dropped.map(|_| ())
}

/// Stores dropped trees in the catalog while the log may mention them, and removes others. The
/// caller holds the catalog lock.
pub(in crate::db) fn remember_dropped<'a>(
    engine: &Engine,
    trees: impl Iterator<Item = &'a TreeState>,
    batch: &mut RawBatch,
) {
    let key = |id: TreeId| catalog_key(b'd', &id.0.to_be_bytes());
    let floor = engine.log.wal.as_ref().map_or(0, Wal::floor);
    let dropped = engine.catalog.dropped.read();
    for (id, _) in dropped.iter().filter(|(_, tree)| tree.sequence <= floor) {
        batch.push(EntryKind::Tombstone, &[&key(*id)], b"");
    }
    for tree in trees {
        batch.push(EntryKind::Value, &[&key(tree.id)], &DroppedTree::encode(tree));
    }
}
