//! Multi-trees: trees with many values per key.

pub mod cursor;
pub mod iter;
pub mod tree;
pub mod view;
