//! Arguments of `backup`, `restore`, `archive` and `checkpoint`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::shared::OpenArguments;

/// `braid backup`
#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Add a backup; files of earlier backups are not copied again
    Create(CreateBackupArguments),
    /// List the backups
    List(ListBackupsArguments),
    /// Read all bytes of the backups, or of one, and compare checksums
    Verify(VerifyBackupsArguments),
    /// Delete backups, and the files that no other backup uses
    Delete(DeleteBackupArguments),
    /// Delete backups that no retention rule keeps, for each database separately
    Prune(PruneBackupsArguments),
}

/// Which backups to keep: those that any rule keeps, and always the newest.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct RetentionArguments {
    /// Keep the N newest backups of the database, and delete its other ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub keep: Option<u64>,
    /// Keep backups of the last DAYS days, and delete older ones of the database
    #[arg(long, value_name = "DAYS")]
    pub keep_for: Option<u32>,
}

/// `braid backup create`
#[derive(Debug, Args)]
pub struct CreateBackupArguments {
    /// The database
    pub db: PathBuf,
    /// The directory for the backups; created if missing, but its parent must exist. With the feature
    /// s3 also s3://BUCKET/PREFIX
    pub target: PathBuf,
    /// Copy all files, also those that an earlier backup has
    #[arg(long)]
    pub full: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub retention: RetentionArguments,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid backup list`
#[derive(Debug, Args)]
pub struct ListBackupsArguments {
    /// The directory with the backups, or s3://BUCKET/PREFIX
    pub target: PathBuf,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
}

/// `braid backup verify`
#[derive(Debug, Args)]
pub struct VerifyBackupsArguments {
    /// The directory with the backups, or s3://BUCKET/PREFIX
    pub target: PathBuf,
    /// The number of the backup [default: all]
    #[arg(long, value_name = "N")]
    pub backup: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `braid backup delete`
#[derive(Debug, Args)]
pub struct DeleteBackupArguments {
    /// The directory with the backups, or s3://BUCKET/PREFIX
    pub target: PathBuf,
    /// The numbers of the backups
    #[arg(required = true, value_name = "BACKUP")]
    pub backups: Vec<u64>,
    /// Print the numbers of the deleted backups as JSON
    #[arg(long)]
    pub json: bool,
}

/// `braid backup prune`
#[derive(Debug, Args)]
pub struct PruneBackupsArguments {
    /// The directory with the backups, or s3://BUCKET/PREFIX
    pub target: PathBuf,
    /// Print the numbers of the deleted backups as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub retention: RetentionArguments,
}

/// `braid restore`
#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// The directory with the backups, or s3://BUCKET/PREFIX
    pub target: PathBuf,
    /// The directory of the new database; must be new or empty
    pub db: PathBuf,
    /// The number of the backup [default: the newest]
    #[arg(long, value_name = "N")]
    pub backup: Option<u64>,
    /// The log archive; needs --to
    #[arg(long, value_name = "DIR", requires = "to")]
    pub archive: Option<PathBuf>,
    /// Restore the state right after this commit number, at this time (2026-11-23T03:04:05Z), or at
    /// the `latest` archived commit
    #[arg(long, value_name = "VERSION|TIME|latest", requires = "archive", conflicts_with = "backup")]
    pub to: Option<String>,
    /// First remove an unfinished load or restore in the directory; never removes a database
    #[arg(long)]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `braid archive`
#[derive(Debug, Args)]
pub struct ArchiveArguments {
    /// The database
    pub db: PathBuf,
    /// The log archive; created if missing, but its parent must exist
    pub archive: PathBuf,
    /// The directory with the backups: accept archive gaps that lie before its newest backup
    #[arg(long, value_name = "DIR")]
    pub backups: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid checkpoint`
#[derive(Debug, Args)]
pub struct CheckpointArguments {
    /// The database
    pub db: PathBuf,
    /// The directory of the new database; must be new or empty
    pub dir: PathBuf,
    /// Copy all records of one commit instead of sharing files; works while another process writes
    #[arg(long)]
    pub copy: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}
