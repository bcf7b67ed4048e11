//! The command line.

use crate::{engines, workloads};
use anyhow::{Context, Result, bail, ensure};
use std::{path::PathBuf, time::Duration};

pub const USAGE: &str = "\
usage: bench-compare run [OPTIONS]           run all rows not in the results yet, then report
       bench-compare parts [OPTIONS]         compare single kinds of reads with LMDB, then report
       bench-compare multi [OPTIONS]         compare many values a key with LMDB's dupsort; prints a table
       bench-compare report RESULTS FOLDER   write report.md and SVG plots into the folder
       bench-compare list                    list the engines and workloads

options of run; parts has those marked *:
* --n N                number of rows (2000000); run accepts several, separated by commas
* --rounds R           number of rounds (3; 9 for parts)
  --engines LIST       engines to run (all)
  --workloads LIST     workloads to run (all)
* --results FILE       results as lines of JSON (results/rows.jsonl)
* --folder DIR         folder of the databases (data); they are removed afterwards
  --memory-folder DIR  folder of in-memory databases (/dev/shm/bench-compare); removed afterwards
  --limit S            maximum seconds of a child (900); a longer one is killed and reported
  --phase-limit S      maximum seconds of a phase (60); only the work done until then is measured
  --warm-memory M      MiB to write and free before each child (2048; at least four times the data, at most
                       a quarter of the available memory; 0 for none), because virtual machines are slow
                       to get memory back from their hosts
  --keep-loads         load each distinct set of rows once and copy the database; it is reopened after
                       the load. Faster if loads take long
  --retry              repeat failed rows
* --operations N       gets and seeks of each kind in a round (200000); parts only

options of multi: --n N pairs (1000000), --rounds R of reads (7), --load-rounds R (3), --operations N of each
kind in a round (200000), --values LIST of values a key (1, 100 and all), --only TEXT in the names of reads (all),
--folder DIR (data)
";

pub enum Command {
    Run(RunOptions),
    Parts(PartsOptions),
    Multi(MultiOptions),
    Report { results: PathBuf, into: PathBuf },
    Child(ChildOptions),
    WriteAndDie { engine: String, n: u64, folder: PathBuf },
    List,
    Help,
}

pub struct RunOptions {
    pub sizes: Vec<u64>,
    pub rounds: u32,
    pub engines: Vec<String>,
    pub workloads: Vec<String>,
    pub results: PathBuf,
    pub folder: PathBuf,
    pub memory_folder: PathBuf,
    pub limit: Duration,
    pub phase_limit: Duration,
    pub warm_mib: u64,
    pub keep_loads: bool,
    pub retry: bool,
}

pub struct MultiOptions {
    pub n: u64,
    pub rounds: u32,
    pub load_rounds: u32,
    pub values: Vec<u64>,
    /// Runs only reads whose name contains this.
    pub only: String,
    pub operations: u64,
    pub folder: PathBuf,
}

pub struct PartsOptions {
    pub n: u64,
    pub rounds: u32,
    pub operations: u64,
    pub results: PathBuf,
    pub folder: PathBuf,
}

pub struct ChildOptions {
    pub workload: String,
    pub engine: String,
    pub n: u64,
    pub phase_limit: Duration,
    pub folder: PathBuf,
    /// Folder of kept databases, with `--keep-loads`.
    pub loads: Option<PathBuf>,
}

impl ChildOptions {
    pub fn to_arguments(&self) -> Vec<String> {
        let seconds = self.phase_limit.as_secs().to_string();
        let folder = self.folder.display().to_string();
        let mut words =
            vec!["child".into(), self.workload.clone(), self.engine.clone(), self.n.to_string(), seconds, folder];
        words.extend(self.loads.iter().map(|loads| loads.display().to_string()));
        words
    }
}

pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Command> {
    let arguments: Vec<String> = arguments.collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["run", options @ ..] => Ok(Command::Run(parse_run(options)?)),
        ["parts", options @ ..] => Ok(Command::Parts(parse_parts(options)?)),
        ["multi", options @ ..] => Ok(Command::Multi(parse_multi(options)?)),
        ["report", results, into] => Ok(Command::Report { results: results.into(), into: into.into() }),
        ["list"] => Ok(Command::List),
        ["child", workload, engine, n, phase_limit, folder, loads @ ..] => Ok(Command::Child(ChildOptions {
            workload: workload.to_string(),
            engine: engine.to_string(),
            n: n.parse()?,
            phase_limit: Duration::from_secs(phase_limit.parse()?),
            folder: folder.into(),
            loads: loads.first().map(PathBuf::from),
        })),
        ["write-and-die", engine, n, folder] => {
            Ok(Command::WriteAndDie { engine: engine.to_string(), n: n.parse()?, folder: folder.into() })
        }
        [] | ["help" | "-h" | "--help"] => Ok(Command::Help),
        _ => bail!("unknown command; see `bench-compare help`"),
    }
}

fn parse_run(words: &[&str]) -> Result<RunOptions> {
    let mut options = RunOptions {
        sizes: vec![2_000_000],
        rounds: 3,
        engines: engines::all().iter().map(|engine| engine.name.to_owned()).collect(),
        workloads: workloads::all().iter().map(|workload| workload.name.to_owned()).collect(),
        results: "results/rows.jsonl".into(),
        folder: "data".into(),
        memory_folder: "/dev/shm/bench-compare".into(),
        limit: Duration::from_secs(900),
        phase_limit: Duration::from_secs(60),
        warm_mib: 2048,
        keep_loads: false,
        retry: false,
    };
    let mut words = words.iter();
    while let Some(&name) = words.next() {
        match name {
            "--retry" => options.retry = true,
            "--keep-loads" => options.keep_loads = true,
            _ => parse_value(&mut options, name, words.next())?,
        }
    }
    for engine in &options.engines {
        engines::by_name(engine)?;
    }
    for workload in &options.workloads {
        workloads::by_name(workload)?;
    }
    ensure!(options.sizes.iter().all(|n| *n >= 1600), "N must be at least 1600");
    Ok(options)
}

fn parse_value(options: &mut RunOptions, name: &str, value: Option<&&str>) -> Result<()> {
    let value = *value.with_context(|| format!("{name} needs a value"))?;
    let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<String>>();
    let seconds = |text: &str| -> Result<Duration> { Ok(Duration::from_secs(text.parse()?)) };
    match name {
        "--n" => options.sizes = list(value).iter().map(|n| n.parse()).collect::<Result<_, _>>()?,
        "--rounds" => options.rounds = value.parse()?,
        "--engines" => options.engines = list(value),
        "--workloads" => options.workloads = list(value),
        "--results" => options.results = value.into(),
        "--folder" => options.folder = value.into(),
        "--memory-folder" => options.memory_folder = value.into(),
        "--limit" => options.limit = seconds(value)?,
        "--phase-limit" => options.phase_limit = seconds(value)?,
        "--warm-memory" => options.warm_mib = value.parse()?,
        _ => bail!("unknown option {name}; see `bench-compare help`"),
    }
    Ok(())
}

fn parse_multi(words: &[&str]) -> Result<MultiOptions> {
    let mut options = MultiOptions {
        n: 1_000_000,
        rounds: 7,
        load_rounds: 3,
        values: vec![1, 100, u64::MAX],
        only: String::new(),
        operations: 200_000,
        folder: "data".into(),
    };
    let mut words = words.iter();
    while let Some(&name) = words.next() {
        let value = *words.next().with_context(|| format!("{name} needs a value"))?;
        match name {
            "--n" => options.n = value.parse()?,
            "--rounds" => options.rounds = value.parse()?,
            "--values" => options.values = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--only" => options.only = value.to_owned(),
            "--load-rounds" => options.load_rounds = value.parse()?,
            "--operations" => options.operations = value.parse()?,
            "--folder" => options.folder = value.into(),
            _ => bail!("unknown option {name}; see `bench-compare help`"),
        }
    }
    let is_enough = options.n >= 1000 && options.rounds > 0 && options.load_rounds > 0 && options.operations > 1;
    ensure!(is_enough, "these numbers are too small to measure");
    Ok(options)
}

fn parse_parts(words: &[&str]) -> Result<PartsOptions> {
    let mut options = PartsOptions {
        n: 2_000_000,
        rounds: 9,
        operations: 200_000,
        results: "results/rows.jsonl".into(),
        folder: "data".into(),
    };
    let mut words = words.iter();
    while let Some(&name) = words.next() {
        let value = *words.next().with_context(|| format!("{name} needs a value"))?;
        match name {
            "--n" => options.n = value.parse()?,
            "--rounds" => options.rounds = value.parse()?,
            "--operations" => options.operations = value.parse()?,
            "--results" => options.results = value.into(),
            "--folder" => options.folder = value.into(),
            _ => bail!("unknown option {name}; see `bench-compare help`"),
        }
    }
    ensure!(
        options.n >= 10_000 && options.rounds > 0 && options.operations > 0,
        "these numbers are too small to measure"
    );
    Ok(options)
}
