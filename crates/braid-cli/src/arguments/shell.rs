//! Arguments of `shell`.

use std::path::PathBuf;

use clap::Args;

use super::shared::{DurabilityArgument, OpenArguments};
use crate::notation::parse_name;

/// `braid shell`
#[derive(Debug, Args)]
pub struct ShellArguments {
    /// The database
    pub db: PathBuf,
    /// Run these commands, separated by `;`, instead of those of standard input
    #[arg(short = 'c', long = "command", value_name = "COMMANDS")]
    pub commands: Vec<String>,
    /// Permit writes, and open the database for writing
    #[arg(long)]
    pub write: bool,
    /// The current tree at the start, as after `use`
    #[arg(long, value_name = "TREE", value_parser = parse_name)]
    pub tree: Option<String>,
    /// Continue after a command that failed; the first error decides the exit code. After an error in
    /// a transaction, nothing runs until `rollback` or `commit`, which then stores nothing
    #[arg(long)]
    pub keep_going: bool,
    /// When a commit returns
    #[arg(long, default_value = "sync")]
    pub durability: DurabilityArgument,
    /// Neither read nor write the history
    #[arg(long)]
    pub no_history: bool,
    /// Print JSON for each command, and errors as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}
