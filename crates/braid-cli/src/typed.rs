//! Trees with a codec: values as JSON text, and the rules for writes.

use std::borrow::Cow;

use anyhow::Result;
use braiddb::{Db, Tree, TreeCodec};
pub use braiddb_typed::guard::has_tuple_keys;
use braiddb_typed::{BEYOND_RECORDS, guard};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Number, Value};

use crate::{exit::usage, notation::show_name};

/// The key of the index definitions of a typed tree.
const DEFINITIONS_KEY: [u8; 2] = [BEYOND_RECORDS, 0];

pub fn codec_of(db: &Db, tree: &str) -> Result<Option<TreeCodec>> {
    Ok(db.tree_info(tree)?.and_then(|info| info.codec))
}

/// Returns a value as it is shown: MessagePack as JSON text, others unchanged.
pub fn shown(codec: Option<TreeCodec>, value: &[u8]) -> Cow<'_, [u8]> {
    let is_packed = codec.is_some_and(|codec| codec.value() == "msgpack");
    let decoded = is_packed.then(|| rmp_serde::from_slice::<Value>(value).ok()).flatten();
    // Bytes and keys that are no strings have no JSON: the value is shown as it is.
    match decoded {
        Some(json) => Cow::Owned(json.to_string().into_bytes()),
        None => Cow::Borrowed(value),
    }
}

/// Encodes a value given as text, or checks one given as bytes.
pub fn encoded(codec: Option<TreeCodec>, value: Vec<u8>, is_text: bool) -> Result<Vec<u8>> {
    let is_packed = codec.is_some_and(|codec| codec.value() == "msgpack");
    if let Some(codec) = codec.filter(|_| is_packed && is_text) {
        let json = serde_json::from_slice::<Value>(&value)
            .map_err(|error| usage(format!("the tree has the codec {codec}, and the value is not JSON: {error}")))?;
        return Ok(rmp_serde::to_vec(&Packed(&json))?);
    }
    guard::refusal_of_value(codec, &value).map_or(Ok(value), |reason| Err(usage(reason)))
}

/// Refuses a key that is no tuple, and a write to a tree with indexes: only their program knows how
/// to keep them.
pub fn check_write(tree: &Tree, key: Option<&[u8]>) -> Result<()> {
    guard::refusal_of_write(tree, key)?.map_or(Ok(()), |reason| Err(usage(reason)))
}

/// Refuses an import of records from a file: their keys are not the tree's, and it would bypass the
/// indexes.
pub fn check_import(db: &Db, tree: &str) -> Result<()> {
    let Some(codec) = codec_of(db, tree)? else { return Ok(()) };
    let name = show_name(tree);
    Err(usage(format!(
        "the tree {name} has the codec {codec}, and an import stores other keys and no entries of its indexes: import \
         into another --tree, and let the program of {name} take the records from there"
    )))
}

/// Refuses an import of an export into a tree with indexes: the records there would be replaced without their
/// entries. Returns whether the tree may get no indexes either, since it has records.
pub fn check_import_of_export(db: &Db, name: &str) -> Result<bool> {
    let Some(found) = db.tree_info(name)?.filter(|tree| !tree.multi && has_tuple_keys(tree.codec)) else {
        return Ok(false);
    };
    let tree = db.open_tree(&found.name)?;
    if tree.contains(DEFINITIONS_KEY)? {
        let name = show_name(name);
        return Err(usage(format!(
            "the tree {name} has secondary indexes, which an import would leave outdated: name another --tree, or drop \
             {name} first (`braid drop-tree`)"
        )));
    }
    Ok(!tree.is_empty()?)
}

/// Refuses the declarations of indexes in an export, which precede the entries, for a tree with records:
/// those would have no entries.
pub fn check_entry(tree: &Tree, key: &[u8]) -> Result<()> {
    if *key != DEFINITIONS_KEY {
        return Ok(());
    }
    let name = show_name(&tree.name());
    Err(usage(format!(
        "the export has secondary indexes, which lack the records that the tree {name} had before: import it under \
         another name (--tree)"
    )))
}

/// JSON for MessagePack. Numbers of serde_json with `arbitrary_precision` serialize as texts in
/// other formats, so they are converted.
struct Packed<'a>(&'a Value);

impl Serialize for Packed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Number(number) => serialize_number(number, serializer),
            Value::Array(values) => serializer.collect_seq(values.iter().map(Packed)),
            Value::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, &Packed(value))?;
                }
                map.end()
            }
            other => other.serialize(serializer),
        }
    }
}

fn serialize_number<S: Serializer>(number: &Number, serializer: S) -> Result<S::Ok, S::Error> {
    let double = || number.to_string().parse::<f64>().ok().filter(|double| double.is_finite());
    match (number.as_u64(), number.as_i64(), double()) {
        (Some(number), _, _) => serializer.serialize_u64(number),
        (None, Some(number), _) => serializer.serialize_i64(number),
        (None, None, Some(number)) => serializer.serialize_f64(number),
        (None, None, None) => Err(serde::ser::Error::custom("a number is too large for MessagePack")),
    }
}
