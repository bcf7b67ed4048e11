//! Multi-trees: trees with many values per key.

pub mod cursor;
pub mod tree;
