//! Trees in snapshots and transactions, their iterators, and cursors of multi-trees.

pub use crate::db::{MultiCursor, MultiIter, MultiTransactionIter, SnapshotTree, TransactionIter, TransactionTree};
