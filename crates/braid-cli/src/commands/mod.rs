//! The commands, each from its arguments to its exit code.

mod backup;
mod dispatch;
mod dump;
mod export;
mod find;
mod import;
mod index;
mod maintenance;
mod open;
mod pairs;
mod point;
mod salvage;
mod scan;
mod stats;
mod verify;
mod watch;

pub use dispatch::run;
pub use index::IndexCommand;
