//! First blocks of segments, learned from seeks.

use super::*;
use crate::platform::fault_vfs::FaultVfs;

/// Returns the number of segments with a known first block, after checking them.
fn known_after_seeks(world: &World, view: &Arc<View>) -> usize {
    let mut cursor = ViewCursor::new(Arc::clone(view), world.runs.clone().into(), u64::MAX >> 2);
    for _ in 0..2 {
        for shown in world.shown(&Bounds::default(), u64::MAX >> 2) {
            cursor.seek(&shown.key).unwrap();
            assert_eq!(Owned::of(cursor.entry()), *shown);
        }
    }
    let guard = crossbeam_epoch::pin();
    let mut known = 0;
    for number in 0..view.directory.segments() {
        let segment = view.segment(number, &guard).unwrap();
        if let Some((run, block)) = view.first_blocks.get(number) {
            assert_eq!(segment.cursor(run).unwrap().block, block, "segment {number}");
            assert!(segment.lanes_of_run(run).count_ones() as usize * 4 >= segment.count() * 3);
            known += 1;
        }
    }
    known
}

fn world(seed: u64, runs: &[usize]) -> (World, Arc<View>) {
    let mut world = World::new(seed);
    world.ctx.vfs = Arc::new(FaultVfs::new(Path::new("/db")));
    world.block_bytes = 4096;
    for &entries in runs {
        world.add_run(Shape::Hashed, entries, 0);
    }
    let view = world.build(&Bounds::default());
    assert_eq!(view.first_blocks.get(0), None);
    (world, view)
}

#[test]
fn first_blocks_of_dominant_run_are_learned_by_seeks() {
    for (seed, runs) in [(3100, &[1500][..]), (3101, &[60, 1500]), (3102, &[1500, 60])] {
        let (world, view) = world(seed, runs);
        let before = view.resident_bytes();
        let known = known_after_seeks(&world, &view);
        let segments = view.directory.segments() as usize;
        assert!(known * 10 > segments * 9, "{known} of {segments} segments of {runs:?}");
        assert_eq!(view.resident_bytes(), before + 2 * segments);
    }
}

#[test]
fn first_blocks_without_dominant_run_stay_unknown() {
    let (world, view) = world(3110, &[400; 4]);
    assert!(known_after_seeks(&world, &view) * 10 < view.directory.segments() as usize);
}
