//! Arguments of the commands for single records and ranges.

use std::path::PathBuf;

use clap::Args;

use super::shared::{
    DurabilityArgument, InputFormat, KeyArguments, OpenArguments, PairFormat, ReadArguments, ValueFormat,
};
use crate::{
    commands::RangeArguments,
    notation::{parse_name, parse_ttl},
};

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
    /// Output format of the value; `raw` prints its bytes and nothing else
    #[arg(long, default_value = "text")]
    pub format: ValueFormat,
    /// Print JSON lines; same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// `braid explain`
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// The database
    pub db: PathBuf,
    /// The tree
    #[arg(value_parser = parse_name)]
    pub tree: String,
    /// The key
    pub key: String,
    #[command(flatten)]
    pub key_arguments: KeyArguments,
    /// Explain the last of this number of reads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// `braid put`
#[derive(Debug, Args)]
pub struct PutArguments {
    /// The database
    pub db: PathBuf,
    /// The tree; if missing, it is created and named on standard error
    #[arg(value_parser = parse_name)]
    pub tree: String,
    /// The key
    pub key: String,
    /// The value, in the text form; `-` reads it unchanged from standard input
    #[arg(allow_hyphen_values = true)]
    pub value: String,
    /// Format of the given value [default: text; raw from standard input]
    #[arg(long)]
    pub format: Option<InputFormat>,
    #[command(flatten)]
    pub key_arguments: KeyArguments,
    /// Expire the value after this number of seconds; not for multi-value trees
    #[arg(long, value_name = "SECONDS", value_parser = parse_ttl)]
    pub ttl: Option<u64>,
    /// When the command returns
    #[arg(long, default_value = "sync")]
    pub durability: DurabilityArgument,
    /// Create a missing database, whose parent directory must exist
    #[arg(long)]
    pub create: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
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
    /// The key; omit it to delete a range
    #[arg(required_unless_present_any = ["from", "to", "prefix"], conflicts_with_all = ["from", "to", "prefix"])]
    pub key: Option<String>,
    #[command(flatten)]
    pub range: RangeArguments,
    /// In a multi-value tree: the value to remove, in the text form [default: all values of the
    /// key]
    #[arg(long, allow_hyphen_values = true)]
    pub value: Option<String>,
    #[command(flatten)]
    pub key_arguments: KeyArguments,
    /// When the command returns
    #[arg(long, default_value = "sync")]
    pub durability: DurabilityArgument,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
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
    /// Start at this key
    #[arg(long, value_name = "KEY")]
    pub from: Option<String>,
    /// End before this key
    #[arg(long, value_name = "KEY")]
    pub to: Option<String>,
    /// Only keys with this prefix
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    pub prefix: Option<String>,
    /// Print from last to first
    #[arg(long)]
    pub reverse: bool,
    /// Maximum number of records
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Output format of the pairs
    #[arg(long, default_value = "text")]
    pub format: PairFormat,
    /// Print JSON lines; same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
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
    /// Find records whose field equals V
    #[arg(long, value_name = "V", group = "what", allow_hyphen_values = true)]
    pub eq: Option<String>,
    /// Find records whose field begins with V
    #[arg(long, value_name = "V", group = "what", allow_hyphen_values = true)]
    pub prefix: Option<String>,
    /// Maximum number of records
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Output format of the records
    #[arg(long, default_value = "text")]
    pub format: PairFormat,
    /// Print JSON lines; same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    #[command(flatten)]
    pub key_arguments: KeyArguments,
    #[command(flatten)]
    pub read: ReadArguments,
}
