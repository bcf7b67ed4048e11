//! Arguments of the commands that read and write single records and ranges.

use std::path::PathBuf;

use clap::Args;

use super::shared::{
    DurabilityArgument, InputFormat, KeyArguments, OpenArguments, PairFormat, ReadArguments, ValueFormat,
};
use crate::{commands::RangeArguments, notation::parse_name};

/// `braid get`
#[derive(Debug, Args)]
pub struct GetArguments {
    /// The database
    pub db: PathBuf,
    /// The tree
    #[arg(value_parser = parse_name)]
    pub tree: String,
    /// The key
    pub key: String,
    #[command(flatten)]
    pub key_arguments: KeyArguments,
    /// How values are printed; `raw` prints their bytes and nothing else
    #[arg(long, default_value = "text")]
    pub format: ValueFormat,
    /// Print JSON lines; the same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// `braid put`
#[derive(Debug, Args)]
pub struct PutArguments {
    /// The database
    pub db: PathBuf,
    /// The tree; created if there is none, and then named on standard error
    #[arg(value_parser = parse_name)]
    pub tree: String,
    /// The key
    pub key: String,
    /// The value, in the text form; `-` takes it from standard input, byte for byte
    #[arg(allow_hyphen_values = true)]
    pub value: String,
    /// How the value is given [default: text, and raw from standard input]
    #[arg(long)]
    pub format: Option<InputFormat>,
    #[command(flatten)]
    pub key_arguments: KeyArguments,
    /// The value expires after so many seconds; not in a tree of many values to a key
    #[arg(long, value_name = "SECONDS")]
    pub ttl: Option<u64>,
    /// When the command returns
    #[arg(long, default_value = "sync")]
    pub durability: DurabilityArgument,
    /// Create the database if there is none, in a directory that is there
    #[arg(long)]
    pub create: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid del`
#[derive(Debug, Args)]
pub struct DelArguments {
    /// The database
    pub db: PathBuf,
    /// The tree
    #[arg(value_parser = parse_name)]
    pub tree: String,
    /// The key; without it, give a range
    #[arg(required_unless_present_any = ["from", "to", "prefix"], conflicts_with_all = ["from", "to", "prefix"])]
    pub key: Option<String>,
    #[command(flatten)]
    pub range: RangeArguments,
    /// In a tree of many values to a key: the value to remove, in the text form; without it, all of them
    #[arg(long, allow_hyphen_values = true)]
    pub value: Option<String>,
    #[command(flatten)]
    pub key_arguments: KeyArguments,
    /// When the command returns
    #[arg(long, default_value = "sync")]
    pub durability: DurabilityArgument,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid scan`
#[derive(Debug, Args)]
pub struct ScanArguments {
    /// The database
    pub db: PathBuf,
    /// The tree
    #[arg(value_parser = parse_name)]
    pub tree: String,
    /// Begin at this key
    #[arg(long, value_name = "KEY")]
    pub from: Option<String>,
    /// End before this key
    #[arg(long, value_name = "KEY")]
    pub to: Option<String>,
    /// Only keys that begin with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    pub prefix: Option<String>,
    /// From the last to the first
    #[arg(long)]
    pub reverse: bool,
    /// At most so many
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// How pairs are printed
    #[arg(long, default_value = "text")]
    pub format: PairFormat,
    #[command(flatten)]
    pub key_arguments: KeyArguments,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// `braid find`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct FindArguments {
    /// The database
    pub db: PathBuf,
    /// The tree that holds the records
    #[arg(value_parser = parse_name)]
    pub tree: String,
    /// The index
    #[arg(long, value_name = "INDEX")]
    pub by: String,
    /// Records whose field is this
    #[arg(long, value_name = "V", group = "what", allow_hyphen_values = true)]
    pub eq: Option<String>,
    /// Records whose field begins with this
    #[arg(long, value_name = "V", group = "what", allow_hyphen_values = true)]
    pub prefix: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// How records are printed
    #[arg(long, default_value = "text")]
    pub format: PairFormat,
    #[command(flatten)]
    pub key_arguments: KeyArguments,
    #[command(flatten)]
    pub read: ReadArguments,
}
