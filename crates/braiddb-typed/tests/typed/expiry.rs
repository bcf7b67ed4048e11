//! Records that expire, and their index entries.

use crate::common::{Users, keys, user, users, verified, with_clock};
use braiddb::TreeOptions;
use braiddb_typed::TypedTree;
use std::time::Duration;

const SECOND_US: u64 = 1_000_000;

#[test]
fn expired_record_leaves_the_indexes_with_its_entries() {
    let (db, clock) = with_clock();
    let users = users(&db).unwrap();
    users.put_with_ttl(&1, &user("Ann", "ann@x", &["a"]), Duration::from_secs(10)).unwrap();
    users.put(&2, &user("Bob", "bob@x", &["a"])).unwrap();
    let (_, expires) = users.get_with_expiry(&1).unwrap().unwrap();
    assert!(expires.is_some());
    assert_eq!(keys(users.by_index("tags", &"a")), [1, 2]);
    assert!(users.put(&3, &user("Eve", "ann@x", &[])).unwrap_err().is_not_unique());
    let before = db.snapshot();
    clock.advance_us(11 * SECOND_US);
    assert_eq!(keys(users.by_index("tags", &"a")), [2]);
    assert_eq!(keys(users.at(&before).by_index("tags", &"a")), [1, 2]);
    assert_eq!(verified(&users), 3);
    // The unique value is free again.
    users.put(&3, &user("Eve", "ann@x", &[])).unwrap();
    drop(before);
    db.compact().unwrap();
    assert_eq!((users.raw().iter().count(), verified(&users)), (1 + 2 + 5, 5));
}

#[test]
fn put_over_an_expiring_record_changes_its_entries_too() {
    let (db, clock) = with_clock();
    let users = users(&db).unwrap();
    let ann = user("Ann", "ann@x", &["a"]);
    users.put_with_ttl(&1, &ann, Duration::from_secs(10)).unwrap();
    users.put(&1, &ann).unwrap();
    users.put(&2, &user("Bob", "bob@x", &[])).unwrap();
    users.put_with_ttl(&2, &user("Bob", "bob@x", &["b"]), Duration::from_secs(20)).unwrap();
    users.put_with_ttl(&3, &user("Cid", "cid@x", &[]), Duration::from_secs(20)).unwrap();
    users.put_keep_ttl(&3, &user("Cyd", "cyd@x", &["c"])).unwrap();
    verified(&users);
    clock.advance_us(11 * SECOND_US);
    assert_eq!(keys(users.index_iter("name")), [1, 2, 3]);
    clock.advance_us(10 * SECOND_US);
    assert_eq!(keys(users.index_iter("name")), [1]);
    assert_eq!(verified(&users), 3);
    // A record that has expired when it is written leaves nothing.
    users.put_until(&1, &ann, std::time::UNIX_EPOCH).unwrap();
    assert_eq!((users.len().unwrap(), verified(&users)), (0, 0));
    users.put(&4, &ann).unwrap();
    assert_eq!(verified(&users), 3);
}

#[test]
fn default_ttl_of_the_tree_spares_definitions_and_older_records() {
    let (db, clock) = with_clock();
    let ttl = TreeOptions::new().ttl(Duration::from_secs(10));
    let open = |options| -> Users {
        TypedTree::builder(&db, "sessions")
            .options(options)
            .index("name", |user: &crate::common::User| user.name.clone())
            .open()
            .unwrap()
    };
    let sessions = open(ttl);
    sessions.put(&1, &user("Ann", "", &[])).unwrap();
    sessions.put_with_ttl(&2, &user("Bob", "", &[]), Duration::from_secs(100)).unwrap();
    let codec = sessions.raw().options().codec.unwrap();
    sessions.raw().set_options(TreeOptions::new().codec(codec)).unwrap();
    sessions.put(&3, &user("Cid", "", &[])).unwrap();
    sessions.raw().set_options(ttl.codec(codec)).unwrap();
    // Has no expiry time, and keeps that.
    sessions.put_keep_ttl(&3, &user("Cyd", "", &[])).unwrap();
    assert_eq!(sessions.get_with_expiry(&3).unwrap().unwrap().1, None);
    assert_eq!(verified(&sessions), 3);
    clock.advance_us(11 * SECOND_US);
    assert_eq!(keys(sessions.index_iter("name")), [2, 3]);
    clock.advance_us(1_000 * SECOND_US);
    assert_eq!(keys(sessions.index_iter("name")), [3]);
    drop(sessions);
    let sessions = open(ttl);
    sessions.rebuild_index("name").unwrap();
    assert_eq!(verified(&sessions), 1);
}

#[test]
fn rebuild_gives_entries_the_expiry_time_of_their_record() {
    let (db, clock) = with_clock();
    let users = users(&db).unwrap();
    users.put_with_ttl(&1, &user("Ann", "ann@x", &["a"]), Duration::from_secs(10)).unwrap();
    let key = braiddb_typed::tuple::pack(&1_u32);
    let value = users.raw().get(&key).unwrap().unwrap();
    users.raw().put_with_ttl(&key, &value, Duration::from_secs(100)).unwrap();
    assert_eq!(users.verify_indexes().unwrap().problems.len(), 3);
    for index in ["name", "email", "tags"] {
        users.rebuild_index(index).unwrap();
    }
    verified(&users);
    clock.advance_us(50 * SECOND_US);
    assert_eq!(keys(users.by_index("tags", &"a")), [1]);
    clock.advance_us(51 * SECOND_US);
    assert_eq!((keys(users.by_index("tags", &"a")), verified(&users)), (vec![], 0));
}

/// The engine's time continues from the old value, so entries and records stay together.
#[test]
fn wall_clock_set_back_keeps_records_and_entries_together() {
    let (db, clock) = with_clock();
    let users = users(&db).unwrap();
    users.put_with_ttl(&1, &user("Ann", "ann@x", &["a"]), Duration::from_secs(10)).unwrap();
    clock.jump_us(-(3600 * SECOND_US as i64));
    users.put_with_ttl(&2, &user("Bob", "bob@x", &["a"]), Duration::from_secs(20)).unwrap();
    verified(&users);
    for _ in 0..25 {
        clock.advance_us(SECOND_US);
        let by_index = keys(users.by_index("tags", &"a"));
        assert_eq!(by_index, keys(users.iter()));
        verified(&users);
    }
    assert_eq!(users.len().unwrap(), 0);
}

/// The story: an entry was put with the tree's default expiry time, which was removed before the
/// check for one.
#[test]
fn entries_expire_with_their_records_while_the_default_ttl_changes() {
    let db = crate::common::in_memory();
    let tags: Vec<String> = (0..20).map(|tag| format!("{tag}")).collect();
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    let users = users(&db).unwrap();
    let raw = users.raw();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut ttl = Some(Duration::from_secs(1000));
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                let mut options = raw.options();
                options.ttl = ttl;
                raw.set_options(options).unwrap();
                ttl = if ttl.is_some() { None } else { Some(Duration::from_secs(1000)) };
            }
        });
        for key in 0..3000 {
            users.put(&key, &user("Ann", "", &tags)).unwrap();
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    verified(&users);
}
