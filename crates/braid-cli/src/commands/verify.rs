//! `braid verify`: reads the directory without opening the database.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Result;
use braiddb::verify::{TreeKey, VerifyOptions, VerifyProblem, VerifyReport};
use serde_json::{Value, json};

use super::open::{Notations, builder, check_directory};
use crate::{
    arguments::VerifyArguments,
    bar::Bar,
    exit::{NOT_FOUND, OK},
    interrupt::{self, Pace},
    notation::{show_bytes, show_counted, show_key, show_name},
    output::Stdout,
};

pub fn verify(arguments: &VerifyArguments) -> Result<u8> {
    check_directory(&arguments.db)?;
    let bar = Arc::new(Bar::bytes(Some(0), "verify"));
    let shown = Arc::clone(&bar);
    let read = Arc::new(AtomicU64::new(0));
    let read_so_far = Arc::clone(&read);
    interrupt::begin(Pace::AtOnce, move |_| {
        let bytes = show_bytes(read_so_far.load(Ordering::Relaxed));
        format!(
            "the check is not finished after {bytes}, and has no result; nothing was changed; run the command again"
        )
    });
    let progress = move |progress: braiddb::verify::VerifyProgress| {
        read.store(progress.bytes, Ordering::Relaxed);
        shown.set_length(progress.bytes_total);
        shown.set_bytes(progress.bytes);
    };
    let threads = arguments.threads.map_or(0, usize::from);
    let options = VerifyOptions::default().threads(threads).progress(progress);
    let report = builder(&arguments.read.open).verify_path(&arguments.db, &options)?;
    bar.finish();
    let mut out = Stdout::new();
    if arguments.json {
        writeln!(out, "{}", to_json(&report))?;
    } else {
        let has_keys = report.opens && report.problems.iter().any(|problem| problem.keys.is_some());
        let notations = if has_keys { Notations::of(&arguments.db, &arguments.read) } else { Notations::default() };
        write_text(&report, &arguments.db.display().to_string(), &notations, &mut out)?;
    }
    out.finish()?;
    Ok(if report.is_sound() { OK } else { NOT_FOUND })
}

fn write_text(report: &VerifyReport, db: &str, notations: &Notations, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{}, {} read", show_counted(report.files, "file"), show_bytes(report.bytes))?;
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    for problem in &report.problems {
        writeln!(out, "problem: {}", show_problem(problem, notations))?;
    }
    if report.is_sound() {
        writeln!(out, "sound")?;
        return Ok(());
    }
    let problems = report.problems.len() as u64 + report.problems_left_out;
    writeln!(out, "{}", show_counted(problems, "problem"))?;
    if !report.opens {
        writeln!(out, "the database does not open: recover the intact data with `braid salvage {db} NEW`")?;
    }
    Ok(())
}

fn show_problem(problem: &VerifyProblem, notations: &Notations) -> String {
    let Some(keys) = &problem.keys else { return problem.to_string() };
    let mut plain = problem.clone();
    plain.keys = None;
    let tree_of = |key: &TreeKey| match &key.tree {
        Some(name) => format!("the tree {}", show_name(name)),
        None => format!("tree number {}", key.tree_id),
    };
    let shown = |key: &TreeKey| show_key(&key.key, notations.of_tree(key.tree_id));
    let (from, to) = (&keys.from, &keys.to);
    let affected = if from == to {
        format!("the key {} of {}", shown(from), tree_of(from))
    } else if from.tree_id == to.tree_id {
        format!("keys from {} to {} of {}", shown(from), shown(to), tree_of(from))
    } else {
        format!("keys from {} of {} to {} of {}", shown(from), tree_of(from), shown(to), tree_of(to))
    };
    format!("{plain}; affects {affected}")
}

fn to_json(report: &VerifyReport) -> Value {
    json!({
        "sound": report.is_sound(),
        "opens": report.opens,
        "files": report.files,
        "bytes": report.bytes,
        "problems": report.problems.iter().map(problem_to_json).collect::<Vec<_>>(),
        "problems_left_out": report.problems_left_out,
        "notes": report.notes,
    })
}

fn problem_to_json(problem: &VerifyProblem) -> Value {
    let key = |key: &TreeKey| {
        let hex: String = key.key.iter().map(|byte| format!("{byte:02x}")).collect();
        json!({"tree": key.tree, "tree_id": key.tree_id, "key_hex": hex})
    };
    json!({
        "kind": problem.kind.name(),
        "file": problem.file.name(),
        "number": problem.number,
        "path": problem.path.display().to_string(),
        "offset": problem.offset,
        "len": problem.len,
        "detail": problem.detail,
        "from": problem.keys.as_ref().map(|keys| key(&keys.from)),
        "to": problem.keys.as_ref().map(|keys| key(&keys.to)),
        "last_commit": problem.last_commit,
        "unchecked_bytes": problem.unchecked_bytes,
    })
}
