//! Tests of maintenance, one behavior per file.

pub mod deferred_close;
#[cfg(any(target_os = "linux", windows))]
pub mod direct_io;
pub mod dropping;
pub mod expiry;
pub mod flush;
pub mod flush_limits;
pub mod hash_index;
pub mod io_throttle;
pub mod merging;
pub mod scrub;
pub mod unindexed_runs;
pub mod verify;
