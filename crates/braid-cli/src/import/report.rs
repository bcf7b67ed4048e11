//! What an import did, for people and for scripts.

use std::{
    io::{self, Write},
    time::Duration,
};

use serde::Serialize;

use super::{
    format::Format,
    progress::Progress,
    rejects::RejectsReport,
    stages::{Stages, StagesReport},
};
use crate::{
    dirt::{Dirt, DirtTally, KindTally},
    notation::{show_bytes, show_count},
};

/// The outcome of an import.
#[derive(Clone, Debug, Serialize)]
pub struct ImportReport {
    /// Records met, over the whole import.
    pub records: u64,
    /// Of them, those stored.
    pub stored: u64,
    /// Of those, those that took the place of an older one.
    pub replaced: u64,
    /// Those that could not be stored.
    pub skipped: u64,
    /// The record at which this run went on, counted from 1, if it did.
    pub resumed_at: Option<u64>,
    /// Records that earlier runs of the import have stored. What was deleted since is not known.
    pub stored_before: u64,
    /// How long this run took.
    pub seconds: f64,
    /// What the stages of this run did.
    pub stages: StagesReport,
    /// What was wrong with the input.
    pub dirt: DirtTally,
    /// Where the skipped records are, if that was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejects: Option<RejectsReport>,
}

impl ImportReport {
    pub(super) fn new(progress: Progress, stages: &Stages, time: Duration, resumed_at: Option<u64>) -> ImportReport {
        let resumed_at = resumed_at.map(|number| number - progress.plan.number_from + 1);
        ImportReport {
            records: progress.next_number - progress.plan.number_from,
            stored: progress.stored,
            replaced: progress.replaced,
            skipped: progress.skipped,
            resumed_at,
            stored_before: 0,
            seconds: time.as_secs_f64(),
            stages: stages.report(),
            dirt: progress.dirt,
            rejects: None,
        }
    }

    /// What is likely wrong with an input that has records of which none can be stored.
    pub fn why_nothing_usable(&self, format: Format, key: Option<&str>) -> Option<String> {
        if self.records == 0 || self.stored > 0 {
            return None;
        }
        let kinds = self.dirt.kinds().into_iter().filter(|(kind, _)| kind.is_unusable());
        let (kind, tally) = kinds.max_by_key(|(_, tally)| tally.records)?;
        let format = format.name();
        let advice = match (kind, key) {
            (Dirt::MissingKey, Some(key)) => format!("; does --key {key} name a field of it?"),
            (Dirt::MissingKey | Dirt::EmptyKey | Dirt::TooLarge | Dirt::KeyTooLong, _) => String::new(),
            (Dirt::BadType, _) => String::new(),
            (Dirt::WrongColumns, _) => format!("; is it really {format}, and does --delimiter fit?"),
            _ => format!("; is it really {format}?"),
        };
        let (records, of_kind) = (show_count(self.records), show_count(tally.records));
        Some(format!("no record of the input can be stored: {of_kind} of {records}: {}{advice}", kind.explanation()))
    }

    /// Writes it for people. `verb` says what was done with the records: "stored", "converted".
    pub fn write_text(&self, verb: &str, out: &mut dyn Write) -> io::Result<()> {
        if let Some(number) = self.resumed_at {
            let before = show_count(self.stored_before);
            writeln!(out, "went on at record {}: earlier runs have stored {before} records", show_count(number))?;
        }
        let replaced = match self.replaced {
            0 => String::new(),
            count => format!(" ({} of them in place of older ones)", show_count(count)),
        };
        writeln!(
            out,
            "{} records in {:.1} s: {} {verb}{replaced}, {} skipped",
            show_count(self.records),
            self.seconds,
            show_count(self.stored),
            show_count(self.skipped)
        )?;
        write_stages(&self.stages, out)?;
        write_dirt(&self.dirt, out)?;
        match &self.rejects {
            Some(rejects) => write_rejects(rejects, out),
            None => Ok(()),
        }
    }
}

fn write_rejects(rejects: &RejectsReport, out: &mut dyn Write) -> io::Result<()> {
    let RejectsReport { file, records, left_out } = rejects;
    match records {
        0 => writeln!(out, "  no record was rejected into {file}")?,
        _ => writeln!(out, "  {} rejected: in {file}, to be mended and imported the same way", show_count(*records))?,
    }
    if *left_out > 0 {
        writeln!(out, "  {} too large, or links to files that were not found: not in {file}", show_count(*left_out))?;
    }
    Ok(())
}

/// One line a stage.
pub fn write_stages(stages: &StagesReport, out: &mut dyn Write) -> io::Result<()> {
    for (name, stage) in stages.named().into_iter().filter(|(_, stage)| stage.records > 0) {
        writeln!(
            out,
            "  {name:<6} {:>9} records/s {:>11}/s   {:.1} s at work",
            show_count(stage.records_per_second() as u64),
            show_bytes(stage.bytes_per_second() as u64),
            stage.busy_ns as f64 / 1e9
        )?;
    }
    Ok(())
}

/// The kinds of dirt, with their samples.
pub fn write_dirt(dirt: &DirtTally, out: &mut dyn Write) -> io::Result<()> {
    for (kind, KindTally { records, samples, .. }) in dirt.kinds() {
        let outcome = if kind.is_unusable() { "skipped" } else { "kept" };
        writeln!(out, "  {:>9} {} ({outcome}): {}", show_count(*records), kind.name(), kind.explanation())?;
        for sample in samples {
            writeln!(out, "            {}: {}", sample.place(), sample.detail)?;
        }
    }
    Ok(())
}
