//! `braid explain`

use std::io::Write;

use anyhow::Result;

use super::open::{NamedTree, key_notation, open_for_reading};
use crate::{
    arguments::ExplainArguments,
    exit::{OK, usage},
    notation::{parse_key, show_key, show_name},
    output::Stdout,
};

/// Also explains why a key is absent.
pub fn explain(arguments: &ExplainArguments) -> Result<u8> {
    let db = open_for_reading(&arguments.db, &arguments.read)?;
    let notation = key_notation(&db, &arguments.tree, arguments.key_arguments)?;
    let key = parse_key(&arguments.key, notation)?;
    let NamedTree::Plain(tree) = NamedTree::open(&db, &arguments.tree)? else {
        let name = show_name(&arguments.tree);
        return Err(usage(format!("{name} is a multi-value tree: explain works for trees with one value per key")));
    };
    for _ in 1..arguments.repeat {
        tree.get(&key)?;
    }
    let explained = tree.explain(&key)?;
    let mut out = Stdout::new();
    if arguments.json {
        writeln!(out, "{}", explained.to_json())?;
    } else {
        let (name, key) = (show_name(&arguments.tree), show_key(&key, notation));
        writeln!(out, "get of {key} in tree {name} at commit {}", explained.sequence)?;
        writeln!(out, "{explained}")?;
    }
    out.finish()?;
    Ok(OK)
}
