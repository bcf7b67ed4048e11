//! Checks the order of the engine's layers.
//!
//! A layer is a folder of the engine's `src`; `lib.rs` and `options.rs` form the top one.
//! [`LAYERS`] lists the allowed imports. Imports through the crate root (`crate::Db`) are errors.

use super::Finding;
use super::run::ENGINE;
use super::source::Source;
use super::tokens::{self, PathUse};
use std::collections::{BTreeMap, BTreeSet};

/// A layer and its allowed imports, as indexes into [`LAYERS`].
struct Layer {
    name: &'static str,
    may_import: &'static [usize],
}

/// The name of the layer of the files beside the folders.
const ROOT: &str = "lib";

/// From the bottom up.
const LAYERS: [Layer; 19] = [
    Layer { name: "base", may_import: &[] },
    Layer { name: "codec", may_import: &[0] },
    Layer { name: "platform", may_import: &[0] },
    Layer { name: "cache", may_import: &[0, 2] },
    Layer { name: "wal", may_import: &[0, 1, 2] },
    Layer { name: "memtable", may_import: &[0, 1, 2] },
    Layer { name: "table", may_import: &[0, 1, 2, 3] },
    Layer { name: "view", may_import: &[0, 1, 2, 3, 6] },
    Layer { name: "version", may_import: &[0, 1, 2, 6, 7] },
    Layer { name: "read", may_import: &[0, 1, 2, 5, 6, 7, 8] },
    Layer { name: "compaction", may_import: &[0, 1, 2, 5, 6, 7, 8, 9] },
    Layer { name: "commit", may_import: &[0, 1, 2, 4, 5] },
    Layer { name: "txn", may_import: &[0, 1, 9, 11] },
    Layer { name: "db", may_import: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] },
    Layer { name: "backup", may_import: &[0, 1, 2, 8, 13] },
    Layer { name: "dump", may_import: &[0, 1, 2, 8, 13] },
    Layer { name: "salvage", may_import: &[0, 1, 2, 3, 4, 6, 7, 8, 11, 13] },
    Layer { name: "shared", may_import: &[0, 1, 2, 11, 12, 13] },
    Layer { name: ROOT, may_import: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17] },
];

/// Files that belong to the root: options, the guide, and modules that re-export.
const FACADES: [&str; 10] =
    ["options", "events", "guide", "bulk", "merge", "stats", "streams", "verify", "views", "watch"];

/// Returns the index of a layer.
fn place(name: &str) -> Option<usize> {
    let name = if FACADES.contains(&name) { ROOT } else { name };
    LAYERS.iter().position(|layer| layer.name == name)
}

/// Returns the layer of an engine file, or the name that is no layer as an error.
fn layer_of(path: &str) -> Option<Result<usize, String>> {
    let inside = path.strip_prefix(ENGINE)?;
    let name = inside.split('/').next().unwrap_or_default().trim_end_matches(".rs");
    Some(place(name).ok_or_else(|| name.to_owned()))
}

#[derive(Debug, PartialEq, Eq)]
enum Target {
    Layer(usize),
    /// An item imported through the root.
    Root(String),
}

fn imports(source: &Source) -> Vec<(Target, usize)> {
    let found = tokens::paths(&source.tokens);
    found.iter().filter_map(|path| Some((target(source, path)?, path.line))).collect()
}

/// Returns the target of a path that begins at the crate root or climbs up to it.
fn target(source: &Source, path: &PathUse) -> Option<Target> {
    let names: Vec<&str> = path.names.iter().map(String::as_str).collect();
    let below_root = match names.as_slice() {
        ["crate", rest @ ..] => rest,
        _ => climb(source, path, &names)?,
    };
    let first = below_root.first().copied().unwrap_or("itself");
    Some(place(first).filter(|_| first != ROOT).map_or_else(|| Target::Root(first.to_owned()), Target::Layer))
}

/// Returns the names after a `super` chain that ends at the crate root.
fn climb<'a, 'b>(source: &Source, path: &PathUse, names: &'a [&'b str]) -> Option<&'a [&'b str]> {
    let steps = names.iter().take_while(|name| matches!(**name, "super" | "self")).count();
    let ups = names[..steps].iter().filter(|name| **name == "super").count();
    if ups == 0 {
        return None;
    }
    let folder = source.module_folder();
    let depth = folder.strip_prefix(ENGINE).map_or(0, |inside| inside.split('/').count())
        + tokens::inline_module_depth(&source.tokens, path.token);
    (ups >= depth).then_some(&names[steps..])
}

pub fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        let layer = match layer_of(&source.path) {
            None => continue,
            Some(Ok(layer)) => layer,
            Some(Err(name)) => {
                let message = format!(
                    "`{name}` is no layer: put it into one, or add it to LAYERS in xtask with what it may import"
                );
                findings.push(Finding { path: source.path.clone(), line: 1, rule: "layers", message });
                continue;
            }
        };
        for (target, line) in imports(source) {
            if let Some(message) = complaint(layer, &target) {
                findings.push(Finding { path: source.path.clone(), line, rule: "layers", message });
            }
        }
    }
    if let Some(cycle) = Graph::of(sources).cycle() {
        let message =
            format!("the layers import each other in a circle: {}; cut one of these imports", cycle.join(", "));
        findings.push(Finding { path: ENGINE.trim_end_matches('/').to_owned(), line: 1, rule: "cycle", message });
    }
    findings
}

/// Returns the complaint about an import, if it is forbidden.
fn complaint(layer: usize, target: &Target) -> Option<String> {
    let Layer { name, may_import } = &LAYERS[layer];
    match target {
        Target::Root(_) if *name == ROOT => None,
        Target::Root(item) => {
            Some(format!("`crate::{item}` goes through the root: import it from the layer that defines it"))
        }
        Target::Layer(other) if *other == layer || may_import.contains(other) => None,
        Target::Layer(other) => {
            let list: Vec<&str> = may_import.iter().map(|&place| LAYERS[place].name).collect();
            let list = if list.is_empty() { "std alone".to_owned() } else { list.join(", ") };
            let other = LAYERS[*other].name;
            if other == ROOT {
                return Some(format!(
                    "`{name}` must not import the public face above it: define here what both need, and re-export it there"
                ));
            }
            Some(format!(
                "`{name}` must not import `{other}`: it may import {list}; move the code, or pass the thing in"
            ))
        }
    }
}

pub struct Graph {
    edges: BTreeMap<(usize, usize), usize>,
}

impl Graph {
    pub fn of(sources: &[Source]) -> Graph {
        let mut edges = BTreeMap::new();
        for source in sources {
            let Some(Ok(layer)) = layer_of(&source.path) else { continue };
            for (target, _) in imports(source) {
                match target {
                    Target::Layer(other) if other != layer => *edges.entry((layer, other)).or_insert(0) += 1,
                    _ => {}
                }
            }
        }
        Graph { edges }
    }

    /// Returns the layers on cycles or between two cycles: repeatedly removes layers that import no
    /// remaining layer or that no remaining layer imports.
    pub fn cycle(&self) -> Option<Vec<&'static str>> {
        let mut left: BTreeSet<usize> = self.edges.keys().flat_map(|&(from, to)| [from, to]).collect();
        loop {
            let among = |from: usize, to: usize| left.contains(&from) && left.contains(&to);
            let importers: BTreeSet<usize> =
                self.edges.keys().filter(|&&(from, to)| among(from, to)).map(|&(from, _)| from).collect();
            let imported: BTreeSet<usize> =
                self.edges.keys().filter(|&&(from, to)| among(from, to)).map(|&(_, to)| to).collect();
            let both: BTreeSet<usize> = importers.intersection(&imported).copied().collect();
            if both.is_empty() {
                return None;
            }
            if both == left {
                return Some(left.iter().map(|&layer| LAYERS[layer].name).collect());
            }
            left = both;
        }
    }

    pub fn draw(&self) -> String {
        let mut lines = String::new();
        for (place, layer) in LAYERS.iter().enumerate().rev() {
            let below = self.edges.iter().filter(|((from, _), _)| *from == place);
            let list: Vec<String> = below.map(|((_, to), count)| format!("{} ({count})", LAYERS[*to].name)).collect();
            let list = if list.is_empty() { "-".to_owned() } else { list.join(", ") };
            lines += &format!("{place:>2} {:<11} imports {list}\n", layer.name);
        }
        lines
    }
}
