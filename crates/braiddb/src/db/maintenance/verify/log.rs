//! Checks the log, CURRENT and the manifest.

use super::{
    checker::Checker,
    report::{ProblemKind, VerifyProblem},
};
use crate::{
    base::{EntryKind, EntryRef, Error, Result, SequenceNumber},
    commit::decode_group,
    platform::{OpenMode, Runtime, Vfs},
    table::DamagedUnit,
    version::{CURRENT_NAME, CurrentSlot, Layout, SLOT_LEN, SLOT_OFFSETS, manifest_name, walk_current, walk_manifest},
    wal::{LogBounds, LogDamage, LogDamageKind, RecordInfo, WalkedLog, segment_path, walk_damaged_log},
};
use std::{io, path::Path};

/// Number and interval of rereads of an incomplete last record before it counts: a live writer may
/// still complete it.
const TAIL_TRIES: usize = 4;
const TAIL_PAUSE_US: u64 = 5_000;

/// Checks the log, and with `visits` also the values and operands of its records.
pub fn check_log(checker: &Checker, vfs: &dyn Vfs, runtime: &dyn Runtime, bounds: &LogBounds, visits: bool) {
    let mut visitor = |path: &Path, offset: u64, info: &RecordInfo, payload: &[u8]| {
        if visits && info.last_sequence > bounds.flushed {
            visit_group(checker, (path, offset), info, payload, bounds.flushed);
        }
        Ok(())
    };
    let walked = walk_damaged_log(vfs, &checker.dir, bounds, &mut visitor);
    let mut walked = match walked {
        Ok(walked) => walked,
        Err(error) => return checker.error(&error, &checker.dir),
    };
    if let Some(tail) = walked.damaged.iter().find(|damage| damage.kind == LogDamageKind::Tail).cloned()
        && bounds.end_lsn.is_none()
        && !stays(vfs, runtime, checker, bounds, &tail)
    {
        walked.damaged.retain(|damage| *damage != tail);
    }
    list(checker, walked);
}

fn stays(vfs: &dyn Vfs, runtime: &dyn Runtime, checker: &Checker, bounds: &LogBounds, tail: &LogDamage) -> bool {
    (0..TAIL_TRIES).all(|_| {
        runtime.sleep_us(TAIL_PAUSE_US);
        let again = walk_damaged_log(vfs, &checker.dir, bounds, &mut |_, _, _, _| Ok(()));
        again.is_ok_and(|again| again.damaged.contains(tail))
    })
}

fn list(checker: &Checker, walked: WalkedLog) {
    let count = walked.segments.len().max(1) as u64;
    for number in walked.segments {
        checker.read(&segment_path(&checker.dir, number), walked.bytes / count);
    }
    for damage in walked.damaged {
        let LogDamage { kind, path, offset, len, detail, last_commit, next_commit, .. } = damage;
        let kind = match kind {
            LogDamageKind::Damaged => ProblemKind::Damaged,
            LogDamageKind::Missing => ProblemKind::Missing,
            LogDamageKind::Tail => ProblemKind::TornTail,
        };
        let behind = next_commit.map(|next| format!("; the first commit behind it is {next}")).unwrap_or_default();
        let problem = VerifyProblem::new(kind, &path, offset, len, detail + &behind);
        checker.problem(VerifyProblem { last_commit: Some(last_commit), ..problem }, None);
    }
}

fn visit_group(
    checker: &Checker,
    (path, offset): (&Path, u64),
    info: &RecordInfo,
    payload: &[u8],
    flushed: SequenceNumber,
) {
    let batches = decode_group(payload, |batch, op| {
        let sequence = info.first_sequence + batch;
        if sequence > flushed && op.kind != EntryKind::RangeDelete {
            checker.entry(&EntryRef { key: op.key, sequence, kind: op.kind, value: op.value }, path, offset);
        }
    });
    if batches != Some(info.last_sequence - info.first_sequence + 1) {
        let detail = "a log record matches its checksum, but its contents cannot be understood";
        checker.problem(VerifyProblem::new(ProblemKind::Damaged, path, offset, info.end_lsn - info.lsn, detail), None);
    }
}

/// Checks CURRENT. Returns the slot in force, if any.
pub fn check_current(checker: &Checker, vfs: &dyn Vfs) -> Result<Option<CurrentSlot>> {
    let path = checker.dir.join(CURRENT_NAME);
    let Some((slots, damaged)) = walk_current(vfs, &checker.dir)? else {
        checker.missing(&path, "CURRENT is missing", None);
        return Ok(None);
    };
    checker.read(&path, (SLOT_OFFSETS.len() * SLOT_LEN) as u64);
    damaged.into_iter().for_each(|unit| checker.unit(&path, unit));
    Ok(slots.into_iter().max_by_key(|slot| slot.generation))
}

/// Checks a manifest whose first `synced_len` bytes must be valid. Returns its layout if it is
/// complete.
pub fn check_manifest(checker: &Checker, vfs: &dyn Vfs, number: u64, synced_len: u64) -> Result<Option<Layout>> {
    let path = checker.dir.join(manifest_name(number));
    let file = match vfs.open(&path, OpenMode::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            checker.missing(&path, "the manifest is missing, and CURRENT names it", None);
            return Ok(None);
        }
        Err(e) => return Err(Error::io("open", &path, e)),
    };
    let len = file.len().map_err(|e| Error::io("read", &path, e))?;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0).map_err(|e| Error::io("read", &path, e))?;
    checker.read(&path, len);
    let walked = walk_manifest(&bytes, synced_len, &path)?;
    let is_whole = walked.damaged.is_empty();
    walked.damaged.into_iter().for_each(|unit| checker.unit(&path, unit));
    match walked.layout.check_cover() {
        Ok(()) if is_whole => Ok(Some(walked.layout)),
        Err(rule) if is_whole => {
            checker.unit(&path, DamagedUnit::new(0..len, rule));
            Ok(None)
        }
        _ => Ok(None),
    }
}
