//! The key notation of a tree: text or numbers. The tree's first record sets it.
//!
//! It is stored in the tree `braid.import`, under `keys` + 0 + the tree's id in 4 bytes,
//! big-endian, as JSON. Without it, keys are text, unless an earlier version imported numbers.

use anyhow::Result;
use braiddb::{Batch, Db, Tree};
use serde::{Deserialize, Serialize};

use super::{
    format::KeySource,
    progress::{IMPORT_TREE, Progress},
};
use crate::{
    exit::{CORRUPTION, failure, usage},
    notation::{KeyNotation, show_key, show_name},
};

#[derive(Serialize, Deserialize)]
struct KeysRecord {
    keys: KeyNotation,
}

/// The notation to store with the first record; `None` if it is stored already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNotation(Option<KeyNotation>);

impl NewNotation {
    /// Refuses a notation that differs from the tree's keys. The tree need not exist.
    pub fn of_import(db: &Db, tree: &str, key: Option<&str>) -> Result<NewNotation> {
        let wanted = KeySource::parse(key).notation();
        let source = key.map_or("record numbers (no --key)".to_owned(), |key| format!("--key {key}"));
        NewNotation::claim(db, tree, wanted, &source)
    }

    pub fn claim(db: &Db, tree: &str, wanted: KeyNotation, source: &str) -> Result<NewNotation> {
        let Some((id, first_key)) = tree_state(db, tree)? else { return Ok(NewNotation(Some(wanted))) };
        let stored = stored_by_id(db, id)?;
        let Some(first_key) = first_key else {
            return Ok(NewNotation(Some(wanted).filter(|_| stored != Some(wanted))));
        };
        let present = match stored {
            Some(stored) => stored,
            None => stored_key_notation(db, tree)?,
        };
        if present != wanted {
            let shown: String = show_key(&first_key, present).chars().take(40).collect();
            return Err(usage(format!(
                "the keys of the tree {} are {}, such as {shown}, but {source} would add {}: nothing was stored; choose \
                 another key or another tree",
                show_name(tree),
                in_words(present),
                in_words(wanted)
            )));
        }
        Ok(NewNotation(Some(wanted).filter(|_| stored.is_none())))
    }

    pub fn of_copy(notation: KeyNotation) -> NewNotation {
        NewNotation(Some(notation))
    }

    pub fn store(&mut self, db: &Db, tree: &str, imports: &Tree, batch: &mut Batch) -> Result<()> {
        let Some(keys) = self.0.take() else { return Ok(()) };
        if let Some(info) = db.tree_info(tree)? {
            batch.put(imports, keys_key(info.id), serde_json::to_vec(&KeysRecord { keys })?);
        }
        Ok(())
    }

    pub fn is_needless(&self) -> bool {
        self.0.is_none_or(|keys| keys == KeyNotation::Text)
    }
}

fn in_words(notation: KeyNotation) -> &'static str {
    match notation {
        KeyNotation::Text => "text",
        KeyNotation::Hex => "hexadecimal bytes",
        KeyNotation::U64 => "numbers (u64)",
        KeyNotation::Tuple => "tuples",
    }
}

fn tree_state(db: &Db, tree: &str) -> Result<Option<(u32, Option<Vec<u8>>)>> {
    let Some(info) = db.tree_info(tree)? else { return Ok(None) };
    let first_key = match info.multi {
        true => db.open_multi_tree(tree)?.iter().next().transpose()?.map(|(key, _)| key.to_vec()),
        false => db.open_tree(tree)?.first()?.map(|(key, _)| key.to_vec()),
    };
    Ok(Some((info.id, first_key)))
}

fn keys_key(id: u32) -> Vec<u8> {
    [b"keys\0".as_slice(), &id.to_be_bytes()].concat()
}

fn imports_of(db: &Db) -> Result<Option<Tree>> {
    match db.open_tree(IMPORT_TREE) {
        Ok(imports) => Ok(Some(imports)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub fn stored_by_id(db: &Db, id: u32) -> Result<Option<KeyNotation>> {
    let Some(imports) = imports_of(db)? else { return Ok(None) };
    let Some(json) = imports.get(keys_key(id))? else { return Ok(None) };
    let record: KeysRecord = serde_json::from_slice(&json).map_err(|error| {
        failure(CORRUPTION, format!("the notation of the keys of tree {id} in {IMPORT_TREE} is damaged: {error}"))
    })?;
    Ok(Some(record.keys))
}

pub fn stored_key_notation(db: &Db, tree: &str) -> Result<KeyNotation> {
    let stored = db.tree_info(tree)?.map(|info| stored_by_id(db, info.id)).transpose()?.flatten();
    match (stored, imports_of(db)?) {
        (Some(stored), _) => Ok(stored),
        (None, None) => Ok(KeyNotation::Text),
        (None, Some(imports)) => {
            let progress = Progress::load(&imports, tree)?.filter(|progress| progress.stored > 0);
            let key = progress.map(|progress| KeySource::parse(progress.plan.key.as_deref()));
            Ok(key.map_or(KeyNotation::Text, |key| key.notation()))
        }
    }
}
