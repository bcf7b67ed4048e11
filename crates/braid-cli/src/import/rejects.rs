//! `--rejects FILE`: records that cannot be stored, as they are in the input.
//!
//! The file has the form of the input, so that the same command imports it once its records are
//! mended.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::json_output::JsonOutput;

/// The open file.
pub struct Rejects {
    out: JsonOutput,
    /// The row that names the columns, until it is written.
    header: Option<Vec<u8>>,
    report: RejectsReport,
}

/// What was rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RejectsReport {
    /// The file.
    pub file: String,
    /// The records in it.
    pub records: u64,
    /// Records that are too large to be in it.
    pub left_out: u64,
}

impl Rejects {
    /// Begins the file; `header` comes before the first record.
    pub fn create(path: &Path, header: Option<Vec<u8>>) -> Result<Rejects> {
        let report = RejectsReport { file: path.display().to_string(), ..RejectsReport::default() };
        Ok(Rejects { out: JsonOutput::create(path)?, header, report })
    }

    /// Adds a record; `None` is one that is too large to be held.
    pub fn add(&mut self, raw: Option<&[u8]>) -> Result<()> {
        let Some(raw) = raw else {
            self.report.left_out += 1;
            return Ok(());
        };
        if let Some(header) = self.header.take() {
            self.out.line(&header)?;
        }
        self.report.records += 1;
        self.out.line(raw.strip_suffix(b"\n").unwrap_or(raw))
    }

    /// Ends the file: then it is on the disk, under its name.
    pub fn finish(self) -> Result<RejectsReport> {
        self.out.finish()?;
        Ok(self.report)
    }
}

/// A row that names columns.
pub fn header_row(columns: &[String], delimiter: u8, is_quoted: bool) -> Vec<u8> {
    let mut row = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            row.push(delimiter);
        }
        let is_plain = !column.bytes().any(|byte| matches!(byte, b'"' | b'\n' | b'\r') || byte == delimiter);
        if is_plain || !is_quoted {
            row.extend_from_slice(column.as_bytes());
        } else {
            row.extend_from_slice(format!("\"{}\"", column.replace('"', "\"\"")).as_bytes());
        }
    }
    row
}
