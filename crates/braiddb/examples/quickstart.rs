//! The main calls in one page: trees, scans, transactions, batches, snapshots, reopening.
//!
//!     cargo run -p braiddb --example quickstart
//!
//! The program panics on a wrong result. It removes its database at the end.

use braiddb::{Db, Durability, Error, Result};

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("braiddb-quickstart-{}", std::process::id()));

    // A database is a directory, a tree is a sorted map in it. Both are created if absent.
    let db = Db::open(&dir)?;
    let albums = db.tree("albums")?;

    // A write is on the disk when it returns.
    albums.put("1991/ten", "Ten")?;
    albums.put("1993/vs", "Vs.")?;
    assert_eq!(albums.get("1991/ten")?.unwrap(), "Ten");
    assert_eq!(albums.get("1992/none")?, None);

    // Scans are in key order, forwards or backwards. Each row is a `Result`: a read can fail.
    for row in albums.prefix("199").rev() {
        let (key, title) = row?;
        println!("{key}: {title}");
    }
    assert_eq!(albums.range("1992".."1994").count(), 1);

    // Numbers in keys are big-endian, so that bytes sort as the numbers do.
    let plays = db.tree("plays")?;
    for second in [300_u64, 9, 10] {
        plays.put(second.to_be_bytes(), "1991/ten")?;
    }
    let first = plays.first()?.unwrap().0;
    assert_eq!(first, 9_u64.to_be_bytes());

    // A transaction reads and writes any trees. After a conflict its closure runs again.
    let stock = db.tree("stock")?;
    stock.put("1991/ten", "2")?;
    let sell = || {
        db.update(|tx| {
            let left = tx.get(&stock, "1991/ten")?.ok_or_else(|| Error::abort("unknown album"))?;
            let left: u32 = left.to_str()?.parse().map_err(Error::abort)?;
            let left = left.checked_sub(1).ok_or_else(|| Error::abort("sold out"))?;
            tx.put(&stock, "1991/ten", left.to_string())?;
            Ok(left)
        })
    };
    assert_eq!((sell()?, sell()?), (1, 0));
    assert!(sell().unwrap_err().is_aborted()); // and nothing is written

    // A batch writes without reading. This one survives a kill of the program at once, and a power
    // failure after the next sync.
    let mut batch = db.batch();
    batch.put(&albums, "1994/vitalogy", "Vitalogy").put(&stock, "1994/vitalogy", "5");
    batch.commit_with(Durability::Buffered)?;

    // A snapshot keeps reading the state of its creation.
    let before = db.snapshot();
    albums.delete_range("1993"..)?; // constant time
    assert_eq!((albums.len()?, before.tree(&albums).iter().count()), (1, 3));
    drop(before);

    // Everything is there after a reopening.
    db.close()?;
    let db = Db::open(&dir)?;
    assert_eq!(db.open_tree("albums")?.last()?.unwrap().1, "Ten");
    assert_eq!(db.open_tree("stock")?.get("1994/vitalogy")?.unwrap(), "5");
    db.close()?;
    std::fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", &dir, error))
}
