//! The catalog: tree 0, which names all others. Its user keys are a tag byte and a name:
//!
//! | key | value |
//! |---|---|
//! | `n` + tree name | the tree, see below |
//! | `i` | the next tree id, u32; ids below it are never used again |
//! | `c` | the application cursor |
//! | `d` + id (u32, big endian) | a dropped tree, while the log has its entries: value of `n`, name |
//! | `g` | data that the log lacks: see `wal_bypass.rs` |
//! | `r` | retention of the log: bytes (varint), microseconds (varint) |
//! | `f` + name | number of the application's merge function, u64 |
//!
//! A tree: version u8 = 1, id u32, flags u8 (bit 0: multi-tree), compression u8 (255: default),
//! blob threshold varint (0: default), time to live in microseconds (varint; absent or 0: none),
//! codec: name of the key encoding and of the value encoding (bytes each; absent or both empty:
//! none). Further bytes, and names that this version would not give, are of a later version: changes
//! of the entry keep them.

use super::{
    settings::TreeOptions,
    tree_codec::TreeCodec,
    tree_options::{LiveOptions, micros},
};
use crate::{
    base::{Error, Result, SequenceNumber, TreeId, internal_key, split_internal_key},
    codec::{ByteReader, Compression, put_bytes, put_varint},
};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

const MAX_NAME_LEN: usize = 1024;

#[derive(Debug)]
pub struct TreeState {
    pub id: TreeId,
    pub home: u64,
    pub name: RwLock<String>,
    pub multi: bool,
    pub options: LiveOptions,
    pub later: LaterFields,
    pub dropped: AtomicBool,
}

/// Parts of a tree's entry that a later version wrote.
#[derive(Debug, Default)]
pub struct LaterFields {
    /// The encoded codec, if [`TreeCodec`] has only a part of its names.
    codec: Vec<u8>,
    /// Bytes behind the known fields.
    rest: Vec<u8>,
}

impl TreeState {
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(Error::NotFound(format!("the tree {:?} was dropped", self.name.read())));
        }
        Ok(())
    }

    /// Fails if the tree belongs to another incarnation, or was dropped.
    #[inline]
    pub fn check_in(&self, incarnation: u64) -> Result<()> {
        if self.home != incarnation {
            return Err(self.another_database());
        }
        self.check()
    }

    #[cold]
    pub fn another_database(&self) -> Error {
        Error::InvalidArgument(format!("the tree {:?} is another database's", self.name.read()))
    }

    pub fn encode(&self) -> Vec<u8> {
        self.encode_with(self.options.get())
    }

    pub fn encode_with(&self, options: TreeOptions) -> Vec<u8> {
        let mut out = vec![1];
        out.extend_from_slice(&self.id.0.to_le_bytes());
        out.push(u8::from(self.multi));
        out.push(options.compression.map_or(255, |c| c as u8));
        put_varint(&mut out, options.blob_threshold.map_or(0, |t| t.max(1) as u64));
        let LaterFields { codec: stored_codec, rest } = &self.later;
        let has_codec = options.codec.is_some() || !rest.is_empty();
        if options.ttl.is_some() || has_codec {
            put_varint(&mut out, options.ttl.map_or(0, micros));
        }
        match options.codec {
            Some(codec) if !codec.is_whole() => out.extend_from_slice(stored_codec),
            codec if has_codec => {
                put_bytes(&mut out, codec.as_ref().map_or("", TreeCodec::key).as_bytes());
                put_bytes(&mut out, codec.as_ref().map_or("", TreeCodec::value).as_bytes());
            }
            _ => {}
        }
        out.extend_from_slice(rest);
        out
    }

    /// Decodes a catalog entry, without a database.
    pub fn decode(name: &[u8], value: &[u8]) -> Option<TreeState> {
        let mut reader = ByteReader::new(value);
        if reader.u8()? != 1 {
            return None;
        }
        let id = TreeId(reader.u32()?);
        let multi = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let compression = match reader.u8()? {
            255 => None,
            byte => Some(Compression::from_byte(byte)?),
        };
        let blob_threshold = usize::try_from(reader.varint()?).ok().filter(|&t| t > 0);
        let ttl_us = if reader.is_at_end() { 0 } else { reader.varint()? };
        let ttl = (ttl_us > 0).then(|| Duration::from_micros(ttl_us));
        let mut later = LaterFields::default();
        let mut codec = None;
        if !reader.is_at_end() {
            let start = reader.position();
            let names = (reader.bytes()?, reader.bytes()?);
            codec = (names != (b"", b"")).then(|| TreeCodec::of_stored(names.0, names.1));
            if codec.is_some_and(|codec| !codec.is_whole()) {
                later.codec = value[start..reader.position()].to_vec();
            }
            later.rest = value[reader.position()..].to_vec();
        }
        let options = LiveOptions::new(TreeOptions { compression, blob_threshold, ttl, codec });
        let name = RwLock::new(String::from_utf8(name.to_vec()).ok()?);
        Some(TreeState { id, home: 0, name, multi, options, later, dropped: AtomicBool::new(false) })
    }
}

#[derive(Clone, Debug)]
pub struct DroppedTree {
    pub name: String,
    pub multi: bool,
    pub sequence: SequenceNumber,
}

impl DroppedTree {
    pub fn encode(tree: &TreeState) -> Vec<u8> {
        let (mut out, state) = (Vec::new(), tree.encode());
        put_bytes(&mut out, &state);
        out.extend_from_slice(tree.name.read().as_bytes());
        out
    }

    pub fn decode(value: &[u8], sequence: SequenceNumber) -> Option<(TreeId, DroppedTree)> {
        let mut reader = ByteReader::new(value);
        let state = reader.bytes()?;
        let tree = TreeState::decode(value.get(reader.position()..)?, state)?;
        Some((tree.id, DroppedTree { name: tree.name.into_inner(), multi: tree.multi, sequence }))
    }
}

#[derive(Debug)]
pub struct Catalog {
    /// The next tree's id. A change of trees holds this from before its commit until after it.
    pub next_id: Mutex<u32>,
    /// Never held during a commit, so that a lookup does not wait for the creation of another tree.
    pub by_name: RwLock<BTreeMap<String, Arc<TreeState>>>,
    /// Separate, so that jobs do not wait for a change that commits.
    pub compressions: RwLock<BTreeMap<TreeId, Compression>>,
    /// Recently dropped trees, for log readers. Changes require `next_id`.
    pub dropped: RwLock<BTreeMap<TreeId, DroppedTree>>,
    /// No tree got or gave up a name in a later commit. Changed before `by_name` is.
    pub named_until: AtomicU64,
    /// Trees dropped since the open. Incremented after the tree is marked and before the commit
    /// that deletes its contents.
    pub drops: AtomicU64,
}

impl Catalog {
    pub fn new(trees: Vec<TreeState>, next_id: u32) -> Catalog {
        let next_id = trees.iter().map(|t| t.id.0.saturating_add(1)).max().unwrap_or(1).max(next_id);
        let compressions = trees.iter().filter_map(|t| Some((t.id, t.options.get().compression?))).collect();
        let by_name = trees
            .into_iter()
            .map(|tree| {
                let name = tree.name.read().clone();
                (name, Arc::new(tree))
            })
            .collect();
        Catalog {
            next_id: Mutex::new(next_id),
            by_name: RwLock::new(by_name),
            compressions: RwLock::new(compressions),
            dropped: RwLock::default(),
            named_until: AtomicU64::new(0),
            drops: AtomicU64::new(0),
        }
    }
}

impl Catalog {
    pub fn find(&self, name: &str) -> Option<Arc<TreeState>> {
        self.by_name.read().get(name).cloned()
    }

    pub fn name_of(&self, id: TreeId) -> Option<String> {
        let trees = self.by_name.read();
        trees.values().find(|tree| tree.id == id).map(|tree| tree.name.read().clone())
    }

    /// Names the tree of an internal key in the error of a merge function, and in one about damage.
    #[cold]
    pub fn with_tree(&self, error: Error, internal: &[u8]) -> Error {
        let name = |id: TreeId| {
            let dropped = || self.dropped.read().get(&id).map(|tree| tree.name.clone());
            self.name_of(id).or_else(dropped).unwrap_or_else(|| format!("number {}", id.0))
        };
        match error {
            Error::MergeFailed { function, key, reason, .. } => {
                let tree = split_internal_key(internal).map(|(id, _)| name(id)).unwrap_or_default();
                Error::MergeFailed { tree, function, key, reason }
            }
            Error::Corruption(damage) => Error::Corruption(damage.in_tree(|| {
                let id = split_internal_key(internal)?.0;
                (id != TreeId::CATALOG).then(|| name(id))
            })),
            other => other,
        }
    }
}

/// Tag of the records of sessions: see `crate::shared`. The last tag, so that a state of a follower
/// can load the catalog without a scan of these records, which change with each forwarded commit.
pub const SESSION_TAG: u8 = b'z';

pub fn catalog_key(tag: u8, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(5 + name.len());
    internal_key(TreeId::CATALOG, &[tag], &mut key);
    key.extend_from_slice(name);
    key
}

pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME_LEN {
        return Err(Error::InvalidArgument(format!(
            "a tree's name has 1 to {MAX_NAME_LEN} bytes, this one has {}",
            name.len()
        )));
    }
    Ok(())
}
