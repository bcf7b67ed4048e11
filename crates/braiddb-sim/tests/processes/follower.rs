//! A follower beside a writer process, which is killed and restarted. Each state is exactly that
//! after a commit, no older than the commits acknowledged before the refresh or the state before.
//! No refresh may fail.
//!
//! `BRAIDDB_VOLUME` scales the duration; `BRAIDDB_SEED` reproduces the steps, not the schedule.

use crate::common;

use braiddb::{
    Db, Follower,
    platform::{Runtime, SystemRuntime},
};
use braiddb_sim::{
    Random,
    model::{Contents, difference},
    numbered::{self, Step, Writer},
};
use common::{children, full_text};
use std::{
    path::{Path, PathBuf},
    process::{Child, ChildStdout},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Milliseconds of a writer process.
const LIFE_MS: u64 = 400;
const LIVES: f64 = 12.0;

/// Maximum additional processes on a slow machine.
const LIVES_ADDED_MAX: u64 = 100;

/// Maximum consecutive steps without a cursor.
const SILENT_STEPS_MAX: u64 = 8;

const FRESH_EVERY: u64 = 16;

struct Process {
    child: Child,
    reader: JoinHandle<()>,
}

impl Process {
    fn start(dir: &Path, seed: u64, first: u64, acknowledged: &Arc<AtomicU64>) -> Process {
        let mut child = children::start(dir, seed, [first]);
        let (stdout, acknowledged) = (child.stdout.take().expect("a pipe"), Arc::clone(acknowledged));
        let body = Box::new(move || read_lines(stdout, &acknowledged));
        let reader = SystemRuntime::new().spawn("reader", body).expect("a thread");
        Process { child, reader }
    }

    fn kill(mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait for the child");
        self.reader.join().expect("the reader of the pipe");
    }
}

fn read_lines(stdout: ChildStdout, acknowledged: &AtomicU64) {
    for line in children::lines(stdout) {
        if let Some(number) = line.strip_prefix("ack 0 ") {
            acknowledged.store(number.parse().expect("a number"), Ordering::SeqCst);
        }
    }
}

struct Expected {
    writer: Writer,
    done: u64,
    contents: Contents,
}

impl Expected {
    fn advance(&mut self) {
        self.done += 1;
        self.writer.step(self.done).apply(&mut self.contents);
    }

    fn judge(&mut self, db: &Db, least: u64) {
        let found = children::read_all(db);
        let cursor = db.application_cursor().expect("the application cursor");
        let reported = cursor.map_or(0, |text| {
            let text = String::from_utf8(text).expect("text");
            text.strip_prefix("0 ").and_then(|number| number.parse().ok()).expect("a writer's cursor")
        });
        assert!(
            reported + SILENT_STEPS_MAX >= self.done,
            "step {reported} is older than step {}, seen before",
            self.done
        );
        while self.done < reported {
            self.advance();
        }
        // A dropped tree sets no cursor.
        let is_silent = |number| matches!(self.writer.step(number), Step::DropTree(_));
        let last = reported + (1..SILENT_STEPS_MAX).take_while(|ahead| is_silent(reported + ahead)).count() as u64;
        while self.done < last && found != self.contents {
            self.advance();
        }
        assert!(found == self.contents, "after step {reported}: {}", difference(&self.contents, &found));
        assert!(self.done >= least || last >= least, "step {} is shown, and {least} were acknowledged", self.done);
    }
}

#[derive(Debug, Default)]
struct Seen {
    looks: u64,
    changes: u64,
    manifests: u64,
    retries: u64,
    records: u64,
    longest: Duration,
    total: Duration,
}

impl Seen {
    fn is_enough(&self) -> bool {
        self.changes > 20 && self.manifests > 5 && self.records > 100
    }
}

fn follow(dir: &Path, follower: &Follower, expected: &mut Expected, acknowledged: &AtomicU64, seen: &mut Seen) {
    let least = acknowledged.load(Ordering::SeqCst);
    let refreshed = follower.refresh().unwrap_or_else(|e| panic!("a refresh failed: {}", full_text(&e)));
    seen.looks += 1;
    seen.changes += u64::from(refreshed.has_changed);
    seen.manifests += u64::from(refreshed.manifest_read);
    seen.retries += u64::from(refreshed.retries);
    seen.records += refreshed.records;
    seen.longest = seen.longest.max(refreshed.took);
    seen.total += refreshed.took;
    expected.judge(&follower.db(), least);
    if seen.looks.is_multiple_of(FRESH_EVERY) {
        let fresh = numbered::builder(0).open_read_only(dir).unwrap_or_else(|e| panic!("open: {}", full_text(&e)));
        expected.judge(&fresh, expected.done);
    }
}

fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    let runtime = SystemRuntime::new();
    let start_ns = runtime.monotonic_ns();
    while !is_there() {
        assert!(runtime.monotonic_ns() - start_ns < 60_000_000_000, "no {what}");
        runtime.sleep_us(1000);
    }
}

#[test]
fn follower_beside_killed_writer_shows_only_commit_boundaries() {
    let seed = common::seed();
    let runtime = SystemRuntime::new();
    let place = tempfile::tempdir().expect("a directory");
    let dir: PathBuf = place.path().join("db");
    let acknowledged = Arc::new(AtomicU64::new(0));
    let mut random = Random::new(seed);
    let mut seen = Seen::default();
    let writer = Writer { seed, writer: 0, drops: true };
    let mut expected = Expected { writer, done: 0, contents: Contents::new() };
    let mut process = Process::start(&dir, seed, 1, &acknowledged);
    wait_for("first commit", || acknowledged.load(Ordering::SeqCst) > 0);
    let follower = numbered::builder(seed).refresh_every(None).open_follower(&dir);
    let follower = follower.unwrap_or_else(|e| panic!("open a follower: {}", full_text(&e)));
    let mut kept: Option<(Db, Contents)> = None;
    let lives = children::times(LIVES).max(2);
    for life in 0..lives + LIVES_ADDED_MAX {
        if life >= lives && seen.is_enough() {
            break;
        }
        let end_ns = runtime.monotonic_ns() + LIFE_MS * 1_000_000;
        while runtime.monotonic_ns() < end_ns {
            follow(&dir, &follower, &mut expected, &acknowledged, &mut seen);
            if random.chance(1, 10) && !seen.looks.is_multiple_of(FRESH_EVERY) {
                if let Some((db, contents)) = kept.take() {
                    assert!(
                        children::read_all(&db) == contents,
                        "a state has changed: {}",
                        difference(&contents, &children::read_all(&db))
                    );
                }
                kept = Some((follower.db(), expected.contents.clone()));
            }
            runtime.sleep_us(random.below(4000));
        }
        process.kill();
        follow(&dir, &follower, &mut expected, &acknowledged, &mut seen);
        let first = {
            let db = numbered::builder(seed).open(&dir).unwrap_or_else(|e| panic!("open: {}", full_text(&e)));
            expected.judge(&db, acknowledged.load(Ordering::SeqCst));
            db.close().expect("close");
            expected.done + 1
        };
        process = Process::start(&dir, seed, first, &acknowledged);
        if life % 2 == 0 {
            wait_for("commit after a start", || acknowledged.load(Ordering::SeqCst) >= first);
        }
    }
    process.kill();
    println!("{} steps: {seen:?}", expected.done);
    assert!(seen.is_enough(), "too few events: {seen:?}");
}
