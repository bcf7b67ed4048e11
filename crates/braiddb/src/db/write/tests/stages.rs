//! The stages of the commit pipeline on small parts: a log in memory, a memtable, the list of
//! snapshots. No test opens a database.

use crate::{
    base::{EntryKind, Error, MAX_SEQUENCE, ReaderKind, Result, SequenceNumber},
    codec::{Base, MergeFunction, MergeFunctions, Operand, encode_operands},
    commit::{NOTHING, PreparedBatch, RawBatch, SnapshotList, decode_group},
    db::{
        engine::{
            parts::{
                commits::{Answer, CommitPipeline, Committed, ExclusiveOwner, Request, WriteState},
                health::Health,
                pressure::FROZEN_MAX,
            },
            wal_notify::Watches,
        },
        record::version_tags::VersionTags,
        write::{
            backpressure::has_no_room,
            stages::{self, Applied, Parts, Room},
        },
    },
    memtable::{Memtable, MemtableOptions},
    platform::{
        SystemRuntime,
        fault_vfs::{FaultVfs, Operation},
    },
    txn::{Check, ReadSet, Validation},
    wal::{Lsn, RecoveryInput, Visit, Wal, WalContext, WalOptions, WalStart, recover},
};
use std::{
    cell::Cell,
    io::ErrorKind,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

const DIR: &str = "/db";

const TREE: [u8; 4] = [0, 0, 0, 1];

/// Gets an append and its error, and may repeat it.
type Retry<'a> = &'a dyn Fn(&mut dyn FnMut() -> Result<Lsn>, Error) -> Result<Lsn>;

type Lead<'a> = &'a (dyn Fn(&mut [Request], &mut dyn FnMut(Result<Answer>)) + Sync);

/// The parts of a commit pipeline.
struct Rig {
    vfs: FaultVfs,
    commits: CommitPipeline,
    drops: AtomicU64,
    closing: AtomicBool,
    wal: Arc<Wal>,
    memtable: Memtable,
    functions: MergeFunctions,
    snapshots: Arc<SnapshotList>,
    health: Health,
    runtime: SystemRuntime,
}

fn memtable() -> Memtable {
    Memtable::new(MemtableOptions { arena_chunk_bytes: 4096, filter_bytes: 1024, chunk_pool: None })
}

fn internal(key: &[u8]) -> Vec<u8> {
    [&TREE, key].concat()
}

fn batch(kind: EntryKind, key: &[u8], value: &[u8]) -> PreparedBatch {
    let mut batch = RawBatch::default();
    batch.push(kind, &[&TREE, key], value);
    batch.prepare().unwrap()
}

fn request_of(batch: PreparedBatch) -> Request {
    Request { batch, ..Request::default() }
}

fn put(key: &[u8], value: &[u8]) -> Request {
    request_of(batch(EntryKind::Value, key, value))
}

/// A put by a transaction that read `key` and knows all commits up to `upto`.
fn put_after_read(key: &[u8], upto: SequenceNumber, written: &[u8]) -> Request {
    let mut reads = ReadSet::default();
    reads.add_key(&internal(key));
    Request { check: Some(Box::new(Check::new(reads, upto, None))), ..put(written, b"of a transaction") }
}

impl Rig {
    fn new() -> Rig {
        let vfs = FaultVfs::new(Path::new(DIR));
        let next_number = AtomicU64::new(1);
        let context = WalContext {
            vfs: Arc::new(vfs.clone()),
            dir: DIR.into(),
            runtime: Arc::new(SystemRuntime::new()),
            next_file_number: Arc::new(move || next_number.fetch_add(1, Ordering::Relaxed)),
            pre_sync: None,
        };
        let options = WalOptions { segment_len: 64 << 10, ..WalOptions::default() };
        Rig {
            wal: Arc::new(Wal::create(context, options, WalStart::new_log()).unwrap()),
            vfs,
            commits: CommitPipeline::new(0, 1 << 20, VersionTags::new(0), false, u64::MAX),
            drops: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            memtable: memtable(),
            functions: MergeFunctions::default(),
            snapshots: Arc::default(),
            health: Health::new(false, None),
            runtime: SystemRuntime::new(),
        }
    }

    /// Runs the leader's stages.
    fn commit_with(
        &self,
        write: &mut WriteState,
        group: &mut [Request],
        drops: u64,
        retry: Retry<'_>,
    ) -> Result<Applied> {
        self.health.check_writable()?;
        let parts = Parts {
            window: &self.commits.window,
            tree_ends: &self.commits.tree_ends,
            wal: &self.wal,
            memtable: &self.memtable,
            functions: &self.functions,
            snapshots: &self.snapshots,
            unlogged: &self.commits.unlogged,
            runtime: &self.runtime,
            poison: &|e| _ = self.health.poison(&e.to_string(), false),
        };
        let is_logged = !group.iter().all(|request| request.is_unlogged);
        stages::commit(&parts, write, group, drops, is_logged, |_, append, e| retry(append, e))
    }

    fn commit(&self, group: &mut [Request]) -> Result<Applied> {
        self.commit_with(&mut self.commits.write.lock(), group, 0, &|_, e| Err(e))
    }

    fn lead(&self, group: &mut [Request], answer: &mut dyn FnMut(Result<Answer>), is_to_part: bool) {
        let commit = |write: &mut WriteState, group: &mut [Request], drops| {
            self.commit_with(write, group, drops, &|_, e| Err(e)).map(|applied| applied.first)
        };
        let (write, drops) = (self.commits.write.lock(), &self.drops);
        stages::lead(write, drops, &self.closing, group, answer, commit, |_| is_to_part);
    }

    fn answers(&self, group: &mut [Request], is_to_part: bool) -> Vec<Result<Answer>> {
        let mut answers = Vec::new();
        self.lead(group, &mut |answer| answers.push(answer), is_to_part);
        answers
    }

    fn submit(&self, request: Request) -> Result<Committed> {
        self.submit_with(request, |_| Ok(()))
    }

    fn submit_with(&self, request: Request, prepare: impl FnMut(&mut Request) -> Result<()>) -> Result<Committed> {
        stages::submit(&self.commits.queue, request, prepare, |_| (), |group, answer| self.lead(group, answer, false))
    }

    /// Submits `first`, and `others` in their order once it leads. They wait until then.
    fn commit_behind(&self, first: Request, others: Vec<Request>, lead: Lead<'_>) -> Vec<Result<Committed>> {
        let queue = &self.commits.queue;
        thread::scope(|scope| {
            let (others, waiting) = (Cell::new(others), Cell::new(Vec::new()));
            let first = stages::submit(
                queue,
                first,
                |_| Ok(()),
                |_| (),
                |group, answer| {
                    let mut threads = Vec::new();
                    for other in others.take() {
                        let thread = scope.spawn(move || stages::submit(queue, other, |_| Ok(()), |_| (), lead));
                        while queue.waiting() <= threads.len() && !thread.is_finished() {
                            thread::yield_now();
                        }
                        threads.push(thread);
                    }
                    waiting.set(threads);
                    lead(group, answer);
                },
            );
            let others = waiting.take().into_iter().map(|thread| thread.join().unwrap());
            [first].into_iter().chain(others).collect()
        })
    }

    fn sync(&self, lsn: Lsn) -> Result<()> {
        let fail = |e: &Error| _ = self.health.poison(&e.to_string(), false);
        stages::after_sync(self.wal.sync(lsn), &Watches::default(), fail)
    }

    fn open_window(&self) {
        assert!(!self.commits.window.join());
        self.commits.window.open(self.commits.write.lock().last_sequence);
    }

    fn last_sequence(&self) -> SequenceNumber {
        self.commits.write.lock().last_sequence
    }

    /// The value of a key in the memtable at a snapshot.
    fn value_at(&self, key: &[u8], snapshot: SequenceNumber) -> Option<Vec<u8>> {
        self.memtable.get(&internal(key), snapshot).map(|entry| entry.value.to_vec())
    }

    fn newest(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.value_at(key, MAX_SEQUENCE)
    }

    /// First number, last number and payload of each record in the log.
    fn records(&self) -> Vec<(SequenceNumber, SequenceNumber, Vec<u8>)> {
        let mut records = Vec::new();
        let input = RecoveryInput {
            oldest_segment: Some(self.wal.oldest_segment()),
            durable_lsn: self.wal.durable_lsn(),
            flushed: 0,
            is_to_sync: false,
        };
        recover(&self.vfs, Path::new(DIR), &input, &mut |info, payload| {
            records.push((info.first_sequence, info.last_sequence, payload.to_vec()));
            Ok(Visit::Taken)
        })
        .unwrap();
        records
    }

    fn spans(&self) -> Vec<(SequenceNumber, SequenceNumber)> {
        self.records().into_iter().map(|(first, last, _)| (first, last)).collect()
    }
}

fn committed(answer: &Result<Answer>) -> Option<SequenceNumber> {
    match answer {
        Ok(Answer::Committed(committed)) => Some(committed.sequence),
        _ => None,
    }
}

fn sequences(done: Vec<Result<Committed>>) -> Vec<SequenceNumber> {
    done.into_iter().map(|committed| committed.unwrap().sequence).collect()
}

// Admission.

#[test]
fn batch_above_a_log_record_is_refused() {
    assert!(stages::check_len(1 << 31).is_ok());
    assert!(matches!(stages::check_len((1 << 31) + 1), Err(Error::InvalidArgument(_))));
}

#[test]
fn memtable_at_its_limit_freezes() {
    assert_eq!(stages::room(99, 100, || false), Room::Enough);
    assert_eq!(stages::room(99, 100, || true), Room::FreezeLargest);
    assert_eq!(stages::room(100, 100, || unreachable!("a full memtable freezes in any case")), Room::Freeze);
}

#[test]
fn frozen_memtables_stop_writers_by_count_or_size() {
    let filled = || {
        let memtable = memtable();
        memtable.writer().insert(&internal(b"k"), 1, EntryKind::Value, &[7; 1000]);
        Arc::new(memtable)
    };
    let bytes = filled().bytes_used();
    let frozen: Vec<_> = (0..FROZEN_MAX).map(|_| filled()).collect();
    assert!(!has_no_room(&[], || 0), "a writer never waits for a flush that is not due");
    assert!(!has_no_room(&frozen[..1], || bytes + 1));
    assert!(has_no_room(&frozen[..1], || bytes));
    assert!(has_no_room(&frozen, || usize::MAX));
}

// Groups.

#[test]
fn requests_that_wait_for_a_leader_become_one_record() {
    let rig = Rig::new();
    let others = [b"2", b"3", b"4"].map(|key| put(key, b"v"));
    let done = rig.commit_behind(put(b"1", b"v"), others.into(), &|group, answer| rig.lead(group, answer, false));
    assert_eq!(sequences(done), [1, 2, 3, 4]);
    assert_eq!(rig.spans(), [(1, 1), (2, 4)]);
}

#[test]
fn group_above_its_size_takes_no_further_request() {
    let rig = Rig::new();
    let long = vec![7; 400 << 10];
    let others = [b"2", b"3", b"4", b"5"].map(|key| put(key, &long));
    let sizes = Mutex::new(Vec::new());
    let lead = |group: &mut [Request], answer: &mut dyn FnMut(_)| {
        sizes.lock().unwrap().push(group.len());
        rig.lead(group, answer, false);
    };
    let done = rig.commit_behind(put(b"1", b"v"), others.into(), &lead);
    assert_eq!(sequences(done), [1, 2, 3, 4, 5]);
    assert_eq!(*sizes.lock().unwrap(), [1, 3, 1], "the third one exceeds 1 MiB");
}

#[test]
fn commit_submitted_during_another_is_published_after_it() {
    let rig = Rig::new();
    let seen = Mutex::new(Vec::new());
    let lead = |group: &mut [Request], answer: &mut dyn FnMut(_)| {
        seen.lock().unwrap().push((rig.snapshots.visible(), rig.spans().len()));
        rig.lead(group, answer, false);
    };
    // The second one is ready while the first one has not even a number.
    let done = rig.commit_behind(put(b"1", b"first"), vec![put(b"1", b"second")], &lead);
    assert_eq!(sequences(done), [1, 2]);
    assert_eq!(*seen.lock().unwrap(), [(0, 0), (1, 1)]);
    assert_eq!([1, 2].map(|at| rig.value_at(b"1", at)), [Some(b"first".to_vec()), Some(b"second".to_vec())]);
}

#[test]
fn failed_request_leaves_the_queue_usable() {
    let rig = Rig::new();
    let refuse = |_: &mut Request| Err(Error::InvalidArgument("its tree was dropped".to_owned()));
    assert!(matches!(rig.submit_with(put(b"1", b"v"), refuse), Err(Error::InvalidArgument(_))));
    let is_first = Cell::new(true);
    let lead = |group: &mut [Request], answer: &mut dyn FnMut(_)| match is_first.replace(false) {
        // As `try_commit_group` does if a memtable cannot be frozen.
        true => stages::lead(
            rig.commits.write.lock(),
            &rig.drops,
            &rig.closing,
            group,
            answer,
            |_, _, _| Err(Error::Closed),
            |_| false,
        ),
        false => rig.lead(group, answer, false),
    };
    let submit = || stages::submit(&rig.commits.queue, put(b"1", b"v"), |_| Ok(()), |_| (), lead);
    assert!(matches!(submit(), Err(Error::Closed)));
    assert_eq!((rig.last_sequence(), rig.snapshots.visible()), (0, 0));
    assert_eq!(submit().unwrap().sequence, 1);
}

#[test]
fn error_of_a_group_reaches_each_member() {
    let rig = Rig::new();
    rig.vfs.fail(Operation::Write, 0, 1, ErrorKind::Other);
    let answers = rig.answers(&mut [put(b"1", b"v"), put(b"2", b"v")], false);
    assert!(answers.len() == 2 && answers.iter().all(|answer| matches!(answer, Err(Error::CommitUnknown { .. }))));
}

#[test]
fn group_during_an_exclusive_transaction_returns_whole() {
    let rig = Rig::new();
    let owner = ExclusiveOwner { ticket: 1, began_ns: 0, began_by: thread::current() };
    rig.commits.write.lock().exclusive = Some(owner);
    let mut group = [put(b"1", b"v"), put(b"2", b"v")];
    let bytes: Vec<_> = group.iter().map(|request| request.batch.bytes().to_vec()).collect();
    let answers = rig.answers(&mut group, false);
    let returned = answers.iter().map(|answer| match answer {
        Ok(Answer::Retry(request)) => request.batch.bytes().to_vec(),
        other => panic!("{other:?}"),
    });
    assert_eq!(returned.collect::<Vec<_>>(), bytes);
    assert_eq!((rig.last_sequence(), rig.spans()), (0, vec![]));
    // A close does not wait for the transaction.
    rig.closing.store(true, Ordering::Relaxed);
    assert_eq!(rig.answers(&mut [put(b"1", b"v")], false).iter().map(committed).collect::<Vec<_>>(), [Some(1)]);
}

#[test]
fn deletes_of_a_group_on_a_full_disk_are_retried_alone() {
    for is_to_part in [true, false] {
        let rig = Rig::new();
        rig.vfs.fail(Operation::Write, 0, 1, ErrorKind::StorageFull);
        let delete = request_of(batch(EntryKind::Tombstone, b"2", b""));
        let answers = rig.answers(&mut [put(b"1", b"v"), delete], is_to_part);
        assert!(answers[0].as_ref().is_err_and(Error::is_disk_full));
        let is_retried = matches!(&answers[1], Ok(Answer::Retry(request)) if request.batch.frees_space());
        assert_eq!(is_retried, is_to_part, "{answers:?}");
        assert!(is_to_part || answers[1].as_ref().is_err_and(Error::is_disk_full));
    }
}

// Sequence numbers.

#[test]
fn request_from_before_a_tree_drop_gets_no_number() {
    let rig = Rig::new();
    rig.drops.store(1, Ordering::Relaxed);
    let current = |key| Request { drops: 1, ..put(key, b"v") };
    let answers = rig.answers(&mut [current(b"1"), put(b"2", b"v"), current(b"3")], false);
    assert_eq!(answers.iter().map(committed).collect::<Vec<_>>(), [Some(1), None, Some(2)]);
    assert!(
        matches!(&answers[1], Ok(Answer::Retry(request)) if *request.batch.bytes() == *put(b"2", b"v").batch.bytes())
    );
    assert_eq!(rig.spans(), [(1, 2)]);
    assert_eq!(rig.newest(b"2"), None);
}

#[test]
fn group_without_valid_requests_uses_no_number() {
    let rig = Rig::new();
    rig.commit(&mut [put(b"1", b"v")]).unwrap();
    let applied = rig.commit(&mut [Request { drops: 9, ..put(b"2", b"v") }]).unwrap();
    assert_eq!((applied.count, applied.first.sequence, rig.last_sequence()), (0, 1, 1));
    assert_eq!(rig.spans(), [(1, 1)]);
}

// Validation.

#[test]
fn conflict_leaves_no_trace() {
    let rig = Rig::new();
    rig.open_window();
    rig.commit(&mut [put(b"read", b"by another")]).unwrap();
    let (visible, spans) = (rig.snapshots.visible(), rig.spans());
    let answers = rig.answers(&mut [put_after_read(b"read", 0, b"written")], false);
    assert!(matches!(answers[..], [Ok(Answer::Changed)]));
    assert_eq!((rig.snapshots.visible(), rig.spans(), rig.newest(b"written")), (visible, spans, None));
    assert_eq!(rig.last_sequence(), 1);
    // Nor does its write conflict with others.
    let answers = rig.answers(&mut [put_after_read(b"written", 0, b"other")], false);
    assert_eq!(committed(&answers[0]), Some(2));
}

#[test]
fn write_earlier_in_the_group_is_a_conflict() {
    let rig = Rig::new();
    rig.open_window();
    let group = &mut [put(b"k", b"v"), put_after_read(b"k", 0, b"a"), put_after_read(b"other", 0, b"b")];
    let answers = rig.answers(group, false);
    assert_eq!(committed(&answers[0]), Some(1));
    assert!(matches!(answers[1], Ok(Answer::Changed)));
    assert_eq!(committed(&answers[2]), Some(2));
    assert_eq!((rig.newest(b"a"), rig.spans()), (None, vec![(1, 2)]));
}

#[test]
fn validation_with_a_short_window_repeats_until_it_reaches() {
    let rig = Rig::new();
    rig.commit(&mut [put(b"1", b"v"), put(b"2", b"v")]).unwrap();
    rig.open_window();
    let tries = Cell::new(0);
    // The window has commits after 2; the third try knows all up to there.
    let catch_up = |request: &mut Request| {
        tries.set(tries.get() + 1);
        assert_eq!(request.validation, Validation::Unchanged);
        request.check.as_mut().unwrap().upto = if tries.get() < 3 { 1 } else { 2 };
        Ok(())
    };
    assert_eq!(rig.submit_with(put_after_read(b"1", 1, b"3"), catch_up).unwrap().sequence, 3);
    assert_eq!(tries.get(), 3);
}

#[test]
fn validation_that_never_reaches_is_a_conflict() {
    let rig = Rig::new();
    rig.commit(&mut [put(b"1", b"v"), put(b"2", b"v")]).unwrap();
    rig.open_window();
    let error = rig.submit(put_after_read(b"1", 1, b"3")).unwrap_err();
    assert!(error.is_conflict(), "{error}");
    assert_eq!((rig.last_sequence(), rig.newest(b"3")), (2, None));
}

// The log.

#[test]
fn group_is_one_append() {
    let rig = Rig::new();
    let mut group = [put(b"1", b"v"), put(b"2", b"w"), put(b"3", b"x")];
    let applied = rig.commit(&mut group).unwrap();
    assert_eq!((applied.first.sequence, applied.count, applied.first.lsn), (1, 3, rig.wal.end_lsn()));
    assert_eq!(applied.user_bytes, group.iter().map(|request| request.batch.user_bytes).sum::<u64>());
    assert_eq!(rig.wal.stats().records, 1);
    let [(1, 3, payload)] = &rig.records()[..] else { panic!("{:?}", rig.spans()) };
    let mut entries = Vec::new();
    decode_group(payload, |batch, op| entries.push((batch, op.key.to_vec()))).unwrap();
    assert_eq!(entries, [(0, internal(b"1")), (1, internal(b"2")), (2, internal(b"3"))]);
}

#[test]
fn failed_append_publishes_nothing_and_poisons() {
    let rig = Rig::new();
    rig.commit(&mut [put(b"1", b"v")]).unwrap();
    rig.vfs.fail(Operation::Write, 0, 1, ErrorKind::Other);
    let error = rig.commit(&mut [put(b"2", b"v")]).unwrap_err();
    assert!(matches!(error, Error::CommitUnknown { .. }), "{error}");
    assert_eq!((rig.snapshots.visible(), rig.newest(b"2")), (1, None));
    assert!(matches!(rig.health.check_writable(), Err(Error::ReadOnly { .. })));
    assert_eq!(rig.last_sequence(), 2, "the conflict window may have notes under its number");
}

#[test]
fn append_on_a_full_disk_uses_its_numbers_and_poisons_nothing() {
    let rig = Rig::new();
    rig.vfs.fail(Operation::Write, 0, 1, ErrorKind::StorageFull);
    assert!(rig.commit(&mut [put(b"1", b"v"), put(b"2", b"v")]).unwrap_err().is_disk_full());
    assert!(rig.health.check_writable().is_ok() && rig.memtable.is_empty());
    assert_eq!(rig.snapshots.visible(), 2, "later transactions must begin after the numbers");
    assert_eq!(rig.commit(&mut [put(b"3", b"v")]).unwrap().first.sequence, 3);
    // A reader of the log finds no gap.
    assert_eq!(rig.spans(), [(1, 2), (3, 3)]);
    assert_eq!(rig.records()[0].2, [NOTHING; 2]);
}

#[test]
fn append_that_succeeds_again_commits_under_its_first_numbers() {
    let rig = Rig::new();
    rig.vfs.fail(Operation::Write, 0, 1, ErrorKind::StorageFull);
    let retry = |append: &mut dyn FnMut() -> Result<Lsn>, e: Error| if e.is_disk_full() { append() } else { Err(e) };
    let mut write = rig.commits.write.lock();
    let applied = rig.commit_with(&mut write, &mut [put(b"1", b"v")], 0, &retry).unwrap();
    assert_eq!((applied.first.sequence, write.refused, rig.spans()), (1, None, vec![(1, 1)]));
    assert_eq!(rig.newest(b"1").as_deref(), Some(&b"v"[..]));
}

#[test]
fn group_without_wal_is_not_logged() {
    let rig = Rig::new();
    let unlogged = |key| Request { is_unlogged: true, ..put(key, b"v") };
    let applied = rig.commit(&mut [unlogged(b"1"), unlogged(b"2")]).unwrap();
    assert_eq!((applied.first.lsn, rig.spans(), rig.snapshots.visible()), (0, vec![], 2));
    assert_eq!((rig.commits.unlogged.load(Ordering::Relaxed), rig.commits.write.lock().unlogged), (2, 2));
    assert!(rig.newest(b"2").is_some());
}

// The memtable.

#[test]
fn each_batch_of_a_group_has_its_own_number_in_the_memtable() {
    let rig = Rig::new();
    rig.commit(&mut [put(b"k", b"1"), put(b"k", b"2"), request_of(batch(EntryKind::Tombstone, b"k", b""))]).unwrap();
    assert_eq!(
        [0, 1, 2, 3].map(|at| rig.value_at(b"k", at)),
        [None, Some(b"1".into()), Some(b"2".into()), Some(vec![])]
    );
    rig.commit(&mut [request_of(batch(EntryKind::RangeDelete, b"a", &internal(b"z")))]).unwrap();
    assert_eq!(rig.memtable.newest_covering(&internal(b"k"), MAX_SEQUENCE), 4);
}

/// Notes the state of the other stages while a commit's entries enter the memtable.
#[derive(Debug)]
struct Witness {
    wal: Arc<Wal>,
    snapshots: Arc<SnapshotList>,
    seen: Mutex<Vec<(u64, SequenceNumber)>>,
}

impl MergeFunction for Witness {
    fn apply(&self, _: &[u8], _: Option<&[u8]>, operand: &[u8]) -> std::result::Result<Vec<u8>, String> {
        self.seen.lock().unwrap().push((self.wal.stats().records, self.snapshots.visible()));
        Ok(operand.to_vec())
    }
}

/// INVARIANT C2 of `pipeline.rs`.
#[test]
fn entries_enter_the_memtable_after_the_append_and_before_they_are_visible() {
    let rig = Rig::new();
    let (wal, snapshots) = (Arc::clone(&rig.wal), Arc::clone(&rig.snapshots));
    let witness = Arc::new(Witness { wal, snapshots, seen: Mutex::default() });
    rig.functions.add_eager(1, "witness", Arc::<Witness>::clone(&witness));
    let operands = encode_operands(Base::Absent, 0, [Operand { function: 1, bytes: b"x" }].into_iter());
    for _ in 0..2 {
        rig.commit(&mut [request_of(batch(EntryKind::Merge, b"k", &operands))]).unwrap();
    }
    assert_eq!(*witness.seen.lock().unwrap(), [(1, 0), (2, 1)], "records in the log, last visible commit");
    assert_eq!(rig.snapshots.visible(), 2);
}

// Publication.

#[test]
fn commits_that_a_load_holds_back_stay_hidden() {
    let rig = Rig::new();
    rig.commits.write.lock().holds_back = true;
    rig.commit(&mut [put(b"1", b"v")]).unwrap();
    assert_eq!(rig.snapshots.visible(), 0);
    assert!(rig.newest(b"1").is_some());
    rig.commits.write.lock().holds_back = false;
    rig.commit(&mut [put(b"2", b"v")]).unwrap();
    assert_eq!(rig.snapshots.visible(), 2);
}

#[test]
fn snapshot_does_not_see_a_later_commit() {
    let rig = Rig::new();
    rig.commit(&mut [put(b"k", b"old")]).unwrap();
    let held = rig.snapshots.acquire(ReaderKind::Snapshot, || (0, 0));
    rig.commit(&mut [put(b"k", b"new")]).unwrap();
    assert_eq!(rig.value_at(b"k", held.sequence).as_deref(), Some(&b"old"[..]));
    assert_eq!(rig.value_at(b"k", rig.snapshots.visible()).as_deref(), Some(&b"new"[..]));
    assert_eq!(rig.snapshots.strata(), [1, 2]);
    rig.snapshots.release(&held);
}

// The sync.

#[test]
fn sync_of_a_later_commit_serves_the_earlier_one() {
    let rig = Rig::new();
    let [first, second] = [b"1", b"2"].map(|key| rig.submit(put(key, b"v")).unwrap());
    // Both are visible before either is synced, in the order of their numbers.
    assert_eq!((rig.snapshots.visible(), rig.wal.stats().syncs), (2, 0));
    rig.sync(second.lsn).unwrap();
    rig.sync(first.lsn).unwrap();
    assert_eq!(rig.wal.stats().syncs, 1);
    assert_eq!(rig.wal.durable_lsn(), rig.wal.end_lsn());
}

#[test]
fn failed_sync_poisons() {
    let rig = Rig::new();
    let first = rig.submit(put(b"1", b"v")).unwrap();
    rig.vfs.fail(Operation::Sync, 0, 1, ErrorKind::Other);
    assert!(matches!(rig.sync(first.lsn), Err(Error::CommitUnknown { .. })));
    assert!(rig.health.has_failed());
    assert!(matches!(rig.submit(put(b"2", b"v")), Err(Error::ReadOnly { .. })));
    assert_eq!((rig.snapshots.visible(), rig.spans(), rig.newest(b"2")), (1, vec![(1, 1)], None));
}
