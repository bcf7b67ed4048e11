//! Background work: flushes, merges, hash indexes, scrubbing, verification, upgrades.

pub mod background;
mod choose;
pub mod compact;
pub mod dropping;
pub mod flush;
pub mod garbage_limit;
pub mod hash_indexes;
mod idle;
pub mod install;
pub mod io_throttle;
pub mod log_archive;
pub mod log_trim;
mod partition_shape;
pub mod scrub;
mod space;
#[cfg(test)]
pub mod tests;
pub mod upgrade;
pub mod verify;
