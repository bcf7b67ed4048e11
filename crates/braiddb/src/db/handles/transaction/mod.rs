//! Transactions, their iterators and streams.

pub mod cursor;
mod ends;
pub mod handle;
pub mod iter;
pub mod streams;
