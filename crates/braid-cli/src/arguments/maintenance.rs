//! Arguments of the commands on a database as a whole.

use std::path::PathBuf;

use clap::Args;

use super::shared::{OpenArguments, ReadArguments};

/// `braid create`
#[derive(Debug, Args)]
pub struct CreateArguments {
    /// The directory; it must not exist yet, or be empty. Its parent must be there
    pub db: PathBuf,
}

/// `braid stats`
#[derive(Debug, Args)]
pub struct StatsArguments {
    /// The database
    pub db: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Draw all partitions, and not only those that most need a merge
    #[arg(long)]
    pub partitions: bool,
    /// Show all trees, and not only the first 100
    #[arg(long)]
    pub trees: bool,
    /// Count the keys of trees exactly; else they are estimated
    #[arg(long)]
    pub count: bool,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// `braid verify`
#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// The database
    pub db: PathBuf,
    /// Print JSON: whether the database is sound, what was read, and each damaged unit with file, offset, length and keys
    #[arg(long)]
    pub json: bool,
    /// How many files are read at once [default: as many as there are processors, at most 4]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: Option<u16>,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// `braid compact`
#[derive(Debug, Args)]
pub struct CompactArguments {
    /// The database
    pub db: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid upgrade`
#[derive(Debug, Args)]
pub struct UpgradeArguments {
    /// The database
    pub db: PathBuf,
    /// Only list the files of earlier versions, and change nothing
    #[arg(long)]
    pub check: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid salvage`
#[derive(Debug, Args)]
pub struct SalvageArguments {
    /// The damaged database
    pub from: PathBuf,
    /// The directory of the new database; it must not exist yet, or be empty
    pub to: PathBuf,
    /// Take records of which a newer version, or a delete, may be gone, and list them; else they are left out and listed
    #[arg(long)]
    pub keep_stale: bool,
    /// Take nothing of the log after the first commit that is gone; else every commit that is whole is taken
    #[arg(long)]
    pub stop_at_gap: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid inspect`
#[derive(Debug, Args)]
pub struct InspectArguments {
    /// A file of a database
    pub file: PathBuf,
    /// Print at most so many entries, records or segments; totals are always told
    #[arg(long, value_name = "N")]
    pub rows: Option<usize>,
    /// Print at most so many bytes of a key or value
    #[arg(long, value_name = "N")]
    pub bytes: Option<usize>,
}
