//! Options of an existing tree.
//!
//! Regression: `tree_with` ignored options that differ from the tree's.

use crate::{
    base::{EntryKind, Error},
    codec::{Compression, put_bytes},
    commit::RawBatch,
    db::{
        Change, Db, Durability, Follower, Settings, TreeCodec, TreeOptions, WatchOptions,
        engine::catalog::catalog_key,
        tests_common::{Clock, DIR, SECOND_NS, fault, killed, mem, open, small},
        write::pipeline,
    },
    platform::{Runtime, fault_vfs::FaultVfs},
};
use std::{path::Path, sync::Arc, time::Duration};

fn ttl(seconds: u64) -> TreeOptions {
    TreeOptions { ttl: Some(Duration::from_secs(seconds)), ..TreeOptions::default() }
}

fn all() -> TreeOptions {
    TreeOptions {
        compression: Some(Compression::None),
        blob_threshold: Some(100),
        codec: TreeCodec::new("tuple", "json").ok(),
        ..ttl(60)
    }
}

fn refused(db: &Db, name: &str, options: TreeOptions) -> String {
    match db.tree_with(name, options) {
        Err(Error::InvalidArgument(reason)) => reason,
        other => panic!("{:?}", other.map(|tree| tree.name())),
    }
}

#[test]
fn tree_with_other_options_than_the_trees_is_refused_and_names_them() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    db.tree("plain").unwrap();
    db.tree_with("all", all()).unwrap();
    let check = |db: &Db| {
        let reason = refused(db, "plain", ttl(10));
        assert!(reason.contains("\"plain\" exists") && reason.contains("ttl is none of its own, not 10s"), "{reason}");
        assert!(!reason.contains("compression") && reason.contains("set_options"), "{reason}");
        let reason = refused(db, "all", TreeOptions { blob_threshold: Some(200), ..all() });
        assert!(reason.contains("blob threshold is 100 bytes, not 200 bytes") && !reason.contains("ttl"), "{reason}");
        let reason = refused(db, "all", TreeOptions::default());
        for part in [
            "ttl is 60s, not none",
            "blob threshold is 100 bytes, not none",
            "compression is None, not none",
            "codec is tuple/json, not none",
        ] {
            assert!(reason.contains(part), "{reason}");
        }
        assert_eq!(db.tree_with("all", all()).unwrap().options(), all());
        assert_eq!(db.tree("all").unwrap().options(), all());
        assert_eq!(db.open_tree("all").unwrap().options(), all());
        db.tree_with("plain", TreeOptions::default()).unwrap();
        let infos = db.trees().unwrap();
        let shown: Vec<_> =
            infos.iter().map(|info| (info.compression, info.blob_threshold, info.ttl, info.codec)).collect();
        let TreeOptions { compression, blob_threshold, ttl, codec } = all();
        assert_eq!(shown, [(compression, blob_threshold, ttl, codec), (None, None, None, None)]);
    };
    check(&db);
    db.close().unwrap();
    check(&open(small(&vfs)).unwrap());
}

#[test]
fn set_options_applies_to_what_is_written_from_then_on() {
    let (clock, vfs) = (Clock::new(), mem());
    let settings = || Settings { runtime: Arc::clone(&clock) as Arc<dyn Runtime>, ..small(&vfs) };
    let db = open(settings()).unwrap();
    let (tree, other_handle) = (db.tree("t").unwrap(), db.tree("t").unwrap());
    let follower = Follower::open_with(settings(), Path::new(DIR), None).unwrap();
    let mut watcher = db.watch(WatchOptions::new().unsynced(true)).unwrap();
    tree.put(b"before", b"v").unwrap();
    let sequence = tree.set_options(all()).unwrap();
    assert_eq!((sequence, other_handle.options()), (db.snapshot().sequence(), all()));
    other_handle.put(b"after", vec![7; 150]).unwrap();
    let end = |db: &Db, key: &[u8]| db.open_tree("t").unwrap().get_with_expiry(key).unwrap().unwrap().1;
    assert!(end(&db, b"before").is_none() && end(&db, b"after").is_some());
    assert!(db.stats().blob_bytes_written > 0, "150 bytes are above the new threshold");
    assert!(matches!(tree.merge(b"k", &db.merge_function("append").unwrap(), b""), Err(Error::InvalidArgument(_))));
    let sets: Vec<_> = std::iter::from_fn(|| watcher.try_next().unwrap()).collect();
    let changes: Vec<&Change> = sets.iter().flat_map(|set| &set.changes).collect();
    let is_set = |change: &&&Change| matches!(change, Change::SetTreeOptions { options, .. } if *options == all());
    assert_eq!(changes.iter().filter(is_set).count(), 1, "{changes:?}");
    assert!(!changes.iter().any(|change| matches!(change, Change::CreateTree { .. })), "{changes:?}");
    follower.refresh().unwrap();
    assert_eq!(follower.db().open_tree("t").unwrap().options(), all());
    db.checkpoint("/copy").unwrap();
    let copy = Db::open_with(Settings { create: false, ..settings() }, Path::new("/copy")).unwrap();
    assert_eq!(copy.open_tree("t").unwrap().options(), all());
    db.rename_tree("t", "u").unwrap();
    drop((tree, other_handle, watcher));
    db.close().unwrap();
    let db = open(settings()).unwrap();
    let tree = db.open_tree("u").unwrap();
    assert_eq!(tree.options(), all());
    clock.advance(60 * SECOND_NS);
    assert_eq!(tree.iter().count(), 1);
    // Merges use the database's compression again.
    tree.set_options(TreeOptions::default()).unwrap();
    tree.put(b"last", vec![7; 150]).unwrap();
    db.compact().unwrap();
    // The codec stays: the records have it.
    let codec = all().codec;
    assert_eq!((tree.options(), tree.iter().count()), (TreeOptions { codec, ..TreeOptions::default() }, 2));
    assert!(db.verify().unwrap().problems.is_empty());
}

#[test]
fn set_options_that_cannot_be_are_refused_and_change_nothing() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    let at_once = TreeOptions { ttl: Some(Duration::from_nanos(1)), ..TreeOptions::default() };
    assert!(matches!(tree.set_options(at_once), Err(Error::InvalidArgument(_))));
    assert_eq!(tree.options(), TreeOptions::default());
    tree.set_options(all()).unwrap();
    let other = TreeOptions { codec: TreeCodec::new("tuple", "msgpack").ok(), ..ttl(5) };
    let Err(Error::InvalidArgument(reason)) = tree.set_options(other) else { panic!("the codec was changed") };
    assert!(reason.contains("tuple/json") && reason.contains("tuple/msgpack"), "{reason}");
    assert_eq!(tree.options(), all());
    db.drop_tree("t").unwrap();
    assert!(tree.set_options(all()).unwrap_err().is_not_found());
    let follower = Follower::open_with(small(&vfs), Path::new(DIR), None);
    drop(db);
    let state = follower.unwrap().db();
    assert_eq!(state.trees().unwrap(), []);
}

#[test]
fn tree_of_a_later_versions_codec_opens_and_changes() {
    let vfs = mem();
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree_with("t", ttl(60)).unwrap();
    tree.put(b"k", b"v").unwrap();
    let mut entry = tree.state().encode();
    put_bytes(&mut entry, b"tuple");
    put_bytes(&mut entry, "CBOR+".repeat(20).as_bytes());
    let mut batch = RawBatch::default();
    batch.push(EntryKind::Value, &[&catalog_key(b'n', b"t")], &entry);
    pipeline::commit(db.engine(), batch.prepare().unwrap(), Durability::Sync).unwrap();
    drop(tree);
    db.close().unwrap();
    for (name, next) in [("t", "u"), ("u", "t")] {
        let db = open(small(&vfs)).unwrap();
        let tree = db.open_tree(name).unwrap();
        let shown = tree.options().codec.unwrap();
        assert_eq!((shown.key(), shown.value()), ("tuple", &"CBOR+".repeat(20)[..31]));
        assert_eq!(tree.get(b"k").unwrap().unwrap(), b"v");
        tree.set_options(TreeOptions { ttl: None, ..tree.options() }).unwrap();
        tree.set_options(ttl(60)).unwrap();
        assert_eq!(tree.state().encode(), entry);
        let copy = db.tree_with("copy", tree.options()).map(|tree| tree.name()).unwrap_err();
        assert!(copy.to_string().contains("tuple/CBOR+"), "{copy}");
        assert!(db.verify().unwrap().problems.is_empty());
        db.rename_tree(name, next).unwrap();
        drop(tree);
        db.close().unwrap();
    }
}

#[test]
fn set_options_survives_a_crash_whole_or_not_at_all() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let vfs = FaultVfs::new(Path::new(DIR));
        let settings = |vfs: &FaultVfs| Settings { durability, ..small(&fault(vfs)) };
        let db = open(settings(&vfs)).unwrap();
        let tree = db.tree("t").unwrap();
        tree.put(b"k", b"v").unwrap();
        let before = killed(&vfs);
        tree.set_options(all()).unwrap();
        let after = killed(&vfs);
        let options = |vfs: &FaultVfs| open(settings(vfs)).unwrap().open_tree("t").unwrap().options();
        assert_eq!((options(&before), options(&after)), (TreeOptions::default(), all()));
    }
}
