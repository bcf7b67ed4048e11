//! Messages name commands that there are.

use crate::common;

use common::Workplace;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "md") {
            found.push(path);
        }
    }
}

/// A message named `braid del-range`, which there is not.
#[test]
fn commands_named_in_messages_and_documents_exist() {
    let place = Workplace::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "../braiddb/src", "../../docs"] {
        sources(&here.join(folder), &mut files);
    }
    let is_word = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let mut commands = BTreeSet::new();
    for file in files {
        for part in fs::read_to_string(file).unwrap().split("`braid ").skip(1) {
            let words: Vec<&str> = part.split([' ', '`', '\n']).take_while(is_word).take(2).collect();
            match words.as_slice() {
                [group @ ("backup" | "index"), command, ..] => commands.insert(format!("{group} {command}")),
                [command, ..] => commands.insert((*command).to_owned()),
                [] => false,
            };
        }
    }
    assert!(commands.contains("salvage") && commands.contains("backup create"), "{commands:?}");
    for command in commands {
        place.ok(&format!("{command} --help"));
    }
}
