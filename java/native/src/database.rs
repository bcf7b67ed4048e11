//! Databases, and what they share.

use crate::{
    boundary::{Outcome, free, give_handle, give_writer, handle, native, split},
    codec::{Reader, Writer},
    errors::Failure,
    options,
};
use braiddb::{Db, SharedRuntime, backup::DirectoryTarget};
use jni::{
    EnvUnowned,
    objects::JClass,
    sys::{jint, jlong},
};
use std::sync::atomic::{AtomicBool, Ordering};

/// A database. The engine's handle outlives the close, after which its calls fail.
pub struct DatabaseCell {
    db: Db,
    is_closed: AtomicBool,
}

impl DatabaseCell {
    pub fn open(&self) -> Outcome<&Db> {
        if self.is_closed.load(Ordering::Acquire) { Err(Failure::closed()) } else { Ok(&self.db) }
    }
}

/// Returns the database of a handle.
pub fn open<'a>(database: jlong) -> Outcome<&'a Db> {
    handle::<DatabaseCell>(database)?.open()
}

native! {
    /// Opens a database. The buffer has a path, absent for one in memory, and options.
    fn database_open(runtime: jlong, options_len: jint) |buffer| {
        let (arguments, _) = split(buffer, options_len)?;
        let mut arguments = Reader::new(arguments);
        let path = arguments.maybe_bytes()?.map(std::str::from_utf8).transpose();
        let path = path.map_err(|_| Failure::argument("the path is not UTF-8"))?;
        let mut builder = options::builder(&mut arguments)?;
        if runtime != 0 {
            builder = builder.shared_runtime(handle::<SharedRuntime>(runtime)?);
        }
        let db = match path {
            Some(path) => builder.open(path)?,
            None => builder.open_in_memory()?,
        };
        give_handle(buffer, DatabaseCell { db, is_closed: AtomicBool::new(false) })
    }
}

native! {
    /// Makes commits durable and releases the files. Waits for the end of background work.
    fn database_close(database: jlong) |_buffer| {
        let cell = handle::<DatabaseCell>(database)?;
        if !cell.is_closed.swap(true, Ordering::AcqRel) {
            cell.db.clone().close()?;
        }
        Ok(0)
    }
}

/// Frees a database, which closes it if no other handle is left.
#[jni::jni_mangle("io.github.braiddb.Native")]
pub fn database_free<'local>(_env: EnvUnowned<'local>, _class: JClass<'local>, database: jlong) {
    free::<DatabaseCell>(database);
}

native! {
    fn database_sync(database: jlong) |_buffer| { open(database)?.sync()?; Ok(0) }
}

native! {
    fn database_flush(database: jlong) |_buffer| { open(database)?.flush()?; Ok(0) }
}

native! {
    fn database_compact(database: jlong) |_buffer| { open(database)?.compact()?; Ok(0) }
}

native! {
    fn database_archive_now(database: jlong) |_buffer| { Ok(open(database)?.archive_now()? as jlong) }
}

native! {
    fn database_revoke_exclusive(database: jlong) |_buffer| { Ok(jlong::from(open(database)?.revoke_exclusive()?)) }
}

native! {
    /// Lists the trees: name, many values per key, codec, time to live in microseconds or -1.
    fn database_trees(database: jlong) |buffer| {
        let trees = open(database)?.trees()?;
        let mut result = Writer::new();
        result.count(trees.len());
        for tree in trees {
            result.text(&tree.name);
            result.bool(tree.multi);
            result.maybe_bytes(tree.codec.map(|codec| codec.to_string()).as_ref().map(String::as_bytes));
            result.long(tree.ttl.map_or(u64::MAX, |ttl| u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX)));
        }
        give_writer(buffer, result)
    }
}

native! {
    fn database_drop_tree(database: jlong, name_len: jint) |buffer| {
        open(database)?.drop_tree(crate::boundary::text(buffer, name_len)?)?;
        Ok(0)
    }
}

native! {
    fn database_rename_tree(database: jlong, names_len: jint) |buffer| {
        let (names, _) = split(buffer, names_len)?;
        let mut names = Reader::new(names);
        open(database)?.rename_tree(names.text()?, names.text()?)?;
        Ok(0)
    }
}

native! {
    fn database_application_cursor(database: jlong) |buffer| {
        match open(database)?.application_cursor()? {
            Some(cursor) => crate::boundary::give(buffer, &cursor),
            None => Ok(crate::boundary::ABSENT),
        }
    }
}

native! {
    /// Returns counters as names and numbers, then texts as names and texts.
    fn database_stats(database: jlong) |buffer| {
        let stats = open(database)?.stats();
        let mut result = Writer::new();
        macro_rules! numbers {
            ($($name:ident)*) => {
                result.count([$(stringify!($name)),*].len() + 1 + 2 * stats.slow_commit_totals.len());
                $(
                    result.text(stringify!($name));
                    result.long(stats.$name as u64);
                )*
                result.text("partitions");
                result.long(stats.partitions.len() as u64);
                for total in &stats.slow_commit_totals {
                    let cause = total.cause.name();
                    result.text(&format!("slow_commits_{cause}"));
                    result.long(total.commits);
                    result.text(&format!("slow_commit_us_{cause}"));
                    result.long(total.part_us);
                }
            };
        }
        numbers!(commits user_bytes_written log_bytes_written open_files open_files_max file_reopenings
            log_kept_bytes run_bytes_written view_bytes_written blob_bytes_written manifest_bytes_written disk_bytes
            disk_reserve_bytes memory_bytes memtable_bytes memtable_bytes_max cache_bytes cache_hits cache_misses
            syncs flushes merges loose_merges expired folds views_healed hash_indexes hash_index_bytes
            background_errors transaction_conflicts transaction_retries slowed_us stalls stall_us_max
            pressure_per_mille recovered_records snapshots dead_entries_held readers_expired last_sequence
            frozen_memtables older_runs);
        let texts = [("failure", &stats.failure), ("log_tail_note", &stats.log_tail_note)];
        let present = texts.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?)));
        for (name, text) in present {
            result.text(name);
            result.text(text);
        }
        give_writer(buffer, result)
    }
}

native! {
    fn database_verify(database: jlong) |buffer| {
        let report = open(database)?.verify()?;
        give_writer(buffer, crate::admin::verify_report(&report))
    }
}

native! {
    fn database_checkpoint(database: jlong, path_len: jint) |buffer| {
        Ok(open(database)?.checkpoint(crate::boundary::text(buffer, path_len)?)? as jlong)
    }
}

native! {
    /// Adds a backup to a directory of backups.
    fn database_backup(database: jlong, is_full: jint, path_len: jint) |buffer| {
        let target = DirectoryTarget::open(crate::boundary::text(buffer, path_len)?)?;
        let options = braiddb::backup::BackupOptions::new().full(is_full != 0);
        let info = open(database)?.backup_with(&target, options)?;
        let mut result = Writer::new();
        crate::admin::backup_info(&mut result, &info);
        give_writer(buffer, result)
    }
}

native! {
    /// Opens memory and threads that databases share.
    fn runtime_open(memory: jlong, threads: jint) |buffer| {
        let mut builder = SharedRuntime::builder();
        if memory >= 0 {
            builder = builder.memory(usize::try_from(memory).unwrap_or(usize::MAX));
        }
        if threads >= 0 {
            builder = builder.background_threads(threads as usize);
        }
        give_handle(buffer, builder.build()?)
    }
}

native! {
    /// Returns used bytes: of all, of memtables, of the cache; then the limit and the databases.
    fn runtime_stats(runtime: jlong) |buffer| {
        let stats = handle::<SharedRuntime>(runtime)?.stats();
        let mut result = Writer::new();
        for number in [stats.memory_bytes, stats.memtable_bytes, stats.cache_bytes, stats.memory as u64, stats.databases as u64] {
            result.long(number);
        }
        give_writer(buffer, result)
    }
}

/// Frees a shared runtime. Its databases keep it until they are closed.
#[jni::jni_mangle("io.github.braiddb.Native")]
pub fn runtime_free<'local>(_env: EnvUnowned<'local>, _class: JClass<'local>, runtime: jlong) {
    free::<SharedRuntime>(runtime);
}
