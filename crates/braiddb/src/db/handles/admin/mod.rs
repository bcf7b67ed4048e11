//! Calls on databases and trees beyond reads and writes.

mod archive;
mod dropping;
mod exclusive;
mod tree_options;
mod upgrade;
mod wal_bypass;
