//! Trees in snapshots and transactions, their iterators, and cursors of multi-trees.

pub use crate::db::{
    AnyTree, MultiCursor, MultiIter, MultiValues, ReadMulti, SnapshotMultiTree, SnapshotTree, TransactionIter,
    TransactionMultiTree, TransactionTree,
};
