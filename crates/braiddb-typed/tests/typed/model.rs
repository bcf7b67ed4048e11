//! Random writes against a model: records in a `BTreeMap`, and indexes computed from it.

use crate::common::{User, Users, keys, user, users, verified};
use braiddb::{Builder, Db};
use braiddb_sim::{Random, SimRuntime};
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

const SEEDS: u64 = 12;
const STEPS: u64 = 250;
const TTL_US: u64 = 1_000_000;

/// A record, and whether it expires at the next advance of the clock.
type Model = BTreeMap<u32, (User, bool)>;

fn open(path: &Path, runtime: &Arc<SimRuntime>) -> (Db, Users) {
    let builder = Builder::new().memory(4 << 20).background_threads(0).runtime(Arc::clone(runtime) as _);
    let db = builder.open(path).unwrap();
    let users = users(&db).unwrap();
    (db, users)
}

fn random_user(random: &mut Random) -> User {
    let name = ["", "a", "a\0", "b", "é"][random.below(5) as usize];
    let email = match random.below(4) {
        0 => String::new(),
        _ => format!("{}@x", random.below(40)),
    };
    let tags: Vec<&str> = ["x", "y", "z"].into_iter().filter(|_| random.below(2) == 0).collect();
    user(name, &email, &tags)
}

fn is_taken(model: &Model, key: u32, email: Option<&String>) -> bool {
    email.is_some() && model.iter().any(|(other, (found, _))| *other != key && found.email.as_ref() == email)
}

fn step(users: &Users, model: &mut Model, random: &mut Random, clock: &SimRuntime) {
    let (key, record) = (random.below(30) as u32, random_user(random));
    let taken = is_taken(model, key, record.email.as_ref());
    let mut put = |done: braiddb_typed::Result<()>, expires: bool| match done {
        Ok(()) => {
            assert!(!taken, "{key} {record:?}");
            model.insert(key, (record.clone(), expires));
        }
        Err(error) => assert!(taken && error.is_not_unique(), "{error}"),
    };
    match random.below(10) {
        0..=3 => put(users.put(&key, &record), false),
        4..=5 => put(users.put_with_ttl(&key, &record, Duration::from_micros(TTL_US)), true),
        6 => {
            let expires = model.get(&key).is_some_and(|(_, expires)| *expires);
            let mut put = |done: braiddb_typed::Result<()>| match done {
                Ok(()) => _ = model.insert(key, (record.clone(), expires)),
                Err(error) => assert!(taken && error.is_not_unique(), "{error}"),
            };
            put(users.put_keep_ttl(&key, &record));
        }
        7 if random.below(4) == 0 => {
            let end = key + 1 + random.below(4) as u32;
            users.delete_range(key..end).unwrap();
            model.retain(|key_of, _| !(key..end).contains(key_of));
        }
        7..=8 => assert_eq!(users.remove(&key).unwrap(), model.remove(&key).map(|(found, _)| found)),
        _ => {
            clock.advance_us(2 * TTL_US);
            model.retain(|_, (_, expires)| !*expires);
        }
    }
}

fn compare(users: &Users, model: &Model) {
    let records: Vec<_> = users.iter().map(Result::unwrap).collect();
    let expected: Vec<_> = model.iter().map(|(key, (record, _))| (*key, record.clone())).collect();
    assert_eq!(records, expected);
    let sorted = |values: &dyn Fn(&User) -> Vec<String>| {
        let mut pairs: Vec<_> =
            expected.iter().flat_map(|(key, record)| values(record).into_iter().map(|value| (value, *key))).collect();
        pairs.sort();
        pairs.into_iter().map(|(_, key)| key).collect::<Vec<u32>>()
    };
    assert_eq!(keys(users.index_iter("name")), sorted(&|user| vec![user.name.clone()]));
    assert_eq!(keys(users.index_iter("email")), sorted(&|user| user.email.iter().cloned().collect()));
    let by_tags = sorted(&|user| user.tags.clone());
    assert_eq!(keys(users.index_iter("tags")), by_tags);
    assert_eq!(keys(users.index_iter("tags").rev()), by_tags.into_iter().rev().collect::<Vec<_>>());
    for from in [0, 7, 29] {
        assert_eq!(
            keys(users.range(from..20)),
            expected.iter().map(|(key, _)| *key).filter(|key| (from..20).contains(key)).collect::<Vec<_>>()
        );
    }
    let wanted: Vec<u32> = (0..30).rev().collect();
    let found = users.multi_get(&wanted).unwrap();
    assert_eq!(found, wanted.iter().map(|key| model.get(key).map(|(user, _)| user.clone())).collect::<Vec<_>>());
    assert_eq!(users.len().unwrap(), expected.len() as u64);
    assert_eq!(users.count(7..20).unwrap(), model.range(7..20).count() as u64);
    verified(users);
}

#[test]
fn random_writes_equal_a_model() {
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let dir = tempfile::tempdir().unwrap();
        let (mut random, runtime) = (Random::new(seed), SimRuntime::new(seed));
        let (mut db, mut users) = open(&dir.path().join("db"), &runtime);
        let mut model = Model::new();
        for number in 0..STEPS {
            step(&users, &mut model, &mut random, &runtime);
            if number % 25 == 24 {
                compare(&users, &model);
            }
            if random.below(60) == 0 {
                drop(users);
                db.close().unwrap();
                (db, users) = open(&dir.path().join("db"), &runtime);
                compare(&users, &model);
            }
            if random.below(40) == 0 {
                db.compact().unwrap();
            }
        }
    }
}
