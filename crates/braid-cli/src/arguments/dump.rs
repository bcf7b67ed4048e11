//! Arguments of `dump` and `load`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::shared::{OpenArguments, ReadArguments};

/// Compression of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DumpCompression {
    /// No compression.
    None,
    /// Fast.
    #[default]
    Lz4,
    /// Smaller, but slower.
    Zstd,
}

/// `braid dump`
#[derive(Debug, Args)]
pub struct DumpArguments {
    /// The database
    pub db: PathBuf,
    /// The output: a new file, a pipe or a device; `-` is standard output
    #[arg(default_value = "-")]
    pub file: PathBuf,
    /// Replace an existing file, and allow output to a terminal
    #[arg(long)]
    pub force: bool,
    /// Compression of the dump
    #[arg(long, default_value = "lz4")]
    pub compression: DumpCompression,
    /// Skip damaged ranges, report each gap, and end with code 1; by default damage ends the dump
    #[arg(long)]
    pub skip_damaged: bool,
    /// Number of threads that read and compress [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: Option<u16>,
    /// Print the report as JSON, on standard error if the dump goes to standard output
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// `braid load`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("where").required(true))]
#[command(override_usage = "braid load [OPTIONS] <FILE> <DB>\n       braid load [OPTIONS] <FILE> --check")]
pub struct LoadArguments {
    /// The dump; `-` is standard input
    pub file: PathBuf,
    /// The directory of the database; must be new or empty
    #[arg(group = "where")]
    pub db: Option<PathBuf>,
    /// Only read and check the dump, and show its contents
    #[arg(long, group = "where")]
    pub check: bool,
    /// Keep merge operands that no merge function can apply; by default the load refuses them and
    /// names the first
    #[arg(long, conflicts_with = "check")]
    pub bad_operands: bool,
    /// First remove an unfinished load or restore in the directory; never removes a database
    #[arg(long, conflicts_with = "check")]
    pub force: bool,
    /// Number of threads that decompress and write [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: Option<u16>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}
