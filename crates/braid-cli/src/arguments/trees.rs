//! Arguments of the commands on whole trees.

use std::path::PathBuf;

use clap::Args;

use super::shared::ReadArguments;

/// `braid trees`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("new_options").multiple(true))]
pub struct TreesArguments {
    /// The database
    pub db: PathBuf,
    /// Change the options of this tree, those that are given; it must exist
    #[arg(long, value_name = "TREE", requires = "new_options", conflicts_with = "read_only")]
    pub set: Option<String>,
    /// With --set: values put from now on expire after so many seconds, or `none`: not
    #[arg(long, value_name = "SECONDS|none", requires = "set", group = "new_options")]
    pub ttl: Option<String>,
    /// With --set: values of so many bytes or more go to blob files; or `default`: as the database says
    #[arg(long, value_name = "BYTES|default", requires = "set", group = "new_options")]
    pub blob_threshold: Option<String>,
    /// With --set: how files that are written from now on are compressed: none, lz4 or zstd; or `default`: as the database says
    #[arg(long, value_name = "NAME|default", requires = "set", group = "new_options")]
    pub compression: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
}
