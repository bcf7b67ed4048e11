//! An event log: producers append, each consumer reads on from its own offset, old events expire.
//!
//!     cargo run -p braiddb --example event_log
//!
//! - An event's key is its offset, big-endian, so that a scan returns events in order of appending.
//! - A consumer stores its effects and its new offset in one transaction. So each event takes effect
//!   exactly once, also if the consumer is killed.
//! - The change stream wakes consumers; none of them polls.
//! - Events expire. A consumer that comes too late learns how many it missed.
//!
//! It panics on a wrong result.

use braiddb::watch::WatchOptions;
use braiddb::{Db, Error, Result, Transaction, Tree};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Clone)]
struct EventLog {
    db: Db,
    /// Offset -> event.
    events: Tree,
    /// "end" -> the offset of the next event; "consumer/NAME" -> the next offset it will read.
    offsets: Tree,
}

impl EventLog {
    fn open(db: &Db, name: &str) -> Result<EventLog> {
        let events = db.tree(&format!("{name}.events"))?;
        let offsets = db.tree(&format!("{name}.offsets"))?;
        Ok(EventLog { db: db.clone(), events, offsets })
    }

    /// Appends events, which expire after `retention`. Returns the offset of the first one.
    /// They are durable on return. One commit of many events is cheaper than many commits.
    fn append(&self, events: &[String], retention: Duration) -> Result<u64> {
        self.db.update(|tx| {
            let first = self.offset(tx, "end")?;
            for (offset, event) in (first..).zip(events) {
                tx.put_with_ttl(&self.events, offset.to_be_bytes(), event, retention)?;
            }
            let end = first + events.len() as u64;
            tx.put(&self.offsets, "end", end.to_be_bytes())?;
            Ok(first)
        })
    }

    /// Handles up to `limit` events that the consumer has not handled. If `handle` fails, neither its
    /// writes nor the new offset are stored. Returns the numbers of handled and of expired events.
    fn consume(
        &self,
        consumer: &str,
        limit: usize,
        handle: impl Fn(&Transaction, u64, &str) -> Result<()>,
    ) -> Result<(u64, u64)> {
        let consumer = format!("consumer/{consumer}");
        self.db.update(|tx| {
            let begin = self.offset(tx, &consumer)?;
            // Events never change. So read them from the snapshot, whose reads the commit does not
            // check: a concurrent append is then no conflict.
            let snapshot = tx.snapshot();
            let end = decode(snapshot.get(&self.offsets, "end")?.as_deref())?;
            let (mut next, mut handled) = (end, 0);
            for row in snapshot.tree(&self.events).range(begin.to_be_bytes()..).take(limit) {
                let (key, event) = row?;
                let offset = decode(Some(&key))?;
                handle(tx, offset, event.to_str()?)?;
                handled += 1;
                next = offset + 1;
            }
            tx.put(&self.offsets, &consumer, next.to_be_bytes())?;
            Ok((handled, next - begin - handled))
        })
    }

    fn offset(&self, tx: &Transaction, key: &str) -> Result<u64> {
        decode(tx.get(&self.offsets, key)?.as_deref())
    }
}

/// Decodes an offset; none counts as 0.
fn decode(bytes: Option<&[u8]>) -> Result<u64> {
    let Some(bytes) = bytes else { return Ok(0) };
    Ok(u64::from_be_bytes(bytes.try_into().map_err(Error::abort)?))
}

/// Adds up orders such as "ann 3" by customer, until it has handled `events` of them.
fn keep_totals(log: &EventLog, totals: &Tree, events: u64) -> Result<()> {
    // Begins before the first look, so that no append is missed between them.
    let mut appends = log.db.watch(WatchOptions::new().tree(&log.events))?;
    let mut handled = 0;
    while handled < events {
        let (new, _expired) = log.consume("totals", 100, |tx, _offset, order| {
            let (customer, copies) = order.split_once(' ').ok_or_else(|| Error::abort("no order"))?;
            let copies: u64 = copies.parse().map_err(Error::abort)?;
            let total = decode(tx.get(totals, customer)?.as_deref())? + copies;
            tx.put(totals, customer, total.to_be_bytes())
        })?;
        handled += new;
        if new == 0 {
            appends.next()?; // waits for a commit
        }
    }
    Ok(())
}

fn run(dir: &std::path::Path) -> Result<()> {
    let db = Db::open(dir)?;
    let log = EventLog::open(&db, "orders")?;
    let totals = db.tree("totals")?;

    std::thread::scope(|scope| {
        let consumer = scope.spawn(|| keep_totals(&log, &totals, 400));
        let producers = ["ann", "bob"].map(|customer| {
            let log = log.clone();
            scope.spawn(move || {
                (1..=20).try_for_each(|n| log.append(&vec![format!("{customer} {n}"); 10], DAY).map(drop))
            })
        });
        producers.into_iter().chain([consumer]).try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let total = |totals: &Tree, name| decode(totals.get(name)?.as_deref());
    assert_eq!((total(&totals, "ann")?, total(&totals, "bob")?), (2100, 2100));

    // A consumer that fails moves nothing: the event comes again.
    log.append(&["ann many".to_owned()], DAY)?;
    let error = keep_totals(&log, &totals, 1).unwrap_err();
    assert!(error.is_aborted(), "{error}");
    let skipped = log.consume("totals", 1, |_, _, _| Ok(()))?;
    assert_eq!(skipped, (1, 0));

    // Offsets survive a restart.
    db.close()?;
    let db = Db::open(dir)?;
    let log = EventLog::open(&db, "orders")?;
    assert_eq!(log.consume("totals", 100, |_, _, _| Ok(()))?, (0, 0));

    // These expire at once. The events before them remain for a day, also for a new consumer.
    assert_eq!(log.append(&["ann 1", "ann 2"].map(String::from), Duration::ZERO)?, 401);
    assert_eq!(log.append(&["ann 3".to_owned()], DAY)?, 403);
    assert_eq!(log.consume("audit", 1000, |_, _, _| Ok(()))?, (402, 2));
    db.close()
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("braiddb-event-log-{}", std::process::id()));
    run(&dir)?;
    std::fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", &dir, error))
}
