//! A store that lies is detected, each lie by each workload that can notice it; an honest store is
//! not accused.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Result;

use crate::{
    bench::{
        distribution::{Chooser, Distribution, Share},
        expect::settle,
        ledger::Ledger,
        rows::{KeyOrder, Keys, ValueSize, Values},
        runner::{Run, Thread, run},
        store::{Bounds, Store},
        worker::{Action, Task},
        ycsb::{Inserts, Mix},
    },
    random::Random,
};

const ROWS: u64 = 1000;
const KEYS: Keys = Keys { order: KeyOrder::Numbers, size: 16 };

#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    None,
    LosesRow,
    OtherValue,
    FindsAll,
    SkipsRow,
    SwapsRows,
    EndsEarly,
    BeginsEarly,
}

const VICTIM: u64 = 500;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone)]
struct Liar {
    lie: Lie,
    map: Arc<Mutex<Map>>,
    changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    scan: Vec<(Vec<u8>, Vec<u8>)>,
}

fn key_of(row: u64) -> Vec<u8> {
    let mut key = KEYS.buffer();
    KEYS.write(row, &mut key);
    key
}

impl Liar {
    fn set_scan(&mut self, range: (Bound<Vec<u8>>, Bound<Vec<u8>>), reverse: bool) {
        let map = self.map.lock().unwrap();
        let mut scan: Vec<_> = map.range::<Vec<u8>, _>(range.clone()).map(|(k, v)| (k.clone(), v.clone())).collect();
        let place = scan.iter().position(|(key, _)| *key == key_of(VICTIM));
        match (self.lie, place) {
            (Lie::SkipsRow, Some(place)) => drop(scan.remove(place)),
            (Lie::SwapsRows, Some(place)) if place + 1 < scan.len() => scan.swap(place, place + 1),
            (Lie::EndsEarly, Some(place)) if !reverse => scan.truncate(place),
            (Lie::EndsEarly, Some(place)) => drop(scan.drain(..place)),
            (Lie::OtherValue, Some(place)) => scan[place].1 = map[&key_of(VICTIM + 1)].clone(),
            (Lie::BeginsEarly, _) => {
                if let Bound::Included(from) = range.0
                    && let Some((key, value)) = map.range(..from).next_back()
                {
                    scan.insert(0, (key.clone(), value.clone()));
                }
            }
            _ => {}
        }
        if !reverse {
            scan.reverse();
        }
        self.scan = scan;
    }
}

impl Store for Liar {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.changes.push((key.to_vec(), Some(value.to_vec())));
    }

    fn delete(&mut self, key: &[u8]) {
        self.changes.push((key.to_vec(), None));
    }

    fn commit(&mut self) -> Result<()> {
        let mut map = self.map.lock().unwrap();
        for (key, value) in self.changes.drain(..) {
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8], mut see: impl FnMut(&[u8])) -> Result<()> {
        let map = self.map.lock().unwrap();
        let is_victim = key == key_of(VICTIM);
        match (self.lie, map.get(key)) {
            (Lie::LosesRow, Some(_)) if is_victim => {}
            (Lie::OtherValue, Some(_)) if is_victim => see(&map[&key_of(VICTIM + 1)]),
            (Lie::FindsAll, None) => see(b""),
            (_, Some(value)) => see(value),
            (_, None) => {}
        }
        Ok(())
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], mut see: impl FnMut(usize, &[u8])) -> Result<()> {
        keys.iter().enumerate().try_for_each(|(place, key)| self.get(key, |value| see(place, value)))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.set_scan((Bound::Included(key.to_vec()), Bound::Unbounded), false);
        Ok(())
    }

    fn seek_prefix(&mut self, prefix: &[u8]) -> Result<()> {
        let mut end = prefix.to_vec();
        end.resize(KEYS.size, u8::MAX);
        self.set_scan((Bound::Included(prefix.to_vec()), Bound::Included(end)), false);
        Ok(())
    }

    fn seek_part(&mut self, part: &Bounds, reverse: bool) -> Result<()> {
        let from = part.from.clone().map_or(Bound::Unbounded, Bound::Included);
        let to = part.to.clone().map_or(Bound::Unbounded, Bound::Excluded);
        self.set_scan((from, to), reverse);
        Ok(())
    }

    fn next(&mut self, mut see: impl FnMut(&[u8], &[u8])) -> Result<bool> {
        let row = self.scan.pop();
        row.iter().for_each(|(key, value)| see(key, value));
        Ok(row.is_some())
    }
}

/// Runs an action on rows of which every third is missing. Returns whether a problem was detected.
fn is_found_out(action: Action, lie: Lie, threads: u64) -> bool {
    let values = Values::new(ValueSize { min: 10, max: 50 }, 0.5);
    let (mut ledger, mut map) = (Ledger::default(), Map::new());
    for row in (0..ROWS).filter(|row| row % 3 != 1) {
        let mut value = Vec::new();
        values.write(row, 0, &mut value);
        map.insert(key_of(row), value);
        ledger.insert(row);
    }
    let task = Task { action, batch: 7, keys: KEYS, values, inserts: Inserts::new(ROWS) };
    let is_pass = matches!(action, Action::Pass { .. });
    // Scans of this store copy all rows.
    let operations = if action.is_point_read() || action.is_blind() { 5000 } else { 300 };
    let team: Vec<Thread<'_>> = (0..threads)
        .map(|thread| {
            let share = Share { thread, threads };
            let part = share.of(ROWS);
            let random = Random::of(1, thread);
            let end = if thread + 1 == threads { u64::MAX } else { part.end };
            let chooser = match is_pass {
                true => Chooser::once(part.start..end),
                false => Chooser::at_random(Distribution::Uniform, ROWS, random.clone(), share),
            };
            let operations = if is_pass { u64::MAX } else { operations };
            Thread { task: &task, chooser, random, operations, rate: None, is_background: false }
        })
        .collect();
    let liar = Liar { lie, map: Arc::new(Mutex::new(map)), changes: Vec::new(), scan: Vec::new() };
    let map = Arc::clone(&liar.map);
    let stores = vec![liar; threads as usize];
    let how = Run { duration: None, latencies: true, progress_every: Duration::from_secs(60) };
    let outcome = run(&team, stores, how, &mut |_, _| {}).unwrap();
    let expected = settle(&mut ledger, &team, &outcome.done);
    let kept: Vec<Vec<u8>> = ledger.from(0).map(key_of).collect();
    assert!(map.lock().unwrap().keys().eq(&kept), "{action:?}: the ledger says otherwise than the store");
    let tally = &outcome.front.tally;
    expected.complaint(tally).is_some() || tally.wrong > 0
}

const POINTS: [Action; 3] = [Action::Get, Action::MultiGet, Action::Update];
const SCANS: [Action; 4] = [
    Action::Seek { nexts: 20 },
    Action::Prefix { bytes: 7 },
    Action::Pass { reverse: false },
    Action::Pass { reverse: true },
];

#[test]
fn honest_store_has_no_complaint() {
    let rest =
        [Action::Put, Action::Delete, Action::GetMissing, Action::Seek { nexts: 0 }, Action::Prefix { bytes: 8 }];
    for action in POINTS.into_iter().chain(SCANS).chain(rest) {
        for threads in [1, 3] {
            assert!(!is_found_out(action, Lie::None, threads), "{action:?}");
        }
    }
}

#[test]
fn lying_store_is_detected() {
    let lies_of_points = [Lie::LosesRow, Lie::OtherValue, Lie::FindsAll].map(|lie| (lie, &POINTS[..2]));
    let lies_of_scans = [Lie::SkipsRow, Lie::SwapsRows, Lie::EndsEarly, Lie::OtherValue].map(|lie| (lie, &SCANS[..]));
    let others = [
        // Whether an updated row already exists depends on timing, so only its value can be
        // checked.
        (Lie::OtherValue, &[Action::Update][..]),
        (Lie::FindsAll, &[Action::GetMissing]),
        (Lie::BeginsEarly, &SCANS[..1]),
    ];
    for (lie, actions) in lies_of_points.into_iter().chain(lies_of_scans).chain(others) {
        for action in actions {
            for threads in [1, 3] {
                assert!(is_found_out(*action, lie, threads), "{lie:?} in {action:?}, {threads} threads");
            }
        }
    }
}

/// YCSB reads only keys that exist, so a lost row shows as a miss. Values are not compared: the
/// order of requests cannot be repeated.
#[test]
fn ycsb_on_store_with_lost_row_reports_misses() {
    for (lie, missed) in [(Lie::None, false), (Lie::LosesRow, true)] {
        let values = Values::new(ValueSize::fixed(20), 0.5);
        let mut map = Map::new();
        for row in 0..ROWS {
            let mut value = Vec::new();
            values.write(row, 0, &mut value);
            map.insert(key_of(row), value);
        }
        for mix in [Mix::A, Mix::B, Mix::C, Mix::D, Mix::F] {
            let task = Task {
                action: Action::Mixed(mix),
                batch: 1,
                keys: KEYS,
                values: Values::new(ValueSize::fixed(20), 0.5),
                inserts: Inserts::new(ROWS),
            };
            let thread = |number| Thread {
                task: &task,
                chooser: Chooser::at_random(
                    Distribution::Uniform,
                    ROWS,
                    Random::of(1, number),
                    Share { thread: 0, threads: 1 },
                ),
                random: Random::of(2, number),
                operations: 10_000,
                rate: None,
                is_background: false,
            };
            let liar = Liar { lie, map: Arc::new(Mutex::new(map.clone())), changes: Vec::new(), scan: Vec::new() };
            let how = Run { duration: None, latencies: false, progress_every: Duration::from_secs(60) };
            let outcome = run(&[thread(1), thread(2)], vec![liar; 2], how, &mut |_, _| {}).unwrap();
            assert_eq!((outcome.front.tally.missed > 0, outcome.front.tally.wrong), (missed, 0), "{mix:?}");
        }
    }
}

#[test]
fn error_in_one_thread_ends_all_threads() {
    struct Broken;
    impl Store for Broken {
        fn put(&mut self, _: &[u8], _: &[u8]) {}
        fn delete(&mut self, _: &[u8]) {}
        fn commit(&mut self) -> Result<()> {
            anyhow::bail!("broken")
        }
        fn get(&mut self, _: &[u8], _: impl FnMut(&[u8])) -> Result<()> {
            Ok(())
        }
        fn multi_get(&mut self, _: &[Vec<u8>], _: impl FnMut(usize, &[u8])) -> Result<()> {
            Ok(())
        }
        fn seek(&mut self, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn seek_prefix(&mut self, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn seek_part(&mut self, _: &Bounds, _: bool) -> Result<()> {
            Ok(())
        }
        fn next(&mut self, _: impl FnMut(&[u8], &[u8])) -> Result<bool> {
            Ok(false)
        }
    }
    let task = |action| Task {
        action,
        batch: 1,
        keys: KEYS,
        values: Values::new(ValueSize::fixed(20), 0.5),
        inserts: Inserts::new(0),
    };
    let (get, put) = (task(Action::Get), task(Action::Put));
    let thread = |task| Thread {
        task,
        chooser: Chooser::at_random(Distribution::Uniform, ROWS, Random::of(1, 1), Share { thread: 0, threads: 1 }),
        random: Random::of(1, 1),
        operations: u64::MAX,
        rate: None,
        is_background: false,
    };
    let how = Run { duration: None, latencies: false, progress_every: Duration::from_secs(60) };
    let error = run(&[thread(&get), thread(&put)], vec![Broken, Broken], how, &mut |_, _| {}).unwrap_err();
    assert_eq!(error.to_string(), "broken");
}
