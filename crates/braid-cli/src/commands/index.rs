//! `braid index`

use std::path::PathBuf;

use anyhow::Result;
use braiddb::{Db, Durability};
use clap::{Args, Subcommand};
use serde_json::json;

use super::open::{open_for_reading, open_for_writing};
use crate::{
    arguments::{OpenArguments, ReadArguments},
    exit::{NOT_FOUND, OK, failure, usage},
    import::{IndexSpec, Indexes, all_indexes, drop_index, rebuild_index, store_specs, tree_id},
    interrupt::{self, Pace},
    notation::{parse_name, show_count, show_counted, show_name},
    output::print_line,
};

/// The commands on indexes.
#[derive(Debug, Subcommand)]
pub enum IndexCommand {
    /// Add an index to a tree, with entries for its records
    ///
    /// A killed `add` leaves an index that `list` shows as unfinished and `find` refuses. Repeat
    /// the command to add the missing entries.
    Add(AddArguments),
    /// Drop an index with its tree
    Drop(DropArguments),
    /// Compare indexes with the records, add missing entries, and remove stale ones
    ///
    /// Indexes of earlier versions hold rounded numbers; a rebuild makes them exact.
    Rebuild(RebuildArguments),
    /// List the indexes
    List(ListArguments),
}

/// `braid index add`
#[derive(Debug, Args)]
pub struct AddArguments {
    /// The database
    pub db: PathBuf,
    /// The tree that holds the records
    #[arg(value_parser = parse_name)]
    pub tree: String,
    /// The name of the index, and its field
    #[arg(value_name = "NAME=FIELD[:lower]", value_parser = IndexSpec::parse)]
    pub index: IndexSpec,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid index drop`
#[derive(Debug, Args)]
pub struct DropArguments {
    /// The database
    pub db: PathBuf,
    /// The tree that holds the records
    #[arg(value_parser = parse_name)]
    pub tree: String,
    /// The index
    #[arg(value_parser = parse_name)]
    pub index: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid index rebuild`
#[derive(Debug, Args)]
pub struct RebuildArguments {
    /// The database
    pub db: PathBuf,
    /// The tree that holds the records
    #[arg(value_parser = parse_name)]
    pub tree: String,
    /// The index [default: all indexes of the tree]
    #[arg(value_parser = parse_name)]
    pub index: Option<String>,
    /// Only count missing and stale entries, and end with code 1 if there are any
    #[arg(long)]
    pub check: bool,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid index list`
#[derive(Debug, Args)]
pub struct ListArguments {
    /// The database
    pub db: PathBuf,
    /// The tree that holds the records [default: all]
    #[arg(value_parser = parse_name)]
    pub tree: Option<String>,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
}

pub fn index(command: &IndexCommand) -> Result<u8> {
    match command {
        IndexCommand::Add(arguments) => add(arguments),
        IndexCommand::Drop(arguments) => {
            let db = open_for_writing(&arguments.db, &arguments.open)?;
            drop_index(&db, &arguments.tree, &arguments.index)?;
            db.close()?;
            if arguments.json {
                print_line(json!({"dropped": [arguments.index]}))?;
            }
            Ok(OK)
        }
        IndexCommand::Rebuild(arguments) => rebuild(arguments),
        IndexCommand::List(arguments) => list(arguments),
    }
}

/// INVARIANT: the list marks the index as unfinished before its first entry is written, so that a
/// killed `add` is detected.
fn add(arguments: &AddArguments) -> Result<u8> {
    let db = open_for_writing(&arguments.db, &arguments.open)?;
    let tree = &arguments.tree;
    if tree_id(&db, tree)?.is_none() {
        return Err(failure(
            NOT_FOUND,
            format!("there is no tree named {}; `braid trees` lists them", show_name(tree)),
        ));
    }
    db.open_tree(tree)?;
    let mut declaration = Indexes::declare(&db, tree, std::slice::from_ref(&arguments.index))?;
    if declaration.added > 0 {
        declaration.specs.iter_mut().rev().take(declaration.added).for_each(|spec| spec.unfinished = true);
        let mut batch = db.batch();
        drop(declaration.establish(&db, tree, &mut batch)?);
        batch.commit_with(Durability::Sync)?;
    }
    let stored = declaration.specs.iter().find(|spec| spec.name == arguments.index.name).unwrap_or(&arguments.index);
    interrupt::begin(Pace::AtOnce, |_| {
        "the index is unfinished, and `find` refuses it; run `braid index add` again to add the missing entries"
            .to_owned()
    });
    let check = rebuild_index(&db, tree, stored, false)?;
    mark(&db, tree, &mut declaration.specs.clone(), false, |spec| spec.name == arguments.index.name)?;
    db.close()?;
    let (is_without_entries, has_records) = (check.entries == 0, check.records > 0);
    if arguments.json {
        let mut line = serde_json::to_value(check)?;
        line["index"] = json!(arguments.index.name);
        print_line(line)?;
    } else {
        let (name, added) = (show_name(&arguments.index.name), show_counted(check.missing, "entry"));
        print_line(format_args!("{name}: {added} added, of {}", show_counted(check.records, "record")))?;
    }
    if is_without_entries && has_records {
        let field = &arguments.index.field;
        crate::output::note!("braid: no record of {} has a field {field}: is it mistyped?", show_name(tree));
    }
    Ok(OK)
}

fn mark(
    db: &Db,
    tree: &str,
    specs: &mut [IndexSpec],
    unfinished: bool,
    is_meant: impl Fn(&IndexSpec) -> bool,
) -> Result<()> {
    let mut changes = false;
    for spec in specs.iter_mut().filter(|spec| is_meant(spec) && spec.unfinished != unfinished) {
        spec.unfinished = unfinished;
        changes = true;
    }
    if changes {
        let mut batch = db.batch();
        store_specs(db, tree, specs, &mut batch)?;
        batch.commit_with(Durability::Sync)?;
    }
    Ok(())
}

fn rebuild(arguments: &RebuildArguments) -> Result<u8> {
    let tree = &arguments.tree;
    let db = match arguments.check {
        true => open_for_reading(&arguments.db, &ReadArguments { open: arguments.open.clone(), read_only: true })?,
        false => open_for_writing(&arguments.db, &arguments.open)?,
    };
    let mut specs = Indexes::stored_specs(&db, tree)?;
    let is_wanted = |spec: &IndexSpec| arguments.index.as_ref().is_none_or(|name| *name == spec.name);
    if !specs.iter().any(is_wanted) {
        let which =
            arguments.index.as_deref().map_or("no index".to_owned(), |name| format!("no index {}", show_name(name)));
        return Err(usage(format!("the tree {} has {which}; `braid index list` lists them", show_name(tree))));
    }
    let mut code = OK;
    interrupt::begin(Pace::AtOnce, |_| {
        "entries added or removed so far are correct; run the command again for the others".to_owned()
    });
    if !arguments.check {
        // While rounded and exact entries are mixed, `find` would miss records.
        let is_meant = |spec: &IndexSpec| is_wanted(spec) && !spec.exact;
        mark(&db, tree, &mut specs, true, is_meant)?;
        specs.iter_mut().filter(|spec| is_wanted(spec)).for_each(|spec| spec.exact = true);
    }
    for spec in specs.iter().filter(|spec| is_wanted(spec)) {
        let check = rebuild_index(&db, tree, spec, arguments.check)?;
        if arguments.check && check.missing + check.stale > 0 {
            code = NOT_FOUND;
        }
        if arguments.json {
            let mut line = serde_json::to_value(check)?;
            line["index"] = json!(spec.name);
            print_line(line)?;
        } else {
            let (missing, stale) = (show_count(check.missing), show_count(check.stale));
            let (entries, records) = (show_counted(check.entries, "entry"), show_counted(check.records, "record"));
            let (added, removed) = if arguments.check { ("missing", "stale") } else { ("added", "removed") };
            let name = show_name(&spec.name);
            print_line(format_args!("{name}: {entries} of {records}: {missing} {added}, {stale} {removed}"))?;
        }
    }
    if !arguments.check {
        mark(&db, tree, &mut specs, false, is_wanted)?;
    }
    db.close()?;
    Ok(code)
}

fn list(arguments: &ListArguments) -> Result<u8> {
    let db = open_for_reading(&arguments.db, &arguments.read)?;
    for (tree, specs) in all_indexes(&db)? {
        if arguments.tree.as_ref().is_some_and(|wanted| *wanted != tree) {
            continue;
        }
        for spec in specs {
            if arguments.json {
                print_line(json!({
                    "tree": tree, "name": spec.name, "field": spec.field, "lower": spec.lower, "exact_numbers": spec.exact,
                    "unfinished": spec.unfinished,
                }))?;
            } else {
                let note = match (spec.unfinished, spec.exact) {
                    (true, _) => "\tunfinished: finish it with `braid index add`",
                    (false, false) => "\tnumbers are rounded: run `braid index rebuild`",
                    (false, true) => "",
                };
                print_line(format_args!("{}\t{}{note}", show_name(&tree), spec.written()))?;
            }
        }
    }
    Ok(OK)
}
