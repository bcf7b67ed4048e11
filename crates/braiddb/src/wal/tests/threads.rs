//! Many threads append and sync.

use super::*;
use crate::{
    base::Error,
    platform::{Runtime, fault_vfs::Operation},
};
use parking_lot::Mutex;

const THREADS: usize = 8;
const EACH: usize = 150;

/// Returns the log, the acknowledged sequence numbers and the errors.
fn hammer(world: &World) -> (Arc<Wal>, Vec<u64>, Vec<Error>) {
    let wal = Arc::new(world.create(WalStart::new_log()));
    let leader = Arc::new(Mutex::new(0u64));
    let acknowledged = Arc::new(Mutex::new((Vec::new(), Vec::new())));
    let runtime = SystemRuntime::new();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (wal, leader, acknowledged) = (wal.clone(), leader.clone(), acknowledged.clone());
            let body = move || {
                for round in 0..EACH {
                    let appended = {
                        let mut last = leader.lock();
                        append(&wal, *last + 1).map(|end| {
                            *last += 1;
                            (*last, end)
                        })
                    };
                    let result = appended.and_then(|(sequence, end)| {
                        if (thread + round) % 3 != 0 {
                            let durable = wal.sync(end)?;
                            assert!(durable >= end && wal.durable_lsn() >= end);
                            acknowledged.lock().0.push(sequence);
                        }
                        Ok(())
                    });
                    if let Err(error) = result {
                        acknowledged.lock().1.push(error);
                    }
                    if round % 16 == 0 {
                        wal.prepare_next().ok();
                    }
                }
            };
            runtime.spawn("hammer", Box::new(body)).unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let (acknowledged, errors) = std::mem::take(&mut *acknowledged.lock());
    (wal, acknowledged, errors)
}

#[test]
fn concurrent_appends_and_syncs_lose_nothing() {
    let world = World::new();
    let (wal, acknowledged, errors) = hammer(&world);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(acknowledged.len(), THREADS * EACH * 2 / 3);
    let stats = wal.stats();
    assert!(stats.syncs as usize <= acknowledged.len());
    let input = RecoveryInput { durable_lsn: wal.durable_lsn(), oldest_segment: Some(1), flushed: 0, is_to_sync: true };
    let total = (THREADS * EACH) as u64;
    assert_eq!(world.replay(&input).unwrap().0, groups(1..=total));
    let crashed = World::on(world.vfs.crashed(|| false));
    let seen = crashed.replay(&input).unwrap().0;
    assert!(seen.len() as u64 >= acknowledged.into_iter().max().unwrap());
}

#[test]
fn failed_sync_wakes_all_waiters() {
    for after in [5, 40, 90] {
        let world = World::new();
        world.vfs.fail(Operation::Sync, after, 1, std::io::ErrorKind::Other);
        let (wal, acknowledged, errors) = hammer(&world);
        assert!(wal.failure().is_some());
        assert!(!errors.is_empty());
        let crashed = World::on(world.vfs.crashed(|| false));
        let input =
            RecoveryInput { durable_lsn: wal.durable_lsn(), oldest_segment: Some(1), flushed: 0, is_to_sync: true };
        let seen = crashed.replay(&input).unwrap().0;
        assert_eq!(seen, groups(1..=seen.len() as u64));
        assert!(seen.len() as u64 >= acknowledged.into_iter().max().unwrap_or(0));
    }
}
