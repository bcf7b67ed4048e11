//! Finds forbidden names, words, and phrases of the project's old language.

use super::Finding;
use super::source::Source;
use super::tokens;

/// Macros that mark unfinished work.
const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// Words in comments that mark unfinished work, in halves so that this file passes.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Folders of a developer's machine.
const PLACES: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// Phrases of the project's old language and the field's words for them.
const LANGUAGE: [(&str, &str); 18] = [
    (concat!("to", "ld"), "reports, logs, returns or documents"),
    (concat!("tel", "ls"), "reports, logs, returns or documents"),
    (concat!("lets ", "go"), "releases or drops"),
    (concat!("let ", "go of"), "released or dropped"),
    (concat!("an", "ew"), "again, or rebuilt"),
    (concat!("late", "ly"), "recently"),
    (concat!("who", "ever"), "the noun: caller, thread, leader"),
    (concat!("who", "m"), "the noun: caller, thread, leader"),
    (concat!("so ", "many"), "the quantity and its unit"),
    (concat!("so ", "much"), "the quantity and its unit"),
    (concat!("on its ", "way"), "pending"),
    (concat!("on their ", "way"), "pending"),
    (concat!("loo", "se"), "unindexed (runs)"),
    (concat!("log-", "off"), "without WAL"),
    (concat!("the quick ", "way"), "the fast path"),
    (concat!("takes its ", "time"), "is throttled"),
    (concat!("as of ", "now"), "latest"),
    (concat!("stands ", "apart"), "is unindexed"),
];

/// Checks one line of prose; code in backticks is no prose.
fn check_prose(path: &str, number: usize, line: &str) -> Vec<Finding> {
    let prose: Vec<&str> = line.split('`').step_by(2).collect();
    let prose = prose.join(" ").to_lowercase();
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '-';
    let has = |phrase: &str| {
        prose
            .match_indices(phrase)
            .any(|(at, _)| !prose[..at].ends_with(is_letter) && !prose[at + phrase.len()..].starts_with(is_letter))
    };
    let found = LANGUAGE.iter().filter(|(phrase, _)| has(phrase));
    let finding = |(phrase, instead): &(&str, &str)| Finding {
        path: path.to_owned(),
        line: number,
        rule: "language",
        message: format!("\"{phrase}\": write {instead}"),
    };
    found.map(finding).collect()
}

fn check_markdown(path: &str, text: &str) -> Vec<Finding> {
    let (mut findings, mut is_fenced) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced && !line.starts_with("    ") {
            findings.extend(check_prose(path, number + 1, line));
        }
    }
    findings
}

pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = check_text(&source.path, &source.text);
    let mut report = |line: usize, rule: &'static str, message: String| {
        findings.push(Finding { path: source.path.clone(), line, rule, message });
    };
    for (at, token) in source.tokens.iter().enumerate() {
        let next = |offset: usize| tokens::text(&source.tokens, at + offset);
        if MACROS.contains(&token.text.as_str()) && next(1) == "!" {
            report(token.line, "unfinished", format!("`{}!`: finish it, or take it out", token.text));
        }
        if is_numbered(&token.text) {
            report(
                token.line,
                "name",
                format!("`{}`: name it after what it does, or replace its predecessor", token.text),
            );
        }
        if token.text == "#" && next(1) == "[" && next(2) == "ignore" {
            report(token.line, "ignored-test", "run the test, make it quick, or take it out".to_owned());
        }
    }
    for (number, comment) in source.comments.iter().enumerate() {
        findings.extend(check_prose(&source.path, number + 1, comment));
    }
    let mut report = |line: usize, rule: &'static str, message: String| {
        findings.push(Finding { path: source.path.clone(), line, rule, message });
    };
    for (number, comment) in source.comments.iter().enumerate() {
        for word in comment.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
            if MARKS.contains(&word) {
                report(
                    number + 1,
                    "unfinished",
                    format!("`{word}`: do it now, or open an issue and take the mark out"),
                );
            }
        }
    }
    let stem = source.path.trim_end_matches(".rs").rsplit('/').next().unwrap_or_default();
    if is_numbered(stem) {
        report(1, "name", format!("`{stem}.rs`: name it after what it does, or replace its predecessor"));
    }
    findings
}

pub fn check_text(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = if path.ends_with(".md") { check_markdown(path, text) } else { Vec::new() };
    for (number, line) in text.lines().enumerate() {
        for place in PLACES.iter().filter(|place| begins_path(line, place)) {
            let message = format!("`{place}` is a folder of one machine: name no such path");
            findings.push(Finding { path: path.to_owned(), line: number + 1, rule: "place", message });
        }
    }
    findings
}

/// Returns true if the line has an absolute path that begins with `place`; `a/home/` is none.
fn begins_path(line: &str, place: &str) -> bool {
    let is_inner = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '}' | '/');
    line.match_indices(place).any(|(at, _)| !line[..at].ends_with(is_inner))
}

/// Returns true if a name ends with a version number, as in `merge_v2`.
fn is_numbered(name: &str) -> bool {
    let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    stem.len() < name.len() && stem.to_ascii_lowercase().ends_with("_v")
}
