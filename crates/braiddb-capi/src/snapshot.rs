//! Snapshots.

use crate::{
    boundary::{free, handle},
    db::braid_db,
    options::new_handle,
    place::Place,
    tree::braid_tree,
};
use braiddb::Snapshot;

/// The database as of one commit.
pub struct braid_snapshot {
    snapshot: Snapshot,
}

/// Takes a snapshot. It retains old versions until it and its trees are freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_snapshot_new(db: *const braid_db, snapshot: *mut *mut braid_snapshot) -> i32 {
    // SAFETY: the header's rules.
    unsafe {
        new_handle(snapshot, "snapshot", || Ok(braid_snapshot { snapshot: handle(db, "db")?.open()?.snapshot() }))
    }
}

/// Returns the number of the snapshot's last commit; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_snapshot_sequence(snapshot: *const braid_snapshot) -> u64 {
    // SAFETY: the header's rules.
    unsafe { snapshot.as_ref() }.map_or(0, |of| of.snapshot.sequence())
}

/// Returns a handle that reads `tree` in the snapshot. Writes through it are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_snapshot_tree(
    snapshot: *const braid_snapshot,
    tree: *const braid_tree,
    in_snapshot: *mut *mut braid_tree,
) -> i32 {
    // SAFETY: the header's rules.
    unsafe {
        new_handle(in_snapshot, "in_snapshot", || {
            let snapshot = handle(snapshot, "snapshot")?.snapshot.clone();
            Ok(handle(tree, "tree")?.at(Place::Snapshot(snapshot)))
        })
    }
}

/// Frees a snapshot. Its trees stay valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_snapshot_free(snapshot: *mut braid_snapshot) {
    // SAFETY: the header's rules.
    unsafe { free(snapshot) };
}
