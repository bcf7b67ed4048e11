//! Trees, their views in snapshots and transactions, and their writes.

mod handle;
pub mod view;
mod writes;

pub use handle::Tree;
