//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{
    bench::BenchArguments,
    import::{Format, IndexSpec, OnError},
    notation::{KeyNotation, parse_name, parse_size},
};

/// Store, query, import and inspect BraidDB databases.
///
/// A database is a directory. It holds named trees of keys and values, ordered by key; some trees hold many values to a
/// key.
#[derive(Debug, Parser)]
#[command(name = "braid", version, after_help = crate::exit::HELP, subcommand_required = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create an empty database
    Create(CreateArguments),
    /// Print the value of a key (all values, in a tree of many values to a key)
    Get(GetArguments),
    /// Store a value under a key (add one, in a tree of many values to a key)
    Put(PutArguments),
    /// Delete a key
    Del(DelArguments),
    /// Print keys and values in order
    Scan(ScanArguments),
    /// List the trees
    Trees(TreesArguments),
    /// Import records from a file, or trees from an export
    Import(ImportArguments),
    /// Find records by an index
    Find(FindArguments),
    /// Write trees as JSON lines, from which `import` makes the same trees again
    Export(ExportArguments),
    /// Print what was committed, as far back as the log is kept, as JSON lines
    ///
    /// One line a commit: its number, its time, what it changed, and a token to go on from. The log is kept as far back as recovery needs it,
    /// and beyond that once --keep was given. What the log does not reach back to is an error, and what it does not tell a change
    /// of type "gap": nothing is skipped silently. The command ends with the last commit; beside a process that has the database open, with
    /// the last that the log knows to be on disk.
    Watch(WatchArguments),
    /// Show sizes, counters, and the partitions with their runs and views
    Stats(StatsArguments),
    /// Read every file, check every checksum, and list each damaged unit
    ///
    /// A database that does not open is verified too, and one that another process has open. Nothing is written. Exit code 1 if anything
    /// is wrong.
    Verify(VerifyArguments),
    /// Merge everything into as few files as possible
    Compact(CompactArguments),
    /// Make, list, check and delete backups
    #[command(subcommand)]
    Backup(BackupCommand),
    /// Make a database of a backup
    Restore(RestoreArguments),
    /// Have a log archive hold all that the database's log still has
    Archive(ArchiveArguments),
    /// Make a second database as this one is now, sharing its files
    Checkpoint(CheckpointArguments),
    /// Write all that a database holds into one file or pipe, for `load`
    ///
    /// The dump is the state at one commit, while another process may go on writing. It holds every tree with its options, values of any length,
    /// when they expire, what merge functions have not been applied to yet, and the application cursor; and nothing of how the database keeps its
    /// files. Each part of it is checksummed, and its end as well.
    Dump(DumpArguments),
    /// Make a database of a dump, all of it or nothing
    ///
    /// The database is made in a new directory, and opens when all is in it. After an error nothing is left; after a kill, the directory does not
    /// open, and is to be removed.
    Load(LoadArguments),
    /// Make a new database of all that can be read of a damaged one
    ///
    /// Each record whose newest version stands in a part of a file that is whole comes out, and nothing else. What is gone is listed, with its file, tree,
    /// keys and commits as far as they are known. The damaged database is not written to, so it may be on a read-only medium; its manifest
    /// and CURRENT may be damaged or missing. Ends with 0 if nothing was lost, with 1 if something was.
    Salvage(SalvageArguments),
    /// Write files of earlier format versions anew
    ///
    /// An older database opens as it is; what is written is of the present version. This writes the rest anew. An open database does the same by
    /// itself while nothing is committed.
    Upgrade(UpgradeArguments),
    /// Print a file of a database in readable form
    Inspect(InspectArguments),
    /// Measure the engine, with the workloads of RocksDB's db_bench and of YCSB
    ///
    /// Each benchmark in the list works on what those before have left. Fills begin with an empty database, as db_bench has
    /// it, unless --use-existing-db is given. What is found is checked against what must be there; a wrong answer makes the
    /// command end with code 1.
    Bench(BenchArguments),
    /// Watch a dump go in, be looked up, be killed, and come back whole
    Demo(DemoArguments),
}

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
    /// Memory for caches and for what is not yet in files, such as 64M or 1G
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

/// `braid create`
#[derive(Debug, Args)]
pub struct CreateArguments {
    /// The directory; it must not exist yet, or be empty
    pub db: PathBuf,
}

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
    /// The database; created if there is none
    pub db: PathBuf,
    /// The tree; created if there is none
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
    /// The key
    pub key: String,
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

/// `braid trees`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("new_options").multiple(true))]
pub struct TreesArguments {
    /// The database
    pub db: PathBuf,
    /// Change the options of this tree, those that are given; it must exist
    #[arg(long, value_name = "TREE", requires = "new_options", conflicts_with = "read_only")]
    pub set: Option<String>,
    /// With --set: values put from now on expire after so many seconds, or `none`: not
    #[arg(long, value_name = "SECONDS|none", requires = "set", group = "new_options")]
    pub ttl: Option<String>,
    /// With --set: values of so many bytes or more go to blob files; or `default`: as the database says
    #[arg(long, value_name = "BYTES|default", requires = "set", group = "new_options")]
    pub blob_threshold: Option<String>,
    /// With --set: how files that are written from now on are compressed: none, lz4 or zstd; or `default`: as the database says
    #[arg(long, value_name = "NAME|default", requires = "set", group = "new_options")]
    pub compression: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// `braid import`
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// The database; created if there is none, and left alone with --dry-run and --to-jsonl
    pub db: PathBuf,
    /// The input; `-` is standard input. Input compressed by gzip, bzip2 or zstd is taken as it comes
    pub file: PathBuf,
    /// The tree to store records in [default for freedb: albums]
    #[arg(long, value_name = "TREE", value_parser = parse_name)]
    pub tree: Option<String>,
    /// What the input is written in [default: an export is known by its first line, all else by the input's name]
    #[arg(long)]
    pub format: Option<Format>,
    /// The field that makes the key; with :u64, a number stored in 8 bytes big-endian [default: the record's number]
    #[arg(long, value_name = "FIELD[:u64]")]
    pub key: Option<String>,
    /// An index: a tree of many values to a key, over a field [default for freedb: by_disc_id, by_artist, by_title]
    #[arg(long = "index", value_name = "NAME=FIELD[:lower]", value_parser = IndexSpec::parse)]
    pub indexes: Vec<IndexSpec>,
    /// What to do at a record that cannot be stored
    #[arg(long, default_value = "skip")]
    pub on_error: OnError,
    /// Go on where an import of the same input stopped, if there was one. What is imported with it is stored batch by batch, so that this can be
    /// done again; without it, records that go into an empty tree without indexes are loaded as a whole: faster, and all or nothing
    #[arg(long)]
    pub resume: bool,
    /// Parse, and store nothing
    #[arg(long, conflicts_with_all = ["to_jsonl", "resume"])]
    pub dry_run: bool,
    /// Write the records as JSON lines into a file instead (.gz, .bz2, .zst: compressed; `-`: standard output)
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub to_jsonl: Option<PathBuf>,
    /// The number of the first record
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub number_from: u64,
    /// How many parsers work at the same time [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// When a batch counts as stored
    #[arg(long, default_value = "sync")]
    pub durability: DurabilityArgument,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Say on standard output, after each durable batch, which records are durable; the report goes to standard error
    #[arg(long, hide = true)]
    pub acknowledge: bool,
    #[command(flatten)]
    pub open: OpenArguments,
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

/// `braid watch`
#[derive(Debug, Args)]
pub struct WatchArguments {
    /// The database
    pub db: PathBuf,
    /// Only changes of this tree
    #[arg(long, value_name = "TREE", value_parser = parse_name)]
    pub tree: Option<String>,
    /// Only keys that begin with this
    #[arg(long, value_name = "KEY", requires = "tree")]
    pub prefix: Option<String>,
    /// Begin after the commit with which this token was printed
    #[arg(long, value_name = "TOKEN")]
    pub from: Option<String>,
    /// Begin after the commit of this number
    #[arg(long, value_name = "N", conflicts_with = "from")]
    pub after: Option<u64>,
    /// At most so many commits
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Have the database keep so much of its log from now on, such as 64M; 0 for no more than recovery needs
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "read_only")]
    pub keep: Option<u64>,
    #[command(flatten)]
    pub key_arguments: KeyArguments,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// `braid stats`
#[derive(Debug, Args)]
pub struct StatsArguments {
    /// The database
    pub db: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Draw all partitions, and not only those that most need a merge
    #[arg(long)]
    pub partitions: bool,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// `braid verify`
#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// The database
    pub db: PathBuf,
    /// Print JSON: whether the database is sound, what was read, and each damaged unit with file, offset, length and keys
    #[arg(long)]
    pub json: bool,
    /// How many files are read at once [default: as many as there are processors, at most 4]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: Option<u16>,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// `braid compact`
#[derive(Debug, Args)]
pub struct CompactArguments {
    /// The database
    pub db: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid backup`
#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Add a backup: what an earlier one has is not copied again
    Create(CreateBackupArguments),
    /// List the backups
    List(ListBackupsArguments),
    /// Read every byte of the backups, or of one, and compare checksums
    Verify(VerifyBackupsArguments),
    /// Delete backups, and the files that no other has
    Delete(DeleteBackupArguments),
    /// Delete all backups but those that are to be kept
    Prune(PruneBackupsArguments),
}

/// Which backups stay. What either rule keeps stays, and so does the newest.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct RetentionArguments {
    /// Keep so many of the newest backups, and delete the others
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub keep: Option<u64>,
    /// Keep backups for so many days, and delete older ones
    #[arg(long, value_name = "DAYS")]
    pub keep_for: Option<u32>,
}

/// `braid backup create`
#[derive(Debug, Args)]
pub struct CreateBackupArguments {
    /// The database
    pub db: PathBuf,
    /// The directory with the backups; created if there is none
    pub target: PathBuf,
    /// Copy every file, also those that an earlier backup has
    #[arg(long)]
    pub full: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub retention: RetentionArguments,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid backup list`
#[derive(Debug, Args)]
pub struct ListBackupsArguments {
    /// The directory with the backups
    pub target: PathBuf,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
}

/// `braid backup verify`
#[derive(Debug, Args)]
pub struct VerifyBackupsArguments {
    /// The directory with the backups
    pub target: PathBuf,
    /// The number of the backup [default: all]
    #[arg(long, value_name = "N")]
    pub backup: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `braid backup delete`
#[derive(Debug, Args)]
pub struct DeleteBackupArguments {
    /// The directory with the backups
    pub target: PathBuf,
    /// The numbers of the backups
    #[arg(required = true, value_name = "BACKUP")]
    pub backups: Vec<u64>,
    /// Print the numbers of the deleted backups as JSON
    #[arg(long)]
    pub json: bool,
}

/// `braid backup prune`
#[derive(Debug, Args)]
pub struct PruneBackupsArguments {
    /// The directory with the backups
    pub target: PathBuf,
    /// Print the numbers of the deleted backups as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub retention: RetentionArguments,
}

/// `braid restore`
#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// The directory with the backups
    pub target: PathBuf,
    /// The directory of the new database; it must not exist yet, or be empty
    pub db: PathBuf,
    /// The number of the backup [default: the newest]
    #[arg(long, value_name = "N")]
    pub backup: Option<u64>,
    /// The log archive, for --to
    #[arg(long, value_name = "DIR", requires = "to")]
    pub archive: Option<PathBuf>,
    /// Restore to just after the commit of this number, or to this moment (2026-11-23T03:04:05Z)
    #[arg(long, value_name = "VERSION|TIME", requires = "archive", conflicts_with = "backup")]
    pub to: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `braid archive`
#[derive(Debug, Args)]
pub struct ArchiveArguments {
    /// The database
    pub db: PathBuf,
    /// The log archive; created if there is none
    pub archive: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid checkpoint`
#[derive(Debug, Args)]
pub struct CheckpointArguments {
    /// The database
    pub db: PathBuf,
    /// The directory of the new database; it must not exist yet, or be empty
    pub dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

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
    /// The file, which must not exist yet; `-` is standard output
    #[arg(default_value = "-")]
    pub file: PathBuf,
    /// How it is compressed
    #[arg(long, default_value = "lz4")]
    pub compression: DumpCompression,
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
    /// How many threads unpack and write [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: Option<u16>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid upgrade`
#[derive(Debug, Args)]
pub struct UpgradeArguments {
    /// The database
    pub db: PathBuf,
    /// Only list the files of earlier versions, and change nothing
    #[arg(long)]
    pub check: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid salvage`
#[derive(Debug, Args)]
pub struct SalvageArguments {
    /// The damaged database
    pub from: PathBuf,
    /// The directory of the new database; it must not exist yet, or be empty
    pub to: PathBuf,
    /// Take records of which a newer version, or a delete, may be gone, and list them; else they are left out and listed
    #[arg(long)]
    pub keep_stale: bool,
    /// Take nothing of the log after the first commit that is gone; else every commit that is whole is taken
    #[arg(long)]
    pub stop_at_gap: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `braid inspect`
#[derive(Debug, Args)]
pub struct InspectArguments {
    /// A file of a database
    pub file: PathBuf,
    /// Print at most so many entries, records or segments; totals are always told
    #[arg(long, value_name = "N")]
    pub rows: Option<usize>,
    /// Print at most so many bytes of a key or value
    #[arg(long, value_name = "N")]
    pub bytes: Option<usize>,
}

/// `braid demo`
#[derive(Clone, Debug, Args)]
pub struct DemoArguments {
    /// How many discs
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub discs: u64,
    /// Work here, and leave the dump and the database; without it, they are removed at the end
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Leave the dump and the database in the temporary directory
    #[arg(long)]
    pub keep: bool,
    /// What the discs are made from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Memory for the database
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "128M")]
    pub memory: u64,
}
