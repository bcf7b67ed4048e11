//! The events of a change stream, as text.
//!
//! Each event is a line `event`, a line `data` with JSON, which has no line breaks, and an empty
//! line. Keys and values have the notation of scans.

use crate::{json::write_bytes, problem::Problem};
use braiddb::{
    TreeOptions, Version,
    watch::{Change, ChangeSet, ChangedTree, Gap, MergeBase, MergeOperand},
};
use braiddb_typed::{BEYOND_RECORDS, text};
use serde_json::{Value, json};
use std::{
    io::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

/// Maximum bytes of a value in an event. Longer ones are replaced by their lengths.
const VALUE_BYTES_MAX: usize = 256 << 10;

/// How keys are written.
#[derive(Clone, Copy, Debug)]
pub enum Notation {
    Bytes,
    /// As JSON arrays; only whole elements match the prefix.
    Tuples {
        prefix_len: usize,
    },
}

impl Notation {
    /// Returns true unless the key is an entry of an index, or a text of the prefix that goes on with
    /// a zero.
    fn has(self, key: &[u8]) -> bool {
        match self {
            Notation::Bytes => true,
            Notation::Tuples { prefix_len } => key.get(prefix_len) != Some(&BEYOND_RECORDS),
        }
    }

    fn write(self, to: &mut Vec<u8>, key: &[u8]) {
        let tuple = match self {
            Notation::Bytes => None,
            Notation::Tuples { .. } => text::to_json(key),
        };
        match tuple {
            Some(tuple) => write_json(to, &tuple),
            None => write_bytes(to, key),
        }
    }
}

fn write_json(to: &mut Vec<u8>, value: &Value) {
    to.extend_from_slice(value.to_string().as_bytes());
}

/// Returns the text of a version without the quotes of an `ETag`.
fn id_of(version: Version) -> String {
    version.etag().trim_matches('"').to_owned()
}

/// Writes a change. Returns false if the notation leaves it out.
pub fn write_change(to: &mut Vec<u8>, change: &Change, version: Version, notation: Notation) -> bool {
    let key = match change {
        Change::Put { key, .. }
        | Change::PutStream { key, .. }
        | Change::Delete { key, .. }
        | Change::Merge { key, .. }
        | Change::Add { key, .. }
        | Change::DeletePair { key, .. } => Some(key),
        _ => None,
    };
    if key.is_some_and(|key| !notation.has(key)) {
        return false;
    }
    to.extend_from_slice(b"event: change\ndata: {\"type\":");
    write_json(to, &json!(type_of(change)));
    let _ = write!(to, ",\"version\":\"{}\"", id_of(version));
    if let Some(tree) = change.tree() {
        to.extend_from_slice(b",\"tree\":");
        write_json(to, &name_of(tree));
    }
    if let Some(key) = key {
        to.extend_from_slice(b",\"key\":");
        notation.write(to, key);
    }
    write_details(to, change, notation);
    to.extend_from_slice(b"}\n\n");
    true
}

fn type_of(change: &Change) -> &'static str {
    match change {
        Change::Put { .. } | Change::PutStream { .. } => "put",
        Change::Delete { .. } => "delete",
        Change::DeleteRange { .. } => "delete_range",
        Change::Merge { .. } => "merge",
        Change::Add { .. } => "add",
        Change::DeletePair { .. } => "delete_pair",
        Change::CreateTree { .. } => "create_tree",
        Change::DropTree { .. } => "drop_tree",
        Change::SetTreeOptions { .. } => "set_tree_options",
        Change::RenameTree { .. } => "rename_tree",
        Change::ApplicationCursor { .. } => "application_cursor",
        Change::Gap(_) => "gap",
        _ => "unknown",
    }
}

fn name_of(tree: &ChangedTree) -> Value {
    tree.name.as_deref().map_or_else(|| json!(tree.id), |name| json!(name))
}

/// Writes the fields of a change besides type, tree and key.
fn write_details(to: &mut Vec<u8>, change: &Change, notation: Notation) {
    match change {
        Change::Put { value, expires, .. } => {
            write_value(to, value);
            write_expiry(to, *expires);
        }
        Change::PutStream { stream, expires, .. } => {
            let _ = write!(to, ",\"bytes\":{}", stream.len());
            write_expiry(to, *expires);
        }
        Change::Add { value, .. } | Change::DeletePair { value, .. } => write_value(to, value),
        Change::DeleteRange { start, end, .. } | Change::Gap(Gap::Range { start, end, .. }) => {
            to.extend_from_slice(b",\"start\":");
            notation.write(to, start);
            to.extend_from_slice(b",\"end\":");
            match end {
                Some(end) => notation.write(to, end),
                None => to.extend_from_slice(b"null"),
            }
        }
        Change::Merge { base, operands, .. } => write_merge(to, base, operands),
        Change::CreateTree { multi, options, .. } => {
            let _ = write!(to, ",\"kind\":\"{}\"", if *multi { "multi" } else { "single" });
            write_options(to, options);
        }
        Change::SetTreeOptions { options, .. } => write_options(to, options),
        Change::RenameTree { from, .. } => {
            let _ = write!(to, ",\"from\":{}", json!(from));
        }
        Change::ApplicationCursor { cursor } => {
            to.extend_from_slice(b",\"cursor\":");
            write_bytes(to, cursor);
        }
        _ => {}
    }
}

fn write_value(to: &mut Vec<u8>, value: &[u8]) {
    if value.len() > VALUE_BYTES_MAX {
        let _ = write!(to, ",\"bytes\":{}", value.len());
        return;
    }
    to.extend_from_slice(b",\"value\":");
    write_bytes(to, value);
}

fn write_expiry(to: &mut Vec<u8>, expires: Option<SystemTime>) {
    if let Some(since) = expires.and_then(|time| time.duration_since(UNIX_EPOCH).ok()) {
        let _ = write!(to, ",\"expires_us\":{}", since.as_micros());
    }
}

fn write_merge(to: &mut Vec<u8>, base: &MergeBase, operands: &[MergeOperand]) {
    match base {
        MergeBase::Stored => {}
        MergeBase::Nothing => to.extend_from_slice(b",\"base\":null"),
        MergeBase::Value(value) => {
            to.extend_from_slice(b",\"base\":");
            write_bytes(to, value);
        }
    }
    to.extend_from_slice(b",\"operands\":[");
    for (at, operand) in operands.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(to, "{comma}{{\"function\":{},\"operand\":", json!(operand.function));
        write_bytes(to, &operand.operand);
        to.push(b'}');
    }
    to.push(b']');
}

fn write_options(to: &mut Vec<u8>, options: &TreeOptions) {
    let codec = options.codec.map(|codec| codec.to_string());
    let _ = write!(to, ",\"ttl\":{},\"codec\":{}", json!(options.ttl.map(|ttl| ttl.as_secs_f64())), json!(codec));
}

/// Writes the end of a commit.
pub fn write_commit(to: &mut Vec<u8>, commit: &ChangeSet, changes: u64) {
    let id = id_of(commit.version);
    let since = commit.time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let time_us = json!(since.map(|since| since.as_micros() as u64));
    let data = format!("{{\"version\":\"{id}\",\"time_us\":{time_us},\"changes\":{changes}}}");
    let _ = write!(to, "event: commit\nid: {id}\ndata: {data}\n\n");
}

/// Writes a position without an event: clients keep it for `Last-Event-ID`.
pub fn write_position(to: &mut Vec<u8>, version: Version) {
    let _ = write!(to, "id: {}\n\n", id_of(version));
}

/// Writes an error. The stream ends after it.
pub fn write_problem(to: &mut Vec<u8>, problem: &Problem) {
    let _ = write!(to, "event: problem\ndata: {}\n\n", problem.to_json());
}
