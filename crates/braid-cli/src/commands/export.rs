//! `braid export`

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::Result;
use braiddb::Db;
use serde_json::json;

use super::{
    open::{NamedTree, key_notation, open_for_reading},
    pairs::{document, document_pair},
};
use crate::{
    arguments::{ExportArguments, ExportFormat},
    bar::Bar,
    exit::{NOT_FOUND, OK, usage},
    import::JsonOutput,
    interrupt::{self, Pace},
    logging,
    notation::show_counted,
    output::{OutputFile, note, print_line},
    transfer::{Walk, Walked, WriteReport, write_export},
};

const RECORDS_PER_MOVE: u64 = 1000;

pub fn export(arguments: &ExportArguments) -> Result<u8> {
    let format = arguments.format.unwrap_or(if arguments.values { ExportFormat::Jsonl } else { ExportFormat::Export });
    if format == ExportFormat::Export && (arguments.values || arguments.key_arguments.keys.is_some()) {
        return Err(usage("--values and --keys need --format jsonl: an export has keys and values unchanged"));
    }
    let db = open_for_reading(&arguments.db, &arguments.read)?;
    let path = arguments.output.clone().unwrap_or_else(|| PathBuf::from("-"));
    begin_writing(&path);
    let begun = Instant::now();
    let report = match format {
        ExportFormat::Export => {
            let mut output = JsonOutput::create(&path)?;
            let bar = Bar::count(None, "export");
            let report = write_export(&db, &arguments.trees, arguments.keep_going, &mut |line, records| {
                if records % RECORDS_PER_MOVE == 0 {
                    bar.set_count(records);
                }
                output.line(line)
            })?;
            output.finish()?;
            bar.finish();
            report
        }
        ExportFormat::Jsonl => export_documents(&db, arguments, &path)?,
    };
    logging::note_rate("exported", report.records, begun.elapsed());
    if arguments.json {
        let line = json!({"records": report.records, "left_out": report.left_out});
        if is_standard(&path) {
            note!("{line}")
        } else {
            print_line(line)?
        }
        return Ok(if report.left_out.is_empty() { OK } else { NOT_FOUND });
    }
    for what in &report.left_out {
        note!("braid: left out: {what}");
    }
    if arguments.output.is_some() {
        note!("{} written to {}", show_counted(report.records, "record"), path.display());
    }
    Ok(if report.left_out.is_empty() { OK } else { NOT_FOUND })
}

fn is_standard(path: &Path) -> bool {
    path == Path::new("-") || path == Path::new("/dev/stdout")
}

fn begin_writing(path: &Path) {
    let (is_made_at_end, shown) = (OutputFile::is_made_at_end(path), path.display().to_string());
    interrupt::begin(Pace::InOrder, move |_| match is_made_at_end {
        true => format!("{shown} is unchanged; run the export again"),
        false => "the export is incomplete, and `import` refuses it; run the export again".to_owned(),
    });
}

fn export_documents(db: &Db, arguments: &ExportArguments, path: &Path) -> Result<WriteReport> {
    let [name] = arguments.trees.as_slice() else {
        return Err(usage("--format jsonl exports one tree: name exactly one TREE"));
    };
    let keys = key_notation(db, name, arguments.key_arguments)?;
    let tree = NamedTree::open(db, name)?;
    let mut output = JsonOutput::create(path)?;
    let bar = Bar::count(None, "export");
    let mut records = 0;
    let mut visit = |key: &[u8], value: &[u8], _| {
        records += 1;
        if records % RECORDS_PER_MOVE == 0 {
            bar.set_count(records);
        }
        output.line(&if arguments.values { document(value)? } else { document_pair(key, value, keys)? })
    };
    let mut walk = Walk { snapshot: db.snapshot(), keep_going: arguments.keep_going, left_out: Vec::new() };
    match &tree {
        NamedTree::Plain(tree) => walk.records(tree, Walked { name, keys }, &mut visit)?,
        NamedTree::Multi(tree) => walk.pairs(tree, Walked { name, keys }, &mut visit)?,
    }
    output.finish()?;
    bar.finish();
    Ok(WriteReport { records, left_out: walk.left_out })
}
