//! The change stream returns every commit once, in order and whole, or an error, and never skips.

use crate::{
    base::Error,
    codec::Compression,
    db::{
        Change, ChangeSet, Db, Durability, Gap, MergeBase, ResumeToken, Settings, TreeCodec, TreeOptions, WatchOptions,
        Watcher,
        tests_common::{DIR, bounded, fault, killed, mem, open, small},
    },
    platform::{
        Vfs,
        fault_vfs::{FaultVfs, Operation},
    },
};
use std::{
    collections::BTreeMap,
    io::{self, Read},
    ops::Bound,
    path::Path,
    sync::{Arc, mpsc},
    time::Duration,
};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

fn keeping(vfs: &Arc<dyn Vfs>, bytes: u64) -> Settings {
    Settings { log_retention_bytes: Some(bytes), ..small(vfs) }
}

fn all(watcher: &mut Watcher) -> Vec<ChangeSet> {
    let mut shown: Vec<ChangeSet> = Vec::new();
    while let Some(next) = watcher.try_next().unwrap() {
        assert!(shown.last().is_none_or(|last| last.sequence < next.sequence), "in order");
        assert_eq!(next.token.sequence(), next.sequence);
        shown.push(next);
    }
    shown
}

fn delivered(sets: &[ChangeSet]) -> Vec<String> {
    sets.iter().map(|set| set.changes.iter().map(line).collect::<Vec<_>>().join("; ")).collect()
}

fn line(change: &Change) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let end = |end: &Option<Vec<u8>>| end.as_deref().map_or("..".to_owned(), text);
    let tree = change.tree().and_then(|tree| tree.name.clone()).unwrap_or_else(|| "?".into());
    match change {
        Change::Put { key, value, expires, .. } => {
            let value = if value.len() > 20 { format!("{} bytes", value.len()) } else { text(value) };
            let ends = if expires.is_some() { " for a time" } else { "" };
            format!("{tree}: {} = {value}{ends}", text(key))
        }
        Change::PutStream { key, stream, .. } => format!("{tree}: {} = stream of {}", text(key), stream.len()),
        Change::Delete { key, .. } => format!("{tree}: no {}", text(key)),
        Change::DeleteRange { start, end: to, .. } => format!("{tree}: none of {} to {}", text(start), end(to)),
        Change::Merge { key, base, operands, .. } => {
            let base = match base {
                MergeBase::Stored => "stored".to_owned(),
                MergeBase::Nothing => "nothing".to_owned(),
                MergeBase::Value(value) => text(value),
            };
            let operands: Vec<_> = operands.iter().map(|o| format!("{} {}", o.function, text(&o.operand))).collect();
            format!("{tree}: {} = {base} {}", text(key), operands.join(", "))
        }
        Change::Add { key, value, .. } => format!("{tree}: {} has {}", text(key), text(value)),
        Change::DeletePair { key, value, .. } => format!("{tree}: {} has no {}", text(key), text(value)),
        Change::CreateTree { multi, options, .. } => {
            let of_many = if *multi { ", of many" } else { "" };
            let codec = options.codec.map(|codec| format!(", {codec}")).unwrap_or_default();
            format!("{tree}: new{of_many}{codec}")
        }
        Change::DropTree { .. } => format!("{tree}: dropped"),
        Change::RenameTree { from, .. } => format!("{tree}: was {from}"),
        Change::ApplicationCursor { cursor } => format!("cursor {}", text(cursor)),
        Change::Gap(Gap::Commits { .. }) => "gap".to_owned(),
        Change::SetTreeOptions { options, .. } => format!("{tree}: {options:?}"),
        Change::Gap(Gap::Range { start, end: to, .. }) => format!("{tree}: gap {} to {}", text(start), end(to)),
    }
}

fn do_everything(db: &Db) {
    let codec = TreeCodec::new("tuple", "json").ok();
    let a = db.tree_with("a", TreeOptions { codec, ..TreeOptions::default() }).unwrap();
    let many = db.multi_tree("many").unwrap();
    a.put(b"1", b"one").unwrap();
    let mut batch = db.batch();
    batch
        .put(&a, b"2", b"two")
        .put(&a, b"3", b"x")
        .delete(&a, b"1")
        .put(&a, b"3", b"three")
        .set_application_cursor(b"here");
    batch.commit_with(Durability::Buffered).unwrap();
    a.put(b"large", vec![7; 5000]).unwrap();
    a.put_stream(b"stream", &mut std::io::repeat(3).take(2 << 20)).unwrap();
    a.put_with_ttl(b"4", b"four", Duration::from_secs(1000)).unwrap();
    a.put_with_ttl(b"5", vec![5; 300], Duration::from_secs(1000)).unwrap();
    let append = db.merge_function("append").unwrap();
    a.merge(b"2", &append, b"!").unwrap();
    let mut batch = db.batch();
    batch.put(&a, b"6", b"six").merge(&a, b"6", &append, b"?").delete(&a, b"7").merge(&a, b"7", &append, b"7");
    batch.commit_with(Durability::Buffered).unwrap();
    a.delete_range(b"4".as_slice()..b"6").unwrap();
    a.delete_range(..).unwrap();
    many.add(b"k\0", b"v1").unwrap();
    many.delete_pair(b"k\0", b"v2").unwrap();
    many.delete(b"k\0").unwrap();
    db.rename_tree("a", "b").unwrap();
    db.drop_tree("b").unwrap();
}

const EVERYTHING: [&str; 17] = [
    "a: new, tuple/json",
    "many: new, of many",
    "a: 1 = one",
    "cursor here; a: no 1; a: 2 = two; a: 3 = three",
    "a: large = 5000 bytes",
    "a: stream = stream of 2097152",
    "a: 4 = four for a time",
    "a: 5 = 300 bytes for a time",
    "a: 2 = stored append !",
    "a: 6 = six append ?; a: 7 = nothing append 7",
    "a: none of 4 to 6",
    "a: none of  to ..",
    "many: k\\x00 has v1",
    "many: k\\x00 has no v2",
    "many: no k\\x00",
    "b: was a",
    "b: dropped",
];

#[test]
fn changes_before_a_rename_have_the_name_of_then() {
    let mem = mem();
    let settings = || keeping(&mem, 64 << 20);
    let db = open(settings()).unwrap();
    let (a, x) = (db.tree("a").unwrap(), db.multi_tree("x").unwrap());
    a.put(b"0", b"").unwrap();
    let start = db.snapshot().sequence();
    a.put(b"1", b"").unwrap();
    let mut behind = db.watch(WatchOptions::new().after(start)).unwrap();
    db.rename_tree("a", "b").unwrap();
    db.rename_tree("b", "c").unwrap();
    // A name that is free again: of another tree.
    db.tree("a").unwrap().put(b"other", b"").unwrap();
    x.add(b"k", b"v").unwrap();
    db.rename_tree("x", "y").unwrap();
    a.put(b"2", b"").unwrap();
    let only_a = WatchOptions::new().tree(&a).after(start);
    let shown = delivered(&all(&mut db.watch(only_a).unwrap()));
    assert_eq!(shown, ["a: 1 = ", "b: was a", "c: was b", "c: 2 = "]);
    db.drop_tree("y").unwrap();
    let expected =
        ["a: 1 = ", "b: was a", "c: was b", "a: new", "a: other = ", "x: k has v", "y: was x", "c: 2 = ", "y: dropped"];
    assert_eq!(delivered(&all(&mut behind)), expected);
    let mut late = db.watch(WatchOptions::new().after(start)).unwrap();
    assert_eq!(delivered(&all(&mut late)), expected);
    drop((a, x, behind, late));
    db.close().unwrap();
    let db = open(settings()).unwrap();
    let mut reopened = db.watch(WatchOptions::new().after(start)).unwrap();
    assert_eq!(delivered(&all(&mut reopened)), expected);
}

/// The rename comes after the watcher has met other trees and looked ahead for their names.
#[test]
fn rename_after_the_first_look_ahead_is_found() {
    let db = open(keeping(&mem(), 64 << 20)).unwrap();
    let (a, b) = (db.tree("a").unwrap(), db.tree("b").unwrap());
    let start = db.snapshot().sequence();
    let mut watcher = db.watch(WatchOptions::new().after(start)).unwrap();
    a.put(b"1", b"").unwrap();
    db.rename_tree("a", "a2").unwrap();
    assert_eq!(delivered(&[watcher.try_next().unwrap().unwrap()]), ["a: 1 = "]);
    b.put(b"1", b"").unwrap();
    db.rename_tree("b", "b2").unwrap();
    assert_eq!(delivered(&all(&mut watcher)), ["a2: was a", "b: 1 = ", "b2: was b"]);
}

#[test]
fn deleted_ranges_of_multi_tree_have_user_keys() {
    let db = open(keeping(&mem(), 64 << 20)).unwrap();
    let many = db.multi_tree("many").unwrap();
    let mut all_keys = db.watch(WatchOptions::new().multi_tree(&many)).unwrap();
    let mut of_prefix = db.watch(WatchOptions::new().multi_tree(&many).prefix("b")).unwrap();
    many.delete_range("a\0".."c").unwrap();
    many.delete_range("a"..="b\0").unwrap();
    many.delete_range((Bound::Excluded("b"), Bound::Unbounded)).unwrap();
    many.delete_range("b"..="b").unwrap();
    many.clear().unwrap();
    let expected = [
        "many: none of a\\x00 to c",
        "many: none of a to b\\x00\\x00",
        "many: none of b\\x00 to ..",
        "many: no b",
        "many: none of  to ..",
    ];
    assert_eq!(delivered(&all(&mut all_keys)), expected);
    let expected = [
        "many: none of b to c",
        "many: none of b to b\\x00\\x00",
        "many: none of b\\x00 to c",
        "many: no b",
        "many: none of b to c",
    ];
    assert_eq!(delivered(&all(&mut of_prefix)), expected);
}

#[test]
fn watcher_returns_every_kind_of_change_also_after_reopen() {
    let vfs = mem();
    let db = open(Settings { log_segment_bytes: 1 << 20, ..keeping(&vfs, 64 << 20) }).unwrap();
    let start = db.watch(WatchOptions::new()).unwrap().token();
    let mut live = db.watch(WatchOptions::new()).unwrap();
    do_everything(&db);
    assert_eq!(delivered(&all(&mut live)), EVERYTHING);
    // From the log alone.
    db.compact().unwrap();
    assert_eq!(delivered(&all(&mut db.watch(WatchOptions::new().resume(start)).unwrap())), EVERYTHING);
    db.close().unwrap();
    for read_only in [true, false] {
        let db = open(Settings { read_only, ..small(&vfs) }).unwrap();
        let mut again = db.watch(WatchOptions::new().resume(start)).unwrap();
        assert_eq!(delivered(&all(&mut again)), EVERYTHING, "read only: {read_only}");
    }
}

/// A failed read or open returns an error, and later calls return each commit once.
#[test]
fn watcher_after_read_error_returns_each_commit_once() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(Settings { memtable_bytes: Some(64 << 10), ..keeping(&fault(&vfs), 64 << 20) }).unwrap();
    let start = db.watch(WatchOptions::new()).unwrap().token();
    do_everything(&db);
    let tree = db.tree("c").unwrap();
    for i in 0..120u8 {
        tree.put([i], vec![i; 250]).unwrap();
    }
    let expected = delivered(&all(&mut db.watch(WatchOptions::new().resume(start)).unwrap()));
    assert_eq!(expected.len(), EVERYTHING.len() + 121);
    let mut errors = 0;
    for (operation, times) in [(Operation::Open, 1), (Operation::Read, 1), (Operation::Read, 3)] {
        for after in 0.. {
            let mut watcher = db.watch(WatchOptions::new().resume(start)).unwrap();
            vfs.fail(operation, after, times, io::ErrorKind::Other);
            let mut shown = Vec::new();
            loop {
                match watcher.try_next() {
                    Ok(Some(set)) => shown.push(set),
                    Ok(None) => break,
                    Err(error) => {
                        assert!(!error.is_corruption(), "{error}");
                        errors += 1;
                    }
                }
            }
            let to_come = vfs.failures_to_come();
            vfs.heal();
            assert!(
                delivered(&shown) == expected,
                "{times} of {operation:?} fail after {after}: {:?}",
                delivered(&shown)
            );
            if to_come == times {
                break;
            }
        }
    }
    assert!(errors > 10, "{errors} errors");
}

#[test]
fn watcher_of_tree_and_prefix_returns_only_their_changes() {
    let vfs = mem();
    let db = open(keeping(&vfs, 1 << 20)).unwrap();
    let (a, b) = (db.tree("a").unwrap(), db.tree("b").unwrap());
    let mut of_tree = db.watch(WatchOptions::new().tree(&a)).unwrap();
    let mut of_prefix = db.watch(WatchOptions::new().tree(&a).prefix(b"k")).unwrap();
    a.put(b"k1", b"1").unwrap();
    b.put(b"k1", b"2").unwrap();
    a.put(b"l", b"3").unwrap();
    a.delete_range(b"a".as_slice()..b"k5").unwrap();
    a.delete_range(b"l".as_slice()..).unwrap();
    let last = b.put(b"k2", b"4").unwrap();
    db.drop_tree("a").unwrap();
    let expected = ["a: k1 = 1", "a: l = 3", "a: none of a to k5", "a: none of l to ..", "a: dropped"];
    assert_eq!(delivered(&all(&mut of_tree)), expected);
    assert_eq!(delivered(&all(&mut of_prefix)), ["a: k1 = 1", "a: none of k to k5", "a: dropped"]);
    assert!(of_prefix.token().sequence() > last, "what is not shown is passed over");
    assert!(matches!(db.watch(WatchOptions::new().prefix(b"k")), Err(Error::InvalidArgument(_))));
}

#[derive(Default)]
struct Follower {
    contents: BTreeMap<Vec<u8>, Vec<u8>>,
    numbers: Vec<u64>,
}

impl Follower {
    fn apply(&mut self, set: &ChangeSet) {
        for change in &set.changes {
            match change {
                Change::Put { key, value, .. } => {
                    if key == b"number" {
                        self.numbers.push(u64::from_le_bytes(value.as_slice().try_into().unwrap()));
                    }
                    self.contents.insert(key.clone(), value.clone());
                }
                Change::PutStream { key, stream, .. } => {
                    let mut value = Vec::new();
                    assert_eq!(stream.copy_to(&mut value).unwrap(), stream.len());
                    self.contents.insert(key.clone(), value);
                }
                Change::Delete { key, .. } => {
                    self.contents.remove(key);
                }
                Change::DeleteRange { start, end, .. } => {
                    self.contents.retain(|key, _| key < start || end.as_ref().is_some_and(|end| key >= end));
                }
                Change::CreateTree { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn commit_at_random(db: &Db, random: &mut Random, number: u64) {
    let tree = db.tree("t").unwrap();
    let mut batch = db.batch();
    if random.below(20) == 0 {
        let from = random.below(50);
        batch.delete_range(&tree, format!("k{from:02}")..format!("k{:02}", from + random.below(9)));
    }
    for _ in 0..random.below(6) {
        let key = format!("k{:02}", random.below(60));
        match random.below(8) {
            0 => batch.delete(&tree, key),
            1 => batch.put(&tree, key, vec![number as u8; 256 + random.below(3000) as usize]),
            _ => batch.put(&tree, key, vec![number as u8; random.below(200) as usize]),
        };
    }
    batch.put(&tree, b"number", number.to_le_bytes());
    let durability = if random.below(9) == 0 { Durability::Sync } else { Durability::Buffered };
    batch.commit_with(durability).unwrap();
    if random.below(40) == 0 {
        tree.put_stream(b"stream", &mut std::io::repeat(number as u8).take(random.below(20_000))).unwrap();
    }
}

fn contents(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let pairs = db.tree("t").unwrap().range(..).map(Result::unwrap);
    pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[test]
fn killed_and_resumed_watcher_returns_each_commit_once_in_order() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let vfs = FaultVfs::new(Path::new(DIR));
        let mut world: Arc<dyn Vfs> = fault(&vfs);
        let mut files = vfs;
        let mut db = open(Settings { stream_len_max: 1 << 20, ..keeping(&world, 1 << 30) }).unwrap();
        let mut follower = Follower::default();
        let mut kept = db.watch(WatchOptions::new()).unwrap().token();
        let mut watcher = db.watch(WatchOptions::new().resume(kept)).unwrap();
        let mut number = 0;
        for _ in 0..600 {
            match random.below(40) {
                0 => db.flush().unwrap(),
                1 => db.compact().unwrap(),
                2..8 => {
                    let most = random.below(30);
                    for _ in 0..most {
                        let Some(set) = watcher.try_next().unwrap() else { break };
                        follower.apply(&set);
                        kept = ResumeToken::from_bytes(&set.token.to_bytes()).unwrap();
                    }
                }
                8..10 => watcher = db.watch(WatchOptions::new().resume(kept)).unwrap(),
                10 => {
                    drop(watcher);
                    if random.below(2) == 0 {
                        db.close().unwrap();
                    } else {
                        files = killed(&files);
                        world = fault(&files);
                        std::mem::forget(db);
                    }
                    db = open(small(&world)).unwrap();
                    watcher = db.watch(WatchOptions::new().resume(kept)).unwrap();
                }
                _ => {
                    number += 1;
                    commit_at_random(&db, &mut random, number);
                }
            }
        }
        all(&mut watcher).iter().for_each(|set| follower.apply(set));
        assert_eq!(follower.numbers, (1..=number).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(follower.contents, contents(&db), "seed {seed}");
        assert!(db.verify().unwrap().problems.is_empty(), "seed {seed}");
    }
}

#[test]
fn watcher_below_log_floor_is_too_old_and_skips_nothing() {
    for bytes in [0, 64 << 10] {
        let vfs = mem();
        let db = open(keeping(&vfs, bytes)).unwrap();
        let tree = db.tree("t").unwrap();
        let mut slow = db.watch(WatchOptions::new()).unwrap();
        let start = slow.token();
        let mut fast = db.watch(WatchOptions::new()).unwrap();
        let mut count = 0;
        for number in 0..3000_u32 {
            tree.put(format!("{number:05}"), [7; 100]).unwrap();
            count += all(&mut fast).len();
        }
        assert_eq!(count, 3000, "who keeps up misses nothing");
        let mut seen = 0;
        let error = loop {
            match slow.try_next() {
                Ok(set) => assert_eq!(
                    set.unwrap().sequence,
                    start.sequence() + {
                        seen += 1;
                        seen
                    }
                ),
                Err(e) => break e,
            }
        };
        assert!(seen > 0 && seen < 2900, "{seen}");
        let Error::WatchTooOld { after, floor } = error else { panic!("{error}") };
        assert!(error.is_watch_too_old() && after == start.sequence() + seen && floor > after);
        assert!(slow.try_next().is_err(), "and again");
        assert!(db.watch(WatchOptions::new().resume(slow.token())).is_err_and(|e| e.is_watch_too_old()));
        assert!(db.watch(WatchOptions::new().after(floor - 1)).is_err_and(|e| e.is_watch_too_old()));
        for options in [WatchOptions::new().after(floor), WatchOptions::new().from_oldest()] {
            let sets = all(&mut db.watch(options).unwrap());
            assert_eq!(sets.first().unwrap().sequence, floor + 1);
            assert_eq!(sets.len() as u64, fast.token().sequence() - floor);
        }
        let held =
            vfs.list(Path::new(DIR)).unwrap().iter().filter(|e| e.name.ends_with(".wal")).map(|e| e.len).sum::<u64>();
        assert!(held <= bytes + (160 << 10), "{held} bytes of log");
    }
}

#[test]
fn blob_values_are_kept_for_watchers_as_long_as_the_log() {
    let vfs = mem();
    let blob_bytes = || -> u64 {
        vfs.list(Path::new(DIR)).unwrap().iter().filter(|e| e.name.ends_with(".blob")).map(|e| e.len).sum()
    };
    let plain = |settings: Settings| open(Settings { compression: Compression::None, ..settings }).unwrap();
    let mut db = plain(keeping(&vfs, 4 << 20));
    let tree = db.tree("t").unwrap();
    let start = db.watch(WatchOptions::new()).unwrap().token();
    for round in 0..40_u8 {
        tree.put(b"value", vec![round; 10_000]).unwrap();
        tree.put_stream(b"stream", &mut std::io::repeat(round).take(9000)).unwrap();
        if round.is_multiple_of(8) {
            db.compact().unwrap();
        }
        if round == 20 {
            drop(tree.clone());
            db.close().unwrap();
            db = plain(small(&vfs));
        }
        let tree = db.tree("t").unwrap();
        tree.put(b"round", [round]).unwrap();
        if round == 20 {
            break;
        }
    }
    db.compact().unwrap();
    let mut rounds = 0;
    for set in all(&mut db.watch(WatchOptions::new().resume(start)).unwrap()) {
        let value = match &set.changes[..] {
            [Change::Put { key, value, .. }] if key == b"value" => value.clone(),
            [Change::PutStream { stream, .. }] => {
                let mut value = Vec::new();
                stream.copy_to(&mut value).unwrap();
                value
            }
            _ => continue,
        };
        assert!(value.len() >= 9000 && value.iter().all(|byte| *byte == (rounds / 2) as u8), "{rounds}");
        rounds += 1;
    }
    assert_eq!(rounds, 42);
    assert!(blob_bytes() > 300_000);
    // With a limit below their size they go, whatever the segments take.
    db.close().unwrap();
    let db = plain(keeping(&vfs, 100_000));
    let tree = db.tree("t").unwrap();
    for round in 0..400 {
        tree.put(format!("{round}"), vec![round as u8; 200]).unwrap();
    }
    db.compact().unwrap();
    db.compact().unwrap();
    assert!(blob_bytes() < 150_000, "{}", blob_bytes());
    assert!(db.watch(WatchOptions::new().resume(start)).is_err_and(|e| e.is_watch_too_old()));
}

#[test]
fn token_of_other_database_or_future_commit_is_refused() {
    let (here, there) = (open(keeping(&mem(), 1 << 20)).unwrap(), open(keeping(&mem(), 1 << 20)).unwrap());
    let foreign = there.watch(WatchOptions::new()).unwrap().token();
    let refused = here.watch(WatchOptions::new().resume(foreign)).unwrap_err();
    assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
    let visible = here.stats().last_sequence;
    assert!(here.watch(WatchOptions::new().after(visible)).is_ok());
    assert!(matches!(here.watch(WatchOptions::new().after(visible + 1)), Err(Error::InvalidArgument(_))));
}

#[test]
fn token_of_commit_lost_in_crash_is_refused() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(keeping(&fault(&vfs), 1 << 20)).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put(b"1", b"x").unwrap();
    db.sync().unwrap();
    let mut hasty = db.watch(WatchOptions::new().unsynced(true)).unwrap();
    let early = hasty.token();
    let mut careful = db.watch(WatchOptions::new()).unwrap();
    let before = vfs.crashed(|| false);
    tree.put(b"2", b"x").unwrap();
    let saw = hasty.try_next().unwrap().unwrap().token;
    let unseen = vfs.crashed(|| false);
    let synced = careful.try_next().unwrap().unwrap().token;
    let after = vfs.crashed(|| false);
    for (name, files, lost) in [("before", before, true), ("unseen", unseen, true), ("after", after, false)] {
        let db = open(small(&fault(&files))).unwrap();
        assert!(db.watch(WatchOptions::new().resume(early)).is_ok(), "{name}");
        assert_eq!(db.watch(WatchOptions::new().resume(saw)).is_err(), lost, "{name}");
        if !lost {
            assert!(all(&mut db.watch(WatchOptions::new().resume(synced)).unwrap()).is_empty());
        }
    }
}

/// The token of a new watcher passed for a synced one. After a crash had taken back its commit and
/// the number was reused, the token was accepted, and the new commits were never returned.
#[test]
fn first_token_after_crash_is_durable_or_refused() {
    for is_unsynced in [false, true] {
        for is_after in [false, true] {
            let vfs = FaultVfs::new(Path::new(DIR));
            let db = open(keeping(&fault(&vfs), 1 << 20)).unwrap();
            let tree = db.tree("t").unwrap();
            tree.put(b"0", b"x").unwrap();
            db.sync().unwrap();
            let put = |db: &Db, key: &[u8], value: &[u8]| {
                let mut batch = db.batch();
                batch.put(&db.tree("t").unwrap(), key, value);
                batch.commit_with(Durability::Buffered).unwrap()
            };
            let [.., last] = [0, 1, 2].map(|number| put(&db, &[number], b"lost"));
            let options = WatchOptions::new().unsynced(is_unsynced);
            let options = if is_after { options.after(last) } else { options };
            let token = db.watch(options).unwrap().token();
            assert_eq!(token.sequence(), last);
            let image = vfs.crashed(|| false);
            let db = open(small(&fault(&image))).unwrap();
            for number in 0..6 {
                put(&db, &[number], b"new");
            }
            let resumed = db.watch(WatchOptions::new().resume(token));
            let delivered = format!("unsynced {is_unsynced}, after {is_after}: {resumed:?}");
            assert_eq!(db.tree("t").unwrap().get([2]).unwrap().as_deref(), Some(&b"new"[..]));
            match resumed {
                // The watcher synced the earlier commits, so they survive.
                Ok(mut watcher) => {
                    assert!(!is_unsynced, "{delivered}");
                    assert_eq!(all(&mut watcher).len(), 6, "{delivered}");
                }
                Err(e) => assert!(is_unsynced && matches!(e, Error::InvalidArgument(_)), "{delivered}"),
            }
        }
    }
}

/// Flushed commits are durable even if the log loses its end. The token of a watcher that started
/// after them was refused after a crash.
#[test]
fn token_of_flushed_commit_is_valid_after_log_loses_its_end() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(small(&fault(&vfs))).unwrap();
    let tree = db.tree("t").unwrap();
    let put = |db: &Db, tree: &crate::db::Tree, value: &[u8]| {
        let mut batch = db.batch();
        batch.put(tree, b"k", value);
        batch.commit_with(Durability::Buffered).unwrap()
    };
    let last = put(&db, &tree, b"flushed");
    db.flush().unwrap();
    let token = db.watch(WatchOptions::new()).unwrap().token();
    assert_eq!(token.sequence(), last);
    let image = vfs.crashed(|| false);
    let db = open(small(&fault(&image))).unwrap();
    let tree = db.tree("t").unwrap();
    assert_eq!(tree.get(b"k").unwrap().as_deref(), Some(&b"flushed"[..]));
    let mut watcher = db.watch(WatchOptions::new().resume(token)).unwrap();
    put(&db, &tree, b"new");
    assert_eq!(delivered(&all(&mut watcher)), ["t: k = new"]);
}

/// A transaction joins deleted ranges that meet at a border of trees. Only the first tree's part
/// was returned.
#[test]
fn delete_range_across_trees_is_returned_for_each_tree() {
    let db = open(keeping(&mem(), 1 << 20)).unwrap();
    let trees = ["a", "b", "c"].map(|name| db.tree(name).unwrap());
    let mut watcher = db.watch(WatchOptions::new()).unwrap();
    let mut second = db.watch(WatchOptions::new().tree(&trees[1])).unwrap();
    let tx = db.begin().unwrap();
    tx.delete_range(&trees[0], b"k".as_slice()..).unwrap();
    tx.delete_range(&trees[1], ..).unwrap();
    tx.delete_range(&trees[2], ..b"m".as_slice()).unwrap();
    tx.commit().unwrap();
    let ranges = |sets: &[ChangeSet]| -> Vec<(String, Vec<u8>, Option<Vec<u8>>)> {
        let range = |change: &Change| match change {
            Change::DeleteRange { tree, start, end } => {
                (tree.name.clone().unwrap().to_string(), start.clone(), end.clone())
            }
            other => panic!("{other:?}"),
        };
        sets.iter().flat_map(|set| set.changes.iter().map(range)).collect()
    };
    let of = |name: &str, start: &[u8], end: Option<&[u8]>| (name.to_owned(), start.to_vec(), end.map(<[u8]>::to_vec));
    assert_eq!(ranges(&all(&mut watcher)), [of("a", b"k", None), of("b", b"", None), of("c", b"", Some(b"m"))]);
    assert_eq!(ranges(&all(&mut second)), [of("b", b"", None)]);
    let mut of_prefix = db.watch(WatchOptions::new().tree(&trees[0]).prefix("k1")).unwrap();
    trees[0].delete_range(b"k0".as_slice()..b"k5".as_slice()).unwrap();
    trees[0].delete_range(b"k15".as_slice()..b"k18".as_slice()).unwrap();
    let expected = [of("a", b"k1", Some(b"k2")), of("a", b"k15", Some(b"k18"))];
    assert_eq!(ranges(&all(&mut of_prefix)), expected);
}

#[test]
fn waiting_watcher_wakes_on_commit_stop_and_close() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let db = open(Settings { background_threads: 2, ..keeping(&mem(), 1 << 20) }).unwrap();
        let tree = db.tree("t").unwrap();
        let mut watcher = db.watch(WatchOptions::new()).unwrap();
        assert!(watcher.next_timeout(Duration::from_millis(5)).unwrap().is_none());
        let (seen, sees) = mpsc::channel();
        #[expect(clippy::disallowed_methods, reason = "a test of threads")]
        let thread = std::thread::spawn(move || {
            while let Some(set) = watcher.next()? {
                seen.send(set.sequence).unwrap();
            }
            Ok::<_, Error>(watcher)
        });
        for number in 0..300_u32 {
            let mut batch = db.batch();
            batch.put(&tree, number.to_be_bytes(), b"x");
            let sequence = batch.commit_with(durability).unwrap();
            // Each wait is ended by a commit.
            if number.is_multiple_of(3) {
                while sees.recv_timeout(Duration::from_secs(20)).unwrap() < sequence {}
            }
        }
        db.clone().close().unwrap();
        let ended = bounded("a watcher", move || thread.join().unwrap());
        assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
    }
    let db = open(Settings { background_threads: 2, ..keeping(&mem(), 1 << 20) }).unwrap();
    let mut watcher = db.watch(WatchOptions::new()).unwrap();
    let stopper = watcher.stopper();
    #[expect(clippy::disallowed_methods, reason = "a test of threads")]
    let thread = std::thread::spawn(move || watcher.next().map(|set| set.is_none()));
    stopper.stop();
    assert!(bounded("a watcher", move || thread.join().unwrap()).unwrap());
}

#[test]
fn watcher_resumed_inside_segment_returns_commits_at_first_call() {
    let settings = Settings {
        memory: 64 << 20,
        memtable_bytes: Some(32 << 20),
        log_segment_bytes: 8 << 20,
        blob_threshold: 1 << 20,
        ..keeping(&mem(), 1 << 30)
    };
    let db = open(settings).unwrap();
    let tree = db.tree("t").unwrap();
    let mut random = Random(1);
    let mut put = |key: u8| {
        let value: Vec<u8> = std::iter::repeat_with(|| random.below(256) as u8).take(100 << 10).collect();
        tree.put([key], value).unwrap();
    };
    (0..24).for_each(&mut put);
    let token = db.watch(WatchOptions::new()).unwrap().token();
    let resumed = |token| db.watch(WatchOptions::new().resume(token)).unwrap();
    let mut at_end = resumed(token);
    assert!(at_end.try_next().unwrap().is_none());
    (24..60).for_each(&mut put);
    for watcher in [&mut at_end, &mut resumed(token)] {
        assert_eq!(all(watcher).len(), 36);
    }
}

#[test]
fn log_retention_is_remembered_and_drops_old_segments() {
    let vfs = mem();
    let clock = crate::db::tests_common::Clock::new();
    let settings = || Settings { runtime: clock.clone(), ..small(&vfs) };
    let db = open(Settings { log_retention_bytes: Some(1 << 30), ..settings() }).unwrap();
    let fill = |db: &Db| {
        let tree = db.tree("t").unwrap();
        (0..1000_u32).for_each(|number| assert!(tree.put(number.to_be_bytes(), [1; 100]).is_ok()));
        db.flush().unwrap();
    };
    fill(&db);
    db.close().unwrap();
    let db = open(settings()).unwrap();
    assert!(all(&mut db.watch(WatchOptions::new().after(0)).unwrap()).len() > 1000);
    db.close().unwrap();
    let age = Duration::from_secs(60).as_micros() as u64;
    let db = open(Settings { log_retention_age_us: Some(age), ..settings() }).unwrap();
    clock.advance(30_000_000_000);
    fill(&db);
    assert!(db.watch(WatchOptions::new().after(0)).is_ok());
    clock.advance(40_000_000_000);
    fill(&db);
    assert!(db.watch(WatchOptions::new().after(0)).is_err_and(|e| e.is_watch_too_old()));
    let kept = all(&mut db.watch(WatchOptions::new().from_oldest()).unwrap()).len();
    assert!((1500..2700).contains(&kept), "{kept}");
    db.close().unwrap();
    let db = open(Settings { log_retention_bytes: Some(0), ..settings() }).unwrap();
    fill(&db);
    assert!(all(&mut db.watch(WatchOptions::new().from_oldest()).unwrap()).len() < 400);
}

/// After files were restored from a copy, the token of an unsynced watcher was `WatchTooOld`,
/// because its epoch looked like a dropped one.
#[test]
fn token_above_last_commit_is_refused_with_both_numbers() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(keeping(&fault(&vfs), 1 << 20)).unwrap();
    let last = db.tree("t").unwrap().put("a", "1").unwrap();
    db.sync().unwrap();
    let earlier = killed(&vfs);
    db.close().unwrap();
    let db = open(keeping(&fault(&vfs), 1 << 20)).unwrap();
    let tree = db.open_tree("t").unwrap();
    let mut watchers = [true, false].map(|unsynced| db.watch(WatchOptions::new().unsynced(unsynced)).unwrap());
    let ahead = (0..10_u8).fold(0, |_, i| tree.put([i], "2").unwrap());
    for watcher in &mut watchers {
        assert_eq!(all(watcher).len(), 10);
    }
    let tokens = watchers.map(|watcher| watcher.token());
    for read_only in [true, false] {
        let db = open(Settings { read_only, ..keeping(&fault(&killed(&earlier)), 1 << 20) }).unwrap();
        for token in tokens {
            let refused = db.watch(WatchOptions::new().resume(token)).unwrap_err();
            let text = refused.to_string();
            assert!(matches!(refused, Error::InvalidArgument(_)), "{refused:?}");
            let expected = [format!("after commit {ahead},"), format!("database is {last}:")];
            assert!(expected.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
