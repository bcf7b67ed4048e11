//! The commands: each takes its arguments and returns its exit code.

mod backup;
mod backup_target;
mod copy_tree;
mod count;
mod created;
mod del_range;
mod dispatch;
mod dump;
mod explain;
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
#[cfg(feature = "shell")]
pub use count::KeyRange;
pub use count::{CountArguments, RangeArguments};
pub use dispatch::run;
#[cfg(feature = "shell")]
pub use explain::{plain_tree, write_explained};
pub use index::IndexCommand;
#[cfg(feature = "shell")]
pub use maintenance::tree_line;
#[cfg(any(feature = "shell", feature = "top"))]
pub use open::open_follower;
#[cfg(feature = "shell")]
pub use open::{NamedTree, key_notation, open_for_writing};
#[cfg(feature = "shell")]
pub use pairs::write_pair;
#[cfg(feature = "shell")]
pub use point::{parse_value, unix_us, write_value};
#[cfg(feature = "shell")]
pub use stats::write_stats;
#[cfg(feature = "shell")]
pub use tree_names::refuse_own_tree;
pub use tree_names::{DropTreeArguments, RenameTreeArguments};
