//! Contents of checkpoints made during writes. The tests of backups cover failures.

use crate::{
    base::Error,
    db::{
        Db, Durability, Settings, TreeOptions,
        export::checkpoint,
        maintenance::flush,
        tests_common::{DIR, bounded, mem, open, small},
    },
};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

const COPY: &str = "/copy";

fn open_copy(settings: Settings) -> Db {
    Db::open_with(Settings { create: false, ..settings }, Path::new(COPY)).unwrap()
}

type Contents = BTreeMap<(String, Vec<u8>), Vec<u8>>;

fn contents(db: &Db) -> Contents {
    let mut contents = BTreeMap::new();
    for info in db.trees().unwrap() {
        for pair in db.open_tree(&info.name).unwrap().iter() {
            let (key, value) = pair.unwrap();
            contents.insert((info.name.clone(), key.to_vec()), value.to_vec());
        }
    }
    contents
}

fn fill(db: &Db, round: u8) {
    let tree = db.tree("plain").unwrap();
    for i in 0..200_u32 {
        let len = if i.is_multiple_of(10) { 2000 } else { 20 };
        tree.put((i % 150).to_be_bytes(), vec![round ^ i as u8; len]).unwrap();
    }
    tree.put_stream(b"stream", vec![round; 70_000].as_slice()).unwrap();
    tree.delete_range(10_u32.to_be_bytes().as_slice()..20_u32.to_be_bytes().as_slice()).unwrap();
    db.flush().unwrap();
    let other = db.tree(&format!("tree {round}")).unwrap();
    other.put(b"in the log", [round; 300]).unwrap();
    if round > 0 {
        db.drop_tree(&format!("tree {}", round - 1)).unwrap();
    }
}

#[test]
fn checkpoint_is_an_independent_database() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    for round in 0..3 {
        fill(&db, round);
    }
    let before = contents(&db);
    db.tree("plain").unwrap().put(b"the last", b"one").unwrap();
    let sequence = db.checkpoint(COPY).unwrap();
    let version = db.version_of(sequence);
    db.tree("plain").unwrap().put(b"later", b"not there").unwrap();
    db.compact().unwrap();
    fill(&db, 3);

    let copy = open_copy(small(&vfs));
    assert!(copy.verify().unwrap().problems.is_empty());
    let mut expected = before;
    expected.insert(("plain".to_owned(), b"the last".to_vec()), b"one".to_vec());
    assert!(contents(&copy) == expected);
    assert_eq!(copy.snapshot().sequence(), sequence);
    assert_ne!(copy.version_of(sequence), version);
    fill(&copy, 3);
    copy.compact().unwrap();
    let (of_copy, of_db) = (contents(&copy), contents(&db));
    drop((copy, db));
    assert!(contents(&open_copy(small(&vfs))) == of_copy);
    assert!(contents(&open(small(&vfs)).unwrap()) == of_db);
}

#[test]
fn checkpoint_of_empty_database_is_empty() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    assert_eq!(db.checkpoint(COPY).unwrap(), 0);
    assert!(open_copy(small(&vfs)).trees().unwrap().is_empty());
}

#[test]
fn checkpoint_into_nonempty_directory_fails() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    fill(&db, 0);
    for dir in [DIR, COPY] {
        if dir == COPY {
            db.checkpoint(dir).unwrap();
        }
        let before = vfs.list(Path::new(dir)).unwrap().len();
        let refused = db.checkpoint(dir).unwrap_err();
        assert!(matches!(refused, Error::AlreadyExists(_)), "{refused}");
        assert_eq!(vfs.list(Path::new(dir)).unwrap().len(), before);
    }
    db.close().unwrap();
    let readers = open(Settings { read_only: true, ..small(&vfs) }).unwrap();
    assert!(matches!(readers.checkpoint("/other"), Err(Error::ReadOnly { .. })));
    assert_eq!(vfs.list(Path::new("/other")).unwrap(), []);
}

/// Numbers continue above all that may have been used.
#[test]
fn checkpoint_after_reopen_has_last_sequence_number() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    fill(&db, 0);
    db.close().unwrap();
    let db = open(small(&vfs)).unwrap();
    let visible = db.snapshot().sequence();
    assert!(db.checkpoint(COPY).unwrap() >= visible);
    assert!(contents(&open_copy(small(&vfs))) == contents(&db));
}

/// Each commit writes its number to all its keys, which reveals a state between commits.
#[test]
fn checkpoint_under_concurrent_writes_is_one_commit() {
    let vfs = mem();
    let settings = Settings { background_threads: 2, memory: 8 << 20, ..small(&vfs) };
    let db = open(settings.clone()).unwrap();
    let expiring = db.tree_with(
        "fleeting",
        TreeOptions { ttl: Some(std::time::Duration::from_secs(3600)), ..TreeOptions::default() },
    );
    let (trees, expiring) = ([db.tree("a").unwrap(), db.tree("b").unwrap()], expiring.unwrap());
    let stop = AtomicBool::new(false);
    let committed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..2_u8 {
            let (db, trees, expiring, stop, committed) = (&db, &trees, &expiring, &stop, &committed);
            scope.spawn(move || {
                for round in 1_u64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut batch = db.batch();
                    for key in 0..8_u64 {
                        let value = round.to_be_bytes().repeat(if key.is_multiple_of(4) { 60 } else { 2 });
                        batch.put(&trees[(key % 2) as usize], [writer, key as u8], &value);
                        batch.put(&trees[0], [&[writer, 100][..], &(round % 500).to_be_bytes()].concat(), [7; 50]);
                    }
                    batch.put(expiring, [writer], round.to_be_bytes());
                    let sequence = batch.commit_with(Durability::Buffered).unwrap();
                    committed.fetch_max(sequence, Ordering::SeqCst);
                    if round.is_multiple_of(200) {
                        trees[1].put_stream([writer, 200], round.to_be_bytes().repeat(3000).as_slice()).unwrap();
                        let name = format!("passing {writer}");
                        db.tree(&name).unwrap().put(b"k", b"v").unwrap();
                        db.drop_tree(&name).unwrap();
                    }
                    if round.is_multiple_of(700) {
                        db.compact().unwrap();
                    }
                }
            });
        }
        for number in 0..12 {
            let dir = format!("/copy {number}");
            let before = committed.load(Ordering::SeqCst);
            let sequence = db.checkpoint(&dir).unwrap();
            assert!(sequence >= before);
            check_state(&settings, &dir, sequence);
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop((trees, expiring));
    bounded("closing", move || db.close().unwrap());
}

fn check_state(settings: &Settings, dir: &str, sequence: u64) {
    let settings = Settings { background_threads: 0, create: false, ..settings.clone() };
    let copy = Db::open_with(settings, Path::new(dir)).unwrap();
    assert_eq!(copy.snapshot().sequence(), sequence);
    let report = copy.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let trees = [copy.open_tree("a").unwrap(), copy.open_tree("b").unwrap()];
    let fleeting = copy.open_tree("fleeting").unwrap();
    for writer in 0..2_u8 {
        let of_key = |key: u8| trees[usize::from(key % 2)].get([writer, key]).unwrap().map(|v| v[..8].to_vec());
        let round = of_key(0);
        for key in 0..8 {
            assert_eq!(of_key(key), round, "key {key} of writer {writer}");
        }
        assert_eq!(fleeting.get([writer]).unwrap().map(|v| v.to_vec()), round);
    }
}

/// A bulk load was installed during the flush for a copy. The copy had its run, with a number above
/// the copy's last commit. The run became visible once the copy reached that number, and hid the
/// copy's own commits.
#[test]
fn checkpoint_during_bulk_load_has_no_run_above_its_last_commit() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let (plain, loaded) = (db.tree("plain").unwrap(), db.tree("loaded").unwrap());
    plain.put(b"before", b"1").unwrap();
    let flushed = flush::committed(db.engine()).unwrap();
    plain.put(b"meanwhile", b"2").unwrap();
    loaded.bulk_load((0..100_u32).map(|number| (number.to_be_bytes(), b"loaded"))).unwrap();
    assert!(checkpoint::take_image(db.engine(), flushed).unwrap().is_none());

    let sequence = db.checkpoint(COPY).unwrap();
    let copy = open_copy(small(&vfs));
    assert_eq!(copy.snapshot().sequence(), sequence);
    assert_eq!(copy.tree("plain").unwrap().get(b"meanwhile").unwrap().as_deref(), Some(&b"2"[..]));
    let loaded = copy.tree("loaded").unwrap();
    assert_eq!(loaded.iter().count(), 100);
    loaded.put(7_u32.to_be_bytes(), b"of the copy").unwrap();
    copy.compact().unwrap();
    assert_eq!(loaded.get(7_u32.to_be_bytes()).unwrap().as_deref(), Some(&b"of the copy"[..]));
}
