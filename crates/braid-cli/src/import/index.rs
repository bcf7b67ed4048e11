//! Indexes: multi-value trees that map the text of a field to the keys of its records.
//!
//! Entries are sorted as texts, numbers too ([`canonical_number`]). An entry holds at most
//! [`INDEX_KEY_BYTES_MAX`] bytes; for longer texts, `find` checks the records.

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

pub const INDEX_KEY_BYTES_MAX: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexSpec {
    pub name: String,
    /// Each item of a list gets an entry.
    pub field: String,
    #[serde(default)]
    pub lower: bool,
    /// Numbers are indexed exactly; indexes of earlier versions hold rounded ones.
    #[serde(default)]
    pub exact: bool,
    /// The index is being built, or the build was interrupted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
}

impl IndexSpec {
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

    /// Ignores `exact`, which a rebuild changes.
    pub fn is_like(&self, other: &IndexSpec) -> bool {
        self.name == other.name && self.field == other.field && self.lower == other.lower
    }

    pub fn written(&self) -> String {
        format!("{}={}{}", self.name, self.field, if self.lower { ":lower" } else { "" })
    }

    pub fn normalize(&self, text: &str) -> String {
        if self.lower { text.to_lowercase() } else { text.to_owned() }
    }

    pub fn number_text(&self, text: &str) -> Option<String> {
        let exact = canonical_number(text)?;
        Some(if self.exact { exact } else { rounded_number(text) })
    }

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

    pub fn texts(&self, record: &Value) -> Vec<String> {
        self.items(record).iter().filter_map(|item| self.text_of(item)).collect()
    }

    pub fn has_number(&self, record: &Value, number_text: &str) -> bool {
        let is_it = |item: &Value| item.is_number() && self.text_of(item).as_deref() == Some(number_text);
        self.items(record).iter().any(is_it)
    }
}

pub fn index_key(text: &str) -> &str {
    let mut end = text.len().min(INDEX_KEY_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the entries of a record as (position in `specs`, text), sorted and without duplicates.
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

pub struct Indexes {
    pub specs: Vec<IndexSpec>,
    trees: Vec<MultiTree>,
}

impl Indexes {
    pub fn load(db: &Db, tree: &str) -> Result<Indexes> {
        let specs = load_specs(db, tree)?;
        Indexes::open(db, specs)
    }

    /// Reports empty indexes; a mistyped field is no error.
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

    pub fn stored_specs(db: &Db, tree: &str) -> Result<Vec<IndexSpec>> {
        load_specs(db, tree)
    }

    pub fn declare(db: &Db, tree: &str, wanted: &[IndexSpec]) -> Result<Declaration> {
        Declaration::check(db, tree, wanted)
    }

    pub fn declare_now(db: &Db, tree: &str, wanted: &[IndexSpec]) -> Result<Indexes> {
        let declaration = Declaration::check(db, tree, wanted)?;
        declaration.refuse_if_it_would_lack_records(db, tree)?;
        drop(db.tree(tree)?);
        let mut batch = db.batch();
        let indexes = declaration.establish(db, tree, &mut batch)?;
        if !batch.is_empty() {
            batch.commit_with(Durability::Sync)?;
        }
        Ok(indexes)
    }

    pub(super) fn open(db: &Db, specs: Vec<IndexSpec>) -> Result<Indexes> {
        let trees = specs.iter().map(|spec| db.multi_tree(&spec.name)).collect::<braiddb::Result<_>>()?;
        Ok(Indexes { specs, trees })
    }

    /// Adds the difference between a record's old and new entries to a batch. Both lists must be
    /// sorted.
    pub fn replace(&self, batch: &mut Batch, key: &[u8], old: &[(usize, String)], new: &[(usize, String)]) {
        for entry in old.iter().filter(|entry| new.binary_search(entry).is_err()) {
            batch.delete_pair(&self.trees[entry.0], entry.1.as_bytes(), key);
        }
        for entry in new.iter().filter(|entry| old.binary_search(entry).is_err()) {
            batch.add(&self.trees[entry.0], entry.1.as_bytes(), key);
        }
    }

    /// Returns the entries to delete and to add, as [`Indexes::replace`] does: index, text, and
    /// whether it is new.
    #[cfg(feature = "shell")]
    pub fn changes<'a>(
        &'a self,
        old: &'a [(usize, String)],
        new: &'a [(usize, String)],
    ) -> impl Iterator<Item = (&'a MultiTree, &'a [u8], bool)> {
        let gone = old.iter().filter(|entry| new.binary_search(entry).is_err()).map(|entry| (entry, false));
        let added = new.iter().filter(|entry| old.binary_search(entry).is_err()).map(|entry| (entry, true));
        gone.chain(added).map(|((index, text), is_new)| (&self.trees[*index], text.as_bytes(), is_new))
    }

    pub fn keys_of_stored(&self, stored: &[u8]) -> Vec<(usize, String)> {
        if self.specs.is_empty() {
            return Vec::new();
        }
        serde_json::from_slice(stored).map(|record| index_keys(&self.specs, &record)).unwrap_or_default()
    }
}
