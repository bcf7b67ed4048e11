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
    db::{
        engine::core::{Core, WorkState},
        files::names::numbered,
        handles::database::Db,
    },
    platform::OpenMode,
    read::ReadState,
    table::blob::blob_path,
    version::{CURRENT_NAME, Partition},
};
use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

/// Where a second header may stand: CURRENT has two slots.
const SLOT_OFFSETS: [u64; 2] = [0, 4096];

/// So often what is older is merged: others may merge, flush and drop meanwhile.
const ROUNDS_MAX: usize = 8;

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

impl Db {
    /// The files of the database whose headers tell an earlier format version than what this build writes, by name. Reads 64 bytes of each
    /// file. Files that come or go meanwhile may be missing.
    pub fn older_files(&self) -> Result<Vec<OlderFile>> {
        let core = self.core();
        core.check_open()?;
        let names = core.table.vfs.list(&core.dir).map_err(|e| crate::base::Error::io("list", &core.dir, e))?;
        let of_database = names.into_iter().filter(|e| e.name == CURRENT_NAME || numbered(&e.name).is_some());
        let mut older: Vec<OlderFile> = of_database
            .filter_map(|entry| {
                let version = core.oldest_header(&core.dir.join(&entry.name))?;
                (version < FORMAT_VERSION).then_some(OlderFile { name: entry.name, version })
            })
            .collect();
        older.sort();
        Ok(older)
    }

    /// Writes everything anew that is of an earlier format version, while reads and writes go on; does nothing where nothing is. Afterwards an
    /// older build cannot open the database any more, nor could it before. A database does the same by itself while nothing is committed,
    /// but for the log, whose older segments go with the next flush.
    ///
    /// Takes time linear in the partitions that have older files, and their space once more, one partition at a time. What has
    /// been done stays, should it fail or be killed; called again, it goes on.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// assert_eq!(db.upgrade()?.before, 0);
    /// assert!(db.older_files()?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn upgrade(&self) -> Result<UpgradeReport> {
        let before = self.older_files()?.len();
        if before == 0 {
            return Ok(UpgradeReport::default());
        }
        let core = self.core();
        let inside = core.enter()?;
        core.check_writable()?;
        core.flush_all()?;
        for _ in 0..ROUNDS_MAX {
            core.find_older_blobs();
            if !core.merge_older()? {
                break;
            }
        }
        // One edit writes an older manifest anew, and each of two one slot of CURRENT.
        core.put_into_force(Vec::new())?;
        core.put_into_force(Vec::new())?;
        if let Some(wal) = &core.wal {
            core.release_log(wal)?;
            wal.trim_spares();
        }
        core.remove_leftovers()?;
        // What is left afterwards is what somebody holds.
        core.table.disposal.work_through();
        drop(inside);
        Ok(UpgradeReport { before, left: self.older_files()? })
    }
}

impl Core {
    /// The lowest version that a header of a file tells; `None` for what has none, or is gone.
    fn oldest_header(&self, path: &Path) -> Option<u32> {
        let file = self.table.vfs.open(path, OpenMode::Read).ok()?;
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
        if self.work.lock().older_blobs.is_some() {
            return;
        }
        let state = self.state.load_full();
        let runs = state.version.partitions.iter().flat_map(|partition| partition.all_runs());
        let uses = runs.flat_map(|handle| handle.run().meta().blob_uses.iter().map(|used| used.file));
        let used: BTreeSet<FileNumber> = uses.collect();
        let is_older = |number: &FileNumber| {
            self.oldest_header(&blob_path(&self.dir, *number)).is_some_and(|version| version < FORMAT_VERSION)
        };
        let older = used.into_iter().filter(is_older).collect();
        self.work.lock().older_blobs = Some(older);
    }

    /// Merges each partition that has anything older; whether there was one.
    fn merge_older(&self) -> Result<bool> {
        let _hurry = self.hurry();
        let state = self.state.load_full();
        let work = self.work.lock();
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
        !self.settings.is_restoring && !self.closing.load(Ordering::Acquire)
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
