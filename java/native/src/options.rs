//! Options: pairs of a name and a value, both as text.

use crate::{boundary::Outcome, codec::Reader, errors::Failure};
use braiddb::{Builder, Compression, Durability, TreeOptions, platform::RateLimiter};
use jni::sys::jint;
use std::{str::FromStr, sync::Arc, time::Duration};

/// Returns a durability by its number in Java; None for the database's.
pub fn durability(number: jint) -> Outcome<Option<Durability>> {
    match number {
        -1 => Ok(None),
        0 => Ok(Some(Durability::Sync)),
        1 => Ok(Some(Durability::Buffered)),
        2 => Ok(Some(Durability::None)),
        _ => Err(Failure::argument(format!("there is no durability {number}"))),
    }
}

fn parsed<T: FromStr>(name: &str, value: &str) -> Outcome<T> {
    value.parse().map_err(|_| Failure::argument(format!("the option {name} takes no {value:?}")))
}

fn micros(name: &str, value: &str) -> Outcome<Duration> {
    parsed(name, value).map(Duration::from_micros)
}

fn compression(value: &str) -> Outcome<Compression> {
    match value {
        "NONE" => Ok(Compression::None),
        "LZ4" => Ok(Compression::Lz4),
        "ZSTD" => Ok(Compression::Zstd),
        other => Err(Failure::argument(format!("there is no compression {other:?}"))),
    }
}

/// Returns a builder with these options.
pub fn builder(options: &mut Reader<'_>) -> Outcome<Builder> {
    let mut builder = Builder::new();
    while !options.is_at_end() {
        let (name, value) = (options.text()?, options.text()?);
        builder = match name {
            "create" => builder.create(parsed(name, value)?),
            "createParents" => builder.create_parents(parsed(name, value)?),
            "readOnly" => builder.read_only(parsed(name, value)?),
            "memory" => builder.memory(parsed(name, value)?),
            "durability" => match durability(parsed(name, value)?)? {
                Some(durability) => builder.durability(durability),
                None => builder,
            },
            "compression" => builder.compression(compression(value)?),
            "blobThreshold" => builder.blob_threshold(parsed(name, value)?),
            "backgroundThreads" => builder.background_threads(parsed(name, value)?),
            "readerAgeWarn" => builder.reader_age_warn(micros(name, value)?),
            "readerAgeMax" => builder.reader_age_max(micros(name, value)?),
            "exclusiveWaitMax" => builder.exclusive_wait_max(micros(name, value)?),
            "slowCommit" => builder.slow_commit(micros(name, value)?),
            "logRetention" => builder.log_retention(parsed(name, value)?),
            "logRetentionAge" => builder.log_retention_age(micros(name, value)?),
            "logArchive" => builder.log_archive(value),
            "openFilesMax" => builder.open_files_max(parsed(name, value)?),
            "diskReserve" => builder.disk_reserve(parsed(name, value)?),
            "garbagePercent" => builder.garbage_percent(parsed(name, value)?),
            "readInPlace" => builder.read_in_place(parsed(name, value)?),
            "directIo" => builder.direct_io(parsed(name, value)?),
            "scrub" => builder.scrub(parsed(name, value)?),
            "rateLimit" => builder.rate_limiter(Arc::new(RateLimiter::new(parsed(name, value)?))),
            other => return Err(Failure::argument(format!("there is no option {other:?}"))),
        };
    }
    Ok(builder)
}

/// Returns these options of a tree.
pub fn tree(options: &mut Reader<'_>) -> Outcome<TreeOptions> {
    let mut tree = TreeOptions::new();
    while !options.is_at_end() {
        let (name, value) = (options.text()?, options.text()?);
        tree = match name {
            "ttl" => tree.ttl(micros(name, value)?),
            "compression" => tree.compression(compression(value)?),
            "blobThreshold" => tree.blob_threshold(parsed(name, value)?),
            other => return Err(Failure::argument(format!("there is no option {other:?} of a tree"))),
        };
    }
    Ok(tree)
}
