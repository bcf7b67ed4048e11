//! `braid import`

use std::{fs, io::Write, thread};

use anyhow::{Context, Result};

use super::open::open_for_writing;
use crate::{
    arguments::ImportArguments,
    exit::{INPUT, OK, failure, usage},
    import::{Format, ImportJob, IndexSpec, Target},
    input::Source,
};

/// Where discs go.
const FREEDB_TREE: &str = "albums";

/// The queries of a disc player: by id, by artist, by title.
const FREEDB_INDEXES: [&str; 3] = ["by_disc_id=disc_ids", "by_artist=artist:lower", "by_title=title:lower"];

/// Imports a file.
pub fn import(arguments: ImportArguments) -> Result<u8> {
    let format = arguments.format.or_else(|| Format::of_name(&arguments.file));
    if format.is_none() && arguments.file.as_os_str() != "-" {
        // That a file is missing comes before what its name does not say.
        fs::metadata(&arguments.file).with_context(|| format!("cannot open {}", arguments.file.display()))?;
    }
    let Some(format) = format else {
        return Err(usage("the input's name does not say its format: give --format"));
    };
    let source = Source::open(&arguments.file)?;
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
        threads: arguments.threads.map_or_else(processors, usize::from),
        target: target(&arguments, format)?,
    };
    let report = job.run()?;
    let mut text = Vec::new();
    if arguments.json {
        serde_json::to_writer(&mut text, &report)?;
        text.push(b'\n');
    } else {
        report.write_text(verb, &mut text)?;
    }
    let stdout_is_taken = arguments.acknowledge || arguments.to_jsonl.is_some_and(|path| path.as_os_str() == "-");
    if stdout_is_taken {
        std::io::stderr().lock().write_all(&text)?;
    } else {
        std::io::stdout().lock().write_all(&text)?;
    }
    match report.why_nothing_usable(format, arguments.key.as_deref()) {
        Some(why) => Err(failure(INPUT, why)),
        None => Ok(OK),
    }
}

fn target(arguments: &ImportArguments, format: Format) -> Result<Target> {
    if arguments.dry_run {
        return Ok(Target::Nothing);
    }
    if let Some(path) = &arguments.to_jsonl {
        return Ok(Target::Json(path.clone()));
    }
    let tree = match (&arguments.tree, format) {
        (Some(tree), _) => tree.clone(),
        (None, Format::Freedb) => FREEDB_TREE.to_owned(),
        (None, _) => return Err(usage("give the tree to store records in: --tree TREE")),
    };
    let mut indexes = arguments.indexes.clone();
    if format == Format::Freedb && indexes.is_empty() {
        indexes = FREEDB_INDEXES.iter().filter_map(|text| IndexSpec::parse(text).ok()).collect();
    }
    Ok(Target::Database {
        db: open_for_writing(&arguments.db, &arguments.open, true)?,
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
