//! Sequence numbers of discarded commits are reused, and the log is damaged later.

use super::*;
use crate::wal::{DamagedLogInput, read_damaged_log};
use std::{collections::BTreeMap, path::PathBuf};

fn second_payload(sequence: u64) -> Vec<u8> {
    payload_of(1000 + sequence)
}

fn newest(files: &BTreeMap<PathBuf, Vec<u8>>) -> PathBuf {
    files.keys().filter(|path| path.extension().is_some_and(|e| e == "wal")).max().unwrap().clone()
}

/// A segment header was unreadable, and the previous epoch ended at a torn record with whole ones
/// after it. Salvage took these, and silently dropped later commits with their numbers.
#[test]
fn salvage_after_discarded_records_keeps_commits_with_reused_numbers() {
    let mut world = World::new();
    let wal = world.create(WalStart::new_log());
    let mut ends = vec![0];
    ends.extend((1..=20).map(|sequence| append(&wal, sequence).unwrap()));
    let mut input = RecoveryInput { durable_lsn: 0, ..input_of(&wal) };
    let oldest = wal.oldest_segment();
    drop(wal);
    let mut files = world.vfs.files();
    let first = newest(&files);
    files.get_mut(&first).unwrap()[ends[4] as usize + 20] ^= 0xff;
    world.vfs = FaultVfs::of_files(Path::new(DIR), &files);
    world.options.segment_len = 1024;
    let (groups, wal) = world.reopen(&mut input).unwrap();
    assert_eq!(groups.len(), 4);
    let header = newest(&world.vfs.files());
    for sequence in 5..=20 {
        wal.append(&group(sequence), &second_payload(sequence)).unwrap();
    }
    wal.sync(wal.end_lsn()).unwrap();
    let durable_lsn = wal.durable_lsn();
    drop(wal);
    let mut files = world.vfs.files();
    assert!(files.contains_key(&first) && newest(&files) != header);
    files.get_mut(&header).unwrap()[..128].fill(0x55);
    let vfs = FaultVfs::of_files(Path::new(DIR), &files);
    let input =
        DamagedLogInput { oldest_segment: Some(oldest), durable_lsn, epoch: Some(2), ..DamagedLogInput::default() };
    let mut found = BTreeMap::new();
    let log = read_damaged_log(&vfs, Path::new(DIR), &input, &mut |info, payload| {
        found.insert(info.first_sequence, payload.to_vec());
        Ok(())
    })
    .unwrap();
    let readable: Vec<u64> = (5..=20).filter(|number| found.get(number) == Some(&second_payload(*number))).collect();
    assert!(readable.len() > 4 && readable.ends_with(&[19, 20]), "{:?}", found.keys());
    let begins = readable[0];
    assert!((begins..=20).all(|number| readable.contains(&number)), "{readable:?}");
    assert!((1..=4).all(|number| found[&number] == payload_of(number)));
    assert!(!log.gaps.is_empty());
}
