//! `--rejects FILE`: the skipped records, byte for byte, in the format of the input.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::json_output::JsonOutput;

const ARCHIVE_END_BYTES: usize = 1024;

pub struct Rejects {
    out: JsonOutput,
    form: Form,
    report: RejectsReport,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// Lines or rows. Holds the row of column names until it is written.
    Text(Option<Vec<u8>>),
    Archive,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RejectsReport {
    pub file: String,
    pub records: u64,
    /// Skipped records that are not in the file: too large, or links to missing files.
    pub left_out: u64,
}

impl Rejects {
    pub fn create(path: &Path, form: Form) -> Result<Rejects> {
        let report = RejectsReport { file: path.display().to_string(), ..RejectsReport::default() };
        Ok(Rejects { out: JsonOutput::create_outliving_signals(path)?, form, report })
    }

    /// Adds a record; `raw` is `None` if its bytes are not available.
    pub fn add(&mut self, path: &str, raw: Option<&[u8]>) -> Result<()> {
        let Some(raw) = raw else {
            self.report.left_out += 1;
            return Ok(());
        };
        self.report.records += 1;
        let Form::Text(header) = &mut self.form else { return self.out.bytes(&archive_member(path, raw)?) };
        if let Some(header) = header.take() {
            self.out.line(&header)?;
        }
        self.out.line(raw.strip_suffix(b"\n").unwrap_or(raw))
    }

    pub fn finish(mut self) -> Result<RejectsReport> {
        if self.form == Form::Archive && self.report.records > 0 {
            self.out.bytes(&[0; ARCHIVE_END_BYTES])?;
        }
        self.out.finish()?;
        Ok(self.report)
    }
}

fn archive_member(path: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, path, bytes)?;
    let mut member = builder.into_inner()?;
    member.truncate(member.len() - ARCHIVE_END_BYTES);
    Ok(member)
}

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
