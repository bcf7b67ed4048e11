//! Trees, their views in snapshots and transactions, and their writes.

pub mod any;
mod handle;
pub mod view;
pub mod writes;

pub use handle::Tree;
