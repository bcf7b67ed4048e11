//! Compiles and runs the program of both README.md files.

use std::{env, fs, path::Path};

/// The program; the same lines as in both files.
fn example() -> braiddb::Result<()> {
    // README begins.
    fn main() -> braiddb::Result<()> {
        let db = braiddb::Db::open("music.db")?; // created if it is absent
        let albums = db.tree("albums")?; // so is the tree
        albums.put("01", "Ten")?; // durable when it returns
        assert_eq!(albums.get("01")?.unwrap(), "Ten");
        db.update(|tx| tx.put(&albums, "02", "Vs."))?; // a transaction
        for row in albums.prefix("0").rev() {
            let (key, value) = row?;
            println!("{key} {value}");
        }
        Ok(())
    }
    // README ends.
    main()
}

/// The lines between two markers, without their common indentation.
fn lines_between<'a>(text: &'a str, begin: &str, end: &str, indentation: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|line| line.trim() != begin).skip(1).take_while(|line| line.trim() != end);
    lines.map(|line| line.strip_prefix(indentation).unwrap_or(line)).collect()
}

#[test]
fn readme_example_runs() {
    let run = lines_between(include_str!("readme.rs"), "// README begins.", "// README ends.", "    ");
    for path in ["README.md", "../../README.md"] {
        let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let shown = lines_between(&readme, "```rust", "```", "");
        assert!(shown.len() > 10, "{path} has no Rust example");
        assert_eq!(shown, run, "{path}");
    }

    // This binary has no other test that it could affect.
    let dir = tempfile::tempdir().unwrap();
    env::set_current_dir(dir.path()).unwrap();
    example().unwrap();
    assert!(dir.path().join("music.db").is_dir());
}
