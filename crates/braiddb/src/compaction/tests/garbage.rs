use super::plan::{runs, shape};
use crate::compaction::*;

#[test]
fn deadest_above_limit_returns_partition_with_most_garbage() {
    let partition = |entries, dead, held| PartitionShape {
        counts: Some(ViewShape { entries, dead }),
        dead_held: held,
        ..shape(&[entries], &[])
    };
    let choose = |shapes: &[PartitionShape]| deadest(shapes.iter(), 10);
    assert_eq!(choose(&[]), None);
    assert_eq!(choose(&[partition(100, 20, 0), partition(100, 30, 0)]), Some(1));
    assert_eq!(choose(&[partition(400, 80, 0), partition(100, 20, 0)]), Some(1), "the smaller of two alike");
    assert_eq!(choose(&[partition(100, 30, 0), partition(200, 0, 0)]), None, "in all there is little");
    assert_eq!(choose(&[partition(100, 30, 25), partition(100, 12, 0)]), None, "snapshots hold some");
    assert_eq!(choose(&[partition(100, 30, 25), partition(100, 16, 0)]), Some(1));
    assert_eq!(choose(&[partition(100, 90, u64::MAX), partition(100, 5, 0)]), None);
    let loose = |dead| PartitionShape { loose: runs(&[20], 101), ..partition(200, dead, 0) };
    assert_eq!(choose(&[partition(200, 24, 0), partition(200, 0, 0)]), None);
    assert_eq!(choose(&[loose(24), partition(200, 0, 0)]), Some(0), "what is loose may supersede as much again");
    assert_eq!(choose(&[loose(20)]), None, "but says nothing by itself");
}

#[test]
fn best_cut_lies_between_runs_near_the_middle() {
    let cut = |runs: &[(&'static str, &'static str, u64)]| {
        let runs = runs.iter().map(|(first, last, bytes)| (first.as_bytes(), last.as_bytes(), *bytes)).collect();
        best_cut(runs).map(|key| String::from_utf8_lossy(key).into_owned())
    };
    assert_eq!(cut(&[("e", "f", 10), ("a", "b", 10), ("c", "d", 10), ("g", "h", 10)]).as_deref(), Some("e"));
    assert_eq!(cut(&[("a", "c", 10), ("c", "d", 10)]), None, "both may hold versions of one key");
    assert_eq!(cut(&[("a", "z", 1), ("b", "c", 10), ("d", "e", 10)]), None, "one run lies over all");
    assert_eq!(cut(&[("a", "b", 24), ("c", "d", 76)]), None, "too small a part");
    assert_eq!(cut(&[("a", "b", 25), ("c", "d", 75)]).as_deref(), Some("c"));
    assert_eq!(cut(&[("a", "d", 30), ("b", "c", 1), ("e", "f", 30), ("g", "h", 30)]).as_deref(), Some("e"));
    assert_eq!(cut(&[]), None);
}

#[test]
fn estimate_dead_under_write_load_counts_loose_runs() {
    let of = |entries: u64, dead: u64, loose: u64| PartitionShape {
        counts: Some(ViewShape { entries, dead }),
        ..shape(&[entries], if loose > 0 { std::slice::from_ref(&loose) } else { &[] })
    };
    let estimate = |shapes: &[PartitionShape], superseding: u64, released: u64| {
        let DeadEstimate { per_mille, deadest } = estimate_dead(shapes.iter(), (10, superseding, released));
        (per_mille, deadest)
    };
    assert_eq!(estimate(&[], 1000, 0), (0, None));
    assert_eq!(estimate(&[of(1000, 90, 0), of(1000, 90, 0)], 1000, 0), (90, None));
    assert_eq!(estimate(&[of(1000, 90, 0), of(1000, 120, 0)], 1000, 0), (105, Some(1)));
    // Unindexed entries count by the number that they are assumed to supersede.
    assert_eq!(estimate(&[of(900, 0, 100), of(900, 100, 100)], 0, 0), (50, None));
    assert_eq!(estimate(&[of(900, 0, 100), of(900, 100, 100)], 500, 0), (100, None));
    assert_eq!(estimate(&[of(900, 0, 100), of(900, 100, 100)], 1000, 0), (150, Some(1)));
    assert_eq!(estimate(&[of(900, 0, 100), of(900, 0, 100)], 2000, 0), (200, Some(0)));
    // Two runs that a merge left without a view, and a later flushed run.
    let merged = |adding| PartitionShape {
        counts: Some(ViewShape { entries: 600, dead: 0 }),
        loose_adding: adding,
        ..shape(&[], &[600, 400, 100])
    };
    assert_eq!(estimate(&[merged(2)], 1000, 0), (90, None));
    assert_eq!(estimate(&[merged(0)], 1000, 0), (1000, Some(0)));
    // Entries in files that some partitions dropped.
    assert_eq!(estimate(&[of(1000, 50, 0), of(1000, 70, 0)], 0, 0), (60, None));
    assert_eq!(estimate(&[of(1000, 50, 0), of(1000, 70, 0)], 0, 100), (60, Some(1)));
    assert_eq!(estimate(&[of(1000, 50, 0), of(1000, 50, 0)], 0, 500), (50, None), "no merge would give much back");
    // Entries pinned by snapshots; a partition with a job.
    let held = PartitionShape { dead_held: 300, ..of(1000, 400, 0) };
    assert_eq!(estimate(&[held.clone(), of(1000, 150, 0)], 0, 0), (125, Some(1)));
    let taken = PartitionShape { dead_held: u64::MAX, ..of(500, 400, 500) };
    assert_eq!(estimate(&[taken, of(1000, 250, 0)], 1000, 0), (125, Some(1)));
}
