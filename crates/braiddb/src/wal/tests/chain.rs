use super::*;
use crate::base::MAX_SEQUENCE;
use crate::platform::{OpenMode, SystemVfs};
use crate::wal::{inspect_segment, segment_path};

#[test]
fn recovery_over_many_segments_returns_all_groups() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    let input = input_of(&wal);
    for sequence in 1..=200 {
        let end = append(&wal, sequence).unwrap();
        assert_eq!(end, wal.end_lsn());
        if sequence % 7 == 0 {
            assert_eq!(wal.sync(end).unwrap(), end);
        }
    }
    assert!(wal.segments().len() > 8);
    let (seen, outcome) = world.replay(&input).unwrap();
    assert_eq!(seen, groups(1..=200));
    assert_eq!((outcome.end_lsn, outcome.last_sequence, outcome.next_epoch), (wal.end_lsn(), 200, 2));
    assert_eq!((outcome.tail_note.as_deref(), outcome.ambiguous_tail), (None, false));
    assert_eq!(outcome.segments, wal.segments());
    assert!(outcome.unneeded.is_empty());
}

#[test]
fn recovery_does_not_visit_flushed_groups() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    for sequence in 1..=50 {
        append(&wal, sequence).unwrap();
    }
    let (seen, outcome) = world.replay(&RecoveryInput { flushed: 30, ..input_of(&wal) }).unwrap();
    assert_eq!(seen, groups(31..=50));
    assert_eq!(outcome.last_sequence, 50);
}

#[test]
fn recovery_returns_large_and_compressible_groups() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    let input = input_of(&wal);
    let mut random = Random(1);
    let large: Vec<u8> = (0..70_000).map(|_| random.next() as u8).collect();
    let flat = vec![7; 300_000];
    let mut expected = Groups::new();
    for (sequence, payload) in [&large, &Vec::new(), &flat, &large, &vec![1]].into_iter().enumerate() {
        wal.append(&group(sequence as u64 + 1), payload).unwrap();
        expected.push((sequence as u64 + 1, payload.clone()));
    }
    let (seen, _) = world.replay(&input).unwrap();
    assert!(seen == expected);
    let stats = wal.stats();
    assert!(stats.bytes_written < 150_000 && stats.payload_bytes > 440_000, "{stats:?}");
    assert!(wal.release(wal.oldest_needed(3)) >= 2);
    assert!(wal.spares().len() <= 1);
}

#[test]
fn append_that_just_fits_leaves_room_for_the_seal() {
    for len in 3700..4000 {
        let world = World::new();
        let wal = world.create(WalStart::new_log());
        let input = input_of(&wal);
        let payload: Vec<u8> = (0..len).map(|i| ((i * i) >> 3) as u8 ^ i as u8).collect();
        for sequence in 1..=3 {
            wal.append(&group(sequence), &payload).unwrap();
        }
        let (seen, _) = world.replay(&input).unwrap();
        assert_eq!(seen.len(), 3);
        assert!(seen.iter().all(|(_, bytes)| *bytes == payload));
    }
}

#[test]
fn log_works_with_any_segment_length() {
    for segment_len in (280..350).chain([1021, 4095]) {
        let mut world = World::new();
        world.options.segment_len = segment_len;
        let wal = world.create(WalStart::new_log());
        let input = input_of(&wal);
        for sequence in 1..=20 {
            let end = append(&wal, sequence).unwrap();
            if sequence % 3 == 0 {
                wal.sync(end).unwrap();
                wal.note_durable().unwrap();
            }
        }
        let (seen, outcome) = world.replay(&input).unwrap();
        assert_eq!(seen, groups(1..=20), "{segment_len}");
        assert_eq!((outcome.end_lsn, outcome.segments), (wal.end_lsn(), wal.segments()));
    }
    let too_short = WalOptions { segment_len: 279, ..WalOptions::default() };
    assert!(Wal::create(World::new().context(), too_short, WalStart::new_log()).is_err());
}

#[test]
fn recovery_returns_commit_times_after_clock_jumps() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    let times = [0, 1, 1 << 40, u64::MAX >> 1, u64::MAX, 1_700_000_000_000_000];
    for (sequence, commit_time_us) in (1..).zip(times) {
        let group = GroupHeader { first_sequence: sequence, last_sequence: sequence, commit_time_us };
        wal.append(&group, b"").unwrap();
    }
    let mut seen = Vec::new();
    recover(&world.vfs, Path::new(DIR), &input_of(&wal), &mut |info, _| {
        seen.push(info.commit_time_us);
        Ok(Visit::Taken)
    })
    .unwrap();
    assert_eq!(seen, times.map(|time| time.min(u64::MAX >> 1)));
}

#[test]
fn recovery_ignores_stale_records_of_recycled_segments() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    let mut input = input_of(&wal);
    for sequence in 1..=600u64 {
        append(&wal, sequence).unwrap();
        if sequence % 20 == 0 {
            let flushed = sequence - 15;
            input = RecoveryInput { oldest_segment: Some(wal.oldest_needed(flushed)), flushed, ..input };
            wal.release(wal.oldest_needed(flushed));
            assert_eq!(Some(wal.oldest_segment()), input.oldest_segment);
        }
        let (seen, outcome) = world.replay(&input).unwrap();
        assert_eq!(seen, groups(input.flushed + 1..=sequence));
        assert_eq!(outcome.end_lsn, wal.end_lsn());
        assert_eq!(outcome.tail_note, None);
    }
    let stats = wal.stats();
    assert!(stats.segments_recycled > 10 && stats.segments_created < 8, "{stats:?}");
    assert!(world.vfs.files().len() <= 8);
    assert!(wal.trim_spares() > 0);
    assert_eq!(world.vfs.files().len(), wal.segments().len());
}

#[test]
fn release_keeps_needed_segments() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    for sequence in 1..=100 {
        append(&wal, sequence).unwrap();
    }
    let before = wal.segments();
    let third = before[2].number;
    assert_eq!(wal.release(third), 2);
    assert_eq!(wal.oldest_segment(), third);
    assert_eq!(wal.release(wal.oldest_needed(u64::MAX)), before.len() - 3);
    assert_eq!(wal.segments().len(), 1);
}

#[test]
fn chain_continues_over_epochs() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    let mut input = input_of(&wal);
    drop(wal);
    let mut next = 1;
    for epoch in 2..12 {
        let (seen, wal) = world.reopen(&mut input).unwrap();
        assert_eq!(seen, groups(1..next));
        assert_eq!(wal.epoch(), epoch);
        for _ in 0..epoch * 3 {
            append(&wal, next).unwrap();
            next += 1;
        }
    }
    for _ in 0..3 {
        let (seen, _) = world.reopen(&mut input).unwrap();
        assert_eq!(seen, groups(1..next));
    }
    let (_, wal) = world.reopen(&mut input).unwrap();
    append(&wal, next).unwrap();
    input.oldest_segment = Some(wal.oldest_needed(next - 1));
    wal.release(wal.oldest_needed(next - 1));
    assert_eq!(wal.segments().len(), 1);
    assert_eq!(world.replay(&input).unwrap().0, groups(1..=next)[next as usize - 1..]);
}

#[test]
fn visitor_ends_the_log_only_above_the_durable_lsn() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    let mut input = input_of(&wal);
    for sequence in 1..=40 {
        append(&wal, sequence).unwrap();
        if sequence == 20 {
            wal.sync(wal.end_lsn()).unwrap();
        }
    }
    for bad in 1..=40 {
        let mut visited = 0;
        let result = recover(&world.vfs, Path::new(DIR), &input, &mut |info, _| {
            visited = info.first_sequence;
            Ok(if visited == bad { Visit::EndHere("its blob is missing".into()) } else { Visit::Taken })
        });
        assert_eq!(visited, bad);
        if bad <= 20 {
            assert!(result.unwrap_err().to_string().contains("its blob is missing"));
        } else {
            let outcome = result.unwrap();
            assert_eq!(outcome.last_sequence, bad - 1);
            assert!(outcome.ambiguous_tail && outcome.tail_note.is_some());
        }
    }
    // The next epoch fixes the end: the discarded records stay discarded.
    let outcome = recover(&world.vfs, Path::new(DIR), &input, &mut |info, _| {
        Ok(if info.first_sequence == 31 { Visit::EndHere(String::new()) } else { Visit::Taken })
    })
    .unwrap();
    for number in &outcome.unneeded {
        world.vfs.remove(&Path::new(DIR).join(format!("{number:06}.wal"))).unwrap();
    }
    let wal = world.create(outcome.sync_replayed(false).unwrap());
    append(&wal, 41).unwrap();
    input.durable_lsn = wal.durable_lsn();
    assert_eq!(world.replay(&input).unwrap().0, groups((1..=30).chain([41])));
}

#[test]
fn wal_refuses_bad_arguments() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    append(&wal, 5).unwrap();
    assert!(append(&wal, 5).is_err());
    let backwards = GroupHeader { first_sequence: 8, last_sequence: 7, commit_time_us: 0 };
    assert!(wal.append(&backwards, b"").is_err());
    let too_high = GroupHeader { first_sequence: 8, last_sequence: MAX_SEQUENCE + 1, commit_time_us: 0 };
    assert!(wal.append(&too_high, b"").is_err());
    assert!(wal.sync(wal.end_lsn() + 1).is_err());
    append(&wal, 6).unwrap();
    assert_eq!(world.replay(&input_of(&wal)).unwrap().0, groups(5..=6));
    let tiny = WalOptions { segment_len: 100, ..WalOptions::default() };
    assert!(Wal::create(world.context(), tiny, WalStart::new_log()).is_err());
}

#[test]
fn inspect_segment_shows_all_records() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    for sequence in 1..=5 {
        append(&wal, sequence).unwrap();
    }
    wal.note_durable().unwrap();
    let mut seen = Vec::new();
    let path = Path::new(DIR).join("000001.wal");
    let dump = inspect_segment(&world.vfs, &path, &mut |_, record| {
        seen.push(record.header.last_sequence);
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, [1, 2, 3, 4, 5, 5]);
    assert_eq!(dump.end_offset, wal.end_lsn());
    assert!(!dump.remains && dump.records_beyond == 0);
}

/// The last segment's number, and the `durable_lsn` of its header, its first record and the seal
/// before it.
fn durable_lsns_of(world: &World, wal: &Wal) -> (u64, [Lsn; 3]) {
    let segments = wal.segments();
    let [.., before, last] = segments.as_slice() else { panic!("one segment") };
    let read = |number: u64| {
        let mut records = Vec::new();
        let path = Path::new(DIR).join(format!("{number:06}.wal"));
        let dump = inspect_segment(&world.vfs, &path, &mut |_, record| {
            records.push(record.header.durable_lsn);
            Ok(())
        });
        (dump.unwrap().header.durable_lsn, records)
    };
    let ((_, sealed), (header, records)) = (read(before.number), read(last.number));
    (last.number, [header, records[0], *sealed.last().unwrap()])
}

#[test]
fn segment_header_stores_the_durable_lsn_at_its_begin() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    let (mut begun, mut positions) = (0, std::collections::BTreeSet::new());
    for sequence in 1..=600u64 {
        if sequence % 5 == 0 && sequence / 100 % 2 == 0 {
            wal.sync(wal.end_lsn()).unwrap();
        }
        let (durable, last) = (wal.durable_lsn(), wal.segments().last().unwrap().number);
        append(&wal, sequence).unwrap();
        if wal.segments().last().unwrap().number != last {
            let (number, all) = durable_lsns_of(&world, &wal);
            assert_eq!(all, [durable; 3], "segment {number}, sequence {sequence}");
            begun += 1;
            positions.insert(durable);
            wal.release(wal.oldest_needed(sequence.saturating_sub(60)));
        }
    }
    assert!(
        begun > 20 && positions.len() > 10 && positions.len() < begun,
        "{begun} segments, {} positions",
        positions.len()
    );
    assert!(wal.stats().segments_recycled > 10);
    // An epoch's first segment shows that everything before it is durable.
    let mut input = input_of(&wal);
    let (_, wal) = world.reopen(&mut input).unwrap();
    append(&wal, 601).unwrap();
    let start = wal.segments().last().unwrap().start_lsn;
    let (_, [header, record, _]) = durable_lsns_of(&world, &wal);
    assert_eq!((header, record), (start, wal.durable_lsn()));
}

/// The header alone distinguishes a break from the log's end.
#[test]
fn segment_header_reveals_damage_to_synced_records_before_it() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    let input = input_of(&wal);
    let mut ends = vec![wal.end_lsn()];
    while wal.segments().len() == 1 {
        ends.push(append(&wal, ends.len() as u64).unwrap());
        if ends.len() == 9 {
            wal.sync(wal.end_lsn()).unwrap();
        }
    }
    let count = ends.len() - 2;
    assert!(count > 12, "{count}");
    let path = |number: u64| Path::new(DIR).join(format!("{number:06}.wal"));
    for (kept, end) in ends.iter().enumerate().take(count + 1) {
        let mut files = world.vfs.files();
        files.get_mut(&path(1)).unwrap()[*end as usize..].fill(0);
        files.get_mut(&path(2)).unwrap()[136..].fill(0);
        let replayed = World::on(FaultVfs::of_files(Path::new(DIR), &files)).replay(&input);
        if kept < 8 {
            assert!(replayed.unwrap_err().is_corruption(), "{kept} groups are left of 8 that were synced");
            files.get_mut(&path(2)).unwrap().fill(0);
            World::on(FaultVfs::of_files(Path::new(DIR), &files)).replay(&input).unwrap();
        } else {
            assert_eq!(replayed.unwrap().0, groups(1..=kept as u64), "what was not synced may be lost");
        }
    }
}

/// Real files: through a mapping where the system supports it.
#[test]
fn records_written_by_mapping_and_by_call_form_one_chain() {
    let dir = tempfile::tempdir().unwrap();
    let next_number = Arc::new(AtomicU64::new(1));
    let context = WalContext {
        vfs: Arc::new(SystemVfs::new()),
        dir: dir.path().into(),
        runtime: Arc::new(SystemRuntime::new()),
        next_file_number: Arc::new(move || next_number.fetch_add(1, Ordering::Relaxed)),
        pre_sync: None,
    };
    let options = WalOptions { segment_len: 128 << 10, ..WalOptions::default() };
    let wal = Wal::create(context, options, WalStart::new_log()).unwrap();
    let input = input_of(&wal);
    let mut random = Random(3);
    let mut expected = Groups::new();
    for sequence in 1..400 {
        let len = if random.next().is_multiple_of(4) { 8_000 + random.next() % 9_000 } else { random.next() % 300 };
        let payload: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        let end = wal.append(&group(sequence), &payload).unwrap();
        if random.next().is_multiple_of(3) {
            wal.sync(end).unwrap();
        }
        expected.push((sequence, payload));
        let mut seen = Groups::new();
        if sequence % 50 == 0 {
            recover(&SystemVfs::new(), dir.path(), &input, &mut |info, payload| {
                seen.push((info.first_sequence, payload.to_vec()));
                Ok(Visit::Taken)
            })
            .unwrap();
            assert!(seen == expected, "after {sequence}");
        }
    }
    assert!(wal.segments().len() > 3);
}

/// Pages that never reached the disk are holes.
#[test]
fn record_after_a_hole_reveals_lost_durable_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let vfs = SystemVfs::new();
    let context = WalContext {
        vfs: Arc::new(SystemVfs::new()),
        dir: dir.path().into(),
        runtime: Arc::new(SystemRuntime::new()),
        next_file_number: Arc::new(|| 1),
        pre_sync: None,
    };
    let options = WalOptions { segment_len: 1 << 20, ..WalOptions::default() };
    let wal = Wal::create(context, options, WalStart::new_log()).unwrap();
    let input = input_of(&wal);
    for sequence in 1..=100 {
        let mut random = Random(sequence);
        let payload: Vec<u8> = (0..8_000).map(|_| random.next() as u8).collect();
        let end = wal.append(&group(sequence), &payload).unwrap();
        if sequence == 20 {
            wal.sync(end).unwrap();
        }
    }
    let path = segment_path(dir.path(), 1);
    drop(wal);
    let mut bytes = vec![0; 1 << 20];
    vfs.open(&path, OpenMode::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    let recover_what_is_left = |kept: &[(usize, usize)]| {
        vfs.remove(&path).unwrap();
        let file = vfs.open(&path, OpenMode::CreateNew).unwrap();
        file.preallocate(bytes.len() as u64).unwrap();
        for &(at, len) in kept {
            file.write_at(&bytes[at..at + len], at as u64).unwrap();
        }
        recover(&vfs, dir.path(), &input, &mut |_, _| Ok(Visit::Taken))
    };
    assert_eq!(recover_what_is_left(&[(0, bytes.len())]).unwrap().last_sequence, 100);
    let outcome = recover_what_is_left(&[(0, 4096)]).unwrap();
    assert_eq!((outcome.last_sequence, outcome.ambiguous_tail), (0, true));
    for page in [64, 128, 190] {
        let error = recover_what_is_left(&[(0, 4096), (page << 12, 4 << 12)]).err().unwrap();
        assert!(error.is_corruption(), "{error}");
    }
    // Records before the sync do not know of it.
    assert!(recover_what_is_left(&[(0, 4096), (8 << 12, 4 << 12)]).is_ok());
}
