//! Public handles: databases, trees, batches, snapshots, transactions, cursors and streams.

pub mod admin;
pub mod async_commit;
pub mod batch;
pub mod conditional;
pub mod counting;
pub mod cursor;
pub mod database;
pub mod expiry;
pub mod failing;
pub mod iter;
pub mod key_range;
pub mod merge;
pub mod multi;
pub mod ranges;
pub mod session_records;
pub mod snapshot;
pub mod streams;
#[cfg(test)]
pub mod tests;
pub mod transaction;
pub mod tree;
pub mod update;
