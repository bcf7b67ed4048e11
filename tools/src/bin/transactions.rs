//! The cost of transactions compared with the same work without them.
//!
//! ```text
//! cargo run --release -p tools --bin transactions -- [--rows N] [--rounds R]
//! ```
//!
//! Prints medians in nanoseconds per operation. Commits are buffered; keys have 16 bytes, values
//! 120; all data is in memory or in the page cache.

use braiddb::{Compression, Db, Durability, Error, Tree, Update, Version};
use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const OPERATIONS: u64 = 100_000;
/// Gets in a transaction or snapshot.
const GETS: u64 = 1000;
/// Threads that increment one record.
const THREADS: u64 = 8;
/// Increments of each thread.
const COUNTS: u64 = 20_000;

fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn key(row: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(row).to_be_bytes());
    key[8..].copy_from_slice(&row.to_be_bytes());
    key
}

fn picks(rows: u64) -> impl Iterator<Item = u64> {
    (0..OPERATIONS).map(move |n| mix(n ^ 0x5eed) % rows)
}

fn timed(operations: u64, work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos() as f64 / operations as f64)
}

fn option(name: &str, default: u64) -> u64 {
    let words: Vec<String> = std::env::args().collect();
    let at = words.iter().position(|word| word == name);
    at.and_then(|at| words.get(at + 1)?.parse().ok()).unwrap_or(default)
}

type Kind = (&'static str, fn(&Db, &Tree, u64) -> Result<f64, Failure>);

const KINDS: &[Kind] = &[
    ("get and put", |_, tree, rows| {
        timed(OPERATIONS, || {
            for row in picks(rows) {
                let value = tree.get(key(row))?.ok_or("a row is missing")?;
                tree.put(key(row), &*value)?;
            }
            Ok(())
        })
    }),
    ("update: get and put in a transaction", |db, tree, rows| {
        timed(OPERATIONS, || {
            for row in picks(rows) {
                db.update(|tx| {
                    let value = tx.get(tree, key(row))?.ok_or_else(|| Error::abort("a row is missing"))?;
                    tx.put(tree, key(row), &*value)
                })?;
            }
            Ok(())
        })
    }),
    ("fetch_update", |_, tree, rows| {
        timed(OPERATIONS, || {
            for row in picks(rows) {
                tree.fetch_update(key(row), |value| value.map_or(Update::Keep, |value| Update::Put(value.to_vec())))?;
            }
            Ok(())
        })
    }),
    ("exclusive transaction: get and put", |db, tree, rows| {
        timed(OPERATIONS, || {
            for row in picks(rows) {
                let tx = db.begin_exclusive()?;
                let value = tx.get(tree, key(row))?.ok_or("a row is missing")?;
                tx.put(tree, key(row), &*value)?;
                tx.commit()?;
            }
            Ok(())
        })
    }),
    ("begin, and commit of nothing", |db, _, _| {
        timed(OPERATIONS, || {
            for _ in 0..OPERATIONS {
                db.begin()?.commit()?;
            }
            Ok(())
        })
    }),
    ("get of a snapshot, 1000 each", |db, tree, rows| {
        timed(OPERATIONS, || {
            let mut picks = picks(rows);
            for _ in 0..OPERATIONS / GETS {
                let snapshot = db.snapshot();
                for row in picks.by_ref().take(GETS as usize) {
                    black_box(snapshot.get(tree, key(row))?.ok_or("a row is missing")?);
                }
            }
            Ok(())
        })
    }),
    ("get in a transaction, 1000 each", |db, tree, rows| {
        timed(OPERATIONS, || {
            let mut picks = picks(rows);
            for _ in 0..OPERATIONS / GETS {
                let tx = db.begin()?;
                for row in picks.by_ref().take(GETS as usize) {
                    black_box(tx.get(tree, key(row))?.ok_or("a row is missing")?);
                }
            }
            Ok(())
        })
    }),
    ("8 threads counting by update", |db, tree, _| {
        count(db, tree, b"by update", |db, tree| {
            db.update(|tx| {
                let count = tx.get(tree, b"by update")?.map_or(0, |value| number(&value));
                tx.put(tree, b"by update", (count + 1).to_le_bytes())
            })
        })
    }),
    ("8 threads counting by fetch_update", |db, tree, _| {
        count(db, tree, b"by fetch_update", |_, tree| {
            let next = |value: Option<&[u8]>| value.map_or(0, number) + 1;
            tree.fetch_update(b"by fetch_update", |value| Update::Put(next(value).to_le_bytes().to_vec())).map(|_| ())
        })
    }),
    ("8 threads putting one record, for comparison", |db, tree, _| {
        let next = AtomicU64::new(0);
        count(db, tree, b"by put", move |_, tree| {
            let number = next.fetch_add(1, Ordering::Relaxed) + 1;
            tree.put(b"others", number.to_le_bytes())?;
            if number == THREADS * COUNTS { tree.put(b"by put", number.to_le_bytes()).map(|_| ()) } else { Ok(()) }
        })
    }),
    ("8 threads counting by the merge function add", |db, tree, _| {
        let add = db.merge_function("add")?;
        count(db, tree, b"by merge", move |_, tree| tree.merge(b"by merge", &add, 1_u64.to_le_bytes()).map(|_| ()))
    }),
    ("the text of a version", |db, _, _| {
        let version = db.version_of(1 << 40);
        timed(OPERATIONS, || {
            for _ in 0..OPERATIONS {
                black_box(black_box(version).etag());
            }
            Ok(())
        })
    }),
    ("the same by the formatting of the standard library", |db, _, _| {
        let version = db.version_of(1 << 40);
        timed(OPERATIONS, || {
            for _ in 0..OPERATIONS {
                let sequence = black_box(version).sequence();
                black_box(format!("\"{sequence:016x}-{sequence:016x}\""));
            }
            Ok(())
        })
    }),
    ("a version of its text", |db, _, _| {
        let etag = db.version_of(1 << 40).etag();
        timed(OPERATIONS, || {
            for _ in 0..OPERATIONS {
                black_box(Version::from_etag(black_box(&etag).as_bytes()).ok_or("no version")?);
            }
            Ok(())
        })
    }),
    ("the same by the parsing of the standard library", |db, _, _| {
        let etag = db.version_of(1 << 40).etag();
        timed(OPERATIONS, || {
            for _ in 0..OPERATIONS {
                let text: &str = black_box(&etag);
                let digits = text.trim_matches('"').split_once('-').ok_or("no version")?;
                black_box((u64::from_str_radix(digits.0, 16)?, u64::from_str_radix(digits.1, 16)?));
            }
            Ok(())
        })
    }),
];

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn count(
    db: &Db,
    tree: &Tree,
    name: &'static [u8],
    one_more: impl Fn(&Db, &Tree) -> braiddb::Result<()> + Send + Sync + 'static,
) -> Result<f64, Failure> {
    tree.delete(name)?;
    let shared = Arc::new((db.clone(), tree.clone(), one_more));
    let ns = timed(THREADS * COUNTS, || {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || (0..COUNTS).try_for_each(|_| shared.2(&shared.0, &shared.1)))
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })?;
    let counted = tree.get(name)?.map_or(0, |value| number(&value));
    if counted != THREADS * COUNTS {
        return Err(format!("of {} counts there are {counted}", THREADS * COUNTS).into());
    }
    Ok(ns)
}

fn main() -> Result<(), Failure> {
    let (rows, rounds) = (option("--rows", 500_000), option("--rounds", 7));
    let dir = std::env::temp_dir().join(format!("braiddb-transactions-{}", std::process::id()));
    let db =
        Db::builder().memory(256 << 20).durability(Durability::Buffered).compression(Compression::None).open(&dir)?;
    let tree = db.tree("rows")?;
    for row in 0..rows {
        tree.put(key(row), [row as u8; 120])?;
    }
    let mut figures = vec![Vec::new(); KINDS.len()];
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for ((_, work), figures) in KINDS.iter().zip(&mut figures) {
            db.compact()?;
            figures.push(work(&db, &tree, rows)?);
        }
    }
    for ((name, _), figures) in KINDS.iter().zip(&mut figures) {
        figures.sort_by(f64::total_cmp);
        println!("{:8.0} ns  {name}", figures[figures.len() / 2]);
    }
    let stats = db.stats();
    println!("{} conflicts, {} retries", stats.transaction_conflicts, stats.transaction_retries);
    drop(tree);
    db.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
