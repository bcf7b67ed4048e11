//! Scans of views, unindexed runs and memtables whose rows alternate.

use crate::{
    codec::Compression,
    db::{
        Settings, Tree,
        handles::tests::cursor::{Model, Random, walk},
        tests_common::{DIR, mapped, mem, open, small},
    },
    platform::{OpenMode, Vfs},
};
use std::{path::Path, sync::Arc};

/// Keys with a common prefix longer than one comparison.
fn alike(number: u64) -> Vec<u8> {
    format!("{:04}/the same in all of them/{}", number / 7, number % 7).into_bytes()
}

fn nested(number: u64) -> Vec<u8> {
    let mut key = (number / 24).to_be_bytes()[6..].to_vec();
    key.extend((0..number % 24).map(|i| if number.is_multiple_of(2) || i < 3 { 0xff } else { 0 }));
    key
}

/// Each region has a prefix of its own, of the same length, so that scans change regions while a
/// batch has rows of one source alone.
fn regions(number: u64) -> Vec<u8> {
    let mut key = scattered(number / 64);
    key.extend([(number % 64 * 4) as u8, 0xff]);
    key
}

fn scattered(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
}

fn check_scan(tree: &Tree, model: &Model) {
    let mut cursor = tree.cursor();
    let mut rows = Vec::new();
    while cursor.next().unwrap() {
        let (key, value) = cursor.row().unwrap();
        rows.push((key.to_vec(), value.to_vec()));
    }
    assert!(rows == Vec::from_iter(model.clone()), "a scan shows other rows than there are");
    let mut cursor = tree.cursor();
    let mut backward = Vec::new();
    while cursor.prev().unwrap() {
        let (key, value) = cursor.row().unwrap();
        backward.push((key.to_vec(), value.to_vec()));
    }
    backward.reverse();
    assert!(rows == backward, "a scan shows other rows backward than forward");
}

fn change_in_turns(tree: &Tree, model: &mut Model, random: &mut Random, keys: &[Vec<u8>], has_blobs: bool) {
    let (step, block) = ([1, 2, 3, 10, 40][random.below(5) as usize], [1, 1, 5, 50][random.below(4) as usize]);
    let (phase, deletes) = (random.below(step) as usize, [10, 5, 0][random.below(3) as usize]);
    let end = if random.below(3) == 0 { keys.len() / 2 } else { keys.len() };
    for at in (0..end).filter(|at| at / block % step as usize == phase) {
        let key = &keys[at];
        if random.below(10) < deletes {
            tree.delete(key).unwrap();
            model.remove(key);
        } else {
            let value = random.value(has_blobs);
            tree.put(key, &value).unwrap();
            model.insert(key.clone(), value);
        }
    }
}

#[test]
fn rows_of_sources_that_take_turns_are_shown_once_and_in_order() {
    let shapes: [fn(u64) -> Vec<u8>; 4] = [scattered, alike, nested, regions];
    let mut most_loose = 0;
    for (seed, shape) in (0..16).zip(shapes.into_iter().cycle()) {
        let random = &mut Random(seed, shape);
        let (vfs, compression) = if seed % 2 == 0 { (mem(), Compression::Lz4) } else { (mapped(), Compression::None) };
        let partition_bytes = Some([32 << 10, 1 << 30][(seed / 3 % 2) as usize]);
        let settings = Settings {
            partition_bytes,
            memtable_bytes: Some(1 << 20),
            loose_runs: 6,
            fold_bytes_per_entry: 1_000,
            compression,
            ..small(&vfs)
        };
        let db = open(settings).unwrap();
        let (before, tree, after) = (db.tree("a").unwrap(), db.tree("b").unwrap(), db.tree("c").unwrap());
        let mut model = Model::new();
        for number in 0..2_500 {
            let (key, value) = (shape(number), random.value(false));
            tree.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        let keys: Vec<_> = model.keys().cloned().collect();
        db.compact().unwrap();
        let mut kept = Vec::new();
        for round in 0..8 {
            before.put(format!("{round}"), b"before").unwrap();
            after.put(format!("{round}"), b"after").unwrap();
            change_in_turns(&tree, &mut model, random, &keys, seed % 3 == 0);
            if random.below(3) > 0 {
                db.flush().unwrap();
            }
            most_loose = db.stats().partitions.iter().map(|p| p.loose.len()).fold(most_loose, usize::max);
            check_scan(&tree, &model);
            walk(&mut tree.cursor(), &model, random);
            kept.push((tree.cursor(), model.clone()));
            if kept.len() > 3 {
                kept.remove(random.below(3) as usize);
            }
            for (cursor, model) in &mut kept {
                walk(cursor, model, random);
            }
        }
    }
    assert!(most_loose > 2, "{most_loose} loose runs are too few for the test");
}

/// One source still has rows of a region when the other reaches the next one, whose prefix has the
/// same length.
#[test]
fn regions_that_have_as_much_in_common_are_told_apart() {
    let key = |region: &str, place: [u8; 2]| [region.as_bytes(), &place].concat();
    // So that segments end where regions do.
    for rows in 120..=136u8 {
        let settings = Settings { memtable_bytes: Some(1 << 20), partition_bytes: Some(1 << 30), ..small(&mapped()) };
        let db = open(Settings { compression: Compression::None, ..settings }).unwrap();
        let tree = db.tree("rows").unwrap();
        let mut model = Model::new();
        let mut put = |key: Vec<u8>| {
            tree.put(&key, b"value").unwrap();
            model.insert(key, b"value".to_vec());
        };
        for region in ["region a", "region b"] {
            (0..rows).for_each(|place| put(key(region, [0x10 + place, 0])));
        }
        db.compact().unwrap();
        for region in ["region a", "region b"] {
            (0..rows).step_by(2).for_each(|place| put(key(region, [0x10 + place, 1])));
            (0..100).for_each(|place| put(key(region, [0, place])));
            (0..100).for_each(|place| put(key(region, [0xff, place])));
        }
        let keys = |from: &str| model.range(from.as_bytes().to_vec()..).map(|(key, _)| key.clone()).collect::<Vec<_>>();

        let mut cursor = tree.cursor();
        for from in ["region b", "region a"] {
            let (mut seen, mut is_there) = (Vec::new(), cursor.seek(from).unwrap());
            while is_there {
                seen.push(cursor.key().to_vec());
                is_there = cursor.next().unwrap();
            }
            assert!(seen == keys(from), "{rows} rows, from {from}");
        }
        let mut cursor = tree.cursor();
        for before in ["region b", "region c"] {
            let (mut seen, mut is_there) = (Vec::new(), cursor.seek_before(before).unwrap());
            while is_there {
                seen.push(cursor.key().to_vec());
                is_there = cursor.prev().unwrap();
            }
            seen.reverse();
            let expected: Vec<_> = keys("").into_iter().filter(|key| key.as_slice() < before.as_bytes()).collect();
            assert!(seen == expected, "{rows} rows, back from {before}");
        }
    }
}

fn damage_middle_of_largest_run(vfs: &Arc<dyn Vfs>) {
    let files = vfs.list(Path::new(DIR)).unwrap();
    let runs = files.iter().filter(|file| file.name.ends_with(".run"));
    let open_file = |name: &str| vfs.open(&Path::new(DIR).join(name), OpenMode::ReadWrite).unwrap();
    let file = runs.map(|file| open_file(&file.name)).max_by_key(|file| file.len().unwrap()).expect("there are runs");
    let middle = file.len().unwrap() / 3;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_at(&[byte[0] ^ 1], middle).unwrap();
}

/// Rows are decoded ahead, but only the step that reaches the damaged ones reports them.
#[test]
fn damage_further_on_is_told_of_when_a_scan_comes_there() {
    let row = |i: u32| (format!("key{i:06}").into_bytes(), vec![i as u8; 40]);
    for (forward, turns) in [(true, false), (false, false), (true, true), (false, true)] {
        let vfs = mem();
        let settings = Settings {
            partition_bytes: Some(1 << 30),
            memtable_bytes: Some(1 << 20),
            compression: Compression::None,
            ..small(&vfs)
        };
        let db = open(settings.clone()).unwrap();
        let tree = db.tree("t").unwrap();
        for i in 0..4_000 {
            let (key, value) = row(i);
            tree.put(&key, &value).unwrap();
        }
        db.compact().unwrap();
        damage_middle_of_largest_run(&vfs);
        drop(tree);
        db.close().unwrap();

        let db = open(settings).unwrap();
        let tree = db.tree("t").unwrap();
        let is_deleted = |i: u32| turns && i.is_multiple_of(2);
        for i in (0..4_000).filter(|&i| is_deleted(i)) {
            tree.delete(row(i).0).unwrap();
        }
        let numbers: Vec<u32> = if forward { (0..4_000).collect() } else { (0..4_000).rev().collect() };
        let is_damaged = |&&i: &&u32| !is_deleted(i) && tree.get(row(i).0).is_err();
        let damaged = numbers.iter().position(|i| is_damaged(&i)).expect("a row is damaged");
        let expected: Vec<_> = numbers[..damaged].iter().copied().filter(|&i| !is_deleted(i)).collect();
        let mut cursor = tree.cursor();
        let mut seen = Vec::new();
        let error = loop {
            match if forward { cursor.next() } else { cursor.prev() } {
                Ok(true) => {
                    let number = String::from_utf8_lossy(&cursor.key()[3..]).parse::<u32>();
                    seen.push(number.unwrap());
                }
                Ok(false) => panic!("the damage was not met"),
                Err(e) => break e,
            }
        };
        assert!(error.is_corruption(), "{error}");
        assert_eq!(seen, expected, "forward {forward}, turns {turns}");
    }
}
