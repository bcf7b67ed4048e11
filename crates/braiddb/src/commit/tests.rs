use super::*;
use crate::base::{EntryKind, ReaderKind};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

fn prepared(batch: RawBatch) -> Vec<(u64, EntryKind, Vec<u8>, Vec<u8>)> {
    let prepared = batch.prepare().unwrap();
    let mut out = Vec::new();
    decode_group(prepared.bytes(), |i, op| out.push((i, op.kind, op.key.to_vec(), op.value.to_vec()))).unwrap();
    out
}

#[test]
fn batch_writes_to_one_key_collapse_to_the_last() {
    let mut batch = RawBatch::default();
    batch.push(EntryKind::Value, &[b"tree", b"b"], b"1");
    batch.push(EntryKind::Value, &[b"tree", b"a"], b"2");
    batch.push(EntryKind::Tombstone, &[b"tree", b"b"], b"");
    batch.push(EntryKind::Value, &[b"tree", b"a"], b"3");
    assert_eq!(
        prepared(batch),
        [(0, EntryKind::Value, b"treea".to_vec(), b"3".to_vec()), (0, EntryKind::Tombstone, b"treeb".to_vec(), vec![])]
    );
}

#[test]
fn batch_range_delete_removes_only_earlier_writes() {
    let mut batch = RawBatch::default();
    batch.push(EntryKind::Value, &[b"tree", b"a"], b"1");
    batch.push(EntryKind::Value, &[b"tree", b"c"], b"1");
    batch.push(EntryKind::RangeDelete, &[b"tree", b"a"], b"treec");
    batch.push(EntryKind::Value, &[b"tree", b"b"], b"2");
    assert_eq!(
        prepared(batch),
        [
            (0, EntryKind::RangeDelete, b"treea".to_vec(), b"treec".to_vec()),
            (0, EntryKind::Value, b"treeb".to_vec(), b"2".to_vec()),
            (0, EntryKind::Value, b"treec".to_vec(), b"1".to_vec())
        ]
    );
}

#[test]
fn decode_group_refuses_damage() {
    let mut batch = RawBatch::default();
    batch.push(EntryKind::Value, &[b"tree", b"a"], b"1");
    let bytes = batch.prepare().unwrap().bytes().to_vec();
    for len in 1..bytes.len() {
        assert_eq!(decode_group(&bytes[..len], |_, _| {}), None);
    }
    assert_eq!(decode_group(&bytes, |_, _| {}), Some(1));
    let mut reserved = bytes;
    reserved[0] |= 1;
    assert_eq!(decode_group(&reserved, |_, _| {}), None);
}

#[test]
fn batch_encoding_is_stable() {
    let mut batch = RawBatch::default();
    batch.push(EntryKind::Value, &[b"tree", b"b"], b"12");
    batch.push(EntryKind::Tombstone, &[b"tree", b"a"], b"");
    let bytes = batch.prepare().unwrap().bytes().to_vec();
    assert_eq!(bytes, b"\x04\x02\x05treea\x01\x05treeb\x0212");
}

#[test]
fn strata_are_the_snapshots_and_the_visible_number() {
    let list = SnapshotList::new(5);
    let five = list.acquire(ReaderKind::Cursor, || (70, 0));
    list.publish(9);
    let oldest = Seen { kind: ReaderKind::Cursor, sequence: 5, taken_ns: 70, is_expired: false };
    assert_eq!((list.strata(), list.in_use()), (vec![5, 9], (1, Some(oldest))));
    // Neither another handle, nor a clock that is behind, nor a larger limit revives an expired
    // reader.
    list.acquire_again(&five);
    list.release(&five);
    assert_eq!(list.strata(), [5, 9]);
    list.release(&five);
    assert_eq!((list.strata(), list.in_use()), (vec![9], (0, None)));
}

#[test]
fn readers_taken_before_a_moment_expire_and_pin_nothing() {
    let list = SnapshotList::new(5);
    let acquire = |now_ns| {
        let held = list.acquire(ReaderKind::Snapshot, || (now_ns, 0));
        list.publish(held.sequence + 1);
        held
    };
    let sequences = |seen: &[Seen]| seen.iter().map(|seen| (seen.sequence, seen.is_expired)).collect::<Vec<_>>();
    let [five, six, seven] = [100, 200, 300].map(acquire);
    let looked = list.check_ages(350, 200, 250);
    assert_eq!(sequences(&looked.overstaying), [(5, false)]);
    assert_eq!(
        list.check_ages(350, 200, 250),
        AgedReaders::default(),
        "each is reported once, and an age at the limit is within it"
    );
    let looked = list.check_ages(351, 200, 250);
    assert_eq!((sequences(&looked.expired), sequences(&looked.overstaying)), (vec![(5, true)], vec![]));
    assert_eq!(list.check_ages(351, 200, 250), AgedReaders::default());
    assert_eq!([five, six, seven].map(|held| list.is_expired(&held)), [true, false, false]);
    assert_eq!((list.strata(), list.in_use().0), (vec![6, 7, 8], 2));
    assert_eq!(sequences(&list.oldest(200, 9)), [(6, false), (5, true)]);
    assert_eq!(sequences(&list.oldest(300, 1)), [(6, false), (5, true)]);
    list.acquire_again(&five);
    list.release(&five);
    list.check_ages(340, 200, 1000);
    assert!(list.is_expired(&five) && !list.is_expired(&six));
    assert_eq!(list.strata(), [6, 7, 8]);
    list.check_ages(900, 1000, 0);
    let late = list.acquire(ReaderKind::Snapshot, || (500, 0));
    assert!(list.is_expired(&seven) && !list.is_expired(&late));
    assert_eq!((late.taken_ns, list.strata()), (900, vec![8]));
    for held in [five, six, seven, late] {
        list.release(&held);
    }
    assert_eq!((list.oldest(u64::MAX, 9), list.in_use()), (vec![], (0, None)));
}

#[test]
fn commit_queue_answers_each_request_once_without_overlap() {
    let queue = Arc::new(CommitQueue::<u64, u64>::default());
    let busy = Arc::new(AtomicBool::new(false));
    let sum = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..8u64)
        .map(|t| {
            let (queue, busy, sum) = (Arc::clone(&queue), Arc::clone(&busy), Arc::clone(&sum));
            #[expect(clippy::disallowed_methods, reason = "a test of threads")]
            std::thread::spawn(move || {
                for i in 0..2_000 {
                    let request = t * 1_000_000 + i;
                    let answer = queue.submit(
                        request,
                        64,
                        |_| 16,
                        |_| (),
                        |group, answer| {
                            assert!(!busy.swap(true, Ordering::AcqRel));
                            assert!(group.len() <= 6, "a group of {}", group.len());
                            sum.fetch_add(group.iter().sum::<u64>(), Ordering::Relaxed);
                            busy.store(false, Ordering::Release);
                            group.iter().for_each(|r| answer(r + 1));
                        },
                    );
                    assert_eq!(answer, Some(request + 1));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let expected: u64 = (0..8u64).map(|t| (0..2_000).map(|i| t * 1_000_000 + i).sum::<u64>()).sum();
    assert_eq!(sum.load(Ordering::Relaxed), expected);
}

/// A leader that panicked left its group parked forever.
#[test]
fn commit_queue_after_a_leader_panic_notifies_members_and_continues() {
    let queue = Arc::new(CommitQueue::<u64, u64>::default());
    let (answers, answered) = std::sync::mpsc::channel();
    let queue_and_answers = (Arc::clone(&queue), answers);
    #[expect(clippy::disallowed_methods, reason = "a test of threads")]
    let submit_in_thread = move |request: u64| {
        let (queue, answers) = queue_and_answers.clone();
        std::thread::spawn(move || {
            let commit = |group: &mut [u64], answer: &mut dyn FnMut(u64)| {
                if group[0] == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(200));
                } else if group.len() > 1 {
                    panic!("on purpose");
                }
                group.iter().for_each(|r| answer(*r));
            };
            let answer = catch_unwind(AssertUnwindSafe(|| queue.submit(request, 64, |_| 1, |_| (), commit)));
            answers.send((request, answer.ok())).unwrap();
        });
    };
    submit_in_thread(0);
    #[expect(clippy::disallowed_methods, reason = "a test of threads")]
    std::thread::sleep(std::time::Duration::from_millis(50));
    (1..5).for_each(&submit_in_thread);
    let mut all: Vec<_> = (0..5)
        .map(|_| answered.recv_timeout(std::time::Duration::from_secs(20)).expect("no thread stays parked"))
        .collect();
    all.sort_unstable();
    assert_eq!(all[0], (0, Some(Some(0))));
    assert_eq!(all.iter().filter(|(_, answer)| answer.is_none()).count(), 1, "the leader panics: {all:?}");
    assert!(all.iter().any(|(_, answer)| *answer == Some(None)), "its members are notified: {all:?}");
    assert_eq!(queue.submit(9, 64, |_| 1, |_| (), |group, answer| answer(group[0])), Some(9));
}

#[test]
fn reader_times_never_decrease_and_jobs_use_the_oldest() {
    let list = SnapshotList::new(5);
    let take = |now_us| list.acquire(ReaderKind::Snapshot, || (0, now_us));
    let first = take(100);
    let second = take(90);
    assert_eq!((first.taken_us, second.taken_us), (100, 100), "a clock that another thread has read before");
    assert_eq!(list.expired_by(300), 100);
    list.release(&first);
    assert_eq!(list.expired_by(250), 100);
    list.release(&second);
    // A job may have dropped values expired by 300, so later readers must not see them.
    assert_eq!(list.expired_by(200), 300);
    let third = take(150);
    assert_eq!((third.taken_us, list.expired_by(900)), (300, 300));
}

/// A burst of snapshots kept the memory of its peak until the close.
#[test]
fn list_of_readers_shrinks_after_a_burst_of_snapshots() {
    let list = SnapshotList::new(5);
    let acquire = || list.acquire(ReaderKind::Snapshot, || (1, 1));
    for is_oldest_first in [true, false] {
        let mut held: Vec<_> = (0..100_000).map(|_| acquire()).collect();
        assert!(list.capacity() >= 100_000);
        if !is_oldest_first {
            held.reverse();
        }
        let kept = held.split_off(99_990);
        held.iter().for_each(|held| list.release(held));
        assert!(list.capacity() <= 64, "{} places for ten readers", list.capacity());
        assert_eq!(list.in_use().0, 10);
        kept.iter().for_each(|held| list.release(held));
        assert_eq!(list.in_use().0, 0);
    }
}
