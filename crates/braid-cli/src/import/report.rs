//! The report of an import, as text and as JSON.

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
    notation::{show_bytes, show_count, show_counted},
};

#[derive(Clone, Debug, Serialize)]
pub struct ImportReport {
    pub records: u64,
    pub stored: u64,
    pub replaced: u64,
    pub skipped: u64,
    pub resumed_at: Option<u64>,
    /// Records that earlier runs stored, including records deleted since.
    pub stored_before: u64,
    pub seconds: f64,
    pub stages: StagesReport,
    pub dirt: DirtTally,
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

    pub fn write_text(&self, verb: &str, out: &mut dyn Write) -> io::Result<()> {
        if let Some(number) = self.resumed_at {
            let before = show_counted(self.stored_before, "record");
            writeln!(out, "resumed at record {}: earlier runs stored {before}", show_count(number))?;
        }
        let replaced = match self.replaced {
            0 => String::new(),
            count => format!(" ({} of them replaced older ones)", show_count(count)),
        };
        writeln!(
            out,
            "{} in {:.1} s: {} {verb}{replaced}, {} skipped",
            show_counted(self.records, "record"),
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
        0 => writeln!(out, "  no record was rejected: {file} is empty")?,
        _ => {
            writeln!(out, "  {} rejected into {file}: correct them, and import it the same way", show_count(*records))?
        }
    }
    if *left_out > 0 {
        writeln!(out, "  {} not in {file}: too large, or links to missing files", show_count(*left_out))?;
    }
    Ok(())
}

pub fn write_stages(stages: &StagesReport, out: &mut dyn Write) -> io::Result<()> {
    for (name, stage) in stages.named().into_iter().filter(|(_, stage)| stage.records > 0) {
        writeln!(
            out,
            "  {name:<6} {:>9} records/s {:>11}/s   {:.1} s busy",
            show_count(stage.records_per_second() as u64),
            show_bytes(stage.bytes_per_second() as u64),
            stage.busy_ns as f64 / 1e9
        )?;
    }
    Ok(())
}

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
