//! Upgrades files of earlier format versions.
//!
//! Older files are read as they are; new files have the present version. The log continues in a new
//! segment, and the first edit rewrites the manifest. Merges replace older runs and views, and move
//! values out of older blob files. Partitions that need no other merge are merged for this: one at
//! a time while idle, or all by [`crate::Db::upgrade`].

use super::{compact, io_throttle};
use crate::{
    base::{FileNumber, Result},
    codec::{FILE_HEADER_LEN, FORMAT_VERSION, FileHeader, FileKind},
    db::engine::{parts::maintenance::WorkState, root::Engine},
    platform::OpenMode,
    read::ReadState,
    table::blob::blob_path,
    version::Partition,
};
use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

/// Possible offsets of a header; CURRENT has two slots.
const SLOT_OFFSETS: [u64; 2] = [0, 4096];

/// A file of an earlier format version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct OlderFile {
    /// File name in the database directory.
    pub name: String,
    /// Format version in its header.
    pub version: u32,
}

/// Result of an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpgradeReport {
    /// Number of older files before the upgrade.
    pub before: usize,
    /// Older files that remain: log segments retained for watchers, files pinned by readers, and
    /// blob files with a damaged value.
    pub left: Vec<OlderFile>,
}

/// Returns the lowest version in the headers of a file; `None` if it has none or is missing.
pub(in crate::db) fn oldest_header(engine: &Engine, path: &Path) -> Option<u32> {
    let file = engine.storage.table.vfs.open(path, OpenMode::Read).ok()?;
    let versions = SLOT_OFFSETS.iter().filter_map(|&offset| {
        let mut bytes = [0; FILE_HEADER_LEN];
        let len = file.read_at(&mut bytes, offset).ok()?;
        let kind = FileKind::of_magic(&bytes[..len])?;
        // Only CURRENT has a header at the second offset.
        let is_header = offset == 0 || kind == FileKind::Current;
        FileHeader::decode(kind, &bytes[..len], path, offset).ok().filter(|_| is_header).map(|header| header.version)
    });
    versions.min()
}

/// Finds, once, the blob files of earlier versions. Merges then move values out of them.
pub fn find_older_blobs(engine: &Engine) {
    if engine.maintenance.work.lock().older_blobs.is_some() {
        return;
    }
    let state = engine.cell.state.load_full();
    let runs = state.version.partitions.iter().flat_map(|partition| partition.all_runs());
    let uses = runs.flat_map(|handle| handle.run().meta().blob_uses.iter().map(|used| used.file));
    let used: BTreeSet<FileNumber> = uses.collect();
    let is_older = |number: &FileNumber| {
        oldest_header(engine, &blob_path(&engine.dir, *number)).is_some_and(|version| version < FORMAT_VERSION)
    };
    let older = used.into_iter().filter(is_older).collect();
    engine.maintenance.work.lock().older_blobs = Some(older);
}

pub(in crate::db) fn merge_older(engine: &Engine) -> Result<bool> {
    let _hurry = io_throttle::hurry(engine);
    let state = engine.cell.state.load_full();
    let work = engine.maintenance.work.lock();
    let is_to_be_merged = |partition: &&Arc<Partition>| is_older(partition, &work);
    let ids: Vec<u64> = state.version.partitions.iter().filter(is_to_be_merged).map(|p| p.id).collect();
    drop((work, state));
    for id in &ids {
        compact::partition(engine, *id)?;
    }
    Ok(!ids.is_empty())
}

pub fn older_runs(state: &ReadState) -> u64 {
    let runs = state.version.partitions.iter().flat_map(|partition| partition.all_runs()).map(|handle| handle.run());
    let older = runs.filter(|run| run.version() < FORMAT_VERSION).map(|run| run.meta().number);
    older.collect::<BTreeSet<_>>().len() as u64
}

pub fn may_upgrade(engine: &Engine) -> bool {
    !engine.settings.is_restoring && !engine.health.closing.load(Ordering::Acquire)
}

/// Returns whether a partition has runs of an earlier version, or movable values in older blob
/// files.
pub fn is_older(partition: &Partition, work: &WorkState) -> bool {
    let is_movable = |file: &FileNumber| !work.unmovable_blobs.contains(file);
    let older_blobs = work.older_blobs.as_ref();
    let is_in_older = |file: &FileNumber| older_blobs.is_some_and(|older| older.contains(file)) && is_movable(file);
    partition.all_runs().any(|handle| {
        let run = handle.run();
        run.version() < FORMAT_VERSION || run.meta().blob_uses.iter().any(|used| is_in_older(&used.file))
    })
}
