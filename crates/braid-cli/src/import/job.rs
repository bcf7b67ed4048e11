//! Runs an import from start to end.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use anyhow::Result;
use braiddb::{Db, Durability};

use super::{
    format::{Format, KeySource, RecordParser},
    header::open_records,
    index::{IndexSpec, Indexes},
    index_store::tree_id,
    json_output::JsonOutput,
    keys::NewNotation,
    load::{FailedLoad, Left, Load},
    pipeline::{self, ParsedRecord, Parsing},
    progress::{IMPORT_TREE, Plan, Progress},
    rejects::{Form, Rejects, RejectsReport, header_row},
    report::ImportReport,
    stages::Stages,
    table::TableOptions,
    writer::DatabaseWriter,
};
use crate::{
    bar::Bar,
    command_line,
    dirt::shown,
    exit::{self, INPUT, failure, usage},
    input::{Place, RowStyle, Source},
    interrupt::{self, Pace},
    notation::{show_counted, show_name},
    output::note,
    typed,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OnError {
    /// Count it and continue.
    #[default]
    Skip,
    /// Store the records before it, and end.
    Stop,
}

pub enum Target {
    Database {
        db: Db,
        tree: String,
        indexes: Vec<IndexSpec>,
        durability: Durability,
        acknowledge: bool,
        /// Continue an earlier import, and store in batches.
        resume: bool,
    },
    Json(PathBuf),
    Nothing,
}

pub struct ImportJob {
    pub source: Source,
    pub format: Format,
    /// `FIELD` or `FIELD:u64`; `None` numbers the records.
    pub key: Option<String>,
    pub number_from: Option<u64>,
    pub on_error: OnError,
    pub table: TableOptions,
    pub rejects: Option<PathBuf>,
    pub target: Target,
    pub threads: usize,
}

enum Output {
    Database(Box<DatabaseWriter>),
    Load(Box<Load>),
    Json(JsonOutput),
    Nothing,
}

struct Intake<'a> {
    progress: Progress,
    output: Output,
    on_error: OnError,
    rejects: Option<Rejects>,
    rejects_path: Option<PathBuf>,
    stages: &'a Stages,
    bar: &'a Bar,
    stored: Arc<AtomicU64>,
}

impl ImportJob {
    pub fn run(self) -> Result<ImportReport> {
        let began = Instant::now();
        interrupt::begin(Pace::InOrder, |_| "nothing was stored; run the command again".to_owned());
        let mut plan = Plan {
            source: self.source.identity.clone(),
            format: self.format.name().to_owned(),
            key: self.key.clone(),
            number_from: self.number_from.unwrap_or(0),
            indexes: Vec::new(),
            table: self.table,
        };
        let (output, found) = open_output(self.target, &mut plan, self.number_from.is_some())?;
        let resumed_at = found.as_ref().map(|progress| progress.next_number);
        let mut progress = found.unwrap_or_else(|| Progress::begin(plan));
        let stages = Stages { raw_bytes: Arc::clone(&self.source.raw_bytes), ..Stages::default() };
        let bar = Bar::bytes(self.source.identity.length, "import");
        if progress.complete {
            if let Output::Database(writer) = output {
                writer.acknowledge(&progress, &stages)?;
                writer.close()?;
            }
            let stored_before = progress.stored;
            let report = ImportReport::new(progress, &stages, began.elapsed(), resumed_at);
            return Ok(ImportReport { stored_before, ..report });
        }
        let from = match self.format {
            Format::Freedb => Place::of(progress.next_offset).offset,
            _ => progress.next_offset,
        };
        let table = progress.plan.table.clone();
        let style = self.format.row_style(&table);
        let reader = match style {
            Some(style) => self.source.into_text(from, style)?,
            None => self.source.into_reader(from)?,
        };
        let source = open_records(reader, self.format, &mut progress)?;
        let key = KeySource::parse(self.key.as_deref());
        let parser = RecordParser::new(self.format, &table, &progress.columns, key);
        let rejects_path = self.rejects.clone();
        let rejects = open_rejects(self.rejects, style, &progress, resumed_at.is_some())?;
        let specs = progress.plan.indexes.clone();
        let first_number = progress.next_number;
        let stored_before = progress.stored;
        let stored = begin_interruptible(&output, stored_before, rejects_path.clone());
        let on_error = self.on_error;
        let mut intake =
            Intake { progress, output, on_error, rejects, rejects_path, stages: &stages, bar: &bar, stored };
        let parsing = Parsing { parser: &parser, specs: &specs, stages: &stages, threads: self.threads.max(1) };
        let result = pipeline::run(source, first_number, parsing, &mut |chunk| intake.take_chunk(chunk));
        let (progress, rejects) = intake.finish(result)?;
        bar.finish();
        let report = ImportReport::new(progress, &stages, began.elapsed(), resumed_at);
        Ok(ImportReport { rejects, stored_before, ..report })
    }
}

/// Registers the interrupt message. Returns its count of stored records.
fn begin_interruptible(output: &Output, stored_before: u64, rejects: Option<PathBuf>) -> Arc<AtomicU64> {
    let stored = Arc::new(AtomicU64::new(stored_before));
    let shown = Arc::clone(&stored);
    let (is_load, ended) = match output {
        Output::Database(_) => (false, None),
        Output::Load(_) => (true, None),
        Output::Json(_) => (false, Some("the output is missing or incomplete; run the command again")),
        Output::Nothing => (false, Some("the dry run is incomplete, and nothing was stored")),
    };
    interrupt::begin(Pace::InOrder, move |_| {
        let command = || command_line::with_resume(rejects.as_deref());
        match (ended, is_load, shown.load(Ordering::Relaxed)) {
            (Some(ended), ..) => ended.to_owned(),
            (None, true, _) => {
                format!("nothing was stored; begin again in a way that can be interrupted and go on: {}", command())
            }
            (None, false, 0) => format!("no record is stored; begin again with: {}", command()),
            (None, false, stored) => {
                format!("stored {}; continue after that with: {}", show_counted(stored, "record"), command())
            }
        }
    });
    stored
}

fn open_output(target: Target, plan: &mut Plan, is_numbered: bool) -> Result<(Output, Option<Progress>)> {
    let (db, tree, indexes, durability, acknowledge, resume) = match target {
        Target::Nothing => return Ok((Output::Nothing, None)),
        Target::Json(path) => return Ok((Output::Json(JsonOutput::create(&path)?), None)),
        Target::Database { db, tree, indexes, durability, acknowledge, resume } => {
            (db, tree, indexes, durability, acknowledge, resume)
        }
    };
    if tree == IMPORT_TREE {
        return Err(usage(format!("the tree {IMPORT_TREE} is reserved: choose another name")));
    }
    let notation = NewNotation::of_import(&db, &tree, plan.key.as_deref())?;
    let declaration = Indexes::declare(&db, &tree, &indexes)?;
    refuse_other_kind(&db, &tree)?;
    typed::check_import(&db, &tree)?;
    plan.indexes.clone_from(&declaration.specs);
    let found = if resume { Progress::find(&db, &tree)? } else { None };
    match &found {
        Some(found) => {
            if !is_numbered {
                plan.number_from = found.plan.number_from;
            }
            found.plan.check_same(plan)?;
        }
        None if plan.key.is_none() && !is_numbered => refuse_to_overwrite(&db, &tree)?,
        None => {}
    }
    declaration.refuse_if_it_would_lack_records(&db, &tree)?;
    let is_empty = tree_id(&db, &tree)?.is_none() || db.open_tree(&tree)?.first()?.is_none();
    if is_empty && !resume && !acknowledge && declaration.specs.is_empty() {
        return Ok((Output::Load(Box::new(Load::begin(db, &tree, notation)?)), None));
    }
    let mut writer = DatabaseWriter::new(db, &tree, notation, declaration, durability, acknowledge);
    if found.is_some() {
        writer.establish()?;
    }
    Ok((Output::Database(Box::new(writer)), found))
}

/// Refuses to number records from 0 in a tree with records.
fn refuse_to_overwrite(db: &Db, tree: &str) -> Result<()> {
    if tree_id(db, tree)?.is_none() {
        return Ok(());
    }
    let Some((last, _)) = db.open_tree(tree)?.last()? else { return Ok(()) };
    let name = show_name(tree);
    let append = match <[u8; 8]>::try_from(&*last).ok().and_then(|bytes| u64::from_be_bytes(bytes).checked_add(1)) {
        Some(next) => format!("--number-from {next} to append, "),
        None => String::new(),
    };
    Err(usage(format!(
        "the tree {name} has records, and without --key the new ones are numbered from 0 and would replace them: add \
         --key FIELD, {append}--number-from 0 to replace them, or --resume to continue an import"
    )))
}

fn refuse_other_kind(db: &Db, tree: &str) -> Result<()> {
    if db.tree_info(tree)?.is_some_and(|known| known.multi) {
        return Err(usage(format!(
            "the tree {} is a multi-value tree: choose a tree with one value per key",
            show_name(tree)
        )));
    }
    Ok(())
}

fn open_rejects(
    path: Option<PathBuf>,
    style: Option<RowStyle>,
    progress: &Progress,
    is_resumed: bool,
) -> Result<Option<Rejects>> {
    let Some(path) = path else { return Ok(None) };
    if is_resumed && path.is_file() {
        return Err(usage(format!(
            "{} has the records that an earlier run rejected: name another file for --rejects",
            path.display()
        )));
    }
    let form = match style {
        None => Form::Archive,
        Some(style) => Form::Text(match style.delimiter() {
            Some(delimiter) if !progress.plan.table.no_header => {
                Some(header_row(&progress.columns, delimiter, matches!(style, RowStyle::Csv(_))))
            }
            _ => None,
        }),
    };
    Ok(Some(Rejects::create(&path, form)?))
}

impl Intake<'_> {
    fn take_chunk(&mut self, chunk: Vec<ParsedRecord>) -> Result<()> {
        interrupt::check()?;
        let began = Instant::now();
        let (records, mut bytes) = (chunk.len() as u64, 0);
        for record in chunk {
            bytes += record.ready.as_ref().map_or(0, |ready| ready.key.len() + ready.json.len()) as u64;
            self.take(record)?;
        }
        self.stages.write.worked(began, records, bytes);
        self.bar.set(self.stages.raw_bytes.load(Ordering::Relaxed), self.progress.stored);
        Ok(())
    }

    fn take(&mut self, record: ParsedRecord) -> Result<()> {
        let number = record.number - self.progress.plan.number_from + 1;
        if record.ready.is_none() && self.on_error == OnError::Stop {
            let place = if record.place.is_empty() { String::new() } else { format!(" {}", record.place) };
            let place = format!("{number}{place}{}", shown(record.position));
            let why = record.findings.iter().find(|finding| finding.dirt.is_unusable());
            let why = why.map_or(String::new(), |why| format!("{}: {}", why.dirt.explanation(), why.detail));
            return Err(failure(INPUT, format!("record {place} cannot be stored: {why}")));
        }
        self.progress.dirt.add(number, record.position, &record.place, &record.findings);
        match record.ready {
            None => {
                self.progress.skipped += 1;
                if let Some(rejects) = &mut self.rejects {
                    rejects.add(&record.place, record.raw.as_deref())?;
                }
            }
            Some(ready) => {
                self.progress.stored += 1;
                match &mut self.output {
                    Output::Database(writer) => self.progress.replaced += u64::from(writer.store(ready)?),
                    Output::Load(load) => load.store(&ready)?,
                    Output::Json(file) => file.line(&ready.json)?,
                    Output::Nothing => {}
                }
            }
        }
        self.progress.next_number = record.number + 1;
        self.progress.next_offset = record.next_offset;
        self.progress.next_line = record.position.line_after();
        match &mut self.output {
            Output::Database(writer) if writer.is_full() => writer.commit(&mut self.progress, self.stages)?,
            _ => return Ok(()),
        }
        self.stored.store(self.progress.stored, Ordering::Relaxed);
        Ok(())
    }

    /// Commits the remaining records, also after an error of the input.
    fn finish(mut self, result: Result<()>) -> Result<(Progress, Option<RejectsReport>)> {
        let engine_failed = result.as_ref().is_err_and(is_of_engine);
        let is_interrupted = result.is_err() && interrupt::check().is_err();
        let rejects = self.rejects.take().filter(|_| self.keeps_rejects(&result, is_interrupted));
        let rejects = rejects.map(Rejects::finish).transpose();
        let (result, rejects) = match rejects {
            Ok(rejects) => (result, rejects),
            Err(error) => (result.and(Err(error)), None),
        };
        self.progress.complete = result.is_ok();
        let began = Instant::now();
        let output = std::mem::replace(&mut self.output, Output::Nothing);
        let is_stored = !engine_failed && matches!(output, Output::Database(_) | Output::Load(_));
        match output {
            Output::Database(mut writer) => {
                let committed = match engine_failed {
                    true => result,
                    false => writer.commit(&mut self.progress, self.stages).and(result),
                };
                if let Err(error) = committed {
                    return Err(self.give_up(*writer, error, is_interrupted));
                }
                self.stored.store(self.progress.stored, Ordering::Relaxed);
                self.stages.write.worked(began, 0, 0);
                writer.close()?;
                return Ok((self.progress, rejects));
            }
            // An interrupted import skips the long sort and merge.
            Output::Load(load) if !engine_failed && !is_interrupted => {
                if let Err(FailedLoad { error, left }) = load.finish(&mut self.progress) {
                    note_left(left, self.rejects_path.as_deref());
                    return Err(error);
                }
                self.stages.write.worked(began, 0, 0);
            }
            Output::Load(load) => {
                load.abandon();
                if !is_interrupted {
                    note_nothing_loaded(self.rejects_path.as_deref());
                }
            }
            // If all records of an input are bad, the old output file stays.
            Output::Json(file) if result.is_ok() && !self.progress.stores_none() => file.finish()?,
            _ => {}
        }
        if let Err(error) = result {
            let stored = self.progress.stored;
            if is_stored && stored > 0 && !is_interrupted {
                note!("braid: stored {} before the error", show_counted(stored, "record"));
            }
            return Err(error);
        }
        Ok((self.progress, rejects))
    }

    /// Keeps the file of skipped records if records are stored, or if the input has only bad
    /// records.
    fn keeps_rejects(&self, result: &Result<()>, is_interrupted: bool) -> bool {
        let Err(error) = result else { return true };
        match &self.output {
            Output::Database(_) => !is_of_engine(error) || self.stored.load(Ordering::Relaxed) > 0,
            Output::Load(_) => !is_of_engine(error) && !is_interrupted,
            Output::Json(_) | Output::Nothing => false,
        }
    }

    fn give_up(&self, writer: DatabaseWriter, error: anyhow::Error, is_interrupted: bool) -> anyhow::Error {
        let is_of_input = exit::code_of(&error) == INPUT;
        if !is_of_engine(&error) {
            self.stored.store(self.progress.stored, Ordering::Relaxed);
        }
        let stored = self.stored.load(Ordering::Relaxed);
        let is_durable = writer.abandon();
        if is_interrupted {
            return error;
        }
        let (records, command) =
            (show_counted(stored, "record"), command_line::with_resume(self.rejects_path.as_deref()));
        match (stored, is_of_input) {
            (0, true) => {}
            (_, true) => note!("braid: stored {records} before the error"),
            (0, false) => note!("braid: no record is stored; start again with: {command}"),
            _ if !is_of_engine(&error) => {
                note!("braid: stored {records} before the error; continue after that with: {command}");
            }
            _ if is_durable => {
                note!("braid: stored {records}, now on disk; continue after that with: {command}");
            }
            _ => note!("braid: stored at most {records}; continue after that with: {command}"),
        }
        error
    }
}

fn is_of_engine(error: &anyhow::Error) -> bool {
    error.downcast_ref::<braiddb::Error>().is_some()
}

fn note_left(left: Left, rejects: Option<&Path>) {
    match left {
        Left::Nothing => note_nothing_loaded(rejects),
        Left::Records(count) => note!(
            "braid: stored {}, but the import is not recorded as complete: delete everything with \
             `braid del DB TREE --prefix ''` before you import again",
            show_counted(count, "record")
        ),
        Left::All(count) => note!("braid: stored all of {}: the import is complete", show_counted(count, "record")),
    }
}

fn note_nothing_loaded(rejects: Option<&Path>) {
    note!(
        "braid: nothing is stored: without --resume, an import into an empty tree stores all records or none. With it, records \
         are stored batch by batch, and an interrupted import can continue: {}",
        command_line::with_resume(rejects)
    );
}
