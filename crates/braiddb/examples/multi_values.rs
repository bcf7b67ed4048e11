//! Many values per key: an index of albums by artist.
//!
//! ```text
//! cargo run -p braiddb --example multi_values
//! ```

use braiddb::{Db, Durability, Result};

fn main() -> Result<()> {
    let db = Db::in_memory()?;
    let (albums, by_artist) = (db.tree("albums")?, db.multi_tree("by artist")?);
    let rows = [
        ("0001", "Pearl Jam", "Ten"),
        ("0002", "Pearl Jam", "Vs."),
        ("0003", "Nirvana", "In Utero"),
        ("0004", "Pearl Jam", "Vitalogy"),
    ];

    // A record and its index entry are one commit.
    for (id, artist, title) in rows {
        let mut batch = db.batch();
        batch.put(&albums, id, title).add(&by_artist, artist, id);
        batch.commit_with(Durability::Sync)?;
    }
    assert_eq!(by_artist.count_values("Pearl Jam")?, 3);
    assert!(by_artist.contains_pair("Nirvana", "0003")?);

    // All albums of each artist. A cursor lends its current pair.
    let mut cursor = by_artist.cursor();
    while cursor.next_key()? {
        println!("{}: {} albums", String::from_utf8_lossy(cursor.key()), cursor.count_values()?);
        loop {
            let title = albums.get(cursor.value())?.unwrap_or_default();
            println!("  {}", String::from_utf8_lossy(&title));
            if !cursor.next_value()? {
                break;
            }
        }
    }

    // By value: the first album at or after a number, the last before it, and a range.
    assert!(cursor.seek_value("Pearl Jam", "0003")?);
    assert_eq!(cursor.value(), b"0004");
    assert!(cursor.seek_value_before("Pearl Jam", "0003")?);
    assert_eq!(cursor.value(), b"0002");
    let newest_first: Vec<_> = by_artist.values_range("Pearl Jam", "0001"..="0002").rev().collect::<Result<_>>()?;
    assert_eq!(newest_first[0], b"0002");

    // The count is read by the transaction: a concurrent add makes it run again.
    db.update(|tx| {
        let index = tx.multi_tree(&by_artist);
        if index.count_values("Nirvana")? < 2 {
            index.add("Nirvana", "0005")?;
            tx.put(&albums, "0005", "Nevermind")?;
        }
        Ok(())
    })?;

    let snapshot = db.snapshot();
    let before = snapshot.multi_tree(&by_artist);
    by_artist.delete("Nirvana")?;
    assert_eq!((before.count_values("Nirvana")?, by_artist.count_values("Nirvana")?), (2, 0));
    for id in before.values("Nirvana") {
        println!("before the delete, Nirvana had {}", id?);
    }
    Ok(())
}
