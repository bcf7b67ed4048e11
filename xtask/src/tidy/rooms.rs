//! Checks the order of the rooms in the layers that have some.
//!
//! A room is a folder of a layer in [`HOUSES`]. It imports only rooms before it in the list; tests
//! may import anything.
//!
//! A method is called without the name of its module, so methods of a shared type would hide calls
//! of higher rooms. So the types in [`OWNED`] have methods in their own room only.

use super::Finding;
use super::run::ENGINE;
use super::source::Source;
use super::tokens::{self, PathUse};
use std::collections::BTreeMap;

/// A layer with rooms.
struct House {
    layer: &'static str,
    /// From the bottom up.
    rooms: &'static [&'static str],
    /// The files beside the rooms, if only these may lie there. Rooms of such a layer import nothing
    /// through its root, except from these files.
    root_files: Option<&'static [&'static str]>,
}

const HOUSES: [House; 2] = [
    House {
        layer: "db",
        rooms: &[
            "record",
            "files",
            "engine",
            "read",
            "write",
            "maintenance",
            "open",
            "handles",
            "load",
            "watch",
            "export",
        ],
        root_files: None,
    },
    House { layer: "platform", rooms: &["os", "sync", "io"], root_files: Some(&["batch", "runtime", "vfs"]) },
];

/// Maximum files of production code in a folder of a room.
const FILES_MAX: usize = 15;

/// Layer, room and type whose `impl` blocks lie in the room only.
const OWNED: [(&str, &str, &str); 1] = [("db", "engine", "Engine")];

/// Returns the house of a file, and the file's path below it.
fn house_of(path: &str) -> Option<(&'static House, &str)> {
    let inside = path.strip_prefix(ENGINE)?;
    HOUSES.iter().find_map(|house| Some((house, inside.strip_prefix(house.layer)?.strip_prefix('/')?)))
}

fn below<'a>(layer: &str, source: &Source, path: &'a PathUse) -> Option<&'a [String]> {
    let names = path.names.as_slice();
    if names.first()? == "crate" {
        return (names.get(1)? == layer).then_some(&names[2..]);
    }
    let steps = names.iter().take_while(|name| matches!(name.as_str(), "super" | "self")).count();
    let ups = names[..steps].iter().filter(|name| *name == "super").count();
    let depth = source.module_folder().strip_prefix(ENGINE)?.split('/').count()
        + tokens::inline_module_depth(&source.tokens, path.token);
    (ups > 0 && ups + 1 == depth).then_some(&names[steps..])
}

/// Returns an error message if the room at index `place` must not import `target`.
fn complaint(house: &House, place: usize, target: &str) -> Option<String> {
    let (layer, room) = (house.layer, house.rooms[place]);
    match (house.rooms.iter().position(|name| *name == target), house.root_files) {
        (Some(other), _) if other > place => {
            Some(format!("`{room}` must not import `{target}`, a room above it: move the code, or pass it in"))
        }
        (None, Some(files)) if !files.contains(&target) => Some(format!(
            "`{layer}::{target}` goes through the root of `{layer}`: import it from the room that defines it"
        )),
        // Without a list of files, visibility (`pub(in crate::db)`) and items of the root are allowed.
        _ => None,
    }
}

/// Returns the lines of `impl` blocks of the type, and of traits for it.
fn impl_lines(source: &Source, type_name: &str) -> Vec<usize> {
    let tokens = &source.tokens;
    let begins_item = |at: usize| at == 0 || matches!(tokens::text(tokens, at - 1), "}" | "{" | ";" | "]" | "unsafe");
    let is_of_type = |at: &usize| {
        let texts = tokens[*at..].iter().map(|token| token.text.as_str());
        let header: Vec<&str> = texts.take_while(|text| !matches!(*text, "{" | ";" | "where")).collect();
        // `for<'a>` is not the `for` of a trait.
        let for_at = (0..header.len()).rev().find(|&at| header[at] == "for" && header.get(at + 1) != Some(&"<"));
        header[for_at.unwrap_or(0)..].contains(&type_name)
    };
    let items = (0..tokens.len()).filter(|&at| tokens::text(tokens, at) == "impl" && begins_item(at));
    items.filter(is_of_type).map(|at| tokens[at].line).collect()
}

pub fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut files: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test) {
        let Some((house, inside)) = house_of(&source.path) else { continue };
        let finding = |line, message| Finding { path: source.path.clone(), line, rule: "rooms", message };
        let Some((room, _)) = inside.split_once('/') else {
            let stem = inside.trim_end_matches(".rs");
            if stem != "mod" && house.root_files.is_some_and(|files| !files.contains(&stem)) {
                findings.push(finding(1, format!("a file beside the rooms: use one of {}", house.rooms.join(", "))));
            }
            continue;
        };
        let Some(place) = house.rooms.iter().position(|name| *name == room) else {
            findings.push(finding(1, format!("`{room}` is no room: use one of {}", house.rooms.join(", "))));
            continue;
        };
        let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        *files.entry(folder).or_insert(0) += usize::from(!source.path.ends_with("/mod.rs"));
        for (_, owner, name) in OWNED.iter().filter(|(layer, owner, _)| *layer == house.layer && *owner != room) {
            for line in impl_lines(source, name).into_iter().filter(|line| !source.is_test_line(*line)) {
                let message = format!("`impl {name}` outside `{owner}/`: make its methods functions of this module");
                findings.push(finding(line, message));
            }
        }
        for path in tokens::paths(&source.tokens).iter().filter(|path| !source.is_test_line(path.line)) {
            let Some(target) = below(house.layer, source, path).and_then(|names| names.first()) else { continue };
            let Some(message) = complaint(house, place, target) else { continue };
            findings.push(finding(path.line, message));
        }
    }
    for (folder, count) in files.into_iter().filter(|(_, count)| *count > FILES_MAX) {
        let message = format!("{count} files, {FILES_MAX} at most: make a room of some");
        findings.push(Finding { path: folder.to_owned(), line: 1, rule: "rooms", message });
    }
    findings
}
