//! Arguments of `dump` and `load`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::shared::{OpenArguments, ReadArguments};

/// How a dump is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DumpCompression {
    /// Not at all.
    None,
    /// Quickly.
    #[default]
    Lz4,
    /// Smaller, and more slowly.
    Zstd,
}

/// `braid dump`
#[derive(Debug, Args)]
pub struct DumpArguments {
    /// The database
    pub db: PathBuf,
    /// The file, which must not exist yet, or a pipe or device; `-` is standard output
    #[arg(default_value = "-")]
    pub file: PathBuf,
    /// Replace the file if there is one, and write to a terminal
    #[arg(long)]
    pub force: bool,
    /// How it is compressed
    #[arg(long, default_value = "lz4")]
    pub compression: DumpCompression,
    /// Pass over damage, name each gap, and end with 1; by default damage ends the dump
    #[arg(long)]
    pub skip_damaged: bool,
    /// How many threads read and pack [default: one a processor]
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
    /// The directory of the database; it must not exist yet, or be empty
    #[arg(group = "where")]
    pub db: Option<PathBuf>,
    /// Only read all of the dump and check it, and tell what it holds
    #[arg(long, group = "where")]
    pub check: bool,
    /// Take operands that a merge function can never apply, as they stand in the dump; else it is refused, and the first one named
    #[arg(long, conflicts_with = "check")]
    pub bad_operands: bool,
    /// Remove first what a killed load or restore left in the directory; a database is never removed
    #[arg(long, conflicts_with = "check")]
    pub force: bool,
    /// How many threads unpack and write [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: Option<u16>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}
