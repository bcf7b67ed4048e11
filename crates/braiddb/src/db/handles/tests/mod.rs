//! Tests of the database handles.

pub mod conditional;
pub mod counting;
pub mod cursor;
pub mod database;
pub mod exclusive;
pub mod expiry;
pub mod foreign_tree;
pub mod keep_ttl;
pub mod multi;
pub mod multi_view;
pub mod pops;
pub mod seek_rows;
pub mod stream_appends;
pub mod stream_records;
pub mod streams;
pub mod transaction_cursor;
pub mod transactions;
pub mod tree_options;
pub mod tree_view;
pub mod tree_writes;
