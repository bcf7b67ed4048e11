//! The space that merges take and free, for a full disk.

mod gain;
mod run_by_run;

pub(super) use gain::SpaceGain;
pub(super) use run_by_run::free_space;
