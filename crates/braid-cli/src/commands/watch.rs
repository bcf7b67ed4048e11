//! `braid watch`

use std::{
    io::{BufWriter, Write},
    time::UNIX_EPOCH,
};

use anyhow::Result;
use braiddb::{Change, ChangeSet, ChangedTree, Gap, MergeBase, ResumeToken, WatchOptions};
use serde_json::{Map, Value, json};

use super::open::{NamedTree, ReadHandle, open_for_reading, open_keeping_log};
use crate::{
    arguments::WatchArguments,
    exit::{OK, usage},
    notation::{KeyNotation, parse_key, show_key, to_hex},
};

/// Prints what was committed, as far as the log tells.
pub fn watch(arguments: &WatchArguments) -> Result<u8> {
    let db = match arguments.keep {
        Some(bytes) => open_keeping_log(&arguments.db, &arguments.read, bytes)?,
        None => open_for_reading(&arguments.db, &arguments.read)?,
    };
    let notation = arguments.key_arguments.keys.unwrap_or_default();
    let mut watcher = db.watch(options(&db, arguments, notation)?)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut left = arguments.limit.unwrap_or(u64::MAX);
    while left > 0
        && let Some(set) = watcher.try_next()?
    {
        serde_json::to_writer(&mut out, &line(&set, notation)?)?;
        out.write_all(b"\n")?;
        left -= 1;
    }
    out.flush()?;
    Ok(OK)
}

fn options(db: &ReadHandle, arguments: &WatchArguments, notation: KeyNotation) -> Result<WatchOptions> {
    // Read-only, what a killed process has left is shown as it is read: nothing will become of it meanwhile.
    let mut options = WatchOptions::new().from_oldest().unsynced(arguments.read.read_only);
    if let Some(name) = &arguments.tree {
        options = match NamedTree::open(db, name)? {
            NamedTree::Plain(tree) => options.tree(&tree),
            NamedTree::Multi(tree) => options.multi_tree(&tree),
        };
    }
    if let Some(prefix) = &arguments.prefix {
        options = options.prefix(parse_key(prefix, notation)?);
    }
    if let Some(text) = &arguments.from {
        let token: ResumeToken = text.parse().map_err(|error: braiddb::Error| usage(error.to_string()))?;
        options = options.resume(token);
    }
    Ok(arguments.after.map_or(options.clone(), |commit| options.after(commit)))
}

/// A commit, as it is printed.
fn line(set: &ChangeSet, notation: KeyNotation) -> Result<Value> {
    let changes: Vec<Value> = set.changes.iter().map(|change| object(change, notation)).collect::<Result<_>>()?;
    let time_us = set.time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_micros() as u64);
    Ok(json!({
        "sequence": set.sequence, "time_us": time_us, "changes": changes, "token": set.token.to_string(),
    }))
}

/// A change, as it is printed.
fn object(change: &Change, notation: KeyNotation) -> Result<Value> {
    let key_of = |key: &[u8]| if notation == KeyNotation::Text { text(key) } else { json!(show_key(key, notation)) };
    let end_of = |end: &Option<Vec<u8>>| end.as_deref().map(key_of);
    let mut object = Map::new();
    let mut set = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
    if let Some(tree) = change.tree() {
        set("tree", name_of(tree));
    }
    let expiry = |expires: &Option<std::time::SystemTime>| {
        let since = expires.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        since.map(|since| json!(since.as_micros() as u64))
    };
    let kind = match change {
        Change::Put { key, value, expires, .. } => {
            set("key", key_of(key));
            set("value", text(value));
            expiry(expires).into_iter().for_each(|us| set("expires_us", us));
            "put"
        }
        Change::PutStream { key, stream, expires, .. } => {
            set("key", key_of(key));
            let mut value = Vec::new();
            stream.copy_to(&mut value)?;
            set("value", text(&value));
            expiry(expires).into_iter().for_each(|us| set("expires_us", us));
            "put"
        }
        Change::Delete { key, .. } => {
            set("key", key_of(key));
            "delete"
        }
        Change::DeleteRange { start, end, .. } => {
            set("start", key_of(start));
            set("end", json!(end_of(end)));
            "delete_range"
        }
        Change::Merge { key, base, operands, .. } => {
            set("key", key_of(key));
            match base {
                MergeBase::Stored => {}
                MergeBase::Nothing => set("base", Value::Null),
                MergeBase::Value(value) => set("base", text(value)),
            }
            let operand = |of: &braiddb::MergeOperand| json!({"function": of.function, "operand": text(&of.operand)});
            set("operands", operands.iter().map(operand).collect());
            "merge"
        }
        Change::Add { key, value, .. } => {
            set("key", key_of(key));
            set("value", text(value));
            "add"
        }
        Change::Remove { key, value, .. } => {
            set("key", key_of(key));
            set("value", text(value));
            "remove"
        }
        Change::RemoveAll { key, .. } => {
            set("key", key_of(key));
            "remove_all"
        }
        Change::CreateTree { multi, .. } => {
            set("multi", json!(multi));
            "create_tree"
        }
        Change::DropTree { .. } => "drop_tree",
        Change::RenameTree { from, .. } => {
            set("from", json!(from));
            "rename_tree"
        }
        Change::ApplicationCursor { cursor } => {
            set("cursor", text(cursor));
            "application_cursor"
        }
        Change::Gap(Gap::Commits { up_to }) => {
            set("up_to", json!(up_to));
            "gap"
        }
        Change::Gap(Gap::Range { start, end, .. }) => {
            set("start", key_of(start));
            set("end", json!(end_of(end)));
            "gap"
        }
        _ => "unknown",
    };
    set("type", json!(kind));
    Ok(Value::Object(object))
}

/// The tree's name, or its number if the name is not known any more.
fn name_of(tree: &ChangedTree) -> Value {
    tree.name.as_deref().map_or_else(|| json!(tree.id), |name| json!(name))
}

/// Bytes as text; what is no text as "hex:..".
fn text(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(|_| json!(format!("hex:{}", to_hex(bytes))), |text| json!(text))
}
