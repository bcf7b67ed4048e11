//! Zeros written ahead of the log, so that its syncs write no metadata.

use super::*;
use crate::platform::fault_vfs::Operation;
use std::path::PathBuf;

const UNIT: u64 = 64 << 10;

fn world(segment_len: u64) -> World {
    let mut world = World::new();
    (world.options.segment_len, world.options.compress_at_len) = (segment_len, usize::MAX);
    world
}

fn path(number: u64) -> PathBuf {
    Path::new(DIR).join(format!("{number:06}.wal"))
}

fn making(world: &World, number: u64) -> Vec<Operation> {
    let journal = world.vfs.journal();
    journal.iter().filter(|(_, p)| *p == path(number)).map(|(operation, _)| *operation).collect()
}

fn append_long(wal: &Wal, sequence: u64, len: usize) -> Lsn {
    wal.append(&group(sequence), &vec![sequence as u8 | 1; len]).unwrap()
}

#[test]
fn zeros_are_written_only_ahead_of_synced_records() {
    let world = world(1 << 20);
    let wal = world.create(WalStart::new_log());
    let first = path(wal.oldest_segment());
    let mut ends = std::collections::BTreeSet::new();
    for sequence in 1..=1000 {
        let end = append(&wal, sequence).unwrap();
        let (_, written_to) = world.vfs.written(&first);
        if sequence == 1 {
            assert_eq!(written_to, end, "not synced yet");
        } else {
            assert!(written_to >= end && written_to % UNIT == 0);
            ends.insert(written_to);
        }
        wal.sync(end).unwrap();
    }
    assert_eq!(ends.into_iter().collect::<Vec<_>>(), [UNIT, 2 * UNIT, 3 * UNIT]);
    assert_eq!(world.replay(&input_of(&wal)).unwrap().0, groups(1..=1000));
    let end = (1001..=3000).map(|sequence| append(&wal, sequence).unwrap()).last().unwrap();
    assert_eq!(world.vfs.written(&first).1, end, "past what is zeroed nothing but records");
    assert_eq!(world.replay(&input_of(&wal)).unwrap().0, groups(1..=3000));
}

#[test]
fn zeros_end_with_the_segment_and_torn_zeros_lose_no_record() {
    let world = world(1 << 20);
    let wal = world.create(WalStart::new_log());
    let mut input = input_of(&wal);
    let mut sequence = 0;
    while wal.segments().len() < 3 {
        sequence += 1;
        wal.sync(append(&wal, sequence).unwrap()).unwrap();
    }
    for segment in wal.segments() {
        let (_, written_to) = world.vfs.written(&path(segment.number));
        assert!(written_to <= segment.len, "{written_to} of {segment:?}");
        assert_eq!(world.vfs.read(&path(segment.number)).len() as u64, segment.len);
    }
    input.durable_lsn = wal.durable_lsn();
    let mut odd = Random(3);
    for _ in 0..20 {
        sequence += 1;
        append(&wal, sequence).unwrap();
        let crashed = World::on(world.vfs.crashed(|| odd.next().is_multiple_of(2)));
        let (seen, _) = crashed.reopen(&mut input.clone()).unwrap();
        assert_eq!(seen, groups(1..seen.len() as u64 + 1));
        assert!(seen.len() as u64 >= sequence - 1, "all but the last one were synced");
        wal.sync(wal.end_lsn()).unwrap();
        input.durable_lsn = wal.durable_lsn();
    }
}

#[test]
fn spare_is_filled_if_the_log_is_synced_often() {
    use Operation::{Create, Preallocate, Sync, Write};
    for is_often in [false, true] {
        let world = world(1 << 20);
        let wal = world.create(WalStart::new_log());
        for sequence in 1..=8 {
            let end = append_long(&wal, sequence, 60_000);
            if is_often || sequence == 1 {
                wal.sync(end).unwrap();
            }
        }
        let mut sequence = 8;
        assert!(wal.take_call_for_next() && wal.prepare_next().unwrap() && !wal.prepare_next().unwrap());
        let [spare] = wal.spares()[..] else { panic!("one spare") };
        let making = making(&world, spare);
        if !is_often {
            assert_eq!((making, world.vfs.written(&path(spare))), (vec![Create, Preallocate, Sync], (0, 0)));
            continue;
        }
        assert_eq!(making, [Create, Preallocate, Write, Write, Write, Write, Sync]);
        assert_eq!(world.vfs.written(&path(spare)), (1 << 20, 1 << 20));
        while wal.segments().len() < 2 {
            sequence += 1;
            wal.sync(append_long(&wal, sequence, 60_000)).unwrap();
        }
        assert_eq!(wal.segments().last().unwrap().number, spare);
        let before = (world.vfs.written(&path(spare)).0, wal.end_lsn());
        for sequence in sequence + 1..=sequence + 20 {
            wal.sync(append(&wal, sequence).unwrap()).unwrap();
        }
        assert_eq!(world.vfs.written(&path(spare)).0 - before.0, wal.end_lsn() - before.1);
        assert_eq!(world.replay(&input_of(&wal)).unwrap().0.len() as u64, sequence + 20);
    }
}

#[test]
fn filled_spares_are_recycled() {
    let world = world(16 << 20);
    let wal = world.create(WalStart::new_log());
    let mut flushed = 0;
    let mut numbers = 0;
    for sequence in 1..=400u64 {
        wal.sync(append_long(&wal, sequence, 200_000)).unwrap();
        if wal.take_call_for_next() {
            while wal.prepare_next().unwrap() {}
        }
        if sequence.is_multiple_of(40) {
            wal.release(wal.oldest_needed(flushed));
            flushed = sequence;
        }
        if sequence == 200 {
            numbers = world.next_number.load(Ordering::Relaxed);
        }
    }
    let stats = wal.stats();
    assert_eq!(world.next_number.load(Ordering::Relaxed), numbers, "no file is made any more");
    assert!(stats.segments_recycled > 8, "{stats:?}");
    let waiting: u64 = wal.spares().iter().map(|number| world.vfs.read(&path(*number)).len() as u64).sum();
    assert!(waiting <= 2 * (16 << 20));
    for sequence in 401..=700 {
        append_long(&wal, sequence, 200_000);
        while wal.prepare_next().unwrap() {}
    }
    assert_eq!(wal.segments().last().unwrap().len, 16 << 20);
}
