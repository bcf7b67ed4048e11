//! The command line: one file per group of commands.

mod backup;
mod command;
mod demo;
mod dump;
#[cfg(feature = "completions")]
mod generate;
mod import;
mod maintenance;
mod records;
#[cfg(feature = "serve")]
mod serve;
mod shared;
#[cfg(feature = "shell")]
mod shell;
mod table;
#[cfg(feature = "top")]
mod top;
mod trees;
mod watch;

pub use backup::{
    ArchiveArguments, BackupCommand, CheckpointArguments, CreateBackupArguments, DeleteBackupArguments,
    ListBackupsArguments, RestoreArguments, RetentionArguments, VerifyBackupsArguments,
};
pub use command::{Arguments, Command};
pub use demo::DemoArguments;
pub use dump::{DumpArguments, DumpCompression, LoadArguments};
#[cfg(feature = "completions")]
pub use generate::{CompletionsArguments, ManArguments};
pub use import::{ExportArguments, ExportFormat, ImportArguments};
pub use maintenance::{
    CompactArguments, CreateArguments, InspectArguments, SalvageArguments, StatsArguments, StatsOptions,
    UpgradeArguments, VerifyArguments,
};
pub use records::{DelArguments, ExplainArguments, FindArguments, GetArguments, PutArguments, ScanArguments};
#[cfg(feature = "serve")]
pub use serve::ServeArguments;
pub use shared::{
    DurabilityArgument, InputFormat, KeyArguments, OpenArguments, PairFormat, ReadArguments, ValueFormat,
};
#[cfg(feature = "shell")]
pub use shell::ShellArguments;
#[cfg(feature = "top")]
pub use top::TopArguments;
pub use trees::TreesArguments;
pub use watch::WatchArguments;
