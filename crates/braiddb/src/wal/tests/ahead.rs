//! Segments made ahead.

use super::*;
use crate::{
    platform::{Runtime, fault_vfs::Operation},
    wal::inspect_segment,
};
use std::io::ErrorKind;
use std::sync::{OnceLock, atomic::AtomicBool};

fn world() -> World {
    let mut world = World::new();
    (world.options.segment_len, world.options.compress_at_len) = (16 << 10, usize::MAX);
    world
}

fn syncs(world: &World) -> usize {
    world.vfs.journal().iter().filter(|(operation, _)| *operation == Operation::Sync).count()
}

/// Payload lengths of a segment's notes.
fn notes_of(world: &World, number: u64) -> (Vec<u32>, crate::wal::SegmentHeader) {
    let mut notes = Vec::new();
    let path = Path::new(DIR).join(format!("{number:06}.wal"));
    let dump = inspect_segment(&world.vfs, &path, &mut |_, record| {
        if record.header.flags.contains(crate::wal::record::RecordFlags::NOTE) {
            notes.push(record.header.stored_len);
        }
        Ok(())
    });
    (notes, dump.unwrap().header)
}

#[test]
fn append_with_segments_made_ahead_never_syncs() {
    let world = world();
    let wal = world.create(WalStart::new_log());
    let mut input = input_of(&wal);
    let (mut made, mut synced_by_appender) = (0, 0);
    for sequence in 1..=3000u64 {
        let before = syncs(&world);
        append(&wal, sequence).unwrap();
        synced_by_appender += syncs(&world) - before;
        let before = made;
        while wal.prepare_next().unwrap() {
            made += 1;
        }
        assert!(made - before <= 3, "no more than the log will need soon");
        if sequence.is_multiple_of(100) {
            let flushed = sequence - 80;
            let (seen, outcome) = world.replay(&input).unwrap();
            assert_eq!(seen, groups(input.flushed + 1..=sequence));
            assert_eq!((outcome.end_lsn, outcome.tail_note), (wal.end_lsn(), None));
            input = RecoveryInput { oldest_segment: Some(wal.oldest_needed(flushed)), flushed, ..input };
            wal.release(wal.oldest_needed(flushed));
        }
    }
    let begun = wal.stats().segments_created + wal.stats().segments_recycled - 1;
    assert!(made >= begun && begun > 20, "{made} made for {begun}");
    assert_eq!(synced_by_appender, 0);
    let (seen, _) = World::on(world.vfs.crashed(|| false)).replay(&input).unwrap();
    assert_eq!(seen, groups(input.flushed + 1..input.flushed + 1 + seen.len() as u64));
    let mut odd = Random(7);
    for _ in 0..20 {
        let crashed = World::on(world.vfs.crashed(|| odd.next().is_multiple_of(2)));
        let (seen, wal) = crashed.reopen(&mut input.clone()).unwrap();
        assert_eq!(seen, groups(input.flushed + 1..input.flushed + 1 + seen.len() as u64));
        append(&wal, 4000).unwrap();
    }
}

/// Exactly the free space, however late the next segment is made.
#[test]
fn note_fills_any_space_before_a_seal() {
    let mut filled = std::collections::BTreeSet::new();
    for (late, rest) in (40..1200usize).map(|rest| (false, rest)).chain((40..240).map(|rest| (true, rest))) {
        let world = world();
        let wal = world.create(WalStart::new_log());
        let first = wal.segments()[0].clone();
        wal.append(&group(1), &vec![1; 12 << 10]).unwrap();
        assert!(late || wal.prepare_next().unwrap());
        let left = (first.start_lsn + first.len - wal.end_lsn()) as usize;
        wal.append(&group(2), &vec![2; left - rest]).unwrap();
        assert!(!late || wal.segments().len() > 1 || wal.prepare_next().unwrap());
        for sequence in 3..6 {
            wal.append(&group(sequence), &[3; 1200]).unwrap();
        }
        let seen = world.replay(&input_of(&wal)).unwrap().0;
        assert_eq!(seen.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        let (notes, _) = notes_of(&world, first.number);
        filled.extend(notes);
    }
    assert!((45..950).all(|len| filled.contains(&len)), "{filled:?}");
}

#[test]
fn segment_made_before_a_sync_is_made_again() {
    let world = world();
    let wal = world.create(WalStart::new_log());
    let mut sequence = 0;
    let mut append_until = |segments: usize| {
        while wal.segments().len() < segments {
            sequence += 1;
            append(&wal, sequence).unwrap();
            wal.prepare_next().unwrap();
        }
    };
    append_until(2);
    let second = wal.segments()[1].number;
    let made_ahead = notes_of(&world, second).1;
    assert_eq!(made_ahead.start_lsn, wal.segments()[0].start_lsn + wal.segments()[0].len);
    for _ in 0..40 {
        sequence += 1;
        append(&wal, sequence).unwrap();
        wal.prepare_next().unwrap();
    }
    assert_eq!(wal.segments().len(), 2);
    let durable = wal.sync(wal.end_lsn()).unwrap();
    while wal.segments().len() < 3 {
        sequence += 1;
        append(&wal, sequence).unwrap();
    }
    assert_eq!(notes_of(&world, wal.segments()[2].number).1.durable_lsn, durable);
    assert_eq!(world.replay(&input_of(&wal)).unwrap().0, groups(1..=sequence));
}

#[test]
fn large_space_is_not_filled_and_long_group_gets_long_segment() {
    for long in [4000, 40_000] {
        let world = world();
        let wal = world.create(WalStart::new_log());
        wal.append(&group(1), &vec![1; 13 << 10]).unwrap();
        assert!(wal.prepare_next().unwrap());
        wal.append(&group(2), &vec![2; long]).unwrap();
        let first = wal.segments()[0].number;
        assert_eq!(notes_of(&world, first).0, Vec::<u32>::new());
        assert_eq!(world.replay(&input_of(&wal)).unwrap().0.len(), 2);
        assert_eq!(wal.trim_spares(), usize::from(long > 10_000), "it was used otherwise, or waits");
    }
}

#[test]
fn prepare_next_failure_latches_only_after_a_failed_sync() {
    for (operation, kind, latches) in [
        (Operation::Preallocate, ErrorKind::StorageFull, false),
        (Operation::Sync, ErrorKind::Other, true),
        (Operation::Write, ErrorKind::StorageFull, false),
    ] {
        let world = world();
        let wal = world.create(WalStart::new_log());
        wal.append(&group(1), &vec![1; 8 << 10]).unwrap();
        world.vfs.fail(operation, 0, 1, kind);
        assert!(wal.prepare_next().is_err());
        assert_eq!(wal.failure().is_some(), latches, "{operation:?}");
        assert_eq!(append(&wal, 2).is_err(), latches);
        if !latches {
            assert!(wal.prepare_next().unwrap(), "tried again");
            assert_eq!(world.replay(&input_of(&wal)).unwrap().0.len(), 2);
        }
    }
}

#[test]
fn segment_end_on_full_disk_is_written_later() {
    for after in 0..3 {
        let world = world();
        let wal = world.create(WalStart::new_log());
        wal.append(&group(1), &vec![1; 15 << 10]).unwrap();
        assert!(wal.prepare_next().unwrap());
        world.vfs.fail_written(Operation::Write, after, 1, ErrorKind::StorageFull, 30);
        assert!(wal.append(&group(2), &[2; 900]).unwrap_err().is_disk_full());
        assert_eq!(world.replay(&input_of(&wal)).unwrap().0.len(), 1);
        wal.append(&group(2), &[2; 900]).unwrap();
        assert_eq!(world.replay(&input_of(&wal)).unwrap().0.len(), 2);
        assert_eq!(wal.segments().len(), 2);
    }
}

/// Files are recycled under their numbers.
#[test]
fn segment_made_ahead_does_not_follow_a_reuse_of_the_previous_file() {
    let world = world();
    let wal: Arc<OnceLock<Wal>> = Arc::default();
    let (is_armed, sequence) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut context = world.context();
    let numbers = context.next_file_number.clone();
    let file_of = |wal: &Wal| wal.segments().last().unwrap().number;
    context.next_file_number = {
        let (wal, is_armed, sequence) = (Arc::clone(&wal), Arc::clone(&is_armed), Arc::clone(&sequence));
        Arc::new(move || {
            if is_armed.swap(false, Ordering::Relaxed)
                && let Some(wal) = wal.get()
            {
                let (file, mut has_left) = (file_of(wal), false);
                while !has_left || file_of(wal) != file {
                    let next = sequence.fetch_add(1, Ordering::Relaxed) + 1;
                    append(wal, next).unwrap();
                    wal.release(wal.oldest_needed(next));
                    has_left |= file_of(wal) != file;
                }
            }
            numbers()
        })
    };
    let wal = wal.get_or_init(|| Wal::create(context, world.options.clone(), WalStart::new_log()).unwrap());
    while !wal.take_call_for_next() {
        append(wal, sequence.fetch_add(1, Ordering::Relaxed) + 1).unwrap();
    }
    is_armed.store(true, Ordering::Relaxed);
    assert!(wal.prepare_next().unwrap());
    assert!(!is_armed.load(Ordering::Relaxed), "the log went on meanwhile");
    let first = wal.segments().pop().unwrap();
    let flushed = first.last_sequence;
    let input = RecoveryInput { oldest_segment: Some(first.number), durable_lsn: 0, flushed, is_to_sync: true };
    for _ in 0..500 {
        append(wal, sequence.fetch_add(1, Ordering::Relaxed) + 1).unwrap();
    }
    let (seen, outcome) = world.replay(&input).unwrap();
    assert_eq!(outcome.end_lsn, wal.end_lsn());
    assert_eq!(seen.last().map(|(last, _)| *last), Some(sequence.load(Ordering::Relaxed)));
}

#[derive(Debug, Default)]
struct SetClock(AtomicU64);

impl Runtime for SetClock {
    fn unix_time_us(&self) -> u64 {
        1_000_000
    }

    fn monotonic_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn random_u64(&self) -> u64 {
        SystemRuntime::new().random_u64()
    }

    fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> std::io::Result<std::thread::JoinHandle<()>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn sleep_us(&self, _: u64) {}

    fn process_name(&self) -> String {
        String::new()
    }
}

/// The first segment is three quarters full after `ms` milliseconds. Returns also the number of
/// segments made ahead.
fn made_after(world: &World, ms: u64) -> (Wal, usize) {
    let clock = Arc::new(SetClock::default());
    let context = WalContext { runtime: Arc::clone(&clock) as Arc<dyn Runtime>, ..world.context() };
    let wal = Wal::create(context, world.options.clone(), WalStart::new_log()).unwrap();
    wal.append(&group(1), &vec![1; 12 << 10]).unwrap();
    clock.0.store(ms * 1_000_000, Ordering::Relaxed);
    let mut made = 0;
    while wal.prepare_next().unwrap() {
        made += 1;
    }
    (wal, made)
}

#[test]
fn segments_made_ahead_match_the_fill_rate() {
    for (ms, expected) in [(0, 3), (50, 3), (150, 3), (200, 2), (300, 2), (500, 1), (60_000, 1)] {
        assert_eq!(made_after(&world(), ms).1, expected, "{ms} ms");
    }
}

#[test]
fn segments_made_ahead_follow_each_other() {
    let world = world();
    let (wal, made) = made_after(&world, 1);
    assert_eq!(made, 3);
    let before = syncs(&world);
    let mut sequence = 1;
    while wal.segments().len() < 4 {
        sequence += 1;
        append(&wal, sequence).unwrap();
    }
    assert_eq!(syncs(&world), before, "all that was needed was there");
    let segments = wal.segments();
    assert!(segments.windows(2).all(|pair| pair[0].start_lsn + pair[0].len == pair[1].start_lsn), "{segments:?}");
    let (seen, outcome) = world.replay(&input_of(&wal)).unwrap();
    assert_eq!((seen.len() as u64, outcome.end_lsn), (sequence, wal.end_lsn()));
    assert_eq!(seen[1..], groups(2..=sequence)[..]);
}

#[test]
fn recovery_ignores_segments_that_the_log_never_reached() {
    let world = world();
    let (wal, made) = made_after(&world, 1);
    assert_eq!(made, 3);
    append(&wal, 2).unwrap();
    let mut input = input_of(&wal);
    drop(wal);
    let (seen, outcome) = world.replay(&input).unwrap();
    assert_eq!((seen.len(), outcome.unneeded.len(), outcome.ambiguous_tail), (2, 3, false));
    let (seen, wal) = world.reopen(&mut input).unwrap();
    assert_eq!(seen.len(), 2);
    append(&wal, 3).unwrap();
    assert_eq!(world.replay(&input).unwrap().0.len(), 3);
}

/// Makes useless all segments made ahead: a group that needs a longer one, or a sync.
#[test]
fn unsuitable_segment_made_ahead_drops_all_later_ones() {
    for is_synced in [false, true] {
        let world = world();
        let (wal, made) = made_after(&world, 1);
        assert_eq!(made, 3);
        if is_synced {
            wal.sync(wal.end_lsn()).unwrap();
        }
        wal.append(&group(2), &vec![2; if is_synced { 8 << 10 } else { 40 << 10 }]).unwrap();
        let (seen, outcome) = world.replay(&input_of(&wal)).unwrap();
        assert_eq!((seen.len(), outcome.end_lsn), (2, wal.end_lsn()));
        let left = wal.spares().len();
        assert_eq!(left, if is_synced { 2 } else { 3 });
        assert_eq!(wal.trim_spares(), left, "nothing waits to follow");
    }
}
