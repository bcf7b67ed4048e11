//! Arguments of `import` and `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::shared::{DurabilityArgument, KeyArguments, OpenArguments, ReadArguments};
use super::table::TableArguments;
use crate::import::{Format, IndexSpec, OnError};
use crate::notation::parse_name;

/// `braid import`
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// The database, unused with --dry-run and --to-jsonl; created trees are named on standard
    /// error
    pub db: PathBuf,
    /// The input; `-` is standard input. gzip, bzip2 and zstd are decompressed
    pub file: PathBuf,
    /// The tree for the records [default for freedb: albums]
    #[arg(long, value_name = "TREE", value_parser = parse_name)]
    pub tree: Option<String>,
    /// Format of the input [default: detected by its first line for an export, else by its name]
    #[arg(long)]
    pub format: Option<Format>,
    /// The field with the key, which may not be empty; with :u64, the number is stored as 8 bytes,
    /// big-endian [default: the record's number, counted from --number-from]
    #[arg(long, value_name = "FIELD[:u64]")]
    pub key: Option<String>,
    /// An index over a field, stored as a multi-value tree [default for freedb: by_disc_id,
    /// by_artist, by_title]
    #[arg(long = "index", value_name = "NAME=FIELD[:lower]", value_parser = IndexSpec::parse)]
    pub indexes: Vec<IndexSpec>,
    /// Action for a record that cannot be stored
    #[arg(long, default_value = "skip")]
    pub on_error: OnError,
    /// Write all skipped records unchanged into a new file (.gz, .bz2, .zst: compressed), for the
    /// same command once corrected. For discs it is a tar archive
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,
    /// Continue an earlier import of the same input, if any, and store batch by batch, so that an
    /// interrupted import can continue. Without it, an import into an empty tree without indexes is
    /// a bulk load: faster, but all or nothing
    #[arg(long)]
    pub resume: bool,
    /// Parse the input and store nothing
    #[arg(long, conflicts_with_all = ["to_jsonl", "resume"])]
    pub dry_run: bool,
    /// Write the records as JSON lines into FILE instead, which is replaced at the end (.gz, .bz2,
    /// .zst: compressed; `-`: standard output)
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub to_jsonl: Option<PathBuf>,
    /// The number of the first record, at most 2^63 [default: 0, in an empty tree]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1 << 63))]
    pub number_from: Option<u64>,
    /// Number of parser threads [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// When a batch counts as stored
    #[arg(long, default_value = "sync")]
    pub durability: DurabilityArgument,
    /// Create a missing database, whose parent directory must exist; removed again if nothing is
    /// stored
    #[arg(long)]
    pub create: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Report durable records on standard output after each durable batch; the summary goes to
    /// standard error
    #[arg(long, hide = true)]
    pub acknowledge: bool,
    #[command(flatten)]
    pub table: TableArguments,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// Format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Whole trees, byte for byte: `import` recreates the same trees
    Export,
    /// Documents for other tools: one object {"key", "value"} per line; a value that is JSON is not
    /// escaped
    Jsonl,
}

/// `braid export`
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// The database
    pub db: PathBuf,
    /// The trees [default: all]
    #[arg(value_name = "TREE", value_parser = parse_name)]
    pub trees: Vec<String>,
    /// Format of the export [default: export]
    #[arg(long)]
    pub format: Option<ExportFormat>,
    /// The output file (.gz, .bz2, .zst: compressed) [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only values, without keys, as `import` reads them; implies --format jsonl
    #[arg(long)]
    pub values: bool,
    /// Print the report as JSON, on standard error if the export goes to standard output
    #[arg(long)]
    pub json: bool,
    /// Skip damaged data, report it on standard error, and end with code 1
    #[arg(long)]
    pub keep_going: bool,
    #[command(flatten)]
    pub key_arguments: KeyArguments,
    #[command(flatten)]
    pub read: ReadArguments,
}
