//! Merge functions in memtables, flushes, merges and reopens, at every snapshot.

use crate::{
    base::{EntryKind, Error},
    codec::{Base, MergeFunction, Operand, Operands, decode_set, encode_operands, encode_set},
    commit::RawBatch,
    db::{
        Db, Durability, MergeFunctionHandle, Settings, Snapshot, Tree,
        tests_common::{mem, open, small},
        write::pipeline,
    },
    platform::Vfs,
};
use std::{collections::BTreeMap, sync::Arc};

#[derive(Debug)]
struct Join;

impl MergeFunction for Join {
    fn apply(&self, key: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        assert!(operand != b"panic", "as asked");
        if operand == b"fail" {
            return Err(format!("asked to fail on {}", key.escape_ascii()));
        }
        Ok(value.map_or(operand.to_vec(), |value| [value, b",", operand].concat()))
    }
}

fn settings(vfs: &Arc<dyn Vfs>) -> Settings {
    Settings { merge_functions: vec![("join".to_owned(), Arc::new(Join))], ..small(vfs) }
}

fn number(value: i64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

struct Case {
    vfs: Arc<dyn Vfs>,
    db: Option<Db>,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    random: u64,
}

impl Case {
    fn below(&mut self, bound: u64) -> u64 {
        self.random = mix(self.random);
        self.random % bound
    }

    fn db(&self) -> Db {
        self.db.clone().unwrap()
    }

    fn tree(&self) -> Tree {
        self.db().tree("t").unwrap()
    }

    fn merge(&mut self, key: Vec<u8>, function: &str, operand: &[u8]) {
        let before = self.model.get(&key).cloned();
        let after = match function {
            "add" => {
                let read = |bytes: &Vec<u8>| i64::from_le_bytes(bytes.as_slice().try_into().unwrap());
                number(before.as_ref().map_or(0, read) + i64::from_le_bytes(operand.try_into().unwrap()))
            }
            "append" => [before.unwrap_or_default(), operand.to_vec()].concat(),
            "max" => before.unwrap_or_default().max(operand.to_vec()),
            "join" => before.map_or(operand.to_vec(), |before| [&before[..], b",", operand].concat()),
            _ => unreachable!(),
        };
        self.model.insert(key, after);
    }

    /// Each key has its own function, so that values fit.
    fn operand(&mut self, key: u64) -> (&'static str, Vec<u8>) {
        let value = self.below(1000);
        match key % 4 {
            0 => ("add", number(value as i64 - 300)),
            1 => ("append", vec![b'a' + (value % 26) as u8; (value % 40) as usize]),
            2 => ("max", number(value as i64)),
            _ => ("join", value.to_string().into_bytes()),
        }
    }

    fn step(&mut self) {
        let (tree, number_of_key) = (self.tree(), self.below(12));
        let key = vec![b'k', number_of_key as u8];
        match self.below(40) {
            0..=15 => {
                let (function, operand) = self.operand(number_of_key);
                tree.merge(&key, &self.db().merge_function(function).unwrap(), &operand).unwrap();
                self.merge(key, function, &operand);
            }
            16..=19 => {
                let value = self.base(number_of_key);
                tree.put(&key, &value).unwrap();
                self.model.insert(key, value);
            }
            20 | 21 => {
                tree.delete(&key).unwrap();
                self.model.remove(&key);
            }
            22 => {
                let end = vec![b'k', number_of_key as u8 + 3];
                tree.delete_range(key.clone()..end.clone()).unwrap();
                self.model.retain(|k, _| !(key <= *k && *k < end));
            }
            23..=27 => self.together(),
            28..=30 => self.db().flush().unwrap(),
            31 => self.db().compact().unwrap(),
            32..=34 => self.snapshots.push((self.db().snapshot(), self.model.clone())),
            35 | 36 if !self.snapshots.is_empty() => {
                let at = self.below(self.snapshots.len() as u64) as usize;
                self.snapshots.swap_remove(at);
            }
            37 => {
                self.snapshots.clear();
                drop(tree);
                let db = self.db.take().unwrap();
                db.close().unwrap();
                self.db = Some(open(settings(&self.vfs)).unwrap());
            }
            38 => (0..60_u8).for_each(|n| drop(tree.put([b'z', n], [n; 200]).map(|_| ()))),
            _ => {}
        }
    }

    /// Returns a base for the key's function, sometimes a blob.
    fn base(&mut self, key: u64) -> Vec<u8> {
        match key % 4 {
            0 | 2 => number(self.below(100) as i64),
            _ => vec![b'v'; [5, 300][self.below(2) as usize]],
        }
    }

    fn together(&mut self) {
        let (db, tree) = (self.db(), self.tree());
        let in_transaction = self.below(2) == 0;
        let (mut batch, tx) = (db.batch(), db.begin().unwrap());
        for _ in 0..self.below(8) + 1 {
            let number_of_key = self.below(3);
            let key = vec![b'k', number_of_key as u8];
            match self.below(8) {
                0 => {
                    batch.delete(&tree, &key);
                    tx.delete(&tree, &key).unwrap();
                    self.model.remove(&key);
                }
                1 => {
                    batch.delete_range(&tree, key.clone()..=key.clone());
                    tx.delete_range(&tree, key.clone()..=key.clone()).unwrap();
                    self.model.remove(&key);
                }
                2 => {
                    let value = self.base(number_of_key);
                    batch.put(&tree, &key, &value);
                    tx.put(&tree, &key, &value).unwrap();
                    self.model.insert(key.clone(), value);
                }
                _ => {
                    let (function, operand) = self.operand(number_of_key);
                    let handle = db.merge_function(function).unwrap();
                    batch.merge(&tree, &key, &handle, &operand);
                    tx.merge(&tree, &key, &handle, &operand).unwrap();
                    self.merge(key.clone(), function, &operand);
                }
            }
            assert_eq!(tx.get(&tree, &key).unwrap().as_deref(), self.model.get(&key).map(Vec::as_slice));
        }
        let own: Model =
            tx.prefix(&tree, b"k").map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
        assert_eq!(own, self.model);
        if in_transaction {
            tx.commit().unwrap();
        } else {
            drop(tx);
            batch.commit_with(crate::db::engine::settings::Durability::Buffered).unwrap();
        }
    }

    fn check(&self, story: &str) {
        let tree = self.tree();
        let now = self.db().snapshot();
        for (snapshot, model) in self.snapshots.iter().chain([&(now, self.model.clone())]) {
            let rows = |pairs: crate::db::Iter| -> Vec<(Vec<u8>, Vec<u8>)> {
                pairs.map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
            };
            let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            assert_eq!(rows(snapshot.prefix(&tree, b"k")), expected, "{story}");
            let keys: Vec<Vec<u8>> = (0..12).map(|n| vec![b'k', n]).collect();
            for (key, value) in keys.iter().zip(snapshot.multi_get(&tree, &keys).unwrap()) {
                assert_eq!(value.as_deref(), model.get(key).map(Vec::as_slice), "{story}");
                assert_eq!(snapshot.get(&tree, key).unwrap(), value, "{story}");
                assert_eq!(snapshot.contains(&tree, key).unwrap(), value.is_some(), "{story}");
            }
        }
    }
}

/// Random writes, flushes, merges and reopens: all reads match the model at each snapshot.
#[test]
fn merged_values_are_what_a_map_would_hold() {
    for seed in 0..80 {
        let vfs = mem();
        let db = open(settings(&vfs)).unwrap();
        let mut case = Case { vfs, db: Some(db), model: Model::new(), snapshots: Vec::new(), random: mix(seed) };
        for step in 0..150 {
            case.step();
            case.check(&format!("seed {seed}, step {step}"));
        }
        case.snapshots.clear();
        case.db().compact().unwrap();
        case.check(&format!("seed {seed}, compacted"));
        let report = case.db().verify().unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
    }
}

fn newest_in_memory(db: &Db, tree: &Tree, key: &[u8]) -> (EntryKind, Vec<u8>) {
    let state = db.engine().cell.state.load();
    let internal = [&tree.state().id.first_key()[..], key].concat();
    let entry = state.active.get(&internal, u64::MAX >> 2).unwrap();
    (entry.kind, entry.value.to_vec())
}

/// A counter's record does not grow with the number of counts.
#[test]
fn counts_do_not_pile_up() {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    let add = db.merge_function("add").unwrap();
    tree.put(b"n", number(5)).unwrap();
    db.flush().unwrap();
    let counted = |from: i64| {
        for one in 0..100 {
            tree.merge(b"n", &add, number(1)).unwrap();
            assert_eq!(tree.get(b"n").unwrap().as_deref(), Some(&number(from + one + 1)[..]));
        }
    };
    counted(5);
    let (kind, operands) = newest_in_memory(&db, &tree, b"n");
    assert_eq!(kind, EntryKind::Merge, "what is beneath is in a run");
    let operands = Operands::decode(&operands).unwrap();
    assert_eq!((operands.iter().count(), operands.reach), (1, 99));
    db.flush().unwrap();
    counted(105);
    // With a base in the memtable, they become a value at once.
    tree.delete(b"n").unwrap();
    tree.merge(b"n", &add, number(7)).unwrap();
    assert_eq!(newest_in_memory(&db, &tree, b"n"), (EntryKind::Value, number(7)));
    tree.delete_range(b"a".as_slice()..b"z".as_slice()).unwrap();
    tree.merge(b"n", &add, number(8)).unwrap();
    assert_eq!(newest_in_memory(&db, &tree, b"n"), (EntryKind::Value, number(8)));
    db.compact().unwrap();
    let stats = db.stats();
    let entries: u64 = stats.partitions.iter().flat_map(|p| p.runs.iter().chain(&p.loose)).map(|r| r.entries).sum();
    assert_eq!(tree.get(b"n").unwrap().as_deref(), Some(&number(8)[..]));
    assert!(entries <= 4, "one entry is left, and the catalog's: {entries}");
}

/// A read names the failing or panicking function; its operands stay, and other keys are
/// unaffected.
#[test]
fn failures_are_contained_and_named() {
    let vfs = mem();
    let db = open(settings(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    let (join, add) = (db.merge_function("join").unwrap(), db.merge_function("add").unwrap());
    for (key, operand, reason) in
        [(&b"f"[..], &b"fail"[..], "asked to fail on f"), (b"p", b"panic", "panicked: as asked")]
    {
        tree.put(key, b"base").unwrap();
        tree.merge(key, &join, operand).unwrap();
        tree.merge(key, &join, b"later").unwrap();
        for way in 0..3 {
            let error = tree.get(key).unwrap_err();
            assert!(matches!(&error, Error::MergeFailed { function, .. } if function == "join"), "{error}");
            assert!(error.to_string().contains(reason), "{error}");
            assert!(tree.iter().any(|row| row.is_err()));
            assert!(tree.contains(key).unwrap());
            if way == 0 { db.flush().unwrap() } else { db.compact().unwrap() }
        }
        tree.put(key, b"new").unwrap();
        assert_eq!(tree.get(key).unwrap().as_deref(), Some(&b"new"[..]));
    }
    tree.put(b"text", b"no number").unwrap();
    tree.merge(b"text", &add, number(1)).unwrap();
    assert!(tree.get(b"text").unwrap_err().to_string().contains("8 bytes"));
    tree.delete(b"text").unwrap();
    tree.merge(b"j", &join, b"1").unwrap();
    db.flush().unwrap();
    tree.merge(b"j", &join, b"2").unwrap();
    drop((tree, join, add));
    db.close().unwrap();
    // Without the function the key is unreadable, but merges keep its operands.
    let db = open(small(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    assert!(matches!(db.merge_function("join"), Err(Error::NotFound(_))));
    db.compact().unwrap();
    let error = tree.get(b"j").unwrap_err();
    assert!(error.to_string().contains("\"j\"") && error.to_string().contains("not registered"), "{error}");
    drop(tree);
    db.close().unwrap();
    let db = open(settings(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    assert_eq!(tree.get(b"j").unwrap().as_deref(), Some(&b"1,2"[..]));
    assert!(matches!(db.merge_function("unknown"), Err(Error::NotFound(_))));
    for names in [&["add"][..], &["mine", "mine"]] {
        let own = names.iter().map(|name| ((*name).to_owned(), Arc::new(Join) as Arc<dyn MergeFunction>)).collect();
        let refused = open(Settings { merge_functions: own, ..small(&mem()) });
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{names:?}");
    }
    let other: MergeFunctionHandle = open(small(&mem())).unwrap().merge_function("add").unwrap();
    assert!(matches!(tree.merge(b"j", &other, b""), Err(Error::InvalidArgument(_))));
    let mut batch = db.batch();
    batch.put(&tree, b"x", b"").merge(&tree, b"j", &other, b"");
    assert!(matches!(
        batch.commit_with(crate::db::engine::settings::Durability::Buffered),
        Err(Error::InvalidArgument(_))
    ));
    assert!(tree.get(b"x").unwrap().is_none());
}

/// Results of built-in functions without a value, with one, and with an unsuitable one.
#[test]
fn the_functions_that_are_built_in() {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    let run = |name: &str, base: Option<&[u8]>, operands: &[&[u8]]| {
        let function = db.merge_function(name).unwrap();
        tree.delete(b"k").unwrap();
        if let Some(base) = base {
            tree.put(b"k", base).unwrap();
        }
        let mut results = Vec::new();
        for (index, operand) in operands.iter().enumerate() {
            if tree.merge(b"k", &function, operand).is_err() {
                tree.merge_unchecked(b"k", db.engine().functions.number(name).unwrap().0, operand);
            }
            if index == operands.len() / 2 {
                db.flush().unwrap();
            }
            results.push(tree.get(b"k").map(|value| value.unwrap().to_vec()));
        }
        let last = results.pop().unwrap();
        db.compact().unwrap();
        assert_eq!(tree.get(b"k").map(|value| value.unwrap().to_vec()).ok(), last.as_ref().ok().cloned());
        last
    };
    assert_eq!(run("add", None, &[&number(3), &number(-5)]).unwrap(), number(-2));
    assert_eq!(run("add", Some(&number(i64::MAX)), &[&number(1)]).unwrap(), number(i64::MIN));
    assert!(run("add", None, &[b"x"]).is_err());
    assert_eq!(run("max", Some(b"b"), &[b"a", b"c", b"bb"]).unwrap(), b"c");
    assert_eq!(run("min", None, &[b"b", b"c"]).unwrap(), b"b");
    assert_eq!(run("append", Some(b"x"), &[b"y", b"", b"z"]).unwrap(), b"xyz");
    let union = run("union", Some(&encode_set(["b", "a"])), &[&encode_set(["c", "a"]), &encode_set(["aa"])]).unwrap();
    assert_eq!(decode_set(&union).unwrap(), [&b"a"[..], b"aa", b"b", b"c"]);
    assert!(run("union", Some(b"\x05x"), &[&encode_set(["c"])]).is_err());
    assert_eq!(decode_set(&encode_set(["x", "x"])).unwrap().len(), 1);
}

/// Examples of RFC 7396, appendix A, also as two patches combined before they meet a value.
#[cfg(feature = "json")]
#[test]
fn json_merge_patches() {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    let patch = db.merge_function("json_merge_patch").unwrap();
    let cases = [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
        (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
        (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
        (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
        (r#"{"a":"foo"}"#, "null", "null"),
        (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
        ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
        ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
    ];
    let parse = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
    let get = || parse(&tree.get(b"k").unwrap().unwrap());
    for (value, operand, expected) in cases {
        tree.put(b"k", value).unwrap();
        tree.merge(b"k", &patch, operand).unwrap();
        assert_eq!(get(), parse(expected.as_bytes()), "{value} by {operand}");
    }
    // Any two patches on any value, in turn and combined by a flush.
    let patches: Vec<&str> =
        cases.iter().map(|case| case.1).chain([r#"{"a":{"b":{"x":1}}}"#, r#"{"a":{"c":{}}}"#]).collect();
    for value in cases.iter().map(|case| case.0).chain([r#"{"a":{"b":{"c":1},"c":{"d":2}}}"#]) {
        for first in &patches {
            for second in &patches {
                tree.put(b"k", value).unwrap();
                db.flush().unwrap();
                tree.merge(b"k", &patch, first).unwrap();
                tree.merge(b"k", &patch, second).unwrap();
                let uncombined = get();
                db.flush().unwrap();
                assert_eq!(get(), uncombined, "{value} by {first} and {second}");
            }
        }
    }
    assert!(tree.merge(b"k", &patch, "{").unwrap_err().to_string().contains("json_merge_patch"));
}

/// Regression: for foreign operands with maximum reach, a get took the operands' own commit for the
/// one beneath and looped forever.
#[test]
fn operands_that_reach_below_all_commits_have_nothing_beneath() {
    let db = open(small(&mem())).unwrap();
    let tree = db.tree("t").unwrap();
    tree.put(b"k", b"beneath").unwrap();
    let append = Operand { function: 4, bytes: b"x" };
    let mut batch = RawBatch::default();
    let key = [&tree.state().id.first_key()[..], b"k"].concat();
    batch.push(EntryKind::Merge, &[&key], &encode_operands(Base::Beneath, u64::MAX, std::iter::once(append)));
    pipeline::commit(db.engine(), batch.prepare().unwrap(), Durability::Buffered).unwrap();
    for _ in 0..2 {
        assert_eq!(tree.get(b"k").unwrap().as_deref(), Some(&b"x"[..]));
        db.compact().unwrap();
    }
}
