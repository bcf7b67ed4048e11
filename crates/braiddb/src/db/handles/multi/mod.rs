//! Trees of many values for a key.

pub mod cursor;
pub mod tree;
