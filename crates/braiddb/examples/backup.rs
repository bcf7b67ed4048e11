//! A checkpoint, two backups, a restore, and a return to an earlier commit.
//!
//! ```text
//! cargo run --release -p braiddb --example backup
//! ```

use braiddb::{
    Builder, Db, Durability, Result,
    backup::{Backups, DirectoryTarget, RestorePoint},
};
use std::path::Path;

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("braiddb-backup-{}", std::process::id()));
    let done = run(&dir);
    if let Err(e) = std::fs::remove_dir_all(&dir) {
        eprintln!("cannot remove {}: {e}", dir.display());
    }
    done
}

fn run(dir: &Path) -> Result<()> {
    let (archive, database) = (dir.join("archive"), dir.join("music.db"));
    let db = Db::builder().create_parents(true).log_archive(&archive).open(&database)?;
    let albums = db.tree("albums")?;
    for number in 0..50_u32 {
        let mut batch = db.batch();
        for track in 0..1000_u32 {
            batch.put(&albums, [number.to_be_bytes(), track.to_be_bytes()].concat(), b"a title");
        }
        batch.commit_with(Durability::Buffered)?;
    }

    let target = DirectoryTarget::open(dir.join("backups"))?;
    let first = db.backup(&target)?;
    println!("backup {}: {} bytes, all copied", first.id, first.bytes_copied);
    albums.put(b"new", b"Vs.")?;
    let second = db.backup(&target)?;
    println!("backup {}: {} bytes, {} copied", second.id, second.bytes, second.bytes_copied);

    let wanted = albums.put(b"the last good one", b"Ten")?;
    let sequence = db.checkpoint(dir.join("copy.db"))?;
    println!("a second database, as of commit {sequence}");
    albums.delete(b"the last good one")?;
    db.archive_now()?;
    db.close()?;

    assert!(Backups::new(&target).verify(None)?.problems.is_empty());
    let restored = Builder::new().restore(&target, Some(first.id), dir.join("restored.db"))?;
    println!("restored backup {} as of commit {}", restored.backup, restored.sequence);
    let point = RestorePoint::Version(wanted);
    let back = Builder::new().restore_to(&target, &archive, point, dir.join("back.db"))?;
    println!("went back to commit {}, {} of them from the archive", back.sequence, back.replayed);
    let albums = Db::open(dir.join("back.db"))?.open_tree("albums")?;
    assert_eq!(albums.get(b"the last good one")?.as_deref(), Some(&b"Ten"[..]));
    Ok(())
}
