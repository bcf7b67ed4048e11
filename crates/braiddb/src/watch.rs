//! The change stream: commits in order, read from the log.

pub use crate::db::{
    Change, ChangeSet, ChangeStream, ChangedTree, Gap, LoggedStream, MergeBase, MergeOperand, ResumeToken,
    WatchOptions, WatchStopper, Watcher,
};
