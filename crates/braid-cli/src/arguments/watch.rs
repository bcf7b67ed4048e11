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
    /// Only keys that begin with this
    #[arg(long, value_name = "KEY", requires = "tree")]
    pub prefix: Option<String>,
    /// Begin after the commit with which this token was printed
    #[arg(long, value_name = "TOKEN")]
    pub from: Option<String>,
    /// Begin after the commit of this number
    #[arg(long, value_name = "N", conflicts_with = "from")]
    pub after: Option<u64>,
    /// At most so many commits
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Have the database keep so much of its log from now on, such as 64M; 0 for no more than recovery needs
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "read_only")]
    pub keep: Option<u64>,
    #[command(flatten)]
    pub key_arguments: KeyArguments,
    #[command(flatten)]
    pub read: ReadArguments,
}
