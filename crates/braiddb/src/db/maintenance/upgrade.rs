//! Files of earlier format versions, and how they go.
//!
//! A database that an earlier build has written opens at once, whatever its version: files are read as they are. What is written is of the present
//! version: the log goes on in a new segment, and the manifest is written anew, with the first edit. Runs, views and blob files of earlier
//! versions go as merges replace them. What merges have no reason to touch is merged for that reason alone: in the background while nothing is
//! committed, one partition at a time, or all at once by [`Db::upgrade`]. Values are moved out of older blob files by the same merges that move
//! them out of files that are mostly dead.

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

/// Where a second header may stand: CURRENT has two slots.
const SLOT_OFFSETS: [u64; 2] = [0, 4096];

/// A file of an earlier format version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct OlderFile {
    /// Its name in the database's directory.
    pub name: String,
    /// The version that its header tells.
    pub version: u32,
}

/// What became of the files of earlier format versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpgradeReport {
    /// How many there were.
    pub before: usize,
    /// Those that are still there: segments of the log that are kept for who watches it, files that readers are reading, and blob files with a
    /// damaged value.
    pub left: Vec<OlderFile>,
}

impl Engine {
    /// The lowest version that a header of a file tells; `None` for what has none, or is gone.
    pub(in crate::db) fn oldest_header(&self, path: &Path) -> Option<u32> {
        let file = self.storage.table.vfs.open(path, OpenMode::Read).ok()?;
        let versions = SLOT_OFFSETS.iter().filter_map(|&offset| {
            let mut bytes = [0; FILE_HEADER_LEN];
            let len = file.read_at(&mut bytes, offset).ok()?;
            let kind = FileKind::of_magic(&bytes[..len])?;
            // In other files, what stands there is not looked at.
            let is_header = offset == 0 || kind == FileKind::Current;
            FileHeader::decode(kind, &bytes[..len], path, offset)
                .ok()
                .filter(|_| is_header)
                .map(|header| header.version)
        });
        versions.min()
    }

    /// Looks which blob files are of an earlier version, if that was not done yet; values will be moved out of them.
    pub fn find_older_blobs(&self) {
        if self.maintenance.work.lock().older_blobs.is_some() {
            return;
        }
        let state = self.cell.state.load_full();
        let runs = state.version.partitions.iter().flat_map(|partition| partition.all_runs());
        let uses = runs.flat_map(|handle| handle.run().meta().blob_uses.iter().map(|used| used.file));
        let used: BTreeSet<FileNumber> = uses.collect();
        let is_older = |number: &FileNumber| {
            self.oldest_header(&blob_path(&self.dir, *number)).is_some_and(|version| version < FORMAT_VERSION)
        };
        let older = used.into_iter().filter(is_older).collect();
        self.maintenance.work.lock().older_blobs = Some(older);
    }

    /// Merges each partition that has anything older; whether there was one.
    pub(in crate::db) fn merge_older(&self) -> Result<bool> {
        let _hurry = self.hurry();
        let state = self.cell.state.load_full();
        let work = self.maintenance.work.lock();
        let is_to_be_merged = |partition: &&Arc<Partition>| is_older(partition, &work);
        let ids: Vec<u64> = state.version.partitions.iter().filter(is_to_be_merged).map(|p| p.id).collect();
        drop((work, state));
        for id in &ids {
            self.compact_partition(*id)?;
        }
        Ok(!ids.is_empty())
    }

    /// How many runs are of an earlier version.
    pub fn older_runs(state: &ReadState) -> u64 {
        let runs =
            state.version.partitions.iter().flat_map(|partition| partition.all_runs()).map(|handle| handle.run());
        let older = runs.filter(|run| run.version() < FORMAT_VERSION).map(|run| run.meta().number);
        older.collect::<BTreeSet<_>>().len() as u64
    }

    /// Whether nothing is merged for its version's sake any more, or not now.
    pub fn may_upgrade(&self) -> bool {
        !self.settings.is_restoring && !self.health.closing.load(Ordering::Acquire)
    }
}

/// Whether a partition has runs of an earlier version, or values in such blob files that can be moved.
pub fn is_older(partition: &Partition, work: &WorkState) -> bool {
    let is_movable = |file: &FileNumber| !work.unmovable_blobs.contains(file);
    let older_blobs = work.older_blobs.as_ref();
    let is_in_older = |file: &FileNumber| older_blobs.is_some_and(|older| older.contains(file)) && is_movable(file);
    partition.all_runs().any(|handle| {
        let run = handle.run();
        run.version() < FORMAT_VERSION || run.meta().blob_uses.iter().any(|used| is_in_older(&used.file))
    })
}
