//! An import from beginning to end.

use std::{
    io::Read,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use anyhow::Result;
use braiddb::{Db, Durability};

use super::{
    format::{Format, KeySource, RecordParser},
    index::{IndexSpec, Indexes},
    index_store::tree_id,
    json_output::JsonOutput,
    keys::NewNotation,
    load::Load,
    pipeline::{self, ParsedRecord, Parsing, RecordSource},
    progress::{IMPORT_TREE, Plan, Progress},
    report::ImportReport,
    stages::Stages,
    writer::DatabaseWriter,
};
use crate::{
    bar::Bar,
    exit::{INPUT, failure, usage},
    freedb::decode_fields,
    input::{Place, RowReader, Source, split_fields, unreadable},
    notation::show_name,
};

/// What to do at a record that cannot be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OnError {
    /// Count it and go on.
    #[default]
    Skip,
    /// Store what came before it, and end.
    Stop,
}

/// Where records go.
pub enum Target {
    /// Into a tree.
    Database {
        /// The database.
        db: Db,
        /// The tree.
        tree: String,
        /// The indexes it shall have.
        indexes: Vec<IndexSpec>,
        /// Of each batch.
        durability: Durability,
        /// Whether to say on standard output what is durable.
        acknowledge: bool,
        /// Whether to go on where an earlier import stopped; and to go about it so that it can be gone on with.
        resume: bool,
    },
    /// Into a file of JSON lines.
    Json(PathBuf),
    /// Nowhere.
    Nothing,
}

/// An import to be done.
pub struct ImportJob {
    /// The input.
    pub source: Source,
    /// What it is written in.
    pub format: Format,
    /// Where keys come from: `FIELD` or `FIELD:u64`; without it they are record numbers.
    pub key: Option<String>,
    /// The number of the first record, if one is given.
    pub number_from: Option<u64>,
    /// What to do at a record that cannot be stored.
    pub on_error: OnError,
    /// Where records go.
    pub target: Target,
    /// How many parsers.
    pub threads: usize,
}

enum Output {
    Database(Box<DatabaseWriter>),
    Load(Box<Load>),
    Json(JsonOutput),
    Nothing,
}

/// The writing side of a running import.
struct Intake<'a> {
    progress: Progress,
    output: Output,
    on_error: OnError,
    stages: &'a Stages,
    bar: &'a Bar,
}

impl ImportJob {
    /// Does it.
    pub fn run(self) -> Result<ImportReport> {
        let began = Instant::now();
        let mut plan = Plan {
            source: self.source.identity.clone(),
            format: self.format.name().to_owned(),
            key: self.key.clone(),
            number_from: self.number_from.unwrap_or(0),
            indexes: Vec::new(),
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
            return Ok(ImportReport::new(progress, &stages, began.elapsed(), resumed_at));
        }
        let from = match self.format {
            Format::Freedb => Place::of(progress.next_offset).offset,
            _ => progress.next_offset,
        };
        let reader = self.source.into_reader(from)?;
        let source = open_records(reader, self.format, &mut progress)?;
        let parser = RecordParser {
            format: self.format,
            columns: progress.columns.clone(),
            key: KeySource::parse(self.key.as_deref()),
        };
        let specs = progress.plan.indexes.clone();
        let first_number = progress.next_number;
        let mut intake = Intake { progress, output, on_error: self.on_error, stages: &stages, bar: &bar };
        let parsing = Parsing { parser: &parser, specs: &specs, stages: &stages, threads: self.threads.max(1) };
        let result = pipeline::run(source, first_number, parsing, &mut |chunk| intake.take_chunk(chunk));
        let progress = intake.finish(result)?;
        bar.finish();
        Ok(ImportReport::new(progress, &stages, began.elapsed(), resumed_at))
    }
}

/// Opens the target; with the progress of the import that is to go on, if that is asked and there is one.
fn open_output(target: Target, plan: &mut Plan, is_numbered: bool) -> Result<(Output, Option<Progress>)> {
    let (db, tree, indexes, durability, acknowledge, resume) = match target {
        Target::Nothing => return Ok((Output::Nothing, None)),
        Target::Json(path) => return Ok((Output::Json(JsonOutput::create(&path)?), None)),
        Target::Database { db, tree, indexes, durability, acknowledge, resume } => {
            (db, tree, indexes, durability, acknowledge, resume)
        }
    };
    if tree == IMPORT_TREE {
        return Err(usage(format!("the tree {IMPORT_TREE} holds what imports know: choose another name")));
    }
    let notation = NewNotation::of_import(&db, &tree, plan.key.as_deref())?;
    let declaration = Indexes::declare(&db, &tree, &indexes)?;
    refuse_other_kind(&db, &tree)?;
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

/// Refuses to number records from 0 again in a tree that has some: they would take the place of the others, unasked.
fn refuse_to_overwrite(db: &Db, tree: &str) -> Result<()> {
    if tree_id(db, tree)?.is_none() {
        return Ok(());
    }
    let Some((last, _)) = db.open_tree(tree)?.last()? else { return Ok(()) };
    let name = show_name(tree);
    let append = match <[u8; 8]>::try_from(&*last).ok().and_then(|bytes| u64::from_be_bytes(bytes).checked_add(1)) {
        Some(next) => format!("--number-from {next} to add to them, "),
        None => String::new(),
    };
    Err(usage(format!(
        "the tree {name} has records, and without --key the new ones are numbered from 0 and would take their place: give \
         --key FIELD, {append}--number-from 0 to replace them, or --resume to go on with an import"
    )))
}

/// Refuses a tree of many values to a key, before anything changes.
fn refuse_other_kind(db: &Db, tree: &str) -> Result<()> {
    if db.trees()?.iter().any(|known| known.name == tree && known.multi) {
        return Err(usage(format!(
            "the tree {} keeps many values to a key: records go into a tree of one",
            show_name(tree)
        )));
    }
    Ok(())
}

/// Makes records of bytes; where an import begins, reads the row that names the columns.
fn open_records(reader: Box<dyn Read + Send>, format: Format, progress: &mut Progress) -> Result<RecordSource> {
    let Some(style) = format.row_style() else {
        return Ok(RecordSource::Archive(reader, Place::of(progress.next_offset)));
    };
    let mut rows = RowReader::new(reader, style, progress.next_offset);
    if format.has_header() && progress.columns.is_empty() {
        // An empty input has no records, whatever its format.
        let Some(header) = rows.next_row().map_err(unreadable)? else { return Ok(RecordSource::Rows(rows)) };
        let names = split_fields(header.bytes, style);
        progress.columns = decode_fields(names.iter().map(AsRef::as_ref)).0;
        progress.next_offset = header.next_offset;
        if let Some(name) = first_repeated(&progress.columns) {
            return Err(failure(INPUT, format!("two columns of the input are named {name:?}")));
        }
    }
    Ok(RecordSource::Rows(rows))
}

fn first_repeated(names: &[String]) -> Option<&String> {
    names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)).map(|(_, name)| name)
}

impl Intake<'_> {
    fn take_chunk(&mut self, chunk: Vec<ParsedRecord>) -> Result<()> {
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
        if record.ready.is_none() && self.on_error == OnError::Stop {
            let place = if record.place.is_empty() { String::new() } else { format!(" ({})", record.place) };
            let why = record.findings.iter().find(|finding| finding.dirt.is_unusable());
            let why = why.map_or(String::new(), |why| format!("{}: {}", why.dirt.explanation(), why.detail));
            return Err(failure(INPUT, format!("record {}{place} cannot be stored: {why}", record.number)));
        }
        self.progress.dirt.add(record.number, &record.place, &record.findings);
        match record.ready {
            None => self.progress.skipped += 1,
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
        match &mut self.output {
            Output::Database(writer) if writer.is_full() => writer.commit(&mut self.progress, self.stages),
            _ => Ok(()),
        }
    }

    /// Commits what is left: after an error of the input too, since the records before it are whole.
    fn finish(mut self, result: Result<()>) -> Result<Progress> {
        let engine_failed = result.as_ref().is_err_and(|error| error.downcast_ref::<braiddb::Error>().is_some());
        self.progress.complete = result.is_ok();
        let began = Instant::now();
        match self.output {
            Output::Database(mut writer) if !engine_failed => {
                writer.commit(&mut self.progress, self.stages)?;
                self.stages.write.worked(began, 0, 0);
                writer.close()?;
            }
            Output::Load(load) if !engine_failed => {
                load.finish(&mut self.progress)?;
                self.stages.write.worked(began, 0, 0);
            }
            Output::Load(load) => load.abandon(),
            Output::Json(file) if result.is_ok() => file.finish()?,
            _ => {}
        }
        result.map(|()| self.progress)
    }
}
