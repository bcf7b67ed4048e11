//! The commands: each takes its arguments and returns its exit code.

mod backup;
mod copy_tree;
mod count;
mod created;
mod del_range;
mod dispatch;
mod dump;
mod export;
mod find;
#[cfg(feature = "completions")]
mod generate;
mod import;
mod index;
mod maintenance;
mod open;
mod pairs;
mod point;
mod salvage;
mod scan;
#[cfg(feature = "serve")]
mod serve;
mod stats;
mod tree_names;
mod verify;
mod watch;

pub use copy_tree::CopyTreeArguments;
pub use count::{CountArguments, RangeArguments};
pub use dispatch::run;
pub use index::IndexCommand;
pub use tree_names::{DropTreeArguments, RenameTreeArguments};
