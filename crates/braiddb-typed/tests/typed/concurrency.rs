//! Concurrent writers, and index builds beside them.

use crate::common::{User, Users, in_memory, keys, user, users, verified};
use braiddb_sim::Random;
use braiddb_typed::{Error, MessagePack, TypedTree, tuple::pack};
use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

const THREADS: u64 = 4;
const WRITES: u64 = 400;

/// Writes to few keys and few values, so that most writes meet others. Returns refused writes.
fn write_randomly(users: &Users, seed: u64, writes: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut refused = 0;
    for _ in 0..writes {
        let key = random.below(20) as u32;
        let record = user(
            ["Ann", "Bob", "Cid"][random.below(3) as usize],
            &format!("{}@x", random.below(25)),
            &[["a", "b"][random.below(2) as usize]],
        );
        let done = match random.below(5) {
            0 => users.remove(&key).map(drop),
            1 => users.update(&key, |found| found.map(|found| User { name: record.name.clone(), ..found })),
            _ => users.put(&key, &record),
        };
        match done {
            Err(error) if error.is_not_unique() => refused += 1,
            done => done.unwrap(),
        }
    }
    refused
}

#[test]
fn concurrent_writers_keep_indexes_and_uniqueness() {
    let db = in_memory();
    let tree = users(&db).unwrap();
    let (refused, writers) = (AtomicU64::new(0), AtomicU64::new(THREADS));
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let (tree, refused, writers) = (tree.clone(), &refused, &writers);
            scope.spawn(move || {
                refused.fetch_add(write_randomly(&tree, seed, WRITES), Relaxed);
                writers.fetch_sub(1, Relaxed);
            });
        }
        // An iterator sees one commit: the record of each entry has the entry's value.
        scope.spawn(|| {
            while writers.load(Relaxed) > 0 {
                let emails: Vec<_> = tree.index_iter("email").map(|record| record.unwrap().1.email).collect();
                assert!(emails.is_sorted_by(|one, other| one < other), "{emails:?}");
            }
        });
    });
    assert!(refused.into_inner() > 0, "no two writers met in the unique index");
    verified(&tree);
    let mut emails: Vec<_> = tree.iter().filter_map(|record| record.unwrap().1.email).collect();
    let count = emails.len();
    emails.sort();
    emails.dedup();
    assert_eq!(emails.len(), count);
}

#[test]
fn two_inserts_of_one_unique_value_admit_one() {
    let db = in_memory();
    let tree = users(&db).unwrap();
    for round in 0..50_u32 {
        let admitted = AtomicU64::new(0);
        thread::scope(|scope| {
            for key in 0..2 {
                let (tree, admitted) = (&tree, &admitted);
                scope.spawn(move || match tree.put(&(round * 2 + key), &user("Ann", &format!("{round}@x"), &[])) {
                    Ok(()) => _ = admitted.fetch_add(1, Relaxed),
                    Err(error) => assert!(error.is_not_unique(), "{error}"),
                });
            }
        });
        assert_eq!(admitted.into_inner(), 1);
    }
    assert_eq!(verified(&tree), 100);
}

/// A handle without the index must not write once another one has defined it.
#[test]
fn index_added_beside_a_writer_ends_its_writes() {
    let db = in_memory();
    let without: TypedTree<u32, User> = TypedTree::open(&db, "users").unwrap();
    for key in 0..600 {
        without.put(&key, &user("Ann", &format!("{key}@x"), &["a"])).unwrap();
    }
    let is_refused = AtomicBool::new(false);
    let tree = thread::scope(|scope| {
        scope.spawn(|| {
            for key in 600..100_000 {
                match without.put(&key, &user("Bob", &format!("{key}@x"), &[])) {
                    Ok(()) => {}
                    Err(Error::IndexesChanged { .. }) => return is_refused.store(true, Relaxed),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        users(&db).unwrap()
    });
    assert!(is_refused.into_inner());
    assert!(matches!(without.put(&1, &user("Eve", "", &[])), Err(Error::IndexesChanged { .. })));
    assert!(matches!(without.remove(&1), Err(Error::IndexesChanged { .. })));
    assert!(matches!(without.clear(), Err(Error::IndexesChanged { .. })));
    assert_eq!(without.get(&1).unwrap().unwrap().name, "Ann");
    assert_eq!(keys(tree.by_index("name", &"Ann")).len(), 600);
    verified(&tree);
}

#[test]
fn rebuild_beside_writers_is_right_at_the_end() {
    let db = in_memory();
    let tree = users(&db).unwrap();
    for key in 1000..2000 {
        tree.put(&key, &user("Old", &format!("{key}@x"), &["old"])).unwrap();
    }
    // A raw write that the rebuild must repair while others write.
    for key in 1000..1100_u32 {
        tree.raw().delete(braiddb_typed::tuple::pack(&key)).unwrap();
    }
    thread::scope(|scope| {
        for seed in 0..2 {
            let tree = tree.clone();
            scope.spawn(move || write_randomly(&tree, seed, WRITES));
        }
        for index in ["name", "email", "tags"] {
            tree.rebuild_index(index).unwrap();
        }
    });
    verified(&tree);
    assert_eq!(keys(tree.by_index("tags", &"old")).len(), 900);
}

/// The story: a build read on to the present end of the tree, and beside a program that appends
/// without a pause it did not get there.
#[test]
fn rebuild_beside_steady_appends_ends() {
    const RECORDS: u32 = 600;
    let db = in_memory();
    let (is_appending, appended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    // The index function lets another thread append a record for each that the rebuild reads.
    let append = {
        let (db, is_appending, appended) = (db.clone(), Arc::clone(&is_appending), Arc::clone(&appended));
        move || {
            if is_appending.load(Relaxed) && appended.load(Relaxed) < 20 * RECORDS {
                let key = RECORDS + appended.fetch_add(1, Relaxed);
                let tree = db.tree("t").unwrap();
                thread::scope(|scope| _ = scope.spawn(|| tree.put(pack(&key), "7").unwrap()).join());
            }
        }
    };
    let builder = TypedTree::<u32, u32>::builder(&db, "t").index("value", move |value: &u32| {
        append();
        *value
    });
    let tree = builder.open().unwrap();
    for key in 0..RECORDS {
        tree.put(&key, &key).unwrap();
    }
    is_appending.store(true, Relaxed);
    tree.rebuild_index("value").unwrap();
    is_appending.store(false, Relaxed);
    let appended = appended.load(Relaxed);
    assert!((1..5 * RECORDS).contains(&appended), "the rebuild followed {appended} appends");
}

/// Each record changes while the rebuild works on it, however few are in a transaction.
#[test]
fn rebuild_of_records_that_always_change_ends() {
    let db = in_memory();
    let (is_changing, changes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let await_a_change = {
        let (is_changing, changes) = (Arc::clone(&is_changing), Arc::clone(&changes));
        move || {
            let seen = changes.load(Relaxed);
            // An exclusive transaction of the rebuild stops the changes.
            for _ in 0..300 {
                if !is_changing.load(Relaxed) || changes.load(Relaxed) > seen + 4 {
                    return;
                }
                thread::park_timeout(std::time::Duration::from_millis(1));
            }
        }
    };
    let builder = TypedTree::<u32, u32>::builder(&db, "t").index("value", move |value: &u32| {
        await_a_change();
        *value
    });
    let tree = builder.open().unwrap();
    for key in 0..3 {
        tree.put(&key, &7).unwrap();
    }
    let raw = db.tree("t").unwrap();
    // The rebuild has to write: a transaction that only reads never conflicts.
    raw.delete_range(vec![0xff, 0x01]..).unwrap();
    is_changing.store(true, Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            while is_changing.load(Relaxed) {
                for key in 0..3_u32 {
                    raw.put(pack(&key), "7").unwrap();
                    changes.fetch_add(1, Relaxed);
                }
            }
        });
        let rebuilt = tree.rebuild_index("value");
        is_changing.store(false, Relaxed);
        rebuilt.unwrap();
    });
    assert_eq!(keys(tree.by_index("value", &7)), [0, 1, 2]);
}

#[test]
fn first_opens_with_two_codecs_admit_one() {
    let db = in_memory();
    for round in 0..200 {
        let name = format!("t{round}");
        if round % 2 == 0 {
            db.tree(&name).unwrap();
        }
        let barrier = Barrier::new(2);
        let (json, packed) = thread::scope(|scope| {
            let json = scope.spawn(|| {
                barrier.wait();
                TypedTree::<u32, User>::open(&db, &name)
            });
            barrier.wait();
            let packed = TypedTree::<u32, User, MessagePack>::open(&db, &name);
            (json.join().unwrap(), packed)
        });
        let refused = match (json, packed) {
            (Ok(winner), Err(refused)) => {
                winner.put(&1, &user("Ann", "", &[])).unwrap();
                refused
            }
            (Err(refused), Ok(winner)) => {
                winner.put(&1, &user("Ann", "", &[])).unwrap();
                refused
            }
            (json, packed) => panic!("round {round}: {json:?}, {packed:?}"),
        };
        assert!(matches!(refused, Error::OtherCodec { .. }), "round {round}: {refused}");
    }
}
