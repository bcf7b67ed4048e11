//! `explain` returns the result of a get, and lists the reads that the files counted.

use crate::{
    base::{FoundEntry, FoundKind, ReadSource, ReadStep, SkipReason, ViewName},
    codec::Compression,
    db::{
        Db, Durability, Explain, FoundPlace, Outcome, Settings, Tree, TreeOptions,
        tests_common::{Clock, DIR, SECOND_NS, fault, open, small},
    },
    platform::{Runtime, fault_vfs::FaultVfs},
};
use std::{path::Path, sync::Arc, time::Duration};

struct Rig {
    db: Db,
    tree: Tree,
    vfs: FaultVfs,
    clock: Arc<Clock>,
}

impl Rig {
    fn new(settings: impl FnOnce(Settings) -> Settings) -> Rig {
        let (vfs, clock) = (FaultVfs::new(Path::new(DIR)), Clock::new());
        let runtime = Arc::clone(&clock) as Arc<dyn Runtime>;
        // Files that are not mapped, so that each read of one is counted.
        let defaults = Settings { runtime, read_in_place: false, loose_runs: 100, ..small(&fault(&vfs)) };
        let db = open(settings(defaults)).unwrap();
        let tree = db.tree("t").unwrap();
        Rig { db, tree, vfs, clock }
    }

    fn fill(&self, keys: std::ops::Range<u32>) {
        keys.for_each(|key| _ = self.tree.put(key.to_be_bytes(), [7; 40]).unwrap());
    }

    /// Checks the result against a get, and that files were read where a step says so.
    fn explain(&self, key: &[u8]) -> Explain {
        let before = self.read();
        let explained = self.tree.explain(key).unwrap();
        let from_disk = |step: &ReadStep| {
            matches!(
                step,
                ReadStep::Block { source: ReadSource::Disk, .. } | ReadStep::Segment { source: ReadSource::Disk, .. }
            )
        };
        let disk = explained.steps.iter().filter(|step| from_disk(&step.step)).count();
        let others =
            explained.steps.iter().any(|step| matches!(step.step, ReadStep::Blob { .. } | ReadStep::Stream { .. }));
        if !others {
            assert_eq!(self.read() > before, disk > 0, "{explained}");
        }
        let value = self.tree.get(key).unwrap();
        match &explained.outcome {
            Outcome::Found { bytes, .. } => assert_eq!(value.map(|value| value.len() as u64), Some(*bytes)),
            _ => assert_eq!(value, None, "{explained}"),
        }
        explained
    }

    fn read(&self) -> u64 {
        self.vfs.bytes_read("run") + self.vfs.bytes_read("view") + self.vfs.bytes_read("blob")
    }
}

fn steps(explained: &Explain) -> Vec<&ReadStep> {
    explained.steps.iter().map(|step| &step.step).filter(|step| !matches!(step, ReadStep::FastPath { .. })).collect()
}

fn blocks(explained: &Explain) -> Vec<(u64, ReadSource)> {
    let block = |step: &&ReadStep| match step {
        ReadStep::Block { run, source, .. } => Some((*run, *source)),
        _ => None,
    };
    steps(explained).iter().filter_map(block).collect()
}

#[test]
fn value_in_memtable_is_found_there() {
    let rig = Rig::new(|s| s);
    rig.fill(0..20);
    let sequence = rig.tree.put(b"k", b"value").unwrap();
    let explained = rig.explain(b"k");
    let found = FoundEntry { kind: FoundKind::Value, sequence };
    let [ReadStep::Memtable { position: 0, is_excluded: false, found: Some(in_memtable), covered_by: None, .. }] =
        steps(&explained)[..]
    else {
        panic!("{explained}")
    };
    assert_eq!(*in_memtable, found);
    let outcome = Outcome::Found { sequence, bytes: 5, expires: None, place: FoundPlace::Memtable(0) };
    assert_eq!((explained.outcome, explained.sequence), (outcome, sequence));
}

#[test]
fn blocks_are_read_from_disk_once_and_cached_then() {
    let rig = Rig::new(|s| s);
    rig.fill(0..2_000);
    rig.db.compact().unwrap();
    let reopened = {
        let Rig { db, tree, vfs, clock } = rig;
        drop(tree);
        db.close().unwrap();
        let runtime = Arc::clone(&clock) as Arc<dyn Runtime>;
        let db = open(Settings { runtime, read_in_place: false, hash_index_after: u64::MAX, ..small(&fault(&vfs)) })
            .unwrap();
        let tree = db.tree("t").unwrap();
        Rig { db, tree, vfs, clock }
    };
    let key = 1_234u32.to_be_bytes();
    let cold = reopened.explain(&key);
    let [(run, ReadSource::Disk)] = blocks(&cold)[..] else { panic!("{cold}") };
    assert!(
        matches!(cold.outcome, Outcome::Found { bytes: 40, place: FoundPlace::Run(of), .. } if of == run),
        "{cold}"
    );
    assert!(
        steps(&cold).iter().any(|step| matches!(step, ReadStep::Segment { source: ReadSource::Disk, .. })),
        "{cold}"
    );
    let warm = reopened.explain(&key);
    assert_eq!(blocks(&warm), [(run, ReadSource::Cache)], "{warm}");
    assert!(
        steps(&warm).iter().any(|step| matches!(step, ReadStep::Segment { source: ReadSource::Cache, .. })),
        "{warm}"
    );
}

#[test]
fn unindexed_runs_are_searched_or_excluded_newest_first() {
    let rig = Rig::new(|s| s);
    for run in 0..3u32 {
        // The first and last key of each run are the same.
        rig.tree.put(b"a", run.to_be_bytes()).unwrap();
        rig.tree.put([b'm', run as u8], b"own").unwrap();
        rig.tree.put(b"z", run.to_be_bytes()).unwrap();
        rig.db.flush().unwrap();
    }
    let runs: Vec<u64> = rig.db.stats().partitions[0].loose.iter().rev().map(|run| run.number).collect();
    let oldest = rig.explain(&[b'm', 0]);
    let skipped = |run| ReadStep::RunSkipped { run, reason: SkipReason::Filter };
    let found = steps(&oldest);
    assert!(
        matches!(found[0], ReadStep::Memtable { .. }) || matches!(found[0], ReadStep::Partition { .. }),
        "{oldest}"
    );
    assert!(found.contains(&&skipped(runs[0])) && found.contains(&&skipped(runs[1])), "{oldest}");
    assert!(matches!(oldest.outcome, Outcome::Found { place: FoundPlace::Run(of), .. } if of == runs[2]), "{oldest}");
    let newest = rig.explain(b"a");
    let older = |run| ReadStep::RunSkipped { run, reason: SkipReason::Older };
    assert!(steps(&newest).contains(&&older(runs[1])) && steps(&newest).contains(&&older(runs[2])), "{newest}");
    assert!(matches!(newest.outcome, Outcome::Found { place: FoundPlace::Run(of), .. } if of == runs[0]), "{newest}");
    let outside = rig.explain(b"zz");
    assert_eq!(outside.outcome, Outcome::Absent);
    assert_eq!(blocks(&outside), [], "{outside}");
}

#[test]
fn hash_index_is_named_once_there_is_one() {
    let rig = Rig::new(|s| s);
    rig.fill(0..2_000);
    rig.db.compact().unwrap();
    (0..2_000u32).for_each(|key| assert!(rig.tree.get(key.to_be_bytes()).unwrap().is_some()));
    rig.db.flush().unwrap();
    assert!(rig.db.stats().hash_indexes > 0);
    let explained = rig.explain(&7u32.to_be_bytes());
    let is_index = |step: &&ReadStep| {
        matches!(step, ReadStep::HashIndex { view: ViewName::OfRun(_) | ViewName::File(_), candidates: 1.., .. })
    };
    assert!(steps(&explained).iter().any(is_index), "{explained}");
    assert!(!steps(&explained).iter().any(|step| matches!(step, ReadStep::Segment { .. })), "{explained}");
}

#[test]
fn deletions_are_told_from_absence() {
    for is_flushed in [false, true] {
        let rig = Rig::new(|s| s);
        rig.fill(0..100);
        rig.db.flush().unwrap();
        let one = rig.tree.delete(5u32.to_be_bytes()).unwrap();
        let many = rig.tree.delete_range(50u32.to_be_bytes()..60u32.to_be_bytes()).unwrap();
        if is_flushed {
            rig.db.flush().unwrap();
        }
        assert_eq!(rig.explain(&5u32.to_be_bytes()).outcome, Outcome::Deleted { sequence: one, is_range: false });
        assert_eq!(rig.explain(&55u32.to_be_bytes()).outcome, Outcome::Deleted { sequence: many, is_range: true });
        assert_eq!(rig.explain(&500u32.to_be_bytes()).outcome, Outcome::Absent);
        assert!(matches!(rig.explain(&60u32.to_be_bytes()).outcome, Outcome::Found { .. }));
    }
}

#[test]
fn expired_value_is_reported_with_its_place() {
    let rig = Rig::new(|s| s);
    let sequence = rig.tree.put_with_ttl(b"k", b"value", Duration::from_secs(10)).unwrap();
    let Outcome::Found { expires: Some(expires), .. } = rig.explain(b"k").outcome else { panic!() };
    rig.clock.advance(11 * SECOND_NS);
    let expired = rig.explain(b"k");
    assert_eq!(expired.outcome, Outcome::Expired { sequence, expires, place: FoundPlace::Memtable(0) }, "{expired}");
}

#[test]
fn blobs_streams_and_operands_have_steps() {
    let rig = Rig::new(|s| s);
    rig.tree.put(b"blob", [7; 5_000]).unwrap();
    rig.tree.put_stream(b"stream", &mut &[7; 9_000][..]).unwrap();
    let add = rig.db.merge_function("add").unwrap();
    for step in 1..=2i64 {
        rig.tree.merge(b"sum", &add, step.to_le_bytes()).unwrap();
        rig.db.flush().unwrap();
    }
    let last = |key: &[u8]| rig.explain(key).steps.pop().unwrap().step;
    assert!(matches!(last(b"blob"), ReadStep::Blob { bytes: 5_000, file: 1.., .. }));
    assert!(matches!(last(b"stream"), ReadStep::Stream { bytes: 9_000, pieces: 1.. }));
    assert_eq!(last(b"sum"), ReadStep::Merged { bytes: 8 });
}

#[test]
fn snapshot_explains_the_version_it_sees() {
    let rig = Rig::new(|s| s);
    let old = rig.tree.put(b"k", b"old").unwrap();
    let snapshot = rig.db.snapshot();
    rig.tree.put(b"k", b"newer").unwrap();
    rig.db.compact().unwrap();
    let explained = snapshot.explain(&rig.tree, b"k").unwrap();
    assert!(matches!(explained.outcome, Outcome::Found { sequence, bytes: 3, .. } if sequence == old), "{explained}");
    assert!(matches!(rig.explain(b"k").outcome, Outcome::Found { bytes: 5, .. }));
    assert!(!explained.steps.iter().any(|step| matches!(step.step, ReadStep::FastPath { .. })), "{explained}");
}

#[test]
fn fast_path_is_reported_as_it_answers() {
    let (vfs, clock) = (crate::db::tests_common::mapped(), Clock::new());
    let runtime = Arc::clone(&clock) as Arc<dyn Runtime>;
    let settings =
        Settings { runtime, compression: Compression::None, durability: Durability::Buffered, ..small(&vfs) };
    let db = open(settings).unwrap();
    let tree = db.tree_with("t", TreeOptions::new()).unwrap();
    (0..2_000u32).for_each(|key| _ = tree.put(key.to_be_bytes(), [7; 40]).unwrap());
    db.compact().unwrap();
    (0..2_000u32).for_each(|key| assert!(tree.get(key.to_be_bytes()).unwrap().is_some()));
    db.flush().unwrap();
    assert!(tree.get(7u32.to_be_bytes()).unwrap().is_some());
    let explained = tree.explain(7u32.to_be_bytes()).unwrap();
    assert_eq!(explained.steps[0].step, ReadStep::FastPath { is_answered: true }, "{explained}");
    assert_eq!(blocks(&explained).first().map(|(_, source)| *source), Some(ReadSource::Mapped), "{explained}");
    // A check of the block is due again.
    clock.advance(100 * SECOND_NS);
    let due = tree.explain(7u32.to_be_bytes()).unwrap();
    assert_eq!(due.steps[0].step, ReadStep::FastPath { is_answered: false }, "{due}");
    assert_eq!(blocks(&due).first().map(|(_, source)| *source), Some(ReadSource::MappedUnchecked), "{due}");
}

#[test]
fn text_has_a_line_for_each_step_and_the_result() {
    let rig = Rig::new(|s| s);
    let sequence = rig.tree.put(b"k", b"value").unwrap();
    let text = rig.explain(b"k").to_string();
    let lines: Vec<_> = text.lines().map(|line| line.trim_start().split_once("  ").unwrap().1).collect();
    let wanted = [
        "fast path: no answer".to_owned(),
        format!("active memtable, 3 entries: value of commit {sequence}"),
        format!("found: 5 bytes of commit {sequence}, in the active memtable"),
    ];
    assert_eq!(lines, wanted, "{text}");
}
