//! A schema migration: records move from one layout to another in batches, and a kill loses nothing.
//!
//!     cargo run -p braiddb --example migration
//!
//! Version 1 has a tree `discs`: id as text -> "artist|title". Its keys sort "10" before "9".
//! Version 2 has `albums`: id, big-endian -> "artist|title", and an index `by_artist`.
//!
//! - The key `schema` holds the version. A program opens a database only through `open`, which
//!   migrates older versions and refuses newer ones.
//! - Each batch is one transaction, which writes to the new trees and deletes from the old one. So
//!   after a kill the old tree has exactly the records that are still to be moved.
//! - Batches need not be durable each: a crash of the system loses only the last ones, and they are
//!   in the old tree then. The version is written last, durably.
//!
//! The program starts itself, kills that process in the middle of a migration, resumes, and checks
//! every record. It panics on a wrong result.

use braiddb::{Db, Durability, Error, Result, Transaction, Tree};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const BATCH: usize = 500;
const RECORDS: u64 = 20_000;

/// Opens a database, and brings it to the present schema. Calls `on_batch` with the number of records
/// that each batch moved.
fn open(path: &Path, mut on_batch: impl FnMut(usize)) -> Result<Db> {
    let db = Db::open(path)?;
    let meta = db.tree("meta")?;
    loop {
        match meta.get("schema")?.as_deref() {
            None => meta.put("schema", "2")?, // a new database
            Some(b"1" | b"1 to 2") => migrate_1_to_2(&db, &meta, &mut on_batch)?,
            Some(b"2") => return Ok(db),
            Some(_) => return Err(Error::Unsupported { path: path.into(), detail: "newer schema".into() }),
        };
    }
}

/// Each step can be repeated, since a kill may follow any of them.
fn migrate_1_to_2(db: &Db, meta: &Tree, on_batch: &mut impl FnMut(usize)) -> Result<u64> {
    meta.put("schema", "1 to 2")?; // programs of version 1 refuse it from now on
    let (discs, albums, by_artist) = (db.tree("discs")?, db.tree("albums")?, db.tree("by_artist")?);
    loop {
        let moved = db.update_with(Durability::Buffered, |tx| move_batch(tx, &discs, &albums, &by_artist))?;
        if moved == 0 {
            break;
        }
        on_batch(moved);
    }
    db.drop_tree("discs")?;
    meta.put("schema", "2")
}

/// Moves the first records of `discs`, and returns their number.
fn move_batch(tx: &Transaction, discs: &Tree, albums: &Tree, by_artist: &Tree) -> Result<usize> {
    let rows = tx.iter(discs).take(BATCH).collect::<Result<Vec<_>>>()?;
    let Some((last, _)) = rows.last() else { return Ok(0) };
    for (key, record) in &rows {
        let id: u64 = key.to_str()?.parse().map_err(Error::abort)?;
        let (artist, _title) = split(record.to_str()?)?;
        tx.put(albums, id.to_be_bytes(), record)?;
        tx.put(by_artist, artist_key(artist, id), "")?;
    }
    tx.delete_range(discs, ..=last)?;
    Ok(rows.len())
}

fn split(record: &str) -> Result<(&str, &str)> {
    record.split_once('|').ok_or_else(|| Error::abort("a record without |"))
}

fn artist_key(artist: &str, id: u64) -> Vec<u8> {
    [artist.as_bytes(), &[0], &id.to_be_bytes()].concat()
}

fn record(id: u64) -> String {
    format!("artist {}|title {id}", id % 10)
}

/// Makes a database as version 1 of the program wrote it.
fn make_version_1(path: &Path) -> Result<()> {
    let db = Db::open(path)?;
    db.tree("meta")?.put("schema", "1")?;
    db.tree("discs")?.extend((0..RECORDS).map(|id| (id.to_string(), record(id))))?;
    db.close()
}

/// Starts this program again to migrate, and kills it after some batches.
fn migrate_and_kill(path: &Path) -> std::io::Result<()> {
    let mut child = Command::new(std::env::current_exe()?).arg(path).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line)?;
    assert_eq!(line.trim(), "kill me");
    child.kill()?;
    child.wait().map(drop)
}

/// The process that is killed: stops in the middle of its migration.
fn migrate_until_killed(path: &Path) -> Result<()> {
    let mut batches = 0;
    let db = open(path, |_moved| {
        batches += 1;
        if batches == 7 {
            println!("kill me");
            loop {
                std::thread::park();
            }
        }
    })?;
    db.close()
}

fn check(path: &Path) -> Result<()> {
    let mut moved = 0;
    let db = open(path, |records| moved += records)?;
    assert_eq!(moved as u64, RECORDS - 7 * BATCH as u64);
    let (albums, by_artist) = (db.open_tree("albums")?, db.open_tree("by_artist")?);
    assert!(db.open_tree("discs").unwrap_err().is_not_found());
    assert_eq!((albums.len()?, by_artist.len()?), (RECORDS, RECORDS));
    for (row, id) in albums.iter().zip(0_u64..) {
        let (key, value) = row?;
        assert!(key == id.to_be_bytes() && value == record(id), "{id}: {value}");
        assert!(by_artist.contains(artist_key(split(&record(id))?.0, id))?);
    }
    assert_eq!(by_artist.prefix("artist 3\0").count() as u64, RECORDS / 10);
    db.tree("meta")?.put("schema", "3")?;
    db.close()?;
    assert!(matches!(open(path, |_| ()), Err(Error::Unsupported { .. })));
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    if let Some(path) = std::env::args_os().nth(1) {
        return Ok(migrate_until_killed(path.as_ref())?);
    }
    let dir = std::env::temp_dir().join(format!("braiddb-migration-{}", std::process::id()));
    make_version_1(&dir)?;
    migrate_and_kill(&dir)?;

    let db = Db::open(&dir)?;
    let (old, new) = (db.open_tree("discs")?.len()?, db.open_tree("albums")?.len()?);
    assert!(old > 0 && new > 0 && old + new == RECORDS, "{old} and {new}");
    db.close()?;
    println!("killed with {new} of {RECORDS} records moved; resuming");

    check(&dir)?;
    Ok(std::fs::remove_dir_all(&dir)?)
}
