//! Rewrites files of earlier format versions: [`Db::upgrade`].

use crate::{
    base::Result,
    codec::FORMAT_VERSION,
    db::{
        engine::edits,
        files::names::numbered,
        handles::database::Db,
        maintenance::{
            flush, install, log_trim,
            upgrade::{self, OlderFile, UpgradeReport},
        },
    },
    version::CURRENT_NAME,
};

impl Db {
    /// Lists the files with an earlier format version than this build writes, by name. Reads 64
    /// bytes per file. May miss concurrently created or removed files.
    pub fn older_files(&self) -> Result<Vec<OlderFile>> {
        let engine = self.engine();
        engine.health.check_open()?;
        let names =
            engine.storage.table.vfs.list(&engine.dir).map_err(|e| crate::base::Error::io("list", &engine.dir, e))?;
        let of_database = names.into_iter().filter(|e| e.name == CURRENT_NAME || numbered(&e.name).is_some());
        let mut older: Vec<OlderFile> = of_database
            .filter_map(|entry| {
                let version = upgrade::oldest_header(engine, &engine.dir.join(&entry.name))?;
                (version < FORMAT_VERSION).then_some(OlderFile { name: entry.name, version })
            })
            .collect();
        older.sort();
        Ok(older)
    }

    /// Rewrites all files of earlier format versions, during normal operation. Older builds cannot
    /// open the database, before or after. An idle database upgrades itself, except for older log
    /// segments, which the next flush removes.
    ///
    /// Takes time linear in the partitions with older files, and space for one more partition.
    /// After a failure, call it again to continue.
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
        flush::all(engine)?;
        for _ in 0..ROUNDS_MAX {
            upgrade::find_older_blobs(engine);
            if !upgrade::merge_older(engine)? {
                break;
            }
        }
        // One edit rewrites an older manifest; two edits rewrite both slots of CURRENT.
        edits::apply(engine, Vec::new())?;
        edits::apply(engine, Vec::new())?;
        if let Some(wal) = &engine.log.wal {
            install::release_log(engine, wal)?;
            wal.trim_spares();
        }
        log_trim::remove_leftovers(engine)?;
        // Readers pin remaining files.
        engine.storage.table.deferred_close.work_through();
        drop(inside);
        Ok(UpgradeReport { before, left: self.older_files()? })
    }
}

/// Maximum passes: concurrent merges, flushes and drops may leave older files.
const ROUNDS_MAX: usize = 8;
