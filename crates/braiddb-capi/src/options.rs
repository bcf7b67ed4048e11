//! Options by name, as text.

use crate::{
    boundary::{Failure, Outcome, free, give, handle, run, slot, text},
    code::braid_code::*,
    merge::{CallbackFunction, braid_free_fn, braid_merge_fn},
};
use braiddb::{Builder, Compression, Durability, TreeOptions};
use std::{
    ffi::{c_char, c_void},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// When a commit counts as done.
#[repr(i32)]
#[derive(Clone, Copy, Debug)]
pub enum braid_durability {
    /** As the database's option "durability" says. */
    BRAID_DEFAULT = 0,
    /** When it survives a power failure. */
    BRAID_SYNC = 1,
    /** When it survives the end of the process. A crash of the system may lose the last commits. */
    BRAID_BUFFERED = 2,
    /** When it is in memory. `braid_flush` makes it durable; a crash of the process may lose the last commits. */
    BRAID_MEMORY = 3,
}

pub(crate) fn durability(number: i32) -> Outcome<Option<Durability>> {
    const DEFAULT: i32 = braid_durability::BRAID_DEFAULT as i32;
    const SYNC: i32 = braid_durability::BRAID_SYNC as i32;
    const BUFFERED: i32 = braid_durability::BRAID_BUFFERED as i32;
    const MEMORY: i32 = braid_durability::BRAID_MEMORY as i32;
    match number {
        DEFAULT => Ok(None),
        SYNC => Ok(Some(Durability::Sync)),
        BUFFERED => Ok(Some(Durability::Buffered)),
        MEMORY => Ok(Some(Durability::None)),
        other => Err(Failure::argument(format!("{other} is no `braid_durability`"))),
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    database: Option<Builder>,
    /// The last database option, for messages.
    database_option: Option<String>,
    tree: TreeOptions,
    tree_option: Option<String>,
    multi: bool,
}

/// Options of a database or of a tree, by name: see `braid_options_set`.
#[derive(Debug, Default)]
pub struct braid_options {
    kept: Mutex<Options>,
}

fn is_true(name: &str, value: &str) -> Outcome<bool> {
    match value {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        _ => Err(Failure::argument(format!("{name}: {value:?} is neither \"true\" nor \"false\""))),
    }
}

fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..at].parse().ok()?, text[at..].trim_start()))
}

fn bytes_of(name: &str, value: &str) -> Outcome<u64> {
    let wrong =
        || Failure::argument(format!("{name}: {value:?} is no size, such as \"64KiB\", \"256MiB\" or \"2GiB\""));
    let (number, unit) = number_and_unit(value).ok_or_else(wrong)?;
    let factor = match unit {
        "" | "B" => 1_u64,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(factor).ok_or_else(wrong)
}

fn size_of(name: &str, value: &str) -> Outcome<usize> {
    let bytes = bytes_of(name, value)?;
    usize::try_from(bytes)
        .map_err(|_| Failure::argument(format!("{name}: {value:?} is more than this system's memory")))
}

fn count_of(name: &str, value: &str) -> Outcome<usize> {
    value.parse().map_err(|_| Failure::argument(format!("{name}: {value:?} is no number")))
}

fn duration_of(name: &str, value: &str) -> Outcome<Duration> {
    let wrong = || {
        Failure::argument(format!(
            "{name}: {value:?} is no time, such as \"500ms\", \"30s\", \"5min\", \"2h\" or \"7d\""
        ))
    };
    let (number, unit) = number_and_unit(value).ok_or_else(wrong)?;
    let ms = match unit {
        "ms" => 1_u64,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(ms).map(Duration::from_millis).ok_or_else(wrong)
}

fn compression_of(name: &str, value: &str) -> Outcome<Compression> {
    match value {
        "none" => Ok(Compression::None),
        "lz4" => Ok(Compression::Lz4),
        #[cfg(feature = "zstd")]
        "zstd" => Ok(Compression::Zstd),
        _ => Err(Failure::argument(format!("{name}: {value:?} is neither \"none\", \"lz4\" nor \"zstd\""))),
    }
}

impl Options {
    /// Applies to trees and, as their default, to databases.
    fn set_shared(&mut self, name: &str, value: &str) -> Outcome<bool> {
        match name {
            "compression" => {
                let compression = compression_of(name, value)?;
                self.tree.compression = Some(compression);
                self.change(|builder| builder.compression(compression));
            }
            "blob_threshold" => {
                let bytes = size_of(name, value)?;
                self.tree.blob_threshold = Some(bytes);
                self.change(|builder| builder.blob_threshold(bytes));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_of_tree(&mut self, name: &str, value: &str) -> Outcome<bool> {
        match name {
            "ttl" => self.tree.ttl = Some(duration_of(name, value)?),
            "multi" => self.multi = is_true(name, value)?,
            _ => return Ok(false),
        }
        self.tree_option = Some(name.to_owned());
        Ok(true)
    }

    fn change(&mut self, change: impl FnOnce(Builder) -> Builder) {
        self.database = Some(change(self.database.take().unwrap_or_default()));
    }

    fn set_of_database(&mut self, name: &str, value: &str) -> Outcome<()> {
        let builder = self.database.clone().unwrap_or_default();
        let changed = match name {
            "memory" => builder.memory(size_of(name, value)?),
            "durability" => {
                let wanted = match value {
                    "sync" => Durability::Sync,
                    "buffered" => Durability::Buffered,
                    "memory" => Durability::None,
                    _ => {
                        let message = format!("{name}: {value:?} is neither \"sync\", \"buffered\" nor \"memory\"");
                        return Err(Failure::argument(message));
                    }
                };
                builder.durability(wanted)
            }
            "create" => builder.create(is_true(name, value)?),
            "create_parents" => builder.create_parents(is_true(name, value)?),
            "read_only" => builder.read_only(is_true(name, value)?),
            "read_in_place" => builder.read_in_place(is_true(name, value)?),
            "direct_io" => builder.direct_io(is_true(name, value)?),
            "open_files_max" => builder.open_files_max(count_of(name, value)?),
            "background_threads" => builder.background_threads(count_of(name, value)?),
            "scrub" => builder.scrub(bytes_of(name, value)?),
            "log_retention" => builder.log_retention(bytes_of(name, value)?),
            "log_retention_age" => builder.log_retention_age(duration_of(name, value)?),
            "log_archive" => builder.log_archive(value),
            "disk_reserve" => builder.disk_reserve(bytes_of(name, value)?),
            "reader_age_warn" => builder.reader_age_warn(duration_of(name, value)?),
            "reader_age_max" => builder.reader_age_max(duration_of(name, value)?),
            "exclusive_wait_max" => builder.exclusive_wait_max(duration_of(name, value)?),
            "slow_commit" => builder.slow_commit(duration_of(name, value)?),
            _ => return Err(Failure::argument(format!("there is no option {name:?}: braiddb.h lists them"))),
        };
        self.database = Some(changed);
        self.database_option = Some(name.to_owned());
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Outcome<()> {
        if self.set_shared(name, value)? || self.set_of_tree(name, value)? {
            return Ok(());
        }
        self.set_of_database(name, value)
    }
}

/// Of null, the defaults.
unsafe fn options_of(options: *const braid_options) -> Options {
    // SAFETY: the header's rules.
    let options = unsafe { options.as_ref() };
    options.map(|options| options.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
}

pub(crate) unsafe fn database(options: *const braid_options) -> Outcome<Builder> {
    // SAFETY: the header's rules.
    let options = unsafe { options_of(options) };
    match options.tree_option {
        Some(name) => Err(Failure::argument(format!("{name:?} is an option of a tree, not of a database"))),
        None => Ok(options.database.unwrap_or_default()),
    }
}

/// Returns the options of a tree, and whether it keeps many values per key.
pub(crate) unsafe fn tree(options: *const braid_options) -> Outcome<(TreeOptions, bool)> {
    // SAFETY: the header's rules.
    let options = unsafe { options_of(options) };
    match options.database_option {
        Some(name) => Err(Failure::argument(format!("{name:?} is an option of a database, not of a tree"))),
        None => Ok((options.tree, options.multi)),
    }
}

/// Returns a list of options, empty, or NULL without memory. Free it with `braid_options_free`; the
/// calls that take it copy it.
#[unsafe(no_mangle)]
pub extern "C" fn braid_options_new() -> *mut braid_options {
    Box::into_raw(Box::default())
}

/// Sets an option. Unknown names and impossible values fail here.
///
/// Of a database: "memory" (a size, as "256MiB"), "durability" ("sync", "buffered", "memory"),
/// "create", "create_parents", "read_only", "read_in_place", "direct_io" ("true" or "false"),
/// "open_files_max", "background_threads" (numbers), "scrub" (bytes a second), "log_retention",
/// "disk_reserve" (sizes), "log_retention_age", "reader_age_warn", "reader_age_max",
/// "exclusive_wait_max", "slow_commit" (times, as "30s"), "log_archive" (a directory).
///
/// Of a tree: "ttl" (a time), "multi" ("true": many values per key).
///
/// Of both: "compression" ("none", "lz4", "zstd"), "blob_threshold" (a size).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_options_set(
    options: *mut braid_options,
    name: *const c_char,
    value: *const c_char,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let (name, value) = (text(name, "name")?, text(value, "value")?);
        let options = handle(options, "options")?;
        options.kept.lock().unwrap_or_else(PoisonError::into_inner).set(name, value)?;
        Ok(BRAID_OK)
    })
}

/// Adds a merge function of the program, for databases opened with these options. `context` goes to
/// each call of `apply`; `free_context`, if not NULL, is called with it once when neither the
/// options nor a database need it any more, and never if this call fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_options_add_merge(
    options: *mut braid_options,
    name: *const c_char,
    apply: braid_merge_fn,
    context: *mut c_void,
    free_context: braid_free_fn,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let apply = apply.ok_or_else(|| Failure::argument("`apply` is NULL"))?;
        let name = text(name, "name")?;
        let options = handle(options, "options")?;
        let mut kept = options.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let function = Arc::new(CallbackFunction::new(apply, context, free_context));
        kept.change(|builder| builder.merge_function(name, function));
        kept.database_option = Some("merge function".to_owned());
        Ok(BRAID_OK)
    })
}

/// Frees options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_options_free(options: *mut braid_options) {
    // SAFETY: the header's rules.
    unsafe { free(options) };
}

pub(crate) unsafe fn new_handle<T>(out: *mut *mut T, name: &str, make: impl FnOnce() -> Outcome<T>) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        slot(out, name)?;
        give(out, make()?);
        Ok(BRAID_OK)
    })
}
