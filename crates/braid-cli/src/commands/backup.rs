//! `braid backup`, `braid restore`, `braid checkpoint`.

use std::{io::Write, path::Path, sync::Arc, time::Duration};

use anyhow::Result;
use braiddb::{
    BackupInfo, BackupOptions, Backups, Builder, DirectoryTarget, RestorePoint, Retention,
    platform::{Runtime, SystemRuntime, SystemVfs, UNIX_EPOCH},
};
use serde_json::json;

use super::open::{open_archiving, open_for_writing};
use crate::{
    arguments::{
        ArchiveArguments, BackupCommand, CheckpointArguments, CreateBackupArguments, DeleteBackupArguments,
        ListBackupsArguments, RestoreArguments, RetentionArguments, VerifyBackupsArguments,
    },
    exit::{CORRUPTION, OK, usage},
    notation::{parse_time, show_bytes, show_count, show_time},
};

/// `braid backup`
pub fn backup(command: &BackupCommand) -> Result<u8> {
    match command {
        BackupCommand::Create(arguments) => create(arguments),
        BackupCommand::List(arguments) => list(arguments),
        BackupCommand::Verify(arguments) => verify(arguments),
        BackupCommand::Delete(arguments) => delete(arguments),
        BackupCommand::Prune(arguments) => {
            let target = existing(&arguments.target)?;
            if arguments.retention.keep.is_none() && arguments.retention.keep_for.is_none() {
                return Err(usage("say which backups stay: --keep N, --keep-for DAYS, or both"));
            }
            prune(&target, &arguments.retention)
        }
    }
}

/// The backups that must be there already.
fn existing(target: &Path) -> Result<DirectoryTarget> {
    Ok(DirectoryTarget::existing_in(Arc::new(SystemVfs::new()), target)?)
}

fn create(arguments: &CreateBackupArguments) -> Result<u8> {
    let db = open_for_writing(&arguments.db, &arguments.open, false)?;
    let target = DirectoryTarget::open(&arguments.target)?;
    let info = db.backup_with(&target, BackupOptions { full: arguments.full })?;
    db.close()?;
    if arguments.json {
        println!("{}", json_of(&info));
    } else {
        println!(
            "backup {} at commit {}: {} in {} files; copied {} in {}",
            info.id,
            info.sequence,
            show_bytes(info.bytes),
            show_count(info.files),
            show_bytes(info.bytes_copied),
            show_count(info.files_copied)
        );
    }
    prune(&target, &arguments.retention)
}

/// Deletes what is not to be kept.
fn prune(target: &DirectoryTarget, retention: &RetentionArguments) -> Result<u8> {
    if retention.keep.is_none() && retention.keep_for.is_none() {
        return Ok(OK);
    }
    let keep_for = retention.keep_for.map(|days| Duration::from_secs(u64::from(days) * 24 * 3600));
    let keep = retention.keep.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX));
    let now = UNIX_EPOCH + Duration::from_micros(SystemRuntime::new().unix_time_us());
    let deleted = Backups::new(target).retain(Retention { keep, keep_for }, now)?;
    for id in deleted {
        eprintln!("deleted backup {id}");
    }
    Ok(OK)
}

fn json_of(info: &BackupInfo) -> serde_json::Value {
    json!({
        "id": info.id,
        "taken": show_time(info.taken),
        "sequence": info.sequence,
        "incarnation": format!("{:016x}", info.incarnation),
        "files": info.files,
        "bytes": info.bytes,
        "files_copied": info.files_copied,
        "bytes_copied": info.bytes_copied,
    })
}

fn list(arguments: &ListBackupsArguments) -> Result<u8> {
    let target = existing(&arguments.target)?;
    let mut out = std::io::stdout().lock();
    for info in Backups::new(&target).list()? {
        if arguments.json {
            writeln!(out, "{}", json_of(&info))?;
        } else {
            writeln!(
                out,
                "{}\t{}\tcommit {}\t{} in {} files\tcopied {}",
                info.id,
                show_time(info.taken),
                info.sequence,
                show_bytes(info.bytes),
                show_count(info.files),
                show_bytes(info.bytes_copied)
            )?;
        }
    }
    Ok(OK)
}

fn verify(arguments: &VerifyBackupsArguments) -> Result<u8> {
    let target = existing(&arguments.target)?;
    let report = Backups::new(&target).verify(arguments.backup)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} files, {} read", show_count(report.files), show_bytes(report.bytes))?;
    for problem in &report.problems {
        writeln!(out, "problem: {problem}")?;
    }
    for id in &report.whole {
        writeln!(out, "backup {id} is whole")?;
    }
    for id in &report.damaged {
        writeln!(out, "backup {id} is damaged")?;
    }
    Ok(if report.problems.is_empty() { OK } else { CORRUPTION })
}

fn delete(arguments: &DeleteBackupArguments) -> Result<u8> {
    let target = existing(&arguments.target)?;
    for id in &arguments.backups {
        Backups::new(&target).delete(*id)?;
    }
    Ok(OK)
}

/// `braid restore`
pub fn restore(arguments: &RestoreArguments) -> Result<u8> {
    let target = existing(&arguments.target)?;
    let restored = match (&arguments.archive, &arguments.to) {
        (Some(archive), Some(to)) => Builder::new().restore_to(&target, archive, parse_point(to)?, &arguments.db)?,
        _ => Builder::new().restore(&target, arguments.backup, &arguments.db)?,
    };
    println!(
        "restored backup {} at commit {}: {} in {} files, {} commits from the log archive",
        restored.backup,
        restored.sequence,
        show_bytes(restored.bytes),
        show_count(restored.files),
        show_count(restored.replayed)
    );
    Ok(OK)
}

/// A commit's number, or a moment.
fn parse_point(text: &str) -> Result<RestorePoint> {
    let version = text.parse().ok().map(RestorePoint::Version);
    version.or_else(|| parse_time(text).map(RestorePoint::Time)).ok_or_else(|| {
        usage(format!("{text:?} is neither the number of a commit nor a moment such as 2026-11-23T03:04:05Z, in UTC"))
    })
}

/// `braid archive`
pub fn archive(arguments: &ArchiveArguments) -> Result<u8> {
    let db = open_archiving(&arguments.db, &arguments.archive, &arguments.open)?;
    let sequence = db.archive_now()?;
    db.close()?;
    println!("archived up to commit {sequence}");
    Ok(OK)
}

/// `braid checkpoint`
pub fn checkpoint(arguments: &CheckpointArguments) -> Result<u8> {
    let db = open_for_writing(&arguments.db, &arguments.open, false)?;
    let sequence = db.checkpoint(&arguments.dir)?;
    db.close()?;
    println!("checkpoint at commit {sequence}");
    Ok(OK)
}
