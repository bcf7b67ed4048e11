//! Indexes: trees of many values to a key, from the text of a field to the keys of the records that have it.
//!
//! Entries are in the order of their texts, numbers too. A number has one text however it is written (see
//! [`canonical_number`]). A text makes a key of at most [`INDEX_KEY_BYTES_MAX`] bytes: its beginning. `find` compares
//! longer texts with the records themselves.

use anyhow::Result;
use braiddb::{Batch, Db, Durability, MultiTree};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    format::{field_of, scalar_text},
    index_store::{Declaration, load_specs},
    number::{canonical_number, rounded_number},
};
use crate::{notation::show_name, output::note};

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
    /// Whether numbers are indexed exactly. Indexes of earlier versions have rounded ones, until they are rebuilt.
    #[serde(default)]
    pub exact: bool,
    /// Whether entries may be missing: the index is being filled, or the filling was interrupted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
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
        Ok(IndexSpec { name: name.to_owned(), field: field.to_owned(), lower, exact: true, unfinished: false })
    }

    /// Whether both index the same field in the same way. Rounded numbers are no other index: a rebuild makes them exact.
    pub fn is_like(&self, other: &IndexSpec) -> bool {
        self.name == other.name && self.field == other.field && self.lower == other.lower
    }

    /// `NAME=FIELD[:lower]`, as it is given on the command line.
    pub fn written(&self) -> String {
        format!("{}={}{}", self.name, self.field, if self.lower { ":lower" } else { "" })
    }

    /// A text as this index has it, whole.
    pub fn normalize(&self, text: &str) -> String {
        if self.lower { text.to_lowercase() } else { text.to_owned() }
    }

    /// The text that this index has for a number; `None` if `text` is no number.
    pub fn number_text(&self, text: &str) -> Option<String> {
        let exact = canonical_number(text)?;
        Some(if self.exact { exact } else { rounded_number(text) })
    }

    /// The items of a record that make entries.
    fn items<'r>(&self, record: &'r Value) -> &'r [Value] {
        match field_of(record, &self.field) {
            Some(Value::Array(items)) => items.as_slice(),
            Some(value) => std::slice::from_ref(value),
            None => &[],
        }
    }

    fn text_of(&self, item: &Value) -> Option<String> {
        match item {
            Value::Number(number) => {
                let text = number.to_string();
                Some(self.number_text(&text).unwrap_or(text))
            }
            other => scalar_text(other).map(|text| self.normalize(&text)),
        }
    }

    /// The texts of a record, as this index has them.
    pub fn texts(&self, record: &Value) -> Vec<String> {
        self.items(record).iter().filter_map(|item| self.text_of(item)).collect()
    }

    /// Whether a record has this number in the field, as a number.
    pub fn has_number(&self, record: &Value, number_text: &str) -> bool {
        let is_it = |item: &Value| item.is_number() && self.text_of(item).as_deref() == Some(number_text);
        self.items(record).iter().any(is_it)
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

    /// Says which indexes have no entries after an import: a mistyped field is no error, since records need not have it.
    pub fn note_empty(&self) -> Result<()> {
        for (spec, tree) in self.specs.iter().zip(&self.trees) {
            if tree.iter().next().transpose()?.is_none() {
                let (name, field) = (show_name(&spec.name), &spec.field);
                note!(
                    "braid: the index {name} is empty: no record has a value in the field {field} that can be indexed"
                );
            }
        }
        Ok(())
    }

    /// What the indexes of a tree are over, as it is stored.
    pub fn stored_specs(db: &Db, tree: &str) -> Result<Vec<IndexSpec>> {
        load_specs(db, tree)
    }

    /// Checks the wanted indexes of a tree, beside those it has, and changes nothing.
    pub fn declare(db: &Db, tree: &str, wanted: &[IndexSpec]) -> Result<Declaration> {
        Declaration::check(db, tree, wanted)
    }

    /// Gives a tree these indexes at once, beside those it has. One added to a tree that has records would lack them, so that
    /// is refused.
    pub fn declare_now(db: &Db, tree: &str, wanted: &[IndexSpec]) -> Result<Indexes> {
        let declaration = Declaration::check(db, tree, wanted)?;
        declaration.refuse_if_it_would_lack_records(db, tree)?;
        drop(db.tree(tree)?);
        let mut batch = db.batch();
        let indexes = declaration.establish(db, tree, &mut batch)?;
        if !batch.is_empty() {
            db.write(batch, Durability::Sync)?;
        }
        Ok(indexes)
    }

    /// Opens the trees of indexes; those that are not there are created.
    pub(super) fn open(db: &Db, specs: Vec<IndexSpec>) -> Result<Indexes> {
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
