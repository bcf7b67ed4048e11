//! The names of a tree's key and value encodings, as its catalog entry stores them.
//!
//! The engine compares and shows them; the crate `braiddb-typed` and other readers apply them.

use crate::base::{Error, Result};
use std::{fmt, str::FromStr};

/// Maximum length of one of the two names, in bytes.
const NAME_LEN_MAX: usize = 31;

/// A name of 1 to 31 of the characters `a` to `z`, `0` to `9`, `-`, `_` and `.`, padded with zeros.
/// A later version may have stored other text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Name([u8; NAME_LEN_MAX]);

impl Name {
    fn new(name: &str) -> Option<Name> {
        let is_known = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
        let is_valid = (1..=NAME_LEN_MAX).contains(&name.len()) && name.as_bytes().iter().all(is_known);
        is_valid.then(|| {
            let mut bytes = [0; NAME_LEN_MAX];
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            Name(bytes)
        })
    }

    /// Returns a stored name: its printable text, cut at the maximum length. Also returns whether
    /// that is the whole name.
    fn of_stored(stored: &[u8]) -> (Name, bool) {
        let mut text = String::new();
        for char in String::from_utf8_lossy(stored).chars() {
            let char = if char.is_control() { char::REPLACEMENT_CHARACTER } else { char };
            if text.len() + char.len_utf8() > NAME_LEN_MAX {
                break;
            }
            text.push(char);
        }
        let mut bytes = [0; NAME_LEN_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        (Name(bytes), text.as_bytes() == stored)
    }

    fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(NAME_LEN_MAX);
        str::from_utf8(&self.0[..len]).unwrap_or_default()
    }
}

/// How a tree's keys and values are encoded, by name: `tuple/json`. [`crate::TreeOptions::codec`]
/// stores it, so that every tool and language can decode the tree. The engine itself reads and
/// writes bytes, whatever the codec. A tree keeps its codec: see [`crate::Tree::set_options`].
///
/// A tree of a later version may have names that [`TreeCodec::new`] refuses. They are shown, and kept
/// as they are.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// use braiddb::{Db, TreeCodec, TreeOptions};
///
/// let db = Db::in_memory()?;
/// let codec = TreeCodec::new("tuple", "json")?;
/// let users = db.tree_with("users", TreeOptions::new().codec(codec))?;
/// assert_eq!(users.options().codec.unwrap().to_string(), "tuple/json");
/// assert_eq!("tuple/json".parse::<TreeCodec>()?, codec);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TreeCodec {
    key: Name,
    value: Name,
    /// False for stored names that are too long or no text: only the catalog entry has them whole.
    is_whole: bool,
}

impl TreeCodec {
    /// Returns the codec of these names: 1 to 31 of the characters `a` to `z`, `0` to `9`, `-`, `_`
    /// and `.` each. Other names are `InvalidArgument`.
    pub fn new(key: &str, value: &str) -> Result<TreeCodec> {
        let name = |name: &str| {
            Name::new(name).ok_or_else(|| {
                Error::InvalidArgument(format!(
                    "the codec name {name:?} does not have 1 to {NAME_LEN_MAX} of the characters a-z, 0-9, '-', '_' and '.'"
                ))
            })
        };
        Ok(TreeCodec { key: name(key)?, value: name(value)?, is_whole: true })
    }

    pub(in crate::db) fn of_stored(key: &[u8], value: &[u8]) -> TreeCodec {
        let ((key, is_key_whole), (value, is_value_whole)) = (Name::of_stored(key), Name::of_stored(value));
        TreeCodec { key, value, is_whole: is_key_whole && is_value_whole }
    }

    pub(in crate::db) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns the name of the key encoding.
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Returns the name of the value encoding.
    pub fn value(&self) -> &str {
        self.value.as_str()
    }
}

impl fmt::Display for TreeCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.key(), self.value())
    }
}

impl fmt::Debug for TreeCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TreeCodec({self})")
    }
}

impl FromStr for TreeCodec {
    type Err = Error;

    /// Parses the form of `Display`: `tuple/json`.
    fn from_str(text: &str) -> Result<TreeCodec> {
        match text.split_once('/') {
            Some((key, value)) => TreeCodec::new(key, value),
            None => Err(Error::InvalidArgument(format!(
                "the codec {text:?} has no '/': give the names of the key and value encodings, as in tuple/json"
            ))),
        }
    }
}
