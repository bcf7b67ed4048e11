//! One database for several processes: see [`SharedDb`].
//!
//! The first process to open the database becomes its **owner**: it holds the lock and commits. The
//! others are **members**: they read the files as followers do, and send their writes to the owner
//! over a socket in the directory, or on Windows a named pipe. If the owner ends in any way, a member
//! takes over. There is no other process.

mod batch;
mod core;
mod database;
mod election;
mod errors;
mod exclusive;
mod forward;
mod frame;
mod held;
mod message;
mod multi;
mod owner;
mod polling;
mod reading;
mod seat;
mod server;
mod session;
mod streams;
mod transactions;
mod tree;

#[cfg(test)]
mod tests;

pub use batch::{AnySharedTree, SharedBatch};
pub use database::SharedDb;
pub(crate) use database::SharedOptions;
pub use multi::SharedMultiTree;
pub use streams::SharedStreamWriter;
pub use transactions::SharedTransaction;
pub use tree::SharedTree;
