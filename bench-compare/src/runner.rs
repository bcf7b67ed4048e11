//! Runs child processes one after the other, and is one. A child has its own folder, process group
//! and time limit; it gives a row, however it ends.

use crate::{
    arguments::{ChildOptions, RunOptions},
    engines,
    machine::{self, Machine},
    meter::MemorySampler,
    report,
    results::{self, Line, Outcome, Results, Row, RowKey, Status},
    workloads::{self, Context},
};
use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    cell::Cell,
    fs::{self, File},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Bytes warmed for each byte of data, which is written several times.
const WARM_BYTES_PER_DATA_BYTE: u64 = 4;

pub fn run(options: &RunOptions) -> Result<()> {
    fs::create_dir_all(&options.folder)?;
    // Some engines resolve relative paths themselves.
    let folder = fs::canonicalize(&options.folder)?;
    let in_memory = &options.memory_folder;
    let loads = options.keep_loads.then(|| folder.join("bench-compare-loads"));
    loads.iter().for_each(|loads| drop(fs::remove_dir_all(loads)));
    let known = Results::read(&options.results)?;
    note_machine(&options.results, &folder)?;
    let is_wanted = |key: &RowKey| match known.rows.get(key) {
        None => true,
        Some(row) => options.retry && row.status != Status::Ok,
    };
    let keys: Vec<RowKey> = plan(options).into_iter().filter(is_wanted).collect();
    let count = keys.len();
    for (number, key) in keys.into_iter().enumerate() {
        let workload = workloads::by_name(&key.workload)?;
        let row = if workload.in_memory {
            fs::create_dir_all(in_memory)?;
            let row = run_one(options, in_memory, None, key)?;
            fs::remove_dir_all(in_memory)?;
            row
        } else {
            run_one(options, &folder, loads.as_ref(), key)?
        };
        println!("[{}/{count}] {}", number + 1, report::one_line(&row));
        results::append(&options.results, &Line::Row(row))?;
    }
    loads.iter().for_each(|loads| drop(fs::remove_dir_all(loads)));
    let into = options.results.parent().unwrap_or(Path::new("."));
    report::write(&options.results, into)
}

pub fn note_machine(results: &Path, folder: &Path) -> Result<()> {
    let machine = Machine::here(folder);
    if Results::read(results)?.machines.last() == Some(&machine) {
        return Ok(());
    }
    results::append(results, &Line::Machine(machine))
}

/// Each round begins with another engine.
fn plan(options: &RunOptions) -> Vec<RowKey> {
    let mut keys = Vec::new();
    for &n in &options.sizes {
        for round in 1..=options.rounds {
            for workload in &options.workloads {
                let first = (round as usize - 1) % options.engines.len().max(1);
                let engines = options.engines.iter().cycle().skip(first).take(options.engines.len());
                let included =
                    |engine: &&String| workloads::by_name(workload).is_ok_and(|found| found.includes(engine));
                keys.extend(engines.filter(included).map(|engine| RowKey {
                    n,
                    workload: workload.clone(),
                    engine: engine.clone(),
                    round,
                }));
            }
        }
    }
    keys
}

fn run_one(options: &RunOptions, parent: &Path, loads: Option<&PathBuf>, key: RowKey) -> Result<Row> {
    let folder = parent.join(format!("{}-{}", key.workload, key.engine));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let (out, err) = (parent.join("stdout"), parent.join("stderr"));
    let child = ChildOptions {
        workload: key.workload.clone(),
        engine: key.engine.clone(),
        n: key.n,
        phase_limit: options.phase_limit,
        folder: folder.clone(),
        loads: loads.cloned(),
    };
    if options.warm_mib > 0 {
        let data_bytes = workloads::by_name(&key.workload)?.row_bytes * key.n;
        warm_memory((options.warm_mib << 20).max(WARM_BYTES_PER_DATA_BYTE * data_bytes));
    }
    let start = Instant::now();
    let child = Command::new(std::env::current_exe()?)
        .args(child.to_arguments())
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(File::create(&out)?)
        .stderr(File::create(&err)?)
        .spawn()?;
    let status = wait(child, options.limit)?;
    let child_seconds = start.elapsed().as_secs_f64();
    fs::remove_dir_all(&folder)?;
    let printed: Result<Outcome, _> = serde_json::from_str(&fs::read_to_string(&out)?);
    let (status, reason) = match (status, &printed) {
        (None, _) => (Status::Timeout, format!("killed after {} s", options.limit.as_secs())),
        (Some(status), Ok(_)) if status.success() => (Status::Ok, String::new()),
        (Some(status), _) => (Status::Failed, describe(status, &fs::read_to_string(&err).unwrap_or_default())),
    };
    let outcome = if status == Status::Ok { printed? } else { Outcome::default() };
    Ok(Row { key, status, reason, child_seconds, kept_loads: loads.is_some(), outcome })
}

/// Gives each child the same share of memory backed by a virtual machine's host. At most a quarter
/// of the available memory, so that nothing is evicted.
fn warm_memory(bytes: u64) {
    let bytes = usize::try_from(bytes.min(machine::available_bytes() / 4)).unwrap_or(0);
    // Not zeros: the system has zero pages.
    std::hint::black_box(vec![1u8; bytes]);
}

fn wait(mut child: Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= limit {
            let group = Pid::from_raw(child.id() as i32).context("a process without a number")?;
            kill_process_group(group, Signal::KILL)?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn describe(status: ExitStatus, said: &str) -> String {
    let how = match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, code) => format!("exit status {}", code.unwrap_or(-1)),
    };
    if let Some(error) = said.lines().rev().find_map(|line| line.strip_prefix("bench-compare: ")) {
        return format!("{how}: {error}");
    }
    let words: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).take(4).collect();
    format!("{how}: {}", words.join(" | "))
}

pub fn run_child(options: &ChildOptions) -> Result<()> {
    let kind = engines::by_name(&options.engine)?;
    let context = Context {
        kind: &kind,
        folder: &options.folder,
        loads: options.loads.as_deref(),
        n: options.n,
        limit: options.phase_limit,
        sampler: MemorySampler::start(),
        budget: Cell::default(),
        anonymous_peak: Cell::default(),
        resident_peak: Cell::default(),
    };
    let measures = (workloads::by_name(&options.workload)?.run)(&context)?;
    let outcome = Outcome {
        budget_bytes: context.budget.get(),
        resident_peak_bytes: context.resident_peak.get(),
        anonymous_peak_bytes: context.anonymous_peak.get(),
        measures,
    };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_of_two_rounds_interleaves_and_rotates_engines() {
        let words = ["run", "--n", "2000", "--rounds", "2", "--workloads", "overwrite,seek_next1"];
        let Ok(crate::arguments::Command::Run(mut options)) =
            crate::arguments::parse(words.into_iter().map(str::to_owned))
        else {
            panic!("the command line is right");
        };
        options.engines = vec!["a".into(), "b".into()];
        let keys: Vec<String> =
            plan(&options).iter().map(|key| format!("{} {} {}", key.round, key.workload, key.engine)).collect();
        let expected = "1 overwrite a,1 overwrite b,1 seek_next1 a,1 seek_next1 b,2 overwrite b,2 overwrite a,\
                        2 seek_next1 b,2 seek_next1 a";
        assert_eq!(keys.join(","), expected);
    }

    #[test]
    fn child_that_hangs_is_killed_and_failure_is_described() -> Result<()> {
        let mut hanging = Command::new("sleep");
        assert!(wait(hanging.arg("60").process_group(0).spawn()?, Duration::from_millis(50))?.is_none());
        let status = wait(Command::new("false").process_group(0).spawn()?, Duration::from_secs(10))?;
        let status = status.context("it ends by itself")?;
        assert_eq!(describe(status, "\nbad luck\n"), "exit status 1: bad luck");
        assert_eq!(describe(status, "noise\nbench-compare: no room\n"), "exit status 1: no room");
        Ok(())
    }
}
