//! Limits the sizes of files and functions; module roots only declare.

use super::Finding;
use super::run::ENGINE;
use super::source::Source;
use super::tokens;

/// Maximum lines of a file of production code.
const FILE_LINES: usize = 600;
/// Maximum lines of a test file.
const TEST_FILE_LINES: usize = 1200;
/// Maximum lines of a function, from `fn` to the closing brace.
const FUNCTION_LINES: usize = 70;
/// Maximum lines of a test function.
const TEST_FUNCTION_LINES: usize = 120;

pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |line: usize, rule: &'static str, message: String| {
        findings.push(Finding { path: source.path.clone(), line, rule, message });
    };
    let lines = source.text.lines().count();
    let most = if source.is_test { TEST_FILE_LINES } else { FILE_LINES };
    if lines > most {
        report(most + 1, "file-size", format!("{lines} lines, {most} at most: split the file by nouns"));
    }
    for function in tokens::functions(&source.tokens) {
        let lines = function.last_line - function.first_line + 1;
        let most = if source.is_test_line(function.first_line) { TEST_FUNCTION_LINES } else { FUNCTION_LINES };
        if lines > most {
            let message =
                format!("`{}` has {lines} lines, {most} at most: move its leaves into helpers", function.name);
            report(function.first_line, "function-size", message);
        }
    }
    let is_root = source.path.ends_with("/mod.rs") || source.path == format!("{ENGINE}lib.rs");
    if is_root && !source.is_test {
        for (line, item) in definitions(source) {
            let message =
                format!("`{item}` in a root: it only declares and re-exports; move the item to a file of its own");
            report(line, "thin-root", message);
        }
    }
    findings
}

fn definitions(source: &Source) -> Vec<(usize, String)> {
    let tokens = &source.tokens;
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        at = tokens::after_attributes(tokens, at);
        if tokens::text(tokens, at) == "pub" {
            at += 1;
            at = if tokens::text(tokens, at) == "(" { tokens::closing(tokens, at) + 1 } else { at };
        }
        let Some(first) = tokens.get(at) else { break };
        let mut end = at;
        while !matches!(tokens::text(tokens, end), ";" | "{" | "") {
            end = if matches!(tokens::text(tokens, end), "(" | "[") { tokens::closing(tokens, end) } else { end } + 1;
        }
        let has_body = tokens::text(tokens, end) == "{";
        if !(first.text == "use" || (first.text == "mod" && !has_body)) {
            found.push((first.line, first.text.clone()));
        }
        // A use tree has a semicolon after its braces; other items end with their bodies.
        at = if has_body { tokens::closing(tokens, end) + 1 } else { end + 1 };
        at += usize::from(tokens::text(tokens, at) == ";");
    }
    found
}
