//! Databases.

use crate::{
    boundary::{Outcome, free, handle, path, run, set, text},
    code::braid_code::*,
    options::{self, braid_options, new_handle},
    scan::braid_scan,
    value::braid_value,
};
use braiddb::{
    Db,
    backup::{Backups, DirectoryTarget},
};
use std::{ffi::c_char, fmt::Write};

/// An open database.
pub struct braid_db {
    db: Db,
}

impl braid_db {
    /// After the close its calls fail.
    pub(crate) fn open(&self) -> Outcome<&Db> {
        Ok(&self.db)
    }
}

/// Opens or creates a database. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_open(path: *const c_char, options: *const braid_options, db: *mut *mut braid_db) -> i32 {
    // SAFETY: the header's rules.
    unsafe {
        new_handle(db, "db", || {
            let path = self::path(path, "path")?;
            let builder = options::database(options)?;
            Ok(braid_db { db: builder.open(path)? })
        })
    }
}

/// Opens an empty database in memory, without files. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_open_in_memory(options: *const braid_options, db: *mut *mut braid_db) -> i32 {
    // SAFETY: the header's rules.
    unsafe {
        new_handle(db, "db", || {
            let builder = options::database(options)?;
            Ok(braid_db { db: builder.open_in_memory()? })
        })
    }
}

/// Closes a database, and frees its handle, also if this fails: makes its commits durable, ends its
/// work and releases its lock. Other handles of the database stay valid until they are freed: their
/// calls fail with `BRAID_CLOSED`. A failure means that background work had failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_close(db: *mut braid_db) -> i32 {
    let code = run(|| {
        // SAFETY: the header's rules.
        let closed = unsafe { handle(db, "db") }?.db.clone().close();
        closed?;
        Ok(BRAID_OK)
    });
    // SAFETY: the header's rules.
    unsafe { free(db) };
    code
}

fn call(db: *const braid_db, work: impl FnOnce(&Db) -> Outcome<()>) -> i32 {
    run(|| {
        // SAFETY: the header's rules.
        work(unsafe { handle(db, "db") }?.open()?)?;
        Ok(BRAID_OK)
    })
}

/// Makes all earlier commits durable, with one device flush.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_sync(db: *const braid_db) -> i32 {
    call(db, |db| Ok(db.sync()?))
}

/// Writes the newest commits from memory to sorted files, and makes them durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_flush(db: *const braid_db) -> i32 {
    call(db, |db| Ok(db.flush()?))
}

/// Merges all files that hold garbage, and so removes it. Takes time in proportion to their size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_compact(db: *const braid_db) -> i32 {
    call(db, |db| Ok(db.compact()?))
}

/// Reads every byte and compares its checksum: `BRAID_CORRUPTION` with the first damage.
/// `problems`, which may be NULL, takes the number of damaged places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_verify(db: *const braid_db, problems: *mut u64) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let report = handle(db, "db")?.open()?.verify()?;
        set(problems, report.problems.len() as u64);
        match report.problems.first() {
            None => Ok(BRAID_OK),
            Some(first) => {
                let message = format!("{first:?}");
                Err(crate::boundary::Failure { code: BRAID_CORRUPTION, message })
            }
        }
    })
}

/// Returns statistics as lines of a name, a space and a number. Names are those of Rust's
/// `braiddb::stats::Stats`. Of commits that took long, `slow_commits_CAUSE` has the number and
/// `slow_commit_us_CAUSE` the microseconds of that part; a cause is `sync`, for example.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_stats(db: *const braid_db, statistics: *mut *mut braid_value) -> i32 {
    // SAFETY: the header's rules.
    unsafe {
        new_handle(statistics, "statistics", || {
            let stats = handle(db, "db")?.open()?.stats();
            let mut lines = String::new();
            macro_rules! lines {
                ($($name:ident)*) => {
                    // A String takes every line.
                    $(let _ = writeln!(lines, concat!(stringify!($name), " {}"), stats.$name);)*
                };
            }
            lines!(commits user_bytes_written log_bytes_written run_bytes_written view_bytes_written
                blob_bytes_written manifest_bytes_written disk_bytes memory_bytes memtable_bytes cache_bytes
                cache_hits cache_misses open_files syncs flushes merges loose_merges folds expired
                background_errors transaction_conflicts transaction_retries slowed_us stalls stall_us_max
                pressure_per_mille recovered_records snapshots last_sequence frozen_memtables);
            for total in &stats.slow_commit_totals {
                let cause = total.cause.name();
                let _ = writeln!(lines, "slow_commits_{cause} {}", total.commits);
                let _ = writeln!(lines, "slow_commit_us_{cause} {}", total.part_us);
            }
            Ok(lines.into_bytes().into())
        })
    }
}

/// Lists the trees, by name: keys of the scan are names, values "multi" or empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_trees(db: *const braid_db, names: *mut *mut braid_scan) -> i32 {
    // SAFETY: the header's rules.
    unsafe {
        new_handle(names, "names", || {
            let trees = handle(db, "db")?.open()?.trees()?;
            let row = |tree: braiddb::stats::TreeInfo| {
                (tree.name.into_bytes(), if tree.multi { b"multi".to_vec() } else { Vec::new() })
            };
            Ok(braid_scan::of_list(trees.into_iter().map(row).collect()))
        })
    }
}

/// Drops a tree with all its records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_drop_tree(db: *const braid_db, name: *const c_char) -> i32 {
    // SAFETY: the header's rules.
    call(db, |db| Ok(db.drop_tree(unsafe { text(name, "name") }?)?))
}

/// Renames a tree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_rename_tree(db: *const braid_db, from: *const c_char, to: *const c_char) -> i32 {
    // SAFETY: the header's rules.
    call(db, |db| Ok(unsafe { db.rename_tree(text(from, "from")?, text(to, "to")?) }?))
}

/// Adds a backup of the database to a directory of backups, which share unchanged files. `id`,
/// which may be NULL, takes its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_backup(db: *const braid_db, directory: *const c_char, id: *mut u64) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let directory = path(directory, "directory")?;
        let info = handle(db, "db")?.open()?.backup(&DirectoryTarget::open(directory)?)?;
        set(id, info.id);
        Ok(BRAID_OK)
    })
}

/// Checks the backups in a directory: that of number `id`, or all if 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_backup_verify(directory: *const c_char, id: u64) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let target = DirectoryTarget::open(path(directory, "directory")?)?;
        let report = Backups::new(&target).verify((id != 0).then_some(id))?;
        match report.problems.first() {
            None => Ok(BRAID_OK),
            Some(first) => Err(crate::boundary::Failure { code: BRAID_CORRUPTION, message: format!("{first:?}") }),
        }
    })
}

/// Makes a database in `path`, which must not exist or be empty, from the backup of number `id`, or
/// from the newest if 0. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_restore(
    directory: *const c_char,
    id: u64,
    path: *const c_char,
    options: *const braid_options,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let target = DirectoryTarget::open(self::path(directory, "directory")?)?;
        let builder = options::database(options)?;
        builder.restore(&target, (id != 0).then_some(id), self::path(path, "path")?)?;
        Ok(BRAID_OK)
    })
}
