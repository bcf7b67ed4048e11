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
//! The header names all trees, so that problems are reported before anything is stored. Without the
//! last line the export is incomplete.

use std::time::Duration;

use braiddb::{Compression, TreeOptions, stats::TreeInfo};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{import::IndexSpec, notation::KeyNotation};

pub const MAGIC: &[u8] = b"{\"braid_export\":";

/// The written version, and the newest readable one.
pub const VERSION: u64 = 1;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub braid_export: u64,
    pub trees: Vec<TreeLine>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeLine {
    pub name: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub multi: bool,
    #[serde(default, skip_serializing_if = "is_text")]
    pub keys: KeyNotation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob_threshold: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexSpec>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_text(keys: &KeyNotation) -> bool {
    *keys == KeyNotation::Text
}

const COMPRESSIONS: [(&str, Compression); 3] =
    [("none", Compression::None), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)];

impl TreeLine {
    pub fn options(&self) -> Option<TreeOptions> {
        let known =
            |name: &str| COMPRESSIONS.iter().find(|(known, _)| *known == name).map(|(_, compression)| *compression);
        let mut options = TreeOptions::new();
        if let Some(name) = &self.compression {
            options.compression = Some(known(name)?);
        }
        if let Some(names) = &self.codec {
            options.codec = Some(names.parse().ok()?);
        }
        options.blob_threshold = self.blob_threshold.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        options.ttl = self.ttl_us.map(Duration::from_micros);
        Some(options)
    }

    pub fn set_options(&mut self, options: &TreeOptions) {
        let name_of = |wanted: Compression| COMPRESSIONS.iter().find(|(_, known)| *known == wanted);
        self.compression = options.compression.and_then(name_of).map(|(name, _)| (*name).to_owned());
        self.blob_threshold = options.blob_threshold.map(|bytes| bytes as u64);
        self.ttl_us = options.ttl.map(|ttl| u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX));
        self.codec = options.codec.map(|codec| codec.to_string());
    }
}

/// A line after the first, with exactly one of `tree`, `key` and `end`.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    pub records: u64,
    pub left_out: u64,
}

pub fn options_of(tree: &TreeInfo) -> TreeOptions {
    let mut options = TreeOptions::new();
    (options.compression, options.blob_threshold) = (tree.compression, tree.blob_threshold);
    (options.ttl, options.codec) = (tree.ttl, tree.codec);
    options
}
