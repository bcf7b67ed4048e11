//! Checks the order of the rooms in the engine's top layer.
//!
//! A room is a folder of `db/`. It imports only rooms before it in [`ROOMS`], and nothing through
//! `db` itself. Tests may import anything. [`KNOWN`] lists the present violations; a removed one
//! must leave the list.

use super::Finding;
use super::run::ENGINE;
use super::source::Source;
use super::tokens::{self, PathUse};
use std::collections::BTreeMap;

/// From the bottom up.
const ROOMS: [&str; 11] =
    ["record", "files", "engine", "read", "write", "maintenance", "open", "handles", "load", "watch", "export"];

/// Maximum files of production code in a folder of a room.
const FILES_MAX: usize = 15;

/// Files and the higher rooms that they import.
const KNOWN: [(&str, &str); 3] = [
    ("db/handles/database.rs", "export"),
    ("db/handles/ranges.rs", "load"),
    ("db/maintenance/verify/whole.rs", "export"),
];

/// Returns the room of a file of the top layer.
fn room_of(path: &str) -> Option<&str> {
    let (room, _) = path.strip_prefix(ENGINE)?.strip_prefix("db/")?.split_once('/')?;
    Some(room)
}

/// Returns the names of a path below `db`, if it leads there.
fn below_db<'a>(source: &Source, path: &'a PathUse) -> Option<&'a [String]> {
    let names = path.names.as_slice();
    if names.first()? == "crate" {
        return (names.get(1)? == "db").then_some(&names[2..]);
    }
    let steps = names.iter().take_while(|name| matches!(name.as_str(), "super" | "self")).count();
    let ups = names[..steps].iter().filter(|name| *name == "super").count();
    let depth = source.module_folder().strip_prefix(ENGINE)?.split('/').count()
        + tokens::inline_module_depth(&source.tokens, path.token);
    (ups > 0 && ups + 1 == depth).then_some(&names[steps..])
}

/// Checks the imports between rooms and the number of files in each.
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut files: BTreeMap<&str, usize> = BTreeMap::new();
    let mut known: Vec<(&str, &str)> = KNOWN.to_vec();
    for source in sources.iter().filter(|source| !source.is_test) {
        let Some(room) = room_of(&source.path) else { continue };
        let finding = |line, message| Finding { path: source.path.clone(), line, rule: "rooms", message };
        let Some(place) = ROOMS.iter().position(|name| *name == room) else {
            findings.push(finding(1, format!("`{room}` is no room: use one of {}", ROOMS.join(", "))));
            continue;
        };
        let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        *files.entry(folder).or_insert(0) += usize::from(!source.path.ends_with("/mod.rs"));
        for path in tokens::paths(&source.tokens).iter().filter(|path| !source.is_test_line(path.line)) {
            let Some(target) = below_db(source, path).and_then(|names| names.first()) else { continue };
            let above = ROOMS.iter().position(|name| name == target).is_none_or(|other| other > place);
            // Visibility (`pub(in crate::db)`) and items of the root name no room.
            if !above || !ROOMS.contains(&target.as_str()) {
                continue;
            }
            let inside = source.path.strip_prefix(ENGINE).unwrap_or(&source.path);
            if KNOWN.contains(&(inside, target)) {
                known.retain(|entry| *entry != (inside, target.as_str()));
            } else {
                let message =
                    format!("`{room}` must not import `{target}`, a room above it: move the code, or pass it in");
                findings.push(finding(path.line, message));
            }
        }
    }
    for (folder, count) in files.into_iter().filter(|(_, count)| *count > FILES_MAX) {
        let message = format!("{count} files, {FILES_MAX} at most: make a room of some");
        findings.push(Finding { path: folder.to_owned(), line: 1, rule: "rooms", message });
    }
    // Samples in the checks' own tests lack these files.
    for (file, room) in known.into_iter().filter(|(file, _)| sources.iter().any(|source| source.path.ends_with(file))) {
        let message = format!("it no longer imports `{room}`: take it off KNOWN in xtask");
        findings.push(Finding { path: format!("{ENGINE}{file}"), line: 1, rule: "rooms", message });
    }
    findings
}
