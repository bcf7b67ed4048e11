//! Bulk loads: many rows in one call, written to files without the log.

use crate::{
    boundary::{Silent, free, give_handle, handle, native, split},
    codec::Reader,
    errors::Failure,
    tree::plain,
};
use braiddb::bulk::{BulkLoader, BulkOptions, Loaded};
use jni::{
    EnvUnowned,
    objects::JClass,
    sys::{jint, jlong},
};
use parking_lot::Mutex;

enum Loader {
    Sorted(Box<BulkLoader>),
    Unsorted(Box<Silent>),
}

/// A load until its end.
struct LoaderCell {
    open: Mutex<Option<Loader>>,
}

fn closed() -> Failure {
    Failure::closed()
}

native! {
    /// Begins a load of rows in ascending order of keys, or in any order. A negative memory is the
    /// engine's choice.
    fn loader_open(tree: jlong, is_sorted: jint, memory: jlong) |buffer| {
        let tree = plain(tree)?;
        let loader = if is_sorted != 0 {
            Loader::Sorted(Box::new(tree.bulk_loader()?))
        } else {
            let mut options = BulkOptions::new();
            if let Ok(memory) = usize::try_from(memory) {
                options = options.memory(memory);
            }
            Loader::Unsorted(Box::new(Silent(tree.unsorted_loader(options)?)))
        };
        give_handle(buffer, LoaderCell { open: Mutex::new(Some(loader)) })
    }
}

native! {
    /// Adds rows.
    fn loader_add(loader: jlong, rows_len: jint) |buffer| {
        let (rows, _) = split(buffer, rows_len)?;
        let mut rows = Reader::new(rows);
        let mut open = handle::<LoaderCell>(loader)?.open.lock();
        let loader = open.as_mut().ok_or_else(closed)?;
        while !rows.is_at_end() {
            let (key, value) = (rows.bytes()?, rows.bytes()?);
            match loader {
                Loader::Sorted(loader) => loader.add(key, value)?,
                Loader::Unsorted(loader) => loader.0.add(key, value)?,
            }
        }
        Ok(0)
    }
}

native! {
    /// Ends a load, in one commit. Returns the number of its rows.
    fn loader_finish(loader: jlong) |_buffer| {
        let taken = handle::<LoaderCell>(loader)?.open.lock().take();
        let Loaded { records, .. } = match taken.ok_or_else(closed)? {
            Loader::Sorted(loader) => loader.finish()?,
            Loader::Unsorted(loader) => loader.0.finish()?,
        };
        Ok(records as jlong)
    }
}

/// Frees a loader. One without an end has loaded nothing.
#[jni::jni_mangle("io.github.braiddb.Native")]
pub fn loader_free<'local>(_env: EnvUnowned<'local>, _class: JClass<'local>, loader: jlong) {
    free::<LoaderCell>(loader);
}
