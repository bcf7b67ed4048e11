//! Arguments of the commands for whole trees.

use std::path::PathBuf;

use clap::Args;

use super::shared::ReadArguments;

/// `braid trees`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("new_options").multiple(true))]
pub struct TreesArguments {
    /// The database
    pub db: PathBuf,
    /// Change options of this existing tree
    #[arg(long, value_name = "TREE", requires = "new_options", conflicts_with = "read_only")]
    pub set: Option<String>,
    /// With --set: new values expire after this number of seconds; `none`: never
    #[arg(long, value_name = "SECONDS|none", requires = "set", group = "new_options")]
    pub ttl: Option<String>,
    /// With --set: store values of at least this many bytes in blob files; `default`: as the
    /// database does
    #[arg(long, value_name = "BYTES|default", requires = "set", group = "new_options")]
    pub blob_threshold: Option<String>,
    /// With --set: compression of new files: none, lz4 or zstd; `default`: as the database does
    #[arg(long, value_name = "NAME|default", requires = "set", group = "new_options")]
    pub compression: Option<String>,
    /// With --set: declare how its keys and values are encoded, as in tuple/json. Changes no
    /// record. A codec stays
    #[arg(long, value_name = "KEYS/VALUES", requires = "set", group = "new_options")]
    pub codec: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
}
