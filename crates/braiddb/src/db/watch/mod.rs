//! The change stream: returns commits in order, read from the log.

mod change;
mod decode;
mod names;
mod options;
mod source;
mod stream;
mod token;
mod watcher;

pub use change::{Change, ChangeSet, ChangedTree, Gap, LoggedStream, MergeBase, MergeOperand};
pub use options::WatchOptions;
pub use stream::ChangeStream;
pub use token::ResumeToken;
pub use watcher::{WatchStopper, Watcher};
#[cfg(test)]
pub mod tests;
