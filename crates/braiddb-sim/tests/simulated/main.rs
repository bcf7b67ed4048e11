//! Batteries on the simulated disk, built as one program.

#[path = "../common/mod.rs"]
mod common;

mod async_commits;
mod backups;
mod bit_flips;
mod crash_exhaustive;
mod crash_pairs;
mod crash_random;
mod crash_versions;
mod crash_watch;
mod disk_full;
mod fault_sweep;
mod flush_races;
mod hermitage;
mod histories;
mod livelock;
mod model;
mod refused_commits;
mod reserve;
mod restore_points;
mod verify_damage;
