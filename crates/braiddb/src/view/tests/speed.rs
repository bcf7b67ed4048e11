//! What reads, builds and folds take. Not a test: run it by name, in release, on a quiet machine.
//!
//! ```text
//! cargo test --release -p braiddb --lib view::tests::speed -- --ignored --nocapture
//! ```

use super::*;
use crate::platform::{Runtime, SystemRuntime};

const RUNS: u64 = 8;
const ENTRIES: u64 = 2_000_000;

fn key_of(i: u64) -> Vec<u8> {
    let mixed = Random::new(i).next_u64();
    [&[0, 0, 0, 7][..], &mixed.to_be_bytes(), &(i as u32).to_be_bytes()].concat()
}

/// Writes the keys of these numbers as a run.
fn write_run(world: &mut World, numbers: impl Iterator<Item = u64>) {
    let mut keys: Vec<(Vec<u8>, u64)> = numbers.map(|i| (key_of(i), i + 1)).collect();
    keys.sort();
    let (path, number) = world.new_file("run");
    let options = RunOptions { compression: Compression::None, block_bytes: 4096, key_block: true };
    let mut writer = SortedRunWriter::create(&world.ctx, &path, number, number, &options).unwrap();
    for (key, sequence) in &keys {
        let entry = EntryRef { key, sequence: *sequence, kind: EntryKind::Value, value: &[7; 120] };
        writer.add(entry).unwrap();
    }
    let meta = writer.finish().unwrap();
    world.runs.push(Run::open(&world.ctx, &path, &meta).unwrap());
}

/// Prints what one of `count` operations takes; the best of many short rounds, since other work may get in between.
fn measure(name: &str, rounds: u64, count: u64, mut body: impl FnMut(usize)) {
    let clock = SystemRuntime::new();
    let best = (0..rounds).map(|round| {
        let start = clock.monotonic_ns();
        body(round as usize);
        clock.monotonic_ns() - start
    });
    println!("{name:24} {:8.1} ns", best.min().unwrap_or(0) as f64 / count as f64);
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    let mut world = World::new(1);
    world.ctx.cache = BlockCache::new(2 << 30);
    for run in 0..RUNS {
        write_run(&mut world, (run..ENTRIES).step_by(RUNS as usize));
    }
    let mut view = None;
    measure("build, an entry", 3, ENTRIES, |_| view = Some(world.build(&Bounds::default())));
    let view = view.unwrap();
    let bytes = (view.meta().file_bytes + view.resident_bytes() as u64) as f64 / ENTRIES as f64;
    println!("{bytes:.2} bytes an entry, {} segments", view.meta().segments);
    let mut random = Random::new(5);
    let n = 200_000;
    let hits: Vec<Vec<u8>> = (0..n).map(|_| key_of(random.below(ENTRIES as usize) as u64)).collect();
    let misses: Vec<Vec<u8>> = (0..n).map(|i| key_of(ENTRIES + i)).collect();
    let mut anchors = 0;
    let (rounds, each) = (100, n as usize / 100);
    measure("anchor", rounds, each as u64, |round| {
        hits[round * each..][..each].iter().for_each(|key| anchors += view.directory.anchors.find(key));
    });
    for (name, keys) in [("get hit", &hits), ("get miss", &misses)] {
        measure(name, rounds, each as u64, |round| {
            for key in &keys[round * each..][..each] {
                let guard = crossbeam_epoch::pin();
                let found = view.get(&world.runs, key, u64::MAX >> 2, &guard).unwrap();
                assert_eq!(found.is_some(), name == "get hit");
            }
        });
    }
    let runs: Arc<[Arc<Run>]> = world.runs.clone().into();
    let mut cursor = ViewCursor::new(view.clone(), runs.clone(), u64::MAX >> 2);
    for (name, keys, steps) in [("seek hit", &hits, 0), ("seek miss", &misses, 0), ("seek + 50", &hits, 50)] {
        let each = if steps > 0 { each / 5 } else { each };
        let mut sum = 0;
        measure(name, rounds, each as u64, |round| {
            for key in &keys[round * each..][..each] {
                cursor.seek(key).unwrap();
                for _ in 0..steps {
                    if !cursor.valid() {
                        break;
                    }
                    sum += cursor.entry().value.len();
                    cursor.next().unwrap();
                }
            }
        });
        assert!(steps == 0 || sum > 0);
    }
    measure("new cursor + seek", rounds, each as u64, |round| {
        for key in &hits[round * each..][..each] {
            let mut cursor = ViewCursor::new(view.clone(), runs.clone(), u64::MAX >> 2);
            cursor.seek(key).unwrap();
        }
    });
    let mut sum = 0u64;
    cursor.seek_first().unwrap();
    measure("scan, a row", rounds, ENTRIES / rounds - 1, |_| {
        for _ in 1..ENTRIES / rounds {
            let entry = cursor.entry();
            sum += u64::from(entry.key[7]) + u64::from(entry.value[0]);
            cursor.next().unwrap();
        }
    });
    cursor.seek_last().unwrap();
    measure("reverse scan, a row", rounds, ENTRIES / rounds - 1, |_| {
        for _ in 1..ENTRIES / rounds {
            let entry = cursor.entry();
            sum += u64::from(entry.key[7]) + u64::from(entry.value[0]);
            cursor.prev().unwrap();
        }
    });
    assert!(sum > 0);
    for new in [10_000, 50_000, 90_000, 200_000] {
        world.runs.truncate(RUNS as usize);
        write_run(&mut world, ENTRIES..ENTRIES + new);
        let mut stats = FoldStats::default();
        measure(&format!("fold, a key of {new}"), 3, new, |_| {
            let (path, number) = world.new_file("view");
            let (old, new) = world.runs.split_at(RUNS as usize);
            let bounds = Bounds::default();
            stats = fold_view(&world.ctx, &path, number, 1, &view, old, new, &bounds).unwrap().1;
            world.ctx.vfs.remove(&path).unwrap();
        });
        println!("{stats:?}");
    }
}
