//! Commands for whole databases: `create`, `trees`, `compact`, `upgrade`, `inspect`.

use std::{io::Write, time::Duration};

use anyhow::Result;
use braiddb::{
    Compression, Db,
    inspect::{InspectOptions, inspect_file},
    stats::TreeInfo,
    verify::OlderFile,
};
use serde_json::{Value, json};

use super::{
    open::{NamedTree, create_database, open_for_reading, open_for_writing},
    tree_names::refuse_own_tree,
};
use crate::{
    arguments::{
        CompactArguments, CreateArguments, InspectArguments, OpenArguments, ReadArguments, TreesArguments,
        UpgradeArguments,
    },
    exit::{NOT_FOUND, OK, SYSTEM, failure, usage},
    interrupt::{self, Pace},
    notation::{parse_ttl, show_bytes, show_counted, show_name},
    output::{Stdout, print_line},
};

pub fn create(arguments: &CreateArguments) -> Result<u8> {
    let used = std::fs::read_dir(&arguments.db).is_ok_and(|mut entries| entries.next().is_some());
    if used {
        return Err(usage(format!(
            "{} exists and is not empty: give a new or empty directory",
            arguments.db.display()
        )));
    }
    create_database(&arguments.db, &OpenArguments::default())?.close()?;
    if arguments.json {
        print_line(json!({"created": arguments.db.display().to_string()}))?;
    }
    Ok(OK)
}

pub fn trees(arguments: &TreesArguments) -> Result<u8> {
    let mut out = Stdout::new();
    if let Some(name) = &arguments.set {
        refuse_own_tree(name)?;
        let db = open_for_writing(&arguments.db, &arguments.read.open)?;
        set_options(&db, name, arguments)?;
        for tree in db.trees()?.iter().filter(|tree| tree.name == *name) {
            writeln!(out, "{}", tree_line(tree, arguments.json))?;
        }
        db.close()?;
        out.finish()?;
        return Ok(OK);
    }
    for tree in &open_for_reading(&arguments.db, &arguments.read)?.trees()? {
        writeln!(out, "{}", tree_line(tree, arguments.json))?;
    }
    out.finish()?;
    Ok(OK)
}

pub fn tree_line(tree: &TreeInfo, as_json: bool) -> String {
    let compression = tree.compression.map(|compression| format!("{compression:?}").to_lowercase());
    if as_json {
        let ttl_us = tree.ttl.map(|ttl| ttl.as_micros() as u64);
        let line = json!({
            "name": tree.name, "id": tree.id, "multi": tree.multi, "compression": compression,
            "blob_threshold": tree.blob_threshold, "ttl_us": ttl_us,
            "codec": tree.codec.map(|codec| codec.to_string()),
        });
        return line.to_string();
    }
    let mut line = show_name(&tree.name).to_string();
    if tree.multi {
        line.push_str("\tmany values to a key");
    }
    if let Some(codec) = tree.codec {
        line.push_str(&format!("\tcodec {codec}"));
    }
    if let Some(ttl) = tree.ttl {
        line.push_str(&format!("\tttl {ttl:?}"));
    }
    if let Some(bytes) = tree.blob_threshold {
        line.push_str(&format!("\tblob threshold {bytes}"));
    }
    if let Some(compression) = compression {
        line.push_str(&format!("\tcompression {compression}"));
    }
    line
}

fn set_options(db: &Db, name: &str, arguments: &TreesArguments) -> Result<()> {
    let NamedTree::Plain(tree) = NamedTree::open(db, name)? else {
        return Err(usage(format!("the tree {name} is a multi-value tree, which has no options of its own")));
    };
    let mut options = tree.options();
    if let Some(text) = &arguments.ttl {
        options.ttl = match text.as_str() {
            "none" => None,
            text => {
                let seconds = parse_ttl(text).map_err(|why| usage(format!("--ttl {why}, or none")))?;
                Some(Duration::from_secs(seconds))
            }
        };
    }
    if let Some(text) = &arguments.blob_threshold {
        options.blob_threshold = match text.as_str() {
            "default" => None,
            text => {
                let bytes = text.parse().ok().filter(|bytes| *bytes > 0);
                Some(bytes.ok_or_else(|| {
                    usage(format!("--blob-threshold {text}: give a number of bytes, at least 1, or default"))
                })?)
            }
        };
    }
    if let Some(text) = &arguments.compression {
        options.compression = match text.as_str() {
            "default" => None,
            "none" => Some(Compression::None),
            "lz4" => Some(Compression::Lz4),
            "zstd" => Some(Compression::Zstd),
            text => return Err(usage(format!("--compression {text}: give none, lz4, zstd or default"))),
        };
    }
    if let Some(text) = &arguments.codec {
        let codec = text.parse().map_err(|error| usage(format!("--codec {text}: {error}")))?;
        if let Some(stored) = options.codec.filter(|stored| *stored != codec) {
            return Err(usage(format!(
                "the tree {} has the codec {stored}, which stays: to declare another one, export the tree, change \
                 `codec` in the first line, and import it with --tree under another name",
                show_name(name)
            )));
        }
        options.codec = Some(codec);
    }
    tree.set_options(options)?;
    Ok(())
}

pub fn compact(arguments: &CompactArguments) -> Result<u8> {
    let db = open_for_writing(&arguments.db, &arguments.open)?;
    interrupt::begin(Pace::AtOnce, |_| {
        "the database is intact, and finished merges stay; run the command again for the others".to_owned()
    });
    let before = db.stats().disk_bytes;
    db.compact()?;
    let after = db.stats().disk_bytes;
    db.close()?;
    if arguments.json {
        print_line(json!({"bytes_before": before, "bytes_after": after}))?;
    } else {
        print_line(format_args!("{} before, {} after", show_bytes(before), show_bytes(after)))?;
    }
    Ok(OK)
}

pub fn upgrade(arguments: &UpgradeArguments) -> Result<u8> {
    if arguments.check {
        return list_older_files(arguments);
    }
    let db = open_for_writing(&arguments.db, &arguments.open)?;
    interrupt::begin(Pace::AtOnce, |_| {
        "the database is intact, and rewritten files stay; run the command again for the others".to_owned()
    });
    let report = db.upgrade()?;
    db.close()?;
    let rewritten = report.before - report.left.len();
    let mut out = Stdout::new();
    if arguments.json {
        writeln!(out, "{}", json!({"rewritten": rewritten, "left": older_json(&report.left)}))?;
    } else {
        writeln!(out, "{} of earlier versions rewritten", show_counted(rewritten as u64, "file"))?;
        for file in &report.left {
            writeln!(out, "left: {}, version {}", file.name, file.version)?;
        }
    }
    out.finish()?;
    Ok(if report.left.is_empty() { OK } else { NOT_FOUND })
}

fn list_older_files(arguments: &UpgradeArguments) -> Result<u8> {
    let read = ReadArguments { open: arguments.open.clone(), read_only: true };
    let older = open_for_reading(&arguments.db, &read)?.older_files()?;
    let mut out = Stdout::new();
    if arguments.json {
        writeln!(out, "{}", json!({"older": older_json(&older)}))?;
    } else {
        for file in &older {
            writeln!(out, "{}\tversion {}", file.name, file.version)?;
        }
        writeln!(out, "{} of earlier versions", show_counted(older.len() as u64, "file"))?;
    }
    out.finish()?;
    Ok(OK)
}

fn older_json(files: &[OlderFile]) -> Vec<Value> {
    files.iter().map(|file| json!({"name": file.name, "version": file.version})).collect()
}

pub fn inspect(arguments: &InspectArguments) -> Result<u8> {
    if arguments.file.is_dir() {
        return Err(usage(format!("{} is a directory: name a file in it", arguments.file.display())));
    }
    if !arguments.file.exists() {
        return Err(failure(SYSTEM, format!("there is no file {}", arguments.file.display())));
    }
    let mut options = InspectOptions::default();
    options.rows_max = arguments.rows.unwrap_or(options.rows_max);
    options.bytes_max = arguments.bytes.unwrap_or(options.bytes_max);
    let mut out = Stdout::new();
    let result = inspect_file(&arguments.file, &mut out, options);
    let finished = out.finish();
    result?;
    finished?;
    Ok(OK)
}
