//! `braid explain`

use std::io::{self, Write};

use anyhow::Result;
use braiddb::{Tree, stats::Explain};

use super::open::{NamedTree, key_notation, open_for_reading};
use crate::{
    arguments::ExplainArguments,
    exit::{OK, usage},
    notation::{KeyNotation, parse_key, show_key, show_name},
    output::Stdout,
};

/// Also explains why a key is absent.
pub fn explain(arguments: &ExplainArguments) -> Result<u8> {
    let db = open_for_reading(&arguments.db, &arguments.read)?;
    let notation = key_notation(&db, &arguments.tree, arguments.key_arguments)?;
    let key = parse_key(&arguments.key, notation)?;
    let tree = NamedTree::open(&db, &arguments.tree)?;
    let tree = plain_tree(&tree, &arguments.tree)?;
    for _ in 1..arguments.repeat {
        tree.get(&key)?;
    }
    let explained = tree.explain(&key)?;
    let mut out = Stdout::new();
    write_explained(&mut out, (&arguments.tree, &key), notation, &explained, arguments.json)?;
    out.finish()?;
    Ok(OK)
}

/// Fails for a multi-value tree.
pub fn plain_tree<'t>(tree: &'t NamedTree, name: &str) -> Result<&'t Tree> {
    match tree {
        NamedTree::Plain(tree) => Ok(tree),
        NamedTree::Multi(_) => {
            let name = show_name(name);
            Err(usage(format!("{name} is a multi-value tree: explain works for trees with one value per key")))
        }
    }
}

pub fn write_explained(
    out: &mut dyn Write,
    (tree, key): (&str, &[u8]),
    notation: KeyNotation,
    explained: &Explain,
    is_json: bool,
) -> io::Result<()> {
    if is_json {
        return writeln!(out, "{}", explained.to_json());
    }
    let (tree, key) = (show_name(tree), show_key(key, notation));
    writeln!(out, "get of {key} in tree {tree} at commit {}", explained.sequence)?;
    writeln!(out, "{explained}")
}
