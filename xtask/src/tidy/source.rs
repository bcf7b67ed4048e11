//! Splits a Rust file into code and comments.
//!
//! INVARIANT: text, code and comments have the same lines. Blanks replace comments and literals in
//! the code, and everything else in the comments.

use super::tokens::{self, Token};
use std::collections::HashSet;

pub struct Source {
    pub path: String,
    pub text: String,
    /// The code's tokens.
    pub tokens: Vec<Token>,
    /// The lines of the code; comments and the insides of literals are blank.
    pub code: Vec<String>,
    /// The lines of the comments; code is blank.
    pub comments: Vec<String>,
    /// True if the whole file is compiled for tests only.
    pub is_test: bool,
    /// Inclusive line ranges of test-only modules.
    pub test_lines: Vec<(usize, usize)>,
}

impl Source {
    pub fn parse_all(files: Vec<(String, String)>) -> Vec<Source> {
        let mut sources: Vec<Source> = files.into_iter().map(|(path, text)| Source::parse(path, text)).collect();
        let declared: HashSet<String> = sources.iter().flat_map(Source::test_modules).collect();
        for source in &mut sources {
            let module = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
            source.is_test |= module.match_indices('/').any(|(at, _)| declared.contains(&module[..at]));
            source.is_test |= declared.contains(module);
        }
        sources
    }

    pub fn parse(path: String, text: String) -> Source {
        let (code, comments) = split(&text);
        let tokens = tokens::tokenize(&code);
        let test_lines = tokens::test_modules(&tokens)
            .into_iter()
            .filter_map(|module| module.body.map(|(first, last)| (tokens[first].line, tokens[last].line)))
            .collect();
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/") || path.starts_with("tests/");
        let lines = |text: String| text.lines().map(str::to_owned).collect();
        Source { path, tokens, code: lines(code), comments: lines(comments), is_test, test_lines, text }
    }

    pub fn is_test_line(&self, line: usize) -> bool {
        self.is_test || self.test_lines.iter().any(|&(first, last)| (first..=last).contains(&line))
    }

    /// Returns the folder of the modules that this file declares.
    pub fn module_folder(&self) -> String {
        let stem = self.path.trim_end_matches(".rs");
        match stem.rsplit_once('/') {
            Some((folder, "mod" | "lib" | "main")) => folder.to_owned(),
            _ => stem.to_owned(),
        }
    }

    /// Returns the paths, without extension, of test-only modules declared here.
    fn test_modules(&self) -> Vec<String> {
        let folder = self.module_folder();
        let modules = tokens::test_modules(&self.tokens);
        modules
            .iter()
            .filter(|module| module.body.is_none())
            .map(|module| format!("{folder}/{}", module.name))
            .collect()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Code,
    LineComment,
    BlockComment(usize),
    String,
    RawString(usize),
}

fn split(text: &str) -> (String, String) {
    let letters: Vec<char> = text.chars().collect();
    let (mut code, mut comments) = (String::with_capacity(text.len()), String::new());
    let mut part = Part::Code;
    let mut at = 0;
    while let Some(&letter) = letters.get(at) {
        let (next, taken) = step(part, &letters, at);
        // String delimiters stay in the code to mark the literal.
        let in_comment = |part| matches!(part, Part::LineComment | Part::BlockComment(_));
        let comment = in_comment(part) || in_comment(next);
        let literal = !comment && (part != Part::Code || next != Part::Code || (taken > 1 && letter == '\''));
        for &letter in &letters[at..at + taken] {
            let blank = if letter == '\n' { '\n' } else { ' ' };
            code.push(if comment || (literal && letter != '"') { blank } else { letter });
            comments.push(if comment { letter } else { blank });
        }
        part = next;
        at += taken;
    }
    (code, comments)
}

/// Returns the next part and its length in letters, from position `at` in the given part.
fn step(part: Part, letters: &[char], at: usize) -> (Part, usize) {
    let is = |offset: usize, wanted: char| letters.get(at + offset) == Some(&wanted);
    let hashes = |from: usize| letters[from.min(letters.len())..].iter().take_while(|&&letter| letter == '#').count();
    match part {
        Part::Code if is(0, '/') && is(1, '/') => (Part::LineComment, 2),
        Part::Code if is(0, '/') && is(1, '*') => (Part::BlockComment(1), 2),
        Part::Code if is(0, '"') => (Part::String, 1),
        Part::Code if is(0, 'r') && !follows_name(letters, at) => {
            let count = hashes(at + 1);
            if is(1 + count, '"') { (Part::RawString(count), 2 + count) } else { (Part::Code, 1) }
        }
        Part::Code if is(0, '\'') => (Part::Code, character_literal(letters, at).unwrap_or(1)),
        Part::LineComment if is(0, '\n') => (Part::Code, 1),
        Part::BlockComment(depth) if is(0, '/') && is(1, '*') => (Part::BlockComment(depth + 1), 2),
        Part::BlockComment(1) if is(0, '*') && is(1, '/') => (Part::Code, 2),
        Part::BlockComment(depth) if is(0, '*') && is(1, '/') => (Part::BlockComment(depth - 1), 2),
        Part::String if is(0, '\\') && at + 1 < letters.len() => (Part::String, 2),
        Part::String if is(0, '"') => (Part::Code, 1),
        Part::RawString(count) if is(0, '"') && hashes(at + 1) >= count => (Part::Code, 1 + count),
        other => (other, 1),
    }
}

/// Returns true if `at` continues a name, so that an `r` here begins no raw string. `br` begins one.
fn follows_name(letters: &[char], at: usize) -> bool {
    let name = |at: usize| letters.get(at).is_some_and(|letter| letter.is_alphanumeric() || *letter == '_');
    match at {
        0 => false,
        1 => name(0) && letters[0] != 'b',
        _ => name(at - 1) && (!matches!(letters[at - 1], 'b' | 'c') || name(at - 2)),
    }
}

/// Returns the length of the character literal at `at`, or none for a lifetime.
fn character_literal(letters: &[char], at: usize) -> Option<usize> {
    if letters.get(at + 1)? == &'\\' {
        let end = letters[at + 3..].iter().take(12).position(|&letter| letter == '\'')?;
        return Some(end + 4);
    }
    (letters.get(at + 2)? == &'\'').then_some(3)
}
