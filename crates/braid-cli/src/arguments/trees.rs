//! Arguments of the commands on whole trees.

use std::path::PathBuf;

use clap::Args;

use super::shared::ReadArguments;

/// `braid trees`
#[derive(Debug, Args)]
pub struct TreesArguments {
    /// The database
    pub db: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
}
