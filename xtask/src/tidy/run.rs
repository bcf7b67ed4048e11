//! Reads the tree, runs the checks and prints their findings.
//!
//! Layers, rooms, the platform rule and thin roots check the engine's `src`; shape, words and
//! unsafe every Rust file; paths of a developer's machine every text file.

use super::source::Source;
use super::{cited, islands, layers, rooms, shape, words};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The engine's sources, relative to the workspace root.
pub const ENGINE: &str = "crates/braiddb/src/";

/// Extensions of checked text files besides Rust.
const TEXT: [&str; 8] = ["md", "toml", "sh", "py", "yml", "yaml", "json", "txt"];

/// A violated rule and its remedy.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the workspace root.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// The rule's short name.
    pub rule: &'static str,
    /// The problem and its remedy.
    pub message: String,
}

pub fn workspace_root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    here.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR"))).join("..")
}

/// Checks the tree under `root` and prints the findings.
pub fn main(root: &Path, graph: bool) -> ExitCode {
    let (sources, texts) = match read_tree(root) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("tidy: {}: {error}", root.display());
            return ExitCode::from(2);
        }
    };
    if sources.is_empty() {
        eprintln!("tidy: no Rust files under {}: is it the workspace's root?", root.display());
        return ExitCode::from(2);
    }
    if graph {
        print!("{}", layers::Graph::of(&sources).draw());
    }
    let findings = check(&sources, &texts);
    for Finding { path, line, rule, message } in &findings {
        println!("{path}:{line}: {rule}: {message}");
    }
    let files = sources.len() + texts.len();
    if findings.is_empty() {
        println!("tidy: {files} files, nothing out of order");
        ExitCode::SUCCESS
    } else {
        println!("tidy: {files} files, {} out of order", findings.len());
        ExitCode::FAILURE
    }
}

pub fn check(sources: &[Source], texts: &[(String, String)]) -> Vec<Finding> {
    let mut findings = layers::check(sources);
    findings.extend(rooms::check(sources));
    findings.extend(cited::check(sources, texts));
    for source in sources {
        findings.extend(shape::check(source));
        findings.extend(words::check(source));
        findings.extend(islands::check(source));
    }
    for (path, text) in texts {
        findings.extend(words::check_text(path, text));
    }
    findings.sort();
    findings.dedup();
    findings
}

type Tree = (Vec<Source>, Vec<(String, String)>);

fn read_tree(root: &Path) -> std::io::Result<Tree> {
    let mut rust = Vec::new();
    let mut texts = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = folder.join(&name);
            let kind = entry.file_type()?;
            if kind.is_dir() && name != "target" && (!name.starts_with('.') || name == ".github" || name == ".ci") {
                folders.push(path);
                continue;
            }
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            let shown = path.to_string_lossy().replace('\\', "/");
            if !kind.is_file() {
                continue;
            } else if ending == "rs" {
                rust.push((shown, std::fs::read_to_string(root.join(path))?));
            } else if TEXT.contains(&ending) || shown == "justfile" || shown == ".ci/run" {
                let bytes = std::fs::read(root.join(path))?;
                texts.push((shown, String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
    }
    rust.sort();
    texts.sort();
    Ok((Source::parse_all(rust), texts))
}
