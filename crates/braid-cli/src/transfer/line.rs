//! The lines of the export format.
//!
//! ```text
//! {"braid_export":1,"trees":[{"name":"sessions","ttl_us":60000000},{"name":"by_tag","multi":true}]}
//! {"tree":"sessions"}
//! {"key":"7f3a","value":"ann","expires_us":1795402000000000}
//! {"tree":"by_tag"}
//! {"key":{"hex":"ff"},"value":""}
//! {"end":{"records":2,"left_out":0}}
//! ```
//!
//! The header names all trees, so that whatever is against one of them is known before anything is stored. A line with
//! `tree` begins the records of a tree, in key order. The last line has the number of records: without it, the export is cut.

use std::time::Duration;

use braiddb::{Compression, TreeInfo, TreeOptions};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{import::IndexSpec, notation::KeyNotation};

/// How an export begins.
pub const MAGIC: &[u8] = b"{\"braid_export\":";

/// The version that is written, and the newest that is read.
pub const VERSION: u64 = 1;

/// The first line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`VERSION`].
    pub braid_export: u64,
    /// The trees, in the order in which their records come.
    pub trees: Vec<TreeLine>,
}

/// A tree in the header.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeLine {
    /// Its name.
    pub name: String,
    /// Whether it has many values to a key.
    #[serde(default, skip_serializing_if = "is_false")]
    pub multi: bool,
    /// How its keys are written.
    #[serde(default, skip_serializing_if = "is_text")]
    pub keys: KeyNotation,
    /// Its own compression: `none`, `lz4` or `zstd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// Values of so many bytes or more go to blob files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob_threshold: Option<u64>,
    /// How long values live that say nothing of it, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_us: Option<u64>,
    /// Its indexes, which are made again from the records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexSpec>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_text(keys: &KeyNotation) -> bool {
    *keys == KeyNotation::Text
}

/// The compressions by their names.
const COMPRESSIONS: [(&str, Compression); 3] =
    [("none", Compression::None), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)];

impl TreeLine {
    /// The options of the tree; `None` if this version does not know its compression.
    pub fn options(&self) -> Option<TreeOptions> {
        let known =
            |name: &str| COMPRESSIONS.iter().find(|(known, _)| *known == name).map(|(_, compression)| *compression);
        let compression = match &self.compression {
            None => None,
            Some(name) => Some(known(name)?),
        };
        Some(TreeOptions {
            compression,
            blob_threshold: self.blob_threshold.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            ttl: self.ttl_us.map(Duration::from_micros),
        })
    }

    /// Sets the options of the tree.
    pub fn set_options(&mut self, options: &TreeOptions) {
        let name_of = |wanted: Compression| COMPRESSIONS.iter().find(|(_, known)| *known == wanted);
        self.compression = options.compression.and_then(name_of).map(|(name, _)| (*name).to_owned());
        self.blob_threshold = options.blob_threshold.map(|bytes| bytes as u64);
        self.ttl_us = options.ttl.map(|ttl| u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX));
    }
}

/// A line after the first. Exactly one of `tree`, `key` and `end` is there.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The records of this tree come next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// A record's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Value>,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// When it expires, in microseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_us: Option<u64>,
    /// There is no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
}

/// What the last line says.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Records in the export.
    pub records: u64,
    /// Records, and ranges of damaged ones, that could not be read and are not in it.
    pub left_out: u64,
}

/// The options of a tree, as the database lists it.
pub fn options_of(tree: &TreeInfo) -> TreeOptions {
    TreeOptions { compression: tree.compression, blob_threshold: tree.blob_threshold, ttl: tree.ttl }
}
