//! Registered tasks against a model that compares each key with each task.

use super::*;
use crate::commit::RawBatch;

struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    fn key(&mut self) -> Vec<u8> {
        let len = self.below(4);
        let tree = TreeId(1 + self.below(2) as u32);
        let user_key: Vec<u8> = (0..len).map(|_| self.below(3) as u8).collect();
        [&tree.first_key()[..], &user_key].concat()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    Nowhere,
    Commits,
    Sync,
}

fn prepared(writes: &[(EntryKind, Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut batch = RawBatch::default();
    writes.iter().for_each(|(kind, key, value)| batch.push(*kind, &[key], value));
    batch.prepare().unwrap().bytes().to_vec()
}

/// True if the write may change a key that the task watches.
fn is_watched(prefix: &[u8], (kind, key, end): &(EntryKind, Vec<u8>, Vec<u8>)) -> bool {
    match kind {
        EntryKind::RangeDelete => key.starts_with(prefix) || (key.as_slice() <= prefix && prefix < end.as_slice()),
        _ => key.starts_with(prefix),
    }
}

#[test]
fn calls_wake_the_tasks_of_a_model() {
    let mut random = Random(3);
    let (watches, waiting) = (TaskWatches::default(), AtomicUsize::new(0));
    let mut prefixes: Vec<Vec<u8>> = (0..60).map(|_| random.key()).collect();
    prefixes.extend([vec![], vec![], TreeId(1).first_key().to_vec()]);
    let tasks: Vec<_> = prefixes.iter().map(|prefix| Arc::new(WatchTask::new(prefix.clone()))).collect();
    let mut model = vec![Waits::Nowhere; tasks.len()];
    for _ in 0..4000 {
        let at = random.below(tasks.len());
        let is_woken: Vec<bool> = match random.below(30) {
            0..20 => {
                let awaits_sync = random.below(4) == 0;
                watches.add(&tasks[at], awaits_sync, &waiting);
                model[at] = if awaits_sync { Waits::Sync } else { Waits::Commits };
                vec![false; tasks.len()]
            }
            20 | 21 => {
                watches.remove(&tasks[at], &waiting);
                model[at] = Waits::Nowhere;
                vec![false; tasks.len()]
            }
            22 => {
                watches.call_task(&tasks[at], &waiting);
                (0..tasks.len()).map(|other| other == at && model[at] != Waits::Nowhere).collect()
            }
            23 => {
                watches.call_synced(&waiting);
                model.iter().map(|waits| *waits == Waits::Sync).collect()
            }
            24 if random.below(20) == 0 => {
                watches.call(&waiting);
                model.iter().map(|waits| *waits != Waits::Nowhere).collect()
            }
            _ => {
                let write = match random.below(5) {
                    0 => {
                        let (a, b) = (random.key(), random.key());
                        (EntryKind::RangeDelete, a.clone().min(b.clone()), a.max(b))
                    }
                    _ => (EntryKind::Value, random.key(), vec![]),
                };
                watches.call_for([prepared(std::slice::from_ref(&write)).as_slice()].into_iter(), &waiting);
                let is_woken =
                    |(prefix, waits): (&Vec<u8>, &Waits)| *waits == Waits::Commits && is_watched(prefix, &write);
                prefixes.iter().zip(&model).map(is_woken).collect()
            }
        };
        let woken = watches.take_due(0, &waiting).woken;
        for (at, (task, is_woken)) in tasks.iter().zip(is_woken).enumerate() {
            let times = woken.iter().filter(|woken| Arc::ptr_eq(woken, task)).count();
            assert_eq!(times, usize::from(is_woken), "{:?} {:?}", prefixes[at], model[at]);
            if is_woken {
                model[at] = Waits::Nowhere;
            }
        }
        assert_eq!(waiting.load(Ordering::SeqCst), model.iter().filter(|waits| **waits != Waits::Nowhere).count());
    }
    tasks.iter().for_each(|task| watches.remove(task, &waiting));
    let state = watches.state.lock();
    assert!(state.by_prefix.is_empty() && state.lengths.is_empty() && state.unsynced.is_empty());
}

#[test]
fn commit_to_the_catalog_wakes_all_that_wait_for_commits() {
    let (watches, waiting) = (TaskWatches::default(), AtomicUsize::new(0));
    let task = Arc::new(WatchTask::new(TreeId(5).first_key().to_vec()));
    watches.add(&task, false, &waiting);
    let batch = prepared(&[(EntryKind::Value, [&TreeId::CATALOG.first_key()[..], b"nt"].concat(), vec![])]);
    watches.call_for([batch.as_slice()].into_iter(), &waiting);
    assert_eq!(watches.take_due(0, &waiting).woken.len(), 1);
}

/// A task that missed its turn is woken at the time; others are not.
#[test]
fn recheck_wakes_only_unsure_tasks() {
    let (watches, waiting) = (TaskWatches::default(), AtomicUsize::new(0));
    let tasks = [0, 1, 2].map(|_| Arc::new(WatchTask::new(Vec::new())));
    tasks.iter().for_each(|task| watches.add(task, false, &waiting));
    watches.recheck_at(&tasks[1], 50);
    watches.recheck_at(&tasks[2], 60);
    watches.remove(&tasks[2], &waiting);
    assert!(watches.take_due(49, &waiting).woken.is_empty());
    let due = watches.take_due(50, &waiting);
    assert!(due.woken.len() == 1 && Arc::ptr_eq(&due.woken[0], &tasks[1]));
    assert_eq!(waiting.load(Ordering::SeqCst), 1);
}

/// A task that no commit woke would fall behind until its log is gone.
#[test]
fn a_megabyte_of_commits_wakes_all() {
    let (watches, waiting) = (TaskWatches::default(), AtomicUsize::new(0));
    let task = Arc::new(WatchTask::new(TreeId(5).first_key().to_vec()));
    watches.add(&task, false, &waiting);
    let batch = prepared(&[(EntryKind::Value, TreeId(6).first_key().to_vec(), vec![0; 120])]);
    let mut bytes = batch.len();
    while bytes < LAG_BYTES_MAX {
        watches.call_for([batch.as_slice()].into_iter(), &waiting);
        assert!(watches.take_due(0, &waiting).woken.is_empty());
        bytes += batch.len();
    }
    watches.call_for([batch.as_slice()].into_iter(), &waiting);
    assert_eq!(watches.take_due(0, &waiting).woken.len(), 1);
}
