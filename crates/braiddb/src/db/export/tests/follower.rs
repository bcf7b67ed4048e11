//! Followers of a database that another handle writes. `braiddb-sim/tests/processes/follower.rs`
//! tests processes.

use crate::{
    base::{Error, Result},
    codec::Compression,
    db::{
        Db, Durability, Follower, Settings,
        files::names::RESTORING_NAME,
        read::healing,
        tests_common::{Clock, DIR, SECOND_NS, fault, mem, open, small},
    },
    platform::{
        OpenMode, SystemVfs, Vfs,
        fault_vfs::{FaultVfs, Operation},
    },
};
use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

fn follow(settings: Settings) -> Result<Follower> {
    Follower::open_with(settings, Path::new(DIR), None)
}

fn rows(db: &Db, tree: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let tree = db.open_tree(tree).unwrap();
    let forward: BTreeMap<_, _> =
        tree.iter().map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect();
    assert_eq!(tree.iter().rev().count(), forward.len());
    for (key, value) in &forward {
        assert_eq!(tree.get(key).unwrap().as_deref(), Some(&**value));
    }
    forward
}

#[test]
fn follower_state_is_immutable_and_refresh_has_new_commits() {
    let vfs = mem();
    let owner = open(small(&vfs)).unwrap();
    let tree = owner.tree("t").unwrap();
    tree.put("a", "1").unwrap();
    let follower = follow(small(&vfs)).unwrap();
    let first = follower.db();
    assert_eq!(rows(&first, "t").len(), 1);
    assert!(!follower.refresh().unwrap().has_changed);

    tree.put("b", vec![7; 5000]).unwrap();
    let seen = follower.refresh().unwrap();
    assert!(seen.has_changed && !seen.manifest_read && seen.records == 1, "{seen:?}");
    assert_eq!(rows(&first, "t").len(), 1);
    let second = follower.db();
    assert_eq!(rows(&second, "t"), rows(&owner, "t"));

    // Across a flush, a merge and another handle's open.
    owner.compact().unwrap();
    tree.put("a", "2").unwrap();
    owner.tree("u").unwrap().put("c", "3").unwrap();
    assert!(follower.refresh().unwrap().manifest_read);
    assert_eq!(rows(&follower.db(), "t"), rows(&owner, "t"));
    assert_eq!(rows(&follower.db(), "u").len(), 1);
    drop(tree);
    owner.close().unwrap();
    let owner = open(small(&vfs)).unwrap();
    owner.tree("t").unwrap().delete("b").unwrap();
    owner.drop_tree("u").unwrap();
    follower.refresh().unwrap();
    assert_eq!(rows(&follower.db(), "t"), rows(&owner, "t"));
    assert!(follower.db().open_tree("u").unwrap_err().is_not_found());
    assert_eq!((rows(&first, "t").len(), rows(&second, "t").len()), (1, 2));
}

#[test]
fn follower_writes_nothing_and_refuses_writes() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let owner = open(small(&fault(&vfs))).unwrap();
    for i in 0..2000u32 {
        owner.tree("t").unwrap().put(i.to_be_bytes(), [1; 40]).unwrap();
    }
    let files = vfs.files();
    let no_lock = FaultVfs::of_files(
        Path::new(DIR),
        &files.iter().filter(|(path, _)| !path.ends_with("LOCK")).map(|(p, b)| (p.clone(), b.clone())).collect(),
    );
    let before = no_lock.files();
    let follower = follow(small(&fault(&no_lock))).unwrap();
    let read_only = open(Settings { read_only: true, ..small(&fault(&no_lock)) }).unwrap();
    for db in [follower.db(), read_only] {
        assert_eq!(rows(&db, "t").len(), 2000);
        let tree = db.open_tree("t").unwrap();
        assert!(matches!(tree.put("a", "b"), Err(Error::ReadOnly { .. })));
        assert!(matches!(db.tree("new"), Err(Error::ReadOnly { .. })));
        assert!(matches!(db.compact(), Err(Error::ReadOnly { .. })));
        assert!(db.verify().unwrap().problems.is_empty());
        db.snapshot();
        drop(tree);
        db.close().unwrap();
    }
    assert!(follower.refresh().unwrap().has_changed);
    assert_eq!(rows(&follower.db(), "t").len(), 2000);
    drop(follower);
    assert_eq!(no_lock.files(), before);
}

#[test]
fn follower_of_missing_database_fails() {
    let vfs = mem();
    assert!(follow(small(&vfs)).unwrap_err().is_not_found());
    vfs.create_dir_all(Path::new(DIR)).unwrap();
    assert!(follow(small(&vfs)).unwrap_err().is_not_found());
    assert!(vfs.list(Path::new(DIR)).unwrap().is_empty());
}

#[test]
fn refresh_of_damaged_database_fails_and_keeps_state() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let owner = open(small(&fault(&vfs))).unwrap();
    let tree = owner.tree("t").unwrap();
    tree.put("a", "1").unwrap();
    let follower = follow(small(&fault(&vfs))).unwrap();
    tree.put("b", "2").unwrap();
    owner.flush().unwrap();
    let run = vfs.files().into_keys().find(|path| path.extension().is_some_and(|e| e == "run")).unwrap();
    vfs.remove(&run).unwrap();
    for _ in 0..2 {
        assert!(follower.refresh().unwrap_err().is_corruption());
        assert_eq!(rows(&follower.db(), "t").len(), 1);
    }
}

/// A follower closes files that are no longer named.
#[test]
fn follower_closes_unnamed_files() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let owner = open(Settings { read_in_place: false, ..small(&fault(&vfs)) }).unwrap();
    let follower = follow(Settings { read_in_place: false, ..small(&fault(&vfs)) }).unwrap();
    let mut handles = Vec::new();
    for round in 0..60u32 {
        for key in 0..8u8 {
            owner
                .tree("t")
                .unwrap()
                .put([key], round.to_be_bytes().repeat(if key % 2 == 0 { 20 } else { 200 }))
                .unwrap();
        }
        owner.compact().unwrap();
        assert!(follower.refresh().unwrap().manifest_read);
        assert_eq!(rows(&follower.db(), "t"), rows(&owner, "t"));
        handles.push(vfs.handles());
    }
    let (early, late) = (handles[..20].iter().max().unwrap(), handles[40..].iter().max().unwrap());
    assert!(*late <= early + 5, "{handles:?}");
}

/// Records taken by a refresh that fails are in the state of the next successful one.
#[test]
fn refresh_after_failed_refresh_has_its_records() {
    let put = |owner: &Db, rows: u8, value_len: usize| {
        let tree = owner.tree("t").unwrap();
        for i in 0..rows {
            tree.put([i], vec![i; value_len]).unwrap();
        }
    };
    let news: [&dyn Fn(&Db); 4] =
        [&|owner| put(owner, 1, 1), &|owner| put(owner, 3, 5000), &|owner| put(owner, 60, 700), &|owner| {
            put(owner, 1, 5000);
            owner.flush().unwrap();
            put(owner, 2, 1);
        }];
    let mut failed = [0; 2];
    for (number, news) in news.iter().enumerate() {
        for (operation, times) in [Operation::Open, Operation::Read].into_iter().flat_map(|o| [(o, 1), (o, 2), (o, 50)])
        {
            for after in 0.. {
                let vfs = FaultVfs::new(Path::new(DIR));
                let settings = Settings {
                    memtable_bytes: Some(256 << 10),
                    blob_threshold: 1000,
                    runtime: Clock::new(),
                    ..small(&fault(&vfs))
                };
                let owner = open(settings.clone()).unwrap();
                owner.tree("t").unwrap().put("a", "1").unwrap();
                let follower = follow(settings).unwrap();
                news(&owner);
                vfs.fail(operation, after, times, io::ErrorKind::Other);
                let looked = follower.refresh();
                let to_come = vfs.failures_to_come();
                vfs.heal();
                let what = format!("news {number}, {times} of {operation:?} fail after {after}: {looked:?}");
                failed[usize::from(looked.is_err())] += usize::from(to_come < times);
                if let Ok(looked) = looked {
                    assert!(looked.has_changed, "{what}");
                } else {
                    assert_eq!(rows(&follower.db(), "t").len(), 1, "{what}");
                    assert!(follower.refresh().unwrap().has_changed, "{what}");
                }
                assert!(rows(&follower.db(), "t") == rows(&owner, "t"), "{what}");
                if to_come == times {
                    break;
                }
            }
        }
    }
    assert!(failed.iter().all(|&times| times > 10), "{failed:?}");
}

#[test]
fn superseded_state_past_age_limit_is_closed() {
    let (vfs, clock) = (mem(), Clock::new());
    let owner = open(small(&vfs)).unwrap();
    let tree = owner.tree("t").unwrap();
    tree.put("a", vec![3; 4000]).unwrap();
    owner.tree("streams").unwrap().put_stream("s", &vec![5; 3 << 20][..]).unwrap();
    owner.flush().unwrap();
    let settings = Settings { reader_age_max_ns: 5 * SECOND_NS, runtime: clock.clone(), ..small(&vfs) };
    let follower = follow(settings).unwrap();
    let old = follower.db();
    let mut cursor = old.open_tree("t").unwrap().cursor();
    assert!(cursor.next().unwrap());
    let mut stream = old.open_tree("streams").unwrap().stream("s").unwrap().unwrap();
    let state = Arc::downgrade(&old.engine().cell.state.load());
    tree.put("b", "2").unwrap();
    assert!(follower.refresh().unwrap().has_changed);
    clock.advance(4 * SECOND_NS);
    follower.refresh().unwrap();
    assert_eq!(rows(&old, "t").len(), 1);
    clock.advance(2 * SECOND_NS);
    follower.refresh().unwrap();
    assert!(matches!(old.open_tree("t").map(|_| ()), Err(Error::Superseded)));
    assert!(old.snapshot().get(&tree, "a").is_err());
    assert!(state.strong_count() > 0, "the cursor was not asked yet");
    assert!(matches!(cursor.next(), Err(Error::Superseded)));
    assert!(state.strong_count() > 0, "the stream was not asked yet");
    assert!(stream.read_to_end(&mut Vec::new()).is_err());
    assert_eq!(state.strong_count(), 0, "both have let go of it");
    assert!(cursor.seek_first().is_err());
    assert_eq!(rows(&follower.db(), "t").len(), 2);
}

/// A read had found a damaged view, and waited for the lock while its state was superseded. It then
/// opened the files again, and published them in a state that nothing replaced any more.
#[test]
fn damaged_view_set_aside_after_state_is_superseded_opens_no_file() {
    let (vfs, clock) = (mem(), Clock::new());
    let owner = open(small(&vfs)).unwrap();
    let tree = owner.tree("t").unwrap();
    tree.put("a", vec![3; 4000]).unwrap();
    owner.compact().unwrap();
    let settings = Settings { reader_age_max_ns: SECOND_NS, runtime: clock.clone(), ..small(&vfs) };
    let follower = follow(settings).unwrap();
    let old = follower.db();
    let is_empty = || old.engine().cell.state.load().version.partitions.is_empty();
    assert!(!is_empty());
    tree.put("b", "2").unwrap();
    follower.refresh().unwrap();
    clock.advance(2 * SECOND_NS);
    follower.refresh().unwrap();
    assert!(is_empty());
    let damage = Error::corruption(Path::new("/db/000001.view"), 0, "planned damage of the test");
    let outcome = healing::set_view_aside(old.engine(), 1, &damage);
    assert!(matches!(outcome, Err(Error::Superseded)), "{outcome:?}");
    assert!(is_empty());
}

/// All values of a commit are equal, which reveals a torn state.
#[test]
fn follower_of_concurrent_writer_sees_one_commit_without_errors() {
    let vfs = mem();
    let settings = Settings { background_threads: 2, compression: Compression::None, ..small(&vfs) };
    let owner = open(settings.clone()).unwrap();
    let (tree, done) = (owner.tree("t").unwrap(), AtomicBool::new(false));
    let reported = AtomicU64::new(0);
    let commit = |number: u64| {
        let mut batch = owner.batch();
        for slot in 0..16u64 {
            let key = ((slot << 32) | ((slot * number) % 64)).to_be_bytes();
            let value = [number.to_be_bytes().to_vec(), vec![slot as u8; if slot == 3 { 400 } else { 20 }]].concat();
            batch.put(&tree, slot.to_be_bytes(), &value).put(&tree, key, &value);
        }
        batch.commit_with(Durability::Buffered).unwrap();
        reported.store(number, Ordering::SeqCst);
    };
    commit(1);
    let follower = follow(Settings { background_threads: 0, ..settings }).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 2..6000 {
                commit(number);
                if number % 1500 == 0 {
                    owner.compact().unwrap();
                }
            }
            done.store(true, Ordering::SeqCst);
        });
        let mut last = 0;
        while !done.load(Ordering::SeqCst) {
            let least = reported.load(Ordering::SeqCst);
            follower.refresh().unwrap();
            let db = follower.db();
            let tree = db.open_tree("t").unwrap();
            let number = |slot: u64| {
                let value = tree.get(slot.to_be_bytes()).unwrap().unwrap();
                u64::from_be_bytes(*value.first_chunk().unwrap())
            };
            let shown = number(0);
            assert!(shown >= least.max(last), "{shown} is shown after {least} was told and {last} was shown");
            assert!((1..16).all(|slot| number(slot) == shown));
            assert_eq!(tree.iter().map(|row| row.unwrap()).filter(|(_, v)| v[..8] == shown.to_be_bytes()).count(), 31);
            last = shown;
        }
    });
    let vfs: Arc<dyn Vfs> = vfs;
    assert!(vfs.list(Path::new(DIR)).unwrap().len() > 3);
}

/// Commits after a load are never visible without it.
#[test]
fn follower_of_bulk_load_sees_it_before_later_commits() {
    let vfs = mem();
    let settings = Settings { background_threads: 2, ..small(&vfs) };
    let owner = open(settings.clone()).unwrap();
    let (loaded, put) = (owner.tree("loaded").unwrap(), owner.tree("put").unwrap());
    let done = AtomicBool::new(false);
    let follower = follow(Settings { background_threads: 0, ..settings }).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..400_u64 {
                loaded.bulk_load([("n", number.to_be_bytes())]).unwrap();
                put.put("n", number.to_be_bytes()).unwrap();
            }
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) {
            follower.refresh().unwrap();
            let db = follower.db();
            let number = |tree: &str| {
                let value = db.open_tree(tree).unwrap().get("n").unwrap();
                value.map_or(0, |value| u64::from_be_bytes(*value.first_chunk().unwrap()))
            };
            let (loaded, put) = (number("loaded"), number("put"));
            assert!(loaded == put || loaded == put + 1, "load {loaded} and commit {put} are shown");
        }
    });
    follower.refresh().unwrap();
    assert_eq!(rows(&follower.db(), "loaded"), rows(&owner, "loaded"));
}

/// An unfinished restore is no database.
#[test]
fn follower_of_unfinished_restore_fails() {
    let vfs = mem();
    open(small(&vfs)).unwrap().close().unwrap();
    assert!(follow(small(&vfs)).is_ok());
    vfs.open(&Path::new(DIR).join(RESTORING_NAME), OpenMode::CreateNew).unwrap();
    assert!(matches!(follow(small(&vfs)), Err(Error::NotFound(_))));
}

/// A state has its files open, including those of new log records, after they are removed.
#[test]
fn follower_reads_large_values_after_blob_file_is_removed() {
    let vfs = mem();
    let owner = open(Settings { blob_threshold: 100, ..small(&vfs) }).unwrap();
    let tree = owner.tree("t").unwrap();
    let follower = follow(small(&vfs)).unwrap();
    let blobs = || {
        let names = vfs.list(Path::new(DIR)).unwrap().into_iter().map(|entry| entry.name);
        names.filter(|name| name.ends_with(".blob")).collect::<Vec<_>>()
    };
    tree.put("large", vec![7; 5000]).unwrap();
    let before = blobs();
    assert!(!before.is_empty() && follower.refresh().unwrap().has_changed);
    tree.delete("large").unwrap();
    owner.flush().unwrap();
    tree.put("other", vec![8; 5000]).unwrap();
    owner.compact().unwrap();
    owner.close().unwrap();
    drop(open(small(&vfs)).unwrap());
    assert!(blobs().iter().all(|name| !before.contains(name)), "{before:?} and {:?}", blobs());
    let value = follower.db().open_tree("t").unwrap().get("large").unwrap();
    assert_eq!(value.as_deref(), Some(&[7; 5000][..]));
}

/// Another incarnation in the same place has equal file numbers with other contents.
#[test]
fn follower_of_replaced_database_sees_the_new_one() {
    let vfs = mem();
    let owner = open(small(&vfs)).unwrap();
    let tree = owner.tree("t").unwrap();
    tree.put("a", "1").unwrap();
    owner.checkpoint("/copy").unwrap();
    for (dir, value) in [(DIR, "here"), ("/copy", "there")] {
        let db = if dir == DIR { owner.clone() } else { Db::open_with(small(&vfs), Path::new(dir)).unwrap() };
        for _ in 0..4 {
            db.tree("t").unwrap().put("b", value).unwrap();
            db.flush().unwrap();
        }
    }
    let follower = follow(small(&vfs)).unwrap();
    assert_eq!(rows(&follower.db(), "t")[&b"b"[..]], b"here");
    owner.close().unwrap();
    drop(tree);
    for entry in vfs.list(Path::new(DIR)).unwrap() {
        vfs.remove(&Path::new(DIR).join(entry.name)).unwrap();
    }
    for entry in vfs.list(Path::new("/copy")).unwrap() {
        vfs.rename(&Path::new("/copy").join(&entry.name), &Path::new(DIR).join(&entry.name)).unwrap();
    }
    follower.refresh().unwrap();
    assert_eq!(rows(&follower.db(), "t")[&b"b"[..]], b"there");
}

/// A blob file grows after a follower closed it for lack of descriptors. The new values are in runs
/// at the next refresh, and the file is removed before they are read.
#[cfg(any(unix, windows))]
#[test]
fn follower_reads_growth_of_closed_blob_file_after_removal() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("db");
    let vfs: Arc<dyn Vfs> = Arc::new(SystemVfs::new());
    let settings = |open_files_max| Settings {
        blob_file_bytes: 1 << 20,
        partition_bytes: Some(1 << 30),
        loose_runs: 100,
        fold_bytes_per_entry: 1,
        read_in_place: false,
        open_files_max,
        ..small(&vfs)
    };
    let owner = Db::open_with(settings(None), &path).unwrap();
    let tree = owner.tree("t").unwrap();
    tree.put("early", [b'e'; 1000]).unwrap();
    owner.flush().unwrap();
    let follower = Follower::open_with(settings(Some(4)), &path, None).unwrap();
    for round in 0..12u8 {
        tree.put([round], [round; 10]).unwrap();
        owner.flush().unwrap();
    }
    follower.refresh().unwrap();
    let blobs = || {
        let files = vfs.list(&path).unwrap().into_iter().map(|file| file.name);
        files.filter(|name| name.ends_with(".blob")).collect::<Vec<_>>()
    };
    let before = blobs();
    tree.put("late", [b'l'; 9000]).unwrap();
    owner.flush().unwrap();
    let expected = rows(&owner, "t");
    assert_eq!(blobs(), before, "it was to go where the others are");
    follower.refresh().unwrap();
    let state = follower.db();
    tree.delete("early").unwrap();
    tree.delete("late").unwrap();
    for _ in 0..3 {
        owner.compact().unwrap();
    }
    assert!(before.iter().all(|name| !blobs().contains(name)), "its file was to go");
    assert!(rows(&state, "t") == expected, "a state has changed");
}
