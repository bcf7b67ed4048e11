//! The command line as a whole: the commands.

use clap::{Parser, Subcommand};

use super::backup::{ArchiveArguments, BackupCommand, CheckpointArguments, RestoreArguments};
use super::demo::DemoArguments;
use super::dump::{DumpArguments, LoadArguments};
use super::import::{ExportArguments, ImportArguments};
use super::maintenance::{
    CompactArguments, CreateArguments, InspectArguments, SalvageArguments, StatsArguments, UpgradeArguments,
    VerifyArguments,
};
use super::records::{DelArguments, FindArguments, GetArguments, PutArguments, ScanArguments};
use super::trees::TreesArguments;
use super::watch::WatchArguments;
use crate::{
    bench::BenchArguments,
    commands::{CopyTreeArguments, CountArguments, DropTreeArguments, IndexCommand, RenameTreeArguments},
};

/// Store, query, import and inspect BraidDB databases.
///
/// A database is a directory. It holds named trees of keys and values, ordered by key; some trees hold many values to a
/// key.
#[derive(Debug, Parser)]
#[command(name = "braid", version, after_help = crate::exit::HELP, subcommand_required = true)]
pub struct Arguments {
    /// Show more of what the engine logs, on standard error: -v what it does, -vv details [default: warnings]
    ///
    /// The variable RUST_LOG, such as `braiddb=debug`, counts instead if it is set.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
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
    /// Delete a key, or a range of keys
    Del(DelArguments),
    /// Count the records of a tree, or of a range of keys
    Count(CountArguments),
    /// Drop trees with all that they hold, and their indexes
    DropTree(DropTreeArguments),
    /// Give a tree another name
    RenameTree(RenameTreeArguments),
    /// Copy a tree, also into another database
    CopyTree(CopyTreeArguments),
    /// Print keys and values in order
    Scan(ScanArguments),
    /// List the trees
    Trees(TreesArguments),
    /// Import records from a file, or trees from an export
    Import(ImportArguments),
    /// Add, drop, rebuild and list the indexes of a tree
    #[command(subcommand)]
    Index(IndexCommand),
    /// Find records by an index
    Find(FindArguments),
    /// Write trees as JSON lines, from which `import` makes the same trees again
    Export(ExportArguments),
    /// Print what was committed, as far back as the log is kept, as JSON lines
    ///
    /// One line a commit: its number, its time, what it changed, and a token to go on from. The log is kept as far back as recovery needs it,
    /// and beyond that once --keep was given. Commits that are not in the log are a change of type "gap", also those before its first one; to
    /// begin there, with --from or --after, is an error: nothing is skipped silently. The command ends with the last commit; beside a process
    /// that has the database open, with the last that the log knows to be on disk.
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
    /// open, and `load --force` replaces what is in it.
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
