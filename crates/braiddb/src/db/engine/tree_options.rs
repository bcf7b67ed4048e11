//! Options of a tree in use, and their changes.
//!
//! A change is a commit that rewrites the tree's catalog entry. So it is durable and atomic, and
//! followers, dumps, backups and log readers receive it. A concurrent write uses the old or the new
//! options.

use super::{catalog::TreeState, settings::TreeOptions, tree_codec::TreeCodec};
use crate::{
    base::{Error, Result},
    codec::Compression,
};
use parking_lot::Mutex;
use std::{
    fmt,
    sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

const DEFAULT_COMPRESSION: u8 = 255;

/// Each option is atomic by itself, since none depends on another.
pub struct LiveOptions {
    /// 0: values do not expire.
    ttl_us: AtomicU64,
    /// 0: the database's.
    blob_threshold: AtomicUsize,
    compression: AtomicU8,
    codec: Mutex<Option<TreeCodec>>,
}

impl fmt::Debug for LiveOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl LiveOptions {
    pub fn new(options: TreeOptions) -> LiveOptions {
        let live = LiveOptions {
            ttl_us: AtomicU64::new(0),
            blob_threshold: AtomicUsize::new(0),
            compression: AtomicU8::new(DEFAULT_COMPRESSION),
            codec: Mutex::new(None),
        };
        live.set(options);
        live
    }

    #[inline(always)]
    pub fn ttl_us(&self) -> Option<u64> {
        match self.ttl_us.load(Relaxed) {
            0 => None,
            ttl_us => Some(ttl_us),
        }
    }

    #[inline(always)]
    pub fn blob_threshold(&self) -> Option<usize> {
        Some(self.blob_threshold.load(Relaxed)).filter(|&threshold| threshold > 0)
    }

    pub fn get(&self) -> TreeOptions {
        TreeOptions {
            compression: Compression::from_byte(self.compression.load(Relaxed)),
            blob_threshold: self.blob_threshold(),
            ttl: self.ttl_us().map(Duration::from_micros),
            codec: *self.codec.lock(),
        }
    }

    pub(in crate::db) fn set(&self, options: TreeOptions) {
        let TreeOptions { compression, blob_threshold, ttl, codec } = options;
        self.ttl_us.store(ttl.map_or(0, micros), Relaxed);
        self.blob_threshold.store(blob_threshold.map_or(0, |threshold| threshold.max(1)), Relaxed);
        self.compression.store(compression.map_or(DEFAULT_COMPRESSION, |compression| compression as u8), Relaxed);
        *self.codec.lock() = codec;
    }
}

pub fn check_options(name: &str, options: &TreeOptions) -> Result<()> {
    if options.ttl.is_some_and(|ttl| micros(ttl) == 0) {
        let reason = format!("values of the tree {name:?} would expire at once: its ttl is less than a microsecond");
        return Err(Error::InvalidArgument(reason));
    }
    options.compression.map_or(Ok(()), Compression::check)
}

/// Returns the codec of a tree after a change: once set, it stays.
pub fn kept_codec(name: &str, stored: Option<TreeCodec>, wanted: Option<TreeCodec>) -> Result<Option<TreeCodec>> {
    match (stored, wanted) {
        (Some(stored), Some(wanted)) if stored != wanted => Err(Error::InvalidArgument(format!(
            "the tree {name:?} has the codec {stored}, which stays, and cannot get {wanted}: copy its records into another tree"
        ))),
        (None, Some(wanted)) if !wanted.is_whole() => Err(Error::InvalidArgument(format!(
            "the tree {name:?} cannot get the codec {wanted}: a later version gave it, and this one knows only a part of \
             its name"
        ))),
        (stored, wanted) => Ok(stored.or(wanted)),
    }
}

pub fn check_same(tree: &TreeState, wanted: TreeOptions) -> Result<()> {
    let (stored, wanted) = (tree.options.get(), LiveOptions::new(wanted).get());
    let mut differences = Vec::new();
    let mut compare = |option: &str, stored: Option<String>, wanted: Option<String>| {
        let shown = |value: Option<String>| value.unwrap_or_else(|| "none of its own".to_owned());
        if stored != wanted {
            differences.push(format!("its {option} is {}, not {}", shown(stored), shown(wanted)));
        }
    };
    compare("ttl", stored.ttl.map(|ttl| format!("{ttl:?}")), wanted.ttl.map(|ttl| format!("{ttl:?}")));
    let threshold = |options: &TreeOptions| options.blob_threshold.map(|bytes| format!("{bytes} bytes"));
    compare("blob threshold", threshold(&stored), threshold(&wanted));
    let compression = |options: &TreeOptions| options.compression.map(|compression| format!("{compression:?}"));
    compare("compression", compression(&stored), compression(&wanted));
    compare("codec", stored.codec.map(|codec| codec.to_string()), wanted.codec.map(|codec| codec.to_string()));
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "the tree {:?} exists with other options: {}; change them with Tree::set_options or `braid trees --set`, or open it with Db::tree",
        tree.name.read(),
        differences.join(", ")
    )))
}
