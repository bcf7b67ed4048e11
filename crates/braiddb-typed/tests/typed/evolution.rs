//! Opens of existing trees: other codecs, untyped records, added, changed and dropped indexes.

use crate::common::{User, Users, in_memory, keys, message, user, users, verified};
use braiddb::{Db, TreeOptions};
use braiddb_typed::{Error, Json, MessagePack, Raw, Result, TypedTree, ValueCodec};
use std::time::Duration;

fn plain(db: &Db) -> Result<Users> {
    TypedTree::open(db, "users")
}

#[test]
fn open_names_the_codec_in_the_catalog() {
    let db = in_memory();
    let _: TypedTree<u32, User> = TypedTree::open(&db, "json").unwrap();
    let _: TypedTree<u32, User, MessagePack> = TypedTree::open(&db, "msgpack").unwrap();
    let _: TypedTree<u32, Vec<u8>, Raw> = TypedTree::open(&db, "raw").unwrap();
    let codecs: Vec<_> = db.trees().unwrap().iter().map(|tree| tree.codec.unwrap().to_string()).collect();
    assert_eq!(codecs, ["tuple/json", "tuple/msgpack", "tuple/raw"]);
}

#[test]
fn open_with_another_codec_is_refused() {
    let db = in_memory();
    plain(&db).unwrap();
    let other: Result<Users<MessagePack>> = TypedTree::open(&db, "users");
    message(other, &["users", "tuple/json", "tuple/msgpack"]);
    assert_eq!(db.open_tree("users").unwrap().options().codec.unwrap().value(), "json");
    db.multi_tree("pairs").unwrap();
    message(TypedTree::<u32, User>::open(&db, "pairs"), &["pairs", "many values"]);
}

#[test]
fn open_of_untyped_tree_needs_it_empty_or_declared() {
    let db = in_memory();
    let raw = db.tree("users").unwrap();
    raw.put(braiddb_typed::tuple::pack(&1_u32), br#"{"name":"Ann","email":null,"tags":[]}"#).unwrap();
    message(plain(&db), &["\"users\"", "--codec tuple/json"]);
    assert_eq!(raw.options().codec, None);
    raw.set_options(raw.options().codec("tuple/json".parse().unwrap())).unwrap();
    assert_eq!(plain(&db).unwrap().get(&1).unwrap().unwrap().name, "Ann");
    db.tree_with("empty", TreeOptions::new().ttl(Duration::from_secs(5))).unwrap();
    let empty: TypedTree<u32, User> = TypedTree::open(&db, "empty").unwrap();
    let TreeOptions { ttl, codec, .. } = empty.raw().options();
    assert_eq!((ttl, codec.unwrap().to_string().as_str()), (Some(Duration::from_secs(5)), "tuple/json"));
    let other = TypedTree::<u32, User>::builder(&db, "empty").options(TreeOptions::default()).open();
    message(other, &["empty", "ttl is 5s"]);
}

#[test]
fn open_without_a_stored_index_is_refused() {
    let db = in_memory();
    users(&db).unwrap().put(&1, &user("Ann", "ann@x", &["a"])).unwrap();
    message(plain(&db), &["users", "\"email\"", "unique index", "drop_index"]);
    let name_only = TypedTree::<u32, User>::builder(&db, "users").index("name", |user: &User| user.name.clone());
    message(name_only.open(), &["\"email\""]);
    let not_unique = TypedTree::<u32, User>::builder(&db, "users")
        .index("name", |user: &User| user.name.clone())
        .index_many("email", |user: &User| user.email.clone())
        .index_many("tags", |user: &User| user.tags.clone());
    message(not_unique.open(), &["\"email\"", "unique index"]);
    let twice = TypedTree::<u32, User>::builder(&db, "users").index("a", |_| 1).unique_index("a", |_| 1);
    message(twice.open(), &["\"a\"", "twice"]);
    let both = TypedTree::<u32, User>::builder(&db, "users").index("a", |_| 1).drop_index("a");
    message(both.open(), &["\"a\"", "dropped"]);
    verified(&users(&db).unwrap());
}

#[test]
fn dropped_indexes_are_removed_and_can_be_made_again() {
    let db = in_memory();
    let old = users(&db).unwrap();
    old.put(&1, &user("Ann", "ann@x", &["a"])).unwrap();
    let builder = || TypedTree::<u32, User>::builder(&db, "users").index("name", |user: &User| user.name.clone());
    let tree = builder().drop_index("email").drop_index("tags").drop_index("never").open().unwrap();
    assert_eq!((verified(&tree), tree.raw().iter().count()), (1, 3));
    assert!(matches!(old.put(&2, &user("Bob", "", &[])), Err(Error::IndexesChanged { .. })));
    assert!(matches!(old.get_by("email", &"ann@x"), Err(Error::IndexesChanged { .. })));
    tree.put(&2, &user("Bob", "bob@x", &[])).unwrap();
    let tree = builder().drop_index("email").drop_index("tags").open().unwrap();
    assert_eq!(keys(tree.index_iter("name")), [1, 2]);
    let again = users(&db).unwrap();
    assert_eq!((verified(&again), keys(again.index_iter("email"))), (5, vec![1, 2]));
    let none = TypedTree::<u32, User>::builder(&db, "users");
    let none = none.drop_index("name").drop_index("email").drop_index("tags").open().unwrap();
    assert_eq!((none.raw().iter().count(), none.len().unwrap()), (2, 2));
    plain(&db).unwrap();
}

#[test]
fn index_of_existing_records_is_built_at_open() {
    let db = Db::builder().memory(1 << 20).open_in_memory().unwrap();
    let tree = plain(&db).unwrap();
    for key in 0..3000 {
        tree.put(&key, &user(&format!("name {}", key % 7), &format!("{key}@x"), &["a", "b"])).unwrap();
    }
    let built = users(&db).unwrap();
    assert_eq!(verified(&built), 4 * 3000);
    assert_eq!(built.by_index("name", &"name 3").count(), 3000 / 7 + 1);
}

#[test]
fn unique_index_of_duplicates_fails_and_stays_incomplete() {
    let db = in_memory();
    let tree = plain(&db).unwrap();
    tree.put(&1, &user("Ann", "ann@x", &[])).unwrap();
    tree.put(&2, &user("Bob", "ann@x", &[])).unwrap();
    let failed = message(users(&db), &["email", "ann@x"]);
    assert_eq!(message(users(&db), &["email"]), failed);
    // A way out: drop the index, repair the records, and declare it again.
    let builder = TypedTree::<u32, User>::builder(&db, "users");
    let tree = builder.drop_index("email").drop_index("name").drop_index("tags").open().unwrap();
    tree.remove(&2).unwrap();
    verified(&users(&db).unwrap());
}

#[test]
fn incomplete_index_refuses_lookups_and_is_continued_at_open() {
    let db = in_memory();
    let tree = users(&db).unwrap();
    tree.put(&1, &user("Ann", "ann@x", &[])).unwrap();
    // The state after a crash in a build.
    let definitions = tree.raw().get([0xff, 0x00]).unwrap().unwrap();
    let text = String::from_utf8(definitions.to_vec()).unwrap();
    assert_eq!(
        text,
        r#"{"version":1,"indexes":[{"name":"email","unique":true,"ready":true},{"name":"name","unique":false,"ready":true},{"name":"tags","unique":false,"ready":true}]}"#
    );
    let incomplete = text.replace(r#""unique":true,"ready":true"#, r#""unique":true,"ready":false"#);
    tree.raw().put([0xff, 0x00], &incomplete).unwrap();
    let entry = [&b"\xff\x02email\0\x02ann@x\0"[..]].concat();
    assert_eq!(tree.raw().get(&entry).unwrap().as_deref(), Some(&braiddb_typed::tuple::pack(&1_u32)[..]));
    tree.raw().delete(&entry).unwrap();
    message(tree.get_by("email", &"ann@x"), &["email", "not complete"]);
    assert_eq!(tree.get_by("name", &"Ann").unwrap().unwrap().0, 1);
    tree.put(&2, &user("Bob", "bob@x", &[])).unwrap();
    let tree = users(&db).unwrap();
    assert_eq!(keys(tree.index_iter("email")), [1, 2]);
    verified(&tree);
}

#[test]
fn definitions_of_a_later_version_are_refused() {
    let db = in_memory();
    let tree = users(&db).unwrap();
    for stored in [&b"{\"version\":2,\"indexes\":[]}"[..], b"{", b""] {
        tree.raw().put([0xff, 0x00], stored).unwrap();
        message(users(&db), &["users"]);
        message(tree.put(&1, &user("Ann", "", &[])), &["users"]);
    }
}

#[test]
fn values_of_each_codec_are_returned_as_written() {
    fn check<C: ValueCodec<User>>(name: &str) {
        let db = in_memory();
        let tree: TypedTree<u32, User, C> = TypedTree::open(&db, name).unwrap();
        let ann = user("Ann \0 é", "", &["a", ""]);
        tree.put(&1, &ann).unwrap();
        assert_eq!(tree.get(&1).unwrap().unwrap(), ann);
        let stored = tree.raw().first().unwrap().unwrap().1;
        for len in 0..stored.len() {
            assert!(C::decode(&stored[..len]).is_err(), "{len}");
        }
        assert!(C::decode(&[&stored[..], b"1"].concat()).is_err());
    }
    check::<Json>("json");
    check::<MessagePack>("msgpack");
    let db = in_memory();
    let raw: TypedTree<(), Vec<u8>, Raw> = TypedTree::open(&db, "raw").unwrap();
    raw.put(&(), &vec![0, 255]).unwrap();
    assert_eq!((raw.get(&()).unwrap().unwrap(), raw.len().unwrap()), (vec![0, 255], 1));
}

#[test]
fn value_that_cannot_be_encoded_names_tree_and_key() {
    let db = in_memory();
    let tree: TypedTree<u32, std::collections::BTreeMap<Vec<u8>, u8>> = TypedTree::open(&db, "maps").unwrap();
    message(tree.put(&5, &[(vec![1], 1)].into()), &["maps", "[5]", "encoded"]);
    assert_eq!(tree.len().unwrap(), 0);
}
