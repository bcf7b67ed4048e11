//! Compiles and runs the example of README.md.

use std::{env, fs};

/// The example; the same lines as in README.md.
fn example() -> Result<(), braiddb::Error> {
    // README begins.
    use braiddb::{Db, Durability};

    let db = Db::open("music.db")?; // or Db::in_memory()?
    let albums = db.tree("albums")?; // opened, or created
    albums.put("0001", "Pearl Jam / Ten")?; // durable when it returns
    albums.put("0002", "Pearl Jam / Vs.")?;
    assert_eq!(albums.get("0001")?.as_deref(), Some(b"Pearl Jam / Ten".as_slice()));

    // Ranges and prefixes, in both directions.
    for entry in albums.prefix("00").rev() {
        let (key, value) = entry?;
        println!("{} {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
    }

    // Several values under one key. A batch is atomic across trees.
    let by_artist = db.multi_tree("by_artist")?;
    let mut batch = db.batch();
    batch.put(&albums, "0003", "Nirvana / In Utero");
    batch.add(&by_artist, "nirvana", "0003");
    db.write(batch, Durability::Sync)?;
    assert!(by_artist.contains("nirvana", "0003")?);
    assert_eq!(by_artist.count("nirvana")?, 1);

    // A snapshot keeps reading the state of its creation.
    let snapshot = db.snapshot();
    albums.delete("0001")?;
    assert!(snapshot.contains(&albums, "0001")?);
    assert!(!albums.contains("0001")?);

    // A transaction: its reads are validated at commit, and on a conflict the closure runs again.
    let stock = db.tree("stock")?;
    stock.put("0003", [2])?;
    db.update(|tx| {
        let left = tx.get(&stock, "0003")?.map_or(0, |n| n[0]);
        if left > 0 {
            tx.put(&stock, "0003", [left - 1])?;
            tx.put(&albums, "0003", "Nirvana / In Utero (sold)")?;
        }
        Ok(())
    })?;

    // A counter without a read, and a write that is refused if the record has changed.
    let add = db.merge_function("add")?;
    stock.merge("visits", &add, 1_i64.to_le_bytes())?;
    if let Some((value, version)) = stock.get_versioned("0003")? {
        assert!(stock.put_if_version("0003", [value[0] + 1], version)?.is_some());
    }

    // Large values are written from any reader and read at any offset, in constant memory.
    let songs = db.tree("songs")?;
    songs.put_stream("0001/1", &b"Once upon a time"[..])?;
    songs.append_stream("0001/1", &b", I could lose myself"[..])?;
    assert_eq!(songs.read_range("0001/1", 18..24)?.as_deref(), Some(&b"I coul"[..]));
    // README ends.
    Ok(())
}

/// The lines between two markers, without their common indentation.
fn lines_between<'a>(text: &'a str, begin: &str, end: &str, indentation: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|line| line.trim() != begin).skip(1).take_while(|line| line.trim() != end);
    lines.map(|line| line.strip_prefix(indentation).unwrap_or(line)).collect()
}

#[test]
fn readme_example_runs() {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let shown = lines_between(&readme, "```rust", "```", "");
    assert!(shown.len() > 10, "README.md has no Rust example");
    assert_eq!(shown, lines_between(include_str!("readme.rs"), "// README begins.", "// README ends.", "    "));

    // This binary has no other test that it could affect.
    let dir = tempfile::tempdir().unwrap();
    env::set_current_dir(dir.path()).unwrap();
    example().unwrap();
    assert!(dir.path().join("music.db").is_dir());
}
