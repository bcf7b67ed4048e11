//! The process that `tests/processes/kill9_log_off.rs` kills. It commits numbered steps without WAL
//! from the application cursor on, and prints the durable ones.
//!
//! Arguments: the directory, the seed. Lines of output:
//!
//! | line | meaning |
//! |---|---|
//! | `open` number | the database is open at this cursor |
//! | `durable` number | this step and all before it are durable |

use braiddb::Durability;
use braiddb_sim::{Random, log_off, mix, numbered};
use std::io::Write;

/// Bounds a child that nothing kills.
const STEPS_MAX: u64 = 200_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().expect("the directory");
    let seed: u64 = arguments.next().expect("the seed").parse().expect("a number");
    let builder = numbered::builder(seed).background_threads(2).durability(Durability::None);
    let db = builder.open(dir).expect("open");
    let first = log_off::cursor_of(&db).expect("the cursor");
    say(&format!("open {first}"));
    let mut random = Random::new(mix(seed, first));
    for number in first + 1..first + STEPS_MAX {
        log_off::commit(&db, seed, number).expect("a commit");
        match random.below(400) {
            0..3 => {
                // Flushes since then may have made more steps durable.
                let back = random.below(3).min(number - 1);
                match db.flush_to((number - back).to_le_bytes()) {
                    Err(e) if e.is_not_found() => continue,
                    done => done.expect("flush to a cursor"),
                }
                say(&format!("durable {}", number - back));
            }
            3 => {
                db.sync().expect("sync");
                say(&format!("durable {number}"));
            }
            4 => db.compact().expect("compact"),
            _ => {}
        }
    }
}

/// One write, so that the kill never cuts a line.
fn say(line: &str) {
    if std::io::stdout().write_all(format!("{line}\n").as_bytes()).is_err() {
        std::process::exit(1);
    }
}
