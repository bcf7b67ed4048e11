//! The way of a commit: conflicts, backpressure, blobs, log and memtable; and a full disk.

pub mod backpressure;
pub mod conflict_window;
pub mod full_disk;
pub mod pending_blobs;
pub mod piece_writer;
pub mod pipeline;
#[cfg(test)]
pub mod tests;
pub mod update_scope;
pub mod wal_bypass;
