use super::{
    change::{Change, ChangedTree, Gap, LoggedStream, MergeBase, MergeOperand},
    names::{Trees, known_tree},
    source::Source,
};
use crate::{
    base::{Content, EntryKind, Error, Result, SequenceNumber, TreeId, internal_key, split_internal_key},
    codec::{Base, Operands},
    commit::Operation,
    db::{
        engine::{catalog::TreeState, root::Engine},
        handles::multi::tree::{bounds_of, escape, split as split_multi_key, unescape},
        write::{pending_blobs::PendingBlobs, wal_bypass::Marker},
    },
    platform::{SystemTime, UNIX_EPOCH},
    table::blob::Pieces,
};
use std::{borrow::Cow, sync::Arc, time::Duration};

#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only this tree.
    pub tree: Option<u32>,
    /// Only keys with this prefix; requires a tree.
    pub prefix: Vec<u8>,
}

impl Filter {
    /// Returns a prefix of all internal keys that pass the filter; empty without a tree.
    pub fn internal_prefix(&self, engine: &Engine) -> Vec<u8> {
        let mut prefix = Vec::new();
        if let Some(tree) = self.tree.map(TreeId) {
            let until_zero = self.prefix.iter().position(|byte| *byte == 0).unwrap_or(self.prefix.len());
            let keys = match known_tree(engine, tree).map(|tree| tree.multi) {
                Some(true) => escape(&self.prefix),
                Some(false) => Cow::Borrowed(self.prefix.as_slice()),
                // It may be a multi-tree, which escapes zeros.
                None => Cow::Borrowed(&self.prefix[..until_zero]),
            };
            internal_key(tree, &keys, &mut prefix);
        }
        prefix
    }

    fn has_tree(&self, tree: TreeId) -> bool {
        self.tree.is_none_or(|only| only == tree.0)
    }

    fn has_key(&self, tree: TreeId, key: &[u8]) -> bool {
        self.has_tree(tree) && key.starts_with(&self.prefix)
    }

    fn clip(&self, tree: TreeId, start: &[u8], end: Option<&[u8]>) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        if !self.has_tree(tree) {
            return None;
        }
        let start = start.max(&self.prefix).to_vec();
        let prefix_end = crate::db::handles::iter::prefix_end(self.prefix.clone());
        let end = match (end.map(<[u8]>::to_vec), prefix_end) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        end.as_ref().is_none_or(|end| start < *end).then_some((start, end))
    }
}

#[derive(Debug, Default)]
pub(super) struct CatalogChanges {
    pub gone: Vec<String>,
    pub named: Vec<(TreeState, String)>,
    has_new_tree: bool,
}

impl CatalogChanges {
    pub fn of(operations: &[Operation<'_>]) -> CatalogChanges {
        let mut found = CatalogChanges::default();
        for operation in operations {
            let name = match split_internal_key(operation.key) {
                Some((TreeId::CATALOG, [b'n', name @ ..])) => name,
                Some((TreeId::CATALOG, b"i")) => {
                    found.has_new_tree = true;
                    continue;
                }
                _ => continue,
            };
            let text = String::from_utf8_lossy(name).into_owned();
            match operation.kind {
                EntryKind::Tombstone => found.gone.push(text),
                EntryKind::Value => {
                    found.named.extend(TreeState::decode(name, operation.value).map(|tree| (tree, text)))
                }
                _ => {}
            }
        }
        found
    }
}

pub struct Decoder<'a> {
    pub engine: &'a Arc<Engine>,
    pub filter: &'a Filter,
    pub source: &'a Source,
    pub trees: &'a mut Trees,
    pub delivered: SequenceNumber,
}

impl Decoder<'_> {
    pub fn changes(&mut self, operations: &[Operation<'_>]) -> Result<Vec<Change>> {
        let catalog = CatalogChanges::of(operations);
        let is_drop = !catalog.gone.is_empty() && catalog.named.is_empty();
        let mut changes = Vec::new();
        for operation in operations {
            let Some((tree, key)) = split_internal_key(operation.key) else { return Err(self.nonsense()) };
            if tree == TreeId::CATALOG {
                changes.extend(self.of_catalog(key, operation)?);
            } else if operation.kind == EntryKind::RangeDelete {
                let is_whole = key.is_empty() && tree.end_key().is_some_and(|end| operation.value == end);
                if is_drop && is_whole {
                    changes.extend(self.drop_of(tree));
                } else {
                    self.ranges(tree, key, operation.value, &mut changes);
                }
            } else if self.filter.has_tree(tree) {
                changes.extend(self.of_key(tree, key, operation)?);
            }
        }
        for (tree, name) in catalog.named {
            changes.extend(self.naming_of(tree, &name, catalog.gone.first(), catalog.has_new_tree));
        }
        Ok(changes)
    }

    fn is_multi(&mut self, tree: TreeId) -> bool {
        self.trees.get(self.source, self.delivered, tree).is_some_and(|known| known.multi)
    }

    fn named(&mut self, id: TreeId) -> ChangedTree {
        let known = self.trees.get(self.source, self.delivered, id);
        ChangedTree { id: id.0, name: known.map(|tree| Arc::clone(&tree.name)) }
    }

    fn nonsense(&self) -> Error {
        Error::corruption(&self.engine.dir, 0, "a record of the log holds an operation that cannot be understood")
    }

    fn of_catalog(&mut self, key: &[u8], operation: &Operation<'_>) -> Result<Option<Change>> {
        match key {
            b"c" if self.filter.tree.is_none() => {
                Ok(Some(Change::ApplicationCursor { cursor: operation.value.to_vec() }))
            }
            b"g" => {
                let marker = Marker::decode(operation.value).ok_or_else(|| self.nonsense())?;
                Ok(self.gap(&marker))
            }
            _ => Ok(None),
        }
    }

    fn gap(&mut self, marker: &Marker) -> Option<Change> {
        match marker {
            Marker::Unlogged(up_to) if *up_to <= self.delivered => None,
            Marker::Unlogged(up_to) => Some(Change::Gap(Gap::Commits { up_to: *up_to })),
            Marker::Range(tree, start, end) => {
                let is_multi = self.is_multi(*tree);
                let (start, end) = match is_multi {
                    true => keys_of_pairs(start, end.as_deref()),
                    false => (start.clone(), end.clone()),
                };
                let (start, end) = self.filter.clip(*tree, &start, end.as_deref())?;
                Some(Change::Gap(Gap::Range { tree: self.named(*tree), start, end }))
            }
        }
    }

    fn naming_of(&mut self, state: TreeState, name: &str, from: Option<&String>, is_new: bool) -> Option<Change> {
        let (id, multi, options) = (state.id, state.multi, state.options.get());
        self.trees.insert(id, name, multi);
        if !self.filter.has_tree(id) {
            return None;
        }
        let tree = self.named(id);
        Some(match from {
            Some(from) => Change::RenameTree { tree, from: from.clone() },
            None if is_new => Change::CreateTree { tree, multi, options },
            None => Change::SetTreeOptions { tree, options },
        })
    }

    fn drop_of(&mut self, tree: TreeId) -> Option<Change> {
        self.filter.has_tree(tree).then(|| Change::DropTree { tree: self.named(tree) })
    }

    /// Splits a deleted range by tree: a transaction joins ranges that meet at the border of two
    /// trees. `end` is an internal key.
    fn ranges(&mut self, mut tree: TreeId, mut start: &[u8], end: &[u8], changes: &mut Vec<Change>) {
        while let Some(tree_end) = tree.end_key().filter(|tree_end| end > &tree_end[..]) {
            changes.extend(self.range(tree, start, &tree_end));
            (tree, start) = (TreeId(tree.0 + 1), &[]);
        }
        changes.extend(self.range(tree, start, end));
    }

    fn range(&mut self, tree: TreeId, start: &[u8], end: &[u8]) -> Option<Change> {
        if !self.filter.has_tree(tree) {
            return None;
        }
        let named = self.named(tree);
        let is_multi = self.is_multi(tree);
        if is_multi
            && let Some((key, [])) = split_pair(start)
            && *bounds_of(tree, &key).1 == *end
        {
            return self.filter.has_key(tree, &key).then_some(Change::Delete { tree: named, key });
        }
        let end = split_internal_key(end).filter(|(of, _)| *of == tree).map(|(_, end)| end);
        let (start, end) = match is_multi {
            true => (key_of_bound(start).unwrap_or_default(), end.and_then(key_of_bound)),
            false => (start.to_vec(), end.map(<[u8]>::to_vec)),
        };
        let (start, end) = self.filter.clip(tree, &start, end.as_deref())?;
        Some(Change::DeleteRange { tree: named, start, end })
    }

    fn of_key(&mut self, tree: TreeId, key: &[u8], operation: &Operation<'_>) -> Result<Option<Change>> {
        if self.is_multi(tree) {
            let (key, value) = split_pair(key).ok_or_else(|| self.nonsense())?;
            if !self.filter.has_key(tree, &key) {
                return Ok(None);
            }
            let (tree, value) = (self.named(tree), value.to_vec());
            return Ok(Some(match operation.kind {
                EntryKind::Tombstone => Change::DeletePair { tree, key, value },
                _ => Change::Add { tree, key, value },
            }));
        }
        if !self.filter.has_key(tree, key) {
            return Ok(None);
        }
        let (tree, key) = (self.named(tree), key.to_vec());
        let content = Content::of(operation.kind, operation.value).ok_or_else(|| self.nonsense())?;
        let expires = content.expires_us.and_then(|us| self.wall_time(us));
        Ok(Some(match content.kind {
            EntryKind::Value => Change::Put { tree, key, value: content.value.to_vec(), expires },
            EntryKind::Tombstone => Change::Delete { tree, key },
            EntryKind::BlobRef => {
                let pieces = Pieces::of(&content).ok_or_else(|| self.nonsense())?;
                let stream = self.stream(pieces)?;
                let value = self.engine.storage.blobs.read_pieces(&stream.pieces)?;
                Change::Put { tree, key, value, expires }
            }
            EntryKind::Stream => {
                let pieces = Pieces::of(&content).ok_or_else(|| self.nonsense())?;
                Change::PutStream { tree, key, stream: self.stream(pieces)?, expires }
            }
            EntryKind::Merge => {
                let operands = Operands::decode(content.value).ok_or_else(|| self.nonsense())?;
                self.merge(tree, key, &operands)
            }
            EntryKind::Expiring | EntryKind::RangeDelete => return Err(self.nonsense()),
        }))
    }

    fn merge(&self, tree: ChangedTree, key: Vec<u8>, operands: &Operands<'_>) -> Change {
        let base = match operands.base {
            Base::Beneath => MergeBase::Stored,
            Base::Absent => MergeBase::Nothing,
            Base::Value(value) => MergeBase::Value(value.to_vec()),
        };
        let operand = |operand: crate::codec::Operand<'_>| MergeOperand {
            function: self.engine.functions.name(operand.function),
            operand: operand.bytes.to_vec(),
        };
        Change::Merge { tree, key, base, operands: operands.iter().map(operand).collect() }
    }

    /// Pins the blob files of a value, or fails if they are gone.
    fn stream(&self, pieces: Pieces) -> Result<LoggedStream> {
        let mut files = PendingBlobs::new(self.engine);
        let are_there = match self.engine.log.wal {
            Some(_) => files.pin(&pieces),
            // Without a writer, opening a file pins it.
            None => pieces.list.iter().all(|piece| self.engine.storage.blobs.file(piece.file).is_ok()),
        };
        if !are_there {
            let floor = self.engine.storage.flushed.load(std::sync::atomic::Ordering::Acquire);
            return Err(Error::WatchTooOld { after: self.delivered, floor });
        }
        Ok(LoggedStream { engine: Arc::clone(self.engine), pieces, _files: files })
    }

    fn wall_time(&self, database_us: u64) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_micros(database_us.saturating_sub(self.engine.ahead_us())))
    }
}

/// An undecodable bound becomes unbounded.
fn keys_of_pairs(start: &[u8], end: Option<&[u8]>) -> (Vec<u8>, Option<Vec<u8>>) {
    let first = split_pair(start).map(|(key, _)| key).unwrap_or_default();
    let end = end.and_then(split_pair).map(|(key, _)| [key.as_slice(), &[0]].concat());
    (first, end)
}

/// Returns the first key at or after a bound of [`bounds_of`]; `None` if it is no such bound.
fn key_of_bound(bound: &[u8]) -> Option<Vec<u8>> {
    if let Some((key, [])) = split_pair(bound) {
        return Some(key);
    }
    // The bound after all values of a key.
    let front = bound.strip_suffix(&[2])?;
    let mut key = split_pair(&[front, &[1]].concat())?.0;
    key.push(0);
    Some(key)
}

fn split_pair(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (at, _) = split_multi_key(bytes)?;
    let mut key = Vec::new();
    unescape(bytes.get(..at - 2)?, &mut key);
    Some((key, bytes.get(at..)?))
}
