//! Arguments of `demo`.

use std::path::PathBuf;

use clap::Args;

use crate::notation::parse_size;

/// `braid demo`
#[derive(Clone, Debug, Args)]
pub struct DemoArguments {
    /// Number of discs
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub discs: u64,
    /// Directory for the dump and the database, which are kept [default: a temporary directory,
    /// removed at the end]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Keep the dump and the database in the temporary directory
    #[arg(long)]
    pub keep: bool,
    /// Seed of the generated discs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Memory for the database
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "128M")]
    pub memory: u64,
}
