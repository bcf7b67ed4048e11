//! Measures calls through the owner of a shared database beside the owner's own calls.
//!
//! The program starts itself a second time as the member.
//!
//! ```text
//! cargo run --release -p tools --bin shared_processes [directory]
//! ```

use braiddb::{
    Builder, Durability,
    shared::{SharedDb, SharedTree},
};
use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

/// Time for each figure.
const TIME: Duration = Duration::from_secs(2);

type Done = Result<(), Box<dyn std::error::Error>>;

fn main() -> Done {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next();
    if let (Some(db), Some(_)) = (&place, arguments.next()) {
        return measure(&open(Path::new(db))?, "member");
    }
    let dir = tempfile::tempdir_in(place.unwrap_or_else(|| ".".to_owned()))?;
    let db = open(&dir.path().join("db"))?;
    measure(&db, "owner")?;
    let member = Command::new(std::env::current_exe()?).arg(dir.path().join("db")).arg("member").status()?;
    if !member.success() {
        return Err("the member failed".into());
    }
    Ok(db.close()?)
}

fn open(dir: &Path) -> braiddb::Result<SharedDb> {
    Builder::new().memory(64 << 20).durability(Durability::Buffered).open_shared(dir)
}

fn measure(db: &SharedDb, role: &str) -> Done {
    let tree = db.tree("rows")?;
    for durability in [Durability::Buffered, Durability::Sync] {
        for threads in [1, 8, 32] {
            let rate = puts(&tree, threads, durability);
            println!("{role}: {threads:2} threads, {durability:?}: {:.1} thousand puts/s", rate / 1000.0);
        }
    }
    let batches = per_second(|n| {
        let mut batch = db.batch();
        for row in 0..100_u64 {
            batch.put(&tree, (100 * n + row).to_be_bytes(), [7; 100]);
        }
        batch.commit().is_ok()
    });
    println!("{role}: batches of 100: {:.1} thousand puts/s", batches / 10.0);
    let updates = per_second(|n| {
        let updated = db.update(|tx| {
            let tree = tree.in_transaction(tx)?;
            let before = tx.get(&tree, n.to_be_bytes())?;
            tx.put(&tree, n.to_be_bytes(), before.as_deref().unwrap_or(b"first"))
        });
        updated.is_ok()
    });
    println!("{role}: transactions (get, put): {:.1} thousand/s", updates / 1000.0);
    let after_put = per_second(|n| {
        tree.put(n.to_be_bytes(), [7; 100]).is_ok() && tree.get(n.to_be_bytes()).is_ok_and(|value| value.is_some())
    });
    println!("{role}: put, then get: {:.1} thousand pairs/s", after_put / 1000.0);
    let gets = per_second(|n| tree.get((n % 1000).to_be_bytes()).is_ok());
    println!("{role}: gets: {:.1} thousand/s", gets / 1000.0);
    let refreshes = per_second(|_| db.refresh().is_ok());
    println!("{role}: refreshes without news: {:.1} thousand/s", refreshes / 1000.0);
    Ok(())
}

fn puts(tree: &SharedTree, threads: u64, durability: Durability) -> f64 {
    let one =
        |thread: u64| per_second(|n| tree.put_with((n * threads + thread).to_be_bytes(), [7; 100], durability).is_ok());
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

fn per_second(mut call: impl FnMut(u64) -> bool) -> f64 {
    let began = Instant::now();
    let mut calls = 0;
    while began.elapsed() < TIME {
        for _ in 0..8 {
            assert!(call(calls), "a call failed");
            calls += 1;
        }
    }
    calls as f64 / began.elapsed().as_secs_f64()
}
