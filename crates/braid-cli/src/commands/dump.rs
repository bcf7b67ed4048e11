//! `braid dump` and `braid load`

use std::{
    cell::{OnceCell, RefCell},
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Write},
    path::Path,
    time::Instant,
};

use anyhow::{Context, Result};
use braiddb::{
    Compression, Db,
    dump::{DumpGap, DumpInfo, DumpOptions, DumpReport, LoadOptions, check_dump},
};
use serde_json::json;

use super::open::{Notations, builder, open_for_reading, remove_unfinished};
use crate::{
    arguments::{DumpArguments, DumpCompression, LoadArguments},
    bar::Bar,
    exit::{CORRUPTION, NOT_FOUND, OK, failure, usage},
    interrupt::{self, End, Pace},
    logging,
    notation::{show_bytes, show_count, show_counted, show_key, show_name},
    output::{OutputFile, Stdout, note, print_line},
    places::{check_new_directory, making_directory},
};

const BUFFER_BYTES: usize = 1 << 20;

fn threads(asked: Option<u16>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}

fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

pub fn dump(arguments: &DumpArguments) -> Result<u8> {
    let db = open_for_reading(&arguments.db, &arguments.read)?;
    let (is_made_at_end, path) = (OutputFile::is_made_at_end(&arguments.file), arguments.file.display().to_string());
    interrupt::begin(Pace::InOrder, move |_| match is_made_at_end {
        true => format!("no dump was written to {path}; run the command again"),
        false => "the dump is incomplete, and `load` refuses it; run the command again".to_owned(),
    });
    let output = open_output(arguments)?;
    let to_standard = output.is_standard();
    let bar = Bar::bytes(None, "dump");
    let mut show = |progress: braiddb::dump::DumpProgress| bar.set(progress.dump_bytes, progress.records);
    let compression = match arguments.compression {
        DumpCompression::None => Compression::None,
        DumpCompression::Lz4 => Compression::Lz4,
        DumpCompression::Zstd => Compression::Zstd,
    };
    let mut failing = |error: &braiddb::Error| note!("braid: {error}");
    let damage = RefCell::new(None);
    let notations = OnceCell::new();
    let mut gap = |gap: &DumpGap| {
        let place = show_gap(&db, notations.get_or_init(|| Notations::of_db(&db)), gap);
        if arguments.skip_damaged {
            note!("braid: not in the dump: {place}: {}", gap.detail);
        } else {
            damage.borrow_mut().get_or_insert_with(|| format!("damage in {}: {place}", gap.detail));
        }
    };
    let options = DumpOptions::new()
        .compression(compression)
        .threads(threads(arguments.threads))
        .progress(&mut show)
        .failing(&mut failing)
        .skip_damaged(&mut gap);
    let mut output = UntilDamage { output: BufWriter::with_capacity(BUFFER_BYTES, output), damage: &damage };
    let begun = Instant::now();
    let dumped = db.dump(&mut output, options);
    if let Some(damage) = damage.borrow().as_ref() {
        return Err(failure(
            CORRUPTION,
            format!("{damage}; `braid verify` lists all damage, and --skip-damaged leaves it out of the dump"),
        ));
    }
    let report = dumped?;
    output.output.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?;
    bar.finish();
    logging::note_rate("dumped", report.records, begun.elapsed());
    let text = show_dump(&report, arguments.json);
    if to_standard {
        note!("{text}");
    } else {
        print_line(text)?;
    }
    Ok(if report.failing == 0 && report.gaps == 0 { OK } else { NOT_FOUND })
}

/// An output that fails once damage was found.
struct UntilDamage<'a, W> {
    output: W,
    damage: &'a RefCell<Option<String>>,
}

impl<W: Write> Write for UntilDamage<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &*self.damage.borrow() {
            Some(damage) => Err(io::Error::other(damage.clone())),
            None => self.output.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// Returns the tree and the keys of a gap. A bound that ends in a zero byte is the successor of the
/// shown key.
fn show_gap(db: &Db, notations: &Notations, gap: &DumpGap) -> String {
    let trees = db.trees().unwrap_or_default();
    let known = trees.iter().find(|tree| tree.id == gap.tree);
    let tree = known.map_or_else(|| format!("tree number {}", gap.tree), |tree| show_name(&tree.name));
    let notation = notations.of_tree(gap.tree);
    let from = match gap.from.split_last() {
        Some((0, key)) => format!("keys after {}", show_key(key, notation)),
        Some(_) => format!("keys from {}", show_key(&gap.from, notation)),
        None => "keys".to_owned(),
    };
    let to = match gap.to.as_deref().map(|to| (to, to.split_last())) {
        Some((_, Some((0, key)))) => format!("up to {}", show_key(key, notation)),
        Some((to, _)) => format!("before {}", show_key(to, notation)),
        None => "up to the tree's end".to_owned(),
    };
    format!("{tree}: {from} {to}")
}

fn open_output(arguments: &DumpArguments) -> Result<OutputFile> {
    let output = match arguments.force {
        true => OutputFile::create(&arguments.file)?,
        false => OutputFile::create_new(&arguments.file)?,
    };
    if output.is_terminal() && !arguments.force {
        return Err(usage(
            "a dump is binary and not for a terminal: name a file, redirect standard output, or add --force",
        ));
    }
    Ok(output)
}

fn show_dump(report: &DumpReport, as_json: bool) -> String {
    let DumpReport { sequence, trees, records, bytes, dump_bytes, failing, .. } = *report;
    if as_json {
        let report = json!({
            "commit": sequence, "trees": trees, "records": records, "bytes": bytes, "dump_bytes": dump_bytes,
            "failing_merges": failing, "gaps": report.gaps,
        });
        return report.to_string();
    }
    let (records, trees, bytes) = (show_counted(records, "record"), show_counted(trees, "tree"), show_bytes(bytes));
    let mut done =
        format!("dumped {records} of {trees} as of commit {sequence}: {bytes} in {}", show_bytes(dump_bytes));
    if report.gaps > 0 {
        done += &format!("; skipped {}", show_counted(report.gaps, "damaged range"));
    }
    match failing {
        0 => done,
        1 => format!("{done}; the merge function fails on 1 of them, which the dump holds unmerged"),
        _ => format!("{done}; merge functions fail on {} of them, which the dump holds unmerged", show_count(failing)),
    }
}

fn open_input(path: &Path) -> Result<(Box<dyn Read>, Option<u64>)> {
    if is_standard(path) {
        return Ok((Box::new(BufReader::with_capacity(BUFFER_BYTES, io::stdin())), None));
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let len = file.metadata().ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len());
    Ok((Box::new(BufReader::with_capacity(BUFFER_BYTES, file)), len))
}

struct Interruptible<R>(R);

impl<R: Read> Read for Interruptible<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        interrupt::check_io()?;
        self.0.read(buffer)
    }
}

pub fn load(arguments: &LoadArguments) -> Result<u8> {
    let (mut input, len) = open_input(&arguments.file)?;
    let Some(db) = &arguments.db else {
        let info = check_dump(&mut input).with_context(|| arguments.file.display().to_string())?;
        return show_check(&info, arguments.json);
    };
    check_new_directory(db, "the new database")?;
    if arguments.force {
        remove_unfinished(&builder(&arguments.open), db)?;
    }
    let shown = db.display().to_string();
    interrupt::begin(Pace::InOrder, move |end| match end {
        End::InOrder => format!("nothing was loaded into {shown}; run the command again"),
        End::AtOnce => format!("{shown} is not finished and does not open: remove it, and run the command again"),
    });
    let mut input = Interruptible(input);
    let bar = Bar::bytes(len, "load");
    let mut show = |progress: braiddb::dump::LoadProgress| bar.set_bytes(progress.dump_bytes);
    let options =
        LoadOptions::new().threads(threads(arguments.threads)).progress(&mut show).bad_operands(arguments.bad_operands);
    let begun = Instant::now();
    let loaded = making_directory(db, || Ok(builder(&arguments.open).load(db, &mut input, options)?));
    bar.finish();
    let input =
        if is_standard(&arguments.file) { "standard input".into() } else { arguments.file.display().to_string() };
    let report = loaded.with_context(|| format!("{input} was not loaded"))?;
    logging::note_rate("loaded", report.records, begun.elapsed());
    if arguments.json {
        let (trees, records, bytes) = (report.trees, report.records, report.bytes);
        print_line(json!({"commit": report.sequence, "trees": trees, "records": records, "bytes": bytes}))?;
        return Ok(OK);
    }
    print_line(format_args!(
        "loaded {} of {} as of commit {}: {}",
        show_counted(report.records, "record"),
        show_counted(report.trees, "tree"),
        report.sequence,
        show_bytes(report.bytes)
    ))?;
    Ok(OK)
}

fn show_check(info: &DumpInfo, as_json: bool) -> Result<u8> {
    let mut out = Stdout::new();
    for tree in &info.trees {
        let (name, multi, records, bytes) = (&tree.name, tree.multi, tree.records, tree.bytes);
        if as_json {
            writeln!(out, "{}", json!({"name": name, "multi": multi, "records": records, "bytes": bytes}))?;
        } else {
            let kind = if multi { "pairs" } else { "records" };
            writeln!(out, "{}\t{} {kind}, {}", show_name(name), show_count(records), show_bytes(bytes))?;
        }
    }
    if as_json {
        let records: u64 = info.trees.iter().map(|tree| tree.records).sum();
        let end = json!({
            "commit": info.sequence, "trees": info.trees.len(), "records": records, "dump_bytes": info.dump_bytes,
            "merge_functions": info.merge_functions,
        });
        writeln!(out, "{}", json!({"end": end}))?;
    } else {
        for function in &info.merge_functions {
            writeln!(out, "needs the application's merge function: {function}")?;
        }
        writeln!(out, "whole: as of commit {}, {}", info.sequence, show_bytes(info.dump_bytes))?;
    }
    out.finish()?;
    Ok(OK)
}
