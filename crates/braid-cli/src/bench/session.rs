//! Runs the benchmarks one after the other on one database.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use anyhow::Result;
use braiddb::Durability;
use serde_json::{Value, json};

use super::{
    arguments::BenchArguments,
    crew::ThreadPool,
    database::Database,
    expect::{Expected, settle},
    place::Place,
    progress::Progress,
    report::{self, write_header, write_once, write_problems},
    runner::{self, Outcome, Run, Thread},
    store::TreeStore,
    worker::{Action, Task},
    workload::{Plan, Which, Work},
};
use crate::{
    demo::Drawn,
    exit::{CORRUPTION, NOT_FOUND, OK, code_of},
    notation::{show_bytes, show_count},
    output::{Stdout, note, print_line},
    statistics::{self, Seen},
};

const LOAD_BATCH: u64 = 1000;

pub fn run(arguments: &BenchArguments) -> Result<u8> {
    let place = Place::prepare(arguments)?;
    let ended = run_in(arguments, &place);
    let is_evidence = match &ended {
        Ok(code) => *code != OK,
        Err(error) => code_of(error) == CORRUPTION,
    };
    if is_evidence && place.is_temporary() {
        note!("braid: the database is kept in {} for inspection", place.dir().display());
    } else {
        place.finish()?;
    }
    ended
}

fn run_in(arguments: &BenchArguments, place: &Place) -> Result<u8> {
    let database = Database::open(place, arguments.key_size)?;
    let mut session = Session { arguments, database, problems: 0 };
    if !arguments.json {
        let mut out = Stdout::new();
        let temporary = if place.is_temporary() { ", removed at the end" } else { "" };
        write_header(arguments, &format!("{}{temporary}", place.dir().display()), &mut out)?;
        out.finish()?;
    }
    for (index, workload) in arguments.benchmarks.iter().enumerate() {
        let name = workload.name();
        match workload.work(arguments) {
            Work::Rows(plan) => session.rows(index as u64, &name, &plan)?,
            Work::Compact => session.compact(&name)?,
            Work::Stats => session.stats(&name)?,
            Work::Verify => session.verify(&name)?,
        }
    }
    session.database.close()?;
    if session.problems > 0 {
        note!("braid: {} answers were wrong: see above", show_count(session.problems as u64));
        return Ok(NOT_FOUND);
    }
    Ok(OK)
}

struct Session<'a> {
    arguments: &'a BenchArguments,
    database: Database<'a>,
    problems: usize,
}

impl Session<'_> {
    fn rows(&mut self, index: u64, name: &str, plan: &Plan) -> Result<()> {
        if plan.begins_empty {
            self.database.empty()?;
        }
        if plan.which == Which::Ycsb {
            self.load(index, name, plan)?;
        }
        let ledger = self.database.ledger(plan.which);
        let (rows_before, rows_end) = (ledger.count(), ledger.end());
        let crew =
            ThreadPool { arguments: self.arguments, plan, keys: self.database.keys(plan.which), index, rows_end };
        let (task, writer) = (crew.task(), crew.writer_task());
        let threads = crew.threads(&task, &writer);
        let before = self.database.db()?.stats();
        let outcome = self.run(name, &crew, &threads)?;
        let after = self.database.db()?.stats();
        let (expected, problems) = self.check(plan, &task, &threads, &outcome);
        let wants_harness = self.arguments.histogram || self.arguments.json;
        let benchmark = report::Benchmark {
            name,
            plan,
            distribution: crew.distribution(),
            outcome: &outcome,
            expected,
            harness_ns: if wants_harness { crew.harness_ns()? } else { None },
            rows_before,
            stats: [&before, &after],
            problems: &problems,
        };
        self.problems += problems.len();
        let mut out = Stdout::new();
        if self.arguments.json {
            writeln!(out, "{}", benchmark.to_json(self.arguments))?;
        } else {
            benchmark.write_text(&mut out)?;
        }
        out.finish()
    }

    fn run(&self, name: &str, crew: &ThreadPool<'_>, threads: &[Thread<'_>]) -> Result<Outcome> {
        let db = self.database.db()?;
        let tree = self.database.tree(crew.plan.which)?;
        let durability = if crew.plan.is_durable { Durability::Sync } else { Durability::Buffered };
        let stores = threads.iter().map(|_| TreeStore::new(db, &tree, durability)).collect();
        let mut progress = Progress::begin(name, crew.operations(), self.arguments.stats_interval);
        let run = Run {
            duration: self.arguments.duration.filter(|_| !crew.plan.in_order),
            latencies: self.arguments.histogram,
            progress_every: progress.every(),
        };
        runner::run(threads, stores, run, &mut |operations, elapsed| progress.report(operations, elapsed))
    }

    fn check(
        &mut self,
        plan: &Plan,
        task: &Task,
        threads: &[Thread<'_>],
        outcome: &Outcome,
    ) -> (Option<Expected>, Vec<String>) {
        let ledger = self.database.ledger(plan.which);
        let tally = &outcome.front.tally;
        let mut problems = Vec::new();
        let expected = if let Action::Mixed(_) = plan.action {
            (ledger.end()..task.inserts.done()).for_each(|row| ledger.insert(row));
            if tally.missed > 0 {
                problems.push(format!("{} existing keys were not found", show_count(tally.missed)));
            }
            None
        } else {
            let expected = settle(ledger, threads, &outcome.done);
            problems.extend(expected.complaint(tally));
            Some(expected)
        };
        if tally.wrong > 0 {
            problems.push(format!(
                "{} rows that were read belong to other keys, or came out of order; the first is row {}",
                show_count(tally.wrong),
                tally.wrong_row.unwrap_or_default()
            ));
        }
        (expected, problems)
    }

    fn load(&mut self, index: u64, name: &str, plan: &Plan) -> Result<()> {
        let wanted = self.arguments.num;
        let ledger = self.database.ledger(Which::Ycsb);
        if ledger.before(wanted).count() as u64 == wanted {
            return Ok(());
        }
        let began = Instant::now();
        let load = Plan {
            action: Action::Put,
            rows: wanted,
            operations: wanted,
            in_order: true,
            batch: LOAD_BATCH,
            is_durable: false,
            ..*plan
        };
        let rows_end = ledger.end();
        let keys = self.database.keys(Which::Ycsb);
        let arguments = BenchArguments { write_rate: None, ..self.arguments.clone() };
        let crew = ThreadPool { arguments: &arguments, plan: &load, keys, index, rows_end };
        let (task, writer) = (crew.task(), crew.writer_task());
        let threads = crew.threads(&task, &writer);
        let outcome = self.run(&format!("load {name}"), &crew, &threads)?;
        settle(self.database.ledger(Which::Ycsb), &threads, &outcome.done);
        if !self.arguments.json {
            let seconds = began.elapsed().as_secs_f64();
            print_line(format_args!("  ({} rows loaded for {name} in {seconds:.1} s)", show_count(wanted)))?;
        }
        Ok(())
    }

    fn compact(&mut self, name: &str) -> Result<()> {
        let db = self.database.db()?;
        let before = db.stats().disk_bytes;
        let began = Instant::now();
        db.compact()?;
        let took = began.elapsed();
        let after = db.stats().disk_bytes;
        let what = format!("{} before, {} after", show_bytes(before), show_bytes(after));
        let json = json!({"benchmark": name, "disk_bytes_before": before, "disk_bytes": after});
        self.report_once(name, took, &what, json, &[])
    }

    fn stats(&mut self, name: &str) -> Result<()> {
        let stats = self.database.db()?.stats();
        let mut out = Stdout::new();
        if self.arguments.json {
            writeln!(out, "{}", json!({"benchmark": name, "stats": statistics::to_json(&stats)}))?;
        } else {
            writeln!(out)?;
            statistics::write_text(&stats, &Seen::ByOwner, Drawn::Worst, &mut out)?;
            writeln!(out)?;
        }
        out.finish()
    }

    fn verify(&mut self, name: &str) -> Result<()> {
        let began = Instant::now();
        let (problems, what) = self.database.verify()?;
        self.problems += problems.len();
        self.report_once(name, began.elapsed(), &what, json!({"benchmark": name}), &problems)
    }

    fn report_once(&self, name: &str, took: Duration, what: &str, mut json: Value, problems: &[String]) -> Result<()> {
        let mut out = Stdout::new();
        if self.arguments.json {
            json["seconds"] = took.as_secs_f64().into();
            json["problems"] = problems.into();
            writeln!(out, "{json}")?;
        } else {
            write_once(name, took.as_secs_f64(), what, &mut out)?;
            write_problems(problems, &mut out)?;
        }
        out.finish()
    }
}
