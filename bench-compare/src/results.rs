//! The file of results: a line of JSON for each machine and row, appended at once.

use crate::{machine::Machine, parts::PartsRow, workloads::Measure};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    path::Path,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    Failed,
    Timeout,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RowKey {
    pub n: u64,
    pub workload: String,
    pub engine: String,
    pub round: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    #[serde(flatten)]
    pub key: RowKey,
    pub status: Status,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub child_seconds: f64,
    /// Measured with `--keep-loads`: the database may be a copy, and was reopened after the load.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept_loads: bool,
    #[serde(flatten)]
    pub outcome: Outcome,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub budget_bytes: u64,
    /// Peak resident memory, mapped files included.
    pub resident_peak_bytes: u64,
    /// About 4 MB are the harness's.
    pub anonymous_peak_bytes: u64,
    pub measures: Vec<Measure>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    Machine(Machine),
    Row(Row),
    Parts(PartsRow),
}

#[derive(Debug, Default)]
pub struct Results {
    pub machines: Vec<Machine>,
    pub rows: BTreeMap<RowKey, Row>,
    /// The last run of `parts` at each N.
    pub parts: BTreeMap<u64, PartsRow>,
}

impl Results {
    /// A missing file is empty. An incomplete last line is ignored.
    pub fn read(path: &Path) -> Result<Results> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.with_context(|| path.display().to_string())?,
        };
        Results::parse(&text)
    }

    fn parse(text: &str) -> Result<Results> {
        let mut results = Results::default();
        for (number, line) in text.split_inclusive('\n').enumerate().filter(|(_, line)| line.ends_with('\n')) {
            match serde_json::from_str(line).with_context(|| format!("line {}", number + 1))? {
                Line::Machine(machine) => results.machines.push(machine),
                Line::Row(row) => drop(results.rows.insert(row.key.clone(), row)),
                Line::Parts(parts) => drop(results.parts.insert(parts.n, parts)),
            }
        }
        Ok(results)
    }
}

/// Appends a line and removes an incomplete one before it.
pub fn append(path: &Path, line: &Line) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let text = fs::read(path)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < text.len() {
        file.set_len(whole as u64)?;
    }
    let mut line = serde_json::to_string(line)?;
    line.push('\n');
    file.write_all(line.as_bytes())?;
    Ok(file.sync_data()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(round: u32, status: Status) -> Line {
        let key = RowKey { n: 5, workload: "overwrite".into(), engine: "sled".into(), round };
        let outcome = Outcome::default();
        Line::Row(Row { key, status, reason: String::new(), child_seconds: 1.5, kept_loads: false, outcome })
    }

    #[test]
    fn results_with_torn_line_keep_last_row_of_each_key() -> Result<()> {
        let path = std::env::temp_dir().join(format!("bench-compare-results-{}", std::process::id()));
        for line in [row(1, Status::Timeout), row(1, Status::Ok), row(2, Status::Failed)] {
            append(&path, &line)?;
        }
        let whole = fs::read(&path)?;
        fs::write(&path, &whole[..whole.len() - 10])?;
        let results = Results::read(&path)?;
        let statuses: Vec<Status> = results.rows.values().map(|row| row.status).collect();
        append(&path, &row(3, Status::Ok))?;
        let after = Results::read(&path)?;
        fs::remove_file(&path)?;
        assert_eq!(statuses, [Status::Ok]);
        assert_eq!(after.rows.keys().map(|key| key.round).collect::<Vec<_>>(), [1, 3]);
        Ok(())
    }
}
