//! `braid count`

use std::{ops::Bound, path::PathBuf};

use anyhow::Result;
use braiddb_typed::BEYOND_RECORDS;
use clap::Args;
use serde_json::json;

use super::open::{NamedTree, key_notation, open_for_reading};
use crate::{
    arguments::{KeyArguments, ReadArguments},
    exit::OK,
    notation::{KeyNotation, parse_key, parse_name},
    output::print_line,
};

/// The key range of a command; by default all keys.
#[derive(Clone, Debug, Default, Args)]
pub struct RangeArguments {
    /// Start at this key
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// End before this key
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// Only keys with this prefix
    #[arg(long, value_name = "KEY", allow_hyphen_values = true, conflicts_with_all = ["from", "to"])]
    pub prefix: Option<String>,
}

/// `braid count`
#[derive(Debug, Args)]
pub struct CountArguments {
    /// The database
    pub db: PathBuf,
    /// The tree
    #[arg(value_parser = parse_name)]
    pub tree: String,
    #[command(flatten)]
    pub range: RangeArguments,
    /// Print a fast estimate; only for whole trees
    #[arg(long, conflicts_with_all = ["from", "to", "prefix"])]
    pub estimate: bool,
    #[command(flatten)]
    pub key_arguments: KeyArguments,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
}

pub type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl RangeArguments {
    /// Returns the range. Of tuples, it ends before the index entries, and a prefix is one of
    /// elements.
    pub fn keys(&self, notation: KeyNotation) -> Result<KeyRange> {
        let key = |text: &Option<String>| text.as_deref().map(|text| parse_key(text, notation)).transpose();
        let prefix = key(&self.prefix)?;
        if notation == KeyNotation::Tuple {
            let end = |start: Vec<u8>| Bound::Excluded([start, vec![BEYOND_RECORDS]].concat());
            return Ok(match (prefix, key(&self.from)?, key(&self.to)?) {
                (Some(prefix), _, _) => (Bound::Included(prefix.clone()), end(prefix)),
                (None, from, to) => {
                    let to = to.map_or_else(|| end(Vec::new()), Bound::Excluded);
                    (from.map_or(Bound::Unbounded, Bound::Included), to)
                }
            });
        }
        if let Some(prefix) = prefix {
            let end = after_prefix(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
            return Ok((Bound::Included(prefix), end));
        }
        let from = key(&self.from)?.map_or(Bound::Unbounded, Bound::Included);
        let to = key(&self.to)?.map_or(Bound::Unbounded, Bound::Excluded);
        Ok((from, to))
    }
}

/// Returns the smallest key above all keys with `prefix`, or `None` if there is none.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end)
}

pub fn count(arguments: &CountArguments) -> Result<u8> {
    let db = open_for_reading(&arguments.db, &arguments.read)?;
    let range = arguments.range.keys(key_notation(&db, &arguments.tree, arguments.key_arguments)?)?;
    let count = match NamedTree::open(&db, &arguments.tree)? {
        NamedTree::Plain(tree) if arguments.estimate => tree.len_estimate()?,
        NamedTree::Multi(tree) if arguments.estimate => tree.approximate(..)?.keys,
        NamedTree::Plain(tree) => tree.count(range)?,
        NamedTree::Multi(tree) => tree.count(range)?,
    };
    match arguments.json {
        true => print_line(json!({"tree": arguments.tree, "count": count, "exact": !arguments.estimate}))?,
        false => print_line(count)?,
    }
    Ok(OK)
}

#[cfg(test)]
mod tests {
    use super::after_prefix;

    #[test]
    fn after_prefix_ending_in_ff_is_next_shorter_prefix() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff"), None);
        assert_eq!(after_prefix(b""), None);
    }
}
