//! A queue consumer without WAL: the queue can replay consumed messages.
//!
//! ```text
//! cargo run --release -p braiddb --example log_off -- DIR
//! ```
//!
//! Each batch has the position in the queue as its application cursor. Everything up to a position
//! is flushed from time to time, and the queue may drop it. After a crash all trees are exactly as
//! after one of the batches; its cursor says which one, and the consumer resumes there.

use braiddb::{Db, Durability};

/// Messages in the queue.
const MESSAGES: u64 = 300_000;

const BATCH: u64 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place;
    let dir = match std::env::args().nth(1) {
        Some(dir) => dir.into(),
        None => {
            place = tempfile::tempdir()?;
            place.path().join("db")
        }
    };
    let db = Db::builder().durability(Durability::None).open(&dir)?;
    let (by_user, totals) = (db.tree("by user")?, db.tree("totals")?);
    let add = db.merge_function("add")?;
    let begun = match db.application_cursor()? {
        Some(cursor) => u64::from_le_bytes(cursor.as_slice().try_into()?),
        None => 0,
    };
    println!("resuming at message {begun}");
    for first in (begun..MESSAGES).step_by(BATCH as usize) {
        let end = (first + BATCH).min(MESSAGES);
        let mut batch = db.batch();
        for message in first..end {
            let user = message.wrapping_mul(0x9e37_79b9) % 1000;
            batch.put(&by_user, user.to_be_bytes(), message.to_le_bytes());
            batch.merge(&totals, b"messages", &add, 1_i64.to_le_bytes());
        }
        batch.set_application_cursor(end.to_le_bytes());
        batch.commit_with(Durability::None)?;
        if end.is_multiple_of(50_000) {
            db.flush_to(end.to_le_bytes())?;
            println!("messages up to {end} are durable: the queue may drop them");
        }
    }
    let total = totals.get(b"messages")?.ok_or("there is no total")?;
    assert_eq!(u64::from_le_bytes(total[..].try_into()?), MESSAGES);
    let stats = db.stats();
    println!("{MESSAGES} messages; {} bytes to the log, {} to runs", stats.log_bytes_written, stats.run_bytes_written);
    db.close()?; // what was not flushed is
    Ok(())
}
