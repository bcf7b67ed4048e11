//! Checks that unsafe code and system access stay in their permitted files.

use super::Finding;
use super::run::ENGINE;
use super::source::Source;
use super::tokens;

/// A path where unsafe code is permitted.
struct Island {
    /// Path prefix; for engine paths, below the engine's `src`.
    prefix: &'static str,
    /// The reason that safe code does not suffice.
    reason: &'static str,
}

/// Islands of the engine. Elsewhere unsafe code is an error.
const ISLANDS: [Island; 11] = [
    Island { prefix: "base/shared_bytes.rs", reason: "rows counted in advance, and whole words copied" },
    Island { prefix: "cache/", reason: "frames are lent out under an epoch and evicted meanwhile" },
    Island { prefix: "memtable/", reason: "an arena with one writer and readers that take no lock" },
    Island { prefix: "platform/os/pages.rs", reason: "memory by the page, from the system and back" },
    Island {
        prefix: "platform/sync/hazard_cell.rs",
        reason: "a value borrowed without a count, and not let go of meanwhile",
    },
    Island { prefix: "platform/os/posix/", reason: "system calls" },
    Island { prefix: "platform/os/windows/", reason: "system calls" },
    Island { prefix: "table/", reason: "slots of a verified block are read without checking them again" },
    Island { prefix: "view/cursor.rs", reason: "an entry borrowed from a block that the same cursor has pinned" },
    Island { prefix: "view/rows.rs", reason: "rows borrowed from blocks that the same batch has pinned" },
    Island { prefix: "view/simd", reason: "vector instructions, chosen at run time" },
];

/// Islands outside the engine, relative to the root: single files, never folders.
const ISLANDS_ELSEWHERE: [Island; 8] = [
    Island { prefix: "bench-compare/src/engines/lmdb.rs", reason: "a peer's C interface" },
    Island { prefix: "bench-compare/src/engines/lmdb_multi.rs", reason: "a peer's C interface" },
    Island { prefix: "bench-compare/src/engines/mdbx.rs", reason: "a peer's C interface" },
    Island {
        prefix: "bench-compare/src/engines/surrealkv.rs",
        reason: "a peer's iterator kept beside the transaction that it borrows",
    },
    Island {
        prefix: "bench-compare/src/engines/tidesdb.rs",
        reason: "a peer's iterator kept beside the transaction that it borrows",
    },
    Island { prefix: C_INTERFACE, reason: "BraidDB's C interface" },
    Island {
        prefix: "crates/braiddb/tests/api/io_uring_denied.rs",
        reason: "a process that denies itself system calls",
    },
    Island { prefix: "java/native/src/boundary.rs", reason: "buffers and handles of the Java package" },
];

const C_INTERFACE: &str = "crates/braiddb-capi/src/";

/// Modules and types reserved for `platform/`.
const OUTSIDE: [&[&str]; 5] = [
    &["std", "fs"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["Instant", "now"],
    &["SystemTime", "now"],
];

/// Items of `std::thread` reserved for `platform/`.
const OUTSIDE_OF_THREAD: [&str; 7] =
    ["spawn", "sleep", "sleep_ms", "sleep_until", "scope", "Builder", "available_parallelism"];

pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = check_unsafe(source);
    findings.extend(check_outside(source));
    findings
}

fn check_unsafe(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_on_island = match source.path.strip_prefix(ENGINE) {
        Some(inside) => ISLANDS.iter().any(|island| inside.starts_with(island.prefix)),
        None => ISLANDS_ELSEWHERE.iter().any(|island| source.path.starts_with(island.prefix)),
    };
    for (at, token) in source.tokens.iter().enumerate().filter(|(_, token)| token.text == "unsafe") {
        // `unsafe fn(..)` is the type of a pointer, and `unsafe(..)` an attribute.
        let next = |offset: usize| tokens::text(&source.tokens, at + offset);
        let mut report = |rule: &'static str, message: String| {
            findings.push(Finding { path: source.path.clone(), line: token.line, rule, message });
        };
        if !is_on_island {
            let all = ISLANDS.iter().chain(&ISLANDS_ELSEWHERE);
            let list: Vec<String> = all.map(|island| format!("{} ({})", island.prefix, island.reason)).collect();
            report(
                "unsafe",
                format!("unsafe code outside its islands: write it safely; the islands are {}", list.join(", ")),
            );
        }
        // The C interface argues once, for all its functions: its lib.rs.
        let is_argued_once = source.path.starts_with(C_INTERFACE) && ["fn", "extern"].contains(&next(1));
        if is_argued_once {
            continue;
        }
        if !(next(1) == "fn" && next(2) == "(") && next(1) != "(" && !is_argued(source, token.line) {
            report("safety", "no SAFETY argument above it: say why it is sound (`# Safety` on a function)".to_owned());
        }
    }
    findings
}

/// Returns true if the line, or the comment above its statement, has a safety argument.
fn is_argued(source: &Source, line: usize) -> bool {
    let argues = |line: usize| {
        let comment = &source.comments[line - 1];
        comment.contains("SAFETY:") || comment.contains("# Safety")
    };
    if argues(line) {
        return true;
    }
    for above in (1..line).rev() {
        let code = source.code[above - 1].trim();
        if argues(above) {
            return true;
        }
        let is_comment = code.is_empty() && !source.comments[above - 1].trim().is_empty();
        let is_attribute = code.starts_with('#') || code.ends_with(")]");
        let is_statement_begun = !code.is_empty() && !code.ends_with([';', '{', '}', ',']);
        if !(is_comment || is_attribute || is_statement_begun) {
            return false;
        }
    }
    false
}

fn check_outside(source: &Source) -> Vec<Finding> {
    let is_inside = source.path.strip_prefix(ENGINE).is_some_and(|inside| !inside.starts_with("platform/"));
    if !is_inside {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for path in tokens::paths(&source.tokens) {
        let names: Vec<&str> = path.names.iter().map(String::as_str).collect();
        let is_thread = match names.as_slice() {
            ["std", "thread", item, ..] | ["thread", item, ..] => OUTSIDE_OF_THREAD.contains(item),
            _ => false,
        };
        let is_outside = is_thread || OUTSIDE.iter().any(|outside| names.starts_with(outside));
        if is_outside && !source.is_test_line(path.line) {
            let message = format!("`{}` outside platform/: go through its Vfs or Runtime", names.join("::"));
            findings.push(Finding { path: source.path.clone(), line: path.line, rule: "platform", message });
        }
    }
    findings
}
