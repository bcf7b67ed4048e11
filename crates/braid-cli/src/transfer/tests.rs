//! Exports and imports of random databases must preserve their trees byte for byte.
//!
//! `BRAID_IDENTITY_DATABASES=10000` sets the number of databases. Each is generated from its
//! number, which a failure prints.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braiddb::{
    Compression, Db, Durability, TreeCodec, TreeOptions,
    dump::{DumpOptions, LoadOptions},
};

use super::{line::options_of, *};
use crate::{
    exit::{INPUT, USAGE, code_of},
    import::{IndexSpec, Indexes, stored_key_notation},
    notation::KeyNotation,
    random::Random,
};

const KEY_LEN_MAX: u64 = 65_536;

const FAR_US: u64 = 7_000_000_000_000_000;

fn databases(otherwise: u64) -> u64 {
    std::env::var("BRAID_IDENTITY_DATABASES").ok().map_or(otherwise, |text| text.parse().expect("a number"))
}

fn random_bytes(random: &mut Random, len: u64) -> Vec<u8> {
    let alphabet: &[u8] = match random.below(4) {
        0 => b"\\x4f{\"hex\":}0:u64",
        1 => "aé\u{2028}\u{202e}\u{feff}\u{1f600}\n\t\0".as_bytes(),
        _ => &[],
    };
    (0..len)
        .map(|_| match alphabet.len() as u64 {
            0 => random.below(256) as u8,
            count => alphabet[random.below(count) as usize],
        })
        .collect()
}

fn random_key(random: &mut Random, keys: KeyNotation) -> Vec<u8> {
    match random.below(if keys == KeyNotation::U64 { 4 } else { 40 }) {
        0 if keys == KeyNotation::U64 => b"258".to_vec(),
        _ if keys == KeyNotation::U64 => (random.next() >> random.below(64)).to_be_bytes().to_vec(),
        0 => Vec::new(),
        1 => {
            let len = random.pick(&[KEY_LEN_MAX, KEY_LEN_MAX - 1, 255, 256, 4096]);
            random_bytes(random, len)
        }
        2 => random.next().to_be_bytes().to_vec(),
        _ => {
            let len = random.below(24);
            random_bytes(random, len)
        }
    }
}

fn random_value(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => Vec::new(),
        1 => b"1".to_vec(),
        2 => b"hex:41".to_vec(),
        3 => b"{\"hex\":\"41\"}".to_vec(),
        4 => b"\"a\xffb\"".to_vec(),
        5 => {
            let len = random.below(20_000);
            random_bytes(random, len)
        }
        _ => {
            let len = random.below(60);
            random_bytes(random, len)
        }
    }
}

fn random_database(seed: u64) -> Db {
    let mut random = Random::of(seed, 0);
    let db = Db::in_memory().unwrap();
    for number in 0..random.below(4) {
        let name = match random.below(4) {
            0 => format!("tree\\{number}\n\u{e9}"),
            _ => format!("tree {number}"),
        };
        let records = match random.below(5) {
            0 => 0,
            1 => random.below(400),
            _ => random.below(25),
        };
        match random.below(5) {
            0 => fill_multi(&db, &name, records, &mut random),
            1 => fill_merged(&db, &name, &mut random),
            _ => fill_plain(&db, &name, records, &mut random),
        }
    }
    if random.chance(2000) {
        fill_indexed(&db, &mut random);
    }
    if random.chance(3000) {
        db.flush().unwrap();
    }
    db
}

fn fill_plain(db: &Db, name: &str, records: u64, random: &mut Random) {
    let compression = random.pick(&[None, Some(Compression::None), Some(Compression::Lz4), Some(Compression::Zstd)]);
    let blob_threshold = random.pick(&[None, None, Some(1 << 10), Some(1 << 20)]);
    let ttl = random.pick(&[None, None, Some(Duration::from_secs(1_000_000))]);
    let codec = random.pick(&[None, TreeCodec::new("tuple", "json").ok()]);
    let mut options = TreeOptions::new();
    (options.compression, options.blob_threshold) = (compression, blob_threshold);
    (options.ttl, options.codec) = (ttl, codec);
    let tree = db.tree_with(name, options).unwrap();
    let keys = random.pick(&[KeyNotation::Text, KeyNotation::Text, KeyNotation::U64]);
    let mut batch = db.batch();
    for _ in 0..records {
        let (key, value) = (random_key(random, keys), random_value(random));
        match random.below(6) {
            0 => batch.put_until(&tree, &key, &value, UNIX_EPOCH + Duration::from_micros(FAR_US + random.below(1000))),
            1 => batch.delete(&tree, &key),
            _ => batch.put(&tree, &key, &value),
        };
    }
    if keys == KeyNotation::U64 {
        let mut notation = crate::import::NewNotation::claim(db, name, keys, "the test").unwrap();
        notation.store(db, name, &db.tree(crate::import::IMPORT_TREE).unwrap(), &mut batch).unwrap();
    }
    batch.commit_with(Durability::Buffered).unwrap();
}

fn fill_multi(db: &Db, name: &str, records: u64, random: &mut Random) {
    let tree = db.multi_tree(name).unwrap();
    let mut batch = db.batch();
    let mut key = Vec::new();
    for _ in 0..records {
        if random.chance(4000) {
            let len = random.below(10);
            key = random_bytes(random, len);
        }
        let len = random.below(20);
        batch.add(&tree, &key, random_bytes(random, len));
    }
    batch.commit_with(Durability::Buffered).unwrap();
}

fn fill_merged(db: &Db, name: &str, random: &mut Random) {
    let tree = db.tree(name).unwrap();
    let add = db.merge_function("add").unwrap();
    for _ in 0..random.below(20) {
        tree.merge(random.below(5).to_be_bytes(), &add, random.below(100).to_le_bytes()).unwrap();
    }
}

fn fill_indexed(db: &Db, random: &mut Random) {
    let indexes = Indexes::declare_now(db, "songs", &[IndexSpec::parse("by_artist=artist:lower").unwrap()]).unwrap();
    let songs = db.tree("songs").unwrap();
    let mut batch = db.batch();
    for number in 0..random.below(20) {
        let value = format!("{{\"artist\":\"Artist {}\"}}", random.below(5));
        batch.put(&songs, number.to_string(), &value);
        indexes.replace(&mut batch, number.to_string().as_bytes(), &[], &indexes.keys_of_stored(value.as_bytes()));
    }
    batch.commit_with(Durability::Buffered).unwrap();
}

fn contents(db: &Db) -> Vec<String> {
    let mut lines = Vec::new();
    for info in db.trees().unwrap().into_iter().filter(|info| info.name != crate::import::IMPORT_TREE) {
        let (keys, indexes) =
            (stored_key_notation(db, &info.name).unwrap(), Indexes::stored_specs(db, &info.name).unwrap());
        let options = options_of(&info);
        lines.push(format!("{:?} {} {options:?} {keys:?} {indexes:?}", info.name, info.multi));
        if info.multi {
            lines.extend(db.open_multi_tree(&info.name).unwrap().iter().map(|pair| format!("  {:?}", pair.unwrap())));
            continue;
        }
        let mut cursor = db.open_tree(&info.name).unwrap().cursor();
        while cursor.next().unwrap() {
            let expires = cursor.expires().unwrap().map(|time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap());
            lines.push(format!("  {:?} {expires:?}", cursor.row().unwrap()));
        }
    }
    lines
}

fn exported(db: &Db, names: &[String]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let report = write_export(db, names, false, &mut |line, _| {
        let json: serde_json::Value = serde_json::from_slice(line)?;
        assert!(json.is_object() && !line.contains(&b'\n'));
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
        Ok(())
    });
    assert_eq!(report.unwrap().left_out, Vec::<String>::new());
    bytes
}

fn import_into(db: &Db, bytes: &[u8]) -> anyhow::Result<ReadReport> {
    let options = StoreOptions { db: Some(db), tree: None, durability: Durability::Buffered };
    ExportReader::new(bytes).store(&options, &mut |_| {})
}

fn assert_same(seed: u64, before: &Db, after: &Db) {
    let (before, after) = (contents(before), contents(after));
    let differing = before.iter().zip(&after).find(|(before, after)| before != after);
    assert!(before == after, "database {seed}: {} and {} lines; first: {differing:?}", before.len(), after.len());
}

#[test]
fn export_then_import_of_random_databases_is_identity() {
    for seed in 0..databases(200) {
        let db = random_database(seed);
        let copy = Db::in_memory().unwrap();
        let bytes = exported(&db, &[]);
        import_into(&copy, &bytes).unwrap_or_else(|error| panic!("database {seed}: {error:#}"));
        assert_same(seed, &db, &copy);
        import_into(&copy, &bytes).unwrap();
        assert!(exported(&copy, &[]) == bytes, "database {seed}");
    }
}

#[test]
fn dump_then_load_of_random_databases_is_identity() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..databases(20) {
        let db = random_database(seed);
        let mut bytes = Vec::new();
        db.dump(&mut bytes, DumpOptions::default()).unwrap();
        let path = folder.path().join(seed.to_string());
        Db::builder().load(&path, &mut bytes.as_slice(), LoadOptions::default()).unwrap();
        let copy = Db::builder().create(false).open(&path).unwrap();
        assert_same(seed, &db, &copy);
        copy.close().unwrap();
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn import_of_cut_or_changed_export_is_refused_without_panic() {
    let seed = (0..).find(|seed| exported(&random_database(*seed), &[]).len() > 1000).unwrap();
    let bytes = exported(&random_database(seed), &[]);
    let bytes = &bytes[..];
    let last_line = bytes.len() - 1 - bytes[..bytes.len() - 1].iter().rev().position(|byte| *byte == b'\n').unwrap();
    for cut in (0..last_line).step_by(bytes.len() / 300 + 1) {
        let error = import_into(&Db::in_memory().unwrap(), &bytes[..cut]).unwrap_err();
        assert_eq!(code_of(&error), INPUT, "cut at {cut}: {error:#}");
    }
    let mut random = Random::of(seed, 1);
    for _ in 0..300 {
        let mut bytes = bytes.to_vec();
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        if let Err(error) = import_into(&Db::in_memory().unwrap(), &bytes) {
            assert!([INPUT, USAGE].contains(&code_of(&error)), "{error:#}");
        }
    }
}

#[test]
fn import_into_mismatching_trees_stores_nothing() {
    let db = Db::in_memory().unwrap();
    db.tree("a").unwrap().put("k", "v").unwrap();
    db.multi_tree("m").unwrap().add("k", "v").unwrap();
    let bytes = exported(&db, &[]);
    let other = Db::in_memory().unwrap();
    other.tree("m").unwrap();
    let error = import_into(&other, &bytes).unwrap_err();
    assert!(format!("{error:#}").contains("does not have many values per key"), "{error:#}");
    assert_eq!(other.trees().unwrap().len(), 1);
    let other = Db::in_memory().unwrap();
    let numbers = other.tree("a").unwrap();
    let mut batch = other.batch();
    batch.put(&numbers, 7_u64.to_be_bytes(), "v");
    let mut notation = crate::import::NewNotation::claim(&other, "a", KeyNotation::U64, "the test").unwrap();
    notation.store(&other, "a", &other.tree(crate::import::IMPORT_TREE).unwrap(), &mut batch).unwrap();
    batch.commit_with(Durability::Buffered).unwrap();
    let error = import_into(&other, &bytes).unwrap_err();
    assert!(format!("{error:#}").contains("are numbers (u64), such as 7"), "{error:#}");
    assert_eq!((code_of(&error), other.trees().unwrap().len()), (USAGE, 2));
}

#[test]
fn export_of_newer_version_is_refused() {
    let newer = b"{\"braid_export\":2,\"trees\":[],\"more\":1}\n{\"end\":{\"records\":0,\"left_out\":0}}\n";
    let error = import_into(&Db::in_memory().unwrap(), newer).unwrap_err();
    assert!(format!("{error:#}").contains("newer braid"), "{error:#}");
    assert_eq!(code_of(&error), INPUT);
}
