//! Rewriting files of older formats: [`Db::upgrade`].

use crate::{
    base::Result,
    codec::FORMAT_VERSION,
    db::{
        files::names::numbered,
        handles::database::Db,
        maintenance::upgrade::{OlderFile, UpgradeReport},
    },
    version::CURRENT_NAME,
};

impl Db {
    /// The files of the database whose headers tell an earlier format version than what this build writes, by name. Reads 64 bytes of each
    /// file. Files that come or go meanwhile may be missing.
    pub fn older_files(&self) -> Result<Vec<OlderFile>> {
        let engine = self.engine();
        engine.health.check_open()?;
        let names =
            engine.storage.table.vfs.list(&engine.dir).map_err(|e| crate::base::Error::io("list", &engine.dir, e))?;
        let of_database = names.into_iter().filter(|e| e.name == CURRENT_NAME || numbered(&e.name).is_some());
        let mut older: Vec<OlderFile> = of_database
            .filter_map(|entry| {
                let version = engine.oldest_header(&engine.dir.join(&entry.name))?;
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
        let engine = self.engine();
        let inside = engine.health.enter()?;
        engine.health.check_writable()?;
        engine.flush_all()?;
        for _ in 0..ROUNDS_MAX {
            engine.find_older_blobs();
            if !engine.merge_older()? {
                break;
            }
        }
        // One edit writes an older manifest anew, and each of two one slot of CURRENT.
        engine.put_into_force(Vec::new())?;
        engine.put_into_force(Vec::new())?;
        if let Some(wal) = &engine.log.wal {
            engine.release_log(wal)?;
            wal.trim_spares();
        }
        engine.remove_leftovers()?;
        // Older files that remain after this are pinned by readers.
        engine.storage.table.deferred_close.work_through();
        drop(inside);
        Ok(UpgradeReport { before, left: self.older_files()? })
    }
}

/// So often what is older is merged: others may merge, flush and drop meanwhile.
const ROUNDS_MAX: usize = 8;
