//! Indexes: trees of many values to a key, from the text of a field to the keys of the records that have it.
//!
//! Which indexes a tree has is itself stored, in the tree `braid.import` under `indexes` + 0 + the tree's name, so that
//! later imports, `put` and `del` keep them right, and `find` knows whether to lower-case what it looks for.
//!
//! A text makes a key of at most [`INDEX_KEY_BYTES_MAX`] bytes: its beginning. `find` compares longer texts with the
//! records themselves.

use anyhow::{Context, Result};
use braiddb::{Batch, Db, Durability, MultiTree};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    format::{field_of, scalar_text},
    progress::IMPORT_TREE,
};
use crate::exit::{CORRUPTION, failure, usage};

/// The longest key that a text makes.
pub const INDEX_KEY_BYTES_MAX: usize = 1000;

/// One index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexSpec {
    /// The name of its tree.
    pub name: String,
    /// The field it is over. Each item of a list makes an entry of its own.
    pub field: String,
    /// Whether texts are lower-cased.
    #[serde(default)]
    pub lower: bool,
}

impl IndexSpec {
    /// Reads `NAME=FIELD[:lower]`.
    pub fn parse(text: &str) -> Result<IndexSpec, String> {
        let (name, field) = text.split_once('=').ok_or("write NAME=FIELD or NAME=FIELD:lower")?;
        let (field, lower) = match field.strip_suffix(":lower") {
            Some(field) => (field, true),
            None => (field, false),
        };
        if name.is_empty() || field.is_empty() {
            return Err("write NAME=FIELD or NAME=FIELD:lower".to_owned());
        }
        Ok(IndexSpec { name: name.to_owned(), field: field.to_owned(), lower })
    }

    /// A text as this index has it, whole.
    pub fn normalize(&self, text: &str) -> String {
        if self.lower { text.to_lowercase() } else { text.to_owned() }
    }

    /// The texts of a record, as this index has them.
    pub fn texts(&self, record: &Value) -> Vec<String> {
        let values = match field_of(record, &self.field) {
            Some(Value::Array(items)) => items.as_slice(),
            Some(value) => std::slice::from_ref(value),
            None => &[],
        };
        values.iter().filter_map(scalar_text).map(|text| self.normalize(&text)).collect()
    }
}

/// The key that a text makes.
pub fn index_key(text: &str) -> &str {
    let mut end = text.len().min(INDEX_KEY_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The entries of a record: the position of the index among `specs`, and the key there. Sorted, each once.
pub fn index_keys(specs: &[IndexSpec], record: &Value) -> Vec<(usize, String)> {
    let mut keys: Vec<(usize, String)> = specs
        .iter()
        .enumerate()
        .flat_map(|(index, spec)| spec.texts(record).into_iter().map(move |text| (index, index_key(&text).to_owned())))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The open indexes of a tree.
pub struct Indexes {
    /// What they are over.
    pub specs: Vec<IndexSpec>,
    trees: Vec<MultiTree>,
}

impl Indexes {
    /// The indexes of a tree as they are stored; none if it has none.
    pub fn load(db: &Db, tree: &str) -> Result<Indexes> {
        let specs = load_specs(db, tree)?;
        Indexes::open(db, specs)
    }

    /// What the indexes of a tree are over, as it is stored.
    pub fn stored_specs(db: &Db, tree: &str) -> Result<Vec<IndexSpec>> {
        load_specs(db, tree)
    }

    /// Adds the wanted indexes to those of the tree. One added to a tree that has records already would lack them, so
    /// that is refused.
    pub fn declare(db: &Db, tree: &str, wanted: &[IndexSpec]) -> Result<Indexes> {
        let mut specs = load_specs(db, tree)?;
        let mut added = false;
        for spec in wanted {
            match specs.iter().find(|known| known.name == spec.name) {
                Some(known) if known == spec => {}
                Some(known) => {
                    let lower = if known.lower { ":lower" } else { "" };
                    let message = format!("the index {} exists already, as {0}={}{lower}", known.name, known.field);
                    return Err(usage(message));
                }
                None => {
                    if spec.name == tree || spec.name == IMPORT_TREE {
                        return Err(usage(format!("an index cannot have the name of the tree {}", spec.name)));
                    }
                    specs.push(spec.clone());
                    added = true;
                }
            }
        }
        if added {
            refuse_names_of_others(db, tree, &specs)?;
            if db.tree(tree)?.first()?.is_some() {
                return Err(usage(format!(
                    "the tree {tree} has records already, which a new index would lack: import into a new tree"
                )));
            }
            let json = serde_json::to_vec(&specs)?;
            let imports = db.tree(IMPORT_TREE)?;
            let mut batch = db.batch();
            batch.put(&imports, specs_key(tree), json);
            db.write(batch, Durability::Sync)?;
        }
        Indexes::open(db, specs)
    }

    fn open(db: &Db, specs: Vec<IndexSpec>) -> Result<Indexes> {
        let trees = specs.iter().map(|spec| db.multi_tree(&spec.name)).collect::<braiddb::Result<_>>()?;
        Ok(Indexes { specs, trees })
    }

    /// Adds to a batch what turns a record's old entries into its new ones. Both lists are sorted.
    pub fn replace(&self, batch: &mut Batch, key: &[u8], old: &[(usize, String)], new: &[(usize, String)]) {
        for entry in old.iter().filter(|entry| new.binary_search(entry).is_err()) {
            batch.remove(&self.trees[entry.0], entry.1.as_bytes(), key);
        }
        for entry in new.iter().filter(|entry| old.binary_search(entry).is_err()) {
            batch.add(&self.trees[entry.0], entry.1.as_bytes(), key);
        }
    }

    /// The entries of a stored value; none if it is not JSON.
    pub fn keys_of_stored(&self, stored: &[u8]) -> Vec<(usize, String)> {
        if self.specs.is_empty() {
            return Vec::new();
        }
        serde_json::from_slice(stored).map(|record| index_keys(&self.specs, &record)).unwrap_or_default()
    }
}

fn specs_key(tree: &str) -> Vec<u8> {
    [b"indexes\0", tree.as_bytes()].concat()
}

fn load_specs(db: &Db, tree: &str) -> Result<Vec<IndexSpec>> {
    let imports = match db.open_tree(IMPORT_TREE) {
        Ok(imports) => imports,
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    match imports.get(specs_key(tree))? {
        None => Ok(Vec::new()),
        Some(json) => serde_json::from_slice(&json).map_err(|error| {
            failure(CORRUPTION, format!("the list of indexes of {tree} in the tree {IMPORT_TREE} is damaged: {error}"))
        }),
    }
}

/// Two trees cannot share an index: their keys would be mixed up.
fn refuse_names_of_others(db: &Db, tree: &str, specs: &[IndexSpec]) -> Result<()> {
    let Ok(imports) = db.open_tree(IMPORT_TREE) else { return Ok(()) };
    for item in imports.prefix(b"indexes\0") {
        let (key, json) = item?;
        let other = String::from_utf8_lossy(key.strip_prefix(b"indexes\0").unwrap_or_default()).into_owned();
        let others: Vec<IndexSpec> = serde_json::from_slice(&json).context("the list of indexes is damaged")?;
        let shared = others.iter().find(|other| specs.iter().any(|spec| spec.name == other.name));
        if let Some(shared) = shared.filter(|_| other != tree) {
            return Err(usage(format!("the index {} belongs to the tree {other}", shared.name)));
        }
    }
    Ok(())
}
