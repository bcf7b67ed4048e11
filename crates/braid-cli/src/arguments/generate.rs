//! Arguments of `completions` and `man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// `braid completions`
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    pub shell: Shell,
}

/// `braid man`
#[derive(Debug, Args)]
pub struct ManArguments {
    /// The directory for the pages; created if missing, but its parent must exist
    pub dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
