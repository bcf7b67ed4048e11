//! `braid copy-tree`: fills a tree with a temporary name and renames it at the end, so that a copy
//! appears whole or not at all.

use std::{path::PathBuf, time::SystemTime};

use anyhow::Result;
use braiddb::{Db, Durability, Tree};
use clap::Args;
use serde_json::json;

use super::{
    open::{NamedTree, open_for_reading, open_for_writing},
    tree_names::refuse_own_tree,
};
use crate::{
    arguments::{OpenArguments, ReadArguments},
    bar::Bar,
    exit::{OK, usage},
    import::{IMPORT_TREE, Indexes, NewNotation, stored_key_notation},
    interrupt::{self, Pace},
    notation::{parse_name, show_counted, show_name},
    output::{note, print_line},
};

const BATCH_BYTES: usize = 1 << 20;

const UNFINISHED_PREFIX: &str = "braid.copying.";

/// `braid copy-tree`
#[derive(Debug, Args)]
pub struct CopyTreeArguments {
    /// The database
    pub db: PathBuf,
    /// The tree to copy
    #[arg(value_parser = parse_name)]
    pub from: String,
    /// The name of the copy; must be new
    #[arg(value_parser = parse_name)]
    pub to: String,
    /// Copy into this existing database [default: the same one]
    #[arg(long, value_name = "DB")]
    pub into: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

pub fn copy_tree(arguments: &CopyTreeArguments) -> Result<u8> {
    let (source, target) = match &arguments.into {
        Some(into) if !is_same(into, &arguments.db) => {
            let read = ReadArguments { open: arguments.open.clone(), read_only: true };
            let target = open_for_writing(into, &arguments.open)?;
            (open_for_reading(&arguments.db, &read)?, target)
        }
        _ => {
            let db = open_for_writing(&arguments.db, &arguments.open)?;
            (db.clone(), db)
        }
    };
    let copied = copy(&source, &target, arguments)?;
    let indexes = Indexes::stored_specs(&source, &arguments.from)?;
    drop(source);
    target.close()?;
    match arguments.json {
        true => print_line(json!({"records": copied}))?,
        false => print_line(show_counted(copied, "record"))?,
    }
    if !indexes.is_empty() {
        note!("braid: the copy has no indexes: add them with `braid index add`");
    }
    Ok(OK)
}

fn is_same(one: &std::path::Path, other: &std::path::Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

fn copy(source: &Db, target: &Db, arguments: &CopyTreeArguments) -> Result<u64> {
    let (from, to) = (&arguments.from, &arguments.to);
    for name in [from, to] {
        refuse_own_tree(name)?;
    }
    let tree = NamedTree::open(source, from)?;
    if NamedTree::find(target, to)?.is_some() {
        return Err(usage(format!("a tree named {} exists already: give another name", show_name(to))));
    }
    let unfinished = format!("{UNFINISHED_PREFIX}{to}");
    if NamedTree::find(target, &unfinished)?.is_some() {
        // Left by a killed copy.
        target.drop_tree(&unfinished)?;
    }
    let shown = show_name(to);
    interrupt::begin(Pace::InOrder, move |_| format!("no tree {shown} was created; run the copy again"));
    let bar = Bar::count(None, "copy");
    let mut moved = |records| {
        bar.set_count(records);
        interrupt::check()
    };
    let copied = match &tree {
        NamedTree::Plain(tree) => copy_records(source, tree, target, &unfinished, &mut moved),
        NamedTree::Multi(tree) => {
            let snapshot = source.snapshot();
            let into = target.multi_tree(&unfinished)?;
            let (mut batch, mut copied) = (target.batch(), 0);
            for pair in &snapshot.multi_tree(tree) {
                let (key, value) = pair?;
                batch.add(&into, &key, &value);
                copied += 1;
                if batch.size_bytes() >= BATCH_BYTES {
                    std::mem::replace(&mut batch, target.batch()).commit_with(Durability::Buffered)?;
                    moved(copied)?;
                }
            }
            batch.commit_with(Durability::Sync)?;
            Ok(copied)
        }
    };
    let named = copied.and_then(|copied| {
        copy_notation(source, from, target, &unfinished)?;
        target.rename_tree(&unfinished, to)?;
        Ok(copied)
    });
    match named {
        Ok(copied) => {
            bar.finish();
            Ok(copied)
        }
        Err(error) => {
            // May fail on a full disk; the next copy removes the tree.
            let _ = target.drop_tree(&unfinished);
            Err(error)
        }
    }
}

fn copy_notation(source: &Db, from: &str, target: &Db, name: &str) -> Result<()> {
    let mut notation = NewNotation::of_copy(stored_key_notation(source, from)?);
    if notation.is_needless() {
        return Ok(());
    }
    let mut batch = target.batch();
    notation.store(target, name, &target.tree(IMPORT_TREE)?, &mut batch)?;
    batch.commit_with(Durability::Sync)?;
    Ok(())
}

type Moved<'a> = &'a mut dyn FnMut(u64) -> std::result::Result<(), interrupt::Interrupted>;

fn copy_records(source: &Db, tree: &Tree, target: &Db, name: &str, moved: Moved<'_>) -> Result<u64> {
    let options = tree.options();
    // The options follow at the end: with a TTL, puts would expire records that have no expiry.
    let mut without_ttl = options;
    without_ttl.ttl = None;
    let into = target.tree_with(name, without_ttl)?;
    let snapshot = source.snapshot();
    let mut cursor = snapshot.cursor(tree);
    let (mut batch, mut copied) = (target.batch(), 0);
    let mut is_there = cursor.seek_first()?;
    while is_there {
        let expires: Option<SystemTime> = cursor.expires()?;
        let (key, value) = cursor.row()?;
        match expires {
            Some(at) => batch.put_until(&into, key, value, at),
            None => batch.put(&into, key, value),
        };
        copied += 1;
        if batch.size_bytes() >= BATCH_BYTES {
            std::mem::replace(&mut batch, target.batch()).commit_with(Durability::Buffered)?;
            moved(copied)?;
        }
        is_there = cursor.next()?;
    }
    batch.commit_with(Durability::Sync)?;
    if options.ttl.is_some() {
        into.set_options(options)?;
    }
    Ok(copied)
}
