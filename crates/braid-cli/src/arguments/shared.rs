//! Arguments of several commands: how to open a database, and the notation of keys and values.

use clap::{Args, ValueEnum};

use crate::notation::{KeyNotation, parse_size};

/// When a commit returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DurabilityArgument {
    /// When it is on disk.
    #[default]
    Sync,
    /// When it is in the log's buffer; it reaches the disk shortly after.
    Buffered,
    /// When it is in memory, without WAL; it reaches the disk when the command ends.
    None,
}

/// Options to open a database.
#[derive(Clone, Debug, Default, Args)]
pub struct OpenArguments {
    /// Memory for caches and for records not yet in files, such as 64M or 1G; at least 64K [default:
    /// 256M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
}

/// Options to open a database for reading.
#[derive(Clone, Debug, Default, Args)]
pub struct ReadArguments {
    #[command(flatten)]
    pub open: OpenArguments,
    /// Open without a lock and change nothing on disk: the default for commands that only read
    #[arg(long)]
    pub read_only: bool,
}

/// Notation of keys.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct KeyArguments {
    /// Notation of keys [default: that of the tree: tuple if its codec has tuples, else set by its
    /// first record: u64 if an import took keys from numbers, else text]
    #[arg(long, value_name = "NOTATION")]
    pub keys: Option<KeyNotation>,
}

/// Output format of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ValueFormat {
    /// The text form, one value per line: `\\` is a backslash, `\xNN` an unprintable byte.
    Text,
    /// Hexadecimal, one value per line.
    Hex,
    /// The bytes, unchanged.
    Raw,
    /// One object {"key", "value"} per line; each a string, or {"hex": ".."} if not UTF-8.
    Json,
}

/// Format of a given value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    /// The text form, as `get` and `scan` print it: `\\` is a backslash, `\xNN` any byte.
    Text,
    /// Hexadecimal.
    Hex,
    /// The bytes, unchanged.
    Raw,
}

/// Output format of key-value pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PairFormat {
    /// Key, tab, value, in the text form: `\\` is a backslash, `\xNN` an unprintable byte.
    #[default]
    Text,
    /// Key, tab, value, in hexadecimal.
    Hex,
    /// One object {"key", "value"} per line; each a string, or {"hex": ".."} if not UTF-8.
    Json,
    /// One object {"key", "value"} per line; a value that is JSON is not escaped, for tools that
    /// read documents.
    Jsonl,
}

impl PairFormat {
    pub fn or_json(self, is_json: bool) -> PairFormat {
        if is_json { PairFormat::Json } else { self }
    }
}
