//! Administrative calls on databases and trees.

mod archive;
mod dropping;
mod exclusive;
mod explain;
pub mod stats;
mod tree_options;
mod upgrade;
mod wal_bypass;
