//! Statistics and reports as dictionaries.

use crate::args::seconds;
use braiddb::{
    backup::BackupInfo,
    stats::{SlowCause, SlowCommit, Stats},
    verify::VerifyReport,
};
use pyo3::{
    prelude::*,
    types::{PyDict, PyList},
};
use std::time::Duration;

macro_rules! fields {
    ($dict:ident, $from:ident: $($field:ident)*) => { $($dict.set_item(stringify!($field), &$from.$field)?;)* };
}

pub fn stats<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    fields!(dict, stats: commits user_bytes_written log_bytes_written open_files open_files_max file_reopenings
        log_kept_bytes run_bytes_written view_bytes_written blob_bytes_written manifest_bytes_written disk_bytes
        disk_reserve_bytes disk_reserve_bytes_whole memory_bytes memtable_bytes memtable_bytes_max cache_bytes
        cache_hits cache_misses blocks_in_place direct_io direct_io_refused io_uring_refused syncs flushes merges
        loose_merges expired folds views_healed hash_indexes hash_index_bytes background_errors
        transaction_conflicts transaction_retries slowed_us stalls stall_us_max pressure_per_mille
        recovered_records log_tail_note snapshots oldest_snapshot oldest_snapshot_age_us dead_entries_held
        readers_expired last_sequence frozen_memtables failure damaged_partitions older_runs);
    dict.set_item("partitions", stats.partitions.len())?;
    let slow: Vec<_> = stats.slow_commits.iter().map(|commit| slow_commit(py, commit)).collect::<PyResult<_>>()?;
    dict.set_item("slow_commits", slow)?;
    let totals = PyDict::new(py);
    for total in &stats.slow_commit_totals {
        totals.set_item(total.cause.name(), (total.commits, total.part_us))?;
    }
    dict.set_item("slow_commit_totals", totals)?;
    Ok(dict)
}

fn slow_commit<'py>(py: Python<'py>, commit: &SlowCommit) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    fields!(dict, commit: records bytes sequence);
    dict.set_item("ended", seconds(commit.ended))?;
    dict.set_item("took_us", micros(commit.took))?;
    dict.set_item("cause", commit.cause.name())?;
    dict.set_item("behind", commit.behind.map(SlowCause::name))?;
    let parts = PyDict::new(py);
    for (part, took) in commit.parts.longest_first() {
        parts.set_item(part.name(), micros(took))?;
    }
    dict.set_item("parts_us", parts)?;
    dict.set_item("background", commit.background.map(|running| running.work.to_string()))?;
    Ok(dict)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

pub fn verify_report<'py>(py: Python<'py>, report: &VerifyReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("is_sound", report.is_sound())?;
    fields!(dict, report: files bytes problems_left_out notes opens);
    let problems = PyList::empty(py);
    for problem in &report.problems {
        let item = PyDict::new(py);
        fields!(item, problem: offset len detail last_commit unchecked_bytes);
        item.set_item("path", problem.path.to_string_lossy())?;
        item.set_item("kind", problem.kind.name())?;
        item.set_item("file", problem.file.name())?;
        problems.append(item)?;
    }
    dict.set_item("problems", problems)?;
    Ok(dict)
}

pub fn backup_info<'py>(py: Python<'py>, info: &BackupInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    fields!(dict, info: id sequence incarnation files bytes files_copied bytes_copied);
    dict.set_item("taken", seconds(info.taken))?;
    Ok(dict)
}
