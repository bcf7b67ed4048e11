//! The process that `tests/processes/kill9.rs` kills. It opens a database, does numbered steps, and
//! prints the acknowledged ones.
//!
//! Arguments: the directory, the seed, then for each writer the number of its first step. Lines of
//! output:
//!
//! | line | meaning |
//! |---|---|
//! | `open` | the database is open |
//! | `ack` writer number | this step's commit has returned |
//! | `stats` flushes merges loose-merges folds partitions | counters of this process so far |

use braiddb::{Batch, Db, Durability, Tree};
use braiddb_sim::{
    Random,
    model::Change,
    numbered::{self, Step, TREES, Writer},
};
use std::io::Write;

/// Bounds a child that nothing kills.
const STEPS_MAX: u64 = 200_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().expect("the directory");
    let mut number = || arguments.next().map(|text| text.parse::<u64>().expect("a number"));
    let seed = number().expect("the seed");
    let firsts: Vec<u64> = std::iter::from_fn(number).collect();
    let db = numbered::builder(seed).background_threads(2).open(dir).expect("open");
    say("open");
    std::thread::scope(|scope| {
        for (writer, first) in firsts.into_iter().enumerate() {
            let writer = Writer { seed, writer: writer as u64, drops: true };
            let db = &db;
            scope.spawn(move || work(db, &writer, first));
        }
    });
}

/// One write, so that the kill never cuts a line.
fn say(line: &str) {
    if std::io::stdout().write_all(format!("{line}\n").as_bytes()).is_err() {
        std::process::exit(1);
    }
}

fn work(db: &Db, writer: &Writer, first: u64) {
    let mut random = Random::new(first ^ writer.writer << 32);
    for number in first..first + STEPS_MAX {
        maintain(db, &mut random);
        do_step(db, writer, number);
        say(&format!("ack {} {number}", writer.writer));
        if number.is_multiple_of(32) {
            let stats = db.stats();
            let (merges, partitions) = (stats.merges, stats.partitions.len());
            say(&format!("stats {} {merges} {} {} {partitions}", stats.flushes, stats.loose_merges, stats.folds));
        }
    }
}

fn do_step(db: &Db, writer: &Writer, number: u64) {
    match writer.step(number) {
        Step::DropTree(tree) => match db.drop_tree(TREES[tree as usize]) {
            Err(e) if e.is_not_found() => {}
            other => other.expect("drop a tree"),
        },
        Step::Write { changes, sync } => {
            let durability = if sync { Durability::Sync } else { Durability::Buffered };
            let mut batch = batch_of(db, &changes);
            batch.set_application_cursor(format!("{} {number}", writer.writer));
            batch.commit_with(durability).expect("write");
        }
    }
}

fn batch_of(db: &Db, changes: &[Change]) -> Batch {
    let tree = |number: &u32| -> Tree { db.tree(TREES[*number as usize]).expect("a tree") };
    let mut batch = db.batch();
    for change in changes {
        match change {
            // A dropped stream first, then one from a reader.
            Change::Put(of, key, value) if value.len() > 600 => {
                drop(tree(of).write_stream(key, &value[..value.len() / 2]).expect("a stream to drop"));
                batch.put_stream(tree(of).write_stream(key, value.as_slice()).expect("a stream"))
            }
            Change::Put(of, key, value) => batch.put(&tree(of), key, value),
            Change::Delete(of, key) => batch.delete(&tree(of), key),
            Change::DeleteRange(of, bounds) => batch.delete_range(&tree(of), bounds.clone()),
            Change::Append(..) | Change::Extend(..) | Change::PutUntil(..) => unreachable!("not in this battery"),
        };
    }
    batch
}

fn maintain(db: &Db, random: &mut Random) {
    match random.below(2000) {
        0..5 => db.flush().expect("flush"),
        5..7 => db.compact().expect("compact"),
        7..15 => db.sync().expect("sync"),
        15 => {
            let report = db.verify().expect("verify");
            assert!(report.problems.is_empty(), "{:?}", report.problems);
        }
        _ => {}
    }
}
