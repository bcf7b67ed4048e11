//! Arguments of `backup`, `restore`, `archive` and `checkpoint`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::shared::OpenArguments;

/// `braid backup`
#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Add a backup: what an earlier one has is not copied again
    Create(CreateBackupArguments),
    /// List the backups
    List(ListBackupsArguments),
    /// Read every byte of the backups, or of one, and compare checksums
    Verify(VerifyBackupsArguments),
    /// Delete backups, and the files that no other has
    Delete(DeleteBackupArguments),
    /// Delete all backups but those that are to be kept; of several databases, for each by itself
    Prune(PruneBackupsArguments),
}

/// Which backups of a database stay. A backup that either rule keeps stays, and so does the newest.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct RetentionArguments {
    /// Keep N of the newest backups of the database, and delete its others
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub keep: Option<u64>,
    /// Keep backups of the database for DAYS days, and delete its older ones
    #[arg(long, value_name = "DAYS")]
    pub keep_for: Option<u32>,
}

/// `braid backup create`
#[derive(Debug, Args)]
pub struct CreateBackupArguments {
    /// The database
    pub db: PathBuf,
    /// The directory with the backups; created if there is none, in a directory that is there
    pub target: PathBuf,
    /// Copy every file, also those that an earlier backup has
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
    /// The directory with the backups
    pub target: PathBuf,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
}

/// `braid backup verify`
#[derive(Debug, Args)]
pub struct VerifyBackupsArguments {
    /// The directory with the backups
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
    /// The directory with the backups
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
    /// The directory with the backups
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
    /// The directory with the backups
    pub target: PathBuf,
    /// The directory of the new database; it must not exist yet, or be empty
    pub db: PathBuf,
    /// The number of the backup [default: the newest]
    #[arg(long, value_name = "N")]
    pub backup: Option<u64>,
    /// The log archive, for --to
    #[arg(long, value_name = "DIR", requires = "to")]
    pub archive: Option<PathBuf>,
    /// Restore to just after the commit of this number, to this moment (2026-11-23T03:04:05Z), or to the `latest` archived commit
    #[arg(long, value_name = "VERSION|TIME|latest", requires = "archive", conflicts_with = "backup")]
    pub to: Option<String>,
    /// Remove first what a killed load or restore left in the directory; a database is never removed
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
    /// The log archive; created if there is none, in a directory that is there
    pub archive: PathBuf,
    /// The directory with the backups: a gap of the archive before the newest of them is no error
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
    /// The directory of the new database; it must not exist yet, or be empty
    pub dir: PathBuf,
    /// Copy all records of one commit, and share no files: works while another process has the database open and writes
    #[arg(long)]
    pub copy: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}
