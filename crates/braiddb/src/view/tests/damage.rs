//! Views with changed bytes return an error or the right answer; they never panic or loop forever.

use super::*;
use crate::base::Result;
use crate::platform::OpenMode;

fn small_world(seed: u64) -> World {
    let mut world = World::new(seed);
    for _ in 0..3 {
        world.add_run(Shape::Hashed, 80, 1);
    }
    world
}

fn read_all(world: &World, view: &Arc<View>) -> Result<Vec<Owned>> {
    let guard = crossbeam_epoch::pin();
    let mut out = Vec::new();
    for snapshot in [u64::MAX >> 2, 100] {
        let mut cursor = ViewCursor::new(view.clone(), world.runs.clone().into(), snapshot);
        cursor.seek_first()?;
        let mut steps = 0;
        while cursor.valid() {
            out.push(Owned::of(cursor.entry()));
            cursor.next()?;
            steps += 1;
            assert!(steps < 100_000);
        }
        cursor.seek_last()?;
        while cursor.valid() {
            out.push(Owned::of(cursor.entry()));
            cursor.prev()?;
            steps += 1;
            assert!(steps < 100_000);
        }
        for entry in world.entries.iter().step_by(3) {
            out.extend(view.get(&world.runs, &entry.key, snapshot, &guard)?.map(Owned::of));
            cursor.seek(&entry.key)?;
            if cursor.valid() {
                out.push(Owned::of(cursor.entry()));
            }
            cursor.seek_before(&entry.key)?;
        }
        let mut batch = RowBatch::default();
        for (at, entry) in world.entries.iter().enumerate() {
            let key = [&entry.key[..], &[0][..at % 2]].concat();
            batch.restart();
            if !cursor.seek_rows(&key, &mut batch)? {
                batch.release();
                cursor.seek(&key)?;
            } else if let Some((key, value)) = batch.row() {
                assert_eq!((key, value), (cursor.entry().key, cursor.entry().value));
            }
            if cursor.valid() {
                out.push(Owned { sequence: 0, ..Owned::of(cursor.entry()) });
            }
            if cursor.valid() && at % 5 < 3 {
                if !batch.is_on_row() {
                    cursor.fill(true, &mut batch);
                }
                while batch.step(true) {}
            }
        }
    }
    view.rank(&world.runs, b"x")?;
    view.split_points(&world.runs, 3)?;
    Ok(out)
}

#[test]
fn view_with_flipped_bit_returns_error_or_truth() {
    let mut world = small_world(2000);
    let view = world.build(&Bounds::default());
    let truth = read_all(&world, &view).unwrap();
    let file = world.ctx.vfs.open(view.path(), OpenMode::ReadWrite).unwrap();
    let len = file.len().unwrap();
    let mut offset = 0;
    let mut found = 0;
    while offset < len {
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        let bit = 1 << world.random.below(8);
        file.write_at(&[byte[0] ^ bit], offset).unwrap();
        match View::open(&world.ctx, view.path(), view.meta()).and_then(|damaged| {
            let all = read_all(&world, &damaged)?;
            damaged.verify().map(|_| all)
        }) {
            Ok(all) => assert_eq!(all, truth, "at {offset}"),
            Err(error) => {
                found += 1;
                assert!(error.is_corruption() || matches!(error, crate::base::Error::Unsupported { .. }), "{error}");
                assert!(error.to_string().contains(".view"), "{error}");
            }
        }
        file.write_at(&byte, offset).unwrap();
        offset += if (64..4096).contains(&offset) { 512 } else { 7 };
    }
    assert!(found > 500, "{found}");
}

/// Slightly changed anchors can still be valid anchors: only the checksum detects it.
#[test]
fn view_open_with_flipped_bit_after_pages_fails() {
    let mut world = small_world(2010);
    let view = world.build(&Bounds::default());
    let file = world.ctx.vfs.open(view.path(), OpenMode::ReadWrite).unwrap();
    let pages = view.layout.pages(view.meta().segments);
    let directory_at = format::VIEW_FILE_START + u64::from(pages) * PAGE_BYTES as u64;
    let len = file.len().unwrap();
    assert!(directory_at + 50 < len);
    for offset in directory_at..len {
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        for bit in 0..8 {
            file.write_at(&[byte[0] ^ 1 << bit], offset).unwrap();
            let error = View::open(&world.ctx, view.path(), view.meta()).expect_err("damage that nobody sees");
            assert!(error.is_corruption() && error.to_string().contains(".view"), "{error}");
        }
        file.write_at(&byte, offset).unwrap();
    }
    View::open(&world.ctx, view.path(), view.meta()).unwrap();
}

/// A run's own view is part of the run: its damage is the run's.
#[test]
fn view_embedded_in_run_with_damage_blames_run() {
    let mut world = World::new(2050);
    world.add_run(Shape::Hashed, 500, 1);
    let run = world.runs[0].clone();
    let (from, len) = (run.meta().view_offset, run.meta().view_bytes);
    assert!(from % 4096 == 0 && len > 4096);
    let file = world.ctx.vfs.open(run.path(), OpenMode::ReadWrite).unwrap();
    for offset in [0, 40, 70, 100, 4095, len - 200, len - 96, len - 60, len - 1].map(|at| from + at) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_at(&[byte[0] ^ 4], offset).unwrap();
        let error = View::open_embedded(&world.ctx, &run)
            .and_then(|damaged| read_all(&world, &damaged))
            .expect_err("damage that nobody sees");
        assert!(error.is_corruption() && error.to_string().contains(".run"), "{error}");
        file.write_at(&byte, offset).unwrap();
    }
    let view = View::open_embedded(&world.ctx, &run).unwrap();
    world.check(&view, &Bounds::default());
}

#[test]
fn view_open_of_truncated_file_fails() {
    let mut world = small_world(2100);
    let view = world.build(&Bounds::default());
    let file = world.ctx.vfs.open(view.path(), OpenMode::ReadWrite).unwrap();
    let len = file.len().unwrap();
    for cut in [1, 8, 96, 97, 500, len - 4096, len - 64, len] {
        file.set_len(len - cut).unwrap();
        let mut meta = view.meta().clone();
        assert!(View::open(&world.ctx, view.path(), &meta).unwrap_err().is_corruption());
        meta.file_bytes = len - cut;
        assert!(View::open(&world.ctx, view.path(), &meta).unwrap_err().is_corruption());
    }
}

/// Wrong bytes with right checksums, as an attacker could write.
#[test]
fn view_with_forged_records_does_not_panic() {
    let mut world = small_world(2200);
    let view = world.build(&Bounds::default());
    let file = world.ctx.vfs.open(view.path(), OpenMode::ReadWrite).unwrap();
    let mut page = vec![0; 4096];
    file.read_exact_at(&mut page, 4096).unwrap();
    let segments = view.meta().segments.min(31) as usize;
    let mut refused = 0;
    for _ in 0..1500 {
        let mut forged = page.clone();
        for _ in 0..1 + world.random.below(4) {
            let at = world.random.below(segments * 128);
            forged[at] = match world.random.below(4) {
                0 => 0xff,
                1 => 0,
                2 => 0x1e,
                _ => world.random.next_u64() as u8,
            };
        }
        format::seal_page(&mut forged, view.meta().file_id, 4096);
        file.write_at(&forged, 4096).unwrap();
        let damaged = View::open(&world.ctx, view.path(), view.meta()).unwrap();
        if let Err(error) = read_all(&world, &damaged) {
            assert!(error.is_corruption(), "{error}");
            assert!(error.to_string().contains(".view"), "{error}");
            refused += 1;
        }
        _ = damaged.verify();
        _ = damaged.verify_against(&world.runs, &Bounds::default());
        let mut scan = ViewScan::new(damaged.clone(), &world.runs);
        while let Ok(Some(_)) = scan.next() {}
        let (path, number) = world.new_file("view");
        let bounds = Bounds::default();
        let (old, new) = world.runs.split_at(3);
        if let Err(error) = fold_view(&world.ctx, &path, number, 1, &damaged, old, new, &bounds) {
            assert!(error.is_corruption(), "{error}");
        }
        _ = world.ctx.vfs.remove(&path);
    }
    assert!(refused > 300, "{refused}");
}

#[test]
fn directory_of_random_bytes_is_refused_or_consistent() {
    let mut random = Random::new(2300);
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..random.below(60)).map(|_| random.next_u64() as u8 & 0x8f).collect();
        let segments = random.below(40) as u32;
        if let Some(directory) = directory::Directory::decode(&bytes, segments, simd::Simd::detect()) {
            assert_eq!(directory.segments(), segments);
            if segments > 0 {
                assert!(directory.segment_of(directory.anchors.find(&bytes)) < segments);
                assert!(directory.entries_before(segments - 1) < directory.entries());
                directory.anchor_at_rank(random.below(100) as u64);
            }
        }
    }
}

/// A forged record leads past a run's end. The view is reported, set aside and rebuilt.
#[test]
fn seek_with_forged_record_reports_view_damage() {
    let mut world = World::new(2400);
    world.add_run(Shape::Hashed, 12, 1);
    let view = world.build(&Bounds::default());
    let file = world.ctx.vfs.open(view.path(), OpenMode::ReadWrite).unwrap();
    let mut page = vec![0; 4096];
    file.read_exact_at(&mut page, 4096).unwrap();
    let record = view.layout.record_bytes;
    let mut refused = 0;
    for at in 0..record {
        for by in [1u8, 2, 3, 5, 8, 11, page[at].wrapping_neg()] {
            let mut forged = page.clone();
            forged[at] = forged[at].wrapping_add(by);
            format::seal_page(&mut forged, view.meta().file_id, 4096);
            file.write_at(&forged, 4096).unwrap();
            let damaged = View::open(&world.ctx, view.path(), view.meta()).unwrap();
            let mut cursor = ViewCursor::new(damaged.clone(), world.runs.clone().into(), u64::MAX >> 2);
            for entry in &world.entries {
                for key in [entry.key.clone(), [&entry.key[..], &[0]].concat()] {
                    let mut batch = RowBatch::default();
                    for result in [cursor.seek(&key), cursor.seek_rows(&key, &mut batch).map(drop)] {
                        if let Err(error) = result {
                            assert!(error.to_string().contains(".view"), "{error}, byte {at} by {by}");
                            refused += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(refused > 100, "{refused}");
}
