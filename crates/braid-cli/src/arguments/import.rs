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
    /// The database, left alone with --dry-run and --to-jsonl; trees that are created are named on standard error
    pub db: PathBuf,
    /// The input; `-` is standard input. Input compressed by gzip, bzip2 or zstd is taken as it comes
    pub file: PathBuf,
    /// The tree to store records in [default for freedb: albums]
    #[arg(long, value_name = "TREE", value_parser = parse_name)]
    pub tree: Option<String>,
    /// What the input is written in [default: an export is known by its first line, all else by the input's name]
    #[arg(long)]
    pub format: Option<Format>,
    /// The field that makes the key, which may not be empty; with :u64, a number stored in 8 bytes big-endian [default: the record's
    /// number, from --number-from]
    #[arg(long, value_name = "FIELD[:u64]")]
    pub key: Option<String>,
    /// An index: a tree of many values to a key, over a field [default for freedb: by_disc_id, by_artist, by_title]
    #[arg(long = "index", value_name = "NAME=FIELD[:lower]", value_parser = IndexSpec::parse)]
    pub indexes: Vec<IndexSpec>,
    /// What to do at a record that cannot be stored
    #[arg(long, default_value = "skip")]
    pub on_error: OnError,
    /// Write every record that is skipped into a file, as it is in the input: mended, the file is
    /// an input for the same command; of discs it is a tar archive (.gz, .bz2, .zst: compressed). An import that goes on with --resume
    /// takes a new FILE
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,
    /// Go on where an import of the same input stopped, if there was one. What is imported with it is stored batch by batch, so that this can be
    /// done again; without it, records that go into an empty tree without indexes are loaded as a whole: faster, and all or nothing
    #[arg(long)]
    pub resume: bool,
    /// Parse, and store nothing
    #[arg(long, conflicts_with_all = ["to_jsonl", "resume"])]
    pub dry_run: bool,
    /// Write the records as JSON lines into a file instead, which is replaced when all is written (.gz, .bz2, .zst: compressed; `-`: standard output)
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub to_jsonl: Option<PathBuf>,
    /// The number of the first record, at most 2^63 [default: 0, in a tree without records]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1 << 63))]
    pub number_from: Option<u64>,
    /// How many parsers work at the same time [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// When a batch counts as stored
    #[arg(long, default_value = "sync")]
    pub durability: DurabilityArgument,
    /// Create the database if there is none, in a directory that is there; it is removed again if nothing is stored
    #[arg(long)]
    pub create: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Say on standard output, after each durable batch, which records are durable; the report goes to standard error
    #[arg(long, hide = true)]
    pub acknowledge: bool,
    #[command(flatten)]
    pub table: TableArguments,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// What an export is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// All of the trees, byte for byte: `import` makes the same trees of it again.
    Export,
    /// The records of one tree as documents for other tools: an object {"key", "value"} a line, in which a value that is JSON stands as it is.
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
    /// What the export is written in [default: export]
    #[arg(long)]
    pub format: Option<ExportFormat>,
    /// The file (.gz, .bz2, .zst: compressed) [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only the values, without their keys, with --format jsonl, which need not be given then: records as an import takes them
    #[arg(long)]
    pub values: bool,
    /// Leave out what is damaged, name it on standard error, and end with code 1
    #[arg(long)]
    pub keep_going: bool,
    #[command(flatten)]
    pub key_arguments: KeyArguments,
    #[command(flatten)]
    pub read: ReadArguments,
}
