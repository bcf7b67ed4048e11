//! `kill -9` of a process that commits without WAL. The database is exactly at the commit of its
//! application cursor and has all steps reported as durable. The next process continues from there.
//!
//! `BRAIDDB_VOLUME` scales the kills, also in debug builds; `BRAIDDB_SEED` reproduces the steps,
//! not the schedule.

use crate::common;

use braiddb::{
    Durability,
    platform::{Runtime, SystemRuntime},
};
use braiddb_sim::{Random, log_off::Expected, numbered};
use common::children;
use std::process::Command;

const KILLS: f64 = 100.0;

const KILLS_A_DATABASE: u64 = 50;

#[test]
fn killed_process_without_wal_leaves_state_of_its_cursor() {
    let seed = common::seed();
    let kills = children::times(KILLS);
    let (mut random, runtime) = (Random::new(seed), SystemRuntime::new());
    let (mut survived, mut promised, mut lost_some) = (0, 0, 0);
    let mut place = tempfile::tempdir().expect("a directory");
    let (mut expected, mut before, mut database) = (Expected::default(), 0, seed);
    for kill in 0..kills {
        if kill.is_multiple_of(KILLS_A_DATABASE) {
            place = tempfile::tempdir().expect("a directory");
            (expected, before, database) = (Expected::default(), 0, seed + kill);
        }
        let dir = place.path().join("db");
        let mut command = Command::new(env!("CARGO_BIN_EXE_log_off_child"));
        let mut child = children::spawn(command.arg(&dir).arg(database.to_string()));
        let stdout = child.stdout.take().expect("a pipe");
        let lines = std::thread::scope(|scope| {
            let lines = scope.spawn(|| children::lines(stdout).collect::<Vec<_>>());
            runtime.sleep_us((3 + random.below(120)) * 1000);
            child.kill().expect("kill");
            lines.join().expect("the reader of the pipe")
        });
        child.wait().expect("wait for the child");
        let reported = |kind: &str| -> Option<u64> {
            lines.iter().rev().find_map(|line| line.strip_prefix(kind)?.trim().parse().ok())
        };
        assert!(
            reported("open").is_none_or(|cursor| cursor == before),
            "the child began at cursor {:?}, not {before}",
            reported("open")
        );
        let durable = reported("durable").unwrap_or(before).max(before);
        promised += durable - before;
        let builder = numbered::builder(database).background_threads([0, 2][random.index(2)]);
        let builder = if random.chance(1, 2) { builder.durability(Durability::None) } else { builder };
        let db = builder.open(&dir).unwrap_or_else(|e| panic!("kill {kill}: open: {}", common::full_text(&e)));
        let last = expected.judge(&db, database).unwrap_or_else(|text| panic!("kill {kill}: {text}"));
        assert!(last >= durable, "kill {kill}: step {durable} was durable, but the database is at {last}");
        survived += last - before;
        lost_some += u64::from(last > durable);
        before = last;
        if random.chance(1, 10) {
            assert!(db.verify().expect("verify").problems.is_empty());
        }
        db.close().expect("close");
    }
    println!(
        "{kills} kills: {survived} commits survived, {promised} of them promised durable; more than promised {lost_some} times"
    );
    assert!(kills < 50 || (survived > 1000 && promised > 0));
}
