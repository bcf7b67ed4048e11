//! `braid salvage`

use std::io::Write;

use anyhow::Result;
use braiddb::salvage::{Loss, LossKind, LostKey, ManifestCondition, SalvageOptions, SalvageReport};
use serde_json::{Value, json};

use super::open::{Notations, builder};
use crate::{
    arguments::{ReadArguments, SalvageArguments},
    bar::Bar,
    exit::{NOT_FOUND, OK},
    interrupt::{self, Pace},
    notation::{show_bytes, show_counted, show_key, show_name},
    output::Stdout,
    places::{check_new_directory, making_directory},
    text_form::to_json,
};

pub fn salvage(arguments: &SalvageArguments) -> Result<u8> {
    check_new_directory(&arguments.to, "the new database")?;
    let (from, to) = (arguments.from.display().to_string(), arguments.to.display().to_string());
    interrupt::begin(Pace::AtOnce, move |_| {
        format!("{from} is unchanged; {to} is not finished and does not open: remove it, and run the command again")
    });
    let bar = Bar::count(None, "salvage");
    let mut report = |progress: braiddb::salvage::SalvageProgress| bar.set_count(progress.records);
    let options =
        SalvageOptions::new().keep_stale(arguments.keep_stale).stop_at_gap(arguments.stop_at_gap).progress(&mut report);
    let salvaged = making_directory(&arguments.to, || {
        Ok(builder(&arguments.open).salvage(&arguments.from, &arguments.to, options)?)
    });
    bar.finish();
    let report = salvaged?;
    let mut out = Stdout::new();
    if arguments.json {
        writeln!(out, "{}", as_json(&report))?;
    } else {
        let read = ReadArguments { open: arguments.open.clone(), ..ReadArguments::default() };
        as_text(&report, &Notations::of(&arguments.to, &read), &mut out)?;
    }
    out.finish()?;
    Ok(if report.is_complete() { OK } else { NOT_FOUND })
}

fn name_of(kind: LossKind) -> &'static str {
    match kind {
        LossKind::Records => "records",
        LossKind::Deletes => "deletes",
        LossKind::Value => "value",
        LossKind::Commits => "commits",
        LossKind::Withheld => "withheld",
        LossKind::Stale => "stale",
        _ => "uncertain",
    }
}

fn condition_of(report: &SalvageReport) -> &'static str {
    match report.manifest {
        ManifestCondition::Whole => "whole",
        ManifestCondition::Missing => "missing",
        _ => "partial",
    }
}

fn show_lost_key(key: Option<&LostKey>, otherwise: &str, notations: &Notations) -> String {
    let Some(key) = key else { return otherwise.to_owned() };
    let tree = match (&key.name, key.tree) {
        (Some(name), _) => show_name(name),
        (None, 0) => "the list of trees".to_owned(),
        (None, number) => format!("tree number {number}"),
    };
    format!("{tree}: {}", show_key(&key.key, notations.of_tree(key.tree)))
}

fn show_loss(loss: &Loss, notations: &Notations) -> String {
    let mut text = format!("{}: {}", name_of(loss.kind), loss.path.display());
    if let Some(offset) = loss.offset {
        text += &format!(" at byte {offset}");
    }
    if let Some(bytes) = loss.bytes {
        text += &format!(", {bytes} bytes");
    }
    text += &format!(": {}", loss.detail);
    if loss.from.is_some() || loss.to.is_some() {
        let shown = |key: &Option<LostKey>, otherwise| show_lost_key(key.as_ref(), otherwise, notations);
        let (from, to) = (shown(&loss.from, "the first key"), shown(&loss.to, "the last key"));
        text += &if from == to { format!("; key {from}") } else { format!("; keys from {from} to {to}") };
    }
    if let Some(records) = loss.records {
        text += &format!("; {}", show_counted(records, "record"));
    }
    match loss.commits {
        Some((first, last)) if first == last => text += &format!("; commit {first}"),
        Some((first, last)) => text += &format!("; commits {first} to {last}"),
        None => {}
    }
    text
}

fn as_text(report: &SalvageReport, notations: &Notations, out: &mut impl Write) -> Result<()> {
    for tree in &report.trees {
        let lost = if tree.is_name_lost { " (its name and options were lost)" } else { "" };
        let (records, bytes) = (show_counted(tree.records, "record"), show_bytes(tree.bytes));
        writeln!(out, "{}\t{records}, {bytes}{lost}", show_name(&tree.name))?;
    }
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    for loss in &report.losses {
        writeln!(out, "{}", show_loss(loss, notations))?;
    }
    if report.losses_left_out > 0 {
        writeln!(out, "and {} more", show_counted(report.losses_left_out, "loss"))?;
    }
    let records = show_counted(report.records, "record");
    let trees = show_counted(report.trees.len() as u64, "tree");
    let outcome = if report.is_complete() { "nothing was lost" } else { "some data was lost" };
    writeln!(
        out,
        "salvaged {records} of {trees}, {}, up to commit {}, of {}; the manifest was {}: {outcome}",
        show_bytes(report.bytes),
        report.sequence,
        show_counted(report.files, "file"),
        condition_of(report)
    )?;
    Ok(())
}

fn key_json(key: Option<&LostKey>) -> Value {
    key.map_or(Value::Null, |key| json!({"tree": key.tree, "name": key.name, "key": to_json(&key.key)}))
}

fn loss_json(loss: &Loss) -> Value {
    json!({
        "kind": name_of(loss.kind),
        "file": loss.path.display().to_string(),
        "offset": loss.offset,
        "bytes": loss.bytes,
        "from": key_json(loss.from.as_ref()),
        "to": key_json(loss.to.as_ref()),
        "first_commit": loss.commits.map(|(first, _)| first),
        "last_commit": loss.commits.map(|(_, last)| last),
        "records": loss.records,
        "detail": loss.detail,
    })
}

fn as_json(report: &SalvageReport) -> Value {
    let trees: Vec<Value> = report
        .trees
        .iter()
        .map(|tree| {
            json!({
                "name": tree.name,
                "number": tree.id,
                "is_name_lost": tree.is_name_lost,
                "records": tree.records,
                "bytes": tree.bytes,
            })
        })
        .collect();
    json!({
        "complete": report.is_complete(),
        "commit": report.sequence,
        "manifest": condition_of(report),
        "trees": trees,
        "records": report.records,
        "bytes": report.bytes,
        "losses": report.losses.iter().map(loss_json).collect::<Vec<_>>(),
        "losses_left_out": report.losses_left_out,
        "notes": report.notes,
        "files": report.files,
        "file_bytes": report.file_bytes,
    })
}
