//! `kill -9` of a real process on the real file system at random moments.
//!
//! The process (`src/bin/kill_child.rs`) prints its acknowledged steps. After the kill each
//! writer's last step is the last acknowledged one or the next: a commit survives the end of its
//! process, durable or buffered. Each database lives for twenty rounds.
//!
//! `BRAIDDB_VOLUME` scales the rounds, also in debug builds; `BRAIDDB_SEED` reproduces the steps,
//! not the schedule.

use crate::common;

use braiddb::{
    Db, Error,
    platform::{Runtime, SystemRuntime},
};
use braiddb_sim::{
    Random,
    model::{Contents, difference},
    numbered::{self, Step, Writer},
};
use common::{children, full_text};
use std::{
    path::Path,
    process::{Child, ChildStdout},
    sync::mpsc,
};

const ROUNDS: f64 = 100.0;

/// Bounds the rounds on a slow machine, which continue until all events were met.
const ROUNDS_FACTOR_MAX: u64 = 4;

/// Few: splits happen while a database grows.
const ROUNDS_A_DATABASE: u64 = 20;

/// Maximum milliseconds of an open.
const OPEN_MS_MAX: u64 = 60_000;

#[derive(Debug, Default)]
struct Seen {
    killed_while_opening: u64,
    acknowledged: u64,
    unacknowledged_kept: u64,
    flushes: u64,
    merges: u64,
    loose_merges: u64,
    folds: u64,
    partitions_max: u64,
    records_replayed: u64,
    recovered_from_log_tail: u64,
}

impl Seen {
    fn lacking(&self, rounds: u64) -> Option<&'static str> {
        let whatever = rounds >= 40;
        let loose = rounds > 3 * ROUNDS_A_DATABASE;
        let wanted = [
            (whatever && self.acknowledged == 0, "nothing was acknowledged"),
            (whatever && self.flushes == 0, "no flush"),
            (whatever && self.merges == 0, "no merge"),
            (whatever && self.folds == 0, "no fold"),
            (whatever && self.records_replayed == 0, "no record of the log was replayed"),
            (whatever && self.partitions_max < 2, "no partition was split"),
            (loose && self.loose_merges == 0, "no unindexed runs were merged"),
        ];
        wanted.into_iter().find(|(lacks, _)| *lacks).map(|(_, text)| text)
    }
}

struct Progress {
    writer: Writer,
    done: u64,
    /// Acknowledged steps; at least `done`.
    acknowledged: u64,
    contents: Contents,
    cursor: Option<String>,
}

impl Progress {
    fn advance(&mut self) {
        self.done += 1;
        let step = self.writer.step(self.done);
        step.apply(&mut self.contents);
        if matches!(step, Step::Write { .. }) {
            self.cursor = Some(format!("{} {}", self.writer.writer, self.done));
        }
    }
}

struct Database {
    seed: u64,
    dir: tempfile::TempDir,
    writers: Vec<Progress>,
}

impl Database {
    fn new(seed: u64) -> Database {
        let progress = |writer| Progress {
            writer: Writer { seed, writer, drops: true },
            done: 0,
            acknowledged: 0,
            contents: Contents::new(),
            cursor: None,
        };
        // A single writer's next commit is known exactly; four commit in groups.
        let writers = (0..[1, 4][seed as usize % 2]).map(progress).collect();
        Database { seed, dir: tempfile::tempdir().expect("a directory"), writers }
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("db")
    }

    fn start(&self) -> Child {
        children::start(&self.path(), self.seed, self.writers.iter().map(|w| w.done + 1))
    }

    fn judge(&mut self, db: &Db) -> u64 {
        let found = children::read_all(db);
        let mut kept = 0;
        for progress in &mut self.writers {
            let writer = &progress.writer;
            let of_writer = |(tree, key): &(u32, Vec<u8>)| {
                *tree == numbered::own_tree(writer.writer)
                    || (*tree < 2 && key.starts_with(&numbered::prefix(writer.writer)))
            };
            let found: Contents =
                found.iter().filter(|(key, _)| of_writer(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
            while progress.done < progress.acknowledged {
                progress.advance();
            }
            if found == progress.contents {
                continue;
            }
            let against_acknowledged = difference(&progress.contents, &found);
            progress.advance();
            kept += 1;
            assert!(
                found == progress.contents,
                "writer {}: found neither the {} steps that were acknowledged: {against_acknowledged}; nor one more: {}; last write found: {:?}, log tail: {:?}",
                progress.writer.writer,
                progress.acknowledged,
                difference(&progress.contents, &found),
                found.get(&(0, numbered::last_key(progress.writer.writer))).map(|value| numbered::number_of(value)),
                db.stats().log_tail_note,
            );
        }
        let total: usize = self.writers.iter().map(|w| w.contents.len()).sum();
        assert_eq!(found.len(), total, "the database has keys that no writer wrote");
        let cursor =
            db.application_cursor().expect("the application cursor").map(|c| String::from_utf8(c).expect("text"));
        let expected: Vec<_> = self.writers.iter().map(|w| &w.cursor).collect();
        assert!(expected.contains(&&cursor), "the application cursor is {cursor:?}, not one of {expected:?}");
        for progress in &mut self.writers {
            progress.acknowledged = progress.done;
        }
        kept
    }
}

fn kill(mut child: Child, path: &Path, after_ms: u64, from_open: bool) -> Vec<String> {
    let runtime = SystemRuntime::new();
    let stdout = child.stdout.take().expect("a pipe");
    let (opened, is_open) = mpsc::channel();
    let lines = std::thread::scope(|scope| {
        let lines = scope.spawn(move || read_lines(stdout, &opened));
        if from_open && is_open.recv_timeout(std::time::Duration::from_millis(OPEN_MS_MAX)).is_err() {
            child.kill().expect("kill");
            panic!("the child did not open the database, see its output above");
        }
        let second = from_open.then(|| numbered::builder(0).open(path));
        runtime.sleep_us(after_ms * 1000);
        child.kill().expect("kill");
        // After the kill: an earlier panic would wait for a pipe that never ends.
        assert!(matches!(&second, None | Some(Err(Error::Locked { .. }))), "opened in two processes: {second:?}");
        lines.join().expect("the reader of the pipe")
    });
    let status = child.wait().expect("wait for the child");
    assert!(children::was_killed(status), "the child ended by itself: {status}, see its output above");
    lines
}

fn read_lines(stdout: ChildStdout, opened: &mpsc::Sender<()>) -> Vec<String> {
    let mut lines = Vec::new();
    for line in children::lines(stdout) {
        if line == "open" {
            let _ = opened.send(());
        }
        lines.push(line);
    }
    lines
}

fn note(lines: &[String], database: &mut Database, seen: &mut Seen) {
    if lines.is_empty() {
        seen.killed_while_opening += 1;
    }
    let mut last_stats = [0; 5];
    for line in lines {
        let mut words = line.split(' ');
        let kind = words.next();
        let numbers: Vec<u64> = words.map(|word| word.parse().expect("a number")).collect();
        match (kind, numbers.as_slice()) {
            (Some("open"), []) => {}
            (Some("ack"), [writer, number]) => {
                let progress = &mut database.writers[*writer as usize];
                progress.acknowledged += 1;
                assert_eq!(progress.acknowledged, *number, "acknowledgements come in order");
                seen.acknowledged += 1;
            }
            (Some("stats"), stats) => last_stats = stats.try_into().expect("five numbers"),
            _ => panic!("unexpected output of the child: {line:?}"),
        }
    }
    seen.flushes += last_stats[0];
    seen.merges += last_stats[1];
    seen.loose_merges += last_stats[2];
    seen.folds += last_stats[3];
    seen.partitions_max = seen.partitions_max.max(last_stats[4]);
}

fn round(database: &mut Database, random: &mut Random, seen: &mut Seen) {
    let (after_ms, from_open) = (5 + random.below(146), random.chance(1, 2));
    let lines = kill(database.start(), &database.path(), after_ms, from_open);
    note(&lines, database, seen);
    if random.chance(1, 4) && database.path().join("CURRENT").exists() {
        // Replays the log in memory and changes nothing.
        match numbered::builder(database.seed).read_only(true).open(database.path()) {
            Err(e) if e.is_not_found() && !from_open => {}
            other => {
                seen.unacknowledged_kept +=
                    database.judge(&other.unwrap_or_else(|e| panic!("open to read: {}", full_text(&e))));
            }
        }
    }
    let threads = [0, 2][random.index(2)];
    let db = numbered::builder(database.seed).background_threads(threads).open(database.path());
    let db = db.unwrap_or_else(|e| panic!("open after the kill: {}", full_text(&e)));
    seen.unacknowledged_kept += database.judge(&db);
    let stats = db.stats();
    seen.records_replayed += stats.recovered_records;
    seen.recovered_from_log_tail += u64::from(stats.log_tail_note.is_some());
    let report = db.verify().expect("verify");
    assert!(report.problems.is_empty(), "verify after the kill: {:?}", report.problems);
    if random.chance(1, 4) {
        db.compact().unwrap_or_else(|e| panic!("compact after the kill: {}", full_text(&e)));
        database.judge(&db);
        let report = db.verify().expect("verify");
        assert!(report.problems.is_empty(), "verify after compacting: {:?}", report.problems);
    }
    db.close().expect("close");
}

/// Keeps the directory of a failed round.
fn keep(database: Database) -> String {
    Path::display(&database.dir.keep()).to_string()
}

#[test]
fn killed_process_keeps_acknowledged_commits() {
    let seed = common::seed();
    let mut random = Random::new(seed);
    let mut seen = Seen::default();
    let mut database = Database::new(seed);
    let rounds = children::times(ROUNDS);
    let mut number = 0;
    while number < rounds || (number < rounds * ROUNDS_FACTOR_MAX && seen.lacking(rounds).is_some()) {
        if number > 0 && number.is_multiple_of(ROUNDS_A_DATABASE) {
            database = Database::new(seed + number / ROUNDS_A_DATABASE);
        }
        let done = common::quietly(|| round(&mut database, &mut random, &mut seen));
        if let Err(text) = done {
            let progress: Vec<u64> = database.writers.iter().map(|w| w.acknowledged).collect();
            let place = keep(database);
            panic!("round {number} of seed {seed}, after {progress:?} steps, directory {place}: {text}");
        }
        number += 1;
    }
    println!("{number} rounds: {seen:?}");
    if let Some(lacking) = seen.lacking(rounds) {
        panic!("{number} rounds missed an event, {lacking}: {seen:?}");
    }
}
