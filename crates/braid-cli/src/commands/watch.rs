//! `braid watch`

use std::{
    collections::HashMap,
    io::Write,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use braiddb::{
    Db, TreeOptions,
    watch::{Change, ChangeSet, ChangedTree, Gap, MergeBase, MergeOperand, ResumeToken, WatchOptions},
};
use serde_json::{Map, Value, json};

use super::open::{NamedTree, key_notation, open_for_reading, open_keeping_log};
use crate::{
    arguments::WatchArguments,
    exit::{NOT_FOUND, OK, failure, usage},
    import::{stored_by_id, stored_key_notation},
    notation::{KeyNotation, key_to_json, parse_key},
    output::{Stdout, note},
    text_form::to_json,
};

pub fn watch(arguments: &WatchArguments) -> Result<u8> {
    let db = match arguments.keep {
        Some(bytes) => open_keeping_log(&arguments.db, &arguments.read, bytes)?,
        None => open_for_reading(&arguments.db, &arguments.read)?,
    };
    let mut notations = Notations { db: &db, asked: arguments.key_arguments.keys, known: HashMap::new() };
    let watched = db.watch(options(&db, arguments)?);
    let mut watcher = watched.map_err(|error| name_missing(error, arguments))?;
    let mut out = Stdout::new();
    let is_from_oldest = arguments.from.is_none() && arguments.after.is_none();
    let missing = watcher.token().sequence();
    if is_from_oldest && missing > 0 {
        let db = arguments.db.display();
        note!(
            "braid: begins after commit {missing}: the log of {db} does not go further back; `braid watch {db} --keep SIZE` \
             retains more from now on"
        );
        let gap = json!({"type": "gap", "from": 1, "up_to": missing});
        let token = watcher.token().to_string();
        writeln!(out, "{}", json!({"sequence": missing, "time_us": null, "changes": [gap], "token": token}))?;
    }
    let mut left = arguments.limit.unwrap_or(u64::MAX);
    while left > 0
        && let Some(set) = watcher.try_next()?
    {
        // `serde_json::to_writer` would hide that the reader is gone.
        writeln!(out, "{}", line(&set, &mut notations)?)?;
        left -= 1;
    }
    out.finish()?;
    Ok(OK)
}

fn name_missing(error: braiddb::Error, arguments: &WatchArguments) -> anyhow::Error {
    let braiddb::Error::WatchTooOld { after, floor } = error else { return error.into() };
    let (db, first) = (arguments.db.display(), after + 1);
    let missing = if first == floor { format!("commit {first} is") } else { format!("commits {first} to {floor} are") };
    failure(
        NOT_FOUND,
        format!(
            "{missing} not in the log of {db} any more: read the trees with `braid dump` or `braid export`, then continue with \
             --after and the commit that `dump` reports, or skip those commits with --after {floor}; `braid watch {db} --keep SIZE` \
             retains more of the log from now on"
        ),
    )
}

fn options(db: &Db, arguments: &WatchArguments) -> Result<WatchOptions> {
    // Read-only: also show unsynced commits of a killed process; nothing can revoke them meanwhile.
    let mut options = WatchOptions::new().from_oldest().unsynced(arguments.keep.is_none());
    if let Some(name) = &arguments.tree {
        options = match NamedTree::open(db, name)? {
            NamedTree::Plain(tree) => options.tree(&tree),
            NamedTree::Multi(tree) => options.multi_tree(&tree),
        };
    }
    if let Some(prefix) = &arguments.prefix {
        let notation = key_notation(db, arguments.tree.as_deref().unwrap_or_default(), arguments.key_arguments)?;
        options = options.prefix(parse_key(prefix, notation)?);
    }
    if let Some(text) = &arguments.from {
        let token: ResumeToken = text.parse().map_err(|error: braiddb::Error| match text.parse::<u64>() {
            Ok(_) => usage(format!("{text} is no resume token: `--after {text}` begins after commit {text}")),
            Err(_) => usage(error.to_string()),
        })?;
        options = options.resume(token);
    }
    Ok(arguments.after.map_or(options.clone(), |commit| options.after(commit)))
}

struct Notations<'a> {
    db: &'a Db,
    asked: Option<KeyNotation>,
    known: HashMap<u32, KeyNotation>,
}

impl Notations<'_> {
    fn of(&mut self, tree: Option<&ChangedTree>) -> Result<KeyNotation> {
        let (Some(tree), None) = (tree, self.asked) else { return Ok(self.asked.unwrap_or_default()) };
        if let Some(known) = self.known.get(&tree.id) {
            return Ok(*known);
        }
        let notation = match (stored_by_id(self.db, tree.id)?, &tree.name) {
            (Some(stored), _) => stored,
            (None, Some(name)) => stored_key_notation(self.db, name)?,
            (None, None) => KeyNotation::Text,
        };
        self.known.insert(tree.id, notation);
        Ok(notation)
    }
}

fn line(set: &ChangeSet, notations: &mut Notations<'_>) -> Result<Value> {
    let changes: Vec<Value> = set.changes.iter().map(|change| object(change, notations)).collect::<Result<_>>()?;
    let time_us = set.time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_micros() as u64);
    Ok(json!({
        "sequence": set.sequence, "time_us": time_us, "changes": changes, "token": set.token.to_string(),
    }))
}

fn object(change: &Change, notations: &mut Notations<'_>) -> Result<Value> {
    let notation = notations.of(change.tree())?;
    let key_of = |key: &[u8]| key_to_json(key, notation);
    let range_of = |start: &[u8], end: &Option<Vec<u8>>| -> Fields {
        vec![("start", key_of(start)), ("end", json!(end.as_deref().map(key_of)))]
    };
    let pair_of = |key: &[u8], value: &[u8]| -> Fields { vec![("key", key_of(key)), ("value", to_json(value))] };
    let (kind, fields) = match change {
        Change::Put { key, value, expires, .. } => ("put", with_expiry(pair_of(key, value), *expires)),
        Change::PutStream { key, stream, expires, .. } => {
            let mut value = Vec::new();
            stream.copy_to(&mut value)?;
            ("put", with_expiry(pair_of(key, &value), *expires))
        }
        Change::Delete { key, .. } => ("delete", vec![("key", key_of(key))]),
        Change::DeleteRange { start, end, .. } => ("delete_range", range_of(start, end)),
        Change::Merge { key, base, operands, .. } => {
            let mut fields = merge_fields(base, operands);
            fields.push(("key", key_of(key)));
            ("merge", fields)
        }
        Change::Add { key, value, .. } => ("add", pair_of(key, value)),
        Change::DeletePair { key, value, .. } => ("delete_pair", pair_of(key, value)),
        Change::CreateTree { multi, options, .. } => {
            let mut fields = option_fields(options);
            fields.insert(0, ("multi", json!(multi)));
            ("create_tree", fields)
        }
        Change::DropTree { .. } => ("drop_tree", Vec::new()),
        Change::SetTreeOptions { options, .. } => ("set_tree_options", option_fields(options)),
        Change::RenameTree { from, .. } => ("rename_tree", vec![("from", json!(from))]),
        Change::ApplicationCursor { cursor } => ("application_cursor", vec![("cursor", to_json(cursor))]),
        Change::Gap(Gap::Commits { up_to }) => ("gap", vec![("up_to", json!(up_to))]),
        Change::Gap(Gap::Range { start, end, .. }) => ("gap", range_of(start, end)),
        _ => ("unknown", Vec::new()),
    };
    let mut object = Map::new();
    object.insert("type".to_owned(), json!(kind));
    if let Some(tree) = change.tree() {
        object.insert("tree".to_owned(), name_of(tree));
    }
    object.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
    Ok(Value::Object(object))
}

type Fields = Vec<(&'static str, Value)>;

fn option_fields(options: &TreeOptions) -> Fields {
    let compression = options.compression.map(|compression| format!("{compression:?}").to_lowercase());
    vec![
        ("compression", json!(compression)),
        ("blob_threshold", json!(options.blob_threshold)),
        ("ttl_us", json!(options.ttl.map(|ttl| ttl.as_micros() as u64))),
        ("codec", json!(options.codec.map(|codec| codec.to_string()))),
    ]
}

fn with_expiry(mut fields: Fields, expires: Option<SystemTime>) -> Fields {
    let since = expires.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    fields.extend(since.map(|since| ("expires_us", json!(since.as_micros() as u64))));
    fields
}

fn merge_fields(base: &MergeBase, operands: &[MergeOperand]) -> Fields {
    let operand = |of: &MergeOperand| json!({"function": of.function, "operand": to_json(&of.operand)});
    let mut fields = vec![("operands", operands.iter().map(operand).collect())];
    match base {
        MergeBase::Stored => {}
        MergeBase::Nothing => fields.push(("base", Value::Null)),
        MergeBase::Value(value) => fields.push(("base", to_json(value))),
    }
    fields
}

fn name_of(tree: &ChangedTree) -> Value {
    tree.name.as_deref().map_or_else(|| json!(tree.id), |name| json!(name))
}
