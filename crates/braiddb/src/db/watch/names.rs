//! Names of trees as of the commits that a watcher returns. The catalog has the present ones; for
//! a watcher behind a rename, the log has the earlier ones.

use super::{decode::CatalogChanges, source::Source};
use crate::{
    base::{EntryKind, SequenceNumber, TreeId, split_internal_key},
    commit::{Operation, decode_batch},
    db::engine::{catalog::DroppedTree, root::Engine},
    wal::{LogItem, LogReader},
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, atomic::Ordering},
};

const READ_BYTES: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(super) struct KnownTree {
    pub name: Arc<str>,
    pub multi: bool,
}

/// The trees that a watcher met.
#[derive(Debug, Default)]
pub struct Trees {
    known: HashMap<u32, KnownTree>,
    /// Trees not met yet, as they are before the next commit that changes them.
    earlier: BTreeMap<u32, KnownTree>,
    /// `earlier` covers the log up to here.
    looked_until: SequenceNumber,
}

impl Trees {
    /// Returns a tree as of the commit after `delivered`.
    pub(super) fn get(&mut self, source: &Source, delivered: SequenceNumber, id: TreeId) -> Option<&KnownTree> {
        if !self.known.contains_key(&id.0) {
            let engine = source.engine();
            let present = known_tree(engine, id);
            // Loaded after the name: a rename changes it first.
            let named_until = engine.catalog.named_until.load(Ordering::Acquire);
            if named_until > delivered.max(self.looked_until) {
                self.earlier = earlier_names(source, delivered);
                self.looked_until = named_until;
            }
            let known = self.earlier.remove(&id.0).or(present)?;
            self.known.insert(id.0, known);
        }
        self.known.get(&id.0)
    }

    pub(super) fn insert(&mut self, id: TreeId, name: &str, multi: bool) {
        self.known.insert(id.0, KnownTree { name: name.into(), multi });
    }
}

pub(super) fn known_tree(engine: &Engine, id: TreeId) -> Option<KnownTree> {
    if let Some(state) = engine.catalog.by_name.read().values().find(|tree| tree.id == id) {
        return Some(KnownTree { name: state.name.read().as_str().into(), multi: state.multi });
    }
    let dropped = engine.catalog.dropped.read();
    dropped.get(&id).map(|tree| KnownTree { name: tree.name.as_str().into(), multi: tree.multi })
}

/// Reads the log after a commit to its end: about as long as a watcher takes for it. Stops without
/// an error where the log cannot be read; the watcher meets the same place.
fn earlier_names(source: &Source, after: SequenceNumber) -> BTreeMap<u32, KnownTree> {
    let mut names = BTreeMap::new();
    let Ok(mut reader) = LogReader::seek(source, after) else { return names };
    let limit = source.limit(true);
    loop {
        let mut items = VecDeque::new();
        let read = reader.read(source, limit, READ_BYTES, &mut items);
        if items.is_empty() || read.is_err() {
            return names;
        }
        for item in items {
            let LogItem::Group(info, payload) = item else { continue };
            let (mut at, mut sequence) = (0, info.first_sequence);
            while sequence <= info.last_sequence {
                let mut operations: Vec<Operation<'_>> = Vec::new();
                let rest = payload.get(at..).unwrap_or_default();
                let Some(len) = decode_batch(rest, |operation| operations.push(operation)) else { return names };
                if sequence > after {
                    note_names(&operations, &mut names);
                }
                at += len;
                sequence += 1;
            }
        }
    }
}

/// Notes the trees that a commit names, renames or drops, as they were before it, unless noted.
fn note_names(operations: &[Operation<'_>], earlier: &mut BTreeMap<u32, KnownTree>) {
    let mut note = |id: TreeId, name: &str, multi| {
        earlier.entry(id.0).or_insert_with(|| KnownTree { name: name.into(), multi });
    };
    for operation in operations.iter().filter(|operation| operation.kind == EntryKind::Value) {
        let Some((TreeId::CATALOG, [tag @ (b'd' | b'n'), ..])) = split_internal_key(operation.key) else { continue };
        if *tag == b'd' {
            if let Some((id, dropped)) = DroppedTree::decode(operation.value, 0) {
                note(id, &dropped.name, dropped.multi);
            }
            continue;
        }
        let catalog = CatalogChanges::of(operations);
        for (tree, name) in &catalog.named {
            note(tree.id, catalog.gone.first().unwrap_or(name), tree.multi);
        }
    }
}
