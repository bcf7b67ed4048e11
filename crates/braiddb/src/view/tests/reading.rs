//! Gets, seeks and scans of built views at many snapshots, over many shapes of keys.

use super::*;
use crate::platform::fault_vfs::FaultVfs;
use crate::view::RowBatch;
use std::ops::ControlFlow;

/// A restarted batch looks its blocks up again: those in place may need another check.
#[test]
fn row_batch_after_restart_keeps_no_block() {
    let mut world = World::new(2100);
    world.ctx.vfs = Arc::new(FaultVfs::new(Path::new("/db")));
    world.block_bytes = 8192;
    for _ in 0..2 {
        world.add_run(Shape::Hashed, 2000, 0);
    }
    let view = world.build(&Bounds::default());
    let mut cursor = ViewCursor::new(view, world.runs.clone().into(), u64::MAX >> 2);
    let mut batch = RowBatch::default();
    let mut looked_up = Vec::new();
    for _ in 0..5 {
        cursor.seek_first().unwrap();
        let before = world.ctx.cache.stats().hits;
        cursor.fill(true, &mut batch);
        assert!(batch.is_on_row());
        looked_up.push(world.ctx.cache.stats().hits - before);
        batch.restart();
    }
    // The blocks of the rows up to the first special one, each time.
    assert!(looked_up[2] > 0 && looked_up[2..].iter().all(|count| *count == looked_up[2]), "{looked_up:?}");
}

fn plain_rows(seed: u64) -> (World, ViewCursor, Vec<Vec<u8>>) {
    let mut world = World::new(seed);
    world.block_bytes = 4096;
    for _ in 0..2 {
        let entries = (0..2000).map(|_| {
            world.sequence += 1;
            let key = Shape::Hashed.key(&mut world.random);
            Owned { key, sequence: world.sequence, kind: EntryKind::Value, value: vec![7; 100] }
        });
        let entries = entries.collect();
        world.write_run(entries, Vec::new());
    }
    let view = world.build(&Bounds::default());
    let cursor = ViewCursor::new(view, world.runs.clone().into(), u64::MAX >> 2);
    let rows = world.entries.iter().map(|entry| entry.key.clone()).collect();
    (world, cursor, rows)
}

fn pass(cursor: &mut ViewCursor, batch: &mut RowBatch, rows: usize) {
    for _ in 0..rows {
        if !batch.step(true) {
            batch.advance();
            cursor.fill(true, batch);
            assert!(batch.is_on_row());
        }
    }
}

#[test]
fn seek_rows_with_expected_rows_prefetches_next_segment_gradually() {
    let (_world, mut cursor, rows) = plain_rows(2101);
    let mut batch = RowBatch::default();
    cursor.seek(&rows[0]).unwrap();
    cursor.fill(true, &mut batch);
    pass(&mut cursor, &mut batch, 100);
    let mut queued = 0;
    for at in [500, 1000, 1507, 2003, 2511] {
        batch.restart();
        assert!(batch.queue().is_empty(), "what another scan wanted is forgotten");
        assert!(cursor.seek_rows(&rows[at], &mut batch).unwrap());
        assert_eq!(batch.key(), Some(&*rows[at]));
        let left = batch.rows_left() as usize;
        assert_eq!(left < 8, batch.queue().is_empty(), "{left} rows come before those of the next segment");
        if left >= 8 {
            queued += 1;
            let before = batch.queue().bytes_left();
            if queued % 2 == 0 {
                pass(&mut cursor, &mut batch, left - 1);
            } else {
                let (steps, flow) = batch.visit(|_, _| ControlFlow::<()>::Continue(()));
                assert_eq!((steps as usize, flow), (left - 1, ControlFlow::Continue(())));
            }
            assert!(batch.queue().bytes_left() < before, "as rows are passed");
            pass(&mut cursor, &mut batch, 1);
            assert_eq!(batch.key(), Some(&*rows[at + left]));
        }
        pass(&mut cursor, &mut batch, 60);
    }
    assert!(queued >= 2);
}

#[test]
fn row_batch_interrupt_prefetches_queued_rows() {
    let (_world, mut cursor, rows) = plain_rows(2102);
    let mut batch = RowBatch::default();
    cursor.seek(&rows[0]).unwrap();
    cursor.fill(true, &mut batch);
    pass(&mut cursor, &mut batch, 100);
    let at = (500..3000).find(|&at| {
        batch.restart();
        cursor.seek_rows(&rows[at], &mut batch).unwrap() && batch.rows_left() >= 8
    });
    assert!(at.is_some() && !batch.queue().is_empty());
    batch.interrupt();
    assert!(batch.queue().is_empty());
}

#[test]
fn row_batch_to_merge_queues_no_prefetches() {
    let (_world, mut cursor, rows) = plain_rows(2103);
    let mut batch = RowBatch::to_merge();
    for at in [500, 1000, 1507, 2003, 2511] {
        batch.restart();
        cursor.seek(&rows[at]).unwrap();
        for _ in 0..3 {
            cursor.fill(true, &mut batch);
            assert!(batch.lanes() != 0 && batch.queue().is_empty());
            batch.pass(0);
        }
    }
}

#[test]
fn view_of_every_shape_matches_sorted_list() {
    let mut seed = 0;
    for shape in Shape::ALL {
        for (runs, count) in [(1, 0), (1, 1), (1, 33), (2, 40), (5, 60), (8, 50), (9, 30), (16, 40), (31, 10)] {
            let count = if matches!(shape, Shape::Long) { count / 3 } else { count };
            seed += 1;
            let mut world = World::new(seed);
            for run in 0..runs {
                world.add_run(shape, count, usize::from(run % 3 == 1));
            }
            let bounds = Bounds::default();
            let view = world.build(&bounds);
            world.check(&view, &bounds);
        }
    }
}

#[test]
fn view_with_many_segments_matches_sorted_list() {
    for (seed, shape) in [(100, Shape::Hashed), (101, Shape::Numbered)] {
        let mut world = World::new(seed);
        for _ in 0..7 {
            world.add_run(shape, 900, 1);
        }
        let view = world.build(&Bounds::default());
        assert!(view.meta().segments > 200);
        world.check(&view, &Bounds::default());
    }
}

#[test]
fn view_embedded_in_run_matches_sorted_list() {
    for (seed, shape) in Shape::ALL.into_iter().enumerate() {
        let mut world = World::new(200 + seed as u64);
        world.add_run(shape, 300, 2);
        let view = View::open_embedded(&world.ctx, &world.runs[0]).unwrap();
        world.check(&view, &Bounds::default());
    }
}

#[test]
fn view_with_bounds_excludes_keys_outside() {
    for (seed, shape) in Shape::ALL.into_iter().enumerate() {
        let mut world = World::new(300 + seed as u64);
        for _ in 0..5 {
            world.add_run(shape, 60, 1);
        }
        let mut cuts: Vec<Vec<u8>> = (0..3).map(|_| shape.key(&mut world.random)).collect();
        cuts.sort();
        cuts.dedup();
        let mut start = Vec::new();
        let mut entries = 0;
        for end in cuts.into_iter().map(Some).chain([None]) {
            let bounds = Bounds { start: start.clone(), end: end.clone() };
            let view = world.build(&bounds);
            entries += view.meta().entries;
            world.check(&view, &bounds);
            start = end.unwrap_or_default();
        }
        assert_eq!(entries, world.entries.len() as u64);
    }
}

#[test]
fn version_chain_longer_than_segment_uses_continuations() {
    let mut world = World::new(400);
    for run in 0..4u64 {
        let mut entries = Vec::new();
        for i in 0..400 {
            world.sequence += 1;
            let key = match i % 4 {
                0 => vec![0, i as u8, run as u8],
                1 => vec![1, (i / 40) as u8],
                2 => vec![2],
                _ => vec![3, (i / 100) as u8],
            };
            entries.push(world.new_entry(key));
        }
        world.write_run(entries, Vec::new());
    }
    let view = world.build(&Bounds::default());
    let continuations = (0..view.meta().segments).filter(|&s| view.directory.is_continuation(s)).count();
    assert!(continuations >= 10, "{continuations}");
    world.check(&view, &Bounds::default());
}

#[test]
fn view_reads_compare_few_keys() {
    let mut world = World::new(500);
    for _ in 0..8 {
        let mut entries = Vec::new();
        for _ in 0..2000 {
            world.sequence += 1;
            let key = Shape::Hashed.key(&mut world.random);
            let sequence = world.sequence;
            entries.push(Owned { key, sequence, kind: EntryKind::Value, value: b"value".to_vec() });
        }
        world.write_run(entries, Vec::new());
    }
    let view = world.build(&Bounds::default());
    let guard = crossbeam_epoch::pin();
    let n = 4000;
    let before = (key_comparisons(), segments_read());
    for i in 0..n {
        let key = &world.entries[i * 4].key;
        assert!(view.get(&world.runs, key, u64::MAX >> 2, &guard).unwrap().is_some());
    }
    let hits = (key_comparisons() - before.0) as f64 / n as f64;
    assert!(hits <= 1.2, "{hits} comparisons a hit");
    assert_eq!(segments_read() - before.1, n as u64);
    let before = key_comparisons();
    for _ in 0..n {
        let key = Shape::Hashed.key(&mut world.random);
        assert!(view.get(&world.runs, &key, u64::MAX >> 2, &guard).unwrap().is_none());
    }
    let misses = (key_comparisons() - before) as f64 / n as f64;
    assert!(misses <= 0.2, "{misses} comparisons a miss");
    let mut cursor = ViewCursor::new(view.clone(), world.runs.clone().into(), u64::MAX >> 2);
    let before = key_comparisons();
    cursor.seek_first().unwrap();
    while cursor.valid() {
        cursor.next().unwrap();
    }
    assert_eq!(key_comparisons(), before);
    for i in 0..1000 {
        cursor.seek(&world.entries[i * 13].key).unwrap();
        assert_eq!(cursor.key(), world.entries[i * 13].key);
    }
    assert_eq!(key_comparisons() - before, 1000);
    let index_bytes = (view.meta().file_bytes as usize + view.resident_bytes()) as f64 / view.meta().entries as f64;
    assert!(index_bytes < 6.0, "{index_bytes} bytes an entry");
}

#[test]
fn range_tombstone_after_entries_marks_whole_segments() {
    let mut world = World::new(600);
    let (path, number) = world.new_file("run");
    let options = RunOptions {
        compression: Compression::None,
        block_bytes: 512,
        key_blocks: KeyBlocks::Never,
        ..RunOptions::default()
    };
    let mut writer = SortedRunWriter::create(&world.ctx, &path, number, 5, &options).unwrap();
    for i in 0..320u64 {
        let key = format!("{i:04}");
        let entry = EntryRef { key: key.as_bytes(), sequence: i + 1, kind: EntryKind::Value, value: b"v" };
        writer.add(entry).unwrap();
    }
    writer.add_range_tombstone(RangeTombstone { start: b"0040".into(), end: b"0170".into(), sequence: 1000 });
    writer.add_range_tombstone(RangeTombstone { start: b"0200".into(), end: b"0300".into(), sequence: 3 });
    let meta = writer.finish().unwrap();
    let run = Run::open(&world.ctx, &path, &meta).unwrap();
    let view = View::open_embedded(&world.ctx, &run).unwrap();
    view.verify().unwrap();
    // Segments have 32 entries: those from 64 to 160 lie within the first tombstone; the second is
    // older than the entries it covers.
    assert_eq!(view.meta().stale, 96);
    assert_eq!(view.meta().max_sequence, 1000);
    let guard = crossbeam_epoch::pin();
    let runs = [run];
    let get = |key: &str| view.get(&runs, key.as_bytes(), 2000, &guard).unwrap().is_some();
    assert!(get("0063") && !get("0064") && !get("0159") && get("0160") && get("0250"));
}

#[test]
fn view_meta_encoded_and_decoded_is_unchanged() {
    let meta = ViewMeta {
        number: 300,
        file_id: u64::MAX,
        file_bytes: 1 << 40,
        entries: 1 << 33,
        segments: 77,
        stale: 5,
        tombstones: 6,
        max_sequence: 1 << 60,
        run_count: 31,
    };
    let mut bytes = Vec::new();
    meta.encode(&mut bytes);
    let mut reader = crate::codec::ByteReader::new(&bytes);
    assert_eq!(ViewMeta::decode(&mut reader), Some(meta));
    assert!(reader.is_at_end());
    for len in 0..bytes.len() {
        assert_eq!(ViewMeta::decode(&mut crate::codec::ByteReader::new(&bytes[..len])), None);
    }
}

#[test]
fn view_cursor_is_send() {
    fn is_send<T: Send + 'static>() {}
    is_send::<ViewCursor>();
    is_send::<Arc<View>>();
}

#[test]
fn obsolete_view_after_last_drop_removes_file() {
    let mut world = World::new(700);
    world.add_run(Shape::Hashed, 10, 0);
    let view = world.build(&Bounds::default());
    let files = |world: &World| world.ctx.vfs.list(Path::new("/db")).unwrap().len();
    assert_eq!(files(&world), 2);
    view.mark_obsolete();
    let other = view.clone();
    drop(view);
    assert_eq!(files(&world), 2);
    drop(other);
    assert_eq!(files(&world), 1);
}
