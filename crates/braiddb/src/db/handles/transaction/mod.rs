//! Transactions, their iterators and streams.

pub mod cursor;
pub mod handle;
pub mod iter;
pub mod streams;
