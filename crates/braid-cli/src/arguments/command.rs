//! The commands of `braid`.

use clap::{Parser, Subcommand};

use super::backup::{ArchiveArguments, BackupCommand, CheckpointArguments, RestoreArguments};
use super::demo::DemoArguments;
use super::dump::{DumpArguments, LoadArguments};
#[cfg(feature = "completions")]
use super::generate::{CompletionsArguments, ManArguments};
use super::import::{ExportArguments, ImportArguments};
use super::maintenance::{
    CompactArguments, CreateArguments, InspectArguments, SalvageArguments, StatsArguments, UpgradeArguments,
    VerifyArguments,
};
use super::records::{DelArguments, ExplainArguments, FindArguments, GetArguments, PutArguments, ScanArguments};
#[cfg(feature = "serve")]
use super::serve::ServeArguments;
#[cfg(feature = "shell")]
use super::shell::ShellArguments;
#[cfg(feature = "top")]
use super::top::TopArguments;
use super::trees::TreesArguments;
use super::watch::WatchArguments;
use crate::{
    bench::BenchArguments,
    commands::{CopyTreeArguments, CountArguments, DropTreeArguments, IndexCommand, RenameTreeArguments},
};

/// Store, query, import and inspect BraidDB databases.
///
/// A database is a directory with named trees of keys and values; a multi-value tree holds many
/// values per key.
#[derive(Debug, Parser)]
#[command(name = "braid", version, after_help = crate::exit::HELP, subcommand_required = true)]
pub struct Arguments {
    /// Log more to standard error: -v opens, flushes, merges, rates and times, -vv all that the engine
    /// does, -vvv traces [default: warnings]
    ///
    /// The environment variable RUST_LOG, such as `braiddb=debug`, overrides this option.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create an empty database
    Create(CreateArguments),
    /// Print the value of a key (all values, in a multi-value tree)
    Get(GetArguments),
    /// Print the steps of a get: memtables, runs, views and blocks, with times
    ///
    /// Runs the read and prints where it searched, what it read from disk, and where the value is.
    /// The command opens the database for it, so its caches are empty: another process that has the
    /// database open reads less. --repeat shows the reads of a warm cache.
    Explain(ExplainArguments),
    /// Store a value under a key (add a value, in a multi-value tree)
    Put(PutArguments),
    /// Delete a key, or a range of keys
    Del(DelArguments),
    /// Count the records of a tree or of a key range
    Count(CountArguments),
    /// Drop trees with all their records and indexes
    DropTree(DropTreeArguments),
    /// Rename a tree
    RenameTree(RenameTreeArguments),
    /// Copy a tree, within the database or into another one
    CopyTree(CopyTreeArguments),
    /// Print keys and values in order
    Scan(ScanArguments),
    /// List the trees, or change the options of one
    Trees(TreesArguments),
    /// Import records from a file, or trees from an export
    Import(ImportArguments),
    /// Add, drop, rebuild and list the indexes of a tree
    #[command(subcommand)]
    Index(IndexCommand),
    /// Find records by an index
    Find(FindArguments),
    /// Write trees as JSON lines that `import` reads
    Export(ExportArguments),
    /// Print the committed changes in the log as JSON lines
    ///
    /// Prints a line per commit: number, time, changes, and a token to continue from. By default
    /// the log keeps only the commits that recovery needs; --keep retains more. A change of type
    /// "gap" reports missing commits; --from or --after before a gap is an error. Ends after the
    /// last commit; if another process has the database open, after the last commit known to be on
    /// disk.
    Watch(WatchArguments),
    /// Serve a database over HTTP, with TLS also to other machines
    ///
    /// Listens at a loopback address unless --listen and --tls-cert are given. Without --write it opens the database for reading, also while another process writes it, and
    /// shows that process's commits a moment later. Each request needs the bearer token that the
    /// command prints. Ends in order, with code 0, after Ctrl-C or SIGTERM. docs/http.md describes
    /// the protocol.
    #[cfg(feature = "serve")]
    Serve(ServeArguments),
    /// Read and write a database command by command
    ///
    /// On a terminal it has a history and completion; otherwise it reads commands from standard
    /// input. Without --write it opens the database for reading, also while another process writes
    /// it, and shows that process's commits. The command `help` lists the commands.
    #[cfg(feature = "shell")]
    Shell(ShellArguments),
    /// Show the sizes of trees and files, and the partitions with their runs and views
    ///
    /// Counters, memory and slow commits are known only to the process that has the database open for
    /// writing: see `braid top`.
    Stats(StatsArguments),
    /// Show rates, latencies, memory and background work, live
    ///
    /// Of a server, all that its process knows. Of a directory, the commits and the files: the
    /// process that has it open keeps everything else to itself.
    #[cfg(feature = "top")]
    Top(TopArguments),
    /// Read every file, check every checksum, and list each damaged unit
    ///
    /// Also works on a database that does not open or that another process has open. Changes
    /// nothing. Ends with code 1 if anything is wrong.
    Verify(VerifyArguments),
    /// Merge all data into as few files as possible
    Compact(CompactArguments),
    /// Make, list, check and delete backups
    #[command(subcommand)]
    Backup(BackupCommand),
    /// Create a database from a backup
    Restore(RestoreArguments),
    /// Copy the log segments that a log archive still lacks into it
    Archive(ArchiveArguments),
    /// Create a second database with the current state, sharing files
    Checkpoint(CheckpointArguments),
    /// Write a whole database into one file or pipe, for `load`
    ///
    /// The dump is the state at one commit; another process may keep writing. It holds all trees
    /// with options, values, expiry times and merge operands, and the application cursor, but no
    /// file layout. All parts are checksummed.
    Dump(DumpArguments),
    /// Create a database from a dump, completely or not at all
    ///
    /// An error removes the new directory. A killed load leaves a directory that does not open;
    /// `load --force` replaces it.
    Load(LoadArguments),
    /// Create a new database from all readable data of a damaged one
    ///
    /// Recovers each record whose newest version is in an intact part of a file, and lists all
    /// losses. Never writes to the damaged database; its manifest and CURRENT may be damaged or
    /// missing. Ends with code 0 if nothing was lost, else 1.
    Salvage(SalvageArguments),
    /// Rewrite files of earlier format versions
    ///
    /// An older database opens without this command. An open database also rewrites older files
    /// while it is idle.
    Upgrade(UpgradeArguments),
    /// Print a file of a database in readable form
    Inspect(InspectArguments),
    /// Measure the engine, with the workloads of RocksDB's db_bench and of YCSB
    ///
    /// Each benchmark works on the rows of the previous one. Fills begin with an empty database, as
    /// in db_bench, unless --use-existing-db is given. A wrong answer ends the command with code 1.
    Bench(BenchArguments),
    /// Show an import, lookups, a killed import, and the recovery without loss
    Demo(DemoArguments),
    /// Print the completions of a shell
    ///
    /// For bash: `braid completions bash > ~/.local/share/bash-completion/completions/braid`
    #[cfg(feature = "completions")]
    Completions(CompletionsArguments),
    /// Write manual pages, one for each command
    #[cfg(feature = "completions")]
    Man(ManArguments),
}
