//! Trees in snapshots and transactions, their iterators, and cursors of multi-trees.

pub use crate::db::{
    AnyTree, MultiCursor, MultiIter, MultiValues, ReadCursor, ReadMulti, SnapshotMultiTree, SnapshotTree,
    TransactionCursor, TransactionIter, TransactionMultiTree, TransactionTree,
};
