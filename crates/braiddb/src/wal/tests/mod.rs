//! Tests of the log, on an in-memory file system with faults and crashes on demand.

mod ahead;
mod chain;
mod damage;
mod faults;
mod record;
mod reused;
mod threads;
mod written;

use super::{
    GroupHeader, Lsn, RecoveryInput, RecoveryOutcome, Visit, Wal, WalContext, WalOptions, WalStart, recover,
    recover_with,
};
use crate::{
    base::Result,
    platform::{Runtime, SystemRuntime, Vfs, fault_vfs::FaultVfs},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

const DIR: &str = "/db";

#[derive(Clone)]
struct World {
    vfs: FaultVfs,
    next_number: Arc<AtomicU64>,
    options: WalOptions,
}

type Groups = Vec<(u64, Vec<u8>)>;

impl World {
    fn new() -> World {
        World::on(FaultVfs::new(Path::new(DIR)))
    }

    fn on(vfs: FaultVfs) -> World {
        let options = WalOptions { segment_len: 4096, ..WalOptions::default() };
        World { vfs, next_number: Arc::new(AtomicU64::new(1)), options }
    }

    fn context(&self) -> WalContext {
        let next_number = self.next_number.clone();
        WalContext {
            vfs: Arc::new(self.vfs.clone()),
            dir: DIR.into(),
            runtime: Arc::new(SystemRuntime::new()),
            next_file_number: Arc::new(move || next_number.fetch_add(1, Ordering::Relaxed)),
            pre_sync: None,
        }
    }

    fn create(&self, start: WalStart) -> Wal {
        Wal::create(self.context(), self.options.clone(), start).unwrap()
    }

    fn replay(&self, input: &RecoveryInput) -> Result<(Groups, RecoveryOutcome)> {
        let helper = SystemRuntime::new();
        let [helped, alone] = [Some(&helper as &dyn Runtime), None].map(|helper| {
            let mut groups = Groups::new();
            let outcome = recover_with(&self.vfs, Path::new(DIR), input, helper, &mut |info, payload| {
                assert!(info.lsn < info.end_lsn);
                groups.push((info.first_sequence, payload.to_vec()));
                Ok(Visit::Taken)
            })?;
            Ok((groups, outcome))
        });
        let summary = |result: &Result<(Groups, RecoveryOutcome)>| match result {
            Ok((groups, outcome)) => {
                let known = (outcome.durable_lsn, outcome.is_closed_cleanly, outcome.ambiguous_tail);
                format!("{groups:?} {outcome:?} {known:?}")
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(summary(&helped), summary(&alone));
        alone
    }

    /// Recovers as a database does, and begins the next epoch.
    fn reopen(&self, input: &mut RecoveryInput) -> Result<(Groups, Wal)> {
        let (groups, outcome) = self.replay(input)?;
        self.next_number.fetch_max(outcome.highest_file_number + 1, Ordering::Relaxed);
        let unneeded = outcome.unneeded.clone();
        let wal = Wal::create(self.context(), self.options.clone(), outcome.sync_replayed(true)?)?;
        *input = RecoveryInput { durable_lsn: wal.durable_lsn(), oldest_segment: Some(wal.oldest_segment()), ..*input };
        for number in unneeded {
            self.vfs.remove(&Path::new(DIR).join(format!("{number:06}.wal"))).unwrap();
        }
        Ok((groups, wal))
    }
}

fn input_of(wal: &Wal) -> RecoveryInput {
    RecoveryInput {
        oldest_segment: Some(wal.oldest_segment()),
        durable_lsn: wal.durable_lsn(),
        flushed: 0,
        is_to_sync: true,
    }
}

fn payload_of(sequence: u64) -> Vec<u8> {
    let mut random = Random(sequence);
    (0..random.next() % 300).map(|_| random.next() as u8).collect()
}

fn group(sequence: u64) -> GroupHeader {
    GroupHeader { first_sequence: sequence, last_sequence: sequence, commit_time_us: 1_000_000 + sequence }
}

fn append(wal: &Wal, sequence: u64) -> Result<Lsn> {
    wal.append(&group(sequence), &payload_of(sequence))
}

fn groups(sequences: impl IntoIterator<Item = u64>) -> Groups {
    sequences.into_iter().map(|sequence| (sequence, payload_of(sequence))).collect()
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
