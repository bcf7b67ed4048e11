//! Follows a database by its change stream, stops, and resumes.
//!
//! ```text
//! cargo run --release -p braiddb --example watch
//! ```
//!
//! The follower keeps an index of albums by artist in its own database. It stores its token as the
//! application cursor with the index changes, so a kill never loses or repeats a change.

use braiddb::{
    Db, Durability, Error,
    watch::{Change, ChangeSet, ResumeToken, WatchOptions, Watcher},
};

fn main() -> braiddb::Result<()> {
    let source = Db::builder().log_retention(64 << 20).open_in_memory()?; // how far back watchers can begin
    let albums = source.tree("albums")?;
    albums.put("0001", "Pearl Jam / Ten")?;

    let index = Db::in_memory()?;
    let mut watcher = begin(&source, &index)?;
    for (key, album) in
        [("0002", "Pearl Jam / Vs."), ("0003", "Soundgarden / Superunknown"), ("0004", "Temple of the Dog")]
    {
        albums.put(key, album)?;
    }
    let first = watcher.try_next()?; // or next(), which waits
    follow(&index, &first.into_iter().collect::<Vec<_>>())?;
    println!("after one commit: {} artists", artists(&index)?);

    drop(watcher);
    albums.put("0005", "Mudhoney / Superfuzz Bigmuff")?;
    let mut watcher = begin(&source, &index)?;
    while let Some(commit) = watcher.try_next()? {
        println!("commit {}: {} changes", commit.sequence, commit.changes.len());
        follow(&index, &[commit])?;
    }
    println!("in the end: {} artists", artists(&index)?);
    assert_eq!(artists(&index)?, 4);
    Ok(())
}

/// Resumes a watcher from the index's token, or rebuilds the index from a snapshot.
fn begin(source: &Db, index: &Db) -> braiddb::Result<Watcher> {
    let options = WatchOptions::new().tree(&source.tree("albums")?);
    if let Some(token) = index.application_cursor()? {
        match source.watch(options.clone().resume(ResumeToken::from_bytes(&token)?)) {
            Err(Error::WatchTooOld { .. }) => println!("the log no longer has these commits: reading everything"),
            watcher => return watcher,
        }
    }
    let snapshot = source.snapshot();
    let watcher = source.watch(options.after(snapshot.sequence()))?;
    let by_artist = index.tree("by artist")?;
    let mut batch = index.batch();
    batch.delete_range(&by_artist, ..);
    for pair in snapshot.range(&source.tree("albums")?, ..) {
        let (key, album) = pair?;
        batch.put(&by_artist, artist_of(&album), &key);
    }
    batch.set_application_cursor(watcher.token().to_bytes());
    batch.commit_with(Durability::Sync)?;
    Ok(watcher)
}

fn follow(index: &Db, commits: &[ChangeSet]) -> braiddb::Result<()> {
    let by_artist = index.tree("by artist")?;
    for commit in commits {
        let mut batch = index.batch();
        for change in &commit.changes {
            match change {
                Change::Put { key, value, .. } => _ = batch.put(&by_artist, artist_of(value), key),
                // The example ignores other changes. `Change::Gap` would mean to rebuild the index.
                other => println!("not followed: {other:?}"),
            }
        }
        batch.set_application_cursor(commit.token.to_bytes());
        batch.commit_with(Durability::Sync)?;
    }
    Ok(())
}

fn artist_of(album: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(album);
    text.split(" / ").next().unwrap_or_default().to_lowercase().into_bytes()
}

fn artists(index: &Db) -> braiddb::Result<usize> {
    index.tree("by artist")?.iter().try_fold(0, |count, row| row.map(|_| count + 1))
}
