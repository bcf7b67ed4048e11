//! Calls without an open database: backups, restore, verification.

use crate::{
    boundary::{Outcome, give_writer, native, split, text},
    codec::{Reader, Writer},
    errors::Failure,
    options,
};
use braiddb::{
    Db,
    backup::{BackupInfo, Backups, DirectoryTarget, RestorePoint},
    verify::VerifyReport,
};
use jni::sys::{jint, jlong};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns microseconds since 1970.
pub fn micros_of(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).ok().and_then(|since| u64::try_from(since.as_micros()).ok()).unwrap_or(0)
}

/// Returns the time of microseconds since 1970.
pub fn time_of(micros: jlong) -> Outcome<SystemTime> {
    let since = u64::try_from(micros).ok().map(Duration::from_micros);
    let time = since.and_then(|since| UNIX_EPOCH.checked_add(since));
    time.ok_or_else(|| Failure::argument("the time is before 1970"))
}

pub fn backup_info(result: &mut Writer, info: &BackupInfo) {
    for number in
        [info.id, info.sequence, info.files, info.bytes, info.files_copied, info.bytes_copied, micros_of(info.taken)]
    {
        result.long(number);
    }
}

pub fn verify_report(report: &VerifyReport) -> Writer {
    let mut result = Writer::new();
    result.bool(report.is_sound());
    result.long(report.files);
    result.long(report.bytes);
    result.count(report.problems.len());
    for problem in &report.problems {
        result.text(&problem.path.to_string_lossy());
        result.text(problem.kind.name());
        result.long(problem.offset);
        result.text(&problem.detail);
    }
    result
}

native! {
    fn admin_backups(path_len: jint) |buffer| {
        let target = DirectoryTarget::open(text(buffer, path_len)?)?;
        let backups = Backups::new(&target).list()?;
        let mut result = Writer::new();
        result.count(backups.len());
        backups.iter().for_each(|info| backup_info(&mut result, info));
        give_writer(buffer, result)
    }
}

native! {
    fn admin_delete_backup(id: jlong, path_len: jint) |buffer| {
        let target = DirectoryTarget::open(text(buffer, path_len)?)?;
        Backups::new(&target).delete(id as u64)?;
        Ok(0)
    }
}

native! {
    /// Checks a backup, or all without an id. Returns the ids of intact and of damaged ones.
    fn admin_verify_backups(id: jlong, path_len: jint) |buffer| {
        let target = DirectoryTarget::open(text(buffer, path_len)?)?;
        let report = Backups::new(&target).verify(u64::try_from(id).ok())?;
        let mut result = Writer::new();
        for ids in [&report.whole, &report.damaged] {
            result.count(ids.len());
            ids.iter().for_each(|id| result.long(*id));
        }
        give_writer(buffer, result)
    }
}

native! {
    /// Restores a backup. The buffer has: directory of the backups, path, directory of the log
    /// archive. Numbers below 0 are absent.
    fn admin_restore(id: jlong, commit: jlong, time: jlong, arguments_len: jint) |buffer| {
        let (arguments, _) = split(buffer, arguments_len)?;
        let mut arguments = Reader::new(arguments);
        let (directory, path, archive) = (arguments.text()?, arguments.text()?, arguments.maybe_bytes()?);
        let archive = archive.map(std::str::from_utf8).transpose().map_err(|_| Failure::argument("a path is not UTF-8"))?;
        let builder = options::builder(&mut arguments)?;
        let target = DirectoryTarget::open(directory)?;
        let restored = match archive {
            None => builder.restore(&target, u64::try_from(id).ok(), path)?,
            Some(archive) => {
                let point = match (u64::try_from(commit), time) {
                    (Ok(commit), _) => RestorePoint::Version(commit),
                    (Err(_), 0..) => RestorePoint::Time(time_of(time)?),
                    _ => RestorePoint::Latest,
                };
                builder.restore_to(&target, archive, point, path)?
            }
        };
        Ok(restored.sequence as jlong)
    }
}

native! {
    fn admin_verify_path(path_len: jint) |buffer| {
        let report = Db::verify_path(text(buffer, path_len)?)?;
        give_writer(buffer, verify_report(&report))
    }
}
