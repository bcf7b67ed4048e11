//! `braid backup`, `braid restore`, `braid checkpoint`.

use std::{
    io::{self, BufWriter, Write},
    path::Path,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use braiddb::{
    Builder, Compression, Db,
    backup::{ArchiveGap, BackupInfo, BackupOptions, BackupTarget, Backups, RestorePoint, Retention},
    dump::{DumpOptions, LoadOptions},
    platform::{Runtime, SystemRuntime, UNIX_EPOCH},
};
use serde_json::json;

use super::{
    backup_target::{check_new, check_source, existing, making},
    open::{builder, open_archiving, open_for_reading, open_for_writing, remove_unfinished},
};
use crate::{
    arguments::{
        ArchiveArguments, BackupCommand, CheckpointArguments, CreateBackupArguments, DeleteBackupArguments,
        ListBackupsArguments, ReadArguments, RestoreArguments, RetentionArguments, VerifyBackupsArguments,
    },
    exit::{NOT_FOUND, OK, SYSTEM, failure, usage},
    interrupt::{self, Pace},
    notation::{parse_time, show_bytes, show_count, show_counted, show_time},
    output::{Stdout, note, print_line},
    places::{check_apart, check_new_directory, check_parent, check_separate, making_directory},
};

pub fn backup(command: &BackupCommand) -> Result<u8> {
    match command {
        BackupCommand::Create(arguments) => create(arguments),
        BackupCommand::List(arguments) => list(arguments),
        BackupCommand::Verify(arguments) => verify(arguments),
        BackupCommand::Delete(arguments) => delete(arguments),
        BackupCommand::Prune(arguments) => {
            let target = existing(&arguments.target)?;
            if arguments.retention.keep.is_none() && arguments.retention.keep_for.is_none() {
                return Err(usage("no retention rule is given: add --keep N, --keep-for DAYS, or both"));
            }
            report_deleted(&prune(&*target, None, &arguments.retention)?, arguments.json)
        }
    }
}

fn advise_if_open(opened: Result<Db>, advice: &str) -> Result<Db> {
    opened.map_err(|error| match error.downcast_ref::<braiddb::Error>() {
        Some(braiddb::Error::Locked { path, owner }) => {
            failure(SYSTEM, format!("the database {} is open in {owner}: {advice}", path.display()))
        }
        _ => error,
    })
}

fn create(arguments: &CreateBackupArguments) -> Result<u8> {
    check_new(&arguments.db, &arguments.target)?;
    let advice = "let that program make the backup (`Db::backup`), or write all records with `braid dump`";
    let db = advise_if_open(open_for_writing(&arguments.db, &arguments.open), advice)?;
    interrupt::begin(Pace::AtOnce, |_| {
        "the backup is not finished; earlier backups are unchanged, and the next `backup create` removes the partial one"
            .to_owned()
    });
    let (target, info) = making(&arguments.target, |target| {
        let info = db.backup_with(&*target, BackupOptions::new().full(arguments.full))?;
        Ok((target, info))
    })?;
    db.close()?;
    // Prune before the report: its reader may be gone.
    let pruned = prune(&*target, Some(info.incarnation), &arguments.retention);
    if arguments.json {
        let mut report = json_of(&info);
        if arguments.retention.keep.is_some() || arguments.retention.keep_for.is_some() {
            report["deleted"] = json!(pruned.as_deref().unwrap_or_default());
        }
        print_line(report)?;
    } else {
        print_line(format_args!(
            "backup {} at commit {}: {} in {}; copied {} in {}",
            info.id,
            info.sequence,
            show_bytes(info.bytes),
            show_counted(info.files, "file"),
            show_bytes(info.bytes_copied),
            show_count(info.files_copied)
        ))?;
        note_deleted(pruned.as_deref().unwrap_or_default());
    }
    pruned.map(|_| OK)
}

fn prune(target: &dyn BackupTarget, of: Option<u64>, retention: &RetentionArguments) -> Result<Vec<u64>> {
    if retention.keep.is_none() && retention.keep_for.is_none() {
        return Ok(Vec::new());
    }
    let mut rules = Retention::new();
    rules.keep_for = retention.keep_for.map(|days| Duration::from_secs(u64::from(days) * 24 * 3600));
    rules.keep = retention.keep.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX));
    let now = UNIX_EPOCH + Duration::from_micros(SystemRuntime::new().unix_time_us());
    let backups = Backups::new(target);
    Ok(match of {
        Some(database) => backups.retain_one(database, rules, now)?,
        None => backups.retain(rules, now)?,
    })
}

fn note_deleted(ids: &[u64]) {
    for id in ids {
        note!("deleted backup {id}");
    }
}

fn report_deleted(ids: &[u64], as_json: bool) -> Result<u8> {
    if as_json {
        print_line(json!({"deleted": ids}))?;
    } else {
        note_deleted(ids);
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
    let mut out = Stdout::new();
    let backups = Backups::new(&*target).list()?;
    let is_mixed = backups.iter().any(|info| info.incarnation != backups[0].incarnation);
    for info in &backups {
        if arguments.json {
            writeln!(out, "{}", json_of(info))?;
        } else {
            let database = if is_mixed { format!("\tdatabase {:016x}", info.incarnation) } else { String::new() };
            writeln!(
                out,
                "{}\t{}\tcommit {}\t{} in {}\tcopied {}{database}",
                info.id,
                show_time(info.taken),
                info.sequence,
                show_bytes(info.bytes),
                show_counted(info.files, "file"),
                show_bytes(info.bytes_copied)
            )?;
        }
    }
    out.finish()?;
    Ok(OK)
}

fn verify(arguments: &VerifyBackupsArguments) -> Result<u8> {
    let target = existing(&arguments.target)?;
    let report = Backups::new(&*target).verify(arguments.backup)?;
    let mut out = Stdout::new();
    if arguments.json {
        let (files, bytes, problems) = (report.files, report.bytes, &report.problems);
        let (whole, damaged) = (&report.whole, &report.damaged);
        let report = json!({"files": files, "bytes": bytes, "problems": problems.iter().map(ToString::to_string).collect::<Vec<_>>(), "whole": whole, "damaged": damaged});
        writeln!(out, "{report}")?;
    } else {
        writeln!(out, "{}, {} read", show_counted(report.files, "file"), show_bytes(report.bytes))?;
        for problem in &report.problems {
            writeln!(out, "problem: {problem}")?;
        }
        for id in &report.whole {
            writeln!(out, "backup {id} is whole")?;
        }
        for id in &report.damaged {
            writeln!(out, "backup {id} is damaged")?;
        }
    }
    out.finish()?;
    Ok(if report.problems.is_empty() { OK } else { NOT_FOUND })
}

fn delete(arguments: &DeleteBackupArguments) -> Result<u8> {
    let target = existing(&arguments.target)?;
    for id in &arguments.backups {
        Backups::new(&*target).delete(*id)?;
    }
    if arguments.json { report_deleted(&arguments.backups, true) } else { Ok(OK) }
}

pub fn restore(arguments: &RestoreArguments) -> Result<u8> {
    check_source(&arguments.target, &arguments.db)?;
    if let Some(archive) = &arguments.archive {
        check_separate(archive, &arguments.db)?;
    }
    let target = existing(&arguments.target)?;
    check_new_directory(&arguments.db, "the new database")?;
    if arguments.force {
        remove_unfinished(&Builder::new(), &arguments.db)?;
    }
    begin_new_directory(&arguments.db);
    let restored = making_directory(&arguments.db, || {
        Ok(match (&arguments.archive, &arguments.to) {
            (Some(archive), Some(to)) => {
                Builder::new().restore_to(&*target, archive, parse_point(to)?, &arguments.db)?
            }
            _ => Builder::new().restore(&*target, arguments.backup, &arguments.db)?,
        })
    })?;
    if arguments.json {
        print_line(json!({
            "backup": restored.backup, "commit": restored.sequence, "bytes": restored.bytes,
            "files": restored.files, "replayed": restored.replayed,
        }))?;
        return Ok(OK);
    }
    print_line(format_args!(
        "restored backup {} at commit {}: {} in {}, {} from the log archive",
        restored.backup,
        restored.sequence,
        show_bytes(restored.bytes),
        show_counted(restored.files, "file"),
        show_counted(restored.replayed, "commit")
    ))?;
    Ok(OK)
}

fn begin_new_directory(dir: &Path) {
    let shown = dir.display().to_string();
    interrupt::begin(Pace::AtOnce, move |_| {
        format!("{shown} is not finished and does not open: remove it, and run the command again")
    });
}

fn parse_point(text: &str) -> Result<RestorePoint> {
    if text == "latest" {
        return Ok(RestorePoint::Latest);
    }
    let version = text.parse().ok().map(RestorePoint::Version);
    version.or_else(|| parse_time(text).map(RestorePoint::Time)).ok_or_else(|| {
        usage(format!(
            "{text:?} is not a restore point: give a commit number, a time in UTC such as 2026-11-23T03:04:05Z, or `latest`"
        ))
    })
}

pub fn archive(arguments: &ArchiveArguments) -> Result<u8> {
    check_apart(&arguments.db, &arguments.archive, "the log archive")?;
    check_parent(&arguments.archive)?;
    let advice = "let that program archive its log (`Builder::log_archive`, `Db::archive_now`)";
    let (sequence, gaps, life) = making_directory(&arguments.archive, || {
        let db = advise_if_open(open_archiving(&arguments.db, &arguments.archive, &arguments.open), advice)?;
        interrupt::begin(Pace::AtOnce, |_| {
            "archived commits stay; run the command again to archive the others".to_owned()
        });
        // A gap found now is recorded, and a second call archives all other commits.
        let sequence = match db.archive_now() {
            Err(error) if error.is_archive_gap() => db.archive_now()?,
            archived => archived?,
        };
        let (gaps, life) = (db.archive_gaps()?, db.incarnation());
        db.close()?;
        Ok((sequence, gaps, life))
    })?;
    let backed_up = match &arguments.backups {
        Some(backups) => newest_of(&*existing(backups)?, life)?,
        None => None,
    };
    report_archived(arguments, sequence, &gaps, backed_up)
}

fn newest_of(target: &dyn BackupTarget, incarnation: u64) -> Result<Option<u64>> {
    let backups = Backups::new(target).list()?;
    Ok(backups.iter().filter(|info| info.incarnation == incarnation).map(|info| info.sequence).max())
}

/// A gap without a later backup is an error.
fn report_archived(
    arguments: &ArchiveArguments,
    sequence: u64,
    gaps: &[ArchiveGap],
    backup: Option<u64>,
) -> Result<u8> {
    let is_bridged = |gap: &ArchiveGap| backup.is_some_and(|backup| backup >= gap.last);
    if arguments.json {
        let line = |gap: &ArchiveGap| json!({"first": gap.first, "last": gap.last, "found": show_time(gap.found), "reason": gap.reason, "bridged": is_bridged(gap)});
        print_line(json!({"commit": sequence, "gaps": gaps.iter().map(line).collect::<Vec<_>>()}))?;
    } else {
        print_line(format_args!(
            "archived up to commit {sequence}{}",
            if gaps.is_empty() { "" } else { ", with gaps" }
        ))?;
    }
    for gap in gaps.iter().filter(|gap| !is_bridged(gap)) {
        let (first, last) = (gap.first, gap.last);
        note!(
            "braid: the archive has a gap, found {}: commits {first} to {last} are missing ({}); a restore from a backup before the gap \
             reaches commit {} at most",
            show_time(gap.found),
            gap.reason,
            first.saturating_sub(1)
        );
    }
    match gaps.last() {
        Some(last) if !is_bridged(last) => {
            note!(
                "braid: to reach later commits, a backup of commit {} or later is needed: make a full backup (`braid backup create --full`), and \
                 pass its directory with --backups",
                last.last
            );
            Ok(NOT_FOUND)
        }
        _ => Ok(OK),
    }
}

pub fn checkpoint(arguments: &CheckpointArguments) -> Result<u8> {
    check_apart(&arguments.db, &arguments.dir, "the checkpoint")?;
    check_parent(&arguments.dir)?;
    if arguments.copy {
        return making_directory(&arguments.dir, || copy_database(arguments));
    }
    let advice = "copy all records with `braid checkpoint --copy`, or let that program make the checkpoint \
                  (`Db::checkpoint`)";
    let db = advise_if_open(open_for_writing(&arguments.db, &arguments.open), advice)?;
    begin_new_directory(&arguments.dir);
    let sequence = making_directory(&arguments.dir, || Ok(db.checkpoint(&arguments.dir)?))?;
    db.close()?;
    report_commit("checkpoint at", sequence, arguments.json)
}

/// Dumps and loads all records of one commit at the same time. Needs no help from a process that
/// has the database open.
fn copy_database(arguments: &CheckpointArguments) -> Result<u8> {
    let read = ReadArguments { open: arguments.open.clone(), read_only: true };
    let db = open_for_reading(&arguments.db, &read)?;
    let (mut input, output) = io::pipe().context("cannot create a pipe")?;
    begin_new_directory(&arguments.dir);
    let dumping = thread::spawn(move || {
        let mut output = BufWriter::with_capacity(1 << 18, output);
        let options = DumpOptions::new().compression(Compression::None);
        db.dump(&mut output, options)
    });
    let loaded = builder(&arguments.open).load(&arguments.dir, &mut input, LoadOptions::default());
    drop(input);
    let dumped = dumping.join().map_err(|_| anyhow!("the thread that reads the database panicked"))?;
    match (dumped, loaded) {
        // If both failed, the dump failed first, unless its error is the closed pipe.
        (Err(error), Err(_)) if !is_pipe_broken(&error) => Err(error.into()),
        (_, Err(error)) => Err(error.into()),
        (Err(error), Ok(_)) => Err(error.into()),
        (Ok(_), Ok(report)) => report_commit("checkpoint at", report.sequence, arguments.json),
    }
}

fn is_pipe_broken(error: &braiddb::Error) -> bool {
    matches!(error, braiddb::Error::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
}

fn report_commit(done: &str, sequence: u64, as_json: bool) -> Result<u8> {
    if as_json {
        print_line(json!({"commit": sequence}))?;
    } else {
        print_line(format_args!("{done} commit {sequence}"))?;
    }
    Ok(OK)
}
