//! Compiles and runs the examples of docs/guide/async.md.

use braiddb::{
    Db, Result, SequenceNumber, Tree, Value,
    watch::{ChangeSet, WatchOptions},
};
use tokio::task::spawn_blocking;

async fn add_album(albums: &Tree, id: &str, title: &str) -> Result<SequenceNumber> {
    albums.put_async(id, title).await
}

async fn move_album(db: &Db, from: &Tree, to: &Tree, id: &str) -> Result<()> {
    loop {
        let tx = db.begin()?;
        let Some(title) = tx.get(from, id)? else { return Ok(()) };
        tx.delete(from, id)?;
        tx.put(to, id, title)?;
        match tx.commit_async().await {
            Err(error) if error.is_conflict() => continue,
            done => return done.map(|_| ()),
        }
    }
}

async fn add_album_when_throttled(albums: Tree, id: String, title: String) -> Result<SequenceNumber> {
    let commit = spawn_blocking(move || albums.put_async(id, title)).await.expect("the call does not panic");
    commit.await
}

async fn find_album(albums: &Tree, id: String) -> Result<Option<Value>> {
    let albums = albums.clone();
    spawn_blocking(move || albums.get(id)).await.expect("the call does not panic")
}

async fn follow(db: &Db, mut on_commit: impl FnMut(ChangeSet)) -> Result<()> {
    let mut changes = db.watch(WatchOptions::new())?.into_stream()?;
    while let Some(commit) = changes.next().await {
        on_commit(commit?);
    }
    Ok(())
}

#[test]
fn code_of_the_guide_is_compiled_here() {
    let guide = include_str!("../../../docs/guide/async.md");
    let blocks: Vec<&str> = guide.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 5, "{} blocks", blocks.len());
    for block in blocks {
        assert!(include_str!("guide_async.rs").contains(block), "not in this file:\n{block}");
    }
    assert_eq!(guide.matches("```").count(), 2 * guide.matches("```rust").count(), "a block that is not Rust");
}

#[tokio::test]
async fn code_of_the_guide_runs() -> Result<()> {
    let db = Db::in_memory()?;
    let (albums, sold) = (db.tree("albums")?, db.tree("sold")?);
    let watched = db.clone();
    let mut watcher = db.watch(WatchOptions::new())?;
    add_album(&albums, "1", "Ten").await?;
    add_album_when_throttled(albums.clone(), "2".to_owned(), "Vs.".to_owned()).await?;
    move_album(&db, &albums, &sold, "1").await?;
    assert_eq!(find_album(&albums, "1".to_owned()).await?, None);
    assert_eq!(find_album(&sold, "1".to_owned()).await?.as_deref(), Some(&b"Ten"[..]));
    for _ in 0..3 {
        assert!(watcher.try_next()?.is_some());
    }
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let following = tokio::spawn(async move { follow(&watched, |commit| sender.send(commit).unwrap_or(())).await });
    let mut number = 0;
    let seen = loop {
        add_album(&albums, &number.to_string(), "Vitalogy").await?;
        number += 1;
        match receiver.try_recv() {
            Ok(commit) => break commit,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    assert!(seen.sequence > 3);
    db.close()?;
    assert!(following.await.expect("no panic").is_err_and(|error| matches!(error, braiddb::Error::Closed)));
    Ok(())
}
