use super::{filter::Validation, *};
use crate::base::{EntryKind, EntryRef, RangeTombstone, RangeTombstoneSet};

fn options(idle: bool) -> PlanOptions {
    PlanOptions {
        partition_bytes_max: 100_000,
        partition_blocks_max: 10_000,
        merged_blocks_max: 1000,
        loose_max: 4,
        fold_bytes_per_entry: 10,
        view_runs_max: 8,
        view_runs_max_idle: 4,
        dead_percent_max: 25,
        expired_for_us_max: 1000,
        expired_hundredth_for_us_max: 100,
        idle,
        has_space: true,
    }
}

fn runs(sizes: &[u64], first: u64) -> Vec<RunShape> {
    sizes
        .iter()
        .enumerate()
        .map(|(i, &size)| RunShape {
            number: first + i as u64,
            bytes: 100 * size,
            entries: size,
            blocks: size,
            is_sparse: false,
        })
        .collect()
}

fn shape(view: &[u64], loose: &[u64]) -> PartitionShape {
    PartitionShape {
        runs: runs(view, 1),
        loose: runs(loose, 101),
        loose_weight: loose.len(),
        loose_adding: 0,
        loose_reads: 0,
        has_view: !view.is_empty(),
        counts: Some(ViewShape { entries: 100, dead: 0 }),
        dead_held: 0,
        cut: None,
        is_in_order: false,
        expired_for_us: 0,
        expired: 0,
        unsplit_bytes: 0,
        relocate_blobs: false,
    }
}

/// As text, so that a change of policy is a change of this text.
#[test]
fn plans_by_shape() {
    let dead = |mut s: PartitionShape, dead| {
        s.counts = Some(ViewShape { entries: 100, dead });
        s
    };
    let mut sparse = shape(&[10, 20], &[1]);
    sparse.runs[1].is_sparse = true;
    let cases = [
        ("nothing", shape(&[], &[]), false),
        ("one loose run", shape(&[], &[10]), false),
        ("one loose run, idle", shape(&[], &[10]), true),
        ("three loose runs", shape(&[100], &[1, 1, 1]), false),
        ("three loose runs, idle", shape(&[100], &[1, 1, 1]), true),
        ("four loose runs with a tenth", shape(&[100], &[1, 1, 4, 6]), false),
        ("four loose runs with less", shape(&[100], &[1, 1, 1, 1]), false),
        ("four loose runs with less, idle", shape(&[100], &[1, 1, 1, 1]), true),
        ("four loose runs with less, an old one large", shape(&[100], &[5, 1, 1, 1]), false),
        ("four loose runs with less, doubling", shape(&[200], &[8, 4, 2, 1]), false),
        ("four loose runs alone", shape(&[], &[100, 50, 50, 1]), false),
        ("four loose runs alone, the first large", shape(&[], &[200, 1, 1, 1]), false),
        ("four loose runs, eight in all", shape(&[50, 20, 10, 9], &[9, 1, 1, 1]), false),
        ("four loose runs, nine in all", shape(&[50, 20, 10, 9, 9], &[9, 1, 1, 1]), false),
        ("many loose runs, no view", shape(&[], &[200, 9, 9, 9, 9, 9, 9, 9, 9]), false),
        ("many loose runs, no view, equal", shape(&[], &[9, 9, 9, 9, 9, 9, 9, 9, 9]), false),
        ("a full view", shape(&[100, 50, 20, 10, 9, 8, 7, 6], &[22, 1, 1, 1]), false),
        ("a sparse run", sparse, false),
        ("dead", dead(shape(&[100], &[1]), 26), false),
        ("not dead enough", dead(shape(&[100], &[1]), 25), false),
        ("dead but held", PartitionShape { dead_held: 20, ..dead(shape(&[100], &[1]), 40) }, false),
        ("too large", shape(&[900, 50], &[51]), false),
        (
            "too large, and was not to be split",
            PartitionShape { unsplit_bytes: 66_800, ..shape(&[900, 50], &[51]) },
            false,
        ),
        ("grown by half since", PartitionShape { unsplit_bytes: 66_600, ..shape(&[900, 50], &[51]) }, false),
        (
            "too large, runs side by side",
            PartitionShape { cut: Some(b"k".to_vec()), ..shape(&[900, 50], &[51]) },
            false,
        ),
        ("one large run", shape(&[], &[2000]), true),
        ("no view", PartitionShape { has_view: false, ..shape(&[10, 10], &[1]) }, false),
        (
            "too large, but much of it dead",
            PartitionShape { counts: Some(ViewShape { entries: 100, dead: 24 }), ..shape(&[900, 50], &[51]) },
            false,
        ),
        ("a full view, much of it dead", dead(shape(&[100, 50, 20, 10, 9, 8, 7, 6], &[22, 1, 1, 1]), 13), false),
        ("many runs, idle", shape(&[100, 2, 20, 1, 9, 8], &[]), true),
        ("many runs, idle, much of them dead", dead(shape(&[100, 2, 20, 1, 9, 8], &[]), 7), true),
        ("a loose run, read often", PartitionShape { loose_reads: 34_000, ..shape(&[100], &[1]) }, false),
        ("a loose run, read now and then", PartitionShape { loose_reads: 33_000, ..shape(&[100], &[1]) }, false),
        ("a large view, read as often", PartitionShape { loose_reads: 34_000, ..shape(&[300_000], &[1]) }, false),
        (
            "a full view, read often",
            PartitionShape { loose_reads: 34_000, ..shape(&[100, 50, 20, 10, 9, 8, 7, 6], &[1]) },
            false,
        ),
        ("expired lately", PartitionShape { expired_for_us: 999, ..shape(&[10, 10], &[1]) }, false),
        ("a fiftieth expired lately", PartitionShape { expired_for_us: 49, expired: 2, ..shape(&[99], &[1]) }, false),
        ("a fiftieth expired before", PartitionShape { expired_for_us: 50, expired: 2, ..shape(&[99], &[1]) }, false),
        ("expired long ago", PartitionShape { expired_for_us: 1000, ..shape(&[10, 10], &[1]) }, false),
        ("sparse blobs", PartitionShape { relocate_blobs: true, ..shape(&[10], &[]) }, false),
    ];
    let text: String =
        cases.iter().map(|(name, shape, idle)| format!("{name}: {:?}\n", plan(shape, &options(*idle)))).collect();
    let expected = "\
nothing: None
one loose run: None
one loose run, idle: None
three loose runs: None
three loose runs, idle: Some(Fold)
four loose runs with a tenth: Some(Fold)
four loose runs with less: Some(Loose { inputs: [104, 103, 102, 101] })
four loose runs with less, idle: Some(Fold)
four loose runs with less, an old one large: Some(Loose { inputs: [104, 103, 102] })
four loose runs with less, doubling: Some(Loose { inputs: [104, 103] })
four loose runs alone: Some(Fold)
four loose runs alone, the first large: Some(Loose { inputs: [104, 103, 102] })
four loose runs, eight in all: Some(Fold)
four loose runs, nine in all: Some(Major { inputs: [101, 102, 103, 104] })
many loose runs, no view: Some(Major { inputs: [102, 103, 104, 105, 106, 107, 108, 109] })
many loose runs, no view, equal: Some(Major { inputs: [101, 102, 103, 104, 105, 106, 107, 108, 109] })
a full view: Some(Major { inputs: [101, 102, 103, 104, 8, 7, 6, 5] })
a sparse run: Some(Major { inputs: [101, 2] })
dead: Some(Major { inputs: [1, 101] })
not dead enough: None
dead but held: None
too large: Some(Split)
too large, and was not to be split: None
grown by half since: Some(Split)
too large, runs side by side: Some(Cut { at: [107] })
one large run: None
no view: Some(Rebuild)
too large, but much of it dead: None
a full view, much of it dead: Some(Major { inputs: [1, 2, 3, 4, 5, 6, 7, 8, 101, 102, 103, 104] })
many runs, idle: Some(Major { inputs: [4, 2, 6] })
many runs, idle, much of them dead: None
a loose run, read often: Some(Fold)
a loose run, read now and then: None
a large view, read as often: Some(Split)
a full view, read often: None
expired lately: None
a fiftieth expired lately: None
a fiftieth expired before: Some(Major { inputs: [1, 101] })
expired long ago: Some(Major { inputs: [1, 2, 101] })
sparse blobs: Some(Major { inputs: [1] })
";
    assert_eq!(text, expected);
}

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

/// `v9` is a value at 9, `t9` a tombstone.
fn kept(versions: &str, strata: &[u64], tombstones: &[(&str, &str, u64)]) -> String {
    let tombstones = tombstones
        .iter()
        .map(|(start, end, sequence)| RangeTombstone {
            start: (*start).into(),
            end: (*end).into(),
            sequence: *sequence,
        })
        .collect();
    let set = RangeTombstoneSet::new(tombstones);
    let mut filter = VersionFilter::new(strata, &set);
    let judged = versions.split(' ').filter(|text| {
        let kind = if text.starts_with('t') { EntryKind::Tombstone } else { EntryKind::Value };
        let entry = EntryRef { key: b"k", sequence: text[1..].parse().unwrap(), kind, value: b"" };
        filter.judge(&entry) == Validation::Keep
    });
    judged.collect::<Vec<_>>().join(" ")
}

#[test]
fn filter_keeps_newest_version_of_each_stratum() {
    assert_eq!(kept("v9 v8 v5 v3 v1", &[9], &[]), "v9");
    assert_eq!(kept("v9 v8 v5 v3 v1", &[4, 8, 20], &[]), "v9 v8 v3");
    assert_eq!(kept("v9 t8 v5", &[5, 20], &[]), "v9 v5");
    assert_eq!(kept("v9 v8 v7", &[8], &[]), "v9 v8", "what is newer than all strata is kept");
}

#[test]
fn filter_under_range_tombstone_keeps_versions_for_older_snapshots_only() {
    assert_eq!(kept("v5", &[9], &[("a", "z", 7)]), "");
    assert_eq!(kept("v5", &[6, 9], &[("a", "z", 7)]), "v5");
    assert_eq!(kept("v8 v5", &[9], &[("a", "z", 7)]), "v8");
    assert_eq!(kept("v8 v5", &[9], &[("a", "b", 9)]), "v8");
    assert_eq!(kept("v7", &[9], &[("a", "z", 7)]), "v7", "a put of the same batch comes after its range delete");
}

#[test]
fn plan_with_many_blocks_splits_and_does_not_merge() {
    let mut many = shape(&[10, 10], &[1]);
    many.runs[1].blocks = 10_000;
    assert_eq!(plan(&many, &options(false)), Some(Plan::Split), "a view could not braid all of its runs");
    let mut long = shape(&[100], &[1, 1, 1, 1]);
    long.loose[2].blocks = 600;
    long.loose[3].blocks = 600;
    assert_eq!(plan(&long, &options(false)), Some(Plan::Fold), "merging the two newest would give two again");
    long.loose[3].blocks = 1;
    assert_eq!(plan(&long, &options(false)), Some(Plan::Loose { inputs: vec![104, 103, 102, 101] }));
}

#[test]
fn plan_with_non_overlapping_loose_runs_allows_more() {
    let added = |loose: &[u64], weight| PartitionShape { loose_weight: weight, ..shape(&[100], loose) };
    assert_eq!(plan(&added(&[20; 9], 3), &options(false)), None);
    assert_eq!(plan(&added(&[20; 9], 4), &options(false)), Some(Plan::Major { inputs: (101..110).collect() }));
    assert_eq!(plan(&added(&[20; 7], 4), &options(false)), Some(Plan::Fold));
    assert_eq!(plan(&added(&[20; 3], 1), &options(true)), Some(Plan::Fold), "while idle, whatever their number");
    let read = PartitionShape { loose_reads: 100_000, ..added(&[20; 3], 1) };
    assert_eq!(plan(&read, &options(false)), Some(Plan::Fold), "they are read often");
}

/// `Builder::loose_runs` allows 2. A merge of one run changes nothing, so the same plan would come
/// again.
#[test]
fn plan_with_one_newer_loose_run_does_not_merge_it_alone() {
    let options = PlanOptions { loose_max: 2, ..options(false) };
    let plan = plan(&shape(&[], &[200, 1]), &options);
    assert!(!matches!(&plan, Some(Plan::Loose { inputs }) if inputs.len() < 2), "{plan:?}");
}

#[test]
fn plan_when_idle_merges_spread_partition() {
    let pieces = || shape(&[10, 9, 9], &[8]);
    let all = Some(Plan::Major { inputs: vec![1, 2, 3, 101] });
    assert_eq!(plan(&pieces(), &options(true)), all);
    assert_eq!(plan(&pieces(), &options(false)), None);
    // The disk was full recently.
    assert_eq!(plan(&pieces(), &PlanOptions { has_space: false, ..options(true) }), Some(Plan::Fold));
    // A merge of everything gave several runs before.
    let unsplit = PartitionShape { unsplit_bytes: 1, ..pieces() };
    assert_eq!(plan(&unsplit, &options(true)), Some(Plan::Fold));
    // One run has more than a third of the entries or bytes.
    let mut uneven = pieces();
    uneven.runs[1].bytes *= 3;
    assert_eq!(plan(&uneven, &options(true)), Some(Plan::Fold));
    assert_eq!(plan(&shape(&[10, 9], &[9]), &options(true)), Some(Plan::Fold));
    // The runs do not overlap.
    assert_eq!(plan(&PartitionShape { is_in_order: true, ..pieces() }, &options(true)), Some(Plan::Fold));
    // All of it will be merged soon.
    let dying = PartitionShape { counts: Some(ViewShape { entries: 100, dead: 7 }), ..pieces() };
    assert_eq!(plan(&dying, &options(true)), Some(Plan::Fold));
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
