//! Arguments of the commands for whole databases.

use std::path::PathBuf;

use clap::Args;

use super::shared::{OpenArguments, ReadArguments};

/// `braid create`
#[derive(Debug, Args)]
pub struct CreateArguments {
    /// The directory; must be new or empty, and its parent must exist
    pub db: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `braid stats`
#[derive(Debug, Args)]
pub struct StatsArguments {
    /// The database
    pub db: PathBuf,
    #[command(flatten)]
    pub shown: StatsOptions,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// The parts of the statistics to show.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct StatsOptions {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Draw all partitions, not only those that most need a merge
    #[arg(long)]
    pub partitions: bool,
    /// Show all trees, not only the first 100
    #[arg(long)]
    pub trees: bool,
    /// Count the keys of trees exactly instead of estimating
    #[arg(long)]
    pub count: bool,
}

/// `braid verify`
#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// The database
    pub db: PathBuf,
    /// Print JSON: the verdict, the amounts read, and each damaged unit with file, offset, length
    /// and keys
    #[arg(long)]
    pub json: bool,
    /// Number of files to read at once [default: number of processors, at most 4]
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
    /// Only list the files of earlier versions
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
    /// The directory of the new database; must be new or empty
    pub to: PathBuf,
    /// Also recover records whose newer version or deletion may be lost, and list them; by default
    /// they are only listed
    #[arg(long)]
    pub keep_stale: bool,
    /// Ignore the log after the first lost commit; by default every intact commit is recovered
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
    /// Maximum number of entries, records or segments to print; totals are always printed
    #[arg(long, value_name = "N")]
    pub rows: Option<usize>,
    /// Maximum number of bytes to print of a key or value
    #[arg(long, value_name = "N")]
    pub bytes: Option<usize>,
}
