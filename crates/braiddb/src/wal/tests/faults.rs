//! Full and failing disks.

use super::*;
use crate::{base::Error, platform::fault_vfs::Operation};
use std::io::ErrorKind;

#[test]
fn append_on_full_disk_is_refused_and_later_succeeds() {
    // Fail each append in turn, after none, a part, or nearly all of a write.
    for operation in [Operation::Create, Operation::Write, Operation::Preallocate] {
        for after in 0..40 {
            for written in [0, 70, 150] {
                let mut world = World::new();
                world.options.segment_len = 1024;
                let wal = world.create(WalStart::new_log());
                let input = input_of(&wal);
                world.vfs.fail_written(operation, after, 3, ErrorKind::StorageFull, written);
                let mut refused = 0;
                for sequence in 1..=30 {
                    let mut attempt = 0;
                    while let Err(error) = wal.append(&group(sequence), &payload_of(sequence + 1000 * attempt)) {
                        assert!(error.is_disk_full() && error.is_retryable(), "{error}");
                        let seen = world.replay(&input).unwrap().0;
                        assert_eq!(seen.len() as u64, sequence - 1);
                        attempt += 1;
                        refused += 1;
                    }
                    wal.sync(wal.end_lsn()).unwrap();
                }
                assert!(wal.failure().is_none());
                let seen = world.replay(&input).unwrap().0;
                assert_eq!(
                    seen.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(),
                    (1..=30).collect::<Vec<_>>()
                );
                assert!(refused > 0 || after > 4, "{operation:?} {after}");
            }
        }
    }
}

#[test]
fn refused_seal_is_written_later_unchanged() {
    // The seal's end is planned. A sync in between would shorten the seal if it were encoded again.
    for written in [0, 1, 20, 1 << 20] {
        let mut world = World::new();
        world.options.segment_len = 1024;
        let wal = world.create(WalStart::new_log());
        let input = input_of(&wal);
        let payload = [7; 200];
        for sequence in 1..=3 {
            wal.append(&group(sequence), &payload).unwrap();
        }
        world.vfs.fail_written(Operation::Write, 1, 1, ErrorKind::StorageFull, written);
        assert!(wal.append(&group(4), &payload).unwrap_err().is_disk_full());
        assert_eq!(wal.segments().len(), 1);
        wal.sync(wal.end_lsn()).unwrap();
        assert_eq!(world.replay(&input).unwrap().0.len(), 3);
        // The next record goes after the seal even if it would fit into the old segment.
        wal.append(&group(4), b"small").unwrap();
        assert_eq!(wal.segments().len(), 2);
        let (seen, outcome) = world.replay(&input).unwrap();
        assert_eq!(seen.len(), 4);
        assert_eq!((outcome.end_lsn, outcome.ambiguous_tail), (wal.end_lsn(), false));
    }
}

#[test]
fn refused_record_leaves_no_bytes() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    let at = wal.end_lsn() as usize;
    world.vfs.fail_written(Operation::Write, 0, 1, ErrorKind::StorageFull, 1 << 20);
    assert!(wal.append(&group(1), &[7; 100]).unwrap_err().is_disk_full());
    let path = Path::new(DIR).join("000001.wal");
    let bytes = world.vfs.read(&path);
    // A payload left in the file would look like a damaged tail after a crash.
    assert!(bytes[at..].iter().all(|byte| *byte == 0));
    let (_, outcome) = world.replay(&input_of(&wal)).unwrap();
    assert!(!outcome.ambiguous_tail);
}

#[test]
fn refused_long_record_leaves_no_bytes() {
    let mut random = Random(7);
    let payload: Vec<u8> = (0..20_000).map(|_| random.next() as u8).collect();
    for calls_before in [0, 1] {
        let mut world = World::new();
        world.options.segment_len = 256 << 10;
        let wal = world.create(WalStart::new_log());
        append(&wal, 1).unwrap();
        wal.append(&group(2), &payload).unwrap();
        let input = input_of(&wal);
        world.vfs.fail_written(Operation::Write, calls_before, 1, ErrorKind::StorageFull, 1 << 20);
        assert!(wal.append(&group(3), &payload).unwrap_err().is_disk_full());
        let bytes = world.vfs.files().into_values().max_by_key(Vec::len).unwrap();
        let ends: Vec<usize> = (0..bytes.len() - 16).filter(|&at| bytes[at..at + 16] == payload[..16]).collect();
        let [first] = ends[..] else { panic!("the payload was taken back the second time: {ends:?}") };
        assert!(bytes[first + payload.len()..].iter().all(|byte| *byte == 0));
        let (seen, outcome) = world.replay(&input).unwrap();
        assert_eq!((seen.len(), outcome.ambiguous_tail), (2, false));
        wal.append(&group(3), &payload).unwrap();
        assert_eq!(world.replay(&input).unwrap().0[2], (3, payload.clone()));
    }
}

#[test]
fn failed_sync_latches() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    let first = append(&wal, 1).unwrap();
    wal.sync(first).unwrap();
    let second = append(&wal, 2).unwrap();
    world.vfs.fail(Operation::Sync, 0, 1, ErrorKind::Other);
    assert!(matches!(wal.sync(second), Err(Error::CommitUnknown { .. })));
    // The disk works again, but the state of the pages is unknown.
    let before = world.vfs.journal().len();
    assert!(matches!(wal.sync(second), Err(Error::CommitUnknown { .. })));
    assert!(matches!(append(&wal, 3), Err(Error::ReadOnly { .. })));
    assert!(wal.note_durable().is_err());
    assert_eq!(world.vfs.journal().len(), before, "nothing is tried again");
    assert_eq!(wal.durable_lsn(), first);
    assert_eq!(wal.sync(first).unwrap(), first);
    assert!(wal.failure().is_some());
}

#[test]
fn failed_write_latches_with_unknown_outcome() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    append(&wal, 1).unwrap();
    world.vfs.fail_written(Operation::Write, 0, 1, ErrorKind::Other, 1 << 20);
    assert!(matches!(append(&wal, 2), Err(Error::CommitUnknown { .. })));
    assert!(matches!(append(&wal, 2), Err(Error::ReadOnly { .. })));
    assert_eq!(world.replay(&input_of(&wal)).unwrap().0, groups(1..=1));
}

#[test]
fn segment_with_failed_sync_latches() {
    for operation in [Operation::Sync, Operation::SyncDir] {
        let world = World::new();
        let wal = world.create(WalStart::new_log());
        let input = input_of(&wal);
        world.vfs.fail(operation, 0, 1, ErrorKind::StorageFull);
        let mut done = 0;
        while append(&wal, done + 1).is_ok() {
            done += 1;
        }
        assert!(done < 100);
        assert!(matches!(append(&wal, done + 1), Err(Error::ReadOnly { .. })));
        assert_eq!(world.replay(&input).unwrap().0, groups(1..=done));
    }
}

#[test]
fn pre_sync_hook_runs_before_each_sync_and_its_failure_latches() {
    let world = World::new();
    let calls = Arc::new(AtomicU64::new(0));
    let mut context = world.context();
    let counter = calls.clone();
    context.pre_sync = Some(Arc::new(move || match counter.fetch_add(1, Ordering::Relaxed) {
        2 => Err(Error::InvalidArgument("blob".into())),
        _ => Ok(()),
    }));
    let wal = Wal::create(context, world.options.clone(), WalStart::new_log()).unwrap();
    for sequence in 1..=2 {
        let end = append(&wal, sequence).unwrap();
        wal.sync(end).unwrap();
        wal.sync(end).unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), sequence);
    }
    let syncs = world.vfs.journal().iter().filter(|(o, _)| *o == Operation::Sync).count();
    let end = append(&wal, 3).unwrap();
    assert!(wal.sync(end).unwrap_err().to_string().contains("blob"));
    assert!(append(&wal, 4).is_err());
    assert_eq!(world.vfs.journal().iter().filter(|(o, _)| *o == Operation::Sync).count(), syncs);
}

#[test]
fn segments_are_synced_in_order_and_named_only_when_durable() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    for sequence in 1..=60 {
        append(&wal, sequence).unwrap();
    }
    let numbers: Vec<_> = wal.segments().iter().map(|s| Path::new(DIR).join(format!("{:06}.wal", s.number))).collect();
    let before = world.vfs.journal();
    for (at, path) in numbers.iter().enumerate().skip(1) {
        // First create, preallocate and sync; then the header and its sync; only then the previous
        // seal.
        let of_it: Vec<_> = before.iter().filter(|(_, p)| p == path || p == Path::new(DIR)).map(|(o, _)| *o).collect();
        let own: Vec<_> = before.iter().filter(|(_, p)| p == path).map(|(o, _)| *o).take(5).collect();
        assert!(of_it.contains(&Operation::SyncDir));
        use Operation::{Create, Preallocate, Sync, Write};
        assert_eq!(own, [Create, Preallocate, Sync, Write, Sync]);
        let header_synced = before.iter().rposition(|(o, p)| p == path && *o == Operation::Sync).unwrap();
        let seal = before.iter().rposition(|(o, p)| *p == numbers[at - 1] && *o == Operation::Write).unwrap();
        assert!(header_synced < seal);
    }
    wal.sync(wal.end_lsn()).unwrap();
    let synced: Vec<_> = world.vfs.journal()[before.len()..].iter().map(|(o, p)| (*o, p.clone())).collect();
    assert_eq!(synced, numbers.iter().map(|p| (Operation::Sync, p.clone())).collect::<Vec<_>>());
    assert_eq!(wal.durable_lsn(), wal.end_lsn());
}

#[test]
fn spare_made_ahead_is_used() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    assert!(wal.prepare_spare().unwrap());
    assert!(!wal.prepare_spare().unwrap());
    let created = wal.stats().segments_created;
    for sequence in 1..=30 {
        append(&wal, sequence).unwrap();
    }
    assert!(wal.spares().is_empty());
    assert_eq!(wal.stats().segments_recycled, 1);
    assert!(wal.stats().segments_created >= created);
    assert_eq!(world.replay(&input_of(&wal)).unwrap().0, groups(1..=30));
}

#[test]
fn tidy_of_a_synced_log_syncs_spares_or_latches() {
    for fails in [false, true] {
        let world = World::new();
        let wal = world.create(WalStart::new_log());
        let end = append(&wal, 1).unwrap();
        wal.sync(end).unwrap();
        for sequence in 2..=60 {
            append(&wal, sequence).unwrap();
        }
        assert!(wal.release(wal.oldest_needed(60)) > 0);
        assert!(!wal.spares().is_empty());
        let syncs = || world.vfs.journal().iter().filter(|(o, _)| *o == Operation::Sync).count();
        let before = syncs();
        if fails {
            world.vfs.fail(Operation::Sync, 0, 1, ErrorKind::Other);
            assert!(wal.tidy().is_err());
            assert!(wal.failure().is_some() && append(&wal, 61).is_err());
            continue;
        }
        wal.tidy().unwrap();
        wal.tidy().unwrap();
        assert_eq!(syncs() - before, wal.spares().len(), "each once");
    }
}

#[test]
fn tidy_of_an_unsynced_log_syncs_no_spares() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    for sequence in 1..=60 {
        append(&wal, sequence).unwrap();
    }
    assert!(wal.release(wal.oldest_needed(60)) > 0 && !wal.spares().is_empty());
    let before = world.vfs.journal().len();
    wal.tidy().unwrap();
    assert_eq!(world.vfs.journal().len(), before);
}

#[test]
fn replayed_records_are_synced_before_an_epoch_begins() {
    let world = World::new();
    let wal = world.create(WalStart::new_log());
    let input = input_of(&wal);
    for sequence in 1..=60 {
        append(&wal, sequence).unwrap();
    }
    let (_, outcome) = world.replay(&input).unwrap();
    let numbers: Vec<_> =
        outcome.segments.iter().map(|s| Path::new(DIR).join(format!("{:06}.wal", s.number))).collect();
    for rewrite in [false, true] {
        let (_, outcome) = world.replay(&input).unwrap();
        let before = world.vfs.journal().len();
        outcome.sync_replayed(rewrite).unwrap();
        let done = world.vfs.journal()[before..].to_vec();
        for path in &numbers {
            let of_it: Vec<_> = done.iter().filter(|(_, p)| p == path).map(|(o, _)| *o).collect();
            assert_eq!(of_it, if rewrite { vec![Operation::Write, Operation::Sync] } else { vec![Operation::Sync] });
        }
    }
    assert_eq!(world.replay(&input).unwrap().0, groups(1..=60));
    world.vfs.fail(Operation::Sync, 1, 1, ErrorKind::Other);
    assert!(world.replay(&input).unwrap().1.sync_replayed(false).is_err());
}
