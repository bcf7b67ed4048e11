//! A job queue: priorities, leases with a timeout, a limited number of attempts, four workers.
//!
//! The key of a waiting job starts with its priority, so the first row is the most urgent job. A
//! worker moves it to `leased`, under its deadline, and deletes it when the work is done. A job
//! that fails, or whose worker is too slow, waits again until it has no attempt left: then it is
//! moved to `dead`. Counters are merge operands of the same commits, so they are always right.

#![allow(clippy::disallowed_methods)] // the engine's own code takes the time from its runtime

use braiddb::{Db, Durability, Error, Key, Result, Transaction, Tree, Value, merge::MergeFunctionHandle};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const JOBS: u64 = 400;
const WORKERS: usize = 4;
const ATTEMPTS: u8 = 3;
const LEASE_MS: u64 = 500;

struct Queue {
    db: Db,
    ready: Tree,    // priority (urgent first), number -> attempts, time of arrival, text
    leased: Tree,   // deadline, key in `ready` -> the same
    dead: Tree,     // key in `ready` -> the same
    state: Tree,    // "next" -> the next number
    counters: Tree, // name -> i64
    add: MergeFunctionHandle,
}

struct Lease {
    key: Vec<u8>, // in `leased`
    attempt: u8,
    text: String,
}

impl Queue {
    fn open(path: &Path) -> Result<Self> {
        let db = Db::open(path)?;
        Ok(Self {
            ready: db.tree("ready")?,
            leased: db.tree("leased")?,
            dead: db.tree("dead")?,
            state: db.tree("state")?,
            counters: db.tree("counters")?,
            add: db.merge_function("add")?,
            db,
        })
    }

    fn submit(&self, priority: u8, text: &str) -> Result<()> {
        self.db.update(|tx| {
            let number = tx.get(&self.state, "next")?.map_or(0, |next| number(&next));
            tx.put(&self.state, "next", (number + 1).to_be_bytes())?;
            let key = [&[u8::MAX - priority][..], &number.to_be_bytes()].concat();
            let job = [&[0][..], &now_ms().to_be_bytes(), text.as_bytes()].concat();
            tx.put(&self.ready, key, job)?;
            self.count(tx, "submitted", 1)
        })
    }

    /// Leases the most urgent job. A lease that a crash undoes costs nothing, so it is buffered.
    fn lease(&self) -> Result<Option<Lease>> {
        self.db.update_with(Durability::Buffered, |tx| {
            let Some((key, job)) = tx.first(&self.ready)? else { return Ok(None) };
            let (now, attempt) = (now_ms(), job[0] + 1);
            let lease = [&(now + LEASE_MS).to_be_bytes()[..], &key].concat();
            tx.delete(&self.ready, &key)?;
            tx.put(&self.leased, &lease, [&[attempt][..], &job[1..]].concat())?;
            if attempt == 1 {
                let waited = now.saturating_sub(number(&job[1..9])) as i64;
                self.count(tx, &format!("waited, priority {}", u8::MAX - key[0]), waited)?;
            }
            let text = String::from_utf8_lossy(&job[9..]).into_owned();
            Ok(Some(Lease { key: lease, attempt, text }))
        })
    }

    /// Ends a lease. Returns false if its time was over: then the work does not count.
    fn finish(&self, lease: &Lease, succeeded: bool) -> Result<bool> {
        self.db.update(|tx| {
            let job = tx.get(&self.leased, &lease.key)?;
            let in_time = now_ms() < number(&lease.key[..8]);
            let Some(job) = job.filter(|_| in_time) else { return Ok(false) };
            tx.delete(&self.leased, &lease.key)?;
            if succeeded {
                self.count(tx, "done", 1)?;
            } else {
                self.count(tx, "failed attempts", 1)?;
                self.retry(tx, &lease.key[8..], &job)?;
            }
            Ok(true)
        })
    }

    fn return_expired(&self) -> Result<()> {
        self.db.update(|tx| {
            let expired = tx.range(&self.leased, ..now_ms().to_be_bytes());
            for (lease, job) in expired.collect::<Result<Vec<(Key, Value)>>>()? {
                tx.delete(&self.leased, &lease)?;
                self.count(tx, "expired leases", 1)?;
                self.retry(tx, &lease[8..], &job)?;
            }
            Ok(())
        })
    }

    fn retry(&self, tx: &Transaction, key: &[u8], job: &[u8]) -> Result<()> {
        if job[0] < ATTEMPTS {
            return tx.put(&self.ready, key, job);
        }
        self.count(tx, "dead", 1)?;
        tx.put(&self.dead, key, job)
    }

    fn count(&self, tx: &Transaction, name: &str, by: i64) -> Result<()> {
        tx.merge(&self.counters, name, &self.add, by.to_le_bytes())
    }

    fn counter(&self, name: &str) -> Result<i64> {
        let Some(count) = self.counters.get(name)? else { return Ok(0) };
        Ok(i64::from_le_bytes(count.try_into().map_err(Error::abort)?))
    }

    /// Whether no job waits and none is leased, at one moment.
    fn is_idle(&self) -> Result<bool> {
        let now = self.db.snapshot();
        Ok(now.tree(&self.ready).is_empty()? && now.tree(&self.leased).is_empty()?)
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// One worker: returns how many jobs it finished, and how often it was too late.
fn work(queue: &Queue) -> Result<(u64, u64)> {
    let (mut finished, mut late) = (0, 0);
    while !queue.is_idle()? {
        queue.return_expired()?;
        let Some(lease) = queue.lease()? else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let succeeded = match lease.text.as_str() {
            "broken" => false,
            "flaky" => lease.attempt > 1,
            "slow" if lease.attempt == 1 => {
                thread::sleep(Duration::from_millis(LEASE_MS + 100));
                true
            }
            _ => true,
        };
        match queue.finish(&lease, succeeded)? {
            true => finished += u64::from(succeeded),
            false => late += 1,
        }
    }
    Ok((finished, late))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("braiddb-job-queue-{}", std::process::id()));
    let queue = Queue::open(&path)?;
    for job in 0..JOBS {
        let text = match job % 50 {
            1 => "broken",
            2 => "slow",
            3..8 => "flaky",
            _ => "plain",
        };
        queue.submit((job % 3) as u8, text)?;
    }

    let counts = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(|| work(&queue))).collect();
        workers.into_iter().map(|worker| worker.join().expect("no worker panics")).collect::<Result<Vec<_>>>()
    })?;
    for (worker, (finished, late)) in counts.iter().enumerate() {
        println!("worker {worker}: {finished} jobs done, {late} too late");
    }
    for row in &queue.counters {
        let (name, count) = row?;
        println!("{name}: {}", i64::from_le_bytes(count.try_into()?));
    }
    println!("conflicts: {}", queue.db.stats().transaction_conflicts);

    assert_eq!(queue.counter("submitted")?, JOBS as i64);
    assert_eq!(queue.counter("done")? + queue.counter("dead")?, JOBS as i64);
    assert_eq!(queue.dead.len()?, JOBS / 50);
    assert!(queue.counter("expired leases")? >= JOBS as i64 / 50);
    assert!(queue.counter("waited, priority 2")? < queue.counter("waited, priority 0")?);
    queue.db.close()?;
    std::fs::remove_dir_all(&path)?;
    Ok(())
}
