//! BraidDB beside its peers: see README.md.
//!
//! `run` starts a child process for each engine, workload and round, and appends its row to a file
//! of JSON lines. `report` makes tables and plots of them.

mod arguments;
mod bars;
mod data;
mod engines;
mod histogram;
mod machine;
mod meter;
mod multi;
mod parts;
mod report;
mod results;
mod runner;
mod workloads;

use anyhow::Result;
use arguments::Command;
use std::process::ExitCode;

fn main() -> ExitCode {
    match arguments::parse(std::env::args().skip(1)).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-compare: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Run(options) => runner::run(&options),
        Command::Parts(options) => parts::run(&options),
        Command::Multi(options) => multi::run(&options),
        Command::Report { results, into } => report::write(&results, &into),
        Command::Child(child) => runner::run_child(&child),
        Command::WriteAndDie { engine, n, folder } => workloads::write_and_die(&engines::by_name(&engine)?, n, &folder),
        Command::List => {
            for engine in engines::all() {
                println!("engine    {:22} {}", engine.name, machine::package_version(engine.package));
            }
            for workload in workloads::all() {
                println!("workload  {:22} {}", workload.name, workload.what);
            }
            Ok(())
        }
        Command::Help => {
            print!("{}", arguments::USAGE);
            Ok(())
        }
    }
}
