//! Arguments that many commands share: how a database is opened, and how keys and values are written.

use clap::{Args, ValueEnum};

use crate::notation::{KeyNotation, parse_size};

/// When a commit returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DurabilityArgument {
    /// When it is on the disk.
    #[default]
    Sync,
    /// When it is in the log's buffer; it is on the disk a little later.
    Buffered,
    /// When it is in memory; it is on the disk, past the log, when the command ends.
    None,
}

/// How a database is opened.
#[derive(Clone, Debug, Default, Args)]
pub struct OpenArguments {
    /// Memory for caches and for records that are not yet in files, such as 64M or 1G; from 64K to 67108863G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
}

/// How a database is opened by a command that only reads.
#[derive(Clone, Debug, Default, Args)]
pub struct ReadArguments {
    #[command(flatten)]
    pub open: OpenArguments,
    /// Change nothing on the disk, and take no lock: what commands that only read do in any case
    #[arg(long)]
    pub read_only: bool,
}

/// How keys are written.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct KeyArguments {
    /// How keys are written [default: as the tree's first record has it: u64 where an import took keys from numbers, else text]
    #[arg(long, value_name = "NOTATION")]
    pub keys: Option<KeyNotation>,
}

/// How values are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ValueFormat {
    /// In the text form, one a line: `\\` is a backslash, `\xNN` a byte that is not printable.
    Text,
    /// In hexadecimal, one a line.
    Hex,
    /// Their bytes.
    Raw,
    /// An object {"key", "value"} a line, each a string, or {"hex": ".."} if it is not UTF-8.
    Json,
}

/// How a value is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    /// In the text form, as `get` and `scan` print it: `\\` is a backslash, `\xNN` any byte.
    Text,
    /// In hexadecimal.
    Hex,
    /// Byte for byte.
    Raw,
}

/// How pairs of key and value are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PairFormat {
    /// Key, tab, value, in the text form: `\\` is a backslash, `\xNN` a byte that is not printable.
    #[default]
    Text,
    /// The same in hexadecimal.
    Hex,
    /// An object {"key", "value"} a line, each a string, or {"hex": ".."} if it is not UTF-8.
    Json,
    /// An object {"key", "value"} a line, in which a value that is JSON stands as it is: for tools that read documents.
    Jsonl,
}
