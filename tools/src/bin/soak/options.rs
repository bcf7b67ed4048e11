//! The command line.

use super::Failure;
use std::{path::PathBuf, process, thread};

pub struct Options {
    pub minutes: f64,
    pub find_minutes: f64,
    pub records: u64,
    pub memory_mib: usize,
    pub threads: usize,
    pub rate: Option<f64>,
    pub durable: bool,
    pub background: usize,
    pub dead_percent: Option<u8>,
    pub dir: PathBuf,
    pub out: PathBuf,
}

impl Options {
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, Failure> {
        let mut options = Options {
            minutes: 60.0,
            find_minutes: 3.0,
            records: 2_000_000,
            memory_mib: 128,
            threads: thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)),
            rate: None,
            durable: false,
            background: 2,
            dead_percent: None,
            dir: std::env::temp_dir().join(format!("braiddb-soak-{}", process::id())),
            out: PathBuf::from("soak-results"),
        };
        while let Some(name) = arguments.next() {
            if name == "--durable" {
                options.durable = true;
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{name} wants a value"))?;
            match name.as_str() {
                "--minutes" => options.minutes = value.parse()?,
                "--find-minutes" => options.find_minutes = value.parse()?,
                "--records" => options.records = value.parse()?,
                "--memory" => options.memory_mib = value.parse()?,
                "--threads" => options.threads = value.parse()?,
                "--background-threads" => options.background = value.parse()?,
                "--dead-percent" => options.dead_percent = Some(value.parse()?),
                "--rate" => options.rate = Some(value.parse()?),
                "--dir" => options.dir = value.into(),
                "--out" => options.out = value.into(),
                _ => return Err(format!("unknown option {name}").into()),
            }
        }
        let seconds = [options.minutes, options.find_minutes].map(|minutes| minutes * 60.0);
        if seconds.iter().any(|seconds| !(4.0..1e7).contains(seconds)) {
            return Err("each phase takes four seconds at least".into());
        }
        if options.threads == 0 || options.records < 1000 * options.threads as u64 {
            return Err("needs at least one thread, and a thousand records per thread".into());
        }
        if options.rate.is_some_and(|rate| !(1.0..1e9).contains(&rate)) {
            return Err("a rate is a number of operations a second".into());
        }
        Ok(options)
    }
}
