//! `braid import`

use std::{
    io::{BufReader, IsTerminal as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use anyhow::Result;

use super::open::open_or_create;
use crate::{
    arguments::ImportArguments,
    bar::Bar,
    exit::{INPUT, OK, failure, usage},
    import::{Format, ImportJob, IndexSpec, OnError, TableOptions, Target},
    input::Source,
    interrupt::{self, Pace},
    notation::show_counted,
    output::{note, print_line},
    transfer::{ExportReader, MAGIC, ReadReport, StoreOptions},
};

const FREEDB_TREE: &str = "albums";

const FREEDB_INDEXES: [&str; 3] = ["by_disc_id=disc_ids", "by_artist=artist:lower", "by_title=title:lower"];

pub fn import(arguments: ImportArguments) -> Result<u8> {
    let of_folder = arguments.file.is_dir().then_some(Format::Freedb);
    let format = arguments.format.or(of_folder).or_else(|| Format::of_name(&arguments.file));
    let no_format =
        || usage("the input's name does not show its format: add --format jsonl, csv, tsv, freedb or export");
    if format.is_none() && arguments.file.as_os_str() == "-" && std::io::stdin().is_terminal() {
        return Err(no_format());
    }
    let source = match format {
        Some(Format::Freedb) => Source::open_discs(&arguments.file)?,
        _ => Source::open(&arguments.file)?,
    };
    // The first line detects an export, whatever its name. The source keeps that line: a pipe
    // cannot be read twice.
    if format == Some(Format::Export) || arguments.format.is_none() && source.begins_with(MAGIC) {
        return import_export(&arguments, source);
    }
    let format = format.ok_or_else(no_format)?;
    let verb = if arguments.to_jsonl.is_some() {
        "converted"
    } else if arguments.dry_run {
        "would be stored"
    } else {
        "stored"
    };
    let job = ImportJob {
        source,
        format,
        key: arguments.key.clone(),
        number_from: arguments.number_from,
        on_error: arguments.on_error,
        table: table_options(&arguments, format)?,
        rejects: rejects(&arguments)?,
        threads: arguments.threads.map_or_else(processors, usize::from),
        target: target(&arguments, format)?,
    };
    let report = job.run()?;
    let mut text = Vec::new();
    if arguments.json {
        serde_json::to_writer(&mut text, &report)?;
    } else {
        report.write_text(verb, &mut text)?;
    }
    let text = String::from_utf8_lossy(&text);
    let is_stdout = |path: &PathBuf| path.as_os_str() == "-";
    let stdout_is_taken =
        arguments.acknowledge || [&arguments.to_jsonl, &arguments.rejects].into_iter().flatten().any(is_stdout);
    if stdout_is_taken {
        note!("{}", text.trim_end());
    } else {
        print_line(text.trim_end())?;
    }
    match report.why_nothing_usable(format, arguments.key.as_deref()) {
        Some(why) => Err(failure(INPUT, why)),
        None => Ok(OK),
    }
}

fn import_export(arguments: &ImportArguments, source: Source) -> Result<u8> {
    let others = [
        (arguments.key.is_some(), "--key"),
        (!arguments.indexes.is_empty(), "--index"),
        (arguments.resume, "--resume"),
        (arguments.to_jsonl.is_some(), "--to-jsonl"),
        (arguments.acknowledge, "--acknowledge"),
        (arguments.rejects.is_some(), "--rejects"),
        (!arguments.table.options().is_default(), "--delimiter, --no-header, --fields or --types"),
    ];
    if let Some((_, option)) = others.iter().find(|(is_given, _)| *is_given) {
        return Err(usage(format!("{option} does not apply to an export, which declares its own trees and keys")));
    }
    let db = match arguments.dry_run {
        true => None,
        false => Some(open_or_create(&arguments.db, &arguments.open, arguments.create)?),
    };
    let bar = Bar::count(None, "import");
    let stored_so_far = Arc::new(AtomicU64::new(0));
    let shown = Arc::clone(&stored_so_far);
    interrupt::begin(Pace::InOrder, move |_| {
        let records = show_counted(shown.load(Ordering::Relaxed), "record");
        format!("stored {records}; the same command begins again with the first record")
    });
    let reader = BufReader::with_capacity(1 << 18, source.into_unmarked_text()?);
    let options =
        StoreOptions { db: db.as_ref(), tree: arguments.tree.as_deref(), durability: arguments.durability.into() };
    let stored = ExportReader::new(reader).store(&options, &mut |records| {
        stored_so_far.store(records, Ordering::Relaxed);
        bar.set_count(records);
    });
    bar.finish();
    if let Some(db) = db {
        db.close()?;
    }
    let report = stored?;
    let ReadReport { trees, records, left_out } = report;
    if arguments.json {
        print_line(serde_json::to_string(&report)?)?;
    } else {
        let verb = if arguments.dry_run { "would be stored" } else { "stored" };
        print_line(format_args!("{} of {} {verb}", show_counted(records, "record"), show_counted(trees, "tree")))?;
    }
    if left_out > 0 {
        note!("braid: the export lacks {left_out} records or ranges, which could not be read when it was written");
    }
    Ok(OK)
}

fn table_options(arguments: &ImportArguments, format: Format) -> Result<TableOptions> {
    let options = arguments.table.options();
    if !format.has_header() && !options.is_default() {
        return Err(usage("--delimiter, --no-header, --fields and --types are only for csv and tsv"));
    }
    if options.fields.iter().any(String::is_empty) {
        return Err(usage("--fields has an empty name: give each column a name"));
    }
    let repeated =
        |names: Vec<&String>| (1..names.len()).find(|&at| names[..at].contains(&names[at])).map(|at| names[at].clone());
    let twice = repeated(options.fields.iter().collect())
        .or_else(|| repeated(options.types.iter().map(|typed| &typed.field).collect()));
    if let Some(name) = twice {
        return Err(usage(format!("the field {name:?} is given twice")));
    }
    Ok(options)
}

/// Refuses an output that is the input under another name: creating it would empty the input.
fn check_not_the_input(arguments: &ImportArguments, output: &Path, option: &str) -> Result<()> {
    let input = if arguments.file.as_os_str() == "-" { Path::new("/dev/stdin") } else { &arguments.file };
    if output.as_os_str() != "-" && is_same_file(input, output) {
        return Err(usage(format!("{option} names the input: give another file")));
    }
    Ok(())
}

/// False for devices, which cannot be overwritten.
#[cfg(unix)]
fn is_same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let (Ok(one), Ok(other)) = (std::fs::metadata(one), std::fs::metadata(other)) else { return false };
    one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

fn rejects(arguments: &ImportArguments) -> Result<Option<PathBuf>> {
    let Some(path) = &arguments.rejects else { return Ok(None) };
    if arguments.on_error == OnError::Stop {
        return Err(usage("--rejects needs --on-error skip: with `stop`, no record is skipped"));
    }
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    for (other, what) in [(Some(&arguments.file), "the input"), (arguments.to_jsonl.as_ref(), "the file of --to-jsonl")]
    {
        let is_input_and_stdout = path.as_os_str() == "-" && what == "the input";
        if other.is_some_and(|other| real(other) == real(path)) && !is_input_and_stdout {
            return Err(usage(format!("--rejects names {what}: give another file")));
        }
    }
    check_not_the_input(arguments, path, "--rejects")?;
    Ok(Some(path.clone()))
}

fn target(arguments: &ImportArguments, format: Format) -> Result<Target> {
    if arguments.dry_run {
        return Ok(Target::Nothing);
    }
    if let Some(path) = &arguments.to_jsonl {
        check_not_the_input(arguments, path, "--to-jsonl")?;
        return Ok(Target::Json(path.clone()));
    }
    let tree = match (&arguments.tree, format) {
        (Some(tree), _) => tree.clone(),
        (None, Format::Freedb) => FREEDB_TREE.to_owned(),
        (None, _) => return Err(usage("no tree is given for the records: add --tree TREE")),
    };
    let mut indexes = arguments.indexes.clone();
    if format == Format::Freedb && indexes.is_empty() {
        indexes = FREEDB_INDEXES.iter().filter_map(|text| IndexSpec::parse(text).ok()).collect();
    }
    Ok(Target::Database {
        db: open_or_create(&arguments.db, &arguments.open, arguments.create)?,
        tree,
        indexes,
        durability: arguments.durability.into(),
        acknowledge: arguments.acknowledge,
        resume: arguments.resume,
    })
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
