//! Rules for writes by programs without the types of a tree, such as the `braid` command and the
//! HTTP service.
//!
//! Each function returns the reason to refuse a write, with its remedy, or `None`.

use crate::{builder::KEY_CODEC, definitions::DEFINITIONS_KEY, text};
use braiddb::{Tree, TreeCodec};
use serde::de::IgnoredAny;

/// Returns whether the keys of a tree with this codec are tuples.
pub fn has_tuple_keys(codec: Option<TreeCodec>) -> bool {
    codec.is_some_and(|codec| codec.key() == KEY_CODEC)
}

/// Returns why a record must not be written or deleted: its key is no tuple, or the tree has
/// secondary indexes, whose entries only the tree's program can keep. `key` is `None` for a delete.
pub fn refusal_of_write(tree: &Tree, key: Option<&[u8]>) -> braiddb::Result<Option<String>> {
    if !has_tuple_keys(tree.options().codec) {
        return Ok(None);
    }
    let name = tree.name();
    if let Some(key) = key.filter(|key| text::to_json(key).is_none()) {
        return Ok(Some(format!(
            "the tree {} has tuples as keys, and {} is none: give a JSON array",
            name.escape_debug(),
            text::show(key)
        )));
    }
    let has_indexes = tree.contains(DEFINITIONS_KEY)?;
    Ok(has_indexes.then(|| {
        let name = name.escape_debug();
        format!("the tree {name} has secondary indexes, which only its program can keep: write it there")
    }))
}

/// Returns whether [`refusal_of_value`] checks the values of this codec.
pub fn checks_values(codec: Option<TreeCodec>) -> bool {
    codec.is_some_and(|codec| ["json", "msgpack"].contains(&codec.value()))
}

/// Returns why a value must not be stored: the codec's name promises JSON or MessagePack, and the
/// value is none. Values of other codecs are not checked.
pub fn refusal_of_value(codec: Option<TreeCodec>, value: &[u8]) -> Option<String> {
    let codec = codec?;
    let (format, error) = match codec.value() {
        "json" => ("JSON", serde_json::from_slice::<IgnoredAny>(value).err()?.to_string()),
        #[cfg(feature = "msgpack")]
        "msgpack" => {
            let mut rest = value;
            let error = match rmp_serde::decode::from_read::<_, IgnoredAny>(&mut rest) {
                Ok(_) if rest.is_empty() => return None,
                Ok(_) => "bytes follow the value".to_owned(),
                Err(error) => error.to_string(),
            };
            ("MessagePack", error)
        }
        _ => return None,
    };
    Some(format!("the tree has the codec {codec}, and the value is not {format}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_that_is_not_of_its_codec_is_refused() {
        let codec = |value: &str| Some(TreeCodec::new(KEY_CODEC, value).unwrap());
        let is_refused = |name: &str, value: &[u8]| refusal_of_value(codec(name), value).is_some();
        assert!(!is_refused("json", b"{\"a\":[1]}") && is_refused("json", b"{") && is_refused("json", b"1 2"));
        assert!(!is_refused("raw", b"{") && refusal_of_value(None, b"{").is_none());
        assert!(checks_values(codec("json")) && !checks_values(codec("raw")) && !checks_values(None));
        if cfg!(feature = "msgpack") {
            let packed = [0x81, 0xa1, b'a', 1];
            assert!(!is_refused("msgpack", &packed));
            assert!(is_refused("msgpack", &packed[..3]) && is_refused("msgpack", &[packed, packed].concat()));
        }
    }
}
