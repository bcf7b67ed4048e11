//! Damages databases with every feature at random, salvages them, and compares with a model.
//!
//! The place of each record is found in the intact files, independently of salvage. Every record
//! whose parts are intact must come out or be listed as withheld. No other record may come out,
//! unless the report lists lost commits or deletes: then the database must have held it at some
//! time.
//!
//! `BRAIDDB_VOLUME` scales the number of databases.

use super::{
    damage::{Files, WAYS, Way, damage},
    sample::{self, DIR, Random, Sample, State, name_of},
    units::{self, Units},
};
use crate::{
    base::{Result, SequenceNumber},
    db::{Db, Settings},
    platform::fault_vfs::FaultVfs,
    salvage::{Loss, LossKind, ManifestCondition, SalvageOptions, SalvageReport, salvage},
};
use std::{collections::BTreeMap, path::Path};

const TO: &str = "/new";

const DATABASES: u64 = 27;

fn volume() -> f64 {
    std::env::var("BRAIDDB_VOLUME").ok().and_then(|volume| volume.parse().ok()).unwrap_or(1.0)
}

#[derive(Debug, Default)]
struct Totals {
    databases: u64,
    whole: u64,
    records: u64,
    required: u64,
    withheld: u64,
    lost: u64,
    old: u64,
}

#[test]
fn salvage_of_random_damage_returns_intact_records_and_no_others() {
    let mut totals: BTreeMap<Way, Totals> = BTreeMap::new();
    let count = (DATABASES as f64 * volume()).ceil() as u64;
    let only = std::env::var("BRAIDDB_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in only.map_or(0..count, |seed: u64| seed..seed + 1) {
        let way = WAYS[(seed % WAYS.len() as u64) as usize];
        let rounds = 3 + seed % 7;
        let (sample, other) = (sample::make(seed, rounds), sample::make(seed + 1_000_000, 4));
        let mut random = Random(seed ^ 0xda6a);
        let mut files = sample.files.clone();
        let done = damage(&mut files, &other.files, way, &mut random);
        let what = format!("seed {seed}, {way:?}: {done}");
        let totals = totals.entry(way).or_default();
        totals.databases += 1;
        check(&sample, &files, seed, &what, totals);
    }
    for (way, totals) in &totals {
        eprintln!("{way:?}: {totals:?}");
    }
}

fn contents(db: &Db, report: &SalvageReport) -> Result<BTreeMap<Vec<u8>, State>> {
    let mut all = BTreeMap::new();
    for tree in &report.trees {
        let internal = |key: &[u8]| [&tree.id.to_be_bytes()[..], key].concat();
        if db.tree(&tree.name).is_err() {
            for pair in db.open_multi_tree(&tree.name)?.iter() {
                let (key, value) = pair?;
                let at = key.len() - 2;
                let pair = [&key[..at], &[0, 0xff, 7, 0, 1], &value].concat();
                all.insert(internal(&pair), Some((Vec::new(), None)));
            }
            continue;
        }
        let of = db.open_tree(&tree.name)?;
        for pair in of.iter() {
            let (key, _) = pair?;
            let found = of.get_with_expiry(&key)?;
            all.insert(internal(&key), found.map(|(value, expires)| (value.to_vec(), expires)));
        }
    }
    Ok(all)
}

fn check(sample: &Sample, files: &Files, seed: u64, what: &str, totals: &mut Totals) {
    let units = units::find(sample);
    let vfs = FaultVfs::of_files(Path::new(DIR), files);
    let settings = sample::settings(&vfs, seed);
    let salvaged = salvage(settings.clone(), Path::new(DIR), Path::new(TO), SalvageOptions::default());
    let of_source = |files: Files| files.into_iter().filter(|(path, _)| path.starts_with(DIR)).collect::<Files>();
    assert!(of_source(vfs.files()) == *files, "{what}: the source was written to");
    let report = match salvaged {
        Ok(report) => report,
        Err(error) => panic!("{what}: {error}"),
    };
    let db = Db::open_with(Settings { create: false, ..settings }, Path::new(TO)).unwrap();
    let verified = db.verify().unwrap();
    assert!(verified.problems.is_empty(), "{what}: {:?}", verified.problems);
    let found = contents(&db, &report).unwrap();
    db.close().unwrap();
    totals.records += found.len() as u64;
    totals.whole += u64::from(report.is_complete());
    let case = Case { sample, files, units: &units, report: &report, what };
    // Without a manifest the files of two databases cannot be distinguished.
    if report.manifest != ManifestCondition::Whole && what.contains("another database") {
        assert!(!report.is_complete(), "{what}");
        return;
    }
    case.check_found(&found, totals);
    case.check_missing(&found, totals);
}

struct Case<'a> {
    sample: &'a Sample,
    files: &'a Files,
    units: &'a Units,
    report: &'a SalvageReport,
    what: &'a str,
}

impl Case<'_> {
    fn is_in(loss: &Loss, key: &[u8]) -> bool {
        let internal = |key: &crate::salvage::LostKey| [&key.tree.to_be_bytes()[..], &key.key].concat();
        loss.from.as_ref().is_none_or(|from| internal(from).as_slice() <= key)
            && loss.to.as_ref().is_none_or(|to| key <= internal(to).as_slice())
    }

    fn losses(&self, kind: LossKind) -> impl Iterator<Item = &Loss> {
        self.report.losses.iter().filter(move |loss| loss.kind == kind)
    }

    fn is_gone(&self, sequence: SequenceNumber) -> bool {
        self.losses(LossKind::Commits)
            .any(|loss| loss.commits.is_none_or(|(first, last)| (first..=last).contains(&sequence)))
    }

    fn check_found(&self, found: &BTreeMap<Vec<u8>, State>, totals: &mut Totals) {
        for (key, state) in found {
            let shown = key.escape_ascii();
            let what = self.what;
            let history = self
                .sample
                .history
                .get(key)
                .unwrap_or_else(|| panic!("{what}: {shown} was never there\n{:#?}", self.report.losses));
            let (_, last) = history.last().unwrap();
            if state == last {
                continue;
            }
            assert!(history.iter().any(|(_, old)| old == state), "{what}: {shown} never was {state:?}");
            totals.old += 1;
            let is_explained = self.report.manifest != ManifestCondition::Whole
                || history.iter().any(|(sequence, _)| self.is_gone(*sequence));
            assert!(
                is_explained,
                "{what}: {shown} is not as it was last: {state:?}\nhistory {:?}\nunits {:?}\n{:#?}",
                history.iter().map(|(sequence, state)| (sequence, state.is_some())).collect::<Vec<_>>(),
                self.units.get(key),
                self.report
            );
        }
    }

    fn check_missing(&self, found: &BTreeMap<Vec<u8>, State>, totals: &mut Totals) {
        for (key, history) in &self.sample.history {
            let (_, last) = history.last().unwrap();
            if last.is_none() {
                continue;
            }
            let versions =
                self.units.get(key).unwrap_or_else(|| panic!("{}: {} is nowhere", self.what, key.escape_ascii()));
            // The result of operands depends on all versions.
            let is_of_operands = key.starts_with(&4_u32.to_be_bytes());
            let mut of = versions.iter().rev().take(if is_of_operands { usize::MAX } else { 1 });
            let is_intact =
                of.all(|(_, units)| units.iter().all(|unit| unit.is_intact(&self.sample.files, self.files)));
            if !is_intact {
                totals.lost += 1;
                continue;
            }
            totals.required += 1;
            if found.get(key).is_some_and(|state| state == last) {
                continue;
            }
            let is_withheld = self.losses(LossKind::Withheld).any(|loss| Self::is_in(loss, key));
            totals.withheld += 1;
            assert!(
                is_withheld && !found.contains_key(key),
                "{}: {} is intact and does not come out: {versions:?}\n{:?}\n{:#?}",
                self.what,
                key.escape_ascii(),
                found.get(key),
                self.report
            );
        }
    }
}

#[test]
fn salvage_of_intact_database_returns_everything() {
    for seed in 500..506 {
        let sample = sample::make(seed, 6);
        let mut totals = Totals::default();
        check(&sample, &sample.files, seed, &format!("seed {seed}"), &mut totals);
        assert_eq!((totals.whole, totals.lost, totals.withheld, totals.old), (1, 0, 0, 0), "seed {seed}");
        assert!(totals.required > 0 && name_of(1) == "tree 1");
    }
}
