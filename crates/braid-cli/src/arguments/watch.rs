//! Arguments of `watch`.

use std::path::PathBuf;

use clap::Args;

use super::shared::{KeyArguments, ReadArguments};
use crate::notation::{parse_name, parse_size};

/// `braid watch`
#[derive(Debug, Args)]
pub struct WatchArguments {
    /// The database
    pub db: PathBuf,
    /// Only changes of this tree
    #[arg(long, value_name = "TREE", value_parser = parse_name)]
    pub tree: Option<String>,
    /// Only keys with this prefix
    #[arg(long, value_name = "KEY", requires = "tree")]
    pub prefix: Option<String>,
    /// Start after the commit that this token was printed with
    #[arg(long, value_name = "TOKEN")]
    pub from: Option<String>,
    /// Start after the commit with this number
    #[arg(long, value_name = "N", conflicts_with = "from")]
    pub after: Option<u64>,
    /// Maximum number of commits
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// From now on retain this much of the log, such as 64M; 0: only as much as recovery needs. Opens
    /// the database for writing
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "read_only")]
    pub keep: Option<u64>,
    /// Print errors as JSON too
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub key_arguments: KeyArguments,
    #[command(flatten)]
    pub read: ReadArguments,
}
