//! The commit path: conflicts, backpressure, blobs, log, memtable, full disks.

pub mod async_commit;
pub mod backpressure;
pub mod conflict_window;
pub mod full_disk;
pub mod pending_blobs;
pub mod piece_writer;
pub mod pipeline;
pub mod stages;
#[cfg(test)]
pub mod tests;
pub mod update_scope;
pub mod wal_bypass;
