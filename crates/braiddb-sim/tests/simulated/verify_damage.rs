//! Random damage to every kind of file. `verify` names a file and an offset for every damaged unit
//! and never reports a sound database.
//!
//! All bytes are in units, except:
//!
//! 1. CURRENT: bytes between and after the two slots of 80 bytes.
//! 2. Blob files: all but the header and the records of live values, which are found by the values'
//!    bytes.
//! 3. The log: segments whose loss changes no answer; bytes after the last commit's record.
//!
//! Undetectable: zeros from the start of a record to the end of the log. In a recycled segment also
//! zeros in the last record, or in a header without a complete record after it, plus any damage
//! behind that.
//!
//! `BRAIDDB_VOLUME` scales the damages; 4 means 2,000.

use crate::common;

use braiddb::{
    Durability,
    verify::{ProblemKind, VerifyOptions, VerifyReport},
};
use braiddb_sim::{
    Random, SimDisk,
    model::{Change, Contents, apply},
};
use common::{PATH, SmallOptions, batch_of, empty_disk, in_parallel, open_trees, quietly, read_all, value, volume};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

const SEED: u64 = 47;
const DAMAGES: u64 = 500;
const KINDS: [&str; 6] = ["CURRENT", "MANIFEST", "wal", "run", "view", "blob"];

fn options() -> SmallOptions {
    SmallOptions {
        memtable_bytes: 1 << 20,
        partition_bytes: 1 << 20,
        log_segment_bytes: 4 << 10,
        blob_file_bytes: 8 << 10,
        ..SmallOptions::default()
    }
}

fn kind_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match path.extension() {
        Some(extension) => extension.to_string_lossy().into_owned(),
        None => name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-').to_owned(),
    }
}

struct World {
    disk: Arc<SimDisk>,
    contents: Contents,
    ends: BTreeMap<PathBuf, BTreeSet<u64>>,
    last: PathBuf,
    values: Vec<(Vec<u8>, Vec<u8>)>,
    units: BTreeMap<PathBuf, (Vec<u8>, Vec<Range<u64>>)>,
}

impl World {
    fn logs(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = self.disk.files().into_iter().filter(|(path, _)| kind_of(path) == "wal");
        files.map(|(path, _)| (path.clone(), self.disk.read_file(&path).expect("read"))).collect()
    }

    fn note(&mut self, before: &BTreeMap<PathBuf, Vec<u8>>) {
        for (path, now) in self.logs() {
            let old = before.get(&path).cloned().unwrap_or_else(|| vec![0; now.len()]);
            if old.get(..136) != now.get(..136) {
                self.ends.remove(&path);
            }
            let changed = (0..now.len()).rfind(|&at| old.get(at) != Some(&now[at]));
            if let Some(at) = changed.filter(|&at| at >= 136) {
                self.ends.entry(path.clone()).or_default().insert(at as u64 + 1);
                self.last = path;
            }
        }
    }

    fn in_units(&mut self) {
        let files = self.disk.files().into_iter().filter(|(path, _)| KINDS.contains(&kind_of(path).as_str()));
        let files: Vec<_> = files.collect();
        for (path, len) in files {
            let bytes = self.disk.read_file(&path).expect("read");
            let ranges = match kind_of(&path).as_str() {
                "CURRENT" => vec![0..80, 4096..4176],
                "blob" => self.blob_units(&bytes),
                "wal" if !self.is_needed(&path) => continue,
                "wal" => once(0..self.ends.get(&path).and_then(|ends| ends.last().copied()).unwrap_or(136)),
                _ => once(0..len),
            };
            self.units.insert(path, (bytes, ranges));
        }
    }

    fn is_needed(&self, path: &Path) -> bool {
        let copy = self.disk.fork();
        copy.lose(path).expect("the file is there");
        let answer = options().open(&copy, SEED + 1).and_then(|db| read_all(&db));
        answer.map_or(true, |found| found != self.contents)
    }

    fn blob_units(&self, bytes: &[u8]) -> Vec<Range<u64>> {
        let mut ranges = once(0..64);
        for (key, value) in &self.values {
            if let Some(at) = bytes.windows(value.len()).position(|part| part == value) {
                let head = 40 + 4 + key.len() + 12 + 8;
                ranges.push((at - head) as u64..(at + value.len()) as u64);
            }
        }
        ranges
    }
}

fn world(is_closed: bool) -> World {
    let disk = empty_disk(SEED);
    let mut world = World {
        disk: Arc::clone(&disk),
        contents: Contents::new(),
        ends: BTreeMap::new(),
        last: PathBuf::new(),
        values: Vec::new(),
        units: BTreeMap::new(),
    };
    let db = options().open(&disk, SEED).expect("open");
    let trees = open_trees(&db).expect("trees");
    let write = |world: &mut World, changes: Vec<Change>| {
        let before = world.logs();
        batch_of(&db, &trees, &changes).commit_with(Durability::Sync).expect("write");
        apply(&mut world.contents, &changes);
        world.note(&before);
        for change in changes {
            if let Change::Put(_, key, value) = change
                && value.len() >= 1000
            {
                world.values.push((key, value));
            }
        }
    };
    let key = |n: u64| format!("key{n:03}").into_bytes();
    write(&mut world, (0..200).map(|n| Change::Put(0, key(n), value(40, n))).collect());
    write(&mut world, (0..4).map(|n| Change::Put(1, key(n), value(1200, n))).collect());
    db.flush().expect("flush");
    write(&mut world, (10..60).map(|n| Change::Put(0, key(n), value(50, n + 1000))).collect());
    db.compact().expect("compact");
    for round in 0..5 {
        write(
            &mut world,
            (0..9).map(|n| Change::Put(1, key(100 + round + 10 * n), value(30, round * 100 + n))).collect(),
        );
        db.flush().expect("flush");
    }
    for n in 0..12 {
        write(&mut world, vec![Change::Put(0, key(300 + n), value(400, n + 5000)), Change::Delete(0, key(n))]);
    }
    write(&mut world, vec![Change::Put(1, key(500), value(1100, 500))]);
    write(&mut world, vec![Change::Put(0, key(501), value(60, 501))]);
    drop(trees);
    if is_closed {
        let before = world.logs();
        db.close().expect("close");
        world.note(&before);
    } else {
        world.disk = disk.fork();
        drop(db);
    }
    world.in_units();
    world
}

fn once(range: Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(range).collect()
}

struct Damage {
    text: String,
    path: PathBuf,
    bytes: Option<Vec<u8>>,
}

fn random_damage(world: &World, random: &mut Random) -> Option<Damage> {
    let kind = KINDS[random.index(KINDS.len())];
    let paths: Vec<&PathBuf> = world.units.keys().filter(|path| kind_of(path) == kind).collect();
    let path = if kind == "wal" && random.chance(1, 2) { &world.last } else { paths[random.index(paths.len())] };
    let (bytes, ranges) = &world.units[path];
    let range = &ranges[random.index(ranges.len())];
    let len = range.end - range.start;
    let near_end = if random.chance(1, 2) { len } else { len.min(150) };
    let at = (range.end - 1 - random.below(near_end)) as usize;
    let mut damaged = bytes.clone();
    let text = match random.below(20) {
        0 => return Some(Damage { text: format!("{} is gone", path.display()), path: path.clone(), bytes: None }),
        1..=3 => {
            damaged.truncate(at);
            format!("{} cut to {at} bytes", path.display())
        }
        4..=9 => {
            let longest = [8, 100, 600, 8192][random.index(4)];
            let end = (at + 1 + random.below(longest) as usize).min(bytes.len());
            damaged[at..end].fill(0);
            format!("{} zeros from {at} to {end}", path.display())
        }
        _ => {
            let bit = random.below(8);
            damaged[at] ^= 1 << bit;
            format!("{} bit {bit} of byte {at} flipped", path.display())
        }
    };
    Some(Damage { text, path: path.clone(), bytes: Some(damaged) })
}

/// The changed bytes in units; `None` if undetectable.
fn changed(world: &World, damage: &Damage) -> Option<Vec<u64>> {
    let (before, ranges) = &world.units[&damage.path];
    let Some(after) = &damage.bytes else { return Some(Vec::new()) };
    let all = ranges.iter().cloned().flatten();
    let mut changed: Vec<u64> = all.filter(|&at| after.get(at as usize) != Some(&before[at as usize])).collect();
    let first = *changed.first()?;
    if damage.path == world.last && after.len() == before.len() {
        let ends = &world.ends[&damage.path];
        let end = *ends.last().expect("a record");
        let is_zeroed = before[24] & 1 != 0;
        let zeros_from = |begin: &u64| after[*begin as usize..end as usize].iter().all(|byte| *byte == 0);
        let log_ends = ends.iter().copied().find(zeros_from).unwrap_or(end);
        changed.retain(|&at| at < log_ends);
        let last_begin = ends.iter().rev().nth(1).copied().unwrap_or(136);
        let is_in_last = first >= last_begin && damage.text.contains("zeros");
        if changed.is_empty() || (is_in_last && !is_zeroed) {
            return None;
        }
        if !is_zeroed && damage.text.contains("zeros") && !is_whole_record_behind(ends, log_ends, &changed) {
            let begin = ends.iter().copied().rfind(|&end| end <= first).unwrap_or(136);
            let end = ends.iter().copied().find(|&end| end > first).unwrap_or(end);
            if first < begin + HEADER_LEN_MAX {
                return None;
            }
            changed.retain(|&at| at < end);
        }
    }
    Some(changed)
}

/// Fixed part, five varints and a time.
const HEADER_LEN_MAX: u64 = 19 + 6 * 10;

fn is_whole_record_behind(ends: &BTreeSet<u64>, log_ends: u64, changed: &[u64]) -> bool {
    let Some(&first) = changed.first() else { return true };
    let behind: Vec<u64> = ends.iter().copied().filter(|&end| end > first && end <= log_ends).collect();
    behind.windows(2).any(|record| !changed.iter().any(|at| (record[0]..record[1]).contains(at)))
}

fn verify(disk: &Arc<SimDisk>) -> VerifyReport {
    options().builder(disk, SEED + 2).verify_path(PATH, &VerifyOptions::default()).expect("verify")
}

fn check(world: &World, damage: &Damage, changed: &[u64]) {
    let copy = world.disk.fork();
    match &damage.bytes {
        None => copy.lose(&damage.path).expect("the file is there"),
        Some(bytes) => {
            copy.truncate(&damage.path, bytes.len() as u64).expect("cut");
            copy.overwrite(&damage.path, 0, bytes).expect("write");
        }
    }
    let report = verify(&copy);
    assert!(!report.is_sound(), "the report calls the database sound");
    let here: Vec<_> = report.problems.iter().filter(|problem| problem.path == damage.path).collect();
    assert!(!here.is_empty(), "no problem names the file: {:#?}", report.problems);
    let places: BTreeSet<_> = report.problems.iter().map(|problem| (&problem.path, problem.offset)).collect();
    assert_eq!(places.len(), report.problems.len(), "a unit is listed twice: {:#?}", report.problems);
    if damage.bytes.is_none() {
        assert!(here.iter().any(|problem| problem.kind == ProblemKind::Missing), "{here:#?}");
        return;
    }
    let hides = |problem: &&&braiddb::verify::VerifyProblem| {
        let is_header = problem.offset < 136 && matches!(kind_of(&damage.path).as_str(), "wal" | "blob");
        problem.unchecked_bytes > 0 || is_header
    };
    if here.iter().any(|problem| hides(&problem)) {
        return;
    }
    let covers = |at: u64| here.iter().any(|p| (p.offset..p.offset + p.len.max(1)).contains(&at));
    let missed: Vec<u64> = changed.iter().copied().filter(|&at| !covers(at)).collect();
    assert!(
        missed.is_empty(),
        "of the damaged bytes, {:?} and others ({} in total) are in no reported unit: {here:#?}",
        missed.first(),
        missed.len()
    );
}

#[test]
fn verify_of_damaged_file_names_every_damaged_unit() {
    let mut random = Random::new(common::seed());
    let worlds = [world(false), world(true)];
    for world in &worlds {
        let report = verify(&world.disk);
        assert!(report.is_sound(), "{:#?}", report.problems);
        for kind in KINDS {
            assert!(world.units.keys().any(|path| kind_of(path) == kind), "no {kind} in use: {:?}", world.units.keys());
        }
    }
    let (mut cases, mut unnoticeable) = (Vec::new(), 0);
    while (cases.len() as u64) < volume(DAMAGES) {
        let world = &worlds[random.index(2)];
        let Some(damage) = random_damage(world, &mut random) else { continue };
        match changed(world, &damage) {
            Some(bytes) => cases.push((world, damage, bytes)),
            None => unnoticeable += 1,
        }
    }
    let (counts, failures) = (Mutex::new(BTreeMap::<String, u64>::new()), Mutex::new(Vec::new()));
    in_parallel(cases.len(), |index| {
        let (world, damage, changed) = &cases[index];
        *counts.lock().unwrap().entry(kind_of(&damage.path)).or_default() += 1;
        if let Err(text) = quietly(|| check(world, damage, changed)) {
            failures.lock().unwrap().push(format!("{}: {text}", damage.text));
        }
    });
    println!("{:?}; {unnoticeable} damaged nothing in use, or nothing that can be noticed", counts.lock().unwrap());
    let failures = failures.lock().unwrap();
    let shown: Vec<&String> = failures.iter().take(10).collect();
    assert!(failures.is_empty(), "{} of {} failed: {shown:#?}", failures.len(), cases.len());
}
