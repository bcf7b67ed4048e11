//! Arguments of `demo`.

use std::path::PathBuf;

use clap::Args;

use crate::notation::parse_size;

/// `braid demo`
#[derive(Clone, Debug, Args)]
pub struct DemoArguments {
    /// How many discs
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub discs: u64,
    /// Work here, and leave the dump and the database; without it, they are removed at the end
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Leave the dump and the database in the temporary directory
    #[arg(long)]
    pub keep: bool,
    /// What the discs are made from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Memory for the database
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "128M")]
    pub memory: u64,
}
