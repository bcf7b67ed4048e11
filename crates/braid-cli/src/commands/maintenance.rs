//! The database as a whole: `create`, `trees`, `compact`, `inspect`.

use std::io::Write;

use anyhow::Result;
use braiddb::{
    OlderFile,
    inspect::{InspectOptions, inspect_file},
};
use serde_json::{Value, json};

use super::open::{open_for_reading, open_for_writing};
use crate::{
    arguments::{
        CompactArguments, CreateArguments, InspectArguments, OpenArguments, ReadArguments, TreesArguments,
        UpgradeArguments,
    },
    exit::{NOT_FOUND, OK, SYSTEM, failure, usage},
    notation::{show_bytes, show_count, show_name},
    output::{Stdout, print_line},
};

/// `braid create`
pub fn create(arguments: &CreateArguments) -> Result<u8> {
    let used = std::fs::read_dir(&arguments.db).is_ok_and(|mut entries| entries.next().is_some());
    if used {
        return Err(usage(format!("{} exists already, and is not empty", arguments.db.display())));
    }
    open_for_writing(&arguments.db, &OpenArguments::default(), true)?.close()?;
    Ok(OK)
}

/// `braid trees`
pub fn trees(arguments: &TreesArguments) -> Result<u8> {
    let db = open_for_reading(&arguments.db, &arguments.read)?;
    let mut out = Stdout::new();
    for tree in db.trees()? {
        if arguments.json {
            let compression = tree.compression.map(|compression| format!("{compression:?}").to_lowercase());
            let line = json!({"name": tree.name, "id": tree.id, "multi": tree.multi, "compression": compression});
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{}{}", show_name(&tree.name), if tree.multi { "\tmany values to a key" } else { "" })?;
        }
    }
    out.finish()?;
    Ok(OK)
}

/// `braid compact`
pub fn compact(arguments: &CompactArguments) -> Result<u8> {
    let db = open_for_writing(&arguments.db, &arguments.open, false)?;
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

/// `braid upgrade`
pub fn upgrade(arguments: &UpgradeArguments) -> Result<u8> {
    if arguments.check {
        return list_older_files(arguments);
    }
    let db = open_for_writing(&arguments.db, &arguments.open, false)?;
    let report = db.upgrade()?;
    db.close()?;
    // Files that the open itself has rewritten are not among them.
    let rewritten = report.before - report.left.len();
    let mut out = Stdout::new();
    if arguments.json {
        writeln!(out, "{}", json!({"rewritten": rewritten, "left": older_json(&report.left)}))?;
    } else {
        writeln!(out, "{} files of earlier versions rewritten", show_count(rewritten as u64))?;
        for file in &report.left {
            writeln!(out, "left: {}, version {}", file.name, file.version)?;
        }
    }
    out.finish()?;
    Ok(if report.left.is_empty() { OK } else { NOT_FOUND })
}

/// `braid upgrade --check`
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
        writeln!(out, "{} files of earlier versions", show_count(older.len() as u64))?;
    }
    out.finish()?;
    Ok(OK)
}

fn older_json(files: &[OlderFile]) -> Vec<Value> {
    files.iter().map(|file| json!({"name": file.name, "version": file.version})).collect()
}

/// `braid inspect`
pub fn inspect(arguments: &InspectArguments) -> Result<u8> {
    if arguments.file.is_dir() {
        return Err(usage(format!("{} is a directory: name one of its files", arguments.file.display())));
    }
    if !arguments.file.exists() {
        return Err(failure(SYSTEM, format!("there is no file {}", arguments.file.display())));
    }
    let mut options = InspectOptions::default();
    options.rows_max = arguments.rows.unwrap_or(options.rows_max);
    options.bytes_max = arguments.bytes.unwrap_or(options.bytes_max);
    let mut out = Stdout::new();
    let result = inspect_file(&arguments.file, &mut out, options);
    // The damage of a file comes before that of the output.
    let finished = out.finish();
    result?;
    finished?;
    Ok(OK)
}
