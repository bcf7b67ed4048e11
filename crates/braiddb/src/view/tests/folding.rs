//! Folds: each folded view must equal one built from the same runs.

use super::*;

impl World {
    fn fold(&mut self, view: &Arc<View>, old: usize, bounds: &Bounds) -> (Arc<View>, FoldStats) {
        let (path, number) = self.new_file("view");
        let file_id = self.random.next_u64();
        let (old_runs, new_runs) = self.runs.split_at(old);
        let (meta, stats) = fold_view(&self.ctx, &path, number, file_id, view, old_runs, new_runs, bounds).unwrap();
        let folded = View::open(&self.ctx, &path, &meta).unwrap();
        self.check(&folded, bounds);
        (folded, stats)
    }
}

#[test]
fn fold_repeated_many_times_equals_built_view() {
    let mut edited = 0;
    let mut merged = 0;
    for (i, shape) in Shape::ALL.into_iter().cycle().take(10).enumerate() {
        let mut world = World::new(1000 + i as u64);
        let first = if matches!(shape, Shape::Long) { 60 } else { 400 };
        world.add_run(shape, first, i % 2);
        let bounds = Bounds::default();
        let mut view = world.build(&bounds);
        for round in 0..12 {
            let old = world.runs.len();
            let count = [1, 5, 15, 0, 40, 3][round % 6];
            for _ in 0..1 + round % 2 {
                world.add_run(shape, count, usize::from(round % 4 == 3));
            }
            let (folded, stats) = world.fold(&view, old, &bounds);
            edited += u64::from(!stats.is_merged && stats.touched_groups > 0);
            merged += u64::from(stats.is_merged);
            assert!(!stats.is_rebuilt);
            view = folded;
        }
        assert!(world.runs.len() > 16);
    }
    assert!(edited > 30 && merged > 10, "{edited} edited, {merged} merged");
}

#[test]
fn fold_of_few_keys_reads_one_key_each() {
    let mut world = World::new(1100);
    for _ in 0..4 {
        world.add_run(Shape::Hashed, 2000, 0);
    }
    let view = world.build(&Bounds::default());
    world.add_run(Shape::Hashed, 100, 0);
    let (_, stats) = world.fold(&view, 4, &Bounds::default());
    assert_eq!((stats.new_entries, stats.is_merged), (100, false));
    assert!(stats.touched_groups > 80);
    assert!(stats.key_reads <= 125, "{stats:?}");
}

#[test]
fn fold_into_full_segments_with_many_splits_repacks() {
    let mut world = World::new(1120);
    world.add_run(Shape::Hashed, 16_000, 0);
    let view = View::open_embedded(&world.ctx, &world.runs[0]).unwrap();
    let fill = |view: &View| view.meta().entries / u64::from(view.meta().segments);
    assert!(fill(&view) >= 31, "{}", fill(&view));
    world.add_run(Shape::Hashed, 480, 0);
    let (folded, stats) = world.fold(&view, 1, &Bounds::default());
    assert!(stats.is_merged && stats.key_reads == 0, "{stats:?}");
    assert!(fill(&folded) >= 29, "{}", fill(&folded));
    world.add_run(Shape::Hashed, 480, 0);
    let (folded, stats) = world.fold(&folded, 2, &Bounds::default());
    assert!(!stats.is_merged && fill(&folded) >= 28, "{stats:?}");
}

/// As many keys, but all past the last one, or too few to change most segments.
#[test]
fn fold_into_full_segments_with_few_splits_edits() {
    let mut world = World::new(1130);
    world.add_run(Shape::Hashed, 16_000, 0);
    let view = View::open_embedded(&world.ctx, &world.runs[0]).unwrap();
    let mut entries = Vec::new();
    for row in 0..480u32 {
        world.sequence += 1;
        entries.push(world.new_entry([&[0xff; 8][..], &row.to_be_bytes()].concat()));
    }
    world.write_run(entries, Vec::new());
    let (_, stats) = world.fold(&view, 1, &Bounds::default());
    assert_eq!((stats.is_merged, stats.touched_groups), (false, 1), "{stats:?}");

    let mut world = World::new(1140);
    world.add_run(Shape::Hashed, 16_000, 0);
    let view = View::open_embedded(&world.ctx, &world.runs[0]).unwrap();
    world.add_run(Shape::Hashed, 100, 0);
    let (_, stats) = world.fold(&view, 1, &Bounds::default());
    assert!(!stats.is_merged && stats.touched_groups > 80, "{stats:?}");
}

/// Versions of a key stay together, so merging would not fill these segments.
#[test]
fn fold_into_unpackable_segments_edits() {
    for versions in [2, 5, 7, 11, 17, 19, 20, 21, 23, 31, 33, 39] {
        let mut world = World::new(1135);
        let mut entries = Vec::new();
        for row in 0..8000 / versions {
            for _ in 0..versions {
                world.sequence += 1;
                entries.push(world.new_entry(format!("{row:08}").into_bytes()));
            }
        }
        world.write_run(entries, Vec::new());
        let mut view = world.build(&Bounds::default());
        for round in 1..3 {
            world.sequence += 1;
            let entry = world.new_entry(format!("{:08}x", 10 * round).into_bytes());
            world.write_run(vec![entry], Vec::new());
            let (folded, stats) = world.fold(&view, round, &Bounds::default());
            let fill = view.meta().entries / u64::from(view.meta().segments);
            assert!(!stats.is_merged, "{versions} versions, {fill} entries a segment");
            view = folded;
        }
    }
}

/// Regression: each older version in a long chain was searched for along the chain.
#[test]
fn fold_into_long_version_chain_reads_it_once() {
    let mut world = World::new(1150);
    let versions = |world: &mut World, count: u64| {
        let mut entries = Vec::new();
        for _ in 0..count {
            world.sequence += 1;
            entries.push(world.new_entry(b"\0\0\0\x01k".to_vec()));
        }
        entries
    };
    let older = versions(&mut world, 200);
    let newer = versions(&mut world, 5000);
    world.write_run(newer, Vec::new());
    let view = world.build(&Bounds::default());
    world.write_run(older, Vec::new());
    let (_, stats) = world.fold(&view, 1, &Bounds::default());
    assert!(stats.key_reads <= 5200, "{stats:?}");
}

#[test]
fn fold_of_growing_keys_leaves_other_groups_untouched() {
    let mut world = World::new(1200);
    let mut next = 0u32;
    let mut append = |world: &mut World, count: u32| {
        let mut entries = Vec::new();
        for _ in 0..count {
            next += 1;
            world.sequence += 1;
            entries.push(world.new_entry(format!("log/{next:08}").into_bytes()));
        }
        world.write_run(entries, Vec::new());
    };
    append(&mut world, 3000);
    let mut view = world.build(&Bounds::default());
    for round in 1..5 {
        append(&mut world, 1500);
        let (folded, stats) = world.fold(&view, round, &Bounds::default());
        assert_eq!((stats.is_merged, stats.touched_groups), (false, 1));
        assert!(stats.key_reads < 40, "{stats:?}");
        view = folded;
    }
    assert!(view.meta().entries / u64::from(view.meta().segments) >= 29);
}

#[test]
fn fold_of_range_tombstone_marks_stale_without_key_reads() {
    let mut world = World::new(1300);
    world.add_run(Shape::Numbered, 2000, 0);
    let view = world.build(&Bounds::default());
    world.sequence += 1;
    let delete = RangeTombstone {
        start: [&[0, 0, 1, 0][..], b"a shared prefix/item00777"].concat(),
        end: [&[0, 0, 1, 2][..], b"a shared prefix/item01234"].concat(),
        sequence: world.sequence,
    };
    world.write_run(Vec::new(), vec![delete]);
    let (folded, stats) = world.fold(&view, 1, &Bounds::default());
    assert!(folded.meta().stale > 1000, "{:?}", folded.meta());
    assert!(stats.touched_groups <= 2 && stats.key_reads <= 64, "{stats:?}");
}

#[test]
fn fold_of_older_entries_equals_built_view() {
    let mut world = World::new(1400);
    let mut entries = Vec::new();
    for i in 0..600u32 {
        world.sequence += 1;
        entries.push(world.new_entry(format!("{:04}", i % 200).into_bytes()));
    }
    // One entry in 41 goes to the folded run, regardless of age.
    let (new, old): (Vec<Owned>, Vec<Owned>) = entries.into_iter().partition(|e| e.sequence % 41 == 3);
    world.write_run(old, Vec::new());
    let view = world.build(&Bounds::default());
    world.write_run(new, Vec::new());
    let (_, stats) = world.fold(&view, 1, &Bounds::default());
    assert!(!stats.is_merged && stats.touched_groups > 5);
}

#[test]
fn fold_with_bounds_excludes_keys_outside() {
    let mut world = World::new(1500);
    for _ in 0..3 {
        world.add_run(Shape::Hashed, 400, 1);
    }
    let bounds = Bounds { start: vec![0, 0, 0, 7, 0x30], end: Some(vec![0, 0, 0, 7, 0xd0]) };
    let mut view = world.build(&bounds);
    for round in 0..6 {
        world.add_run(Shape::Hashed, [20, 3, 300][round % 3], round % 2);
        view = world.fold(&view, 3 + round, &bounds).0;
    }
    let narrow = Bounds { start: vec![0, 0, 0, 7, 0x50], end: Some(vec![0, 0, 0, 7, 0x60]) };
    let old = world.runs.len();
    world.add_run(Shape::Hashed, 50, 1);
    let (_, stats) = world.fold(&view, old, &narrow);
    assert!(stats.is_rebuilt);
}

#[test]
fn fold_without_new_entries_copies_view() {
    let mut world = World::new(1600);
    world.add_run(Shape::Few, 300, 1);
    let view = world.build(&Bounds::default());
    let (folded, stats) = world.fold(&view, 1, &Bounds::default());
    assert_eq!(folded.meta().segments, view.meta().segments);
    assert_eq!(stats, FoldStats::default());
    let mut world = World::new(1601);
    world.add_run(Shape::Hashed, 0, 0);
    let view = world.build(&Bounds::default());
    world.add_run(Shape::Hashed, 100, 0);
    world.fold(&view, 1, &Bounds::default());
}

#[test]
fn fold_into_half_empty_segments_repacks() {
    let mut world = World::new(1700);
    world.add_run(Shape::Hashed, 3000, 0);
    let mut view = world.build(&Bounds::default());
    let mut packed = 0;
    for round in 1..25 {
        let mut entries = Vec::new();
        for _ in 0..140 {
            world.sequence += 1;
            let mut key = Shape::Hashed.key(&mut world.random);
            key.push(7);
            entries.push(world.new_entry(key));
        }
        world.write_run(entries, Vec::new());
        let (folded, stats) = world.fold(&view, round, &Bounds::default());
        packed += u64::from(stats.is_merged);
        view = folded;
        let fill = view.meta().entries / u64::from(view.meta().segments);
        assert!(fill >= 15, "{fill} entries a segment");
    }
    assert!(packed < 12, "{packed}");
}
