//! `braid export`

use std::path::PathBuf;

use anyhow::Result;
use braiddb::{Key, Value};

use super::{
    open::{NamedTree, key_notation, open_for_reading},
    pairs::{json_pair, json_value},
};
use crate::{arguments::ExportArguments, bar::Bar, exit::OK, import::JsonOutput, notation::show_count};

type Pairs = Box<dyn Iterator<Item = braiddb::Result<(Key, Value)>>>;

/// Writes a tree as JSON lines, in key order.
pub fn export(arguments: &ExportArguments) -> Result<u8> {
    let db = open_for_reading(&arguments.db, &arguments.read)?;
    let notation = key_notation(&db, &arguments.tree, arguments.key_arguments)?;
    let tree = NamedTree::open(&db, &arguments.tree)?;
    let path = arguments.output.clone().unwrap_or_else(|| PathBuf::from("-"));
    let mut output = JsonOutput::create(&path)?;
    let (pairs, estimate): (Pairs, _) = match &tree {
        NamedTree::Plain(tree) => (Box::new(tree.iter()), Some(tree.len_estimate()?)),
        NamedTree::Multi(tree) => (Box::new(tree.iter()), None),
    };
    let bar = Bar::count(estimate, "export");
    let mut count = 0;
    for pair in pairs {
        let (key, value) = pair?;
        let line = if arguments.values { json_value(&value)? } else { json_pair(&key, &value, notation)? };
        output.line(&line)?;
        count += 1;
        if count % 1000 == 0 {
            bar.set_count(count);
        }
    }
    output.finish()?;
    bar.finish();
    if arguments.output.is_some() {
        eprintln!("{} entries of {} written to {}", show_count(count), arguments.tree, path.display());
    }
    Ok(OK)
}
