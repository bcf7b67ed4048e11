//! Finds citations of Rust files that do not exist.

use super::Finding;
use super::source::Source;
use std::collections::HashSet;

/// Checks the paths in backticks that end with `.rs`, in comments and Markdown. A path may leave out leading folders.
pub fn check(sources: &[Source], texts: &[(String, String)]) -> Vec<Finding> {
    let files: HashSet<&str> = sources.iter().flat_map(|source| ends(&source.path)).collect();
    let mut findings = Vec::new();
    for source in sources {
        for (number, comment) in source.comments.iter().enumerate() {
            findings.extend(check_line(&files, &source.path, number + 1, comment));
        }
    }
    for (path, text) in texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (number, line) in text.lines().enumerate() {
            findings.extend(check_line(&files, path, number + 1, line));
        }
    }
    findings
}

/// Returns the path itself and what follows each of its slashes.
fn ends(path: &str) -> impl Iterator<Item = &str> {
    std::iter::once(path).chain(path.match_indices('/').map(|(at, _)| &path[at + 1..]))
}

fn check_line(files: &HashSet<&str>, path: &str, number: usize, line: &str) -> Vec<Finding> {
    let is_path = |text: &str| {
        text.len() > 3
            && text.ends_with(".rs")
            && text.chars().all(|letter| letter.is_alphanumeric() || "_-./".contains(letter))
    };
    let cited = line.split('`').skip(1).step_by(2).filter(|text| is_path(text) && !files.contains(text));
    let finding = |cited: &str| Finding {
        path: path.to_owned(),
        line: number,
        rule: "cited-file",
        message: format!("`{cited}` does not exist: cite the file that has the subject now"),
    };
    cited.map(finding).collect()
}
