//! Transactions, their iterators and streams, and commits for another process.

pub mod cursor;
mod ends;
pub mod forwarded;
pub mod forwarded_streams;
pub mod handle;
pub mod iter;
pub mod streams;
