//! Commits that took long: their times, causes and statistics.

pub mod recorder;
pub mod report;
pub mod timer;
