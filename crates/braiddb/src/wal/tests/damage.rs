//! Damaged, cut, lost and torn files yield the right groups, or corruption.

use super::*;
use crate::wal::{RecordHeader, SegmentHeader, inspect_segment};
use std::{collections::BTreeMap, path::PathBuf};

/// Two epochs, with a recycled segment and a spare. Returns the manifest's knowledge, the groups
/// and their ends.
fn small_log(each_synced: bool, noted: bool) -> (World, RecoveryInput, Groups, Vec<Lsn>) {
    let mut world = World::new();
    world.options.segment_len = 1024;
    let wal = world.create(WalStart::new_log());
    for sequence in 1..=20 {
        append(&wal, sequence).unwrap();
    }
    wal.sync(wal.end_lsn()).unwrap();
    let mut input =
        RecoveryInput { oldest_segment: Some(wal.oldest_needed(17)), durable_lsn: 0, flushed: 17, is_to_sync: true };
    wal.release(wal.oldest_needed(17));
    let mut ends = vec![0; 7];
    for sequence in 21..=24 {
        append(&wal, sequence).unwrap();
    }
    drop(wal);
    let (_, wal) = world.reopen(&mut input).unwrap();
    for sequence in 25..=33 {
        ends.push(append(&wal, sequence).unwrap());
        if each_synced {
            wal.sync(wal.end_lsn()).unwrap();
        }
    }
    if noted {
        wal.note_durable().unwrap();
    }
    (world, input, groups(18..=33), ends)
}

fn replay_files(files: &BTreeMap<PathBuf, Vec<u8>>, input: &RecoveryInput) -> Result<(Groups, RecoveryOutcome)> {
    World::on(FaultVfs::of_files(Path::new(DIR), files)).replay(input)
}

/// Returns the number of unnoticed flips that lost groups, from index `ambiguous_from` on.
fn flip_each_bit(world: &World, input: &RecoveryInput, expected: &Groups, ambiguous_from: usize) -> usize {
    let files = world.vfs.files();
    let (mut lost, mut noticed) = (0, 0);
    for (path, bytes) in &files {
        let mut damaged = files.clone();
        for bit in 0..bytes.len() * 8 {
            damaged.get_mut(path).unwrap()[bit / 8] ^= 1 << (bit % 8);
            match replay_files(&damaged, input) {
                Ok((seen, _)) if seen == *expected => {}
                Ok((seen, _)) => {
                    assert!(expected.starts_with(&seen), "bit {bit} of {path:?} gave other groups");
                    assert!(seen.len() >= ambiguous_from, "bit {bit} of {path:?} lost group {}", seen.len());
                    lost += 1;
                }
                Err(error) => {
                    assert!(error.is_corruption(), "{error}");
                    noticed += 1;
                }
            }
            damaged.get_mut(path).unwrap()[bit / 8] ^= 1 << (bit % 8);
        }
    }
    assert!(noticed > 0);
    lost
}

#[test]
fn flipped_bit_is_noticed_except_in_the_last_record() {
    let (world, input, expected, _) = small_log(true, false);
    let last = expected.len() - 1;
    let lost = flip_each_bit(&world, &input, &expected, last);
    // Only the last record is ambiguous: nothing after it shows its sync.
    let number = world.replay(&input).unwrap().1.segments.last().unwrap().number;
    let path = Path::new(DIR).join(format!("{number:06}.wal"));
    let mut last_record = None;
    inspect_segment(&world.vfs, &path, &mut |_, record| {
        last_record = Some(*record);
        Ok(())
    })
    .unwrap();
    let record = last_record.unwrap();
    assert_eq!(record.header.stored_len as usize, expected[last].1.len());
    assert_eq!(lost, (record.header_len + expected[last].1.len()) * 8);
}

#[test]
fn flipped_bit_after_a_note_is_noticed() {
    let (world, input, expected, _) = small_log(false, true);
    assert_eq!(flip_each_bit(&world, &input, &expected, expected.len()), 0);
}

#[test]
fn break_without_syncs_ends_the_log() {
    let (world, input, expected, _) = small_log(false, false);
    // Seven groups of the first epoch are durable since the second began.
    assert!(flip_each_bit(&world, &input, &expected, 7) > 0);
}

#[test]
fn truncation_and_lost_segment_are_noticed() {
    let (world, input, expected, _) = small_log(true, false);
    let (_, outcome) = world.replay(&input).unwrap();
    let files = world.vfs.files();
    assert!(outcome.segments.len() >= 4);
    for (path, bytes) in &files {
        let needed = outcome.segments.iter().any(|s| path.ends_with(format!("{:06}.wal", s.number)));
        let mut damaged = files.clone();
        for len in 0..bytes.len() {
            damaged.insert(path.clone(), bytes[..len].to_vec());
            match replay_files(&damaged, &input) {
                Ok((seen, _)) => assert!(!needed && seen == expected, "{path:?} cut to {len}"),
                Err(error) => assert!(needed && error.is_corruption(), "{path:?} cut to {len}: {error}"),
            }
        }
        damaged.remove(path);
        assert_eq!(replay_files(&damaged, &input).is_err(), needed);
    }
}

#[test]
fn swapped_and_stale_files_are_noticed() {
    let (world, input, expected, _) = small_log(true, true);
    let (_, outcome) = world.replay(&input).unwrap();
    let files = world.vfs.files();
    let paths: Vec<_> = outcome.segments.iter().map(|s| Path::new(DIR).join(format!("{:06}.wal", s.number))).collect();
    for a in &paths {
        for b in &paths {
            let mut damaged = files.clone();
            damaged.insert(a.clone(), files[b].clone());
            damaged.insert(b.clone(), files[a].clone());
            match replay_files(&damaged, &input) {
                Ok((seen, _)) => assert!(a == b && seen == expected),
                Err(error) => assert!(a != b && error.is_corruption()),
            }
        }
    }
}

#[test]
fn recovery_without_bytes_durable_by_the_manifest_is_corruption() {
    let (world, mut input, expected, ends) = small_log(false, false);
    for (count, end) in ends.iter().enumerate().skip(7) {
        input.durable_lsn = *end;
        let lost = flip_last_record(&world, &input, &expected);
        assert_eq!(lost.is_err(), count == ends.len() - 1);
    }
    input.durable_lsn = ends[ends.len() - 1] + 8;
    assert!(world.replay(&input).unwrap_err().is_corruption());
}

fn flip_last_record(world: &World, input: &RecoveryInput, expected: &Groups) -> Result<(Groups, RecoveryOutcome)> {
    let mut files = world.vfs.files();
    let (_, payload) = expected.last().unwrap();
    for bytes in files.values_mut() {
        if let Some(at) = bytes.windows(payload.len()).position(|window| window == payload) {
            bytes[at] ^= 1;
            return replay_files(&files, input);
        }
    }
    panic!("the last payload stands nowhere");
}

#[test]
fn recovery_of_random_damage_neither_panics_nor_invents_groups() {
    let (world, input, expected, _) = small_log(true, false);
    let files = world.vfs.files();
    let mut random = Random(5);
    for _ in 0..4000 {
        let mut damaged = files.clone();
        let at = random.next() as usize % files.len();
        let bytes = damaged.values_mut().nth(at).unwrap();
        for _ in 0..1 + random.next() % 3 {
            let from = random.next() as usize % bytes.len();
            let end = (from + 1 + random.next() as usize % 200).min(bytes.len());
            match random.next() % 3 {
                0 => bytes[from..end].fill(0),
                1 => bytes[from..end].iter_mut().for_each(|b| *b = random.next() as u8),
                _ => bytes.copy_within(from..end, random.next() as usize % (from + 1)),
            }
        }
        match replay_files(&damaged, &input) {
            // Records at the end may be gone with all evidence of their syncs.
            Ok((seen, _)) => assert!(expected.starts_with(&seen) && seen.len() >= 7),
            Err(error) => assert!(error.is_corruption(), "{error}"),
        }
    }
}

#[test]
fn crash_anywhere_leaves_a_prefix_with_all_durable_groups() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let mut world = World::new();
        world.options.segment_len = 1024;
        let wal = world.create(WalStart::new_log());
        let mut input = input_of(&wal);
        let (mut wal, mut durable, mut last) = (wal, 0, 0);
        for _crash in 0..3 {
            for _ in 0..random.next() % 25 {
                last += 1;
                append(&wal, last).unwrap();
                match random.next() % 5 {
                    0 => {
                        wal.sync(wal.end_lsn()).unwrap();
                        durable = last;
                    }
                    1 => {
                        let flushed = input.flushed.max(last.saturating_sub(random.next() % 20));
                        input = RecoveryInput { oldest_segment: Some(wal.oldest_needed(flushed)), flushed, ..input };
                        durable = durable.max(flushed);
                        wal.release(wal.oldest_needed(flushed));
                    }
                    _ => {}
                }
            }
            let next_number = world.next_number.clone();
            world = World { next_number, ..World::on(world.vfs.crashed(|| random.next() & 1 == 0)) };
            world.options.segment_len = 1024;
            let (seen, next_wal) = world.reopen(&mut input).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            let found = seen.last().map_or(input.flushed, |(sequence, _)| *sequence);
            assert_eq!(seen, groups(input.flushed + 1..=found), "seed {seed}");
            assert!(found >= durable && found <= last, "seed {seed}: {durable} <= {found} <= {last}");
            assert_eq!(world.replay(&input).unwrap().0, seen, "seed {seed}");
            (wal, last, durable) = (next_wal, found, found);
        }
    }
}

#[test]
fn crash_during_recovery_changes_nothing() {
    let (world, input, expected, _) = small_log(true, false);
    let before = world.vfs.files();
    for step in 0..40 {
        for seed in 0..8 {
            let mut random = Random(step * 100 + seed);
            let vfs = FaultVfs::of_files(Path::new(DIR), &before);
            use crate::platform::fault_vfs::Operation as O;
            for operation in [O::Create, O::Write, O::Preallocate, O::Sync, O::SyncDir] {
                vfs.fail(operation, step as u32 % 8, u32::MAX, std::io::ErrorKind::Other);
            }
            let torn = World { vfs, next_number: Arc::new(AtomicU64::new(100 + step)), ..world.clone() };
            let (_, outcome) = torn.replay(&input).unwrap();
            if let Ok(start) = outcome.sync_replayed(step % 2 == 0) {
                let _ = Wal::create(torn.context(), torn.options.clone(), start);
            }
            let mut next_input = input;
            let world = World::on(torn.vfs.crashed(|| random.next() & 1 == 0));
            let (seen, wal) = world.reopen(&mut next_input).unwrap();
            assert_eq!(seen, expected);
            append(&wal, 34).unwrap();
            assert_eq!(world.replay(&next_input).unwrap().0, groups(18..=34));
        }
    }
}

#[test]
fn record_without_the_previous_link_ends_the_log() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    let mut at = Vec::new();
    for sequence in 1..=3 {
        at.push(wal.end_lsn() as usize);
        append(&wal, sequence).unwrap();
    }
    let path = Path::new(DIR).join("000001.wal");
    let mut files = world.vfs.files();
    let bytes = files.get_mut(&path).unwrap();
    let (segment, _) = SegmentHeader::decode(bytes, &path).unwrap();
    let record = RecordHeader::decode(&bytes[at[1]..], &segment, at[1] as u64).unwrap();
    let other = RecordHeader { commit_time_us: record.header.commit_time_us + 1, ..record.header };
    let mut header = Vec::new();
    other.encode(&segment, at[1] as u64, &mut header);
    assert_eq!(header.len(), record.header_len);
    bytes[at[1]..at[1] + header.len()].copy_from_slice(&header);
    let (seen, outcome) = replay_files(&files, &input_of(&wal)).unwrap();
    assert_eq!(seen, groups(1..=2));
    assert_eq!(outcome.end_lsn as usize, at[2]);
    assert!(outcome.ambiguous_tail && outcome.tail_note.is_some());
}

#[test]
fn missing_epoch_is_corruption_except_the_last() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    let mut input = input_of(&wal);
    append(&wal, 1).unwrap();
    let first_input = input;
    let mut number = wal.oldest_segment();
    let mut ids = Vec::new();
    for sequence in 2..=4 {
        let (_, wal) = world.reopen(&mut input).unwrap();
        append(&wal, sequence).unwrap();
        number = wal.segments().last().unwrap().number;
        let path = Path::new(DIR).join(format!("{number:06}.wal"));
        ids.push(inspect_segment(&world.vfs, &path, &mut |_, _| Ok(())).unwrap().header.file_id);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    assert_eq!(world.replay(&first_input).unwrap().0, groups(1..=4));
    for lost in 2..number {
        let mut files = world.vfs.files();
        files.get_mut(&Path::new(DIR).join(format!("{lost:06}.wal"))).unwrap()[70] ^= 1;
        assert!(replay_files(&files, &first_input).unwrap_err().is_corruption(), "segment {lost}");
    }
    for bad in 1..=3 {
        let result = recover(&world.vfs, Path::new(DIR), &first_input, &mut |info, _| {
            Ok(if info.first_sequence == bad { Visit::EndHere("bad".into()) } else { Visit::Taken })
        });
        assert!(result.unwrap_err().is_corruption());
    }
}

#[test]
fn empty_epoch_makes_the_previous_one_durable() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    let first_input = input_of(&wal);
    append(&wal, 1).unwrap();
    let ends_it = || {
        recover(&world.vfs, Path::new(DIR), &first_input, &mut |_, _| Ok(Visit::EndHere("its blob is missing".into())))
    };
    assert_eq!(ends_it().unwrap().last_sequence, 0);
    world.reopen(&mut first_input.clone()).unwrap();
    assert!(ends_it().unwrap_err().is_corruption());
}

/// Long records are written in two calls, which may reach the disk in any order.
#[test]
fn crash_during_long_records_leaves_a_prefix_with_all_durable_groups() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let mut world = World::new();
        world.options.segment_len = 64 << 10;
        let wal = world.create(WalStart::new_log());
        let mut input = input_of(&wal);
        let (mut expected, mut durable) = (Groups::new(), 0);
        for sequence in 1..=12 {
            let len = if random.next().is_multiple_of(3) { 100 } else { 8_192 + random.next() % 9_000 };
            let payload: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            let end = wal.append(&group(sequence), &payload).unwrap();
            expected.push((sequence, payload));
            if random.next().is_multiple_of(4) {
                wal.sync(end).unwrap();
                durable = expected.len();
            }
        }
        let crashed = World::on(world.vfs.crashed(|| random.next() & 1 == 0));
        let (seen, _) = crashed.reopen(&mut input).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(
            seen.len() >= durable && seen[..] == expected[..seen.len()],
            "seed {seed}: {} of {durable}",
            seen.len()
        );
    }
}
